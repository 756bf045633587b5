/* SPDX-License-Identifier: Apache-2.0
 * evict_s3fifo.c - S3-FIFO (Yang et al., SOSP 2023): two queues, and ghosts of a third.
 *
 * A new range enters the small queue, which has a tenth of the bytes.  When it reaches the head, it moves to
 * the main queue if its object was read more than once there; else it is evicted and remembered as a ghost.  A
 * key that is put again while its ghost is remembered enters the main queue.  The main queue's head gets
 * another round if it was read since the last one.  So objects that are read once never displace others.
 *
 * The ghosts are common to all segments, because the key may be put on another one.  They are a
 * table of key hashes with the number of the eviction, four per bucket; a new one replaces the
 * oldest.  A ghost is remembered for as many evictions as there are objects in main queues.  The
 * table has no lock: a lost or a false ghost costs one wrong guess. */
#include <config.h>

#include "master/space/evict_lists.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SMALL_SHARE 10		/* one of this number of bytes belongs to the small queue */
#define WAYS 4u
#define BITS_MIN 8u		/* log2 of the buckets */
#define BITS_MAX 20u
#define GHOSTS_MIN 64u

struct ghosts {
	/* hash << 32 | number of the eviction; atomic.  Address space for 2^BITS_MAX buckets; untouched
	 * pages have no memory. */
	uint64_t *entry;
	uint32_t serial;	/* atomic */
	uint32_t main_count;	/* ranges in all main queues; atomic */
};

struct s3fifo {
	struct mcm_lists lists;
	uint32_t small, main;
	struct ghosts *ghosts;
	uint32_t reported;	/* ranges of this main queue that ghosts->main_count includes */
};

#define GHOST_BYTES ((size_t)WAYS * sizeof(uint64_t) << BITS_MAX)

static void *ghosts_new(struct mcm_learn *learn)
{
	struct ghosts *g = calloc(1, sizeof(*g));

	(void)learn;
	if (!g)
		return NULL;
	g->entry = mmap(NULL, GHOST_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (g->entry == MAP_FAILED) {
		free(g);
		return NULL;
	}
	return g;
}

static void ghosts_free(void *shared)
{
	struct ghosts *g = shared;

	munmap(g->entry, GHOST_BYTES);
	free(g);
}

/* The table has as many entries as there may be ghosts; some are lost when that number changes. */
static uint64_t *ghost_bucket(const struct ghosts *g, uint32_t hash)
{
	uint32_t n = mcm_load_relaxed(&g->main_count) / WAYS;
	unsigned bits = BITS_MIN;

	while (bits < BITS_MAX && n >> bits)
		bits++;
	return g->entry + WAYS * (hash * 0x9e3779b1u >> (32 - bits));
}

static uint32_t ghost_age(const struct ghosts *g, uint64_t entry)
{
	return mcm_load_relaxed(&g->serial) - (uint32_t)entry;
}

static bool ghost_there(const struct ghosts *g, uint32_t hash)
{
	uint32_t most = mcm_load_relaxed(&g->main_count);
	uint64_t *b = ghost_bucket(g, hash);
	unsigned i;

	if (most < GHOSTS_MIN)
		most = GHOSTS_MIN;
	for (i = 0; i < WAYS; i++) {
		uint64_t e = mcm_load_relaxed(&b[i]);

		if (e && e >> 32 == hash && ghost_age(g, e) <= most)
			return true;
	}
	return false;
}

static void ghost_add(struct ghosts *g, uint32_t hash)
{
	uint32_t serial = __atomic_add_fetch(&g->serial, 1, __ATOMIC_RELAXED);
	uint64_t *b = ghost_bucket(g, hash);
	unsigned i, oldest = 0;

	for (i = 0; i < WAYS; i++) {
		uint64_t e = mcm_load_relaxed(&b[i]);

		if (!e || e >> 32 == hash) {
			oldest = i;
			break;
		}
		if (ghost_age(g, e) > ghost_age(g, mcm_load_relaxed(&b[oldest])))
			oldest = i;
	}
	mcm_store_relaxed(&b[oldest], (uint64_t)hash << 32 | (serial ? serial : 1));
}

/* ---- the queues ---- */

/* The class of ranges that are on the main queue, or were when they left it. */
static bool range_is_main(const struct mcm_evict_view *v, uint32_t range)
{
	return mcm_range(v->a, range)->policy & MCM_LIST_CLASS;
}

static void s3fifo_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest)
{
	struct s3fifo *s = (struct s3fifo *)l;

	(void)newest;
	mcm_list_tail(l, v->a, range_is_main(v, range) ? s->main : s->small, range);
}

