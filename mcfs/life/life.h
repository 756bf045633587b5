/* SPDX-License-Identifier: Apache-2.0
 * life.h - life of a mount: session, mount point, takeover and supervisor. */
#ifndef MCFS_LIFE_H
#define MCFS_LIFE_H

#include <stdbool.h>
#include <stdint.h>

struct mcfs;

/* ---- mount.c: the session ---------------------------------------------------------------------- */

/* Mount, and serve in own threads until the session ends; @ended is called then. */
int mcfs_session_start(struct mcfs *fs, void (*ended)(void *arg), void *arg);
/* Wait at most @ms until the mount serves: 0 or -ETIMEDOUT. */
int mcfs_session_wait_ready(struct mcfs *fs, uint64_t ms);
/* Is our own mount still at the mount point? */
bool mcfs_session_is_mounted(const struct mcfs *fs);
/* Detach the mount, wait for running operations, stop the threads. -ETIMEDOUT: some operations or
 * threads did not end within @ms and still run. */
int mcfs_session_stop(struct mcfs *fs, uint64_t ms);
/* The same without the detaching. */
int mcfs_session_join(struct mcfs *fs, uint64_t ms);
void mcfs_session_free(struct mcfs *fs);

/* ---- mountpoint.c ------------------------------------------------------------------------------ */

/* Prepare @dir as a mount point: detach a dead daemon's mount from it. 0 and the absolute path
 * (free() it), or negative with a detail that names the problem. */
int mcfs_mountpoint_prepare(const char *dir, char **ret_path);
/* Unmount lazily, also with open files. */
void mcfs_mountpoint_detach(const char *path);
bool mcfs_mountpoint_is_mounted(const char *path);
/* The mount's number below /sys/fs/fuse/connections, or -ENOENT. The kernel reuses the number after
 * the mount has ended. */
int mcfs_mountpoint_connection(const char *path);
/* State of a mount of mcfs: 0, it answers; ENOTCONN or ECONNABORTED, its daemon is dead; ETIMEDOUT,
 * no answer for some seconds; or another errno. */
int mcfs_mountpoint_probe(const char *path);
/* Does the connection number of a stalled daemon's mount belong to another mount by now? */
bool mcfs_mountpoint_is_reused(int connection);

/* ---- takeover.c -------------------------------------------------------------------------------- */

/* Find a dead daemon's mount to take over. Sets @fs->taken_over and the fields that belong to it. A mount that
 * has ended is not taken over, but the memory with its objects is: sets @fs->segment_fd. 0 or negative. */
int mcfs_takeover_begin(struct mcfs *fs);
/* Create the handoff table of a new mount, if the options ask for one; it replaces the table of a mount that
 * has ended. */
int mcfs_takeover_handoff(struct mcfs *fs);
/* Store the descriptors that a next daemon needs (fdstore.h); the mount is there. */
int mcfs_takeover_keep(struct mcfs *fs);
/* Recreate the inodes, handles and locks of the previous daemon, before the mount serves. */
int mcfs_takeover_restore(struct mcfs *fs);

/* ---- supervise.c ------------------------------------------------------------------------------- */

/* Become the supervisor of daemons. Returns 0 in each daemon: the next one is forked when the last one is
 * killed, and receives its stored descriptors. Never returns in the supervisor, which ends together with the
 * last daemon. @parent: a descriptor for the first daemon only, set to -1 in all others; -1: in the foreground. */
int mcfs_supervise(int *parent);
/* In such a daemon: the descriptor stored as @name, or -ENOENT. */
int mcfs_supervise_kept(const char *name);

#endif
