/* SPDX-License-Identifier: Apache-2.0
 * offload.c - backlogs of objects to copy between memory and disks, and the copies that owners fetch. */
#include <config.h>

#include "master/task/offload.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/lock_hold.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/nof.h"
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
#define SPACE_PAUSE_MS 500u	/* after a copy that found no space on a disk */
#define FAILURES_MAX 8u		/* copies of one object that found no space on a disk */
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

	m->offload.root_fs_dir = m->conf.root_fs_dir;
	if (!*m->conf.root_fs_dir && mc_env_dfs())
		m->offload.root_fs_dir = mc_env_dfs();
	m->offload.on = m->conf.enable_offload || *m->offload.root_fs_dir;
	if (*m->offload.root_fs_dir)
		mc_info(LOG, "root_fs_dir: objects are copied to the shared directory; the owners of memory open it, "
			"not the master dir=%s", m->offload.root_fs_dir);
	m->offload.keep = m->offload.on && !m->conf.offload_force_evict;
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

/* The lock of the segment is held.  @urgent: before all others. */
static bool backlog_add(struct mcm_backlog *b, unsigned max, const struct mcm_backlog_entry *e,
			const struct direction *d, bool urgent)
{
	if (!(urgent ? mcm_backlog_push_front : mcm_backlog_push)(b, max, e)) {
		mc_metric_add(d->refused, 1);
		b->missed = true;
		return false;
	}
	mc_metric_add(d->begun, 1);
	mc_metric_add(d->open, 1);
	return true;
}

bool mcm_offload_put_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range)
{
	const struct mcm_backlog_entry e = { slot, range, mcm_object(&m->index, slot)->generation, 0 };

	bool keeps, queued;

	if (!__atomic_load_n(&s->offloads, __ATOMIC_RELAXED))
		return false;
	keeps = mcm_offload_keeps(m, s, mcm_object(&m->index, slot));
	queued = backlog_add(&s->backlog, m->conf.offloading_queue_limit, &e, &offloading, false);
	s->backlog.unlisted |= keeps && !queued;
	if (!keeps && (m->offload.keep || !queued))
		return false;
	/* It is on no list, but a put may evict it at the levels that end the wait. */
	if (mcm_segment_is(s, MCP_TRAIT_PUTS))
		mcm_candidates_put(m->segments.candidates, s->index,
				   mcm_now_tick(m) + mcm_tick_after(MCM_RECENT_MIN_MS));
	return true;
}

void mcm_offload_await_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range)
{
	const struct mcm_backlog_entry e = { slot, range, mcm_object(&m->index, slot)->generation, 0 };

	if (!backlog_add(&s->backlog, m->conf.offloading_queue_limit, &e, &offloading, false))
		s->backlog.unlisted = true;
}

bool mcm_offload_waiting_locked(struct mcm_segment *s, bool wanted)
{
	bool some = s->backlog.n || s->backlog.unlisted;

	if (some && wanted)
		mcm_store_relaxed(&s->backlog.wanted, true);
	return some;
}

