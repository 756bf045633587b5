/* SPDX-License-Identifier: Apache-2.0
 * task.c - the table of tasks: creation, queries, cancellation, and periodic work. */
#include <config.h>

#include "master/task/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/random.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/task/task_i.h"
#include "proto/codec.h"

#define LOG "task"
#define PERIOD_MS 100
#define MEASURE_MS 1000
#define WAIT_MS 2000		/* after that time, a task on one object says why it waits */
#define ACTIVE_DEFAULT 4
#define ACTIVE_MAX 1024

MC_COUNTER(created, "mooncake_master_tasks_total", "", "Tasks created")
MC_COUNTER(ended_well, "mooncake_master_tasks_ended_total", "status=\"succeeded\"", "Tasks ended")
MC_COUNTER(ended_badly, "mooncake_master_tasks_ended_total", "status=\"failed\"", "Tasks ended")
MC_COUNTER(ended_early, "mooncake_master_tasks_ended_total", "status=\"canceled\"", "Tasks ended")
MC_GAUGE(running, "mooncake_master_tasks_running", "", "Tasks that are pending or running")

static uint64_t wall_ms(void)
{
	return mc_wall_ns() / MC_NS_PER_MS;
}

void mcm_tasks_init(struct mcm_tasks *t)
{
	memset(t, 0, sizeof(*t));
	mc_mutex_init(&t->lock);
	mc_list_init(&t->active);
	mc_list_init(&t->finished);
	mc_list_init(&t->units);
	mc_stop_init(&t->stop);
}

static void names_free(struct mcm_task_name *names, unsigned n)
{
	for (unsigned i = 0; names && i < n; i++)
		free(names[i].name);
	free(names);
}

static void task_free(struct mcm_task *t)
{
	if (!t)
		return;
	names_free(t->source, t->n_sources);
	names_free(t->target, t->n_targets);
	free(t->key);
	free(t->failure);
	free(t);
}

static void list_free(struct mc_list *l)
{
	while (!mc_list_empty(l)) {
		struct mcm_task *t = mc_list_first(l, struct mcm_task, link);

		mc_list_remove(&t->link);
		task_free(t);
	}
}

void mcm_tasks_done(struct mcm *m)
{
	struct mcm_tasks *ts = &m->tasks;

	list_free(&ts->active);
	list_free(&ts->finished);
	free(ts->loss);
	mc_stop_done(&ts->stop);
	mc_mutex_destroy(&ts->lock);
}

/* ---- names ---- */

static int names_copy(const struct mcp_bytes *from, unsigned n, struct mcm_task_name **ret, unsigned *ret_n)
{
	struct mcm_task_name *names;

	*ret = NULL;
	*ret_n = 0;
	if (!n)
		return 0;
	if (n > MCM_TASK_NAMES)
		return mc_fail(-MC_EPARAM, "too many segments: count=%u maximum=%u", n, MCM_TASK_NAMES);
	names = calloc(n, sizeof(*names));
	if (!names)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		if (!from[i].len || from[i].len > MCM_NAME_MAX) {
			names_free(names, n);
			return mc_fail(-MC_EPARAM, "invalid length of a segment's name: bytes=%u", from[i].len);
		}
		names[i].name = strndup(from[i].data, from[i].len);
		names[i].hash = mc_hash(from[i].data, from[i].len, 0);
		if (!names[i].name) {
			names_free(names, n);
			return -ENOMEM;
		}
	}
	*ret = names;
	*ret_n = n;
	return 0;
}

bool mcm_task_names(const struct mcm_task_name *names, unsigned n, uint64_t hash)
{
	for (unsigned i = 0; i < n; i++)
		if (names[i].hash == hash)
			return true;
	return false;
}

