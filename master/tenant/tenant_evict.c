/* SPDX-License-Identifier: Apache-2.0
 * tenant_evict.c - room inside of a tenant's quota: its objects from the oldest on.
 *
 * Each tenant has lists of what may be evicted one day: plain objects, soft-pinned ones, and a wheel of those
 * that are promised to a reader, by the end of the promise.  What is read is on none until its last reader has
 * gone, and what is pinned hard never is.  An object moves from list to list only after it was read, promised,
 * put or released, so what makes room costs the same however much there is that must stay. */
#include <config.h>

#include "master/mcm_i.h"

#include "common/cleanup.h"

#define BATCH 32
#define STEPS 256		/* objects moved per look at the lists, under their lock */
#define SECOND_CHANCES 32	/* per look: then what was read goes all the same */
#define SOFTEN 4		/* soft-pinned ones looked at, whether they still are */

/* Lists, by number. */
#define PLAIN 0u
#define SOFT 1u
#define WHEEL 2u
_Static_assert(MCM_TENANT_LISTS == WHEEL + MCM_TENANT_WHEEL, "each slot of the wheel is a list");

/* A list's head among the links: no slot has such a number. */
#define HEAD(list) (UINT32_MAX - (list))

static struct mcm_tenant_link *link_of(const struct mcm *m, struct mcm_tenant *t, uint32_t at)
{
	return at > HEAD(MCM_TENANT_LISTS) ? &t->head[UINT32_MAX - at] :
		mcm_slab_at(&m->tenants.links, at);
}

int mcm_tenant_cover(struct mcm *m, uint32_t slot)
{
	return m->tenants.on ? mcm_slab_cover(&m->tenants.links, slot) : 0;
}

static uint32_t number_of(const struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	return mcm_key_tenant(mcm_shard_key(&m->index, slot), o->key_len);
}

void mcm_tenant_lists_init(struct mcm_tenant *t)
{
	pthread_mutex_init(&t->lock, NULL);
	for (unsigned i = 0; i < MCM_TENANT_LISTS; i++)
		t->head[i].prev = t->head[i].next = HEAD(i);
}

/* ---- the lists; lock held ---- */

static void link_after(const struct mcm *m, struct mcm_tenant *t, uint32_t prev, uint32_t slot)
{
	struct mcm_tenant_link *e = link_of(m, t, slot), *p = link_of(m, t, prev);

	e->prev = prev;
	e->next = p->next;
	link_of(m, t, p->next)->prev = slot;
	p->next = slot;
}

static void link_last(const struct mcm *m, struct mcm_tenant *t, unsigned list, uint32_t slot)
{
	link_after(m, t, t->head[list].prev, slot);
}

/* On none: fine. */
static void unlink_object(const struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_tenant_link *e = link_of(m, t, slot);

	if (!e->next)
		return;
	link_of(m, t, e->prev)->next = e->next;
	link_of(m, t, e->next)->prev = e->prev;
	e->prev = e->next = 0;
}

static void move(const struct mcm *m, struct mcm_tenant *t, unsigned list, uint32_t slot)
{
	unlink_object(m, t, slot);
	link_last(m, t, list, slot);
}

static uint32_t list_first(const struct mcm_tenant *t, unsigned list)
{
	return t->head[list].next == HEAD(list) ? 0 : t->head[list].next;
}

/* ---- the shard locked ---- */

/* Can it ever be evicted?  It is as it was committed. */
static bool listed(const struct mcm_object *o)
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
	number = number_of(m, slot);
	bytes = mcm_object_extents(&m->index, o, p) * mcm_object_size(o);
	if (bytes > charged)
		mcm_tenant_add(m, number, bytes - charged);
	else if (bytes < charged)
		mcm_tenant_refund(m, number, charged - bytes);
	t = m->tenants.at[number];
	MC_LOCKED(&t->lock);
	if (listed(o))
		link_last(m, t, PLAIN, slot);
	mcm_store_relaxed(&t->objects, t->objects + 1);
}

void mcm_tenant_leave(struct mcm *m, uint32_t slot)
{
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = m->tenants.at[number_of(m, slot)];
	MC_LOCKED(&t->lock);
	unlink_object(m, t, slot);
	mcm_store_relaxed(&t->objects, t->objects - 1);
}

