/* SPDX-License-Identifier: Apache-2.0
 * segment.c - table of segments; allocating and freeing ranges of one. */
#include <config.h>

#include "master/space/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/journal/record.h"
#include "master/lock_hold.h"
#include "master/space/strategy.h"
#include "master/task/nof.h"
#include "master/task/offload.h"
#include "proto/codec.h"

#define BUCKETS (MCM_SEGMENTS_MAX + 1u)

int mcm_segments_init(struct mcm_segments *ss, const struct mcm_evict_ops *evict, struct mcm_learn *learn,
		      uint32_t lease_ticks, bool puts_far)
{
	memset(ss, 0, sizeof(*ss));
	ss->puts_far = puts_far;
	/* Puts hold it for reading all the time; a mount must get it nevertheless. */
	mc_rwlock_init_writers(&ss->lock);
	ss->evict = evict;
	ss->lease_ticks = lease_ticks;
	/* Full size from the beginning, because they are read without a lock; unused pages cost nothing. */
	ss->at = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->at));
	ss->live = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->live));
	ss->room = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->room));
	ss->candidates = mcm_candidates_new();
	ss->by_host = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->by_host));
	ss->by_id = calloc(BUCKETS, sizeof(*ss->by_id));
	ss->by_name = calloc(BUCKETS, sizeof(*ss->by_name));
	mc_list_init(&ss->free);
	ss->evict_shared = evict->shared_new(learn);
	if (!ss->at || !ss->live || !ss->room || !ss->candidates || !ss->by_host || !ss->by_id || !ss->by_name ||
	    !ss->evict_shared) {
		mcm_segments_done(ss);
		return -ENOMEM;
	}
	return 0;
}

static void segment_contents_free(struct mcm_segment *s)
{
	mcm_alloc_done(&s->alloc);
	mcm_offload_dropped(mcm_backlog_clear(&s->backlog), mcm_backlog_clear(&s->promotions));
	mcm_nof_dropped(mcm_backlog_clear(&s->nof));
	free(s->policy);
	s->policy = NULL;
	free(s->gone.ring);
	s->gone = (struct mcm_gone){ .ring = NULL };
}

void mcm_segments_done(struct mcm_segments *ss)
{
	unsigned i;

	for (i = 0; i < ss->top; i++) {
		segment_contents_free(ss->at[i]);
		mc_mutex_destroy(&ss->at[i]->lock);
		mc_mutex_destroy(&ss->at[i]->run_lock);
		mcm_confirm_done(&ss->at[i]->confirm);
		free(ss->at[i]);
	}
	if (ss->evict_shared)
		ss->evict->shared_free(ss->evict_shared);
	free(ss->at);
	free(ss->live);
	free(ss->room);
	mcm_candidates_free(ss->candidates);
	free(ss->by_host);
	free(ss->by_id);
	free(ss->by_name);
	mc_rwlock_destroy(&ss->lock);
	memset(ss, 0, sizeof(*ss));
}

/* ---- tables of mounted segments ---- */

static uint16_t *id_bucket(const struct mcm_segments *ss, struct mcp_id id)
{
	uint64_t h = (id.hi ^ id.lo * 0x9e3779b97f4a7c15ull) * 0xc2b2ae3d27d4eb4full;

	return &ss->by_id[(h >> 48) % BUCKETS];
}

static uint16_t *name_bucket(const struct mcm_segments *ss, uint64_t hash)
{
	return &ss->by_name[hash % BUCKETS];
}

static struct mcm_segment *chain_at(struct mcm_segments *ss, uint16_t number, unsigned *steps)
{
	if (!number)
		return NULL;
	++*steps;
	return ss->at[number - 1];
}

struct mcm_segment *mcm_segments_find(struct mcm_segments *ss, struct mcp_id id)
{
	unsigned steps = 0;
	struct mcm_segment *s = chain_at(ss, *id_bucket(ss, id), &steps);

