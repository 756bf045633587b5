/* SPDX-License-Identifier: Apache-2.0
 * tenant_evict.c - room inside of a tenant's quota: its objects from the oldest on.
 *
 * One list per tenant through all its objects; what was read since the evictor came by, or must stay, goes
 * to the end, so each object is looked at once per round and nothing is searched. */
#include <config.h>

#include "master/mcm_i.h"

#include "common/cleanup.h"

#define BATCH 32
#define STEPS_MAX 4096		/* objects looked at per level and call */

static struct mcm_tenant_link *link_of(const struct mcm *m, uint32_t slot)
{
	return mcm_slab_at(&m->tenants.links, slot);
}

int mcm_tenant_cover(struct mcm *m, uint32_t slot)
{
	return m->tenants.on ? mcm_slab_cover(&m->tenants.links, slot) : 0;
}

static struct mcm_tenant *tenant_of(const struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	return m->tenants.at[mcm_key_tenant(mcm_shard_key(&m->index, slot), o->key_len)];
}

/* ---- the list; lock held ---- */

static void link_last(const struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_tenant_link *e = link_of(m, slot);

	e->next = 0;
	e->prev = t->last;
	if (t->last)
		link_of(m, t->last)->next = slot;
	else
		t->first = slot;
	t->last = slot;
}

static void unlink_object(const struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_tenant_link *e = link_of(m, slot);

	if (e->prev)
		link_of(m, e->prev)->next = e->next;
	else
		t->first = e->next;
	if (e->next)
		link_of(m, e->next)->prev = e->prev;
	else
		t->last = e->prev;
}

void mcm_tenant_join(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_place p[MCM_REPLICA_MAX];
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = tenant_of(m, slot);
	__atomic_fetch_add(&t->charged,
			   mcm_object_places(&m->index, o, p) * mcm_object_size(o),
			   __ATOMIC_RELAXED);
	MC_LOCKED(&t->lock);
	link_last(m, t, slot);
	mcm_poke(&t->objects, t->objects + 1);
}

void mcm_tenant_leave(struct mcm *m, uint32_t slot, unsigned copies)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = tenant_of(m, slot);
	__atomic_fetch_sub(&t->charged, copies * mcm_object_size(o), __ATOMIC_RELAXED);
	MC_LOCKED(&t->lock);
	unlink_object(m, t, slot);
	mcm_poke(&t->objects, t->objects - 1);
}

static bool may_go(const struct mcm *m, const struct mcm_object *o, unsigned level, uint32_t now)
{
	if (mcm_peek(&o->pins) || mcm_peek(&o->flags) & MCM_OBJ_HARD || !o->node)
		return false;
	if (!(level & MCM_EVICT_SOFT) && mcm_evict_soft(&m->index, o, now))
		return false;
	if (level & MCM_EVICT_LEASED)
		return true;
	return mcm_peek(&o->lease) <= now;
}

static unsigned choose(struct mcm *m, struct mcm_tenant *t, unsigned level, uint64_t want,
		       struct mcm_victim *v, unsigned *steps)
{
	uint32_t now = mcm_now_tick(m);
	unsigned n = 0;

	MC_LOCKED(&t->lock);
	while (n < BATCH && want && *steps && t->first) {
		uint32_t slot = t->first;
		struct mcm_object *o = mcm_object(&m->index, slot);
		uint64_t bytes = mcm_object_size(o);
		bool touched = mcm_peek(&o->marks) & MCM_MARK_TOUCHED;

		--*steps;
		unlink_object(m, t, slot);
		link_last(m, t, slot);
		/* A second chance for what was read. */
		if (touched && !(level & MCM_EVICT_LEASED)) {
			__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
			continue;
		}
		if (!may_go(m, o, level, now))
			continue;
		v[n++] = (struct mcm_victim){ .slot = slot, .generation = mcm_peek(&o->generation) };
		want -= bytes < want ? bytes : want;
	}
	return n;
}

/* About @want bytes of one tenant, level by level. */
static uint64_t evict_levels(struct mcm *m, struct mcm_tenant *t, uint64_t want,
			     const unsigned *levels, unsigned n_levels)
{
	struct mcm_victim v[BATCH];
	uint64_t freed = 0;

	for (unsigned l = 0; l < n_levels && freed < want; l++) {
		/* Twice around, so that second chances are used up. */
		unsigned steps = 2 * (unsigned)mcm_peek(&t->objects) + 1, n, i;

		if (steps > STEPS_MAX)
			steps = STEPS_MAX;
		while (freed < want && (n = choose(m, t, levels[l], want - freed, v, &steps)))
			for (i = 0; i < n && freed < want; i++)
				freed += mcm_evict_whole(m, v[i].slot, v[i].generation, levels[l]);
	}
	__atomic_fetch_add(&t->counts.evicted_bytes, freed, __ATOMIC_RELAXED);
	return freed;
}

uint64_t mcm_tenant_evict(struct mcm *m, uint32_t tenant, uint64_t want)
{
	unsigned soft = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0;
	const unsigned levels[] = { MCM_EVICT_PLAIN, soft, soft | MCM_EVICT_LEASED };

	return evict_levels(m, m->tenants.at[tenant], want, levels, 3);
}

/* What a tenant of the policy has above its share. */
static uint64_t above(const struct mcm_tenant *t)
{
	uint64_t charged = mcm_peek(&t->charged), share = mcm_peek(&t->effective);

	return __atomic_load_n(&t->explicit_policy, __ATOMIC_RELAXED) && charged > share ?
		charged - share : 0;
}

uint64_t mcm_tenants_trim(struct mcm *m, uint64_t want)
{
	const unsigned levels[] = {
		MCM_EVICT_PLAIN, m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0
	};
	unsigned i, n = mcm_peek(&m->tenants.count);
	uint64_t freed = 0;
	bool left = false;

	if (!mcm_tenants_above(m))
		return 0;
	/* Whoever gets above meanwhile says so again. */
	__atomic_store_n(&m->tenants.above, false, __ATOMIC_RELAXED);
	for (i = 0; i < n && freed < want; i++) {
		struct mcm_tenant *t = __atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE);
		uint64_t over = above(t);

		if (over)
			freed += evict_levels(m, t, over < want - freed ? over : want - freed,
					      levels, 2);
	}
	for (i = 0; i < n && !left; i++)
		left = above(__atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE));
	if (left)
		__atomic_store_n(&m->tenants.above, true, __ATOMIC_RELAXED);
	return freed;
}