int mcm_task_names_decode(const struct mcp_seq *list, struct mcp_bytes **ret, unsigned *ret_n)
{
	struct mcp_bytes *names;
	struct mcp_name name;
	struct mcp_iter it;
	unsigned n = 0;

	*ret = NULL;
	*ret_n = 0;
	if (list->count > MCM_TASK_NAMES)
		return mc_fail(-MC_EPARAM, "too many segments: count=%u maximum=%u", list->count,
			       MCM_TASK_NAMES);
	if (!list->count)
		return 0;
	names = calloc(list->count, sizeof(*names));
	if (!names)
		return -ENOMEM;
	mcp_iter_init(&it, list, &mcp_desc_name);
	while (mcp_iter_next(&it, &name))
		names[n++] = name.name;
	*ret = names;
	*ret_n = n;
	return 0;
}

static int check_mounted(struct mcm *m, const struct mcm_task_name *names, unsigned n)
{
	int r = 0;

	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < n && r == 0; i++)
		if (!mcm_segments_named(&m->segments, names[i].hash, NULL))
			r = mc_fail(-MC_ENOSEGMENT, "no segment is named %s", names[i].name);
	mc_rwlock_unlock(&m->segments.lock);
	return r;
}

/* ---- creating ---- */

static void task_step(struct mcm *m, struct mcm_task *t);
static void task_measure(struct mcm *m, struct mcm_task *t);
static void tasks_forget_old(struct mcm *m);

static int check_request(const struct mcm_task_request *rq)
{
	bool one = rq->type == MCP_TASK_COPY || rq->type == MCP_TASK_MOVE ||
		   rq->type == MCP_TASK_REPLICATE;

	if (rq->type >= MCP_TASK_TYPES)
		return mc_fail(-MC_EPARAM, "unknown type of task %u", rq->type);
	if (rq->max_active > ACTIVE_MAX)
		return mc_fail(-MC_EPARAM, "too many copies at a time: count=%u maximum=%u", rq->max_active,
			       ACTIVE_MAX);
	if (one != (rq->key.len > 0))
		return mc_fail(-MC_EPARAM, one ? "the task needs a key" :
			       "a task about segments takes no key");
	if (one && !mcm_key_ok(rq->key))
		return mc_fail(-MC_EKEY, "invalid key: bytes=%u", rq->key.len);
	if (rq->type == MCP_TASK_COPY && (!rq->n_targets || rq->n_targets > MCM_TASK_TARGETS))
		return mc_fail(-MC_EPARAM, "a copy task needs 1 to %u targets", MCM_TASK_TARGETS);
	if (rq->type == MCP_TASK_MOVE && (rq->n_sources != 1 || rq->n_targets != 1))
		return mc_fail(-MC_EPARAM, "a move task needs one source and one target");
	if (rq->type == MCP_TASK_MOVE && rq->source[0].len == rq->target[0].len &&
	    !memcmp(rq->source[0].data, rq->target[0].data, rq->source[0].len))
		return mc_fail(-MC_EPARAM, "source and target are the same segment");
	if ((rq->type == MCP_TASK_DRAIN || rq->type == MCP_TASK_EVICT) && !rq->n_sources)
		return mc_fail(-MC_EPARAM, "the task needs at least one source segment");
	return 0;
}

/* A segment that is being drained accepts no objects: if targets are given, at least one must not be a source. */
static int check_targets(const struct mcm_task *t)
{
	unsigned i = 0;

	while (t->type == MCP_TASK_DRAIN && i < t->n_targets &&
	       mcm_task_names(t->source, t->n_sources, t->target[i].hash))
		i++;
	return i && i == t->n_targets ?
		mc_fail(-MC_EPARAM, "all targets are segments to be drained") : 0;
}

static int check_object(struct mcm *m, struct mcm_task *t)
{
	uint32_t hash, slot;
	struct mcm_shard *sh;
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n, i;

	if (!t->key)
		return 0;
	hash = mcm_index_hash(&m->index, t->key, t->key_len);
	sh = mcm_index_shard(&m->index, hash);
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, t->key, t->key_len);
	if (!slot)
		return mc_fail(-MC_ENOOBJECT, "no such object");
	if (!mcm_object_readable(m, mcm_object(&m->index, slot)))
		return mcm_object_missing(m, mcm_object(&m->index, slot));
	t->total_objects = t->type == MCP_TASK_COPY ? t->n_targets : 1;
	t->total = mcm_object_size(mcm_object(&m->index, slot)) * t->total_objects;
	if (t->type != MCP_TASK_MOVE)
		return 0;
	n = mcm_object_extents(&m->index, mcm_object(&m->index, slot), p);
	for (i = 0; i < n; i++)
		if (mcm_load_relaxed(&mcm_segment(&m->segments, p[i].segment)->name_hash) ==
		    t->source[0].hash)
			return 0;
	return mc_fail(-MC_EREPLICA, "the object has no copy on %s", t->source[0].name);
}