	while (s && !mcp_id_eq(s->id, id))
		s = chain_at(ss, s->next_id, &steps);
	mcm_lock_held(MCM_HOLD_SEGMENTS, steps);
	return s;
}

struct mcm_segment *mcm_segments_named(struct mcm_segments *ss, uint64_t hash,
				       const struct mcm_segment *after)
{
	unsigned steps = 0;
	struct mcm_segment *s = chain_at(ss, after ? after->next_name : *name_bucket(ss, hash), &steps);

	while (s && s->name_hash != hash)
		s = chain_at(ss, s->next_name, &steps);
	mcm_lock_held(MCM_HOLD_SEGMENTS, steps);
	return s;
}

static void id_insert(struct mcm_segments *ss, struct mcm_segment *s)
{
	uint16_t *at = id_bucket(ss, s->id);

	s->next_id = *at;
	*at = (uint16_t)(s->index + 1);
}

static void id_remove(struct mcm_segments *ss, const struct mcm_segment *s)
{
	uint16_t *at = id_bucket(ss, s->id);
	unsigned steps = 0;

	while (*at != s->index + 1)
		at = &chain_at(ss, *at, &steps)->next_id;
	*at = s->next_id;
	mcm_lock_held(MCM_HOLD_SEGMENTS, steps);
}

static void name_insert(struct mcm_segments *ss, struct mcm_segment *s)
{
	uint16_t *at = name_bucket(ss, s->name_hash);

	s->next_name = *at;
	*at = (uint16_t)(s->index + 1);
	mcm_local_insert(ss, s);
}

static void name_remove(struct mcm_segments *ss, const struct mcm_segment *s)
{
	uint16_t *at = name_bucket(ss, s->name_hash);
	unsigned steps = 0;

	while (*at != s->index + 1)
		at = &chain_at(ss, *at, &steps)->next_name;
	*at = s->next_name;
	mcm_lock_held(MCM_HOLD_SEGMENTS, steps);
	mcm_local_remove(ss, s);
}

/* ---- totals ---- */

static uint64_t segment_usable(const struct mcm_segment *s)
{
	return s->size / MCM_GRANULE * MCM_GRANULE;
}

static void totals_max(struct mcm_segments *ss, uint64_t size)
{
	if (size > ss->largest) {
		mcm_store_relaxed(&ss->largest, size);
		ss->n_largest = 0;
	}
	ss->n_largest += size == ss->largest;
}

/* Objects are put into memory only, so disks have no part in the other totals. */
static bool totals_disk(struct mcm_segments *ss, const struct mcm_segment *s, uint64_t had, uint64_t has)
{
	if (mcm_segment_is(s, MCP_TRAIT_PUTS))
		return false;
	mcm_store_relaxed(&ss->disk_capacity, ss->disk_capacity + has - had);
	return true;
}

static void totals_add(struct mcm_segments *ss, const struct mcm_segment *s)
{
	if (totals_disk(ss, s, 0, s->size))
		return;
	mcm_store_relaxed(&ss->capacity, ss->capacity + s->size);
	totals_max(ss, segment_usable(s));
}

/* Scan the other segments only when the last of the largest ones is removed: most pools have
 * segments of few sizes. */
static void totals_remove(struct mcm_segments *ss, const struct mcm_segment *s)
{
	unsigned i;

	if (totals_disk(ss, s, s->size, 0))
		return;
	mcm_store_relaxed(&ss->capacity, ss->capacity - s->size);
	if (segment_usable(s) != ss->largest || --ss->n_largest)
		return;
	mcm_store_relaxed(&ss->largest, 0);
	mcm_lock_held(MCM_HOLD_SEGMENTS, ss->n_live);
	for (i = 0; i < ss->n_live; i++)
		if (ss->at[ss->live[i]] != s && mcm_segment_is(ss->at[ss->live[i]], MCP_TRAIT_PUTS))
			totals_max(ss, segment_usable(ss->at[ss->live[i]]));
}

