/* SPDX-License-Identifier: Apache-2.0
 * task_plan.c - choice of the copies that an owner gets when it fetches some: which objects, and to
 * which segments.
 *
 * Objects of a segment are found by walking over its ranges from where the last walk stopped
 * (alloc.cursor).  On a segment that accepts no new objects no other code uses the cursor; on other
 * segments, other users restart from the beginning.  Ranges of a running copy are marked with
 * MCM_RANGE_MOVING. */
#include <config.h>

#include "master/task/task.h"

#include <errno.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/lock_hold.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/ops/pin.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/nof.h"
#include "master/task/offload.h"
#include "master/task/task_i.h"
#include "proto/codec.h"
#include "proto/rpc_server.h"

#define WALK_BATCH 32
#define MISSES_MAX 8			/* failed objects per segment and fetch */
#define SLICE_NS (500 * 1000)		/* time for evictions per fetch */
#define TARGET_TRIES 8
#define BYTES_MAX (256ull << 20)	/* copied per fetch */
#define UNITS_MAX (4 * MCM_FETCH_MAX)	/* running copies of one session: others need theirs while it hangs */
#define REBALANCE_SPREAD 0.05
#define REPLICATE_BELOW 0.85		/* upstream's fill limit of targets for replicas of hot objects */

static double fill_of(const struct mcm_segment *s)
{
	return (double)mcm_load_relaxed(&s->used) / (double)mcm_load_relaxed(&s->size);
}

/* Segments' table locked: mean fill of the segments that accept objects. */
static double mean_fill(const struct mcm_segments *ss)
{
	double used = 0, size = 0;

	for (unsigned i = 0; i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (!mcm_segment_allocatable(s))
			continue;
		used += (double)mcm_load_relaxed(&s->used);
		size += (double)s->size;
	}
	return size > 0 ? used / size : 1;
}

bool mcm_rebalance_wanted(struct mcm *m, const struct mcm_segment *s)
{
	struct mcm_segments *ss = &m->segments;
	bool wanted = false;
	double mean;

	mc_rwlock_rdlock(&ss->lock);
	mean = mean_fill(ss);
	for (unsigned i = 0; i < ss->n_live && !wanted; i++) {
		const struct mcm_segment *it = ss->at[ss->live[i]];

		wanted = (!s || s == it) && mcm_segment_allocatable(it) &&
			 fill_of(it) > mean + REBALANCE_SPREAD;
	}
	mc_rwlock_unlock(&ss->lock);
	return wanted;
}

/* ---- targets ---- */

/* Does it make copies on media on which objects are not put? */
static bool is_down(const struct mcm_task *t)
{
	return t->type == MCM_TASK_OFFLOAD || t->type == MCM_TASK_NOF;
}

/* May the task ever put the object there?  A segment takes only objects of its tenant, as the source does. */
static bool target_suits(struct mcm *m, const struct mcm_task *t, const struct mcm_copy_spec *c,
			 const struct mcm_segment *s, uint64_t len)
{
	if (mcm_load_relaxed(&s->size) < len ||
	    mcm_load_relaxed(&s->tenant) != mcm_load_relaxed(&mcm_segment(&m->segments, c->from.segment)->tenant))
		return false;
	if (c->target ? s->name_hash != c->target : mcm_task_names(t->source, t->n_sources, s->name_hash))
		return false;
	if (t->n_targets && !c->target && !mcm_task_names(t->target, t->n_targets, s->name_hash))
		return false;
	for (unsigned i = 0; i < c->n_have; i++)
		if (c->have[i] == s->name_hash)
			return false;
	return true;
}

/* Objects that leave a disk for memory would soon be evicted for each other, from there as well: a drain of a disk
 * uses memory that is free. */
static bool drains_disk(const struct mcm_plan *p, const struct mcm_copy_spec *c)
{
	return p->t->type == MCP_TASK_DRAIN &&
		!mcm_segment_is(mcm_segment(&p->m->segments, c->from.segment), MCP_TRAIT_PUTS);
}