/* tasks.lock held.  Does an active task or the limit conflict with the new task? */
static int check_table(struct mcm *m, const struct mcm_task *t)
{
	struct mcm_tasks *ts = &m->tasks;
	struct mc_list *pos;

	if (ts->n_pending >= m->conf.max_total_pending_tasks)
		return mc_fail(-MC_ELIMIT, "too many tasks are pending: count=%u", ts->n_pending);
	mc_list_for_each(pos, &ts->active) {
		const struct mcm_task *o = mc_container_of(pos, struct mcm_task, link);

		if (o->type != t->type)
			continue;
		if (t->type == MCP_TASK_REBALANCE)
			return mc_fail(-MC_EUNAVAILABLE, "a rebalance task is active");
		for (unsigned i = 0; t->type == MCP_TASK_DRAIN && i < t->n_sources; i++)
			if (mcm_task_names(o->source, o->n_sources, t->source[i].hash))
				return mc_fail(-MC_EUNAVAILABLE, "segment %s is being drained",
					       t->source[i].name);
	}
	return 0;
}

static int task_new(struct mcm *m, const struct mcm_task_request *rq, struct mcm_task **ret)
{
	struct mcm_task *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	mc_list_init(&t->link);
	t->id = (struct mcp_id){ mc_random_u64() | 1, mc_random_u64() };
	t->type = rq->type;
	t->max_active = rq->max_active ? rq->max_active : ACTIVE_DEFAULT;
	t->created_ms = t->updated_ms = wall_ms();
	t->began_ms = mcm_now_ms(m);
	r = names_copy(rq->source, rq->n_sources, &t->source, &t->n_sources);
	if (r == 0)
		r = names_copy(rq->target, rq->n_targets, &t->target, &t->n_targets);
	if (r == 0 && rq->key.len) {
		t->key = malloc(rq->key.len);
		t->key_len = rq->key.len;
		if (t->key)
			memcpy(t->key, rq->key.data, rq->key.len);
		else
			r = -ENOMEM;
	}
	if (r < 0)
		task_free(t);
	else
		*ret = t;
	return r;
}

static void task_add(struct mcm *m, struct mcm_task *t)
{
	struct mcm_tasks *ts = &m->tasks;

	mc_list_push_back(&ts->active, &t->link);
	ts->n_pending++;
	__atomic_store_n(&ts->n_active, ts->n_active + 1, __ATOMIC_RELAXED);
	mc_metric_add(&created, 1);
	mc_metric_add(&running, 1);
	task_measure(m, t);
	/* Those of an earlier drain do not count. */
	(void)mcm_drain_losses(m, t);
	mcm_task_keep(m, t);
}

int mcm_task_create(struct mcm *m, const struct mcm_task_request *rq, struct mcp_id *ret)
{
	struct mcm_task_request of = *rq;
	char buf[MCM_LINK_KEY_MAX];
	struct mcm_task *t = NULL;
	int r;

	/* An object with several names has its copies under their shared key. */
	of.key = mcm_link_resolve(m, rq->key, buf);
	r = check_request(&of);
	if (r == 0)
		r = task_new(m, &of, &t);
	if (r < 0)
		return r;
	r = check_targets(t);
	if (r == 0)
		r = check_mounted(m, t->source, t->n_sources);
	if (r == 0)
		r = check_mounted(m, t->target, t->n_targets);
	if (r == 0)
		r = check_object(m, t);
	if (r == 0)
		r = mcm_task_can_be_kept(m, t);
	if (r == 0) {
		MC_LOCKED(&m->tasks.lock);
		r = check_table(m, t);
		if (r == 0) {
			*ret = t->id;
			task_add(m, t);
			/* A drain marks its sources, which accept no new objects from now on. */
			task_step(m, t);
			tasks_forget_old(m);
		}
	}
	if (r < 0) {
		task_free(t);
		return r;
	}
	mc_stop_kick(&m->tasks.stop);
	return 0;
}

