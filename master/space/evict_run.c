/* SPDX-License-Identifier: Apache-2.0
 * evict_run.c - makes one free range of sufficient length when free space is fragmented.
 *
 * First the largest free range is widened into its neighbours.  If ranges that have to stay are on both
 * sides, a window slides over the segment, beginning where the last one was found, until it has only free
 * and evictable ranges.  Both searches release the lock regularly.  After a search without result, the
 * next one for as many bytes or more waits ten times as long as that search took, so that a segment full
 * of pinned objects does not cost every put a search.
 *
 * A run of very many objects is evicted in time slices.  Between them, other puts may take the space that
 * is free already; but mostly that is the largest free range, and the next slice widens it further. */
#include <config.h>

#include <errno.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/lock_hold.h"
#include "master/mcm_i.h"
#include "proto/rpc_server.h"

#define BATCH 32
#define HOLD_MAX 2048		/* ranges examined under one hold of the lock */
#define WALK_REST 10
#define PART 2048		/* ranges by which a later slice widens the run at a time */
#define NARROWED 3		/* times that the definition of recent is halved */

struct window {
	uint32_t first, last;	/* the first and the last range, both included */
	uint64_t at, end;	/* granules */
};

struct run {
	struct mcm *m;
	struct mcm_segment *s;
	struct mcm_evict_view v;
	unsigned level;
	uint64_t len;
	const struct mcm_slice *sl;
	unsigned part;		/* ranges by which the run is widened at a time, 0: no limit */
	unsigned held;		/* ranges examined since the segment was locked */
	bool keeps;		/* objects may have to stay until they are on a disk (offload.h) */
};

/* Whether evicting at this level could free the range. */
static bool run_movable(const struct run *r, uint32_t id)
{
	const struct mcm_range *n = mcm_range(r->v.a, id);
	const struct mcm_object *o;

	if (!(n->flags & MCM_RANGE_USED))
		return true;
	if (!(n->flags & MCM_RANGE_EVICTABLE))
		return false;
	o = mcm_object(r->v.ix, n->owner);
	if (mcm_load_relaxed(&o->pins) || (r->keeps && mcm_offload_keeps(r->m, r->s, o)))
		return false;
	if (!(r->level & MCM_EVICT_LEASED) && mcm_load_relaxed(&o->lease) > r->v.now)
		return false;
	if (r->level & MCM_EVICT_KEEP_RECENT && mcm_evict_recent(&r->v, o))
		return false;
	return r->level & MCM_EVICT_SOFT || !mcm_evict_soft(r->v.ix, o, r->v.now);
}

static bool window_wide_enough(const struct run *r, const struct window *w)
{
	return w->end > w->at && mcm_alloc_fits(w->at, w->end - w->at, r->len);
}

static uint64_t range_end(const struct mcm_alloc *a, uint32_t id)
{
	return mcm_range_at(mcm_range(a, id)) + mcm_range_granules(a, mcm_range(a, id));
}

/* Count an examined range.  After HOLD_MAX of them the lock is released, so that other threads get
 * it; they may change the ranges.  Then @id, where the search is, and the window's first range
 * become the ranges into which those were merged, and run_collect() checks all ranges between them
 * again.  False: the segment is being unmounted; its ranges must not be accessed. */
static bool run_step(struct run *r, struct window *w, uint32_t *id)
{
	struct mcm_alloc *a = r->v.a;

	if (++r->held < HOLD_MAX)
		return true;
	a->cursor = *id;
	a->window = w->first;
	mc_mutex_unlock(&r->s->lock);
	mcm_lock_held(MCM_HOLD_SEGMENT, r->held);
	mc_mutex_lock(&r->s->lock);
	r->held = 0;
	if (mcm_segment_state(r->s) != MCP_SEG_OK)
		return false;
	*id = a->cursor;
	w->first = a->window;
	w->at = mcm_range_at(mcm_range(a, w->first));
	return true;
}

