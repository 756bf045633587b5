/* SPDX-License-Identifier: Apache-2.0
 * evict_level.c - levels of eviction, and which objects count as recently put. */
#include <config.h>

#include "master/space/evict.h"

#include "master/mcm_i.h"

#define NEW_SHARE 8		/* one of so many objects is new */
#define RECENT_MAX_MS 1000u	/* also behind a pause in which nothing was put */

unsigned mcm_evict_levels(const struct mcm *m, unsigned ret_level[MCM_EVICT_STEPS])
{
	unsigned soft = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0;
	unsigned keep_recent = mcm_promise_leases_active(m) ? MCM_EVICT_KEEP_RECENT : 0;
	const unsigned level[MCM_EVICT_STEPS] = {
		keep_recent, keep_recent | soft, keep_recent | soft | MCM_EVICT_LEASED, soft | MCM_EVICT_LEASED,
	};
	unsigned i, n = 0;

	for (i = 0; i < MCM_EVICT_STEPS; i++)
		if (!n || level[i] != ret_level[n - 1])
			ret_level[n++] = level[i];
	return n;
}

bool mcm_promise_leases_active(const struct mcm *m)
{
	return mcm_load_relaxed(&m->promise_lease_end) > mcm_now_tick(m);
}

/* ---- recently put objects ---- */

/* How long ago the last @puts puts began; MCM_RECENT_MIN_MS at least. */
static uint32_t recent_ms(struct mcm_put_samples *p, uint64_t generation, uint64_t puts, uint32_t wall)
{
	uint32_t last = mcm_load_relaxed(&p->last), i, at, ago = 0;
	uint64_t then;

	for (i = 0; i < MCM_PUT_SAMPLES && !ago; i++) {
		at = (last - i) % MCM_PUT_SAMPLES;
		then = mcm_load_relaxed(&p->generation[at]);
		/* 0: not written yet */
		if (then && generation - then >= puts)
			ago = wall - mcm_load_relaxed(&p->wall_ms[at]);
	}
	if (generation - mcm_load_relaxed(&p->generation[last % MCM_PUT_SAMPLES]) > puts / 4 &&
	    __atomic_compare_exchange_n(&p->last, &last, last + 1, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED)) {
		at = (last + 1) % MCM_PUT_SAMPLES;
		mcm_store_relaxed(&p->wall_ms[at], wall);
		mcm_store_relaxed(&p->generation[at], generation);
	}
	return ago > RECENT_MAX_MS ? RECENT_MAX_MS : ago > MCM_RECENT_MIN_MS ? ago : MCM_RECENT_MIN_MS;
}

struct mcm_evict_view mcm_evict_view_of(struct mcm *m, struct mcm_segment *s)
{
	/* As many puts of the whole master as this segment has objects by now, had all segments as many. */
	uint64_t puts = mcm_load_relaxed(&s->objects) * mcm_load_relaxed(&m->segments.n_live) / NEW_SHARE + 1;
	uint64_t generation = mcm_load_relaxed(&m->generation);
	uint32_t wall = (uint32_t)(mc_wall_ns() / MC_NS_PER_MS);

	return (struct mcm_evict_view){
		&m->index, &s->alloc, mcm_now_tick(m), (generation - puts) << MCM_PUT_SHARD_BITS,
		wall, recent_ms(&m->put_samples, generation, puts, wall),
	};
}
