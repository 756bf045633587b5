/* SPDX-License-Identifier: Apache-2.0
 * task_unit.c - the end of a copy: published as another replica of the version, or revoked. */
#include <config.h>

#include "master/task/task.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/ops/pin.h"
#include "master/session.h"
#include "master/task/adopt.h"
#include "master/task/nof.h"
#include "master/task/offload.h"

MC_COUNTER(copies, "mooncake_master_copies_total", "result=\"ok\"", "Copies made for tasks")
MC_COUNTER(failures, "mooncake_master_copies_total", "result=\"failed\"", "Copies made for tasks")
MC_COUNTER(bytes, "mooncake_master_copied_bytes_total", "", "Bytes copied for tasks")

/* The steps of a copy, and of a move, under upstream's names: [0] all, [1] those that failed. */
#define STEP(var, name, help) \
	MC_COUNTER(var##_all, "master_" name "_requests_total", "", help) \
	MC_COUNTER(var##_failed, "master_" name "_failures_total", "", help ", with failure") \
	static struct mc_metric *const var[] = { &var##_all, &var##_failed };
STEP(copy_start, "copy_start", "Copies begun")
STEP(copy_end, "copy_end", "Copies ended")
STEP(copy_revoke, "copy_revoke", "Copies revoked")
STEP(move_start, "move_start", "Moves begun")
STEP(move_end, "move_end", "Moves ended")
STEP(move_revoke, "move_revoke", "Moves revoked")

static void step_count(struct mc_metric *const step[2], bool failed)
{
	mc_metric_add(step[0], 1);
	if (failed)
		mc_metric_add(step[1], 1);
}

void mcm_unit_started(bool move, int result)
{
	step_count(move ? move_start : copy_start, result < 0);
}

/* The object was renamed during the copy, so the owner has stored the old key.  A rename of its directory does not
 * change the generation. */
static bool unit_outdated(const struct mcm_unit *u, const struct mcm_object *o)
{
	return u->described && (o->generation != u->version || o->hash != u->hash || o->key_len != u->key_len);
}

/* Give the new extent to the object, or free it if the object is gone. */
static int unit_publish(struct mcm *m, const struct mcm_unit *u)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, u->slot);
	struct mcm_object *o = mcm_object(&m->index, u->slot);
	int r = -MC_ENOOBJECT;

	/* The pin prevents reuse of the slot. */
	if (!(o->flags & MCM_OBJ_LIVE) || unit_outdated(u, o)) {
		if (u->described)
			mcm_adopt_note(m, u->to, u->version);
		mcm_extent_free(m, &u->to);
	} else {
		r = mcm_object_add_copy(m, u->slot, u->to);
	}
	if (r == -MC_ENOOBJECT && o->flags & MCM_OBJ_LIVE)
		mcm_offload_again(m, u->from.segment);
	if (r == 0 && u->move)
		mcm_object_retire_copy(m, sh, u->slot, u->from);
	mc_mutex_unlock(&sh->lock);
	return r;
}

/* tasks.lock held. */
static void object_task_done(struct mcm *m, struct mcm_task *t, const struct mcm_unit *u)
{
	if (t->type == MCP_TASK_COPY) {
		t->busy_targets &= ~(1u << u->target);
		t->done_targets |= 1u << u->target;
		if (t->done_targets != (1u << t->n_targets) - 1)
			return;
	}
	mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, t->type == MCP_TASK_MOVE ? "moved" : "copied");
}

static void object_task_failed(struct mcm *m, struct mcm_task *t, const struct mcm_unit *u, int why)
{
	t->busy_targets &= ~(1u << u->target);
	t->retry_ms = mcm_now_ms(m) + 50 * ++t->tries;
	if (t->tries >= MCM_UNIT_TRIES || why == -MC_ENOOBJECT) {
		t->failed++;
		mcm_task_end(m, t, MCP_TASK_FAILED, why, mc_strerror(why));
	}
}

/* Count the result, release the source, free the unit.  An object that was removed meanwhile is not
 * a failure of a drain. */