int mcm_task_replicate(struct mcm *m, struct mcp_bytes key)
{
	struct mcm_task_request rq = { .type = MCP_TASK_REPLICATE, .key = key };
	struct mc_list *pos;
	struct mcp_id id;

	mc_mutex_lock(&m->tasks.lock);
	mc_list_for_each(pos, &m->tasks.active) {
		const struct mcm_task *t = mc_container_of(pos, struct mcm_task, link);

		if (t->key_len == key.len && !memcmp(t->key, key.data, key.len)) {
			mc_mutex_unlock(&m->tasks.lock);
			return -MC_EUNAVAILABLE;
		}
	}
	mc_mutex_unlock(&m->tasks.lock);
	return mcm_task_create(m, &rq, &id);
}

/* ---- queries ---- */

/* Copies that a task on one object has yet to make. */
static struct mcm_task_left copies_left(const struct mcm_task *t)
{
	uint64_t n = t->total_objects - (uint64_t)__builtin_popcount(t->done_targets);

	if (t->status == MCP_TASK_SUCCEEDED || !t->total_objects)
		n = 0;
	return (struct mcm_task_left){ n ? t->total / t->total_objects * n : 0, n };
}

struct mcm_task_left mcm_task_left(struct mcm *m, const struct mcm_task *t)
{
	struct mcm_task_left sum = { 0, 0 };

	if (t->key)
		return copies_left(t);
	if (!t->n_sources)
		return sum;
	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		if (mcm_task_names(t->source, t->n_sources, s->name_hash)) {
			sum.bytes += mcm_load_relaxed(&s->used);
			sum.objects += mcm_load_relaxed(&s->objects);
		}
	}
	mc_rwlock_unlock(&m->segments.lock);
	return sum;
}

static struct mcm_task *task_find(const struct mc_list *list, struct mcp_id id)
{
	struct mc_list *pos;

	mc_list_for_each(pos, list) {
		struct mcm_task *t = mc_container_of(pos, struct mcm_task, link);

		if (mcp_id_eq(t->id, id))
			return t;
	}
	return NULL;
}

static int each_backwards(const struct mc_list *list,
			  int (*fn)(void *arg, const struct mcm_task *t), void *arg)
{
	int r = 0;

	for (struct mc_list *pos = list->prev; pos != list && r == 0; pos = pos->prev)
		r = fn(arg, mc_container_of(pos, struct mcm_task, link));
	return r;
}

int mcm_task_each(struct mcm *m, struct mcp_id id,
		  int (*fn)(void *arg, const struct mcm_task *t), void *arg)
{
	struct mcm_tasks *ts = &m->tasks;
	const struct mcm_task *t;
	int r;

	MC_LOCKED(&ts->lock);
	if (mcp_id_zero(id)) {
		r = each_backwards(&ts->active, fn, arg);
		return r ? r : each_backwards(&ts->finished, fn, arg);
	}
	t = task_find(&ts->active, id);
	if (!t)
		t = task_find(&ts->finished, id);
	return t ? fn(arg, t) : mc_fail(-MC_ENOTASK, "no task has this id");
}

/* ---- ending; tasks.lock held ---- */

void mcm_task_set_draining(struct mcm *m, const struct mcm_task *t, uint8_t state)
{
	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < m->segments.n_live; i++) {
		struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		if (mcm_task_names(t->source, t->n_sources, s->name_hash)) {
			__atomic_store_n(&s->draining, state, __ATOMIC_RELAXED);
			mcm_segment_usable(&m->segments, s);
		}
	}
	mc_rwlock_unlock(&m->segments.lock);
}

