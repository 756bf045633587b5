/* SPDX-License-Identifier: Apache-2.0
 * packet.h - unix sockets that keep messages apart (SOCK_SEQPACKET), each with one descriptor at the most.
 * Addresses are "unix:PATH" and "unix:@NAME" (net.h); sockets do not block and close on exec. */
#ifndef MC_PACKET_H
#define MC_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A path is made anew when nobody listens at it any more; -EADDRINUSE when somebody does. */
int mc_packet_listen(const char *addr, int backlog);
/* Within the deadline, while the other side's queue is full; the descriptor or -errno with a detail. */
int mc_packet_connect(const char *addr, uint64_t deadline);

/* One packet, with @fd unless that is -1.  Waits for room until @deadline (0: not at all, -EAGAIN). */
int mc_packet_send(int sock, const void *data, size_t len, int fd, uint64_t deadline);
/* Its length (more than @len: it was cut), 0 at the end of the connection, -EAGAIN when none came until
 * @deadline (0: none is there).  *ret_fd becomes the caller's; -1: none.
 * Others that came with it, and all when ret_fd is NULL, never become descriptors here. */
ssize_t mc_packet_recv(int sock, void *data, size_t len, int *ret_fd, uint64_t deadline);

#endif
