/* SPDX-License-Identifier: Apache-2.0
 * socket.h - sockets as bare descriptors, for the protocols that cannot use streams (stream.h): upstream's protocol and
 * handshake, redis, and messages with descriptors.  tests/lint/sockets.sh has the list of the files that may include
 * this header.
 *
 * Addresses are those of net.h.  All sockets are non-blocking and close-on-exec; TCP ones have TCP_NODELAY. */
#ifndef MC_SOCKET_H
#define MC_SOCKET_H

#include <stdbool.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/net/net.h"

/* Listen on @addr; port 0 selects a free one.  @reuseport: listeners of this process may share the
 * port.  @ret_bound, if not NULL, gets the real address.  Returns the descriptor, or -errno with a
 * detail that names the address ("address already in use: 0.0.0.0:50051"). */
int mc_socket_listen(const char *addr, int backlog, int reuseport, char ret_bound[MC_ADDR_MAX]);

/* Connect within the deadline (mc_now_ns() scale), trying every address of a name.  Returns the
 * descriptor or -errno (-ETIMEDOUT, -ECONNREFUSED...) with a detail. */
int mc_socket_connect(const char *addr, uint64_t deadline);

/* Accept a connection: descriptor or -errno; -EAGAIN when none is waiting. */
int mc_socket_accept(int listen_fd);

/* The address of an end of a socket, IPv4 as ::ffff:a.b.c.d: 1; 0: a unix socket; -1: not connected. */
int mc_socket_end(int fd, bool peer, struct in6_addr *ret);
/* Is the peer a process of this host: at a unix socket, or with the address of this end? */
bool mc_socket_same_host(int fd);

/* The peer's address as text; "unix:UID" with the peer's user for unix sockets. */
const char *mc_socket_peer(int fd, char buf[MC_ADDR_MAX]);

/* Send or receive at most @len bytes without waiting: their number; -EAGAIN: wait for the socket first; -errno.  0 from
 * the second one: the peer has ended its side. */
ssize_t mc_socket_send(int fd, const void *data, size_t len);
ssize_t mc_socket_recv(int fd, void *buf, size_t len);

/* Send one descriptor over a unix socket together with up to @len bytes; wait up to @deadline.
 * Number of bytes, or -errno. */
ssize_t mc_send_fd(int sock, int fd, const void *data, size_t len, uint64_t deadline);
/* The first descriptor of a received message, -1: none; the others are closed. */
int mc_take_fd(struct msghdr *msg);

#endif