void mcm_task_end(struct mcm *m, struct mcm_task *t, uint8_t status, int error, const char *why)
{
	struct mcm_tasks *ts = &m->tasks;

	if (t->status == MCP_TASK_PENDING)
		ts->n_pending--;
	t->status = status;
	t->error = error;
	t->updated_ms = wall_ms();
	if (why != t->message)
		snprintf(t->message, sizeof(t->message), "%s", why);
	if (t->type == MCP_TASK_DRAIN)
		mcm_task_set_draining(m, t, status == MCP_TASK_SUCCEEDED ? MCP_SEG_DRAINED : 0);
	t->drained = t->type == MCP_TASK_DRAIN && status == MCP_TASK_SUCCEEDED;
	if (t->drained)
		mcm_task_keep(m, t);
	else
		mcm_task_drop(m, t->id);
	mc_list_remove(&t->link);
	mc_list_push_back(&ts->finished, &t->link);
	ts->n_finished++;
	__atomic_store_n(&ts->n_active, ts->n_active - 1, __ATOMIC_RELAXED);
	mc_metric_add(status == MCP_TASK_SUCCEEDED ? &ended_well : status == MCP_TASK_FAILED ?
		      &ended_badly : &ended_early, 1);
	mc_metric_add(&running, -1);
	if (!t->key)
		mc_info(LOG, "task ended type=%u status=%u moved=%llu failed=%llu: %s", t->type,
			status, (unsigned long long)t->succeeded, (unsigned long long)t->failed,
			t->message);
}

/* Free the oldest finished tasks above the limit, except tasks with running copies, and drains that
 * must stay cancellable because their segments would otherwise accept no objects for ever. */
static void tasks_forget_old(struct mcm *m)
{
	struct mcm_tasks *ts = &m->tasks;
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &ts->finished) {
		struct mcm_task *t = mc_container_of(pos, struct mcm_task, link);

		if (ts->n_finished <= m->conf.max_total_finished_tasks)
			return;
		if (t->active || mcm_task_keeps_drained(m, t))
			continue;
		mc_list_remove(&t->link);
		mcm_task_drop(m, t->id);
		task_free(t);
		ts->n_finished--;
	}
}

void mcm_task_object_failed(struct mcm *m, struct mcm_task *t, uint64_t generation, int why)
{
	struct mcm_task_failure *f;
	unsigned i;

	for (i = 0; i < t->n_failures && t->failure[i].generation != generation; i++)
		;
	if (i == t->n_failures) {
		if (i % 16 == 0) {
			f = realloc(t->failure, (i + 16) * sizeof(*f));
			if (!f)
				return;
			t->failure = f;
		}
		t->failure[t->n_failures++] = (struct mcm_task_failure){ .generation = generation };
	}
	f = &t->failure[i];
	f->tries++;
	f->retry_ms = mcm_now_ms(m) + 500 * f->tries;
	if (f->tries < MCM_UNIT_TRIES)
		return;
	t->failed++;
	t->error = why;
	/* The message of a drain tells why it waits, until the drain ends. */
	if (t->type != MCP_TASK_DRAIN)
		snprintf(t->message, sizeof(t->message), "an object could not be copied: %s", mc_strerror(why));
	if (t->failed >= MCM_TASK_FAILURES && t->status == MCP_TASK_RUNNING)
		mcm_task_end(m, t, MCP_TASK_FAILED, why, "too many objects could not be copied");
}

bool mcm_task_object_due(const struct mcm *m, const struct mcm_task *t, uint64_t generation)
{
	for (unsigned i = 0; i < t->n_failures; i++)
		if (t->failure[i].generation == generation)
			return t->failure[i].tries < MCM_UNIT_TRIES &&
			       mcm_now_ms(m) >= t->failure[i].retry_ms;
	return true;
}

/* ---- restore after a restart ---- */

