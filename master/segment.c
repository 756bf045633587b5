/* SPDX-License-Identifier: Apache-2.0
 * segment.c - the table of segments, and taking and giving ranges of one. */
#include <config.h>

#include "master/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/record.h"
#include "master/strategy.h"
#include "proto/codec.h"


int mcm_segments_init(struct mcm_segments *ss, const struct mcm_evict_ops *evict,
		      uint32_t lease_ticks)
{
	pthread_rwlockattr_t attr;

	memset(ss, 0, sizeof(*ss));
	/* Puts hold it for reading all the time; a mount must get its turn all the same. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&ss->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	ss->evict = evict;
	ss->lease_ticks = lease_ticks;
	/* Full size from the beginning, because it is read without a lock; unused pages are free. */
	ss->at = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->at));
	ss->live = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->live));
	ss->by_host = calloc(MCM_SEGMENTS_MAX, sizeof(*ss->by_host));
	ss->evict_shared = evict->shared_new();
	if (!ss->at || !ss->live || !ss->by_host || !ss->evict_shared) {
		mcm_segments_done(ss);
		return -ENOMEM;
	}
	return 0;
}

static void contents_free(struct mcm_segment *s)
{
	mcm_alloc_done(&s->alloc);
	free(s->policy);
	s->policy = NULL;
}

void mcm_segments_done(struct mcm_segments *ss)
{
	unsigned i;

	for (i = 0; i < ss->top; i++) {
		contents_free(ss->at[i]);
		pthread_mutex_destroy(&ss->at[i]->lock);
		pthread_mutex_destroy(&ss->at[i]->run_lock);
		free(ss->at[i]);
	}
	if (ss->evict_shared)
		ss->evict->shared_free(ss->evict_shared);
	free(ss->at);
	free(ss->live);
	free(ss->by_host);
	pthread_rwlock_destroy(&ss->lock);
	memset(ss, 0, sizeof(*ss));
}

struct mcm_segment *mcm_segments_find(const struct mcm_segments *ss, struct mcp_id id)
{
	unsigned i;

	for (i = 0; i < ss->n_live; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];

		if (mcp_id_eq(s->id, id))
			return s;
	}
	return NULL;
}

static void copy_text(char to[MCM_NAME_MAX + 1], struct mcp_bytes from)
{
	memset(to, 0, MCM_NAME_MAX + 1);
	memcpy(to, from.data, from.len);
}

void mcm_segment_describe(struct mcm_segment *s, const struct mcp_mount *rq)
{
	s->client = rq->client;
	s->base = rq->base;
	s->rkey = rq->rkey;
	copy_text(s->name, rq->name);
	copy_text(s->endpoint, rq->endpoint);
	copy_text(s->protocol, rq->protocol);
	mcm_poke(&s->name_hash, mc_hash(rq->name.data, rq->name.len, 0));
}

static int struct_new(struct mcm_segments *ss, struct mcm_segment **ret)
{
	struct mcm_segment *s;

	if (ss->top == MCM_SEGMENTS_MAX)
		return mc_fail(-MC_ELIMIT, "more than %u segments", MCM_SEGMENTS_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->run_lock, NULL);
	s->index = (uint16_t)ss->top;
	__atomic_store_n(&ss->at[ss->top++], s, __ATOMIC_RELEASE);
	*ret = s;
	return 0;
}

/* A struct that no segment uses, its number included. */
static int struct_get(struct mcm_segments *ss, struct mcm_segment **ret)
{
	unsigned i;

	for (i = 0; i < ss->top; i++) {
		if (mcm_segment_state(ss->at[i]) == MCM_SEG_NONE) {
			*ret = ss->at[i];
			return 0;
		}
	}
	return struct_new(ss, ret);
}

static int contents_make(const struct mcm_segments *ss, struct mcm_segment *s, uint64_t size)
{
	int r;

	r = mcm_alloc_init(&s->alloc, size);
	if (r < 0)
		return r;
	s->policy = calloc(1, ss->evict->state_size);
	r = s->policy ? ss->evict->init(s->policy, ss->evict_shared, &s->alloc,
					      ss->lease_ticks) : -ENOMEM;
	if (r < 0)
		contents_free(s);
	return r;
}

static void live_changed(struct mcm_segments *ss)
{
	uint64_t largest = 0, capacity = 0;
	unsigned i, hidden = 0;

	for (i = 0; i < ss->n_live; i++) {
		uint64_t usable = ss->at[ss->live[i]]->size / MCM_GRANULE * MCM_GRANULE;

		if (usable > largest)
			largest = usable;
	}
	for (i = 0; i < ss->top; i++) {
		uint8_t state = mcm_segment_state(ss->at[i]);

		hidden += state == MCP_SEG_SILENT || state == MCP_SEG_UNMOUNTING;
	}
	for (i = 0; i < ss->n_live; i++)
		capacity += ss->at[ss->live[i]]->size;
	__atomic_store_n(&ss->capacity, capacity, __ATOMIC_RELAXED);
	__atomic_store_n(&ss->largest, largest, __ATOMIC_RELAXED);
	__atomic_store_n(&ss->n_hidden, hidden, __ATOMIC_RELAXED);
}

