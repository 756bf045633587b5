/* SPDX-License-Identifier: Apache-2.0
 * allocate.c - space for an object: free space on any segment first, then eviction, each level on
 * every segment before a harsher level on any. */
#include <config.h>

#include "master/space/allocate.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/random.h"
#include "master/mcm_i.h"
#include "proto/rpc_server.h"

/* segments asked for free space before eviction is considered (upstream's limit too) */
#define FREE_TRIES 100
/* the same for the other puts of a request, once such a search has found all of them full */
#define FREE_TRIES_FULL 8
/* preferred segments, and first ones in the strategy's order, that are searched for victims before all others */
#define FIRST_MAX 8u

MC_COUNTER(alloc_failures, "master_put_start_alloc_failures_total", "",
	   "Puts refused because no space could be freed")
MC_COUNTER(partial, "master_put_start_partial_allocations_total", "",
	   "Puts that received fewer copies than requested")

struct allocation {
	struct mcm *m;
	struct mcm_put_request *rq;
	uint64_t len;
	struct mcm_extent *extent;
	uint64_t name[MCM_REPLICA_MAX];		/* name hashes of the chosen segments */
	unsigned n;
	uint8_t rank;				/* least rank that suits */
};

/* Near and far memory of one owner are lost together. */
static bool allocation_same_owner(const struct allocation *p, const struct mcm_segment *s)
{
	for (unsigned i = 0; i < p->n; i++) {
		const struct mcm_segment *at = mcm_segment(&p->m->segments, p->extent[i].segment);

		if (mcp_id_eq(mcm_segment_client(at), mcm_segment_client(s)))
			return true;
	}
	return false;
}

static inline bool allocation_eligible(const struct allocation *p, const struct mcm_segment *s)
{
	unsigned i;

	if (!mcm_segment_allocatable(s) || mcm_load_relaxed(&s->size) < p->len ||
	    mcm_load_relaxed(&s->rank) < p->rank || mcm_load_relaxed(&s->tenant) != p->rq->tenant)
		return false;
	for (i = 0; i < p->n; i++)
		if (p->name[i] == mcm_load_relaxed(&s->name_hash))
			return false;
	return !p->n || !mcm_load_relaxed(&p->m->segments.n_far) || !allocation_same_owner(p, s);
}

/* Table lock held: could the missing copies, or at least one of them, have ranges if all evictable objects were
 * evicted?  An object that cannot fit must not cost others their memory. */
static bool allocation_possible(const struct allocation *p)
{
	uint64_t want = mcm_alloc_round(p->len) << MCM_GRANULE_SHIFT;
	const struct mcm_segments *ss = &p->m->segments;
	struct mcm_extent extent[MCM_REPLICA_MAX];
	struct allocation all = *p;
	unsigned need = p->rq->flags & MCP_PUT_ALL_REPLICAS ? p->rq->copies : p->n + 1;

	all.extent = extent;
	for (unsigned i = 0; i < p->n; i++)
		extent[i] = p->extent[i];
	for (unsigned i = 0; i < ss->n_live && all.n < need; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (!allocation_eligible(&all, s) || !mcm_segment_could_hold(s, want))
			continue;
		extent[all.n] = (struct mcm_extent){ 0, s->index };
		all.name[all.n++] = mcm_load_relaxed(&s->name_hash);
	}
	return all.n >= need;
}

static void allocation_add(struct allocation *p, const struct mcm_segment *s, uint64_t name, uint32_t range)
{
	p->name[p->n] = name;
	p->extent[p->n++] = (struct mcm_extent){ range, s->index };
}

/* -MC_ENOSPACE is the expected error: the caller tries another segment. */
static inline int allocation_try_free(struct allocation *p, struct mcm_segment *s)
{
	uint32_t range;
	int r;

	if (!allocation_eligible(p, s) || mcm_load_relaxed(&s->size) - mcm_load_relaxed(&s->used) < p->len)
		return -MC_ENOSPACE;
	if (p->rq->flags & MCP_PUT_NO_EVICT && mcm_evict_begins_with(p->m, s, p->len))
		return -MC_ENOSPACE;
	r = mcm_segment_take(s, p->len, &range);
	if (r == 0)
		allocation_add(p, s, s->name_hash, range);
	return r;
}

