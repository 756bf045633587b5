/* SPDX-License-Identifier: Apache-2.0
 * fdstore.h - descriptors that somebody keeps for the next daemon: systemd, or our own supervisor, which
 * speaks the same protocol (sd_notify(3) at the socket NOTIFY_SOCKET; LISTEN_FDS, LISTEN_FDNAMES and
 * LISTEN_PID at the start). */
#ifndef MCFS_FDSTORE_H
#define MCFS_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Is there somebody to keep them? */
bool mcfs_fdstore_there(void);
/* The descriptor that an earlier daemon gave away under @name; -ENOENT.  It is the caller's from then on. */
int mcfs_fdstore_take(const char *name);
/* Have @fd kept as @name, in the place of what was kept under it before.  0 or -errno. */
int mcfs_fdstore_keep(const char *name, int fd);
int mcfs_fdstore_drop(const char *name);
/* Tell how we are ("READY=1"); nothing happens when nobody listens. */
void mcfs_fdstore_tell(const char *text);

#define MCFS_FD_FUSE "mcfs-fuse"
#define MCFS_FD_HANDOFF "mcfs-book"
#define MCFS_FD_SEGMENT "mcfs-segment"

/* ---- supervise.c ------------------------------------------------------------------------------- */

/* Become the supervisor of daemons: the function returns 0 in each of them, one after the other as they are
 * killed, with what the last one had kept, and never in the supervisor, whose end is theirs.  @parent: a
 * descriptor of the first one's only, -1 in all others; -1: we are in the foreground. */
int mcfs_supervise(int *parent);
/* In such a daemon: what was kept under @name, or -ENOENT. */
int mcfs_supervise_kept(const char *name);

#endif