void mcm_offload_dropped(unsigned down, unsigned up)
{
	if (down)
		direction_end(&offloading, &cancelled, down);
	if (up)
		direction_end(&promotion, &promotion_cancelled, up);
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
	if (mcm_segment_is(s, MCP_TRAIT_PUTS))
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

/* List ranges of objects that found the queue full, with @bytes together, at most @max of them; returns how many. */
static unsigned unlisted_list(struct mcm *m, struct mcm_segment *s, uint64_t bytes, unsigned max)
{
	struct mcm_evict_view v = mcm_evict_view_of(m, s);
	struct mcm_alloc *a = &s->alloc;
	uint64_t listed = 0;
	unsigned n = 0, held;

	MC_LOCKED(&s->run_lock);
	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_OK)
		a->cursor = a->first;
	/* Ranges that are left out from here on set it again. */
	s->backlog.unlisted = false;
	while (mcm_segment_state(s) == MCP_SEG_OK && a->cursor != a->end && listed < bytes && n < max) {
		for (held = 0; held < WALK_RANGES && a->cursor != a->end && listed < bytes && n < max; held++) {
			const struct mcm_range *range = mcm_range(a, a->cursor);

			/* One that is being copied is listed afterwards. */
			if (!(range->flags & MCM_RANGE_MOVING) &&
			    range_list_locked(m, s, &v, a->cursor, range->owner)) {
				listed += mcm_range_granules(a, range) << MCM_GRANULE_SHIFT;
				n++;
			}
			a->cursor = mcm_range_next(range);
		}
		mc_mutex_unlock(&s->lock);
		mcm_lock_held(MCM_HOLD_SEGMENT, held);
		mc_mutex_lock(&s->lock);
	}
	if (mcm_segment_state(s) == MCP_SEG_OK) {
		s->backlog.unlisted |= a->cursor != a->end;
		a->cursor = a->first;
	}
	mc_mutex_unlock(&s->lock);
	return n;
}

/* List the oldest objects of the backlog that have @bytes together.  True: there were some. */
static bool backlog_list(struct mcm *m, struct mcm_segment *s, uint64_t bytes)
{
	struct mcm_evict_view v = mcm_evict_view_of(m, s);
	struct mcm_backlog_entry e;
	uint64_t listed = 0;
	unsigned n = 0;

	mc_mutex_lock(&s->lock);
	while (mcm_segment_state(s) != MCM_SEG_NONE && listed < bytes && mcm_backlog_pop(&s->backlog, &e)) {
		n++;
		if (range_list_locked(m, s, &v, e.range, e.slot))
			listed += mcm_range_granules(&s->alloc, mcm_range(&s->alloc, e.range)) << MCM_GRANULE_SHIFT;
	}
	mc_mutex_unlock(&s->lock);
	direction_end(&offloading, &cancelled, n);
	return n > 0;
}

bool mcm_offload_give_up(struct mcm *m, struct mcm_segment *s, uint64_t bytes)
{
	bool unlisted, empty;

	mc_mutex_lock(&s->lock);
	empty = !s->backlog.n;
	unlisted = s->backlog.unlisted;
	mc_mutex_unlock(&s->lock);
	/* The search for victims finds them, and queues them.  Not those that are queued once more. */
	if (mcm_offload_awaits(m, s))
		return unlisted && empty && unlisted_list(m, s, UINT64_MAX, (unsigned)m->conf.offloading_queue_limit);
	if (backlog_list(m, s, bytes))
		return true;
	/* Many at a time, because each walk begins at the first range. */
	if (bytes < mcm_load_relaxed(&s->evictable) / 8)
		bytes = mcm_load_relaxed(&s->evictable) / 8;
	return unlisted && unlisted_list(m, s, bytes, UINT_MAX);
}

void mcm_offload_release(struct mcm *m, struct mcm_segment *s)
{
	bool waiting;

	if (!m->offload.keep || mcm_offload_awaits(m, s))
		return;
	mc_mutex_lock(&s->lock);
	waiting = mcm_segment_state(s) == MCP_SEG_OK && mcm_offload_waiting_locked(s, false);
	s->backlog.missed |= waiting;
	mc_mutex_unlock(&s->lock);
	if (!waiting)
		return;
	(void)backlog_list(m, s, UINT64_MAX);
	(void)unlisted_list(m, s, UINT64_MAX, UINT_MAX);
}

/* The client's segments of higher ranks than that of @s have changed: the one of the lowest rank that takes copies
 * (NULL: none), and the bytes that they take. */