static bool target_accepts(const struct mcm_plan *p, const struct mcm_copy_spec *c, const struct mcm_segment *s,
			   uint64_t len, double mean)
{
	const struct mcm_task *t = p->t;

	if (is_down(t) ? !mcm_segment_offloadable(s) : !mcm_segment_allocatable(s))
		return false;
	if (!target_suits(p->m, t, c, s, len))
		return false;
	if (drains_disk(p, c) && !mcm_evict_stays_below(p->m, s, len))
		return false;
	if (t->type == MCP_TASK_REBALANCE &&
	    (double)(mcm_load_relaxed(&s->used) + len) / (double)s->size > mean + REBALANCE_SPREAD / 2)
		return false;
	return t->type != MCP_TASK_REPLICATE || fill_of(s) <= REPLICATE_BELOW;
}

/* Is there a segment to which the task could move the object, now or when it has room or its owner is back? */
static bool target_exists(struct mcm *m, const struct mcm_task *t, const struct mcm_copy_spec *c, uint64_t len)
{
	struct mcm_segments *ss = &m->segments;
	bool exists = false;

	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && !exists; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		exists = mcm_segment_is(s, MCP_TRAIT_PUTS) && !mcm_load_relaxed(&s->draining) &&
			 mcm_segment_state(s) != MCP_SEG_UNMOUNTING && target_suits(m, t, c, s, len);
	}
	mc_rwlock_unlock(&ss->lock);
	return exists;
}

bool mcm_drain_has_target(struct mcm *m, const struct mcm_task *t)
{
	const struct mcm_copy_spec any = { .slot = 0 };

	return target_exists(m, t, &any, 0);
}

/* The emptiest segments that accept the object, best first; at most TARGET_TRIES. */
static unsigned targets_of(const struct mcm_plan *p, const struct mcm_copy_spec *c, uint64_t len,
			   struct mcm_segment *ret[TARGET_TRIES])
{
	struct mcm_segments *ss = &p->m->segments;
	unsigned n = 0, at;
	double mean = 0;

	mc_rwlock_rdlock(&ss->lock);
	if (p->t->type == MCP_TASK_REBALANCE)
		mean = mean_fill(ss);
	for (unsigned i = 0; i < ss->n_live; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];

		if (!target_accepts(p, c, s, len, mean))
			continue;
		for (at = n; at && fill_of(ret[at - 1]) > fill_of(s); at--)
			if (at < TARGET_TRIES)
				ret[at] = ret[at - 1];
		if (at < TARGET_TRIES)
			ret[at] = s;
		if (n < TARGET_TRIES)
			n++;
	}
	mc_rwlock_unlock(&ss->lock);
	return n;
}

/* Make room as a put does, but evict only unprotected objects.  tasks.lock is held meanwhile, so
 * time is limited: MCP_AGAIN when the next fetch must continue. */
static int copy_evict(const struct mcm_plan *p, struct mcm_segment *s, uint64_t len, uint32_t *ret_range)
{
	struct mcm_slice *sl = &p->t->slice;
	int r;

	sl->end_ns = p->until_ns;
	if (mcm_slice_over(sl))
		return MCP_AGAIN;
	r = mcm_make_room(p->m, s, len, MCM_EVICT_PLAIN, sl, ret_range);
	if (r != MCP_AGAIN)
		sl->segment = 0;
	return r;
}

/* Allocate the target range, from free memory if possible.  Rebalance and replicate tasks, and drains of
 * disks, evict nothing. */
static int copy_allocate(const struct mcm_plan *p, const struct mcm_copy_spec *c, struct mcm_extent *ret)
{
	bool evict = p->t->type != MCP_TASK_REBALANCE && p->t->type != MCP_TASK_REPLICATE && !drains_disk(p, c);
	uint64_t len = mcm_object_reserve(c->size) + (c->record_len ? MCP_DISK_RECORD_HEAD + c->record_len : 0);
	struct mcm_segment *s[TARGET_TRIES];
	unsigned n = targets_of(p, c, len, s), i;
	int r = -MC_ENOSPACE;

	for (i = 0; i < n && r == -MC_ENOSPACE; i++) {
		r = mcm_segment_take(s[i], len, &ret->range);
		ret->segment = s[i]->index;
	}
	for (i = 0; i < n && evict && r == -MC_ENOSPACE; i++) {
		if (!mcm_segment_may_evict(s[i], p->m->conf.enable_disk_eviction))
			continue;
		r = copy_evict(p, s[i], len, &ret->range);
		ret->segment = s[i]->index;
	}
	return r;
}

