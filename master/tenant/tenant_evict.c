/* SPDX-License-Identifier: Apache-2.0
 * tenant_evict.c - eviction of a tenant's own objects, oldest first, to make room inside its quota. */
#include <config.h>

#include "master/mcm_i.h"

#include "common/cleanup.h"

#define BATCH 32
#define KEPT_MAX (2 * BATCH)

int mcm_tenant_cover(struct mcm *m, uint32_t slot)
{
	return m->tenants.on ? mcm_object_lists_cover(m, slot) : 0;
}

static uint32_t tenant_of(const struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	return mcm_key_tenant(mcm_shard_key(&m->index, slot), o->key_len);
}

/* ---- the shard locked ---- */

/* Can the committed object ever be evicted? */
static bool is_listable(const struct mcm_object *o)
{
	return !(o->flags & MCM_OBJ_HARD) && (o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT &&
	       mcm_object_size(o);
}

void mcm_tenant_join(struct mcm *m, uint32_t slot, uint64_t charged)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	struct mcm_tenant *t;
	uint32_t number;
	uint64_t bytes;

	if (!m->tenants.on)
		return;
	number = tenant_of(m, slot);
	bytes = mcm_extents_in_memory(m, p, mcm_object_extents(&m->index, o, p)) * mcm_object_size(o);
	if (bytes > charged)
		mcm_tenant_add(m, number, bytes - charged);
	else if (bytes < charged)
		mcm_tenant_refund(m, number, charged - bytes);
	t = m->tenants.at[number];
	if (is_listable(o))
		mcm_object_lists_add(m, &t->lists, slot);
	__atomic_fetch_add(&t->objects, 1, __ATOMIC_RELAXED);
}

void mcm_tenant_leave(struct mcm *m, uint32_t slot)
{
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = m->tenants.at[tenant_of(m, slot)];
	if (is_listable(mcm_object(&m->index, slot)))
		mcm_object_lists_remove(m, &t->lists, slot);
	__atomic_fetch_sub(&t->objects, 1, __ATOMIC_RELAXED);
}

void mcm_tenant_relist(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	/* Eviction would free nothing of an object that is only on a disk. */
	if (m->tenants.on && o->flags & MCM_OBJ_LIVE && is_listable(o) && mcm_object_in_memory(o))
		mcm_object_lists_add(m, &m->tenants.at[tenant_of(m, slot)]->lists, slot);
}

/* ---- victims ---- */

/* Put back a victim that is not needed, as the first object of its list. */
static void return_victim(struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);

	mcm_tenant_relist(m, slot);
	/* The slot may belong to another tenant by now. */
	mcm_object_lists_front(m, &t->lists, slot);
	mc_mutex_unlock(&sh->lock);
}

/* Does a victim that was not evicted wait for a disk? */
static bool victim_kept(struct mcm *m, const struct mcm_victim *v)
{
	const struct mcm_object *o = mcm_object(&m->index, v->slot);
	struct mcm_shard *sh;
	bool kept;

	if (!m->offload.keep)
		return false;
	sh = mcm_index_lock_slot(&m->index, v->slot);
	kept = o->flags & MCM_OBJ_LIVE && o->generation == v->generation && mcm_offload_keeps_any(m, o);
	mc_mutex_unlock(&sh->lock);
	return kept;
}

/* Evict about @want bytes of one tenant.  A level is used only when the level before has no more victims, or when many
 * in a row stay until they are on a disk (*ret_kept). */
static uint64_t evict_levels(struct mcm *m, struct mcm_tenant *t, uint64_t want, const unsigned *levels,
			     unsigned n_levels, const struct mcm_slice *sl, bool *ret_kept)
{
	/* More rounds than the objects could need: other threads may put objects back, but the loop must end. */
	uint64_t rounds = mcm_load_relaxed(&t->objects) / 16 + 1024, freed = 0;
	struct mcm_evict_view view = { .ix = &m->index, .now = mcm_now_tick(m) };
	struct mcm_victim v[BATCH];
	unsigned n, i, kept;
	bool more, over = false;

	*ret_kept = false;
	for (unsigned l = 0; l < n_levels && freed < want && !over; l++) {
		kept = 0;
		do {
			n = mcm_object_lists_choose(m, &t->lists, &view, levels[l], want - freed, v, BATCH,
						    &more);
			for (i = 0; i < n && freed < want; i++)
				if (mcm_evict_object(m, &v[i], levels[l], false, &freed))
					kept = 0;
				else
					kept += victim_kept(m, &v[i]);
			*ret_kept |= kept;
			/* Evicting the group of one victim may have freed enough. */
			while (n > i)
				return_victim(m, t, v[--n].slot);
			over = mcm_slice_over(sl);
			rounds -= rounds > 0;
		} while (freed < want && (n || more) && rounds && !over && kept < KEPT_MAX);
	}
	__atomic_fetch_add(&t->counts.evicted_bytes, freed, __ATOMIC_RELAXED);
	return freed;
}

uint64_t mcm_tenant_evict(struct mcm *m, uint32_t tenant, uint64_t want, const struct mcm_slice *sl, bool *ret_kept)
{
	unsigned soft = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0;
	const unsigned levels[] = { MCM_EVICT_PLAIN, soft, soft | MCM_EVICT_LEASED };

	return evict_levels(m, m->tenants.at[tenant], want, levels, 3, sl, ret_kept);
}

/* Bytes that a tenant of the policy uses above its share. */
static uint64_t bytes_above(const struct mcm_tenant *t)
{
	uint64_t charged = mcm_load_relaxed(&t->charged), share = mcm_load_relaxed(&t->effective);

	return __atomic_load_n(&t->explicit_policy, __ATOMIC_RELAXED) && charged > share ?
		charged - share : 0;
}

uint64_t mcm_tenants_trim(struct mcm *m, uint64_t want, const struct mcm_slice *sl)
{
	const unsigned levels[] = {
		MCM_EVICT_PLAIN, m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0
	};
	unsigned i, n = mcm_load_relaxed(&m->tenants.count);
	uint64_t freed = 0;
	bool left = false, kept;

	if (!mcm_tenants_over_quota(m))
		return 0;
	/* A tenant that exceeds its share from now on sets the flag again. */
	__atomic_store_n(&m->tenants.above, false, __ATOMIC_RELAXED);
	for (i = 0; i < n && freed < want && !(freed && mcm_slice_over(sl)); i++) {
		struct mcm_tenant *t = __atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE);
		uint64_t over = bytes_above(t);

		if (over)
			freed += evict_levels(m, t, over < want - freed ? over : want - freed,
					      levels, 2, sl, &kept);
	}
	for (i = 0; i < n && !left; i++)
		left = bytes_above(__atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE));
	if (left)
		__atomic_store_n(&m->tenants.above, true, __ATOMIC_RELAXED);
	return freed;
}
