/* SPDX-License-Identifier: Apache-2.0
 * group.c - groups and their members. */
#include <config.h>

#include "master/space/group.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define GROUPS_SHIFT 12
#define BATCH 16
#define INLINE_BATCHES 4	/* batches that the put which evicts a member also evicts */
#define BACKGROUND_BATCHES 64
#define READER_MS 1024		/* time until a member of a group with a pin is checked again */

MC_GAUGE(groups, "mooncake_master_groups", "", "Groups of objects")

static const struct mcm_table_type by_name = {
	.link = offsetof(struct mcm_group, next), .hash = offsetof(struct mcm_group, hash),
	.shift = 0, .load = 4,
};

void mcm_groups_init(struct mcm_groups *gs)
{
	memset(gs, 0, sizeof(*gs));
	mc_mutex_init(&gs->lock);
	mcm_slab_init(&gs->slab, sizeof(struct mcm_group), GROUPS_SHIFT);
	mcm_keys_init(&gs->names);
}

void mcm_groups_done(struct mcm_groups *gs)
{
	mcm_table_done(&gs->table);
	mcm_keys_done(&gs->names);
	mcm_slab_done(&gs->slab);
	mc_mutex_destroy(&gs->lock);
}

static struct mcm_group *group_at(const struct mcm *m, uint32_t id)
{
	return mcm_slab_at(&m->groups.slab, id);
}

static uint32_t group_of(const struct mcm *m, const struct mcm_object *o)
{
	return o->ext ? mcm_ext(&m->index, o->ext)->group : 0;
}

/* ---- the table; lock held ---- */

static uint32_t group_find(struct mcm *m, uint32_t hash, struct mcp_bytes name)
{
	struct mcm_groups *gs = &m->groups;
	uint32_t id = *mcm_table_head(&gs->table, mcm_table_pos(&by_name, hash));

	for (; id; id = group_at(m, id)->next) {
		const struct mcm_group *g = group_at(m, id);

		if (g->hash == hash && g->name_len == name.len &&
		    !memcmp(mcm_keys_at(&gs->names, g->name), name.data, name.len))
			break;
	}
	return id;
}

static int group_create(struct mcm *m, uint32_t hash, struct mcp_bytes name, uint32_t *ret)
{
	struct mcm_groups *gs = &m->groups;
	struct mcm_group *g;
	uint32_t ref, id = gs->free;
	int r;

	if (!id) {
		r = mcm_slab_take(&gs->slab, 1, &id);
		if (r < 0)
			return r;
		group_at(m, id)->next = 0;
		gs->free = id;
	}
	r = mcm_keys_add(&gs->names, name.data, name.len, &ref);
	if (r < 0)
		return r;
	g = group_at(m, id);
	gs->free = g->next;
	*g = (struct mcm_group){ .hash = hash, .name = ref, .name_len = (uint16_t)name.len };
	mcm_table_insert(&gs->table, &by_name, &gs->slab, id);
	mc_metric_add(&groups, 1);
	*ret = id;
	return 0;
}

static void group_unref(struct mcm *m, uint32_t id)
{
	struct mcm_groups *gs = &m->groups;
	struct mcm_group *g = group_at(m, id);

	if (--g->refs)
		return;
	mcm_table_remove(&gs->table, &by_name, &gs->slab, id);
	mcm_keys_del(&gs->names, g->name, g->name_len);
	g->next = gs->free;
	gs->free = id;
	mc_metric_add(&groups, -1);
}

int mcm_group_get(struct mcm *m, struct mcp_bytes name, uint32_t *ret_id)
{
	uint32_t hash, id;
	int r;

	if (!name.len || name.len > MCM_GROUP_NAME_MAX)
		return mc_fail(-MC_EPARAM, "group name has %u bytes", name.len);
	hash = (uint32_t)(mc_hash(name.data, name.len, m->index.seed) >> 32);
	MC_LOCKED(&m->groups.lock);
	id = group_find(m, hash, name);
	if (!id) {
		r = group_create(m, hash, name, &id);
		if (r < 0)
			return r;
	}
	group_at(m, id)->refs++;
	*ret_id = id;
	return 0;
}

void mcm_group_unref(struct mcm *m, uint32_t id)
{
	if (!id)
		return;
	MC_LOCKED(&m->groups.lock);
	group_unref(m, id);
}

struct mcp_bytes mcm_group_of(const struct mcm *m, const struct mcm_object *o)
{
	uint32_t id = group_of(m, o);
	const struct mcm_group *g;

