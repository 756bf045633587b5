/* SPDX-License-Identifier: Apache-2.0
 * lock_hold.h - histogram of how many entries one hold of a lock examines: the time that other threads wait. */
#ifndef MCM_LOCK_HOLD_H
#define MCM_LOCK_HOLD_H

#include "common/metrics.h"

/* The searches that are measured, by the lock that they hold; label "lock" of mooncake_master_lock_hold_entries. */
enum mcm_lock_hold {
	MCM_HOLD_SHARD,		/* scan of the index: chains and objects */
	MCM_HOLD_NAMES,		/* listing of a directory: chains and children */
	MCM_HOLD_SEGMENTS,	/* look-up in the table of segments, or a part of its listing: segments */
	MCM_HOLD_SEGMENT,	/* scan for a run of ranges to evict: ranges */
	MCM_HOLD_TASKS,		/* scan of one segment for copies to plan: ranges */
	MCM_HOLDS
};

extern struct mc_metric mcm_lock_hold[MCM_HOLDS];

/* @entries were examined under one hold of the lock. */
static inline void mcm_lock_held(enum mcm_lock_hold which, uint64_t entries)
{
	mc_metric_observe(&mcm_lock_hold[which], entries);
}

#endif
