/* SPDX-License-Identifier: Apache-2.0
 * offload.c - backlogs of objects to copy between memory and disks, and the copies that owners fetch. */
#include <config.h>

#include "master/task/offload.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/task_i.h"
#include "proto/rpc_server.h"

#define LOG "offload"
#define WALK_BATCH 32u
#define WALK_RANGES 2048u
/* Offload on eviction begins so much of a segment below the watermark. */
#define AHEAD_MIN 0.1
/* A disk with ERRORS_MAX errors in a row gets no copies for this time. */
#define ERRORS_MAX 8u
#define PAUSE_MS 2000u
/* Count-min sketch of reads: rows of 2^16 counters, halved every AGE_READS reads. */
#define ROWS 4u
#define ROW_SHIFT 16u
#define AGE_READS (10u << ROW_SHIFT)

MC_COUNTER(enqueued, "master_offload_enqueued_total", "", "Objects that began to wait for a copy on a disk")
MC_COUNTER(rejected, "master_offload_enqueue_rejected_total", "", "Objects that found the queue for a disk full")
MC_COUNTER(completed, "master_offload_completed_total", "", "Objects copied to a disk")
MC_COUNTER(failed, "master_offload_failed_total", "", "Copies to a disk that failed")
MC_COUNTER(cancelled, "master_offload_cancelled_total", "",
	   "Objects that were removed, or given up for memory, before their copy to a disk")
MC_GAUGE(pending, "mooncake_master_offload_pending", "", "Objects that wait for a copy on a disk, or are being copied")
MC_COUNTER(written, "mooncake_master_offload_completed_bytes_total", "", "Bytes copied to disks")

MC_GAUGE(promoting, "master_promotion_in_flight", "", "Objects that wait to be copied to memory, or are being copied")
MC_COUNTER(admitted, "master_promotion_admitted_total", "", "Objects that began to wait for a copy in memory")
MC_COUNTER(promoted, "master_promotion_completed_total", "", "Objects copied from a disk to memory")
MC_COUNTER(promoted_bytes, "master_promotion_completed_bytes_total", "", "Bytes copied from disks to memory")
MC_COUNTER(promotion_failed, "master_promotion_failed_total", "", "Copies to memory that failed")
MC_COUNTER(promotion_cancelled, "master_promotion_cancelled_total", "",
	   "Objects that were removed or in memory already before their copy to memory")
MC_COUNTER(rejected_frequency, "master_promotion_rejected_frequency_total", "",
	   "Reads of objects on disks that were not read often enough for a copy in memory")
MC_COUNTER(rejected_cap, "master_promotion_rejected_cap_total", "", "Objects that found the queue for memory full")

/* How the entries of one direction end. */
struct direction {
	struct mc_metric *begun, *refused, *done, *done_bytes, *failed, *cancelled, *open;
};
static const struct direction offloading = {
	&enqueued, &rejected, &completed, &written, &failed, &cancelled, &pending,
};
static const struct direction promotion = {
	&admitted, &rejected_cap, &promoted, &promoted_bytes, &promotion_failed, &promotion_cancelled, &promoting,
};

static void direction_end(const struct direction *d, struct mc_metric *how, unsigned n)
{
	mc_metric_add(how, n);
	mc_metric_add(d->open, -(int64_t)n);
}

static struct mcm_task internal_task(uint8_t type, unsigned max_active)
{
	return (struct mcm_task){ .type = type, .status = MCP_TASK_RUNNING, .max_active = max_active };
}

int mcm_offload_init(struct mcm *m)
{
	double most = (double)m->conf.offloading_queue_limit * m->conf.offload_cap_ratio;

	m->offload.on = m->conf.enable_offload;
	m->offload.offload = internal_task(MCM_TASK_OFFLOAD, most < 1 ? 1 : (unsigned)most);
	m->offload.promote = internal_task(MCM_TASK_PROMOTE, UINT_MAX);
	if (!m->offload.on)
		return 0;
	m->offload.sketch = calloc(ROWS, 1u << ROW_SHIFT);
	return m->offload.sketch ? 0 : -ENOMEM;
}

void mcm_offload_done(struct mcm_offload *f)
{
	free(f->sketch);
}

/* ---- the backlog of a segment ------------------------------------------------------------------- */

/* The lock of @s is held.  @urgent: before all others. */
static bool backlog_add(struct mcm_segment *s, unsigned max, const struct mcm_backlog_entry *e,
			const struct direction *d, bool urgent)
{
	if (!(urgent ? mcm_backlog_push_front : mcm_backlog_push)(&s->backlog, max, e)) {
		mc_metric_add(d->refused, 1);
		s->backlog.missed = true;
		return false;
	}
	mc_metric_add(d->begun, 1);
	mc_metric_add(d->open, 1);
	return true;
}