static void pick_begin(const struct allocation *p, struct mcm_pick *ret)
{
	const struct mcm_strategy *st = p->m->strategy;
	static __thread uint64_t random;

	if (!random)
		random = mc_random_u64() | 1;
	/* xorshift: the quality of the random numbers does not matter */
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	/* Its private fields belong to the strategy. */
	ret->ss = &p->m->segments;
	ret->copies = p->rq->copies;
	ret->host = p->rq->host;
	ret->at = 0;
	ret->random = random >> 16;
	if (p->rq->flags & MCP_PUT_SAME_NODE)
		st = &mcm_strategy_local;
	/* Copies on one host would be lost together. */
	if (st == &mcm_strategy_local && p->rq->copies > 1)
		st = &mcm_strategy_random;
	ret->next = st->next;
	st->begin(ret);
}

/* Table lock held: allocate from free space only. */
static int allocate_free(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	struct mcm_segment *s;
	uint64_t granules = p->len >> MCM_GRANULE_SHIFT;
	struct mcm_pick pick;
	unsigned i, tries, most = p->rq->full ? FREE_TRIES_FULL : FREE_TRIES;
	uint32_t number;
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
	pick_begin(p, &pick);
	for (tries = 0; tries < most && p->n < p->rq->copies; tries++) {
		number = pick.next(&pick);
		if (number == MCM_NO_SEGMENT)
			break;
		/* Most segments of a full pool are full: their structs are not read. */
		if (mcm_load_relaxed(&ss->room[number]) < granules)
			continue;
		r = allocation_try_free(p, ss->at[number]);
		if (r < 0 && r != -MC_ENOSPACE)
			return r;
	}
	p->rq->full |= tries == FREE_TRIES;
	return 0;
}

/* Whether a harsher level is not worth it: all copies have a range, or at least one has and the
 * caller does not insist on all of them. */
static bool allocation_enough(const struct allocation *p)
{
	return p->n && (p->n == p->rq->copies || !(p->rq->flags & MCP_PUT_ALL_REPLICAS));
}

static void first_add(const struct allocation *p, unsigned level, uint16_t number, uint16_t *ret, unsigned *n)
{
	if (*n < FIRST_MAX && mcm_candidates_has(p->m->segments.candidates, number, level))
		ret[(*n)++] = number;
}

/* Candidates that are searched before all others: the preferred segments, and the first ones in the order of the
 * strategy. */
static unsigned first_candidates(const struct allocation *p, unsigned level, uint16_t ret[FIRST_MAX])
{
	struct mcm_segments *ss = &p->m->segments;
	struct mcm_segment *s;
	struct mcm_pick pick;
	unsigned n = 0, tries;
	uint32_t number;

	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < p->rq->n_preferred; i++)
		for (s = NULL; (s = mcm_segments_named(ss, p->rq->preferred[i], s));)
			first_add(p, level, s->index, ret, &n);
	pick_begin(p, &pick);
	for (tries = 0; tries < FREE_TRIES && n < FIRST_MAX; tries++) {
		number = pick.next(&pick);
		if (number == MCM_NO_SEGMENT)
			break;
		first_add(p, level, (uint16_t)number, ret, &n);
	}
	mc_rwlock_unlock(&ss->lock);
	return n;
}

/* Evict on one segment.  MCP_AGAIN, -ENOMEM; 0 also when the segment has no space to give. */
static int evict_on(struct allocation *p, unsigned level, uint16_t number)
{
	struct mcm_segment *s = mcm_segment(&p->m->segments, number);
	uint64_t name = mcm_load_relaxed(&s->name_hash);
	uint32_t range;
	int r;

	if (!allocation_eligible(p, s)) {
		if (!mcm_segment_allocatable(s))
			mcm_segment_unusable(&p->m->segments, s);
		return 0;
	}
	r = mcm_make_room(p->m, s, p->len, level, &p->rq->slice, &range);
	if (r == 0)
		allocation_add(p, s, name, range);
	return r == -MC_ENOSPACE ? 0 : r;
}

/* Evict on the candidates of a level with numbers in [@from, @to). */
static int evict_between(struct allocation *p, unsigned level, uint32_t from, uint32_t to)
{
	const struct mcm_candidates *c = p->m->segments.candidates;
	int r = 0;

	while (r == 0 && p->n < p->rq->copies && (from = mcm_candidates_next(c, level, from)) < to) {
		r = evict_on(p, level, (uint16_t)from++);
		/* Not behind the last one, whose next number would begin a new round.  A copy that was found would be
		 * freed. */
		if (r == 0 && !p->n && mcm_slice_over(&p->rq->slice) && mcm_candidates_next(c, level, from) < to) {
			p->rq->slice.segment = 0;
			p->rq->slice.at = level + 1;
			p->rq->slice.next = from;
			r = MCP_AGAIN;
		}
	}
	return r;
}

