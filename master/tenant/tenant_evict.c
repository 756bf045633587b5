/* SPDX-License-Identifier: Apache-2.0
 * tenant_evict.c - eviction of a tenant's own objects, oldest first, to make room inside its quota.
 *
 * Each tenant has lists of objects that may become evictable: plain objects, soft-pinned objects, and a wheel
 * of objects with a promise lease, by the end of the lease.  An object that is being read is on no list until
 * its last reader releases it; a hard-pinned object never is.  An object moves between lists only after a read,
 * a promise, a put or a release, so the cost of making room does not depend on the number of protected objects. */
#include <config.h>

#include "master/mcm_i.h"

#include "common/cleanup.h"

#define BATCH 32
#define STEPS 256		/* objects moved per search, under the lists' lock */
#define SECOND_CHANCES 32	/* per search; after that, objects that were read are evicted too */
#define SOFT_PINS_CHECKED 4	/* soft-pinned objects checked for expiry per search */

/* Lists, by number. */
#define PLAIN 0u
#define SOFT 1u
#define WHEEL 2u
_Static_assert(MCM_TENANT_LISTS == WHEEL + MCM_TENANT_WHEEL, "each slot of the wheel is a list");

/* Link number of a list's head; larger than any slot. */
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

static uint32_t tenant_of(const struct mcm *m, uint32_t slot)
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

/* The object may be on no list. */
static void unlink_object(const struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_tenant_link *e = link_of(m, t, slot);

	if (!e->next)
		return;
	link_of(m, t, e->prev)->next = e->next;
	link_of(m, t, e->next)->prev = e->prev;
	e->prev = e->next = 0;
}

static void list_move(const struct mcm *m, struct mcm_tenant *t, unsigned list, uint32_t slot)
{
	unlink_object(m, t, slot);
	link_last(m, t, list, slot);
}

static uint32_t list_first(const struct mcm_tenant *t, unsigned list)
{
	return t->head[list].next == HEAD(list) ? 0 : t->head[list].next;
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
	bytes = mcm_object_extents(&m->index, o, p) * mcm_object_size(o);
	if (bytes > charged)
		mcm_tenant_add(m, number, bytes - charged);
	else if (bytes < charged)
		mcm_tenant_refund(m, number, charged - bytes);
	t = m->tenants.at[number];
	MC_LOCKED(&t->lock);
	if (is_listable(o))
		link_last(m, t, PLAIN, slot);
	mcm_store_relaxed(&t->objects, t->objects + 1);
}

void mcm_tenant_leave(struct mcm *m, uint32_t slot)
{
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = m->tenants.at[tenant_of(m, slot)];
	MC_LOCKED(&t->lock);
	unlink_object(m, t, slot);
	mcm_store_relaxed(&t->objects, t->objects - 1);
}

void mcm_tenant_relist(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_tenant *t;

	if (!m->tenants.on || !(o->flags & MCM_OBJ_LIVE) || !is_listable(o))
		return;
	t = m->tenants.at[tenant_of(m, slot)];
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
	list_move(m, t, WHEEL + at % MCM_TENANT_WHEEL, slot);
}

/* Move objects whose promise lease has expired to the plain list. */
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
				list_move(m, t, PLAIN, slot);
		}
	}
	if (t->turn < to)
		t->turn = to;
}

/* Move objects whose soft pin has expired to the plain list.  The list is roughly in the order of expiry. */
static void move_expired_soft_pins(const struct mcm *m, struct mcm_tenant *t, uint32_t now)
{
	uint32_t slot;

	for (unsigned n = 0; n < SOFT_PINS_CHECKED && (slot = list_first(t, SOFT)); n++) {
		if (mcm_evict_soft(&m->index, mcm_object(&m->index, slot), now))
			return;
		list_move(m, t, PLAIN, slot);
	}
}

/* The same for soft pins anywhere in the list, which is walked until @steps are used up; the next call continues
 * there.  True: some have expired. */
static bool move_all_expired_soft_pins(const struct mcm *m, struct mcm_tenant *t, uint32_t now, int steps)
{
	uint32_t slot, kept = 0;
	bool moved = false;

	while (steps-- > 0 && (slot = list_first(t, SOFT)) && slot != kept) {
		bool pinned = mcm_evict_soft(&m->index, mcm_object(&m->index, slot), now);

		list_move(m, t, pinned ? SOFT : PLAIN, slot);
		kept = pinned && !kept ? slot : kept;
		moved |= !pinned;
	}
	return moved;
}

/* ---- victims ---- */

struct search {
	struct mcm *m;
	struct mcm_tenant *t;
	unsigned level;
	uint32_t now;
	uint64_t want;
	struct mcm_victim *v;
	unsigned n;
	int steps, chances;
	uint32_t slot;			/* of the wheel, that is searched */
};

static bool search_done(const struct search *l)
{
	return l->n == BATCH || !l->want || l->steps <= 0;
}