bool mcm_offload_put_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range)
{
	const struct mcm_backlog_entry e = { slot, range, mcm_object(&m->index, slot)->generation };

	if (!__atomic_load_n(&s->offloads, __ATOMIC_RELAXED))
		return false;
	if (!backlog_add(s, m->conf.offloading_queue_limit, &e, &offloading, false) || m->conf.offload_force_evict)
		return false;
	/* It is on no list, but a put may evict it at the levels that end the wait. */
	mcm_candidates_put(m->segments.candidates, s->index, mcm_now_tick(m) + mcm_tick_after(MCM_RECENT_MIN_MS));
	return true;
}

void mcm_offload_dropped(unsigned n, uint8_t medium)
{
	const struct direction *d = medium == MCP_MEDIUM_DISK ? &promotion : &offloading;

	if (n)
		direction_end(d, d->cancelled, n);
}

/* The lock of @s is held: list the range of a live object, unless it is listed. */
static bool range_list_locked(struct mcm *m, struct mcm_segment *s, const struct mcm_evict_view *v, uint32_t range,
			      uint32_t slot)
{
	const struct mcm_range *n = mcm_range(&s->alloc, range);

	/* An object that a task copies meanwhile is pinned: a search parks it, and its unpin lists it again. */
	if (!(n->flags & MCM_RANGE_USED) || n->owner != slot || !(n->flags & MCM_RANGE_EVICTABLE) ||
	    n->flags & MCM_RANGE_LISTED)
		return false;
	mcm_segment_list(&m->segments, s, v, range, true);
	/* It may have been put long ago. */
	if (s->medium == MCP_MEDIUM_MEMORY)
		mcm_candidates_all(m->segments.candidates, s->index);
	return true;
}

static void range_list(struct mcm *m, struct mcm_segment *s, uint32_t range, uint32_t slot)
{
	struct mcm_evict_view v = mcm_evict_view_of(m, s);

	MC_LOCKED(&s->lock);
	if (mcm_segment_state(s) != MCM_SEG_NONE)
		(void)range_list_locked(m, s, &v, range, slot);
}

bool mcm_offload_give_up(struct mcm *m, struct mcm_segment *s, uint64_t bytes)
{
	struct mcm_evict_view v = mcm_evict_view_of(m, s);
	struct mcm_backlog_entry e;
	uint64_t listed = 0;
	unsigned n = 0;

	pthread_mutex_lock(&s->lock);
	while (mcm_segment_state(s) != MCM_SEG_NONE && s->medium == MCP_MEDIUM_MEMORY && listed < bytes &&
	       mcm_backlog_pop(&s->backlog, &e)) {
		n++;
		if (range_list_locked(m, s, &v, e.range, e.slot))
			listed += mcm_range_granules(&s->alloc, mcm_range(&s->alloc, e.range)) << MCM_GRANULE_SHIFT;
	}
	pthread_mutex_unlock(&s->lock);
	direction_end(&offloading, &cancelled, n);
	return n > 0;
}

void mcm_offload_disks_changed(struct mcm *m, const struct mcm_client *c)
{
	uint16_t disk = 0;
	bool was;
	struct mc_list *at;

	if (!m->offload.on)
		return;
	mc_list_for_each(at, &c->segments) {
		const struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		if (mcm_segment_offloadable(s))
			disk = (uint16_t)(s->index + 1);
	}
	mc_list_for_each(at, &c->segments) {
		struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		if (s->medium != MCP_MEDIUM_MEMORY)
			continue;
		was = s->offloads;
		__atomic_store_n(&s->disk, disk, __ATOMIC_RELAXED);
		__atomic_store_n(&s->offloads, disk != 0, __ATOMIC_RELAXED);
		/* Without a disk they wait for nothing; with one, a walk finds objects from before. */
		if (was && !disk)
			(void)mcm_offload_give_up(m, s, UINT64_MAX);
		if (!was && disk) {
			pthread_mutex_lock(&s->lock);
			s->backlog.missed = true;
			pthread_mutex_unlock(&s->lock);
		}
	}
}

/* ---- offload ------------------------------------------------------------------------------------ */

/* The emptiest disk of this client that works. */
static struct mcm_segment *disk_choose(const struct mcm_plan *p)
{
	struct mcm_segment *s, *best = NULL;
	double fill, least = 2;
	unsigned i = 0;

