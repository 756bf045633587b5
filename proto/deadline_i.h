/* SPDX-License-Identifier: Apache-2.0
 * deadline_i.h - deadlines for the waits of pthreads and poll. */
#ifndef MCP_DEADLINE_I_H
#define MCP_DEADLINE_I_H

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/thread.h"

/* A day is as good as never for one wait: all waits here are in loops. */
#define MCP_WAIT_MAX_NS (86400 * MC_NS_PER_SEC)

static inline uint64_t mcp_left_ns(uint64_t deadline)
{
	uint64_t now = mc_now_ns(), left = deadline > now ? deadline - now : 0;

	return left < MCP_WAIT_MAX_NS ? left : MCP_WAIT_MAX_NS;
}

static inline struct timespec mcp_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / MC_NS_PER_SEC), .tv_nsec = (long)(ns % MC_NS_PER_SEC)
	};
}

/* The same instant on CLOCK_MONOTONIC, which mc_now_ns() need not be in tests. */
static inline struct timespec mcp_monotonic(uint64_t deadline)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return mcp_timespec((uint64_t)now.tv_sec * MC_NS_PER_SEC + (uint64_t)now.tv_nsec +
			    mcp_left_ns(deadline));
}

/* 0 with the lock held, or -MC_ETIMEDOUT. */
static inline int mcp_lock_until(pthread_mutex_t *m, uint64_t deadline)
{
	if (mc_lock_until(m, deadline) == 0)
		return 0;
	return mc_fail(-MC_ETIMEDOUT, "deadline exceeded, an earlier request is still under way");
}

#endif