/* ---- one copy ---- */

/* The object's shard is locked, and the object has the extent, so the range exists and is its own. */
static void set_moving(struct mcm *m, struct mcm_extent p, bool moving)
{
	struct mcm_segment *s = mcm_segment(&m->segments, p.segment);
	struct mcm_range *n;

	mc_mutex_lock(&s->lock);
	n = mcm_range(&s->alloc, p.range);
	n->flags = moving ? n->flags | MCM_RANGE_MOVING : n->flags & ~MCM_RANGE_MOVING;
	mc_mutex_unlock(&s->lock);
}

/* The pin keeps the object, but not each of its replicas: a replica is lost with its segment, whose number is
 * then reused.  After the end of the session, the slot may belong to another object.  So check both. */
void mcm_unit_unmark(struct mcm *m, const struct mcm_unit *u)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, u->slot);
	const struct mcm_object *o = mcm_object(&m->index, u->slot);

	if (o->flags & (MCM_OBJ_LIVE | MCM_OBJ_ZOMBIE) && mcm_object_has(&m->index, o, u->from))
		set_moving(m, u->from, false);
	mcm_offload_unmark(m, u, o);
	mc_mutex_unlock(&sh->lock);
}

static struct mcp_replica replica_at(const struct mcm *m, struct mcm_extent p)
{
	const struct mcm_segment *s = mcm_segment(&m->segments, p.segment);

	return (struct mcp_replica){
		.segment = s->id, .offset = mcm_range_offset(&s->alloc, p.range), .medium = s->medium,
	};
}

/* Pin the source for the session, mark its range and return its location, all under the shard's
 * lock: the object, or this replica of it, may have been removed since it was chosen. */
static int pin_source(const struct mcm_plan *p, const struct mcm_copy_spec *c, uint64_t *ret_pin,
		      struct mcp_replica *ret_from)
{
	struct mcm_object *o;
	struct mcm_shard *sh;
	int r;

	mc_mutex_lock(&p->s->lock);
	r = mcm_pin_reserve(p->m, p->s);
	if (r == 0) {
		sh = mcm_index_lock_slot(&p->m->index, c->slot);
		o = mcm_object(&p->m->index, c->slot);
		if (!(o->flags & MCM_OBJ_LIVE) || o->generation != c->generation ||
		    !mcm_object_has(&p->m->index, o, c->from))
			r = -MC_ENOOBJECT;
		else
			r = mcm_object_pin(p->m, o);
		if (r == 0) {
			set_moving(p->m, c->from, true);
			*ret_from = replica_at(p->m, c->from);
		}
		mc_mutex_unlock(&sh->lock);
		if (r == 0)
			*ret_pin = mcm_pin_add(p->s, c->slot, 0, 0);
	}
	mc_mutex_unlock(&p->s->lock);
	return r;
}

/* Add the copy to the reply; pin_source() has filled in the source. */
static void plan_add(struct mcm_plan *p, const struct mcm_copy_spec *c, const struct mcm_unit *u)
{
	unsigned i = p->n++;

	p->to[i] = replica_at(p->m, u->to);
	p->copy[i] = (struct mcp_copy){
		.put = u->put, .size = u->size, .crc = u->crc, .from = mcp_seq(&p->from[i], 1),
		.to = mcp_seq(&p->to[i], 1), .version = u->version, .name = c->name,
		.record = mcp_bytes(c->record_len ? p->record + (size_t)i * MCM_ADOPT_MAX : NULL, c->record_len),
	};
	p->bytes += u->size;
}