	if (!id)
		return (struct mcp_bytes){ 0 };
	/* The name is constant while the group has members. */
	g = group_at(m, id);
	return mcp_bytes(mcm_keys_at(&m->groups.names, g->name), g->name_len);
}

uint32_t mcm_group_name(struct mcm *m, uint32_t id, char *buf)
{
	const struct mcm_group *g = group_at(m, id);
	struct mcp_bytes name;

	MC_LOCKED(&m->groups.lock);
	name = mcp_bytes(mcm_keys_at(&m->groups.names, g->name), g->name_len);
	name = mcm_key_bare(name, NULL);
	memcpy(buf, name.data, name.len);
	return name.len;
}

/* ---- members; lock held ---- */

static void member_append(struct mcm *m, struct mcm_group *g, uint32_t slot)
{
	struct mcm_object_ext *e = mcm_ext(&m->index, mcm_object(&m->index, slot)->ext);

	e->group_next = 0;
	e->group_prev = g->last;
	if (g->last)
		mcm_ext(&m->index, mcm_object(&m->index, g->last)->ext)->group_next = slot;
	else
		g->first = slot;
	g->last = slot;
}

static void member_unlink(struct mcm *m, struct mcm_group *g, uint32_t slot)
{
	struct mcm_object_ext *e = mcm_ext(&m->index, mcm_object(&m->index, slot)->ext);

	if (e->group_prev)
		mcm_ext(&m->index, mcm_object(&m->index, e->group_prev)->ext)->group_next =
			e->group_next;
	else
		g->first = e->group_next;
	if (e->group_next)
		mcm_ext(&m->index, mcm_object(&m->index, e->group_next)->ext)->group_prev =
			e->group_prev;
	else
		g->last = e->group_prev;
}

void mcm_group_join(struct mcm *m, uint32_t id, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_group *g = group_at(m, id);

	MC_LOCKED(&m->groups.lock);
	mcm_ext(&m->index, o->ext)->group = id;
	member_append(m, g, slot);
	g->members++;
	g->refs++;
}

void mcm_group_leave(struct mcm *m, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);
	uint32_t id = group_of(m, o);
	struct mcm_group *g;

	if (!id)
		return;
	g = group_at(m, id);
	__atomic_fetch_sub(&g->pins, mcm_object_pins(m, o), __ATOMIC_RELAXED);
	MC_LOCKED(&m->groups.lock);
	member_unlink(m, g, slot);
	mcm_ext(&m->index, o->ext)->group = 0;
	g->members--;
	if (g->unvisited > g->members)
		g->unvisited = g->members;
	group_unref(m, id);
}

void mcm_group_touch(struct mcm *m, const struct mcm_object *o)
{
	uint32_t id = group_of(m, o);

	if (id && !mcm_load_relaxed(&group_at(m, id)->touched))
		mcm_store_relaxed(&group_at(m, id)->touched, true);
}