/* Continue with the segments that the last slice did not reach. */
static int evict_next(struct allocation *p, unsigned level)
{
	uint32_t next = p->rq->slice.next, origin = p->rq->slice.origin;
	int r;

	p->rq->slice.at = 0;
	if (next < origin)
		return evict_between(p, level, next, origin);
	r = evict_between(p, level, next, MCM_CANDIDATES_MAX);
	return r < 0 ? r : evict_between(p, level, 0, origin);
}

static int evict_at_level(struct allocation *p, unsigned level)
{
	uint16_t first[FIRST_MAX];
	uint32_t middle;
	unsigned n, i;
	int r = 0;

	if (mcm_candidates_next(p->m->segments.candidates, level, 0) == MCM_NO_SEGMENT)
		return 0;
	if (p->rq->slice.at == level + 1)
		return evict_next(p, level);
	n = first_candidates(p, level, first);
	for (i = 0; r == 0 && i < n && p->n < p->rq->copies; i++)
		r = evict_on(p, level, first[i]);
	if (r < 0 || p->n == p->rq->copies)
		return r;
	/* Begin at the last candidate searched, so that other puts search elsewhere. */
	middle = n ? first[n - 1] : 0;
	p->rq->slice.origin = middle;
	r = evict_between(p, level, middle, MCM_CANDIDATES_MAX);
	return r < 0 ? r : evict_between(p, level, 0, middle);
}

/* Continue the run that the last slice began. */
static int evict_continue(struct allocation *p, unsigned level)
{
	uint16_t number = (uint16_t)(p->rq->slice.segment - 1);

	return p->rq->slice.segment ? evict_on(p, level, number) : 0;
}

/* Did the last slice reach this level?  Without one, the first level is. */
static bool slice_stopped_at(const struct mcm_slice *sl, unsigned level)
{
	if (sl->segment)
		return (level & ~MCM_EVICT_WAITING) == sl->level;
	return !sl->at || level + 1 == sl->at;
}

/* Free space on any segment: those that have no evictable objects are no candidates, and the first search met a part
 * of the segments only. */
static int allocate_anywhere(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	uint64_t granules = p->len >> MCM_GRANULE_SHIFT;
	int r = 0;

	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && p->n < p->rq->copies && (r == 0 || r == -MC_ENOSPACE); i++)
		if (mcm_load_relaxed(&ss->room[ss->live[i]]) >= granules)
			r = allocation_try_free(p, ss->at[ss->live[i]]);
	mc_rwlock_unlock(&ss->lock);
	return r == -MC_ENOSPACE ? 0 : r;
}

static int allocate_evicting(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	unsigned level[MCM_EVICT_LEVELS], steps, l;
	int r = 0;

	/* Evict objects of tenants above their quota share first, on any segment. */
	if (mcm_tenants_over_quota(p->m) && mcm_tenants_trim(p->m, p->len * p->rq->copies, &p->rq->slice)) {
		mc_rwlock_rdlock(&ss->lock);
		r = allocate_free(p);
		mc_rwlock_unlock(&ss->lock);
		if (r < 0 || p->n == p->rq->copies)
			return r;
		if (mcm_slice_over(&p->rq->slice))
			return MCP_AGAIN;
	}
	p->rq->slice.awaits = false;
	mcm_candidates_turn(ss->candidates, mcm_now_tick(p->m));
	steps = mcm_evict_levels_put(p->m, level);
	/* Skip the levels that an earlier slice found too mild. */
	for (l = 0; l < steps && !slice_stopped_at(&p->rq->slice, level[l]); l++)
		;
	for (l = l < steps ? l : 0; l < steps; l++) {
		r = evict_continue(p, level[l]);
		if (r == 0 && p->n < p->rq->copies)
			r = evict_at_level(p, level[l]);
		if (r < 0 || allocation_enough(p))
			break;
	}
	return r;
}

/* After a restart or a change of the leader: there is memory whose owner has not returned yet, or compares the objects
 * of a snapshot with it. */
