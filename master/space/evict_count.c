/* SPDX-License-Identifier: Apache-2.0
 * evict_count.c - limit of the number of objects: --max_objects.
 *
 * A put is counted when it begins, so that it does not fail when it ends.  If there are too many objects
 * then, as many as are above the limit are evicted, on any segment.  Segments are asked in turn,
 * beginning with a random one, chosen with a probability proportional to its number of objects. */
#include <config.h>

#include "common/err.h"
#include "common/hash.h"
#include "master/mcm_i.h"

#define BATCH 32		/* objects evicted for one put, at most */
#define AHEAD_SHARE 4096	/* 1/4096 of the limit is evicted ahead of need */

static bool count_eligible(const struct mcm_segment *s)
{
	return mcm_segment_state(s) == MCP_SEG_OK && mcm_load_relaxed(&s->evictable);
}

static unsigned count_first_segment(const struct mcm *m, unsigned top)
{
	uint64_t sum = 0, at = mc_random_u64();
	unsigned i;

	for (i = 0; i < top; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);

		sum += count_eligible(s) ? mcm_load_relaxed(&s->objects) : 0;
	}
	at = sum ? at % sum : 0;
	for (i = 0; i < top; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)i);
		uint64_t n = count_eligible(s) ? mcm_load_relaxed(&s->objects) : 0;

		if (at < n)
			return i;
		at -= n;
	}
	return 0;
}

static unsigned count_evict_from(struct mcm *m, struct mcm_segment *s, unsigned level, unsigned want)
{
	uint64_t rounds = mcm_load_relaxed(&s->objects) / 16 + 1024;
	struct mcm_victim v[BATCH];
	unsigned evicted = 0, n, i;
	bool more;

	do {
		struct mcm_evict_view view = mcm_evict_view_of(m, s);

		n = 0;
		more = false;
		pthread_mutex_lock(&s->lock);
		if (mcm_segment_state(s) == MCP_SEG_OK)
			n = m->evict->victims(s->policy, &view, level, UINT64_MAX, v, want - evicted, &more);
		pthread_mutex_unlock(&s->lock);
		for (i = 0; i < n; i++)
			evicted += mcm_evict_object(m, &v[i], level) != 0;
	} while (evicted < want && (n || more) && rounds--);
	return evicted;
}

/* Evict @want objects, each level on every segment before the next level; returns how many were evicted. */
static unsigned count_evict(struct mcm *m, unsigned want)
{
	uint64_t ahead = m->index.max / AHEAD_SHARE;
	unsigned level[MCM_EVICT_LEVELS], steps = mcm_evict_levels(m, level), i, l, top, evicted = 0;

	pthread_rwlock_rdlock(&m->segments.lock);
	top = m->segments.top;
	pthread_rwlock_unlock(&m->segments.lock);
	if (ahead > BATCH)
		ahead = BATCH;
	for (l = 0; l < steps && evicted < want; l++) {
		unsigned first = count_first_segment(m, top), n = want;

		if (!(level[l] & (MCM_EVICT_SOFT | MCM_EVICT_LEASED)) && ahead > want)
			n = (unsigned)ahead;
		for (i = 0; i < top && evicted < want; i++) {
			struct mcm_segment *s = mcm_segment(&m->segments, (uint16_t)((first + i) % top));

			if (count_eligible(s))
				evicted += count_evict_from(m, s, level[l], n - evicted);
		}
	}
	return evicted;
}

int mcm_count_admit(struct mcm *m)
{
	uint64_t max = m->index.max, n;
	unsigned evicted = 0, got;

	if (!max)
		return 0;
	n = __atomic_add_fetch(&m->index.count, 1, __ATOMIC_RELAXED);
	/* After a restart with a smaller limit there may be many more: each put evicts some of them. */
	while (n > max && evicted < BATCH) {
		got = count_evict(m, n - max < BATCH ? (unsigned)(n - max) : BATCH);
		if (!got) {
			mcm_count_leave(m);
			return mc_fail(-MC_ENOSPACE, "object limit %llu reached and no object is evictable",
				       (unsigned long long)max);
		}
		evicted += got;
		n = mcm_load_relaxed(&m->index.count);
	}
	return 0;
}

void mcm_count_leave(struct mcm *m)
{
	if (m->index.max)
		__atomic_fetch_sub(&m->index.count, 1, __ATOMIC_RELAXED);
}
