/* SPDX-License-Identifier: Apache-2.0
 * task_drain.c - the periodic work of drains: their progress, and how they end. */
#include <config.h>

#include "master/task/task.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/task/task_i.h"

#define STUCK_MS 10000
#define HELD_MS 5000	/* between two fetches of an owner */
#define KEEP_MS 1000	/* between two durable values of its progress */

/* ---- sources that go ---- */

void mcm_drain_lost(struct mcm *m, const struct mcm_segment *s)
{
	struct mcm_tasks *ts = &m->tasks;
	uint64_t objects = mcm_load_relaxed(&s->objects);
	struct mcm_drain_loss *loss;

	if (!objects || mcm_load_relaxed(&s->draining) != MCP_SEG_DRAINING)
		return;
	for (unsigned i = 0; i < ts->n_losses; i++) {
		if (ts->loss[i].name == s->name_hash) {
			ts->loss[i].objects += objects;
			return;
		}
	}
	loss = realloc(ts->loss, (ts->n_losses + 1) * sizeof(*loss));
	if (!loss)
		return;
	loss[ts->n_losses] = (struct mcm_drain_loss){ .name = s->name_hash, .objects = objects };
	ts->loss = loss;
	mcm_store_relaxed(&ts->n_losses, ts->n_losses + 1);
}

uint64_t mcm_drain_losses(struct mcm *m, const struct mcm_task *t)
{
	struct mcm_tasks *ts = &m->tasks;
	uint64_t sum = 0;
	unsigned n = 0;

	if (t->type != MCP_TASK_DRAIN || !mcm_load_relaxed(&ts->n_losses))
		return 0;
	mc_rwlock_wrlock(&m->segments.lock);
	for (unsigned i = 0; i < ts->n_losses; i++) {
		if (mcm_task_names(t->source, t->n_sources, ts->loss[i].name))
			sum += ts->loss[i].objects;
		else
			ts->loss[n++] = ts->loss[i];
	}
	mcm_store_relaxed(&ts->n_losses, n);
	mc_rwlock_unlock(&m->segments.lock);
	return sum;
}

/* ---- steps ---- */

struct left {
	uint64_t ranges, objects;
	char silent[MCM_NAME_MAX + 1];	/* a source with objects whose owner does not answer; "": none */
};

static struct left what_is_left(struct mcm *m, const struct mcm_task *t)
{
	struct left left = { .ranges = 0 };
	struct mcm_segment *s;
	unsigned i = 0;

	while ((s = mcm_task_next_source(m, t, &i))) {
		mc_mutex_lock(&s->lock);
		left.ranges += s->alloc.ranges;
		left.objects += s->objects;
		if (s->objects && mcm_segment_state(s) == MCP_SEG_SILENT)
			snprintf(left.silent, sizeof(left.silent), "%s", s->name);
		mc_mutex_unlock(&s->lock);
	}
	return left;
}

/* The drain has objects and nowhere to move them.  Owners that restart, new nodes and evictions have some time. */
static void drain_waits(struct mcm *m, struct mcm_task *t, bool has_target)
{
	const char *why = has_target ? "the other segments have no free memory for the objects" :
		"no other segment takes the objects";
	uint64_t now = mcm_now_ms(m);

	if (!t->stuck_ms || t->stuck_ms < t->began_ms)
		t->stuck_ms = now;
	snprintf(t->message, sizeof(t->message), "%s", why);
	if (now >= t->stuck_ms + STUCK_MS)
		mcm_task_end(m, t, MCP_TASK_FAILED, -MC_ENOSPACE, why);
}

static void drain_waits_for_source(struct mcm_task *t, const char *name)
{
	t->stuck_ms = 0;
	snprintf(t->message, sizeof(t->message), "the node of %.120s does not answer", name);
}

/* No copy can be made now.  Copies that were made stay in the sources while they are read. */
static void drain_goes_on(struct mcm *m, struct mcm_task *t, const struct left *left)
{
	t->stuck_ms = 0;
	t->message[0] = '\0';
	if (t->active)
		return;
	if (!left->objects)
		snprintf(t->message, sizeof(t->message), "%llu copies are being read, or are of unfinished puts",
			 (unsigned long long)left->ranges);
	else if (t->held_ms && mcm_now_ms(m) < t->held_ms + HELD_MS)
		snprintf(t->message, sizeof(t->message), "%llu objects are read or leased; their old copies stay until "
			 "that ends", (unsigned long long)left->objects);
}

/* A restarted master continues with about the same counts. */
static void drain_keep(struct mcm *m, struct mcm_task *t)
{
	uint64_t count = t->succeeded + t->given_up;

	if (count == t->kept || mcm_now_ms(m) < t->kept_ms + KEEP_MS)
		return;
	t->kept = count;
	t->kept_ms = mcm_now_ms(m);
	mcm_task_keep(m, t);
}

static void failed_objects(struct mcm *m, struct mcm_task *t)
{
	snprintf(t->message, sizeof(t->message), "%llu objects stay: %s", (unsigned long long)t->failed,
		 mc_strerror(t->error));
	mcm_task_end(m, t, MCP_TASK_FAILED, t->error, t->message);
}

static void drain_succeeded(struct mcm *m, struct mcm_task *t)
{
	if (t->given_up)
		snprintf(t->message, sizeof(t->message), "the segments are empty; %llu objects have one copy fewer, "
			 "since no segment without a copy takes them", (unsigned long long)t->given_up);
	else
		snprintf(t->message, sizeof(t->message), "the segments are empty");
	mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, t->message);
}

void mcm_drain_step(struct mcm *m, struct mcm_task *t)
{
	struct left left;
	bool has_target;
	char why[80];

	mcm_task_set_draining(m, t, MCP_SEG_DRAINING);
	left = what_is_left(m, t);
	t->blocked = left.ranges > left.objects ? left.ranges - left.objects : 0;
	/* A source that went after this look is not yet missing from it. */
	t->lost += mcm_drain_losses(m, t);
	has_target = mcm_drain_has_target(m, t);
	snprintf(why, sizeof(why), "%llu objects were lost with their node, except those with a copy elsewhere",
		 (unsigned long long)t->lost);
	if (!left.ranges && t->lost)
		mcm_task_end(m, t, MCP_TASK_FAILED, -MC_ENOSEGMENT, why);
	else if (!left.ranges)
		drain_succeeded(m, t);
	else if (!t->active && t->failed && left.objects <= t->failed)
		failed_objects(m, t);
	else if (*left.silent)
		drain_waits_for_source(t, left.silent);
	else if (left.objects && !t->active && (t->no_room || !has_target))
		drain_waits(m, t, has_target);
	else
		drain_goes_on(m, t, &left);
	if (t->status == MCP_TASK_RUNNING)
		drain_keep(m, t);
}
