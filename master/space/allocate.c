/* SPDX-License-Identifier: Apache-2.0
 * allocate.c - space for an object: free space on any segment first, then eviction, each level on
 * every segment before a harsher level on any. */
#include <config.h>

#include "master/space/allocate.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/rpc_server.h"

/* segments asked for free space before eviction is considered (upstream's limit too) */
#define FREE_TRIES 100
#define STACK_CANDIDATES 128

MC_COUNTER(alloc_failures, "master_put_start_alloc_failures_total", "",
	   "Puts refused because no space could be freed")
MC_COUNTER(partial, "master_put_start_partial_allocations_total", "",
	   "Puts that received fewer copies than requested")

struct allocation {
	struct mcm *m;
	struct mcm_put_request *rq;
	uint64_t len;
	struct mcm_extent *extent;
	uint64_t name[MCM_REPLICA_MAX];		/* of the chosen segments */
	unsigned n;
};

static bool allocation_eligible(const struct allocation *p, const struct mcm_segment *s)
{
	unsigned i;

	if (!mcm_segment_allocatable(s) || mcm_load_relaxed(&s->size) < p->len)
		return false;
	for (i = 0; i < p->n; i++)
		if (p->name[i] == mcm_load_relaxed(&s->name_hash))
			return false;
	return true;
}

static void allocation_add(struct allocation *p, const struct mcm_segment *s, uint64_t name, uint32_t range)
{
	p->name[p->n] = name;
	p->extent[p->n++] = (struct mcm_extent){ range, s->index };
	mcm_evict_kick(p->m, s);
}

/* -MC_ENOSPACE is the expected error: the caller tries another segment. */
static int allocation_try_free(struct allocation *p, struct mcm_segment *s)
{
	uint32_t range;
	int r;

	if (!allocation_eligible(p, s) || mcm_load_relaxed(&s->size) - mcm_load_relaxed(&s->used) < p->len)
		return -MC_ENOSPACE;
	r = mcm_segment_take(s, p->len, &range);
	if (r == 0)
		allocation_add(p, s, s->name_hash, range);
	return r;
}

static struct mcm_pick pick_begin(const struct allocation *p)
{
	struct mcm_pick pick = {
		.ss = &p->m->segments, .copies = p->rq->copies, .host = p->rq->host,
	};
	const struct mcm_strategy *st = p->m->strategy;
	static __thread uint64_t random;

	if (!random)
		random = mc_random_u64() | 1;
	/* xorshift: the quality of the random numbers does not matter */
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	pick.random = random >> 16;
	if (p->rq->flags & MCP_PUT_SAME_NODE)
		st = &mcm_strategy_local;
	/* Copies on one host would be lost together. */
	if (st == &mcm_strategy_local && p->rq->copies > 1)
		st = &mcm_strategy_random;
	pick.next = st->next;
	st->begin(&pick);
	return pick;
}

/* Table lock held: allocate from free space only. */
static int allocate_free(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	struct mcm_segment *s;
	struct mcm_pick pick;
	unsigned i, tries;
	int r;

	if (p->rq->flags & MCP_PUT_SAME_NODE && p->rq->same_node && p->rq->copies == 1) {
		for (s = NULL; !p->n && (s = mcm_segments_named(ss, p->rq->same_node, s));) {
			r = allocation_try_free(p, s);
			if (r < 0 && r != -MC_ENOSPACE)
				return r;
		}
	}
	for (i = 0; i < p->rq->n_preferred; i++) {
		for (s = NULL; p->n < p->rq->copies &&
		     (s = mcm_segments_named(ss, p->rq->preferred[i], s));) {
			r = allocation_try_free(p, s);
			if (r < 0 && r != -MC_ENOSPACE)
				return r;
		}
	}
	pick = pick_begin(p);
	for (tries = 0; tries < FREE_TRIES && p->n < p->rq->copies; tries++) {
		s = pick.next(&pick);
		if (!s)
			break;
		r = allocation_try_free(p, s);
		if (r < 0 && r != -MC_ENOSPACE)
			return r;
	}
	return 0;
}

/* Table lock held: segments on which to evict, preferred ones first.  @ret has room for all. */
static unsigned allocation_candidates(const struct allocation *p, uint16_t *ret)
{
	struct mcm_pick pick = pick_begin(p);
	struct mcm_segment *s;
	unsigned i, n = 0;

	/* Continue where the last slice ended. */
	if (p->rq->slice.segment) {
		s = mcm_segment(&p->m->segments, (uint16_t)(p->rq->slice.segment - 1));
		if (allocation_eligible(p, s))
			ret[n++] = s->index;
	}
	for (i = 0; i < p->rq->n_preferred; i++)
		for (s = NULL; (s = mcm_segments_named(&p->m->segments, p->rq->preferred[i], s));)
			if (allocation_eligible(p, s) && n < p->m->segments.n_live)
				ret[n++] = s->index;
	while ((s = pick.next(&pick)))
		if (allocation_eligible(p, s) && n < 2 * p->m->segments.n_live)
			ret[n++] = s->index;
	return n;
}

/* Whether a harsher level is not worth it: all copies have a range, or at least one has and the
 * caller does not insist on all of them. */
static bool allocation_enough(const struct allocation *p)
{
	return p->n && (p->n == p->rq->copies || !(p->rq->flags & MCP_PUT_ALL_REPLICAS));
}