/* Into a struct that no segment uses. */
static int segment_make(struct mcm_segments *ss, struct mcm_segment *s, const struct mcp_mount *rq,
			uint8_t state)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = contents_make(ss, s, rq->size);
	if (r == 0) {
		s->id = rq->segment;
		s->epoch = rq->epoch;
		mcm_poke(&s->size, rq->size);
		memset(s->walk, 0, sizeof(s->walk));
		mcm_poke(&s->draining, 0);
		mcm_segment_describe(s, rq);
		mcm_poke(&s->used, 0);
		__atomic_store_n(&s->connected, state == MCP_SEG_OK, __ATOMIC_RELAXED);
		__atomic_store_n(&s->state, state, __ATOMIC_RELEASE);
		ss->live[ss->n_live] = s->index;
		mcm_poke(&ss->n_live, ss->n_live + 1);
		mcm_local_insert(ss, s);
	}
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		live_changed(ss);
	return r;
}

int mcm_segments_add(struct mcm_segments *ss, const struct mcp_mount *rq,
		     struct mcm_segment **ret)
{
	struct mcm_segment *s = NULL;
	int r;

	r = struct_get(ss, &s);
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
		.endpoint = rec->endpoint, .protocol = rec->protocol,
	};
	struct mcm_segment *s;
	int r = 0;

	while (r == 0 && ss->top <= rec->index)
		r = struct_new(ss, &s);
	if (r < 0)
		return r;
	s = ss->at[rec->index];
	if (mcm_segment_state(s) != MCM_SEG_NONE)
		return mc_fail(-MC_EPARAM, "two segments have number %u", rec->index);
	r = segment_make(ss, s, &rq, MCP_SEG_SILENT);
	if (r < 0)
		return r;
	*ret = s;
	return 0;
}

int mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size)
{
	unsigned i;
	int r;

	pthread_mutex_lock(&s->lock);
	r = mcm_alloc_grow(&s->alloc, size);
	if (r == 0)
		mcm_poke(&s->size, size);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	/* The last walk for room found none in what there was. */
	for (i = 0; i < MCM_EVICT_LEVELS; i++)
		mcm_poke(&s->walk[i].retry_ns, 0);
	live_changed(ss);
	return 0;
}

void mcm_segments_set_silent(struct mcm_segments *ss, struct mcm_segment *s, bool silent)
{
	__atomic_store_n(&s->state, silent ? MCP_SEG_SILENT : MCP_SEG_OK, __ATOMIC_RELEASE);
	if (!silent)
		live_changed(ss);
}

void mcm_segments_silenced(struct mcm_segments *ss)
{
	live_changed(ss);
}

void mcm_segments_remove(struct mcm_segments *ss, struct mcm_segment *s)
{
	unsigned i;

	/* Under its own lock too: no range is taken after this. */
	pthread_mutex_lock(&s->lock);
	__atomic_store_n(&s->state, MCP_SEG_UNMOUNTING, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&s->lock);
	for (i = 0; ss->live[i] != s->index; i++)
		;
	ss->live[i] = ss->live[ss->n_live - 1];
	mcm_poke(&ss->n_live, ss->n_live - 1);
	mcm_local_remove(ss, s);
	live_changed(ss);
}

void mcm_segments_reap(struct mcm_segments *ss, struct mcm_segment *s)
{
	pthread_rwlock_wrlock(&ss->lock);
	pthread_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_UNMOUNTING && !s->alloc.ranges) {
		contents_free(s);
		__atomic_store_n(&s->state, MCM_SEG_NONE, __ATOMIC_RELEASE);
		live_changed(ss);
	}
	pthread_mutex_unlock(&s->lock);
	pthread_rwlock_unlock(&ss->lock);
}

void mcm_segment_used(struct mcm_segment *s)
{
	mcm_poke(&s->used, s->alloc.used << MCM_GRANULE_SHIFT);
}

int mcm_segment_take_locked(struct mcm_segment *s, uint64_t len, uint32_t *ret_node)
{
	int r;

	if (mcm_segment_state(s) != MCP_SEG_OK)
		return -MC_ENOSPACE;
	r = mcm_alloc_take(&s->alloc, len, ret_node);
	mcm_segment_used(s);
	return r;
}

int mcm_segment_take(struct mcm_segment *s, uint64_t len, uint32_t *ret_node)
{
	MC_LOCKED(&s->lock);
	return mcm_segment_take_locked(s, len, ret_node);
}

void mcm_segment_trim(struct mcm_segment *s, uint32_t node, uint64_t len)
{
	MC_LOCKED(&s->lock);
	/* Without memory for the rest's node the range stays longer than it need be. */
	(void)mcm_alloc_trim(&s->alloc, node, mcm_alloc_round(len));
	mcm_segment_used(s);
}

void mcm_segment_give_locked(struct mcm_segment *s, const struct mcm_evict_ops *ops,
			     const struct mcm_index *ix, uint32_t node)
{
	struct mcm_evict_view v = { ix, &s->alloc, 0, 0, 0, 0 };

	if (mcm_node(&s->alloc, node)->flags & MCM_NODE_LISTED)
		ops->remove(s->policy, &v, node);
	mcm_alloc_give(&s->alloc, node);
	mcm_segment_used(s);
}

void mcm_segment_give(struct mcm_segment *s, uint32_t node)
{
	MC_LOCKED(&s->lock);
	mcm_alloc_give(&s->alloc, node);
	mcm_segment_used(s);
}