int mcm_task_restore(struct mcm *m, const struct mcp_task *msg)
{
	struct mcm_task_request rq = {
		.type = msg->type, .key = msg->key, .max_active = msg->max_active,
	};
	auto_free struct mcp_bytes *source = NULL, *target = NULL;
	struct mcm_task *t = NULL;
	int r;

	r = mcm_task_names_decode(&msg->sources, &source, &rq.n_sources);
	if (r == 0)
		r = mcm_task_names_decode(&msg->targets, &target, &rq.n_targets);
	rq.source = source;
	rq.target = target;
	if (r == 0)
		r = check_request(&rq);
	if (r == 0)
		r = task_new(m, &rq, &t);
	if (r < 0)
		return r;
	t->id = msg->id;
	t->created_ms = msg->created_ms;
	t->updated_ms = msg->updated_ms;
	t->succeeded = msg->succeeded;
	t->bytes = msg->bytes;
	t->total = msg->total;
	t->total_objects = msg->total_objects;
	t->given_up = msg->given_up;
	/* No lock: there are no other threads yet, and the caller holds durables.lock, which comes
	 * after tasks.lock. */
	if (msg->status == MCP_TASK_SUCCEEDED) {
		t->status = MCP_TASK_SUCCEEDED;
		t->drained = t->type == MCP_TASK_DRAIN;
		mc_list_push_back(&m->tasks.finished, &t->link);
		m->tasks.n_finished++;
	} else {
		mc_list_push_back(&m->tasks.active, &t->link);
		m->tasks.n_pending++;
		__atomic_store_n(&m->tasks.n_active, m->tasks.n_active + 1, __ATOMIC_RELAXED);
		mc_metric_add(&running, 1);
	}
	if (t->type == MCP_TASK_DRAIN)
		mcm_task_set_draining(m, t, msg->status == MCP_TASK_SUCCEEDED ? MCP_SEG_DRAINED : MCP_SEG_DRAINING);
	return 0;
}

/* ---- revoking copies ---- */

/* Generation of the put of a copy to revoke: one of task @t, or (@t NULL) one that takes too long. 0: none. */
static uint64_t unit_to_revoke(struct mcm *m, const struct mcm_task *t)
{
	uint64_t limit = m->conf.processing_task_timeout_sec;
	struct mc_list *pos;

	MC_LOCKED(&m->tasks.lock);
	mc_list_for_each(pos, &m->tasks.units) {
		const struct mcm_unit *u = mc_container_of(pos, struct mcm_unit, link);

		if (t ? u->task == t : limit && u->began_ms + limit <= mcm_now_ms(m))
			return u->put;
		if (!t)
			break;
	}
	return 0;
}

static void revoke_units(struct mcm *m, const struct mcm_task *t)
{
	uint64_t put, last = 0;

	/* A copy that another thread is just ending is still listed: leave it to that thread. */
	while ((put = unit_to_revoke(m, t)) && put != last) {
		mcm_put_detach_unit(m, put);
		last = put;
	}
}

int mcm_task_cancel(struct mcm *m, struct mcp_id id, uint8_t *ret_status)
{
	struct mcm_tasks *ts = &m->tasks;
	struct mcm_task *t;

	mc_mutex_lock(&ts->lock);
	t = task_find(&ts->active, id);
	if (t) {
		mcm_task_end(m, t, MCP_TASK_CANCELED, 0, "canceled");
	} else {
		t = task_find(&ts->finished, id);
		if (!t) {
			mc_mutex_unlock(&ts->lock);
			return mc_fail(-MC_ENOTASK, "no task has this id");
		}
		if (t->drained) {
			mcm_task_set_draining(m, t, 0);
			mcm_task_drop(m, id);
			t->drained = false;
		}
	}
	*ret_status = t->status;
	t->active++;		/* keeps the task while its copies are revoked */
	mc_mutex_unlock(&ts->lock);
	revoke_units(m, t);
	mc_mutex_lock(&ts->lock);
	t->active--;
	tasks_forget_old(m);
	mc_mutex_unlock(&ts->lock);
	return 0;
}

/* ---- the thread ---- */

struct mcm_segment *mcm_task_next_source(struct mcm *m, const struct mcm_task *t, unsigned *i)
{
	struct mcm_segment *s = NULL;

	mc_rwlock_rdlock(&m->segments.lock);
	while (*i < m->segments.n_live && !s) {
		s = m->segments.at[m->segments.live[(*i)++]];
		if (!mcm_task_names(t->source, t->n_sources, s->name_hash))
			s = NULL;
	}
	mc_rwlock_unlock(&m->segments.lock);
	return s;
}