static void totals_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size)
{
	if (totals_disk(ss, s, s->size, size)) {
		mcm_store_relaxed(&s->size, size);
		return;
	}
	mcm_store_relaxed(&ss->capacity, ss->capacity + size - s->size);
	ss->n_largest -= segment_usable(s) == ss->largest;
	mcm_store_relaxed(&s->size, size);
	totals_max(ss, segment_usable(s));
}

static bool state_hides(uint8_t state)
{
	return state == MCP_SEG_SILENT || state == MCP_SEG_UNMOUNTING || state == MCP_SEG_CONFIRMING;
}

static void segment_set_state(struct mcm_segments *ss, struct mcm_segment *s, uint8_t state)
{
	uint8_t was = mcm_segment_state(s);
	unsigned hidden = ss->n_hidden - state_hides(was) + state_hides(state), confirming = ss->n_confirming;

	confirming = confirming - (was == MCP_SEG_CONFIRMING) + (state == MCP_SEG_CONFIRMING);
	__atomic_store_n(&s->state, state, __ATOMIC_RELEASE);
	/* After the state: a reader between the two may see an object, or wait for it, but never miss it. */
	if (state != MCP_SEG_CONFIRMING)
		__atomic_store_n(&s->awaited, false, __ATOMIC_RELEASE);
	__atomic_store_n(&ss->n_hidden, hidden, __ATOMIC_RELAXED);
	__atomic_store_n(&ss->n_confirming, confirming, __ATOMIC_RELAXED);
}

/* Far memory that takes puts is not the place for copies of objects in near memory. */
static uint8_t segment_traits(const struct mcm_segments *ss, uint8_t medium)
{
	const struct mcp_medium_class *class = mcp_medium(medium);

	if (!ss->puts_far || class->rank != MCP_RANK_FAR)
		return class->traits;
	return (uint8_t)((class->traits & ~MCP_TRAIT_COPIES) | MCP_TRAIT_PUTS | MCP_TRAIT_AWAITED);
}

static bool segment_puts_far(const struct mcm_segment *s)
{
	return mcm_load_relaxed(&s->rank) == MCP_RANK_FAR && mcm_segment_is(s, MCP_TRAIT_PUTS);
}

/* The segment's lock is held too. */
static void live_add(struct mcm_segments *ss, struct mcm_segment *s, uint8_t state)
{
	segment_set_state(ss, s, state);
	mcm_candidates_none(ss->candidates, s->index);
	if (mcm_segment_is(s, MCP_TRAIT_PUTS))
		mcm_candidates_all(ss->candidates, s->index);
	s->live_at = ss->n_live;
	ss->live[ss->n_live] = s->index;
	mcm_store_relaxed(&ss->n_live, ss->n_live + 1);
	mcm_store_relaxed(&ss->n_far, ss->n_far + segment_puts_far(s));
	id_insert(ss, s);
	name_insert(ss, s);
	totals_add(ss, s);
}

static void live_remove(struct mcm_segments *ss, struct mcm_segment *s)
{
	uint16_t last = ss->live[ss->n_live - 1];

	totals_remove(ss, s);
	id_remove(ss, s);
	name_remove(ss, s);
	ss->live[s->live_at] = last;
	ss->at[last]->live_at = s->live_at;
	mcm_store_relaxed(&ss->n_live, ss->n_live - 1);
	mcm_store_relaxed(&ss->n_far, ss->n_far - segment_puts_far(s));
}

/* ---- mounting ---- */

static void copy_text(char to[MCM_NAME_MAX + 1], struct mcp_bytes from)
{
	memset(to, 0, MCM_NAME_MAX + 1);
	memcpy(to, from.data, from.len);
}