int mcm_plan_copy(struct mcm_plan *p, const struct mcm_copy_spec *c)
{
	struct mcm_unit *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	*u = (struct mcm_unit){
		.tenant = c->tenant, .task = p->t, .session = p->s, .version = c->generation, .size = c->size,
		.crc = c->crc, .slot = c->slot, .from = c->from, .target = c->target_index,
		.move = c->move, .described = c->record_len != 0, .hash = c->hash, .key_len = c->key_len,
		.began_ms = mcm_now_ms(p->m),
	};
	/* A moved object is charged for already; disks are not charged for. */
	if (!c->move && !is_down(p->t)) {
		r = mcm_tenant_charge_copy(p->m, c->tenant, c->size);
		if (r < 0)
			goto fail;
		u->charged = c->size;
	}
	r = copy_allocate(p, c, &u->to);
	if (r < 0)
		goto fail_charge;
	r = pin_source(p, c, &u->pin, &p->from[p->n]);
	if (r < 0)
		goto fail_room;
	r = mcm_put_copy(p->m, p->s, u);
	if (r < 0)
		goto fail_pin;
	mc_list_push_back(&p->m->tasks.units, &u->link);
	p->m->tasks.n_units++;
	__atomic_fetch_add(&p->s->n_units, 1, __ATOMIC_RELAXED);
	p->t->active++;
	p->t->began_ms = u->began_ms;
	p->t->no_room = false;
	p->t->client = p->s->client;
	plan_add(p, c, u);
	if (p->t->type < MCP_TASK_TYPES)
		mcm_unit_started(c->move, 0);
	return 0;
fail_pin:
	mcm_unit_unmark(p->m, u);
	mc_mutex_lock(&p->s->lock);
	mcm_pin_release(p->m, p->s, u->pin);
	mc_mutex_unlock(&p->s->lock);
fail_room:
	mcm_extent_free(p->m, &u->to);
fail_charge:
	mcm_tenant_refund(p->m, u->tenant, u->charged);
fail:
	if (p->t->type < MCP_TASK_TYPES)
		mcm_unit_started(c->move, r);
	free(u);
	return r;
}

bool mcm_plan_barred(const struct mcm_plan *p)
{
	return p->t->active >= p->t->max_active || mcm_load_relaxed(&p->s->n_units) >= UNITS_MAX ||
	       p->m->tasks.n_units >= p->m->conf.max_total_processing_tasks;
}

bool mcm_plan_full(const struct mcm_plan *p)
{
	return p->n >= p->max || p->bytes >= BYTES_MAX || mcm_plan_barred(p);
}

/* Shard locked. */
void mcm_plan_describe(const struct mcm *m, const struct mcm_object *o, uint32_t slot, struct mcm_copy_spec *c)
{
	struct mcm_extent extent[MCM_REPLICA_MAX];

	c->slot = slot;
	c->generation = o->generation;
	c->size = mcm_object_size(o);
	c->crc = o->crc;
	c->hash = o->hash;
	c->key_len = o->key_len;
	c->tenant = mcm_key_tenant(mcm_shard_key(&m->index, slot), o->key_len);
	c->n_have = mcm_object_extents(&m->index, o, extent);
	for (unsigned i = 0; i < c->n_have; i++)
		c->have[i] = mcm_load_relaxed(&mcm_segment(&m->segments, extent[i].segment)->name_hash);
}

/* ---- tasks about segments ---- */

unsigned mcm_plan_walk(struct mcm_plan *p, struct mcm_segment *s, struct mcm_victim *v, unsigned max,
			  bool *ret_end)
{
	struct mcm_alloc *a = &s->alloc;
	struct mcm *m = p->m;
	unsigned n = 0;
	uint32_t id;

	*ret_end = true;
	MC_LOCKED(&s->lock);
	if (mcm_segment_state(s) != MCP_SEG_OK)
		return 0;
	id = a->cursor;
	for (; id != a->end && p->ranges && n < max; p->ranges--) {
		const struct mcm_range *range = mcm_range(a, id);
		const struct mcm_object *o = mcm_object(&m->index, range->owner);

		if (range->flags & MCM_RANGE_USED && range->owner &&
		    !(range->flags & MCM_RANGE_MOVING) && mcm_load_relaxed(&o->flags) & MCM_OBJ_LIVE)
			v[n++] = (struct mcm_victim){
				.slot = range->owner, .range = id, .generation = mcm_load_relaxed(&o->generation),
			};
		id = mcm_range_next(range);
	}
	*ret_end = id == a->end;
	a->cursor = *ret_end ? a->first : id;
	return n;
}