	while ((s = mcm_plan_own(p, &i))) {
		if (!mcm_segment_offloadable(s) || mcm_load_relaxed(&s->adopting) ||
		    __atomic_load_n(&s->pause_ms, __ATOMIC_RELAXED) > mcm_now_ms(p->m))
			continue;
		fill = (double)mcm_load_relaxed(&s->used) / (double)mcm_load_relaxed(&s->size);
		if (fill < least) {
			least = fill;
			best = s;
		}
	}
	return best;
}

/* With offload on eviction: is memory needed soon? */
static bool memory_needed(const struct mcm *m, const struct mcm_segment *s)
{
	double ahead = 2 * m->conf.eviction_ratio;

	if (!m->conf.offload_on_evict)
		return true;
	ahead = m->conf.eviction_high_watermark_ratio - (ahead > AHEAD_MIN ? ahead : AHEAD_MIN);
	return (double)mcm_load_relaxed(&s->used) >= ahead * (double)mcm_load_relaxed(&s->size);
}

/* Shard locked: what to copy.  False: the entry is out of date. */
static bool offload_describe(const struct mcm_plan *p, const struct mcm_segment *s, const struct mcm_backlog_entry *e,
			     struct mcm_copy_spec *c)
{
	const struct mcm_object *o = mcm_object(&p->m->index, e->slot);

	c->from = (struct mcm_extent){ e->range, s->index };
	if (!(o->flags & MCM_OBJ_LIVE) || o->generation != e->generation ||
	    !mcm_object_has(&p->m->index, o, c->from))
		return false;
	if (s->medium == MCP_MEDIUM_MEMORY ? mcm_object_on_disk(o) : mcm_object_in_memory(o))
		return false;
	mcm_plan_describe(p->m, o, e->slot, c);
	if (p->record && s->medium == MCP_MEDIUM_MEMORY)
		c->record_len = mcm_adopt_describe(p->m, e->slot, p->record + (size_t)p->n * MCM_ADOPT_MAX, &c->name);
	return true;
}

static bool entry_describe(const struct mcm_plan *p, const struct mcm_segment *s, const struct mcm_backlog_entry *e,
			   struct mcm_copy_spec *c)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&p->m->index, e->slot);
	bool wanted = offload_describe(p, s, e, c);

	pthread_mutex_unlock(&sh->lock);
	return wanted;
}

/* Begin the copy of an entry that was counted.  False: stop for now. */
static bool offload_one(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk,
			const struct mcm_backlog_entry *e)
{
	struct mcm_copy_spec c = { .target = mcm_load_relaxed(&disk->name_hash) };
	int r = -MC_ENOOBJECT;

	if (entry_describe(p, s, e, &c))
		r = mcm_plan_copy(p, &c);
	if (r == 0)
		return true;
	direction_end(&offloading, r == -MC_ENOOBJECT || r == MCP_AGAIN ? &cancelled : &failed, 1);
	range_list(p->m, s, e->range, e->slot);
	if (r == -MC_ENOOBJECT)
		return true;
	/* A full disk, or no time: a walk finds the object again. */
	pthread_mutex_lock(&s->lock);
	s->backlog.missed = true;
	pthread_mutex_unlock(&s->lock);
	if (r != MCP_AGAIN)
		mcm_store_relaxed(&disk->pause_ms, mcm_now_ms(p->m) + PAUSE_MS);
	return false;
}

static void offload_backlog(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk)
{
	struct mcm_backlog_entry e;
	bool more = true;

	while (more && !mcm_plan_full(p)) {
		pthread_mutex_lock(&s->lock);
		more = mcm_segment_state(s) == MCP_SEG_OK && (s->backlog.urgent || memory_needed(p->m, s)) &&
		       mcm_backlog_pop(&s->backlog, &e);
		pthread_mutex_unlock(&s->lock);
		if (more)
			more = offload_one(p, s, disk, &e);
	}
}

/* Objects that are not in the backlog: it was full, the copy failed, the master has restarted. */
static void offload_walk(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk)
{
	struct mcm_victim v[WALK_BATCH];
	bool end = false, more = true;
	unsigned begun = p->n, n, i;

	if (pthread_mutex_trylock(&s->run_lock))
		return;
	p->ranges = WALK_RANGES;
	while (more && !end && p->ranges && !mcm_plan_full(p)) {
		n = mcm_plan_walk(p, s, v, WALK_BATCH, &end);
		for (i = 0; i < n && more && !mcm_plan_full(p); i++) {
			const struct mcm_backlog_entry e = { v[i].slot, v[i].range, v[i].generation };
			struct mcm_copy_spec c;

			if (mcm_load_relaxed(&mcm_object(&p->m->index, v[i].slot)->flags) &
			    (MCM_OBJ_DISK | MCM_OBJ_HARD | MCM_OBJ_KIND) || !entry_describe(p, s, &e, &c))
				continue;
			mc_metric_add(&enqueued, 1);
			mc_metric_add(&pending, 1);
			more = offload_one(p, s, disk, &e);
		}
		/* The cursor is behind the rest of the batch. */
		more = more && (i == n || end);
	}
	if (end && p->n == begun && more) {
		pthread_mutex_lock(&s->lock);
		s->backlog.missed = false;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->run_lock);
}

