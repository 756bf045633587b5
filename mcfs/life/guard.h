/* SPDX-License-Identifier: Apache-2.0
 * guard.h - a process next to the daemon that acts when the daemon is dead or stalled.
 *
 * If the daemon is dead, the kernel fails its callers at once, and the guard removes the leftover
 * socket. If the daemon is stopped, or starved of memory, its callers wait and cannot even be
 * killed: the guard notices that the tick counter stands still and aborts the connection, so that
 * every caller gets an error. The daemon mounts again when it continues. The guard counts its own
 * checks instead of time, so that a suspended machine or a stopped guard does not count as a stall. */
#ifndef MCFS_GUARD_H
#define MCFS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Fork the guard of the mount that will be made at @dir; the caller must be single-threaded.
 * @stall_ms: abort the mount after a stall of this length, 0: never. @argc and @argv: the program's
 * arguments, which the guard overwrites with its name; @foreground: the guard logs to standard
 * error. 0 or -errno. */
int mcfs_guard_fork(const char *dir, uint64_t stall_ms, bool foreground, int argc, char **argv);
/* Start to tick and to be watched, also after mcfs_guard_pause(). @connection: the mount's number
 * (mcfs_mountpoint_connection()). -ENOENT if it is 0, unknown. */
int mcfs_guard_begin(int connection);
/* Has the guard aborted the mount because of a stall? */
bool mcfs_guard_aborted(void);
/* The daemon has no mount for a while: the guard aborts nothing, and forgets that it did. */
void mcfs_guard_pause(void);
/* Remove the socket @path and its directory, which has no other file, when the daemon is killed. At
 * most one per process; does nothing without a guard. */
void mcfs_guard_socket(const char *path);
/* Replace the standard descriptors with /dev/null, so that a reader of the daemon's output does not
 * wait for the calling process. @keep_stderr: except standard error. */
void mcfs_guard_leave_output(bool keep_stderr);
/* End the guard; does nothing without one. */
void mcfs_guard_end(void);

#endif
