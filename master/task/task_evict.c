/* SPDX-License-Identifier: Apache-2.0
 * task_evict.c - eviction tasks: evict all unprotected objects of segments, some per period.
 *
 * The evictions run without tasks.lock, so that queries, fetches and ending sessions do not wait for them. */
#include <config.h>

#include "master/task/task.h"

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "master/mcm_i.h"

#define EVICT_BATCH 32
#define EVICT_ROUNDS 64		/* per period, task and source */

struct eviction_sum {
	uint64_t objects, bytes;
};

/* True: the segment has no more evictable objects. */
static bool evict_some(struct mcm *m, struct mcm_segment *s, struct eviction_sum *sum)
{
	unsigned level = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : MCM_EVICT_PLAIN;
	struct mcm_evict_view view = mcm_evict_view_of(m, s);
	struct mcm_victim v[EVICT_BATCH];
	unsigned n, rounds;
	uint64_t before;
	bool more;

	for (rounds = 0; rounds < EVICT_ROUNDS; rounds++) {
		n = 0;
		more = false;
		mc_mutex_lock(&s->lock);
		before = mcm_load_relaxed(&s->objects);
		if (mcm_segment_state(s) == MCP_SEG_OK)
			n = s->evict->victims(s->policy, &view, level, UINT64_MAX, v, EVICT_BATCH, &more);
		mc_mutex_unlock(&s->lock);
		if (n) {
			sum->bytes += mcm_evict_victims(m, s, v, n, level);
			if (before > mcm_load_relaxed(&s->objects))
				sum->objects += before - mcm_load_relaxed(&s->objects);
		} else if (!more) {
			return true;
		}
	}
	return false;
}

/* An eviction task that did not run in this round; active++ keeps it.  NULL: all have run. */
static struct mcm_task *next_eviction(struct mcm_tasks *ts, uint64_t turn)
{
	struct mc_list *pos;

	MC_LOCKED(&ts->lock);
	mc_list_for_each(pos, &ts->active) {
		struct mcm_task *t = mc_container_of(pos, struct mcm_task, link);

		if (t->type == MCP_TASK_EVICT && t->turn < turn) {
			t->turn = turn;
			t->active++;
			return t;
		}
	}
	return NULL;
}

static void evict_for(struct mcm *m, struct mcm_task *t)
{
	struct eviction_sum sum = { 0, 0 };
	struct mcm_segment *s;
	bool all = true;
	unsigned i = 0;

	while ((s = mcm_task_next_source(m, t, &i)))
		all &= evict_some(m, s, &sum);
	MC_LOCKED(&m->tasks.lock);
	t->active--;
	t->succeeded += sum.objects;
	t->bytes += sum.bytes;
	t->updated_ms = mc_wall_ns() / MC_NS_PER_MS;
	if (all && t->status == MCP_TASK_RUNNING)
		mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, "all remaining objects are protected");
}

void mcm_tasks_evict(struct mcm *m)
{
	struct mcm_tasks *ts = &m->tasks;
	struct mcm_task *t;
	uint64_t turn;

	mc_mutex_lock(&ts->lock);
	turn = ++ts->turn;
	mc_mutex_unlock(&ts->lock);
	while ((t = next_eviction(ts, turn)))
		evict_for(m, t);
}
