/* SPDX-License-Identifier: Apache-2.0
 * fdstore.h - descriptors that another process keeps for the next daemon: systemd, or our own
 * supervisor, which speaks the same protocol (sd_notify(3) at the socket NOTIFY_SOCKET; LISTEN_FDS,
 * LISTEN_FDNAMES and LISTEN_PID at the start). */
#ifndef MCFS_FDSTORE_H
#define MCFS_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is there such a process? */
bool mcfs_fdstore_there(void);
/* Take the descriptor that an earlier daemon stored as @name, or -ENOENT. The caller owns it. */
int mcfs_fdstore_take(const char *name);
/* Store @fd as @name, replacing the descriptor stored there before. 0 or -errno. */
int mcfs_fdstore_keep(const char *name, int fd);
int mcfs_fdstore_drop(const char *name);
/* Report our state, such as "READY=1"; does nothing without a listener. */
void mcfs_fdstore_tell(const char *text);

#define MCFS_FD_FUSE "mcfs-fuse"
#define MCFS_FD_HANDOFF "mcfs-book"
#define MCFS_FD_SEGMENT "mcfs-segment"

#endif