void mcm_tenant_relist(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_tenant *t;

	if (!m->tenants.on || !(o->flags & MCM_OBJ_LIVE) || !listed(o))
		return;
	t = m->tenants.at[number_of(m, slot)];
	MC_LOCKED(&t->lock);
	if (!link_of(m, t, slot)->next)
		link_last(m, t, PLAIN, slot);
}

/* ---- the wheel; lock held ---- */

static unsigned wheel_shift(const struct mcm *m)
{
	uint32_t ticks = mcm_tick_after(m->conf.default_kv_lease_ttl);
	unsigned shift = 0;

	while ((ticks >> shift) + 2 > MCM_TENANT_WHEEL)
		shift++;
	return shift;
}

static void wheel_add(const struct mcm *m, struct mcm_tenant *t, uint32_t slot, uint32_t lease)
{
	uint32_t at = lease >> wheel_shift(m);

	if (at < t->turn)
		at = t->turn;
	if (at - t->turn >= MCM_TENANT_WHEEL)
		at = t->turn + MCM_TENANT_WHEEL - 1;
	move(m, t, WHEEL + at % MCM_TENANT_WHEEL, slot);
}

/* What is not promised any more is plain. */
static void wheel_turn(const struct mcm *m, struct mcm_tenant *t, uint32_t now, int *steps)
{
	uint32_t to = now >> wheel_shift(m), left, slot, lease;

	for (left = MCM_TENANT_WHEEL; t->turn < to && left; left--, t->turn++) {
		while ((slot = list_first(t, WHEEL + t->turn % MCM_TENANT_WHEEL))) {
			if ((*steps)-- <= 0)
				return;
			lease = mcm_load_relaxed(&mcm_object(&m->index, slot)->lease);
			if (lease >> wheel_shift(m) > t->turn)
				wheel_add(m, t, slot, lease);
			else
				move(m, t, PLAIN, slot);
		}
	}
	if (t->turn < to)
		t->turn = to;
}

/* Soft pins end, too; they stand roughly in that order. */
static void soften(const struct mcm *m, struct mcm_tenant *t, uint32_t now)
{
	uint32_t slot;

	for (unsigned n = 0; n < SOFTEN && (slot = list_first(t, SOFT)); n++) {
		if (mcm_evict_soft(&m->index, mcm_object(&m->index, slot), now))
			return;
		move(m, t, PLAIN, slot);
	}
}

/* ---- victims ---- */

struct look {
	struct mcm *m;
	struct mcm_tenant *t;
	unsigned level;
	uint32_t now;
	uint64_t want;
	struct mcm_victim *v;
	unsigned n;
	int steps, chances;
	uint32_t slot;			/* of the wheel */
};

static bool done(const struct look *l)
{
	return l->n == BATCH || !l->want || l->steps <= 0;
}

/* What is first on a list: a victim, or it goes where it belongs. */
static void look_at(struct look *l, unsigned list, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&l->m->index, slot);
	uint32_t lease = mcm_load_relaxed(&o->lease);
	uint64_t bytes = mcm_object_size(o);

	if (mcm_load_relaxed(&o->pins)) {
		/* Its last reader puts it back, also when it goes just now. */
		if (mcm_object_park(o))
			unlink_object(l->m, l->t, slot);
	} else if (list < WHEEL ? lease > l->now : lease >> wheel_shift(l->m) > l->slot &&
		   l->slot + 1 < l->t->turn + MCM_TENANT_WHEEL) {
		wheel_add(l->m, l->t, slot, lease);
	} else if (list != SOFT && mcm_evict_soft(&l->m->index, o, l->now) &&
		   (list == PLAIN || !(l->level & MCM_EVICT_SOFT))) {
		move(l->m, l->t, SOFT, slot);
	} else if (list < WHEEL && mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED && l->chances-- > 0) {
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
		move(l->m, l->t, list, slot);
	} else {
		unlink_object(l->m, l->t, slot);
		l->v[l->n++] = (struct mcm_victim){
			.slot = slot, .generation = mcm_load_relaxed(&o->generation)
		};
		l->want -= bytes < l->want ? bytes : l->want;
	}
}