/* Evict on the candidates in turn, level by level. */
static int allocate_evicting_from(struct allocation *p, const uint16_t *cand, unsigned n)
{
	unsigned level[MCM_EVICT_LEVELS], steps = mcm_evict_levels_put(p->m, level), l, i;
	uint32_t range;
	int r;

	/* Skip the levels that an earlier slice found too mild. */
	for (l = 0; l < steps && p->rq->slice.segment && level[l] != p->rq->slice.level; l++)
		;
	for (l = l < steps ? l : 0; l < steps; l++) {
		for (i = 0; i < n && p->n < p->rq->copies; i++) {
			struct mcm_segment *s = mcm_segment(&p->m->segments, cand[i]);
			uint64_t name = mcm_load_relaxed(&s->name_hash);

			if (!allocation_eligible(p, s))
				continue;
			r = mcm_make_room(p->m, s, p->len, level[l], &p->rq->slice, &range);
			if (r == 0)
				allocation_add(p, s, name, range);
			if (r == MCP_AGAIN) {
				p->rq->slice.segment = s->index + 1u;
				p->rq->slice.level = level[l];
			}
			if (r < 0 && r != -MC_ENOSPACE)
				return r;
		}
		if (allocation_enough(p))
			return 0;
	}
	return 0;
}

static int allocate_evicting(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	uint16_t few[STACK_CANDIDATES], *cand = few;
	unsigned n;
	int r;

	/* Evict objects of tenants above their quota share first, on any segment. */
	if (mcm_tenants_over_quota(p->m) && mcm_tenants_trim(p->m, p->len * p->rq->copies, &p->rq->slice)) {
		pthread_rwlock_rdlock(&ss->lock);
		r = allocate_free(p);
		pthread_rwlock_unlock(&ss->lock);
		if (r < 0 || p->n == p->rq->copies)
			return r;
		if (mcm_slice_over(&p->rq->slice))
			return MCP_AGAIN;
	}
	pthread_rwlock_rdlock(&ss->lock);
	if (ss->n_live > STACK_CANDIDATES / 2)
		cand = malloc(2 * ss->n_live * sizeof(*cand));
	n = cand ? allocation_candidates(p, cand) : 0;
	pthread_rwlock_unlock(&ss->lock);
	r = cand ? allocate_evicting_from(p, cand, n) : -ENOMEM;
	if (cand != few)
		free(cand);
	return r;
}

/* After a restart or a change of the leader: there is memory whose owner has not returned yet. */
static bool owners_awaited(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	bool awaited = false;

	if (!mcm_grace_active(m))
		return false;
	pthread_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && !awaited; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		awaited = s->medium == MCP_MEDIUM_MEMORY && !__atomic_load_n(&s->connected, __ATOMIC_RELAXED);
	}
	pthread_rwlock_unlock(&ss->lock);
	return awaited;
}

static int allocation_failed(struct mcm *m, struct mcm_put_request *rq, uint64_t len)
{
	uint64_t largest = __atomic_load_n(&m->segments.largest, __ATOMIC_RELAXED);

	mc_metric_add(&alloc_failures, 1);
	if (owners_awaited(m))
		return mc_fail(-MC_ENOTREADY, "the owners of memory have not returned yet");
	if (len <= largest && mcm_grace_pins_left(m))
		return mc_fail(-MC_ENOTREADY, "clients of the last master may still read the objects in the memory");
	if (!largest)
		return mc_fail(-MC_ENOSPACE, "no segment is mounted");
	if (len > largest)
		return mc_fail(-MC_ETOOBIG, "object has %llu bytes, the largest segment has %llu",
			       (unsigned long long)len, (unsigned long long)largest);
	if (!rq->refused || len < rq->refused)
		rq->refused = len;
	return mc_fail(-MC_ENOSPACE, "no space for %llu bytes", (unsigned long long)len);
}

int mcm_allocate(struct mcm *m, struct mcm_put_request *rq, uint64_t len,
		   struct mcm_extent *ret_extents, unsigned *ret_copies)
{
	struct allocation p = { .m = m, .rq = rq, .len = len, .extent = ret_extents };
	int r;

	/* A length that found no space earlier in this request needs no second search. */
	if (rq->refused && len >= rq->refused)
		return allocation_failed(m, rq, len);
	pthread_rwlock_rdlock(&m->segments.lock);
	r = allocate_free(&p);
	pthread_rwlock_unlock(&m->segments.lock);
	if (r == 0 && p.n < rq->copies && len <= __atomic_load_n(&m->segments.largest, __ATOMIC_RELAXED))
		r = allocate_evicting(&p);
	if (r == MCP_AGAIN || (p.n < rq->copies && rq->flags & MCP_PUT_ALL_REPLICAS)) {
		while (p.n)
			mcm_extent_free(m, &p.extent[--p.n]);
	}
	if (r != MCP_AGAIN)
		rq->slice.segment = 0;
	if (!p.n)
		return r < 0 ? r : allocation_failed(m, rq, len);
	if (!rq->same_node)
		rq->same_node = p.name[0];
	if (p.n < rq->copies)
		mc_metric_add(&partial, 1);
	*ret_copies = p.n;
	return 0;
}

void mcm_extent_trim(struct mcm *m, const struct mcm_extent *p, uint64_t len)
{
	mcm_segment_trim(mcm_segment(&m->segments, p->segment), p->range, len);
}

void mcm_extent_free(struct mcm *m, const struct mcm_extent *p)
{
	mcm_segment_free(mcm_segment(&m->segments, p->segment), p->range);
}