/* Widen the largest free range to the right, then to the left. */
static bool run_widen_hole(struct run *r, struct window *w)
{
	struct mcm_alloc *a = r->v.a;
	uint32_t id = mcm_alloc_largest(a), next;
	unsigned steps = 0;

	if (!id)
		return false;
	*w = (struct window){ id, id, mcm_range_at(mcm_range(a, id)), range_end(a, id) };
	while (!window_wide_enough(r, w)) {
		next = mcm_range_next(mcm_range(a, w->last));
		if (next == a->end || !run_movable(r, next))
			break;
		w->last = next;
		if (!run_step(r, w, &w->last))
			return false;
		w->end = range_end(a, w->last);
		if (++steps == r->part)
			return true;
	}
	while (!window_wide_enough(r, w)) {
		next = mcm_range_prev(mcm_range(a, w->first));
		if (!next || !run_movable(r, next))
			return false;
		w->first = next;
		w->at = mcm_range_at(mcm_range(a, next));
		if (!run_step(r, w, &w->last))
			return false;
		w->end = range_end(a, w->last);
		if (++steps == r->part)
			return true;
	}
	return true;
}

/* Slide a window, beginning at the cursor; it has to begin before granule @stop. */
static bool run_slide(struct run *r, struct window *w, uint64_t stop)
{
	struct mcm_alloc *a = r->v.a;
	uint32_t id = a->cursor;
	bool open = false;

	while (id != a->end && (open || mcm_range_at(mcm_range(a, id)) < stop)) {
		if (!run_movable(r, id)) {
			open = false;
		} else {
			if (!open)
				*w = (struct window){ id, id, mcm_range_at(mcm_range(a, id)), 0 };
			open = true;
			w->last = id;
			w->end = range_end(a, id);
			if (window_wide_enough(r, w))
				return true;
		}
		id = mcm_range_next(mcm_range(a, id));
		if (!open)
			w->first = id;
		if (!run_step(r, w, &id))
			return false;
	}
	return false;
}

static bool run_walk(struct run *r, struct window *w)
{
	struct mcm_alloc *a = r->v.a;
	uint64_t began = mc_now_ns(), from = mcm_range_at(mcm_range(a, a->cursor));
	uint64_t want = mcm_alloc_round(r->len), now;

	if (began < mcm_load_relaxed(&r->s->walk[r->level].retry_ns) && want >= r->s->walk[r->level].want)
		return false;
	if (run_slide(r, w, UINT64_MAX))
		return true;
	if (mcm_segment_state(r->s) != MCP_SEG_OK)
		return false;
	a->cursor = a->first;
	if (run_slide(r, w, from))
		return true;
	now = mc_now_ns();
	mcm_store_relaxed(&r->s->walk[r->level].retry_ns, now + WALK_REST * (now - began));
	r->s->walk[r->level].want = want;
	return false;
}

/* Take ranges of the window off the lists, a batch at a time.  False: one of them has to stay now. */
static bool run_collect(const struct run *r, const struct window *w, struct mcm_victim *v, unsigned *n)
{
	struct mcm_alloc *a = r->v.a;
	uint32_t id = a->cursor;

	for (*n = 0; *n < BATCH && id != a->end; id = mcm_range_next(mcm_range(a, id))) {
		struct mcm_range *range = mcm_range(a, id);

		if (mcm_range_at(range) >= w->end)
			break;
		if (!(range->flags & MCM_RANGE_USED))
			continue;
		if (!run_movable(r, id)) {
			while (*n)
				mcm_segment_list(&r->m->segments, r->s, &r->v, v[--*n].range, false);
			return false;
		}
		if (range->flags & MCM_RANGE_LISTED)
			r->s->evict->remove(r->s->policy, &r->v, id);
		v[(*n)++] = (struct mcm_victim){
			range->owner, id, mcm_load_relaxed(&mcm_object(r->v.ix, range->owner)->generation),
			range->policy
		};
	}
	return true;
}