/* Shard locked.  Has the object another copy that can be read now, and that no drain takes away?  None is retiring. */
static bool has_other_copy(const struct mcm *m, const struct mcm_object *o, struct mcm_extent from)
{
	struct mcm_extent extent[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, extent);
	bool found = false;

	for (unsigned i = 0; i < n && !found; i++) {
		const struct mcm_segment *it = mcm_segment(&m->segments, extent[i].segment);

		found = extent[i].segment != from.segment && mcm_segment_readable(it) &&
			!mcm_load_relaxed(&it->draining) && !mcm_load_relaxed(&it->paused);
	}
	return found;
}

/* The shard is locked, and the object has the copy.  Drop the copy, because the object has others and there is no
 * segment to which the drain could ever move it.  The last copy always stays.  False: the copy is needed. */
static bool plan_give_up(struct mcm_plan *p, struct mcm_shard *sh, const struct mcm_object *o,
			 const struct mcm_copy_spec *c)
{
	const struct mcm_segment *s = mcm_segment(&p->m->segments, c->from.segment);
	/* A copy on a disk is not needed when there is one in memory. */
	bool low = !mcm_segment_is(s, MCP_TRAIT_PUTS) && mcm_object_in_memory(o);

	if (p->t->type != MCP_TASK_DRAIN || c->n_have < 2)
		return false;
	if (!low && (!has_other_copy(p->m, o, c->from) ||
		     target_exists(p->m, p->t, c, mcm_object_reserve(c->size))))
		return false;
	p->t->given_up += !low;
	p->t->succeeded += low;
	p->t->began_ms = mcm_now_ms(p->m);
	mcm_object_retire_copy(p->m, sh, c->slot, c->from);
	return true;
}

/* Try to begin a copy of an object found by the walk.  An object that cannot be moved now is found
 * again by the next walk.  If an object finds no room, skip all objects that are as large, unless
 * its own other replicas were the reason. */
static void plan_range(struct mcm_plan *p, const struct mcm_segment *s, const struct mcm_victim *v)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&p->m->index, v->slot);
	struct mcm_object *o = mcm_object(&p->m->index, v->slot);
	struct mcm_copy_spec c = { .from = { v->range, s->index }, .move = true };
	bool fits = o->flags & MCM_OBJ_LIVE && o->generation == v->generation &&
		    mcm_object_has(&p->m->index, o, c.from);
	int r;

	/* Only one copy of an object at a time can wait for its readers: this one, or another. */
	if (fits && mcm_load_relaxed(&o->marks) & MCM_MARK_RETIRING) {
		p->held = true;
		fits = false;
	}
	if (fits) {
		mcm_plan_describe(p->m, o, v->slot, &c);
		fits = !plan_give_up(p, sh, o, &c) && c.size < p->too_long;
	}
	mc_mutex_unlock(&sh->lock);
	if (!fits || !mcm_task_object_due(p->m, p->t, c.generation))
		return;
	r = mcm_plan_copy(p, &c);
	if (r < 0)
		p->misses = r == MCP_AGAIN ? 0 : p->misses - 1;
	if (r == -MC_ENOSPACE && p->t->type == MCP_TASK_DRAIN) {
		/* A pool without any other segment may get one soon. */
		if (target_exists(p->m, p->t, &c, mcm_object_reserve(c.size)) || !mcm_drain_has_target(p->m, p->t))
			p->t->no_room = true;
		else
			mcm_task_object_failed(p->m, p->t, c.generation, r);
	}
	if (r == -MC_ENOSPACE && c.n_have == 1)
		p->too_long = c.size;
}

