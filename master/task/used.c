/* SPDX-License-Identifier: Apache-2.0
 * used.c - which places of a segment are in use. */
#include <config.h>

#include "master/task/used.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/lock_hold.h"
#include "proto/codec.h"

#define WALK_RANGES 2048u	/* ranges under one hold of the lock */

struct used_walk {
	const uint64_t *place;
	unsigned n, i;
	uint8_t *ret;
};

static int used_segment(struct mcm *m, struct mcp_id client, struct mcp_id segment, uint64_t epoch,
			struct mcm_segment **ret)
{
	struct mcm_segment *s;
	int r = 0;

	mc_rwlock_rdlock(&m->segments.lock);
	s = mcm_segments_find(&m->segments, segment);
	if (!s || s->epoch != epoch || !mcp_id_eq(s->client, client))
		r = mc_fail(-MC_ENOSEGMENT, "the client does not own this segment");
	else if (mcm_load_relaxed(&s->adopting) || mcm_segment_state(s) != MCP_SEG_OK)
		r = mc_fail(-MC_ENOTREADY, "not all objects of the segment are known yet");
	mc_rwlock_unlock(&m->segments.lock);
	*ret = s;
	return r;
}

/* The segment's lock is held. */
static void used_range(struct used_walk *w, const struct mcm_range *n)
{
	uint64_t at = mcm_range_at(n) << MCM_GRANULE_SHIFT;

	while (w->i < w->n && w->place[w->i] < at)
		w->i++;
	if (n->flags & MCM_RANGE_USED && w->i < w->n && w->place[w->i] == at)
		w->ret[w->i++] = 1;
}

/* As many ranges as under one hold of the lock.  True: the walk has ended. */
static bool used_step_locked(struct mcm_alloc *a, struct used_walk *w, unsigned *ret_held)
{
	unsigned held = 0;

	for (; held < WALK_RANGES && a->cursor != a->end && w->i < w->n; held++) {
		const struct mcm_range *n = mcm_range(a, a->cursor);

		used_range(w, n);
		a->cursor = mcm_range_next(n);
	}
	*ret_held = held;
	return a->cursor == a->end || w->i == w->n;
}

/* Another segment may have got the number of this one. */
static bool used_is_same(const struct mcm_segment *s, struct mcp_id segment, uint64_t epoch)
{
	return mcm_segment_state(s) == MCP_SEG_OK && mcp_id_eq(s->id, segment) && s->epoch == epoch;
}

int mcm_used(struct mcm *m, struct mcp_id client, struct mcp_id segment, uint64_t epoch, const uint64_t *place,
	     unsigned n, uint8_t *ret)
{
	struct used_walk w = { .place = place, .n = n, .ret = ret };
	struct mcm_segment *s;
	bool end = false, begun = false;
	unsigned held = 0;
	int r = used_segment(m, client, segment, epoch, &s);

	if (r < 0)
		return r;
	memset(ret, 0, n);
	MC_LOCKED(&s->run_lock);
	while (!end && r == 0) {
		mc_mutex_lock(&s->lock);
		if (!used_is_same(s, segment, epoch)) {
			r = mc_fail(-MC_ENOTREADY, "the segment was unmounted");
		} else {
			if (!begun)
				s->alloc.cursor = s->alloc.first;
			begun = true;
			end = used_step_locked(&s->alloc, &w, &held);
			if (end)
				s->alloc.cursor = s->alloc.first;
		}
		mc_mutex_unlock(&s->lock);
		mcm_lock_held(MCM_HOLD_SEGMENT, held);
	}
	return r;
}