static void disks_changed(struct mcm *m, struct mcm_segment *s, const struct mcm_segment *disk, uint64_t takes)
{
	bool was = s->offloads, has = disk || takes;

	mcm_offload_set_takes(m, s, takes);
	__atomic_store_n(&s->disk, disk ? (uint16_t)(disk->index + 1) : 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->offloads, has, __ATOMIC_RELAXED);
	/* Without a disk they wait for nothing; with one, a walk finds objects from before. */
	if (was && !has)
		(void)backlog_list(m, s, UINT64_MAX);
	if (!was && has) {
		mc_mutex_lock(&s->lock);
		s->backlog.missed = true;
		mc_mutex_unlock(&s->lock);
	}
}

void mcm_offload_disks_changed(struct mcm *m, const struct mcm_client *c)
{
	struct mc_list *at, *to;

	if (!m->offload.on)
		return;
	mc_list_for_each(at, &c->segments) {
		struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link), *disk = NULL;
		uint64_t takes = 0;

		mc_list_for_each(to, &c->segments) {
			struct mcm_segment *d = mc_container_of(to, struct mcm_segment, link);

			if (d->rank <= s->rank)
				continue;
			if (mcm_segment_offloadable(d) && (!disk || d->rank < disk->rank))
				disk = d;
			takes = mcm_offload_disk_takes(m, d, takes);
		}
		disks_changed(m, s, disk, takes);
	}
}

/* ---- offload ------------------------------------------------------------------------------------ */

/* The emptiest segment, of the next rank above that of @from, of this client that works, and can take an object of
 * @size bytes. */
static struct mcm_segment *disk_choose(const struct mcm_plan *p, const struct mcm_segment *from, uint64_t size)
{
	uint8_t rank, above = mcm_load_relaxed(&from->rank);
	struct mcm_segment *s, *best = NULL;
	double fill, least = 2;
	unsigned i = 0;

	while ((s = mcm_plan_own(p, &i))) {
		rank = mcm_load_relaxed(&s->rank);
		if (rank <= above || !mcm_segment_offloadable(s) || mcm_load_relaxed(&s->adopting) ||
		    mcm_offload_disk_rests(p->m, s))
			continue;
		if (size && !mcm_offload_disk_fits(p->m, s, size))
			continue;
		fill = (double)mcm_load_relaxed(&s->used) / (double)mcm_load_relaxed(&s->size);
		if (!best || rank < best->rank || (rank == best->rank && fill < least)) {
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

	if (!m->conf.offload_on_evict || mcm_load_relaxed(&s->backlog.wanted))
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
	if (p->t->type == MCM_TASK_OFFLOAD ? mcm_object_below(p->m, o, s) : mcm_object_in_memory(o))
		return false;
	mcm_plan_describe(p->m, o, e->slot, c);
	if (p->record && p->t->type == MCM_TASK_OFFLOAD)
		c->record_len = mcm_adopt_describe(p->m, e->slot, p->record + (size_t)p->n * MCM_ADOPT_MAX, &c->name);
	return true;
}

static bool entry_describe(const struct mcm_plan *p, const struct mcm_segment *s, const struct mcm_backlog_entry *e,
			   struct mcm_copy_spec *c)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&p->m->index, e->slot);
	bool wanted = offload_describe(p, s, e, c);

	mc_mutex_unlock(&sh->lock);
	return wanted;
}

/* The disk has failed a copy, or has found no space for one, @n times in a row. */
static void disk_refuses(const struct mcm *m, struct mcm_segment *disk, unsigned n, const char *why)
{
	uint64_t pause = PAUSE_MS;

	if (n < ERRORS_MAX)
		return;
	mcm_store_relaxed(&disk->errors, 0);
	mcm_store_relaxed(&disk->pause_ms, mcm_now_ms(m) + pause);
	if (!__atomic_exchange_n(&disk->refuses, true, __ATOMIC_RELAXED))
		mc_warn(LOG, "%s, pausing the segment; until a copy succeeds, objects of its node are evicted without "
			"one medium=%s segment=%s", why, mcp_medium(disk->medium)->name, disk->name);
}