static void plan_segment(struct mcm_plan *p, struct mcm_segment *s)
{
	struct mcm_victim v[WALK_BATCH];
	unsigned n, i, room, laps = 0;
	bool end;

	if (mc_mutex_trylock(&s->run_lock))
		return;
	p->ranges = MCM_FETCH_RANGES;
	p->misses = MISSES_MAX;
	p->too_long = UINT64_MAX;
	while (!mcm_plan_full(p) && p->ranges && p->misses && laps < 2) {
		room = p->t->max_active - p->t->active;
		n = mcm_plan_walk(p, s, v, room < WALK_BATCH ? room : WALK_BATCH, &end);
		for (i = 0; i < n && p->misses && !mcm_plan_full(p); i++)
			plan_range(p, s, &v[i]);
		/* Walk from the cursor to the end, and then once from the beginning. */
		laps += end;
	}
	/* The cursor keeps the position for the next call. */
	p->cut |= !p->ranges || !p->misses;
	mcm_lock_held(MCM_HOLD_TASKS, MCM_FETCH_RANGES - p->ranges);
	mc_mutex_unlock(&s->run_lock);
}

/* The next segment of this client after position *@i; NULL at the end. */
struct mcm_segment *mcm_plan_own(const struct mcm_plan *p, unsigned *i)
{
	struct mcm_segments *ss = &p->m->segments;
	struct mcm_segment *s = NULL;

	mc_rwlock_rdlock(&ss->lock);
	while (*i < ss->n_live && !s) {
		s = ss->at[ss->live[(*i)++]];
		if (!mcp_id_eq(s->client, p->s->client) || mcm_segment_state(s) != MCP_SEG_OK)
			s = NULL;
	}
	mc_rwlock_unlock(&ss->lock);
	return s;
}

static void plan_segments(struct mcm_plan *p)
{
	struct mcm_task *t = p->t;
	struct mcm_segment *s;
	unsigned i = 0, before = p->n;

	while ((s = mcm_plan_own(p, &i)) && !mcm_plan_full(p)) {
		if (t->type == MCP_TASK_DRAIN ?
		    mcm_task_names(t->source, t->n_sources, mcm_load_relaxed(&s->name_hash)) :
		    mcm_rebalance_wanted(p->m, s))
			plan_segment(p, s);
	}
	if (p->held || p->n > before)
		t->held_ms = p->n > before ? 0 : mcm_now_ms(p->m);
	p->held = false;
}

/* ---- tasks about one object ---- */

/* Shard locked.  Find a replica of the object in a segment of this client (@name: hash of the
 * segment's name, 0: any). */
static bool own_copy(const struct mcm_plan *p, const struct mcm_object *o, uint64_t name,
		     struct mcm_extent *ret)
{
	struct mcm_extent extent[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&p->m->index, o, extent), i;
	bool own = false;

	mc_rwlock_rdlock(&p->m->segments.lock);
	for (i = 0; i < n && !own; i++) {
		const struct mcm_segment *s = mcm_segment(&p->m->segments, extent[i].segment);

		own = mcm_segment_readable(s) && mcp_id_eq(s->client, p->s->client) &&
		      (!name || s->name_hash == name);
		if (own)
			*ret = extent[i];
	}
	mc_rwlock_unlock(&p->m->segments.lock);
	return own;
}

static bool has_name(const struct mcm_copy_spec *c, uint64_t name)
{
	for (unsigned i = 0; i < c->n_have; i++)
		if (c->have[i] == name)
			return true;
	return false;
}

static void plan_failed(struct mcm_plan *p, int why)
{
	struct mcm_task *t = p->t;

	if (why == MCP_AGAIN) {
		p->cut = true;
		return;
	}
	t->retry_ms = mcm_now_ms(p->m) + 50 * ++t->tries;
	if (why == -MC_ENOSPACE)
		snprintf(t->message, sizeof(t->message), "the target has no free memory");
	if (t->tries > p->m->conf.max_retry_attempts || (why != -MC_ENOSPACE && why != -ENOMEM))
		mcm_task_end(p->m, t, MCP_TASK_FAILED, why, mc_strerror(why));
}

