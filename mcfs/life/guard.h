/* SPDX-License-Identifier: Apache-2.0
 * guard.h - a process beside the daemon for what a daemon that stands still, or is dead, cannot do.
 *
 * A daemon that is dead keeps nobody waiting: the kernel fails its callers at once, and the guard removes the
 * socket that was left.  One that is stopped, or starved of memory, keeps them waiting, and those cannot even
 * be killed.  The guard sees that the daemon's clock does not tick, and aborts the connection: every caller
 * gets an error.  It counts its own looks, so that a machine that was suspended, or a guard that was stopped
 * itself, blames nobody. */
#ifndef MCFS_GUARD_H
#define MCFS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Fork the guard of the mount at @dir, which is yet to be made; the caller has one thread only.  @stall_ms: the
 * mount is ended after that; 0: never.  @argc and @argv: the program's arguments, over which the guard writes
 * what it is; @foreground: it speaks on standard error.  0 or -errno. */
int mcfs_guard_fork(const char *dir, uint64_t stall_ms, bool foreground, int argc, char **argv);
/* The mount is there, and @connection is its number (mcfs_mountpoint_connection()): begin to tick, and to be watched.
 * -ENOENT when it is 0, not known. */
int mcfs_guard_begin(int connection);
/* The socket @path is the only file of its directory, and both go when the daemon is killed.  One of a process;
 * does nothing without a guard. */
void mcfs_guard_socket(const char *path);
/* End the guard; does nothing without one. */
void mcfs_guard_end(void);

#endif