/* Handle the first object of a list: move it to the list where it belongs now, or make it a victim. */
static void search_object(struct search *l, unsigned list, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&l->m->index, slot);
	uint32_t lease = mcm_load_relaxed(&o->lease);
	uint64_t bytes = mcm_object_size(o);

	if (mcm_load_relaxed(&o->pins)) {
		/* Its last reader puts it back, even one that releases it right now. */
		if (mcm_object_park(o))
			unlink_object(l->m, l->t, slot);
	} else if (list < WHEEL ? lease > l->now : lease >> wheel_shift(l->m) > l->slot &&
		   l->slot + 1 < l->t->turn + MCM_TENANT_WHEEL) {
		wheel_add(l->m, l->t, slot, lease);
	} else if (list != SOFT && mcm_evict_soft(&l->m->index, o, l->now) &&
		   (list == PLAIN || !(l->level & MCM_EVICT_SOFT))) {
		list_move(l->m, l->t, SOFT, slot);
	} else if (list < WHEEL && mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED && l->chances-- > 0) {
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
		list_move(l->m, l->t, list, slot);
	} else {
		unlink_object(l->m, l->t, slot);
		l->v[l->n++] = (struct mcm_victim){
			.slot = slot, .generation = mcm_load_relaxed(&o->generation)
		};
		l->want -= bytes < l->want ? bytes : l->want;
	}
}

static void search_list(struct search *l, unsigned list)
{
	uint32_t slot;

	while (!search_done(l) && (slot = list_first(l->t, list))) {
		l->steps--;
		search_object(l, list, slot);
	}
}

/* Choose victims of about @want bytes in total and remove them from their list.  *ret_more: another
 * search may find victims even if this one found none. */
static unsigned choose_victims(struct mcm *m, struct mcm_tenant *t, unsigned level, uint64_t want,
			       struct mcm_victim *v, bool *ret_more)
{
	struct search l = {
		.m = m, .t = t, .level = level, .now = mcm_now_tick(m), .want = want, .v = v,
		.steps = STEPS, .chances = SECOND_CHANCES,
	};

	MC_LOCKED(&t->lock);
	wheel_turn(m, t, l.now, &l.steps);
	move_expired_soft_pins(m, t, l.now);
	search_list(&l, PLAIN);
	if (!l.n && move_all_expired_soft_pins(m, t, l.now, l.steps))
		search_list(&l, PLAIN);
	if (level & MCM_EVICT_SOFT)
		search_list(&l, SOFT);
	for (unsigned i = 0; level & MCM_EVICT_LEASED && i < MCM_TENANT_WHEEL; i++) {
		l.slot = t->turn + i;
		search_list(&l, WHEEL + l.slot % MCM_TENANT_WHEEL);
	}
	*ret_more = l.steps <= 0;
	return l.n;
}

/* Put back a victim that is not needed, as the first object of its list. */
static void return_victim(struct mcm *m, struct mcm_tenant *t, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);

	mcm_tenant_relist(m, slot);
	pthread_mutex_lock(&t->lock);
	/* The slot may belong to another tenant by now. */
	if (t->head[PLAIN].prev == slot) {
		unlink_object(m, t, slot);
		link_after(m, t, HEAD(PLAIN), slot);
	}
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_unlock(&sh->lock);
}

/* Evict about @want bytes of one tenant.  A level is used only when the level before has no more victims. */
static uint64_t evict_levels(struct mcm *m, struct mcm_tenant *t, uint64_t want,
			     const unsigned *levels, unsigned n_levels, const struct mcm_slice *sl)
{
	/* More rounds than the objects could need: other threads may put objects back, but the loop must end. */
	uint64_t rounds = mcm_load_relaxed(&t->objects) / 16 + 1024, freed = 0;
	struct mcm_victim v[BATCH];
	unsigned n, i;
	bool more, over = false;

	for (unsigned l = 0; l < n_levels && freed < want && !over; l++) {
		do {
			n = choose_victims(m, t, levels[l], want - freed, v, &more);
			for (i = 0; i < n && freed < want; i++)
				freed += mcm_evict_object(m, &v[i], levels[l]);
			/* Evicting the group of one victim may have freed enough. */
			while (n > i)
				return_victim(m, t, v[--n].slot);
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
	bool left = false;

	if (!mcm_tenants_over_quota(m))
		return 0;
	/* A tenant that exceeds its share from now on sets the flag again. */
	__atomic_store_n(&m->tenants.above, false, __ATOMIC_RELAXED);
	for (i = 0; i < n && freed < want && !(freed && mcm_slice_over(sl)); i++) {
		struct mcm_tenant *t = __atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE);
		uint64_t over = bytes_above(t);

		if (over)
			freed += evict_levels(m, t, over < want - freed ? over : want - freed,
					      levels, 2, sl);
	}
	for (i = 0; i < n && !left; i++)
		left = bytes_above(__atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE));
	if (left)
		__atomic_store_n(&m->tenants.above, true, __ATOMIC_RELAXED);
	return freed;
}