/* Begin the remaining copies of a task with several targets. */
static void plan_copies(struct mcm_plan *p, struct mcm_copy_spec *c)
{
	struct mcm_task *t = p->t;
	int r = 0;

	for (unsigned i = 0; i < t->n_targets && !mcm_plan_full(p) && r == 0; i++) {
		if ((t->done_targets | t->busy_targets) & 1u << i)
			continue;
		if (has_name(c, t->target[i].hash)) {
			t->done_targets |= 1u << i;
			continue;
		}
		c->target = t->target[i].hash;
		c->target_index = i;
		r = mcm_plan_copy(p, c);
		if (r == 0)
			t->busy_targets |= 1u << i;
	}
	if (r < 0)
		plan_failed(p, r);
	else if (t->done_targets == (1u << t->n_targets) - 1)
		mcm_task_end(p->m, t, MCP_TASK_SUCCEEDED, 0, "every target has a copy");
}

static void plan_single(struct mcm_plan *p, struct mcm_copy_spec *c)
{
	struct mcm_task *t = p->t;
	int r;

	if (t->active)
		return;
	if (t->type == MCP_TASK_MOVE) {
		c->move = true;
		c->target = t->target[0].hash;
		if (has_name(c, c->target)) {
			mcm_task_move_within(p->m, t, c->slot, c->generation, c->from);
			return;
		}
	}
	r = mcm_plan_copy(p, c);
	if (r < 0)
		plan_failed(p, r);
}

static void plan_object(struct mcm_plan *p)
{
	struct mcm_task *t = p->t;
	struct mcm_copy_spec c = { .slot = 0 };
	char buf[MCM_LINK_KEY_MAX];
	struct mcp_bytes key;
	struct mcm_shard *sh;
	uint32_t hash, slot;
	bool own = false;

	if (mcm_now_ms(p->m) < t->retry_ms || mcm_plan_full(p))
		return;
	/* The object may have got a second name since the task began. */
	key = mcm_link_resolve(p->m, mcp_bytes(t->key, t->key_len), buf);
	hash = mcm_index_hash(&p->m->index, key.data, key.len);
	sh = mcm_index_shard(&p->m->index, hash);
	mc_mutex_lock(&sh->lock);
	slot = mcm_shard_find(&p->m->index, sh, hash, key.data, key.len);
	if (slot) {
		struct mcm_object *o = mcm_object(&p->m->index, slot);

		own = own_copy(p, o, t->type == MCP_TASK_MOVE ? t->source[0].hash : 0, &c.from);
		if (own)
			mcm_plan_describe(p->m, o, slot, &c);
	}
	mc_mutex_unlock(&sh->lock);
	if (!slot && !t->active)
		mcm_task_end(p->m, t, MCP_TASK_FAILED, -MC_ENOOBJECT, "the object is gone");
	if (!own)
		return;
	if (t->status == MCP_TASK_PENDING) {
		t->status = MCP_TASK_RUNNING;
		p->m->tasks.n_pending--;
	}
	if (t->type == MCP_TASK_COPY)
		plan_copies(p, &c);
	else
		plan_single(p, &c);
}

struct mcm_plan mcm_plan_begin(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			       struct mcp_replica *ret_from, struct mcp_replica *ret_to)
{
	return (struct mcm_plan){
		.m = m, .s = s, .max = max < MCM_FETCH_MAX ? max : MCM_FETCH_MAX, .copy = ret,
		.from = ret_from, .to = ret_to, .until_ns = mc_now_ns() + SLICE_NS,
	};
}

unsigned mcm_task_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			struct mcp_replica *ret_from, struct mcp_replica *ret_to, bool *ret_more)
{
	struct mcm_plan p = mcm_plan_begin(m, s, max, ret, ret_from, ret_to);
	struct mc_list *pos, *tmp;

	MC_LOCKED(&m->tasks.lock);
	mc_list_for_each_safe(pos, tmp, &m->tasks.active) {
		p.t = mc_container_of(pos, struct mcm_task, link);
		if (p.t->key)
			plan_object(&p);
		else if (p.t->type != MCP_TASK_EVICT)
			plan_segments(&p);
	}
	*ret_more = !p.n && p.cut;
	return p.n;
}
