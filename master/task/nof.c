/* SPDX-License-Identifier: Apache-2.0
 * nof.c - copies of objects on NoF disks of other owners: choice of the disks, and the copies that owners fetch. */
#include <config.h>

#include "master/task/nof.h"

#include <limits.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/task_i.h"
#include "proto/codec.h"
#include "proto/rpc_server.h"

#define LOG "nof"
#define COPIES "mooncake_master_nof_copies_total"

MC_COUNTER(wanted, "mooncake_master_nof_wanted_total", "", "Copies on NoF disks that puts asked for")
MC_COUNTER(missing, "mooncake_master_nof_missing_total", "",
	   "Copies on NoF disks that puts asked for and that no disk of another owner could take")
MC_COUNTER(made, COPIES, "result=\"ok\"", "Copies on NoF disks of other owners, by their end")
MC_COUNTER(failed, COPIES, "result=\"failed\"", "Copies on NoF disks of other owners, by their end")
MC_COUNTER(cancelled, COPIES, "result=\"cancelled\"", "Copies on NoF disks of other owners, by their end")
MC_GAUGE(pending, "mooncake_master_nof_pending", "", "Copies on NoF disks that wait, or are being made")

void mcm_nof_init(struct mcm *m)
{
	m->nof.task = (struct mcm_task){ .type = MCM_TASK_NOF, .status = MCP_TASK_RUNNING, .max_active = UINT_MAX };
}

static void nof_end(struct mc_metric *how, unsigned n)
{
	mc_metric_add(how, n);
	mc_metric_add(&pending, -(int64_t)n);
}

void mcm_nof_dropped(unsigned n)
{
	if (n)
		nof_end(&cancelled, n);
}

/* ---- choice of the disks ------------------------------------------------------------------------ */

struct choice {
	struct mcm_segment *s;
	struct mcp_id owner;
	unsigned turn;		/* place in the list of preferred ones; its length: not in it */
	double fill;
};

/* The object to copy, and the owners whose disks do not count. */
struct wish {
	uint32_t slot;
	uint64_t generation, size;
	struct mcp_id not[MCM_REPLICA_MAX + 1];
	unsigned n_not;
	unsigned room;		/* replicas that the object may get */
	uint16_t tenant;	/* mcm_segment.tenant of its segments */
};

static bool is_in(const struct mcp_id *list, unsigned n, struct mcp_id id)
{
	for (unsigned i = 0; i < n; i++)
		if (mcp_id_eq(list[i], id))
			return true;
	return false;
}

static bool choice_better(const struct choice *a, const struct choice *b)
{
	return a->turn != b->turn ? a->turn < b->turn : a->fill < b->fill;
}

/* Keep the best @max, best first, one of each owner. */
static void choice_add(struct choice *c, unsigned *n, unsigned max, const struct choice *new)
{
	unsigned at = 0;

	while (at < *n && !mcp_id_eq(c[at].owner, new->owner))
		at++;
	if (at < *n) {
		if (!choice_better(new, &c[at]))
			return;
		memmove(&c[at], &c[at + 1], (--*n - at) * sizeof(*c));
	}
	for (at = *n; at && choice_better(new, &c[at - 1]); at--)
		if (at < max)
			c[at] = c[at - 1];
	if (at < max)
		c[at] = *new;
	*n += *n < max;
}

static bool disk_takes(const struct mcm *m, struct mcm_segment *s, uint64_t size)
{
	return mcm_segment_is(s, MCP_TRAIT_NOF) && mcm_segment_offloadable(s) && !mcm_load_relaxed(&s->adopting) &&
	       !mcm_offload_disk_rests(m, s) && mcm_offload_disk_fits(m, s, size);
}

static unsigned turn_of(const struct mcm_nof_request *rq, uint64_t name)
{
	unsigned i = 0;

	while (i < rq->n_preferred && rq->preferred[i] != name)
		i++;
	return i;
}