/* A copy did not begin because of @r: the disk found no space, or the time for evictions is over. */
static void disk_not_now(const struct mcm *m, struct mcm_segment *disk, int r)
{
	unsigned n;

	if (r == MCP_AGAIN)
		return;
	mcm_store_relaxed(&disk->pause_ms, mcm_now_ms(m) + (m->offload.keep ? SPACE_PAUSE_MS : PAUSE_MS));
	if (r != -MC_ENOSPACE || !m->offload.keep)
		return;
	/* Leases of its objects end.  Without eviction, waiting does not help. */
	n = mcm_segment_may_evict(disk, m->conf.enable_disk_eviction) ?
	    __atomic_add_fetch(&disk->errors, 1, __ATOMIC_RELAXED) : ERRORS_MAX;
	disk_refuses(m, disk, n, "no space for a copy");
}

/* The copy of the entry cannot begin now.  It stays the first one, or becomes the last one if it found no space: others
 * may find some.  False: it need not wait, or cannot. */
static bool entry_return(struct mcm *m, struct mcm_segment *s, const struct mcm_backlog_entry *e, bool last)
{
	unsigned max = m->conf.offloading_queue_limit;
	bool kept = false;

	MC_LOCKED(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_OK && mcm_offload_awaits(m, s)) {
		kept = (last ? mcm_backlog_push : mcm_backlog_push_front)(&s->backlog, max, e);
		s->backlog.urgent -= kept && !last;
		s->backlog.unlisted |= !kept;
	}
	/* Otherwise a walk finds the object again. */
	s->backlog.missed |= !kept;
	return kept;
}

/* The copy of the entry did not begin because of @r.  True: the entry waits. */
static bool offload_later(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk,
			  struct mcm_backlog_entry *e, uint64_t size, int r)
{
	bool space = r == -MC_ENOSPACE;

	disk_not_now(p->m, disk, r);
	e->failures += space;
	if (e->failures < FAILURES_MAX || !mcm_segment_may_evict(disk, p->m->conf.enable_disk_eviction))
		return entry_return(p->m, s, e, space);
	mcm_offload_disk_unfit(p->m, disk, size);
	return false;
}

/* Begin the copy of an entry that was counted.  False: stop for now. */
static bool offload_one(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk,
			struct mcm_backlog_entry *e)
{
	struct mcm_copy_spec c = { .slot = 0 };
	int r = -MC_ENOOBJECT;

	if (entry_describe(p, s, e, &c)) {
		/* An object that no disk can take must not pause the disk for others. */
		if (p->m->offload.keep && !mcm_offload_disk_fits(p->m, disk, c.size))
			disk = disk_choose(p, s, c.size);
		c.target = disk ? mcm_load_relaxed(&disk->name_hash) : 0;
		/* Records are for media that outlive their owner. */
		if (disk && mcm_segment_is(disk, MCP_TRAIT_VOLATILE))
			c.record_len = 0;
		r = disk ? mcm_plan_copy(p, &c) : -MC_ETOOBIG;
	}
	if (r == 0)
		return true;
	if (r != -MC_ENOOBJECT && r != -MC_ETOOBIG && offload_later(p, s, disk, e, c.size, r))
		return false;
	direction_end(&offloading, r == -MC_ENOOBJECT || r == MCP_AGAIN ? &cancelled : &failed, 1);
	range_list(p->m, s, e->range, e->slot);
	return r == -MC_ENOOBJECT || r == -MC_ETOOBIG;
}

static void offload_backlog(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk)
{
	struct mcm_backlog_entry e;
	bool more = true;

	while (more && !mcm_plan_full(p)) {
		mc_mutex_lock(&s->lock);
		more = mcm_segment_state(s) == MCP_SEG_OK && (s->backlog.urgent || memory_needed(p->m, s)) &&
		       mcm_backlog_pop(&s->backlog, &e);
		mc_mutex_unlock(&s->lock);
		if (more)
			more = offload_one(p, s, disk, &e);
	}
}

