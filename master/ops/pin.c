/* SPDX-License-Identifier: Apache-2.0
 * pin.c - pins of a session.
 *
 * A pin's id is its index in the session's array and a tag that changes with each use of the index:
 * so the pin is found at once, and a late release matches no later pin and none of another session.
 * All leases last equally long, so the order of their begins is the order of their ends. */
#include <config.h>

#include "master/ops/pin.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "proto/codec.h"

#define PINS_MIN 64
#define EXPIRE_MOST 1000	/* leases of a session dropped at a time, while its requests wait */
#define EXPIRE_TICK 16384	/* leases dropped in one tick of the monitor, which has other duties */

MC_GAUGE(pins, "mooncake_master_pins", "", "Pins of readers, read leases included")
MC_COUNTER(bad_copies, "mooncake_master_bad_disk_copies_total", "",
	   "Copies on disks that were dropped because they could not be read or had other bytes")
MC_COUNTER(expired, "mooncake_master_leases_expired_total", "",
	   "Read leases that expired before their release")

static __attribute__((noinline)) int pins_check(const struct mcm *m, const struct mcm_session *s)
{
	uint64_t n = s->share ? mcm_load_relaxed(&s->share->account->pins) : s->n_pins;

	return n < (uint64_t)m->conf.max_session_pins ? 0 :
		mc_fail(-MC_ELIMIT, "pin limit reached: one %s has %llu pins and leases (--max_session_pins)",
			s->share ? "identity" : "connection", (unsigned long long)n);
}

static __attribute__((noinline)) int pins_grow(struct mcm_session *s)
{
	uint32_t cap = s->pin_cap ? 2 * s->pin_cap : PINS_MIN;
	struct mcm_pin *p = realloc(s->pin, cap * sizeof(*p));

	if (!p)
		return mc_fail(-ENOMEM, "no memory for %u pins", cap);
	s->pin = p;
	s->pin_cap = cap;
	return 0;
}

int mcm_pin_reserve(struct mcm *m, struct mcm_session *s)
{
	int r;

	if (__builtin_expect(s->n_pins >= m->conf.max_session_pins || s->share, 0)) {
		r = pins_check(m, s);
		if (r < 0)
			return r;
	}
	r = mcm_pinned_reserve(&s->pinned);
	if (r < 0 || s->pin_free || s->pin_used + 1 < s->pin_cap)
		return r;
	return pins_grow(s);
}

uint64_t mcm_pin_bytes(const struct mcm *m, const struct mcm_session *s, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = s->registered ? mcm_object_extents(&m->index, o, p) : 0;

	for (unsigned i = 0; i < n; i++)
		if (mcp_id_eq(mcm_segment_client(mcm_segment(&m->segments, p[i].segment)), s->client))
			return 0;
	return mcm_object_size(o);
}

static __attribute__((noinline)) int pin_check_bytes(struct mcm *m, struct mcm_session *s, uint32_t slot,
						     uint64_t bytes)
{
	uint64_t held = s->share ? mcm_load_relaxed(&s->share->account->pinned_bytes) : s->pinned.bytes;
	uint64_t all, max;

	if (!held)
		return 0;
	all = mcm_load_relaxed(&m->segments.capacity) + mcm_load_relaxed(&m->segments.disk_capacity);
	max = (uint64_t)((double)all * m->conf.max_session_pinned_ratio);
	if (held + bytes <= max || mcm_pinned_has(&s->pinned, slot))
		return 0;
	return mc_fail(-MC_ELIMIT, "pin limit reached: one %s has pinned objects of %llu bytes, the limit is %llu "
		       "(--max_session_pinned_ratio)", s->share ? "identity" : "connection",
		       (unsigned long long)held, (unsigned long long)max);
}

int mcm_pin_check(struct mcm *m, struct mcm_session *s, uint32_t slot, uint64_t bytes)
{
	if (!bytes || s->inside || (!s->pinned.bytes && !s->share))
		return 0;
	return pin_check_bytes(m, s, slot, bytes);
}

static void lease_append(struct mcm_session *s, uint32_t i)
{
	struct mcm_pin *p = &s->pin[i];

	p->next = 0;
	p->prev = s->lease_last;
	if (s->lease_last)
		s->pin[s->lease_last].next = i;
	else
		s->lease_first = i;
	s->lease_last = i;
}

static void lease_unlink(struct mcm_session *s, uint32_t i)
{
	struct mcm_pin *p = &s->pin[i];

	if (p->prev)
		s->pin[p->prev].next = p->next;
	else
		s->lease_first = p->next;
	if (p->next)
		s->pin[p->next].prev = p->prev;
	else
		s->lease_last = p->prev;
}

uint64_t mcm_pin_add(struct mcm_session *s, uint32_t slot, uint64_t bytes, uint64_t until_ms)
{
	uint32_t i = s->pin_free, tag;
	struct mcm_pin *p;

	if (i) {
		s->pin_free = s->pin[i].next;
		tag = s->pin[i].tag + 1;
	} else {
		i = ++s->pin_used;
		tag = (uint32_t)mc_hash(&i, sizeof(i), s->number);
	}
	if (!tag)
		tag = 1;	/* so that the upper half of an id is never 0 */
	p = &s->pin[i];
	*p = (struct mcm_pin){ .slot = slot, .tag = tag, .until_ms = until_ms };
	if (until_ms)
		lease_append(s, i);
	s->n_pins++;
	mcm_pinned_add(&s->pinned, slot, bytes);
	if (__builtin_expect(s->share != NULL, 0))
		mcm_account_pins(s);
	mc_metric_add(&pins, 1);
	return (uint64_t)tag << 32 | i;
}

