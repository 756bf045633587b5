/* SPDX-License-Identifier: Apache-2.0
 * evict_level.c - levels of eviction, and the objects that count as recent. */
#include <config.h>

#include "master/space/evict.h"

#include "master/mcm_i.h"

#define NEW_SHARE 8		/* 1/8 of the objects counts as recent */
#define RECENT_MAX_MS 1000u	/* upper limit of recent_ms(), also after a pause without puts */

static unsigned levels_of(const struct mcm *m, unsigned waiting, unsigned ret_level[MCM_EVICT_LEVELS])
{
	unsigned soft = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0;
	unsigned keep_recent = mcm_promise_leases_active(m) ? MCM_EVICT_KEEP_RECENT : 0;
	const unsigned level[MCM_EVICT_LEVELS] = {
		keep_recent, keep_recent | soft, keep_recent | soft | waiting,
		keep_recent | soft | waiting | MCM_EVICT_LEASED, soft | waiting | MCM_EVICT_LEASED,
	};
	unsigned i, n = 0;

	for (i = 0; i < MCM_EVICT_LEVELS; i++)
		if (!n || level[i] != ret_level[n - 1])
			ret_level[n++] = level[i];
	return n;
}

unsigned mcm_evict_levels(const struct mcm *m, unsigned ret_level[MCM_EVICT_LEVELS])
{
	return levels_of(m, 0, ret_level);
}

unsigned mcm_evict_levels_put(const struct mcm *m, unsigned ret_level[MCM_EVICT_LEVELS])
{
	return levels_of(m, m->offload.on ? MCM_EVICT_WAITING : 0, ret_level);
}

bool mcm_promise_leases_active(const struct mcm *m)
{
	return mcm_load_relaxed(&m->promise_lease_end) > mcm_now_tick(m);
}

/* ---- recent objects ---- */

/* The time since the last @puts puts began, at least MCM_RECENT_MIN_MS.  Takes a sample when the
 * last one is old. */
static uint32_t recent_ms(struct mcm_put_samples *p, uint64_t generation, uint64_t puts, uint32_t wall)
{
	uint32_t last = mcm_load_relaxed(&p->last), i, at, ago = 0;
	uint64_t then;

	for (i = 0; i < MCM_PUT_SAMPLES && !ago; i++) {
		at = (last - i) % MCM_PUT_SAMPLES;
		then = mcm_load_relaxed(&p->generation[at]);
		/* 0: no sample yet */
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

/* A view in which the last @puts puts of the whole master are recent. */
static struct mcm_evict_view view_make(struct mcm *m, struct mcm_alloc *a, uint64_t puts)
{
	uint64_t generation = mcm_load_relaxed(&m->generation);
	uint32_t wall = (uint32_t)(mc_wall_ns() / MC_NS_PER_MS);

	return (struct mcm_evict_view){
		&m->index, a, mcm_now_tick(m), (generation - puts) << MCM_PUT_SHARD_BITS,
		wall, recent_ms(&m->put_samples, generation, puts, wall),
	};
}

struct mcm_evict_view mcm_evict_view_of(struct mcm *m, struct mcm_segment *s)
{
	/* The share of this segment's objects that counts as recent, in puts of the whole master,
	 * as if all segments had the same number of objects. */
	return view_make(m, &s->alloc,
			 mcm_load_relaxed(&s->objects) * mcm_load_relaxed(&m->segments.n_live) / NEW_SHARE + 1);
}

struct mcm_evict_view mcm_evict_view_empties(struct mcm *m)
{
	return view_make(m, NULL, mcm_load_relaxed(&m->empties.objects) / NEW_SHARE + 1);
}