/* Objects that are not in the backlog: it was full, the copy failed, the master has restarted. */
static void offload_walk(struct mcm_plan *p, struct mcm_segment *s, struct mcm_segment *disk)
{
	struct mcm_victim v[WALK_BATCH];
	bool end = false, more = true;
	unsigned n, i;

	if (mc_mutex_trylock(&s->run_lock))
		return;
	mc_mutex_lock(&s->lock);
	/* One walk for all that was missed until now: on a disk that is smaller than the memory, objects without a copy
	 * are always left. */
	if (!s->backlog.walks && mcm_segment_state(s) == MCP_SEG_OK) {
		s->alloc.cursor = s->alloc.first;
		s->backlog.missed = false;
		s->backlog.walks = true;
	}
	mc_mutex_unlock(&s->lock);
	p->ranges = WALK_RANGES;
	while (more && !end && p->ranges && !mcm_plan_full(p)) {
		n = mcm_plan_walk(p, s, v, WALK_BATCH, &end);
		for (i = 0; i < n && more && !mcm_plan_full(p); i++) {
			struct mcm_backlog_entry e = { v[i].slot, v[i].range, v[i].generation, 0 };
			struct mcm_copy_spec c;

			const struct mcm_object *o = mcm_object(&p->m->index, v[i].slot);

			if (mcm_object_below(p->m, o, s) ||
			    mcm_load_relaxed(&o->flags) & (MCM_OBJ_HARD | MCM_OBJ_KIND) ||
			    !entry_describe(p, s, &e, &c))
				continue;
			mc_metric_add(&enqueued, 1);
			mc_metric_add(&pending, 1);
			more = offload_one(p, s, disk, &e);
		}
		if (!end && i == n)
			continue;
		mc_mutex_lock(&s->lock);
		s->backlog.walks = !end;
		/* The cursor is behind the rest of the batch. */
		s->backlog.missed |= i < n;
		mc_mutex_unlock(&s->lock);
	}
	mc_mutex_unlock(&s->run_lock);
}

static void offload_segment(struct mcm_plan *p, struct mcm_segment *s)
{
	struct mcm_segment *disk = disk_choose(p, s, 0);
	bool missed;

	p->t = &p->m->offload.offload;
	if (!disk)
		return;
	offload_backlog(p, s, disk);
	mc_mutex_lock(&s->lock);
	missed = s->backlog.missed || s->backlog.walks;
	mc_mutex_unlock(&s->lock);
	if (missed && memory_needed(p->m, s) && !mcm_plan_full(p))
		offload_walk(p, s, disk);
	if (!mcm_plan_full(p))
		mcm_store_relaxed(&s->backlog.wanted, false);
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

		mc_mutex_lock(&s->lock);
		more = mcm_segment_state(s) == MCP_SEG_OK && mcm_backlog_pop(&s->promotions, &e);
		mc_mutex_unlock(&s->lock);
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
	unsigned n = mcm_object_extents(&m->index, o, p), from = 0;
	struct mcm_backlog_entry e;
	struct mcm_segment *s;
	bool queued = false;

	for (unsigned i = 1; i < n; i++)
		if (mcm_load_relaxed(&mcm_segment(&m->segments, p[i].segment)->rank) <
		    mcm_load_relaxed(&mcm_segment(&m->segments, p[from].segment)->rank))
			from = i;
	s = mcm_segment(&m->segments, p[from].segment);
	e = (struct mcm_backlog_entry){ slot, p[from].range, o->generation, 0 };
	mc_mutex_lock(&s->lock);
	if (mcm_segment_state(s) == MCP_SEG_OK)
		queued = backlog_add(&s->promotions, m->conf.promotion_queue_limit, &e, &promotion, false);
	mc_mutex_unlock(&s->lock);
	return queued;
}

