/* SPDX-License-Identifier: Apache-2.0
 * caller.h - the process behind a request. A FUSE request carries the caller's thread id, and /proc
 * tells whether that thread's process is alive. Thread id 0 belongs to a process outside this pid
 * namespace: such a process counts as alive, and all of them count as one process. */
#ifndef MCFS_CALLER_H
#define MCFS_CALLER_H

#include <stdbool.h>
#include <sys/types.h>

enum mcfs_fate {
	MCFS_ALIVE,
	MCFS_EXITED,	/* ending with exit(0) */
	/* ending with a signal or a non-zero status, or the status is hidden: mcfs_caller_hides_end() */
	MCFS_DIED,
	MCFS_GONE	/* no longer exists: its exit status is unknown */
};

/* Does our pid namespace show all processes? If not, kills of writers in other namespaces go unnoticed. */
bool mcfs_caller_all_seen(void);
/* The process of thread @tid; @tid itself when the thread no longer exists. */
pid_t mcfs_caller_process(pid_t tid);
/* Does thread @tid belong to process @pid? */
bool mcfs_caller_is(pid_t pid, pid_t tid);
enum mcfs_fate mcfs_caller_fate(pid_t tid);
/* Is the exit status of @tid hidden from this daemon? True if its process belongs to another user or has more
 * privileges, and the daemon lacks CAP_SYS_PTRACE: then every end of it counts as a failure. */
bool mcfs_caller_hides_end(pid_t tid);
/* Can this daemon see the exit status of every process? */
bool mcfs_caller_all_ends_seen(void);
/* Have all threads of process @pid ended? A process that cannot be seen counts as running. */
bool mcfs_caller_ended(pid_t pid);
/* Has thread @tid a pending signal that will end it? */
bool mcfs_caller_killed(pid_t tid);

#endif