static unsigned wish_choose(struct mcm *m, const struct mcm_nof_request *rq, const struct wish *w, unsigned max,
		       struct choice ret[MCM_REPLICA_MAX])
{
	struct mcm_segments *ss = &m->segments;
	unsigned n = 0;

	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && max; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];
		struct choice one = { .s = s, .owner = s->client };

		if (!disk_takes(m, s, w->size) || mcm_load_relaxed(&s->tenant) != w->tenant ||
		    is_in(w->not, w->n_not, s->client))
			continue;
		one.turn = turn_of(rq, s->name_hash);
		one.fill = (double)mcm_load_relaxed(&s->used) / (double)s->size;
		choice_add(ret, &n, max, &one);
	}
	mc_rwlock_unlock(&ss->lock);
	return n;
}

/* False: the version is gone, or has no bytes. */
static bool wish_of(struct mcm *m, struct mcp_bytes key, uint64_t generation, struct wish *w)
{
	uint32_t hash = mcm_index_hash(&m->index, key.data, key.len);
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	struct mcm_extent p[MCM_REPLICA_MAX];
	const struct mcm_object *o;
	unsigned n;

	MC_LOCKED(&sh->lock);
	w->slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	o = w->slot ? mcm_object(&m->index, w->slot) : NULL;
	if (!o || o->generation != generation || !o->range)
		return false;
	w->generation = generation;
	w->size = mcm_object_size(o);
	n = mcm_object_extents(&m->index, o, p);
	for (unsigned i = 0; i < n; i++)
		w->not[w->n_not++] = mcm_segment_client(mcm_segment(&m->segments, p[i].segment));
	w->tenant = n ? mcm_load_relaxed(&mcm_segment(&m->segments, p[0].segment)->tenant) : 0;
	w->room = MCM_REPLICA_MAX - n;
	return true;
}

static bool queue_push(struct mcm *m, struct mcm_segment *s, const struct mcm_backlog_entry *e)
{
	MC_LOCKED(&s->lock);
	return mcm_segment_state(s) == MCP_SEG_OK &&
	       mcm_backlog_push(&s->nof, m->conf.offloading_queue_limit, e);
}

static void tell_missing(struct mcm *m, unsigned n)
{
	mc_metric_add(&missing, n);
	if (mcm_load_relaxed(&m->nof.told) || __atomic_exchange_n(&m->nof.told, true, __ATOMIC_RELAXED))
		return;
	mc_warn(LOG, "a put asked for more copies on NoF disks than disks of other owners can take "
		"(mooncake_master_nof_missing_total counts these): mcctl df shows the disks missing=%u", n);
}

unsigned mcm_nof_want(struct mcm *m, const struct mcm_nof_request *rq, struct mcp_bytes key, uint64_t generation)
{
	struct wish w = { .not = { rq->client }, .n_not = 1 };
	struct choice c[MCM_REPLICA_MAX];
	unsigned n, queued = 0;

	if (!wish_of(m, key, generation, &w))
		return 0;
	n = wish_choose(m, rq, &w, rq->n < w.room ? rq->n : w.room, c);
	for (unsigned i = 0; i < n; i++) {
		const struct mcm_backlog_entry e = { w.slot, 0, generation, 0 };

		/* Before the entry can end. */
		mc_metric_add(&pending, 1);
		if (queue_push(m, c[i].s, &e))
			queued++;
		else
			mc_metric_add(&pending, -1);
	}
	mc_metric_add(&wanted, rq->n);
	if (queued < rq->n)
		tell_missing(m, rq->n - queued);
	return queued;
}

/* ---- copies ------------------------------------------------------------------------------------- */

/* The readable replica of the lowest rank.  False: there is none. */
static bool source_of(const struct mcm *m, const struct mcm_object *o, struct mcm_extent *ret)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p);
	uint8_t least = MCP_RANKS;

	for (unsigned i = 0; i < n; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);

		if (!mcm_segment_readable(s) || mcm_load_relaxed(&s->paused) || mcm_load_relaxed(&s->rank) >= least)
			continue;
		least = mcm_load_relaxed(&s->rank);
		*ret = p[i];
	}
	return least < MCP_RANKS;
}

