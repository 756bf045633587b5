/* SPDX-License-Identifier: Apache-2.0
 * packet.h - unix sockets with message boundaries (SOCK_SEQPACKET); a packet has at most one descriptor.
 * Addresses are "unix:PATH" and "unix:@NAME" (net.h); sockets are non-blocking and close-on-exec. */
#ifndef MC_PACKET_H
#define MC_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A socket file without a listener is replaced; -EADDRINUSE when a process listens on it. */
int mc_packet_listen(const char *addr, int backlog);
/* A connection that waits: the descriptor; -EAGAIN, or -errno with a detail. */
int mc_packet_accept(int listener);
/* Waits up to @deadline while the listener's queue is full.  The descriptor, or -errno with a detail. */
int mc_packet_connect(const char *addr, uint64_t deadline);

/* Send one packet, with @fd unless that is -1.  Waits for space up to @deadline (0: returns -EAGAIN at once). */
int mc_packet_send(int sock, const void *data, size_t len, int fd, uint64_t deadline);
/* Receive one packet: its length (more than @len: it was truncated), 0 at the end of the
 * connection, -EAGAIN when none has arrived by @deadline (0: does not wait).  The caller owns
 * *ret_fd; -1: none.  The kernel drops further descriptors of the packet, and all of them when
 * @ret_fd is NULL. */
ssize_t mc_packet_recv(int sock, void *data, size_t len, int *ret_fd, uint64_t deadline);

#endif