void mcm_group_lease(struct mcm *m, const struct mcm_object *o, uint64_t ms)
{
	uint32_t id = group_of(m, o);
	uint64_t *lease, old;

	if (!id)
		return;
	lease = &group_at(m, id)->lease_ms;
	old = mcm_load_relaxed(lease);
	while (old < ms && !__atomic_compare_exchange_n(lease, &old, ms, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	mcm_group_touch(m, o);
}

void mcm_group_pin(struct mcm *m, const struct mcm_object *o, int readers)
{
	uint32_t id = group_of(m, o);

	if (id)
		__atomic_fetch_add(&group_at(m, id)->pins, (uint32_t)readers, __ATOMIC_RELAXED);
}

/* ---- eviction ---- */

static bool group_busy(const struct mcm *m, const struct mcm_group *g, unsigned level)
{
	return !(level & MCM_EVICT_LEASED) &&
		(mcm_load_relaxed(&g->pins) || mcm_load_relaxed(&g->lease_ms) > mcm_now_ms(m));
}

bool mcm_group_leased(const struct mcm *m, const struct mcm_object *o)
{
	uint32_t id = group_of(m, o);
	const struct mcm_group *g;

	if (!id)
		return false;
	g = group_at(m, id);
	return mcm_load_relaxed(&g->lease_ms) > mcm_now_exact_ms(m) ||
	       (mcm_load_relaxed(&g->pins) && !(mcm_load_relaxed(&o->marks) & MCM_MARK_RESTORED));
}

/* Give the object the group's lease, so that the policies treat it as leased. */
static void group_lend_lease(const struct mcm *m, struct mcm_object *o, const struct mcm_group *g)
{
	uint64_t until = mcm_load_relaxed(&g->lease_ms), now = mcm_now_ms(m);
	struct mcm_lease lease;

	/* A pin has no known end. */
	if (mcm_load_relaxed(&g->pins) && until < now + READER_MS)
		until = now + READER_MS;
	lease = mcm_lease_until(until);
	mcm_object_lease(o, &lease);
}

bool mcm_group_may_evict(struct mcm *m, struct mcm_object *o, unsigned level, uint32_t *ret_group)
{
	uint32_t id = group_of(m, o);
	struct mcm_group *g;

	*ret_group = 0;
	if (!id)
		return true;
	g = group_at(m, id);
	if (group_busy(m, g, level)) {
		group_lend_lease(m, o, g);
		return false;
	}
	if (!(level & MCM_EVICT_LEASED) && mcm_load_relaxed(&g->touched)) {
		mcm_store_relaxed(&g->touched, false);
		return false;
	}
	MC_LOCKED(&m->groups.lock);
	if (!g->evicting) {
		g->evicting = true;
		g->level = (uint8_t)level;
		g->unvisited = g->members;
		g->new_generation = mcm_generation_next(m, 0);
	}
	g->refs++;
	*ret_group = id;
	return true;
}

bool mcm_group_may_evict_copy(struct mcm *m, struct mcm_object *o, unsigned level, uint32_t *ret_group)
{
	*ret_group = 0;
	/* Another copy of the object stays. */
	if (o->ext && mcm_ext(&m->index, o->ext)->copies)
		return true;
	return mcm_group_may_evict(m, o, level, ret_group);
}

/* The next members to evict; each is visited once, because visited ones move to the end of the
 * list.  False: no member is left to visit. */
static bool group_next_members(struct mcm *m, uint32_t id, struct mcm_victim *v, unsigned *n)
{
	struct mcm_group *g = group_at(m, id);

	*n = 0;
	MC_LOCKED(&m->groups.lock);
	if (g->evicting && group_busy(m, g, g->level))
		g->unvisited = 0;
	while (g->evicting && g->unvisited && *n < BATCH) {
		uint32_t slot = g->first;
		uint64_t generation = mcm_load_relaxed(&mcm_object(&m->index, slot)->generation);

		member_unlink(m, g, slot);
		member_append(m, g, slot);
		g->unvisited--;
		if (generation < g->new_generation)
			v[(*n)++] = (struct mcm_victim){ .slot = slot, .generation = generation };
	}
	if (!g->unvisited)
		g->evicting = false;
	return *n;
}

static uint64_t group_evict_members(struct mcm *m, uint32_t id, unsigned batches)
{
	struct mcm_victim v[BATCH];
	unsigned level = group_at(m, id)->level, n, i;
	uint64_t freed = 0;

	while (batches-- && group_next_members(m, id, v, &n))
		for (i = 0; i < n; i++)
			freed += mcm_evict_member(m, &v[i], level);
	return freed;
}

uint64_t mcm_group_evict(struct mcm *m, uint32_t id)
{
	struct mcm_groups *gs = &m->groups;
	struct mcm_group *g = group_at(m, id);
	bool kick = false;
	uint64_t freed;

	freed = group_evict_members(m, id, INLINE_BATCHES);
	mc_mutex_lock(&gs->lock);
	if (g->evicting && !g->queued) {
		/* The queue takes over our reference. */
		g->queued = kick = true;
		g->queue_next = gs->evicting;
		gs->evicting = id;
	} else {
		group_unref(m, id);
	}
	mc_mutex_unlock(&gs->lock);
	if (kick && !__atomic_exchange_n(&m->evict_wanted, true, __ATOMIC_RELAXED))
		mc_stop_kick(&m->evictor_stop);
	return freed;
}

bool mcm_groups_background(struct mcm *m)
{
	struct mcm_groups *gs = &m->groups;
	uint32_t id;

	mc_mutex_lock(&gs->lock);
	id = gs->evicting;
	if (id) {
		gs->evicting = group_at(m, id)->queue_next;
		group_at(m, id)->queued = false;
	}
	mc_mutex_unlock(&gs->lock);
	if (!id)
		return false;
	(void)group_evict_members(m, id, BACKGROUND_BATCHES);
	(void)mcm_group_evict(m, id);
	return mcm_load_relaxed(&gs->evicting);
}