static void look_through(struct look *l, unsigned list)
{
	uint32_t slot;

	while (!done(l) && (slot = list_first(l->t, list))) {
		l->steps--;
		look_at(l, list, slot);
	}
}

/* Victims of together about @want bytes, off their list.  *ret_more: another look may find more although this one
 * has found nothing. */
static unsigned choose(struct mcm *m, struct mcm_tenant *t, unsigned level, uint64_t want,
		       struct mcm_victim *v, bool *ret_more)
{
	struct look l = {
		.m = m, .t = t, .level = level, .now = mcm_now_tick(m), .want = want, .v = v,
		.steps = STEPS, .chances = SECOND_CHANCES,
	};

	MC_LOCKED(&t->lock);
	wheel_turn(m, t, l.now, &l.steps);
	soften(m, t, l.now);
	look_through(&l, PLAIN);
	if (level & MCM_EVICT_SOFT)
		look_through(&l, SOFT);
	for (unsigned i = 0; level & MCM_EVICT_LEASED && i < MCM_TENANT_WHEEL; i++) {
		l.slot = t->turn + i;
		look_through(&l, WHEEL + l.slot % MCM_TENANT_WHEEL);
	}
	*ret_more = l.steps <= 0;
	return l.n;
}

/* A victim that is not needed: it is the next one again. */
static void spare(struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);

	mcm_tenant_relist(m, slot);
	pthread_mutex_lock(&t->lock);
	/* The slot may be another tenant's by now. */
	if (t->head[PLAIN].prev == slot) {
		unlink_object(m, t, slot);
		link_after(m, t, HEAD(PLAIN), slot);
	}
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_unlock(&sh->lock);
}

/* About @want bytes of one tenant, level by level: the next one when there is nothing left on this. */
static uint64_t evict_levels(struct mcm *m, struct mcm_tenant *t, uint64_t want,
			     const unsigned *levels, unsigned n_levels, const struct mcm_slice *sl)
{
	/* More rounds than its objects could need: others may put them back, but not for ever. */
	uint64_t rounds = mcm_load_relaxed(&t->objects) / 16 + 1024, freed = 0;
	struct mcm_victim v[BATCH];
	unsigned n, i;
	bool more, over = false;

	for (unsigned l = 0; l < n_levels && freed < want && !over; l++) {
		do {
			n = choose(m, t, levels[l], want - freed, v, &more);
			for (i = 0; i < n && freed < want; i++)
				freed += mcm_evict_object(m, &v[i], levels[l]);
			/* A group that went with one of them was enough. */
			while (n > i)
				spare(m, t, v[--n].slot);
			over = mcm_slice_over(sl);
		} while (freed < want && (n || more) && rounds-- && !over);
	}
	__atomic_fetch_add(&t->counts.evicted_bytes, freed, __ATOMIC_RELAXED);
	return freed;
}

uint64_t mcm_tenant_evict(struct mcm *m, uint32_t tenant, uint64_t want, const struct mcm_slice *sl)
{
	unsigned soft = m->conf.allow_evict_soft_pinned_objects ? MCM_EVICT_SOFT : 0;
	const unsigned levels[] = { MCM_EVICT_PLAIN, soft, soft | MCM_EVICT_LEASED };

	return evict_levels(m, m->tenants.at[tenant], want, levels, 3, sl);
}

/* What a tenant of the policy has above its share. */
static uint64_t above(const struct mcm_tenant *t)
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
	bool left = false;

	if (!mcm_tenants_over_quota(m))
		return 0;
	/* Whoever gets above meanwhile says so again. */
	__atomic_store_n(&m->tenants.above, false, __ATOMIC_RELAXED);
	for (i = 0; i < n && freed < want && !(freed && mcm_slice_over(sl)); i++) {
		struct mcm_tenant *t = __atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE);
		uint64_t over = above(t);

		if (over)
			freed += evict_levels(m, t, over < want - freed ? over : want - freed,
					      levels, 2, sl);
	}
	for (i = 0; i < n && !left; i++)
		left = above(__atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE));
	if (left)
		__atomic_store_n(&m->tenants.above, true, __ATOMIC_RELAXED);
	return freed;
}