/* Has this client a copy? */
static bool client_has(const struct mcm *m, const struct mcm_object *o, struct mcp_id client)
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p);
	bool has = false;

	for (unsigned i = 0; i < n; i++)
		has |= mcp_id_eq(mcm_segment_client(mcm_segment(&m->segments, p[i].segment)), client);
	return has;
}

/* 0: describe the copy.  -MC_ENOOBJECT: it is not wanted any more; -MC_EREPLICA_GONE: nothing can be read now. */
static int copy_describe(const struct mcm_plan *p, const struct mcm_backlog_entry *e, struct mcm_copy_spec *c)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&p->m->index, e->slot);
	const struct mcm_object *o = mcm_object(&p->m->index, e->slot);
	int r = 0;

	if (!(o->flags & MCM_OBJ_LIVE) || o->generation != e->generation || client_has(p->m, o, p->s->client))
		r = -MC_ENOOBJECT;
	else if (!source_of(p->m, o, &c->from))
		r = -MC_EREPLICA_GONE;
	if (r == 0) {
		mcm_plan_describe(p->m, o, e->slot, c);
		if (p->record)
			c->record_len = mcm_adopt_describe(p->m, e->slot, p->record + (size_t)p->n * MCM_ADOPT_MAX,
							   &c->name);
	}
	mc_mutex_unlock(&sh->lock);
	return r;
}

/* The copy did not begin, or has failed.  True: it waits for the next try. */
static bool entry_again(struct mcm *m, struct mcm_segment *s, struct mcm_backlog_entry e)
{
	return ++e.failures < MCM_NOF_TRIES && queue_push(m, s, &e);
}

/* Plan the copy of an entry to the NoF disk @s.  False: the plan takes no more entries now. */
static bool copy_begin(struct mcm_plan *p, struct mcm_segment *s, const struct mcm_backlog_entry *e)
{
	struct mcm_copy_spec c = { .target = s->name_hash, .target_index = e->failures };
	int r = copy_describe(p, e, &c);

	if (r == 0)
		r = mcm_plan_copy(p, &c);
	if (r == 0)
		return true;
	if (r == -MC_ENOOBJECT) {
		nof_end(&cancelled, 1);
		return true;
	}
	/* The time for evictions is over: this says nothing about the copy. */
	if (r == MCP_AGAIN ? !queue_push(p->m, s, e) : !entry_again(p->m, s, *e))
		nof_end(&failed, 1);
	return false;
}

static void plan_segment(struct mcm_plan *p, struct mcm_segment *s)
{
	struct mcm_backlog_entry e;
	bool more = !mcm_offload_disk_rests(p->m, s) && !mcm_load_relaxed(&s->adopting);

	while (more && !mcm_plan_full(p)) {
		mc_mutex_lock(&s->lock);
		more = mcm_segment_state(s) == MCP_SEG_OK && mcm_backlog_pop(&s->nof, &e);
		mc_mutex_unlock(&s->lock);
		if (more)
			more = copy_begin(p, s, &e);
	}
}

void mcm_nof_plan(struct mcm_plan *p)
{
	struct mcm_segment *s;
	unsigned i = 0;

	p->t = &p->m->nof.task;
	while (!mcm_plan_full(p) && (s = mcm_plan_own(p, &i)))
		if (mcm_segment_is(s, MCP_TRAIT_NOF))
			plan_segment(p, s);
}

void mcm_nof_ended(struct mcm *m, const struct mcm_unit *u, int result)
{
	struct mcm_segment *s = mcm_segment(&m->segments, u->to.segment);
	const struct mcm_backlog_entry e = { u->slot, 0, u->version, u->target };

	if (result == 0) {
		mcm_offload_disk_ended(m, s, 0);
		nof_end(&made, 1);
	} else if (result == -MC_ENOOBJECT) {
		nof_end(&cancelled, 1);
	} else {
		/* A source that cannot be read is not the disk's fault. */
		if (result != -MC_EREPLICA_GONE)
			mcm_offload_disk_ended(m, s, result);
		if (!entry_again(m, s, e))
			nof_end(&failed, 1);
	}
}