static void segment_describe(const struct mcm_segments *ss, struct mcm_segment *s, const struct mcp_mount *rq)
{
	mcm_segment_set_client(s, rq->client);
	__atomic_store_n(&s->medium, rq->medium, __ATOMIC_RELAXED);
	mcm_store_relaxed(&s->traits, segment_traits(ss, rq->medium));
	mcm_store_relaxed(&s->rank, mcp_medium(rq->medium)->rank);
	mcm_store_relaxed(&s->sealed, ss->sealed && mcp_medium_is(rq->medium, MCP_TRAIT_BLOCKS));
	s->base = rq->base;
	s->rkey = rq->rkey;
	s->guarded = rq->key.len;
	if (s->guarded)
		memcpy(s->key, rq->key.data, sizeof(s->key));
	__atomic_store_n(&s->high, rq->high, __ATOMIC_RELAXED);
	__atomic_store_n(&s->low, rq->low, __ATOMIC_RELAXED);
	copy_text(s->name, rq->name);
	copy_text(s->endpoint, rq->endpoint);
	copy_text(s->protocol, rq->protocol);
	mcm_store_relaxed(&s->name_hash, mc_hash(rq->name.data, rq->name.len, 0));
}

void mcm_segments_describe(struct mcm_segments *ss, struct mcm_segment *s, const struct mcp_mount *rq)
{
	name_remove(ss, s);
	segment_describe(ss, s, rq);
	name_insert(ss, s);
}

