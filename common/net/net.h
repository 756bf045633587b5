/* SPDX-License-Identifier: Apache-2.0
 * net.h - addresses and stream sockets.  An address is a string:
 *	HOST:PORT   TCP; IPv6 in brackets; HOST may be a name
 *	unix:PATH   unix stream socket; unix:@NAME is in the abstract namespace
 * All sockets are non-blocking and close-on-exec; TCP ones have TCP_NODELAY. */
#ifndef MC_NET_H
#define MC_NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define MC_ADDR_MAX 256		/* bytes of an address string including the final NUL */

/* Listen on @addr; port 0 selects a free one.  @reuseport: listeners of this process may share the
 * port.  @ret_bound, if not NULL, gets the real address.  Returns the descriptor, or -errno with a
 * detail that names the address ("address already in use: 0.0.0.0:50051"). */
int mc_listen(const char *addr, int backlog, int reuseport, char ret_bound[MC_ADDR_MAX]);

/* Connect within the deadline (mc_now_ns() scale), trying every address of a name.  Returns the
 * descriptor or -errno (-ETIMEDOUT, -ECONNREFUSED...) with a detail. */
int mc_connect(const char *addr, uint64_t deadline);

/* Accept a connection: descriptor or -errno; -EAGAIN when none is waiting. */
int mc_accept(int listen_fd);

/* The peer's address as text; "unix:UID" with the peer's user for unix sockets. */
const char *mc_peer_name(int fd, char buf[MC_ADDR_MAX]);

/* Split "host:port"; without a port *ret_port is @default_port.  -EINVAL for an invalid address. */
int mc_addr_split(const char *addr, char *host, size_t host_len, int default_port, int *ret_port);
/* Is @ip (a numeric address, in brackets or not) an address of HOST in @addr ("HOST:PORT")?  1 or 0.
 * @deadline 0: if HOST is a name, -EAGAIN without a lookup; else the errors of a lookup, with a detail. */
int mc_addr_is_of(const char *addr, const char *ip, uint64_t deadline);
/* Make "host:port"; an IPv6 address gets brackets.  -EINVAL if the host is too long. */
int mc_addr_join(const char *host, int port, char ret[MC_ADDR_MAX]);

/* Send one descriptor over a unix socket together with up to @len bytes; wait up to @deadline.
 * Number of bytes, or -errno. */
ssize_t mc_send_fd(int sock, int fd, const void *data, size_t len, uint64_t deadline);
/* The first descriptor of a received message, -1: none; the others are closed. */
int mc_take_fd(struct msghdr *msg);

#endif
