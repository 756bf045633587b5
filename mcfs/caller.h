/* SPDX-License-Identifier: Apache-2.0
 * caller.h - who is behind a request: a FUSE request carries the caller's thread id, and the kernel's
 * /proc tells how that thread's process is doing.  A thread id of 0 belongs to a process that this pid
 * namespace does not show: it counts as alive, and all of those as one process. */
#ifndef MCFS_CALLER_H
#define MCFS_CALLER_H

#include <stdbool.h>
#include <sys/types.h>

enum mcfs_fate {
	MCFS_ALIVE,
	MCFS_EXITED,	/* is ending by exit(0) */
	MCFS_DIED,	/* is ending by a signal or with a non-zero status, or may be: mcfs_caller_hides_end() */
	MCFS_GONE	/* is not there any more: nobody knows */
};

/* Does our pid namespace show every process that there is?  Others' writers cannot be seen to be killed without. */
bool mcfs_caller_all_seen(void);
/* The process of thread @tid; @tid itself when it is gone. */
pid_t mcfs_caller_process(pid_t tid);
/* Does thread @tid belong to process @pid? */
bool mcfs_caller_is(pid_t pid, pid_t tid);
enum mcfs_fate mcfs_caller_fate(pid_t tid);
/* May this daemon not see what @tid ends with?  It is another user's, or has more privileges, and we have not got
 * CAP_SYS_PTRACE: no end of it is taken for a good one. */
bool mcfs_caller_hides_end(pid_t tid);
/* Does no process hide it? */
bool mcfs_caller_all_ends_seen(void);
/* Has process @pid ended, to its last thread?  What cannot be seen has not. */
bool mcfs_caller_ended(pid_t pid);
/* Is a signal under way to @tid that will end it? */
bool mcfs_caller_killed(pid_t tid);

#endif