static void step_rebalance(struct mcm *m, struct mcm_task *t)
{
	uint64_t limit = m->conf.pending_task_timeout_sec;

	if (t->active)
		return;
	if (!mcm_rebalance_wanted(m, NULL))
		mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, "the segments are equally full");
	else if (limit && mcm_now_ms(m) >= t->began_ms + limit)
		mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, "nothing more can be moved");
}

/* Measure the rate of the last seconds.  The measure of a drain or an eviction is the use of its sources, since objects
 * also leave these by themselves. */
static void task_measure(struct mcm *m, struct mcm_task *t)
{
	struct mcm_task_left left = mcm_task_left(m, t);
	uint64_t now = mcm_now_ms(m), done, rate;

	if (!t->measured_ms && !t->key && !t->total) {
		t->total = left.bytes;
		t->total_objects = left.objects;
	}
	done = !t->n_sources ? t->bytes : t->total > left.bytes ? t->total - left.bytes : 0;
	if (t->measured_ms) {
		rate = done > t->measured ? (done - t->measured) * 1000 / (now - t->measured_ms) : 0;
		t->rate = t->rate ? (3 * t->rate + rate) / 4 : rate;
	}
	t->measured = done;
	t->measured_ms = now ? now : 1;
}

static void step_object(struct mcm *m, struct mcm_task *t)
{
	uint64_t limit = m->conf.pending_task_timeout_sec;

	if (t->active)
		t->message[0] = '\0';
	else if (!t->tries && mcm_now_ms(m) >= t->began_ms + WAIT_MS)
		snprintf(t->message, sizeof(t->message), "no node with a copy of the object has begun");
	if (!t->active && limit && mcm_now_ms(m) >= t->began_ms + limit)
		mcm_task_end(m, t, MCP_TASK_FAILED, -MC_ETIMEDOUT,
			     "no owner of the object fetched it in time");
}

static void task_step(struct mcm *m, struct mcm_task *t)
{
	if (!t->key && t->status == MCP_TASK_PENDING) {
		t->status = MCP_TASK_RUNNING;
		m->tasks.n_pending--;
	}
	if (!t->key && mcm_now_ms(m) >= t->measured_ms + MEASURE_MS)
		task_measure(m, t);
	switch (t->type) {
	case MCP_TASK_DRAIN:
		mcm_drain_step(m, t);
		break;
	case MCP_TASK_EVICT:
		break;
	case MCP_TASK_REBALANCE:
		step_rebalance(m, t);
		break;
	default:
		step_object(m, t);
		break;
	}
}

void mcm_tasks_tick(struct mcm *m)
{
	struct mcm_tasks *ts = &m->tasks;
	struct mc_list *pos, *tmp;

	if (!__atomic_load_n(&ts->n_active, __ATOMIC_RELAXED))
		return;
	revoke_units(m, NULL);
	mc_mutex_lock(&ts->lock);
	mc_list_for_each_safe(pos, tmp, &ts->active)
		task_step(m, mc_container_of(pos, struct mcm_task, link));
	mc_mutex_unlock(&ts->lock);
	mcm_tasks_evict(m);
	mc_mutex_lock(&ts->lock);
	tasks_forget_old(m);
	mc_mutex_unlock(&ts->lock);
}

static void *tasks_run(void *arg)
{
	struct mcm *m = arg;

	while (!mc_stop_wait(&m->tasks.stop, PERIOD_MS)) {
		mcm_hot_tick(m);
		mcm_tasks_tick(m);
	}
	return NULL;
}

int mcm_tasks_start(struct mcm *m)
{
	int r = mc_thread_start(&m->tasks.thread, "mc-tasks", tasks_run, m);

	m->tasks.runs = r == 0;
	return r;
}

void mcm_tasks_stop(struct mcm *m)
{
	mc_stop_set(&m->tasks.stop);
	if (m->tasks.runs)
		mc_thread_join(m->tasks.thread);
	m->tasks.runs = false;
}