static int segment_struct_new(struct mcm_segments *ss, struct mcm_segment **ret)
{
	struct mcm_segment *s;

	if (ss->top == MCM_SEGMENTS_MAX)
		return mc_fail(-MC_ELIMIT, "segment limit of %u reached", MCM_SEGMENTS_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	mc_mutex_init(&s->run_lock);
	mc_mutex_init(&s->confirm.lock);
	mc_list_init(&s->fences);
	s->index = (uint16_t)ss->top;
	s->room = &ss->room[s->index];
	mc_list_push_back(&ss->free, &s->link);
	/* Threads without the table's lock read the number, and then the pointers below it. */
	__atomic_store_n(&ss->at[s->index], s, __ATOMIC_RELEASE);
	__atomic_store_n(&ss->top, ss->top + 1, __ATOMIC_RELEASE);
	*ret = s;
	return 0;
}

/* A struct with a number that no segment uses. */
static int segment_struct_get(struct mcm_segments *ss, struct mcm_segment **ret)
{
	if (mc_list_empty(&ss->free))
		return segment_struct_new(ss, ret);
	*ret = mc_list_first(&ss->free, struct mcm_segment, link);
	return 0;
}

static int segment_contents_make(const struct mcm_segments *ss, struct mcm_segment *s, uint64_t size, uint8_t policy)
{
	int r;

	r = mcm_alloc_init(&s->alloc, size);
	if (r < 0)
		return r;
	/* A disk may have a policy of its own, which needs no memory that segments share. */
	s->evict = policy == MCP_EVICT_LRU ? &mcm_evict_lru : policy == MCP_EVICT_FIFO ? &mcm_evict_fifo : ss->evict;
	s->policy = calloc(1, s->evict->state_size);
	r = s->policy ? s->evict->init(s->policy, ss->evict_shared, &s->alloc, ss->lease_ticks) : -ENOMEM;
	if (r < 0)
		segment_contents_free(s);
	return r;
}

/* In a struct that no segment uses. */
static int segment_make(struct mcm_segments *ss, struct mcm_segment *s, const struct mcp_mount *rq,
			uint8_t state)
{
	int r;

	mc_mutex_lock(&s->lock);
	r = segment_contents_make(ss, s, rq->size, rq->policy);
	if (r == 0) {
		s->id = rq->segment;
		s->epoch = rq->epoch;
		s->unproven = false;
		mcm_store_relaxed(&s->size, rq->size);
		s->own_policy = rq->policy;
		s->node[0] = '\0';
		mcm_store_relaxed(&s->tenant, 0);
		s->pause_ms = 0;
		s->errors = 0;
		mcm_store_relaxed(&s->refuses, false);
		mcm_store_relaxed(&s->paused, false);
		mcm_store_relaxed(&s->unfit_ms, 0);
		mcm_store_relaxed(&s->copy_max, 0);
		__atomic_store_n(&s->offloads, false, __ATOMIC_RELAXED);
		mcm_store_relaxed(&s->disk, 0);
		memset(s->walk, 0, sizeof(s->walk));
		mcm_store_relaxed(&s->draining, 0);
		segment_describe(ss, s, rq);
		mcm_store_relaxed(&s->used, 0);
		__atomic_store_n(&s->connected, state == MCP_SEG_OK, __ATOMIC_RELAXED);
		mc_list_remove(&s->link);
		live_add(ss, s, state);
		mcm_segment_used(s);
	}
	mc_mutex_unlock(&s->lock);
	return r;
}

int mcm_segments_add(struct mcm_segments *ss, const struct mcp_mount *rq, struct mcm_segment **ret)
{
	struct mcm_segment *s = NULL;
	int r;

	r = segment_struct_get(ss, &s);
	if (r == 0)
		r = segment_make(ss, s, rq, MCP_SEG_OK);
	if (r < 0)
		return r;
	*ret = s;
	return 0;
}

int mcm_segments_restore(struct mcm_segments *ss, const struct mcm_segment_record *rec,
			 struct mcm_segment **ret)
{
	struct mcp_mount rq = {
		.segment = rec->id, .client = rec->client, .epoch = rec->epoch, .base = rec->base,
		.rkey = rec->rkey, .size = rec->size, .name = rec->name,
		.endpoint = rec->endpoint, .protocol = rec->protocol, .medium = rec->medium,
		.high = rec->high, .low = rec->low, .policy = rec->policy,
	};
	struct mcm_segment *s;
	int r = 0;

	while (r == 0 && ss->top <= rec->index)
		r = segment_struct_new(ss, &s);
	if (r < 0)
		return r;
	s = ss->at[rec->index];
	if (mcm_segment_state(s) != MCM_SEG_NONE)
		return mc_fail(-MC_EPARAM, "journal has two segments with number %u", rec->index);
	r = segment_make(ss, s, &rq, MCP_SEG_SILENT);
	if (r < 0)
		return r;
	mcm_store_relaxed(&s->awaited, true);
	mcm_store_relaxed(&s->tenant, rec->tenant);
	*ret = s;
	return 0;
}

int mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size)
{
	unsigned i;
	int r;

	mc_mutex_lock(&s->lock);
	r = mcm_alloc_grow(&s->alloc, size);
	if (r == 0) {
		totals_grow(ss, s, size);
		mcm_segment_used(s);
	}
	mc_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	/* The last search for a run did not find one in the smaller segment. */
	for (i = 0; i < MCM_EVICT_FLAG_SETS; i++)
		mcm_store_relaxed(&s->walk[i].retry_ns, 0);
	mcm_segment_usable(ss, s);
	return 0;
}

void mcm_segments_set_silent(struct mcm_segments *ss, struct mcm_segment *s, bool silent)
{
	segment_set_state(ss, s, silent ? MCP_SEG_SILENT : MCP_SEG_OK);
	mcm_segment_usable(ss, s);
}

void mcm_segments_set_confirming(struct mcm_segments *ss, struct mcm_segment *s)
{
	segment_set_state(ss, s, MCP_SEG_CONFIRMING);
}

void mcm_segments_remove(struct mcm_segments *ss, struct mcm_segment *s)
{
	live_remove(ss, s);
	mc_list_remove(&s->link);
	/* Under its own lock too: no range is allocated after this. */
	mc_mutex_lock(&s->lock);
	segment_set_state(ss, s, MCP_SEG_UNMOUNTING);
	mcm_candidates_none(ss->candidates, s->index);
	mc_mutex_unlock(&s->lock);
}

