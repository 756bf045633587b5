/* SPDX-License-Identifier: Apache-2.0
 * host.h - the address under which other nodes find this one. */
#ifndef MCN_HOST_H
#define MCN_HOST_H

#include <stddef.h>

/* @host as configured; when it names no address ("0.0.0.0"), the one from which packets to the first
 * of @master go out. */
void mcn_host_of(const char *host, const char *master, char *ret, size_t size);

#endif
