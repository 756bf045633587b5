/* SPDX-License-Identifier: Apache-2.0
 * evict_count.c - limit of the number of objects: --max_objects.
 *
 * A put is counted when it begins, so that it does not fail when it ends.  If there are too many objects and
 * directories then, as many as are above the limit are evicted, on any segment or among the objects without bytes.
 * These sources are asked in turn, beginning with a random one, chosen with a probability proportional to its number
 * of objects. */
#include <config.h>

#include "common/err.h"
#include "common/sys/random.h"
#include "master/mcm_i.h"

#define BATCH 32		/* objects evicted at a time */
/* Objects evicted for one put, at most: as many as one put can add, with the weights of its key and its directories. */
#define MOST (1 + 2 * (MCP_KEY_MAX / MCM_KEY_WEIGHT) + MCM_NAMES_DEPTH)
#define AHEAD_SHARE 4096	/* 1/4096 of the limit is evicted ahead of need */

/* The sources by number: the segments, then the objects without bytes. */
static uint64_t source_objects(const struct mcm *m, unsigned top, unsigned i)
{
	const struct mcm_segment *s;

	if (i == top)
		return mcm_load_relaxed(&m->empties.objects);
	s = mcm_segment(&m->segments, (uint16_t)i);
	return mcm_segment_state(s) == MCP_SEG_OK && mcm_load_relaxed(&s->evictable) ?
		mcm_load_relaxed(&s->objects) : 0;
}

static unsigned source_first(const struct mcm *m, unsigned top)
{
	uint64_t sum = 0, at = mc_random_u64(), n;
	unsigned i;

	for (i = 0; i <= top; i++)
		sum += source_objects(m, top, i);
	at = sum ? at % sum : 0;
	for (i = 0; i <= top; i++) {
		n = source_objects(m, top, i);
		if (at < n)
			return i;
		at -= n;
	}
	return 0;
}

static unsigned source_victims(struct mcm *m, unsigned top, unsigned i, unsigned level, struct mcm_victim *v,
			       unsigned max, bool *more)
{
	struct mcm_evict_view view;
	struct mcm_segment *s;
	unsigned n = 0;

	*more = false;
	if (i == top) {
		view = mcm_evict_view_empties(m);
		return mcm_object_lists_choose(m, &m->empties.lists, &view, level, UINT64_MAX, v, max, more);
	}
	s = mcm_segment(&m->segments, (uint16_t)i);
	view = mcm_evict_view_of(m, s);
	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_OK)
		n = s->evict->victims(s->policy, &view, level, UINT64_MAX, v, max, more);
	mc_mutex_unlock(&s->lock);
	return n;
}

static unsigned source_evict(struct mcm *m, unsigned top, unsigned at, unsigned level, unsigned want)
{
	uint64_t rounds = source_objects(m, top, at) / 16 + 1024, bytes = 0;
	struct mcm_victim v[BATCH];
	unsigned evicted = 0, n, i;
	bool more;

	do {
		n = source_victims(m, top, at, level, v, want - evicted, &more);
		for (i = 0; i < n; i++)
			evicted += mcm_evict_object(m, &v[i], level, true, &bytes);
	} while (evicted < want && (n || more) && rounds--);
	return evicted;
}

/* Evict @want objects, each level on every source before the next level; returns how many were evicted. */
static unsigned count_evict(struct mcm *m, unsigned want)
{
	uint64_t ahead = m->index.max / AHEAD_SHARE;
	unsigned level[MCM_EVICT_LEVELS], steps = mcm_evict_levels(m, level), i, l, top, evicted = 0;

	mc_rwlock_rdlock(&m->segments.lock);
	top = m->segments.top;
	mc_rwlock_unlock(&m->segments.lock);
	if (ahead > BATCH)
		ahead = BATCH;
	for (l = 0; l < steps && evicted < want; l++) {
		unsigned first = source_first(m, top), n = want, at;

		if (!(level[l] & (MCM_EVICT_SOFT | MCM_EVICT_LEASED)) && ahead > want)
			n = (unsigned)ahead;
		for (i = 0; i <= top && evicted < want; i++) {
			at = (first + i) % (top + 1);
			if (source_objects(m, top, at))
				evicted += source_evict(m, top, at, level[l], n - evicted);
		}
	}
	return evicted;
}

static int count_refuse(const struct mcm *m)
{
	const char *from = m->index.by_memory ? "from the machine's memory, --max_objects sets another" :
		"--max_objects";

	return mc_fail(-MC_ENOSPACE, "object limit %llu reached and no object is evictable (%s)",
		       (unsigned long long)m->index.max, from);
}

int mcm_count_admit(struct mcm *m, uint32_t key_len)
{
	uint64_t max = m->index.max, n;
	unsigned evicted = 0, got;

	if (!max)
		return 0;
	n = __atomic_add_fetch(&m->index.count, mcm_index_weight(&m->index, key_len), __ATOMIC_RELAXED);
	/* After a restart with a smaller limit there may be many more: each put evicts some of them. */
	while (n > max && evicted < MOST) {
		got = count_evict(m, n - max < BATCH ? (unsigned)(n - max) : BATCH);
		if (!got) {
			mcm_count_leave(m, key_len);
			return count_refuse(m);
		}
		evicted += got;
		n = mcm_load_relaxed(&m->index.count);
	}
	return 0;
}

void mcm_count_leave(struct mcm *m, uint32_t key_len)
{
	if (m->index.max)
		__atomic_fetch_sub(&m->index.count, mcm_index_weight(&m->index, key_len), __ATOMIC_RELAXED);
}