static void offload_segment(struct mcm_plan *p, struct mcm_segment *s)
{
	struct mcm_segment *disk = disk_choose(p);

	p->t = &p->m->offload.offload;
	if (!disk)
		return;
	offload_backlog(p, s, disk);
	if (s->backlog.missed && memory_needed(p->m, s) && !mcm_plan_full(p))
		offload_walk(p, s, disk);
}

/* ---- promotion ---------------------------------------------------------------------------------- */

static void promote_segment(struct mcm_plan *p, struct mcm_segment *s)
{
	struct mcm_backlog_entry e;
	unsigned max = p->m->conf.promotion_max_per_heartbeat, n = 0;
	bool more = true;

	p->t = &p->m->offload.promote;
	max = max ? max : 1;
	while (more && n < max && !mcm_plan_full(p)) {
		struct mcm_copy_spec c = { .slot = 0 };
		int r = -MC_ENOOBJECT;

		pthread_mutex_lock(&s->lock);
		more = mcm_segment_state(s) == MCP_SEG_OK && mcm_backlog_pop(&s->backlog, &e);
		pthread_mutex_unlock(&s->lock);
		if (!more)
			return;
		if (entry_describe(p, s, &e, &c))
			r = mcm_plan_copy(p, &c);
		if (r == 0)
			n++;
		else
			direction_end(&promotion, r == -MC_ENOOBJECT ? &promotion_cancelled : &promotion_failed, 1);
	}
}

static unsigned row_index(uint32_t hash, unsigned row)
{
	uint32_t mixed = (hash + row * 0x9e3779b9u) * (2 * row * 0x85ebca6bu + 1);

	return (row << ROW_SHIFT) + (mixed >> (32 - ROW_SHIFT));
}

/* Count a read; returns the reads lately, never less than the true number. */
static unsigned sketch_add(struct mcm_offload *f, uint32_t hash)
{
	unsigned least = UINT8_MAX;

	for (unsigned i = 0; i < ROWS; i++) {
		uint8_t *at = &f->sketch[row_index(hash, i)], n = mcm_load_relaxed(at);

		if (n < UINT8_MAX)
			mcm_store_relaxed(at, (uint8_t)++n);
		least = n < least ? n : least;
	}
	if (__atomic_add_fetch(&f->reads, 1, __ATOMIC_RELAXED) == AGE_READS) {
		__atomic_store_n(&f->reads, 0, __ATOMIC_RELAXED);
		for (unsigned i = 0; i < ROWS << ROW_SHIFT; i++)
			mcm_store_relaxed(&f->sketch[i], (uint8_t)(mcm_load_relaxed(&f->sketch[i]) / 2));
	}
	return least;
}

/* Shard locked: queue the object, which has no copy in memory. */
static bool promote_queue(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	struct mcm_backlog_entry e;
	struct mcm_segment *s;
	bool queued = false;

	(void)mcm_object_extents(&m->index, o, p);
	s = mcm_segment(&m->segments, p[0].segment);
	e = (struct mcm_backlog_entry){ slot, p[0].range, o->generation };
	pthread_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_OK)
		queued = backlog_add(s, m->conf.promotion_queue_limit, &e, &promotion, false);
	pthread_mutex_unlock(&s->lock);
	return queued;
}

/* Shard locked: queue the object, which has no copy on a disk, before all others. */
static bool offload_queue(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;
	bool queued = false;

	for (i = 0; i < n && !queued; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);
		const struct mcm_backlog_entry e = { slot, p[i].range, o->generation };

		pthread_mutex_lock(&s->lock);
		if (mcm_segment_state(s) == MCP_SEG_OK && __atomic_load_n(&s->offloads, __ATOMIC_RELAXED))
			queued = backlog_add(s, m->conf.offloading_queue_limit, &e, &offloading, true);
		pthread_mutex_unlock(&s->lock);
	}
	return queued;
}

