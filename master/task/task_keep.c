/* SPDX-License-Identifier: Apache-2.0
 * task_keep.c - tasks across a restart, as durable values.
 *
 * Running copies are not stored: the task finds their objects again.  A successful drain is stored,
 * because its segments accept no objects. */
#include <config.h>

#include "master/task/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "master/journal/journal.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "task"

static struct mcp_seq names_list(const struct mcm_task_name *names, unsigned n, struct mcp_name *ret)
{
	for (unsigned i = 0; i < n; i++)
		ret[i].name = mcp_bytes(names[i].name, strlen(names[i].name));
	return mcp_seq(ret, n);
}

const char *mcm_id_text(struct mcp_id id, char buf[MCM_ID_TEXT])
{
	snprintf(buf, MCM_ID_TEXT, "%" PRIu64 "-%" PRIu64, id.hi, id.lo);
	return buf;
}

/* Encode the durable value. */
static int task_encode(const struct mcm_task *t, struct mcp_buf *ret)
{
	auto_free struct mcp_name *names = calloc(t->n_sources + t->n_targets + 1, sizeof(*names));
	struct mcp_task msg;

	if (!names)
		return -ENOMEM;
	msg = (struct mcp_task){
		.id = t->id, .type = t->type, .status = t->status,
		.key = mcp_bytes(t->key, t->key_len),
		.sources = names_list(t->source, t->n_sources, names),
		.targets = names_list(t->target, t->n_targets, names + t->n_sources),
		.max_active = t->max_active, .created_ms = t->created_ms,
		.updated_ms = t->updated_ms, .succeeded = t->succeeded,
		.bytes = t->bytes, .total = t->total, .total_objects = t->total_objects, .given_up = t->given_up,
	};
	return mcp_encode(&mcp_desc_task, &msg, ret);
}

int mcm_task_can_be_kept(const struct mcm *m, const struct mcm_task *t)
{
	struct mcp_buf b = { 0 };
	int r;

	if (!m->journal)
		return 0;
	r = task_encode(t, &b);
	if (r == 0 && b.len > MCM_DURABLE_VALUE_MAX)
		r = mc_fail(-MC_ELIMIT, "the names of %u segments are too long for one journal "
			    "record: create several tasks", t->n_sources + t->n_targets);
	mcp_buf_free(&b);
	return r;
}

void mcm_task_keep(struct mcm *m, const struct mcm_task *t)
{
	struct mcp_buf b = { 0 };
	char id[MCM_ID_TEXT];
	int r = task_encode(t, &b);

	mcm_id_text(t->id, id);
	if (r == 0)
		r = mcm_durable_set(m, MCM_DURABLE_TASK, mcp_bytes(id, strlen(id)),
				    mcp_bytes(b.data, b.len));
	if (r < 0)
		mc_warn(LOG, "cannot store a task, it will not survive a restart: %s", mc_err_detail(r));
	mcp_buf_free(&b);
}

void mcm_task_drop(struct mcm *m, struct mcp_id id)
{
	char text[MCM_ID_TEXT];

	mcm_id_text(id, text);
	mcm_durable_drop(m, MCM_DURABLE_TASK, mcp_bytes(text, strlen(text)));
}

static bool has_drained(const struct mcm_task *t, uint64_t name)
{
	return t->drained && mcm_task_names(t->source, t->n_sources, name);
}

static bool is_drained(struct mcm *m, uint64_t name)
{
	struct mcm_segments *ss = &m->segments;
	const struct mcm_segment *s = NULL;
	bool drained = false;

	mc_rwlock_rdlock(&ss->lock);
	while (!drained && (s = mcm_segments_named(ss, name, s)))
		drained = mcm_load_relaxed(&s->draining) == MCP_SEG_DRAINED;
	mc_rwlock_unlock(&ss->lock);
	return drained;
}

static bool is_drained_later(const struct mcm *m, const struct mcm_task *t, uint64_t name)
{
	const struct mc_list *pos = t->link.next;

	while (pos != &m->tasks.finished &&
	       !has_drained(mc_container_of(pos, const struct mcm_task, link), name))
		pos = pos->next;
	return pos != &m->tasks.finished;
}

bool mcm_task_keeps_drained(struct mcm *m, const struct mcm_task *t)
{
	for (unsigned i = 0; i < t->n_sources; i++)
		if (has_drained(t, t->source[i].hash) && is_drained(m, t->source[i].hash) &&
		    !is_drained_later(m, t, t->source[i].hash))
			return true;
	return false;
}

static void task_remove_source(struct mcm *m, struct mcm_task *t, uint64_t name)
{
	unsigned i, n = 0;

	for (i = 0; i < t->n_sources; i++) {
		if (t->source[i].hash == name)
			free(t->source[i].name);
		else
			t->source[n++] = t->source[i];
	}
	t->n_sources = n;
	if (n)
		mcm_task_keep(m, t);
	else
		mcm_task_drop(m, t->id);
}

/* If another segment of the same name is mounted and drained, the drain applies to the new segment
 * as well: mark it DRAINED. */
static bool drain_applies(struct mcm *m, uint64_t name)
{
	struct mcm_segments *ss = &m->segments;
	struct mcm_segment *s;
	bool applies = false;

	mc_rwlock_rdlock(&ss->lock);
	for (s = NULL; (s = mcm_segments_named(ss, name, s));)
		applies |= mcm_segment_shown(s) == MCP_SEG_DRAINED;
	for (s = NULL; applies && (s = mcm_segments_named(ss, name, s));)
		__atomic_store_n(&s->draining, MCP_SEG_DRAINED, __ATOMIC_RELAXED);
	mc_rwlock_unlock(&ss->lock);
	return applies;
}

void mcm_tasks_mounted(struct mcm *m, struct mcp_bytes name)
{
	uint64_t hash = mc_hash(name.data, name.len, 0);
	struct mc_list *pos;

	MC_LOCKED(&m->tasks.lock);
	if (drain_applies(m, hash))
		return;
	mc_list_for_each(pos, &m->tasks.finished) {
		struct mcm_task *t = mc_container_of(pos, struct mcm_task, link);

		if (has_drained(t, hash))
			task_remove_source(m, t, hash);
	}
}

static void restore_task(void *arg, const struct mcm_durable_record *d)
{
	struct mcm *m = arg;
	struct mcp_task t;
	int r;

	r = mcp_decode(&mcp_desc_task, d->value.data, d->value.len, &t);
	if (r == 0)
		r = mcm_task_restore(m, &t);
	if (r < 0)
		mc_warn(LOG, "cannot restore a task: %s", mc_err_detail(r));
}

void mcm_tasks_restore(struct mcm *m)
{
	mcm_durables_each(m, MCM_DURABLE_TASK, restore_task, m);
}