void mcm_segments_reap(struct mcm_segments *ss, struct mcm_segment *s)
{
	mc_rwlock_wrlock(&ss->lock);
	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_UNMOUNTING && !s->alloc.ranges) {
		segment_contents_free(s);
		segment_set_state(ss, s, MCM_SEG_NONE);
		mc_list_push_back(&ss->free, &s->link);
	}
	mc_mutex_unlock(&s->lock);
	mc_rwlock_unlock(&ss->lock);
}

void mcm_segment_usable(struct mcm_segments *ss, struct mcm_segment *s)
{
	MC_LOCKED(&s->lock);
	if (mcm_segment_is(s, MCP_TRAIT_PUTS) && mcm_segment_state(s) == MCP_SEG_OK)
		mcm_candidates_all(ss->candidates, s->index);
}

void mcm_segment_unusable(struct mcm_segments *ss, struct mcm_segment *s)
{
	MC_LOCKED(&s->lock);
	/* Under the lock that mcm_segment_usable() takes after the change: the later one of the two decides. */
	if (!mcm_segment_allocatable(s) || !mcm_load_relaxed(&s->evictable))
		mcm_candidates_none(ss->candidates, s->index);
}

void mcm_segment_used(struct mcm_segment *s)
{
	uint64_t room = s->alloc.granules - s->alloc.used;

	mcm_store_relaxed(&s->used, s->alloc.used << MCM_GRANULE_SHIFT);
	mcm_store_relaxed(s->room, room < UINT32_MAX ? (uint32_t)room : UINT32_MAX);
}

void mcm_segment_listed(struct mcm_segments *ss, struct mcm_segment *s, uint32_t now, bool fresh)
{
	if (!mcm_segment_is(s, MCP_TRAIT_PUTS))
		return;
	if (fresh)
		mcm_candidates_put(ss->candidates, s->index, now + mcm_tick_after(MCM_RECENT_MIN_MS));
	else
		mcm_candidates_all(ss->candidates, s->index);
}

int mcm_segment_take_locked(struct mcm_segment *s, uint64_t len, uint32_t *ret_range)
{
	int r;

	if (mcm_segment_state(s) != MCP_SEG_OK)
		return -MC_ENOSPACE;
	/* A disk is written in whole blocks. */
	if (mcm_segment_is(s, MCP_TRAIT_BLOCKS))
		len = (len + MCM_DISK_BLOCK - 1) / MCM_DISK_BLOCK * MCM_DISK_BLOCK;
	r = mcm_alloc_take(&s->alloc, len, ret_range);
	mcm_segment_used(s);
	return r;
}

int mcm_segment_take(struct mcm_segment *s, uint64_t len, uint32_t *ret_range)
{
	MC_LOCKED(&s->lock);
	return mcm_segment_take_locked(s, len, ret_range);
}

void mcm_segment_trim(struct mcm_segment *s, uint32_t range, uint64_t len)
{
	MC_LOCKED(&s->lock);
	/* Without memory for another range record, the range stays longer than needed. */
	(void)mcm_alloc_trim(&s->alloc, range, mcm_alloc_round(len));
	mcm_segment_used(s);
}

void mcm_segment_free_locked(struct mcm_segment *s, const struct mcm_evict_ops *ops,
			     const struct mcm_index *ix, uint32_t range)
{
	struct mcm_evict_view v = { ix, &s->alloc, 0, 0, 0, 0 };

	if (mcm_range(&s->alloc, range)->flags & MCM_RANGE_LISTED)
		ops->remove(s->policy, &v, range);
	mcm_alloc_free(&s->alloc, range);
	mcm_segment_used(s);
}

void mcm_segment_free(struct mcm_segment *s, uint32_t range)
{
	MC_LOCKED(&s->lock);
	mcm_alloc_free(&s->alloc, range);
	mcm_segment_used(s);
}