/* Shard locked: queue the object for a copy on the next rank, before all others. */
static bool offload_queue(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;
	bool queued = false;

	for (i = 0; i < n && !queued; i++) {
		struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);
		const struct mcm_backlog_entry e = { slot, p[i].range, o->generation, 0 };

		if (mcm_object_below(m, o, s))
			continue;
		mc_mutex_lock(&s->lock);
		if (mcm_segment_state(s) == MCP_SEG_OK && __atomic_load_n(&s->offloads, __ATOMIC_RELAXED))
			queued = backlog_add(&s->backlog, m->conf.offloading_queue_limit, &e, &offloading, true);
		mc_mutex_unlock(&s->lock);
	}
	return queued;
}

/* Has the object a copy on this medium, or, for copies to a later rank, on one of at least that rank? */
static bool tier_is_reached(uint8_t media, uint8_t medium)
{
	if (!mcp_medium_is(medium, MCP_TRAIT_COPIES))
		return media & 1u << medium;
	for (unsigned i = 0; i < MCP_MEDIA; i++)
		if (media & 1u << i && mcp_medium(i)->rank >= mcp_medium(medium)->rank)
			return true;
	return false;
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
	if (!o->range || tier_is_reached(mcm_object_media(m, o), medium))
		return 0;
	if (!(mcp_medium_is(medium, MCP_TRAIT_COPIES) ? offload_queue : promote_queue)(m, slot))
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
	MC_LOCKED(&m->tasks.lock);
	mcm_nof_plan(&p);
	if (!m->offload.on)
		return p.n;
	p.t = &m->offload.offload;
	/* If others' copies, or its own, hang for long, puts do not wait for its disks any more. */
	if (!mcm_plan_barred(&p))
		mcm_offload_owner_asks(m, s->client);
	p.t = &m->offload.promote;
	while ((seg = mcm_plan_own(&p, &i)) && !mcm_plan_full(&p))
		if (mcm_segment_is(seg, MCP_TRAIT_COPIES))
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
	struct mcm_segment *s = mcm_segment(&m->segments, u->from.segment);

	if (!m->offload.on || !(o->flags & MCM_OBJ_LIVE) || !mcm_object_has(&m->index, o, u->from))
		return;
	/* A copy that failed is made again.  Another task may have kept unlisted_list() from the range. */
	if (mcm_offload_keeps(m, s, o))
		mcm_evict_relist(m, s, u->from.range, u->slot);
	else if (u->task->type == MCM_TASK_OFFLOAD)
		range_list(m, s, u->from.range, u->slot);
}

void mcm_offload_disk_ended(const struct mcm *m, struct mcm_segment *disk, int result)
{
	if (result == 0) {
		mcm_store_relaxed(&disk->errors, 0);
		if (__atomic_exchange_n(&disk->refuses, false, __ATOMIC_RELAXED))
			mc_info(LOG, "the segment takes copies again medium=%s segment=%s",
				mcp_medium(disk->medium)->name, disk->name);
		return;
	}
	mc_warn(LOG, "a copy failed medium=%s segment=%s: %s", mcp_medium(disk->medium)->name, disk->name,
		mc_strerror(result));
	disk_refuses(m, disk, __atomic_add_fetch(&disk->errors, 1, __ATOMIC_RELAXED), "many copies failed in a row");
}

void mcm_offload_ended(struct mcm *m, const struct mcm_unit *u, int result)
{
	bool offload = u->task->type == MCM_TASK_OFFLOAD;
	const struct direction *d = offload ? &offloading : &promotion;
	struct mcm_segment *disk = mcm_segment(&m->segments, u->to.segment);

	if (result == 0) {
		if (offload)
			mcm_offload_disk_ended(m, disk, 0);
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
	/* The connection of the owner has ended, or the owner is mounting its segment again: that says nothing about
	 * the medium. */
	if (result != -ECANCELED)
		mcm_offload_disk_ended(m, disk, result);
}