int mcm_offload_tier(struct mcm *m, struct mcp_bytes key, uint8_t medium)
{
	uint32_t hash = mcm_index_hash(&m->index, key.data, mcm_key_ok(key) ? key.len : 0), slot;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	const struct mcm_object *o;

	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes", key.len);
	if (!m->offload.on)
		return mc_fail(-MC_EUNAVAILABLE, "the master has no --enable_offload");
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (!slot)
		return mc_fail(-MC_ENOOBJECT, "no such object");
	o = mcm_object(&m->index, slot);
	if (!mcm_object_readable(m, o))
		return mcm_object_missing(m, o);
	if (!o->range || (medium == MCP_MEDIUM_DISK ? mcm_object_on_disk(o) : mcm_object_in_memory(o)))
		return 0;
	if (!(medium == MCP_MEDIUM_DISK ? offload_queue : promote_queue)(m, slot))
		return mc_fail(-MC_EUNAVAILABLE, "the object's node has no disk, or too many objects wait there");
	return 0;
}

void mcm_offload_read(struct mcm *m, uint32_t slot, bool memory)
{
	unsigned reads, threshold = m->conf.promotion_admission_threshold;

	if (memory || !m->conf.promotion_on_hit || !m->offload.on)
		return;
	threshold = threshold < 1 ? 1 : threshold > UINT8_MAX ? UINT8_MAX : threshold;
	reads = sketch_add(&m->offload, mcm_object(&m->index, slot)->hash);
	/* Once: further reads until the copy is made change nothing. */
	if (reads < threshold)
		mc_metric_add(&rejected_frequency, 1);
	else if (reads == threshold || reads == UINT8_MAX || reads % 16 == 0)
		(void)promote_queue(m, slot);
}

/* ---- copies ------------------------------------------------------------------------------------- */

unsigned mcm_offload_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			   struct mcp_replica *ret_from, struct mcp_replica *ret_to, uint8_t *records)
{
	struct mcm_plan p = mcm_plan_begin(m, s, max, ret, ret_from, ret_to);
	struct mcm_segment *seg;
	unsigned i = 0;

	p.record = records;
	if (!m->offload.on)
		return 0;
	MC_LOCKED(&m->tasks.lock);
	p.t = &m->offload.promote;
	while ((seg = mcm_plan_own(&p, &i)) && !mcm_plan_full(&p))
		if (seg->medium == MCP_MEDIUM_DISK)
			promote_segment(&p, seg);
	p.t = &m->offload.offload;
	for (i = 0; !mcm_plan_full(&p) && (seg = mcm_plan_own(&p, &i));)
		if (__atomic_load_n(&seg->offloads, __ATOMIC_RELAXED))
			offload_segment(&p, seg);
	return p.n;
}

void mcm_offload_again(struct mcm *m, uint16_t segment)
{
	struct mcm_segment *s = mcm_segment(&m->segments, segment);

	MC_LOCKED(&s->lock);
	s->backlog.missed = true;
}

void mcm_offload_unmark(struct mcm *m, const struct mcm_unit *u, const struct mcm_object *o)
{
	if (u->task->type == MCM_TASK_OFFLOAD && o->flags & MCM_OBJ_LIVE && mcm_object_has(&m->index, o, u->from))
		range_list(m, mcm_segment(&m->segments, u->from.segment), u->from.range, u->slot);
}

void mcm_offload_ended(struct mcm *m, const struct mcm_unit *u, int result)
{
	bool offload = u->task->type == MCM_TASK_OFFLOAD;
	const struct direction *d = offload ? &offloading : &promotion;
	struct mcm_segment *disk = mcm_segment(&m->segments, u->to.segment);

	if (result == 0) {
		if (offload)
			mcm_store_relaxed(&disk->errors, 0);
		direction_end(d, d->done, 1);
		mc_metric_add(d->done_bytes, (int64_t)u->size);
		return;
	}
	/* Removed or replaced meanwhile, or its owner has ended. */
	if (result == -MC_ENOOBJECT || result == -MC_EREPLICA_GONE) {
		direction_end(d, d->cancelled, 1);
		return;
	}
	direction_end(d, d->failed, 1);
	if (!offload)
		return;
	mcm_offload_again(m, u->from.segment);
	mc_warn(LOG, "a copy to a disk failed segment=%s: %s", disk->name, mc_strerror(result));
	if (__atomic_add_fetch(&disk->errors, 1, __ATOMIC_RELAXED) < ERRORS_MAX)
		return;
	mcm_store_relaxed(&disk->errors, 0);
	mcm_store_relaxed(&disk->pause_ms, mcm_now_ms(m) + PAUSE_MS);
	mc_warn(LOG, "many copies to a disk failed in a row, pausing it segment=%s", disk->name);
}
