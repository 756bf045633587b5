/* SPDX-License-Identifier: Apache-2.0
 * lock_hold.c - the histograms of lock_hold.h. */
#include <config.h>

#include "master/lock_hold.h"

static struct mc_hist lock_hold_hist[MCM_HOLDS];

#define LOCK_HOLD(which, label) \
	[which] = { "mooncake_master_lock_hold_entries", "lock=\"" label "\"", \
		    "Entries examined under one hold of a lock", MC_HISTOGRAM_TYPE, 0, &lock_hold_hist[which], 1, NULL }

struct mc_metric mcm_lock_hold[MCM_HOLDS] = {
	LOCK_HOLD(MCM_HOLD_SHARD, "shard"),
	LOCK_HOLD(MCM_HOLD_NAMES, "names"),
	LOCK_HOLD(MCM_HOLD_SEGMENTS, "segments"),
	LOCK_HOLD(MCM_HOLD_SEGMENT, "segment"),
	LOCK_HOLD(MCM_HOLD_TASKS, "tasks"),
};

__attribute__((constructor)) static void lock_hold_register(void)
{
	for (unsigned i = 0; i < MCM_HOLDS; i++)
		mc_metric_register(&mcm_lock_hold[i]);
}
