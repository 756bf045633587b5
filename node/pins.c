/* SPDX-License-Identifier: Apache-2.0
 * pins.c - the pins of one client.  A pin's number is a slot and the slot's use count, so that an old number
 * never matches a new pin. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/lock.h"
#include "node/node_i.h"

struct slot {
	struct mcn_entry *entry;	/* NULL: free */
	uint32_t used;			/* number of uses of this slot */
	uint32_t next;			/* free slots: the next one, counted from 1; 0: none */
};

struct mcn_pins {
	/* constant */
	struct mcn *n;
	bool copied;			/* the client may not map the own segment */
	struct mc_mutex lock;
	/* with the lock held */
	struct slot *slot;
	uint32_t cap, free;
	bool ended;
};

int mcn_pins_new(struct mcn *n, bool copied, struct mcn_pins **ret)
{
	struct mcn_pins *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->n = n;
	p->copied = copied;
	mc_mutex_init(&p->lock);
	*ret = p;
	return 0;
}

void mcn_pins_end(struct mcn_pins *p)
{
	struct slot *slot;
	uint32_t cap;

	mc_mutex_lock(&p->lock);
	slot = p->slot;
	cap = p->cap;
	p->slot = NULL;
	p->cap = p->free = 0;
	p->ended = true;
	mc_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < cap; i++) {
		if (!slot[i].entry)
			continue;
		mcn_mapped_put(p->n->mapped, slot[i].entry);
		__atomic_fetch_sub(&p->n->npins, 1, __ATOMIC_RELAXED);
	}
	free(slot);
}

void mcn_pins_free(struct mcn_pins *p)
{
	if (!p)
		return;
	mcn_pins_end(p);
	mc_mutex_destroy(&p->lock);
	free(p);
}

static int pins_grow_locked(struct mcn_pins *p)
{
	uint32_t cap = p->cap ? p->cap * 2 : 16;
	struct slot *slot;

	if (p->cap >= MCN_PINS_MAX)
		return mc_fail(-ENOBUFS, "%u objects are pinned", p->cap);
	slot = realloc(p->slot, cap * sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	p->slot = slot;
	for (uint32_t i = p->cap; i < cap; i++) {
		slot[i] = (struct slot){ NULL, 0, p->free };
		p->free = i + 1;
	}
	p->cap = cap;
	return 0;
}

static int pins_check_locked(const struct mcn_pins *p)
{
	return p->ended ? mc_fail(-MCS_ERPC, "the client that asked for a pin has disconnected") : 0;
}

static int pins_check(struct mcn_pins *p)
{
	MC_LOCKED(&p->lock);
	return pins_check_locked(p);
}

static int pins_enter(struct mcn_pins *p, struct mcn_entry *e, uint64_t *ret)
{
	int r;

	MC_LOCKED(&p->lock);
	r = pins_check_locked(p);
	if (r == 0 && !p->free)
		r = pins_grow_locked(p);
	if (r < 0)
		return r;
	*ret = (uint64_t)(p->slot[p->free - 1].used + 1) << 32 | p->free;
	p->slot[p->free - 1].used++;
	p->slot[p->free - 1].entry = e;
	p->free = p->slot[p->free - 1].next;
	__atomic_fetch_add(&p->n->npins, 1, __ATOMIC_RELAXED);
	return 0;
}

int mcn_pin(struct mcn_pins *p, struct mcs_key key, bool hot, int64_t timeout_ms, struct mcn_extent *ret)
{
	struct mcn_entry *e;
	int r = pins_check(p);

	if (r == 0)
		r = mcn_mapped_get(p->n->mapped, key, p->copied, hot, timeout_ms, &e, ret);
	if (r < 0)
		return r;
	r = pins_enter(p, e, &ret->pin);
	if (r < 0)
		mcn_mapped_put(p->n->mapped, e);
	return r;
}

int mcn_unpin(struct mcn_pins *p, uint64_t pin)
{
	uint32_t at = (uint32_t)pin, used = (uint32_t)(pin >> 32);
	struct mcn_entry *e = NULL;

	mc_mutex_lock(&p->lock);
	if (at && at <= p->cap && p->slot[at - 1].used == used) {
		e = p->slot[at - 1].entry;
		if (e) {
			p->slot[at - 1].entry = NULL;
			p->slot[at - 1].next = p->free;
			p->free = at;
		}
	}
	mc_mutex_unlock(&p->lock);
	if (!e)
		return mc_fail(-EINVAL, "there is no such pin");
	__atomic_fetch_sub(&p->n->npins, 1, __ATOMIC_RELAXED);
	mcn_mapped_put(p->n->mapped, e);
	return 0;
}

int mcn_held(struct mcn_pins *p, uint64_t pin)
{
	uint32_t at = (uint32_t)pin, used = (uint32_t)(pin >> 32);
	struct mcn_entry *e = NULL;
	int r;

	mc_mutex_lock(&p->lock);
	if (at && at <= p->cap && p->slot[at - 1].used == used)
		e = p->slot[at - 1].entry;
	/* The query can take a second; keep the lock free for other threads meanwhile. */
	if (e)
		mcn_mapped_ref(p->n->mapped, e);
	mc_mutex_unlock(&p->lock);
	if (!e)
		return mc_fail(-EINVAL, "there is no such pin");
	r = mcn_mapped_held(e);
	mcn_mapped_put(p->n->mapped, e);
	return r;
}

int mcn_prefetch(struct mcn *n, struct mcs_key key, bool copied, int64_t timeout_ms)
{
	struct mcn_extent extent;
	struct mcn_entry *e;
	int r = mcn_mapped_get(n->mapped, key, copied, false, timeout_ms, &e, &extent);

	if (r < 0)
		return r;
	mcn_mapped_put(n->mapped, e);
	return 0;
}