static bool owners_awaited(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	bool awaited = false, grace = mcm_grace_active(m);

	if (!grace && !__atomic_load_n(&ss->n_confirming, __ATOMIC_RELAXED))
		return false;
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && !awaited; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		/* A connected owner has not mounted its memory yet. */
		awaited = mcm_segment_is(s, MCP_TRAIT_AWAITED) &&
			  (mcm_segment_state(s) == MCP_SEG_CONFIRMING ||
			   (grace && (mcm_segment_state(s) == MCP_SEG_SILENT ||
				      !__atomic_load_n(&s->connected, __ATOMIC_RELAXED))));
	}
	mc_rwlock_unlock(&ss->lock);
	return awaited;
}

static int allocation_failed(struct mcm *m, struct mcm_put_request *rq, uint64_t len)
{
	uint64_t largest = __atomic_load_n(&m->segments.largest, __ATOMIC_RELAXED);

	if (rq->flags & MCP_PUT_NO_EVICT && len <= largest)
		return mc_fail(-MC_ENOSPACE, "no space for %llu bytes without eviction", (unsigned long long)len);
	mc_metric_add(&alloc_failures, 1);
	if (owners_awaited(m))
		return mc_fail(-MC_ENOTREADY, "the owners of memory have not returned yet, or not compared the "
			       "objects of a snapshot with it");
	if (len <= largest && mcm_grace_pins_left(m))
		return mc_fail(-MC_ENOTREADY, "clients of the last master may still read the objects in the memory");
	if (!largest)
		return mc_fail(-MC_ENOSPACE, "no segment is mounted");
	if (len > largest)
		return mc_fail(-MC_ETOOBIG, "object has %llu bytes, the largest segment has %llu",
			       (unsigned long long)len, (unsigned long long)largest);
	if (!rq->refused || len < rq->refused)
		rq->refused = len;
	if (rq->slice.awaits)
		return mcm_offload_put_waits(m, len);
	return mc_fail(-MC_ENOSPACE, "no space for %llu bytes", (unsigned long long)len);
}

int mcm_allocate_check(struct mcm *m, struct mcm_put_request *rq, uint64_t len)
{
	const struct allocation p = { .m = m, .rq = rq, .len = len };
	bool possible;

	mc_rwlock_rdlock(&m->segments.lock);
	possible = allocation_possible(&p);
	mc_rwlock_unlock(&m->segments.lock);
	return possible ? 0 : allocation_failed(m, rq, len);
}

/* On segments of rank p->rank or above.  MCP_AGAIN, -ENOMEM; 0 also if not all copies have a range. */
static int allocate_ranked(struct allocation *p)
{
	struct mcm_segments *ss = &p->m->segments;
	bool evict;
	int r;

	mc_rwlock_rdlock(&ss->lock);
	r = allocate_free(p);
	evict = r == 0 && p->n < p->rq->copies && !(p->rq->flags & MCP_PUT_NO_EVICT) && allocation_possible(p);
	mc_rwlock_unlock(&ss->lock);
	if (evict)
		r = allocate_evicting(p);
	if (evict && r == 0 && p->n < p->rq->copies)
		r = allocate_anywhere(p);
	return r;
}

int mcm_allocate(struct mcm *m, struct mcm_put_request *rq, uint64_t len,
		   struct mcm_extent *ret_extents, unsigned *ret_copies)
{
	struct allocation p = { .m = m, .rq = rq, .len = len, .extent = ret_extents };
	int r;

	/* A length that found no space earlier in this request needs no second search. */
	if (rq->refused && len >= rq->refused)
		return allocation_failed(m, rq, len);
	p.rank = mcm_load_relaxed(&m->segments.n_far) ? MCP_RANK_FAR : MCP_RANK_NEAR;
	r = allocate_ranked(&p);
	if (r == 0 && p.n < rq->copies && p.rank != MCP_RANK_NEAR) {
		p.rank = MCP_RANK_NEAR;
		r = allocate_ranked(&p);
	}
	if (r == MCP_AGAIN || (p.n < rq->copies && rq->flags & MCP_PUT_ALL_REPLICAS)) {
		while (p.n)
			mcm_extent_free(m, &p.extent[--p.n]);
	}
	if (r != MCP_AGAIN)
		rq->slice.segment = rq->slice.at = 0;
	if (!p.n)
		return r < 0 ? r : allocation_failed(m, rq, len);
	for (unsigned i = 0; i < p.n; i++)
		mcm_evict_kick(m, mcm_segment(&m->segments, ret_extents[i].segment));
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
