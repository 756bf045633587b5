/* SPDX-License-Identifier: Apache-2.0
 * host.h - the address at which other nodes reach this one. */
#ifndef MCN_HOST_H
#define MCN_HOST_H

#include <stddef.h>

/* Copies @host; if that is a wildcard address ("0.0.0.0"), uses the source address of the route to the first
 * address in @master. */
void mcn_host_of(const char *host, const char *master, char *ret, size_t size);

#endif