static struct mcm_pin *pin_find(struct mcm_session *s, uint64_t id)
{
	uint32_t i = (uint32_t)id;

	if (!i || i > s->pin_used || !s->pin[i].slot || s->pin[i].tag != id >> 32)
		return NULL;
	return &s->pin[i];
}

static void pin_drop(struct mcm *m, struct mcm_session *s, uint32_t i)
{
	struct mcm_pin *p = &s->pin[i];
	uint32_t slot = p->slot;

	if (p->until_ms)
		lease_unlink(s, i);
	p->slot = 0;
	p->next = s->pin_free;
	s->pin_free = i;
	s->n_pins--;
	mcm_pinned_drop(&s->pinned, slot);
	if (__builtin_expect(s->share != NULL, 0))
		mcm_account_pins(s);
	mc_metric_add(&pins, -1);
	mcm_object_unpin(m, slot);
}

void mcm_pin_release(struct mcm *m, struct mcm_session *s, uint64_t pin)
{
	if (pin_find(s, pin))
		pin_drop(m, s, (uint32_t)pin);
}

uint32_t mcm_pin_slot(struct mcm_session *s, uint64_t pin)
{
	const struct mcm_pin *p = pin_find(s, pin);

	return p ? p->slot : 0;
}

/* Shard locked: the object's copy in the segment @id on a disk; false: there is none. */
static bool copy_on_disk(const struct mcm *m, const struct mcm_object *o, struct mcp_id id, struct mcm_extent *ret)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;

	for (i = 0; i < n; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);

		*ret = p[i];
		if (!mcm_segment_is(s, MCP_TRAIT_VOLATILE) && mcp_id_eq(s->id, id))
			return true;
	}
	return false;
}

void mcm_pin_bad_copy(struct mcm *m, struct mcm_session *s, uint64_t pin, struct mcp_id segment,
		      bool may_remove)
{
	const struct mcm_pin *p = pin_find(s, pin);
	struct mcm_extent extent, all[MCM_REPLICA_MAX];
	uint32_t slot = p ? p->slot : 0;
	struct mcm_object *o;
	struct mcm_shard *sh;

	if (!slot)
		return;
	sh = mcm_index_lock_slot(&m->index, slot);
	o = mcm_object(&m->index, slot);
	if (o->flags & MCM_OBJ_LIVE && copy_on_disk(m, o, segment, &extent)) {
		mc_metric_add(&bad_copies, 1);
		/* Readers may still use its range. */
		if (mcm_object_extents(&m->index, o, all) > 1)
			mcm_object_retire_copy(m, sh, slot, extent);
		else if (may_remove)
			mcm_object_remove(m, sh, slot, MCM_GONE_EVICTED);
	}
	mc_mutex_unlock(&sh->lock);
}

void mcm_pin_renew(struct mcm *m, struct mcm_session *s, uint64_t pin)
{
	struct mcm_pin *p = pin_find(s, pin);

	if (!p || !p->until_ms)
		return;
	lease_unlink(s, (uint32_t)pin);
	p->until_ms = mcm_now_ms(m) + mcm_read_lease_ms(m);
	lease_append(s, (uint32_t)pin);
}

/* The next session that had no turn in this tick; it is locked, so it stays while others begin and
 * end.  NULL: all had their turn. */
static struct mcm_session *pins_next_session(struct mcm *m, uint64_t turn)
{
	struct mcm_session *s;

	MC_LOCKED(&m->sessions_lock);
	if (mc_list_empty(&m->sessions))
		return NULL;
	s = mc_list_first(&m->sessions, struct mcm_session, link);
	if (s->turn == turn)
		return NULL;
	s->turn = turn;
	/* To the back: a tick begins with the sessions that have waited longest. */
	mc_list_remove(&s->link);
	mc_list_push_back(&m->sessions, &s->link);
	mc_mutex_lock(&s->lock);
	return s;
}

static bool session_has_expired(const struct mcm_session *s, uint64_t now)
{
	return s->lease_first && s->pin[s->lease_first].until_ms <= now;
}

bool mcm_pins_tick(struct mcm *m)
{
	uint64_t turn = ++m->pins_turn, now;
	struct mcm_session *s;
	unsigned n, all = 0;
	bool more = false;

	while (all < EXPIRE_TICK && (s = pins_next_session(m, turn))) {
		now = mcm_now_ms(m);
		for (n = 0; n < EXPIRE_MOST && session_has_expired(s, now); n++) {
			mc_metric_add(&expired, 1);
			pin_drop(m, s, s->lease_first);
		}
		more |= session_has_expired(s, now);
		mc_mutex_unlock(&s->lock);
		all += n;
	}
	return more || all >= EXPIRE_TICK;
}

void mcm_pins_remove_all(struct mcm *m, struct mcm_session *s)
{
	uint32_t i;

	for (i = 1; i <= s->pin_used; i++)
		if (s->pin[i].slot)
			pin_drop(m, s, i);
}