static void unit_finish(struct mcm *m, struct mcm_unit *u, int result)
{
	struct mcm_task *t = u->task;
	bool open;

	mcm_unit_unmark(m, u);
	/* If the copy was published, mcm_object_add_copy() has charged the object for it. */
	mcm_tenant_refund(m, u->tenant, u->charged);
	mc_mutex_lock(&m->tasks.lock);
	if (u->session) {
		mc_mutex_lock(&u->session->lock);
		mcm_pin_release(m, u->session, u->pin);
		mc_mutex_unlock(&u->session->lock);
		/* The session may be freed from here on. */
		__atomic_fetch_sub(&u->session->n_units, 1, __ATOMIC_RELEASE);
	}
	mc_list_remove(&u->link);
	m->tasks.n_units--;
	t->active--;
	t->updated_ms = mc_wall_ns() / MC_NS_PER_MS;
	t->began_ms = mcm_now_ms(m);
	open = t->status == MCP_TASK_PENDING || t->status == MCP_TASK_RUNNING;
	if (t->type >= MCP_TASK_TYPES) {
		(t->type == MCM_TASK_NOF ? mcm_nof_ended : mcm_offload_ended)(m, u, result);
	} else if (result == 0) {
		t->succeeded++;
		t->bytes += u->size;
		if (t->key && open)
			object_task_done(m, t, u);
	} else if (t->key && open) {
		object_task_failed(m, t, u, result);
	} else if (open && result != -MC_ENOOBJECT && result != -ECANCELED) {
		mcm_task_object_failed(m, t, u->version, result);
	}
	mc_mutex_unlock(&m->tasks.lock);
	if (t->type < MCP_TASK_TYPES) {
		mc_metric_add(result == 0 ? &copies : &failures, 1);
		mc_metric_add(&bytes, result == 0 ? (int64_t)u->size : 0);
	}
	free(u);
}

int mcm_task_copied(struct mcm *m, const struct mcm_session *s, const struct mcp_copied *c)
{
	int r = mc_err_from_wire(c->status);
	struct mcm_put put;
	struct mcm_unit *u;

	/* Only the session that fetched the copy has the source pinned.  The thread of another session would
	 * race with the end of that session, after which the slot may belong to another object. */
	if (mcm_put_claim_copy(m, s, c->put, &put) < 0)
		return -MC_ESTALE_PUT;
	u = put.unit;
	if (!u) {
		mcm_put_release_copy(m, &put);
		return -MC_ESTALE_PUT;
	}
	if (r == 0 && c->crc != u->crc)
		r = -MC_ECHECKSUM;
	if (r < 0) {
		mcm_put_release_copy(m, &put);
	} else {
		/* Append this before the object gets the range: from then on the range does not
		 * belong to a put. */
		mcm_journal_put_gone(m, c->put);
		r = unit_publish(m, u);
	}
	if (u->task->type >= MCP_TASK_TYPES)
		;
	else if (c->status)
		step_count(u->move ? move_revoke : copy_revoke, false);
	else
		step_count(u->move ? move_end : copy_end, r < 0);
	unit_finish(m, u, r);
	return r;
}

void mcm_unit_revoked(struct mcm *m, struct mcm_unit *u, bool session_ended)
{
	if (u->task->type < MCP_TASK_TYPES)
		step_count(u->move ? move_revoke : copy_revoke, false);
	unit_finish(m, u, session_ended && u->task->type == MCM_TASK_OFFLOAD ? -ECANCELED : -MC_ETIMEDOUT);
}

void mcm_tasks_session_gone(struct mcm *m, const struct mcm_session *s)
{
	struct mc_list *pos;

	/* Most sessions never had copies; a session that ends on the heartbeat loop must not wait
	 * for tasks.lock. */
	if (!__atomic_load_n(&s->n_units, __ATOMIC_ACQUIRE))
		return;
	MC_LOCKED(&m->tasks.lock);
	mc_list_for_each(pos, &m->tasks.units) {
		struct mcm_unit *u = mc_container_of(pos, struct mcm_unit, link);

		if (u->session == s)
			u->session = NULL;
	}
}

void mcm_task_move_within(struct mcm *m, struct mcm_task *t, uint32_t slot, uint64_t generation,
			  struct mcm_extent from)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);
	struct mcm_object *o = mcm_object(&m->index, slot);

	if (o->flags & MCM_OBJ_LIVE && o->generation == generation)
		mcm_object_retire_copy(m, sh, slot, from);
	mc_mutex_unlock(&sh->lock);
	mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, "the target had a copy already");
}
