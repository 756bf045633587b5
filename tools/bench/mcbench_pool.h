/* SPDX-License-Identifier: Apache-2.0
 * mcbench_pool.h - a pool of mcbench's own: a master in a child process, and one segment of this process. */
#ifndef MCBENCH_POOL_H
#define MCBENCH_POOL_H

#include <limits.h>
#include <sys/types.h>

#include "tools/bench/mcbench.h"

struct mcbench_pool {
	pid_t pid;			/* the master's process; 0: none */
	int pidfd, log;			/* -1: none; the log has the master's output */
	char dir[PATH_MAX];		/* directory of the master's socket, only for this user; empty: none */
	char addr[PATH_MAX + 16];
	mcs_t *store;			/* NULL until mcbench_pool_open() */
};

/* Start a master with this eviction policy, NULL: its default, and wait until it serves.  Promise leases are off: they
 * last for a time, and a replay at full speed does the work of hours in seconds.  Call it from the main thread: the
 * kernel kills the master when the calling thread ends.  Returns an exit status, after a signal MCBENCH_OK; an error
 * has been reported. */
int mcbench_pool_start(struct mcbench_pool *p, const struct mcbench_conf *conf, const char *policy);

/* Add a segment with room for exactly @blocks objects of conf->block_size bytes.  Returns an exit status. */
int mcbench_pool_open(struct mcbench_pool *p, const struct mcbench_conf *conf, uint64_t blocks);

/* End the master and remove its directory, in any state after mcbench_pool_start(). */
void mcbench_pool_stop(struct mcbench_pool *p);

/* Bytes of a segment that an object of @size takes. */
uint64_t mcbench_pool_stride(uint64_t size);

#endif