static int s3fifo_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct s3fifo *s = state;
	int r;

	s->ghosts = shared;
	r = mcm_lists_init(&s->lists, a, lease_ticks, s3fifo_requeue);
	if (r == 0)
		r = mcm_list_new(a, &s->small);
	return r < 0 ? r : mcm_list_new(a, &s->main);
}

/* Update the number of ranges in this segment's main queue. */
static void main_count_report(struct s3fifo *s)
{
	uint32_t now = (uint32_t)s->lists.count[1], before = s->reported;

	if (now == before)
		return;
	__atomic_fetch_add(&s->ghosts->main_count, now - before, __ATOMIC_RELAXED);
	s->reported = now;
}

static void s3fifo_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	struct s3fifo *s = state;

	if (fresh && ghost_there(s->ghosts, mcm_load_relaxed(&mcm_evict_owner(v, range)->hash)))
		mcm_range(v->a, range)->policy |= MCM_LIST_CLASS;
	mcm_lists_insert(&s->lists, v, range, fresh);
}

static void s3fifo_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
	main_count_report(state);
}

/* Head of the small queue: if it was read more than once there, it moves to the main queue. */
static void s3fifo_small_head(struct mcm_selection *h, struct s3fifo *s, const struct mcm_evict_view *v,
			      uint32_t id)
{
	if (mcm_evict_reads(v, id) < 2) {
		mcm_selection_take(h, &s->lists, v, id);
		return;
	}
	mcm_lists_del(&s->lists, v->a, id);
	mcm_range(v->a, id)->policy |= MCM_LIST_CLASS;
	mcm_evict_untouch(v, id);
	mcm_list_tail(&s->lists, v->a, s->main, id);
}

static void s3fifo_main_head(struct mcm_selection *h, struct s3fifo *s, const struct mcm_evict_view *v,
			     uint32_t id)
{
	if (!mcm_evict_reads(v, id) || h->chances-- <= 0) {
		mcm_selection_take(h, &s->lists, v, id);
		return;
	}
	mcm_evict_unread(v, id);
	mcm_lists_del(&s->lists, v->a, id);
	mcm_list_tail(&s->lists, v->a, s->main, id);
}

static unsigned s3fifo_victims(void *state, const struct mcm_evict_view *v, unsigned level,
			       uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct s3fifo *s = state;
	struct mcm_lists *l = &s->lists;
	struct mcm_selection h = mcm_selection_begin(l, v, level, want, ret, max);
	uint32_t id;
	bool small;

	do {
		small = l->granules[0] * SMALL_SHARE >= l->granules[0] + l->granules[1];
		id = mcm_selection_next(&h, l, v, small ? s->small : s->main);
		if (!id) {
			/* The ranges counted for this queue may all be on the wheel. */
			small = !small;
			id = mcm_selection_next(&h, l, v, small ? s->small : s->main);
		}
		if (id && small)
			s3fifo_small_head(&h, s, v, id);
		else if (id)
			s3fifo_main_head(&h, s, v, id);
	} while (id);
	main_count_report(s);
	return mcm_selection_end(&h, l, v, level, ret_more);
}

static void s3fifo_evicted(void *shared, const struct mcm_victim *victim, uint32_t hash)
{
	if (!(victim->policy & MCM_LIST_CLASS))
		ghost_add(shared, hash);
}

const struct mcm_evict_ops mcm_evict_s3fifo = {
	.name = "s3fifo",
	.state_size = sizeof(struct s3fifo),
	.shared_new = ghosts_new,
	.shared_free = ghosts_free,
	.init = s3fifo_init,
	.insert = s3fifo_insert,
	.remove = s3fifo_remove,
	.victims = s3fifo_victims,
	.retry = mcm_lists_retry,
	.evicted = s3fifo_evicted,
};