/* Segment locked; the lock is released while victims are removed. */
static int run_empty_and_take(struct run *r, const struct window *w, uint32_t *ret_range)
{
	struct mcm_victim v[BATCH];
	int e, again = -EAGAIN;
	unsigned n;

	r->v.a->cursor = w->first;
	for (;;) {
		if (mcm_segment_state(r->s) != MCP_SEG_OK || !run_collect(r, w, v, &n))
			return -EAGAIN;
		if (!n)
			break;
		mc_mutex_unlock(&r->s->lock);
		mcm_evict_victims(r->m, r->s, v, n, r->level);
		mc_mutex_lock(&r->s->lock);
		/* Check only after a batch: each slice has to make progress. */
		if (mcm_slice_over(r->sl)) {
			again = MCP_AGAIN;
			break;
		}
	}
	/* Also at the end of a slice: a run that is long enough already must not be lost to another put. */
	e = mcm_segment_take_locked(r->s, r->len, ret_range);
	return e == -MC_ENOSPACE ? again : e;
}

/* Segment and run_lock held. */
static int run_at_level(struct run *run, unsigned level, uint32_t *ret_range)
{
	struct window w;

	run->level = level;
	if (run_widen_hole(run, &w) || (mcm_segment_state(run->s) == MCP_SEG_OK && run_walk(run, &w)))
		return run_empty_and_take(run, &w, ret_range);
	return -MC_ENOSPACE;
}

/* Halve the share of objects that count as recent. */
static void run_narrow(struct run *run)
{
	uint64_t next = mcm_load_relaxed(&run->m->generation) << MCM_PUT_SHARD_BITS;

	run->v.recent_generation = next - (next - run->v.recent_generation) / 2;
	run->v.recent_ms /= 2;
}

/* Segment and run_lock held. */
static int run_evict(struct run *run, unsigned level, uint32_t *ret_range)
{
	struct mcm_segment *s = run->s;
	unsigned i;
	int r;

	if (mcm_segment_state(s) != MCP_SEG_OK || mcm_alloc_round(run->len) > s->alloc.granules)
		return -MC_ENOSPACE;
	/* A run ignores the policy's order: avoid recent objects as long as there is another run. */
	r = run_at_level(run, level | MCM_EVICT_KEEP_RECENT, ret_range);
	if (level & MCM_EVICT_KEEP_RECENT)
		return r;
	for (i = 0; i < NARROWED && r == -MC_ENOSPACE && mcm_segment_state(s) == MCP_SEG_OK; i++) {
		run_narrow(run);
		r = run_at_level(run, level | MCM_EVICT_KEEP_RECENT | MCM_EVICT_KEEP_NEWEST, ret_range);
	}
	if (r == -MC_ENOSPACE && mcm_segment_state(s) == MCP_SEG_OK)
		r = run_at_level(run, level, ret_range);
	return r;
}

int mcm_evict_run(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  struct mcm_slice *sl, uint32_t *ret_range)
{
	struct run run = { m, s, mcm_evict_view_of(m, s), level, len, sl, 0, 0, mcm_offload_awaits(m, s) };
	int r;

	/* An earlier slice found the whole run and began to evict it: do not search for all of it again. */
	if (mcm_slice_continues(sl, s, level) && sl->end_ns)
		run.part = PART;
	MC_LOCKED(&s->run_lock);
	mc_mutex_lock(&s->lock);
	r = run_evict(&run, level, ret_range);
	mc_mutex_unlock(&s->lock);
	mcm_lock_held(MCM_HOLD_SEGMENT, run.held);
	if (r == -EAGAIN && mcm_slice_over(sl))
		r = MCP_AGAIN;
	if (r == MCP_AGAIN) {
		sl->segment = s->index + 1u;
		sl->level = level;
	}
	return r;
}
