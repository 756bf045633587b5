/* SPDX-License-Identifier: Apache-2.0
 * net.h - addresses.  An address is a string:
 *	HOST:PORT   TCP; IPv6 in brackets; HOST may be a name
 *	unix:PATH   unix stream socket; unix:@NAME is in the abstract namespace
 * Connections to addresses are streams (stream.h). */
#ifndef MC_NET_H
#define MC_NET_H

#include <stddef.h>
#include <stdint.h>

#define MC_ADDR_MAX 256		/* bytes of an address string including the final NUL */

/* Split "host:port"; without a port *ret_port is @default_port.  -EINVAL for an invalid address. */
int mc_addr_split(const char *addr, char *host, size_t host_len, int default_port, int *ret_port);
/* Is @ip (a numeric address, in brackets or not) an address of HOST in @addr ("HOST:PORT")?  1 or 0.
 * @deadline 0: if HOST is a name, -EAGAIN without a lookup; else the errors of a lookup, with a detail. */
int mc_addr_is_of(const char *addr, const char *ip, uint64_t deadline);
/* Make "host:port"; an IPv6 address gets brackets.  -EINVAL if the host is too long. */
int mc_addr_join(const char *host, int port, char ret[MC_ADDR_MAX]);

#endif
