/* SPDX-License-Identifier: Apache-2.0
 * task_drain.c - the periodic work of drains: their progress, and how they end. */
#include <config.h>

#include "master/task/task.h"

#include <stdio.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/task/task_i.h"

#define STUCK_MS 10000

struct left {
	uint64_t ranges, objects;
};

static struct left what_is_left(struct mcm *m, const struct mcm_task *t)
{
	struct left left = { 0, 0 };
	struct mcm_segment *s;
	unsigned i = 0;

	while ((s = mcm_task_next_source(m, t, &i))) {
		pthread_mutex_lock(&s->lock);
		left.ranges += s->alloc.ranges;
		left.objects += s->objects;
		pthread_mutex_unlock(&s->lock);
	}
	return left;
}

/* The drain has objects and nowhere to move them.  Owners that restart, new nodes and evictions have some time. */
static void drain_waits(struct mcm *m, struct mcm_task *t)
{
	static const char why[] = "no other segment takes the objects";
	uint64_t now = mcm_now_ms(m);

	if (!t->stuck_ms || t->stuck_ms < t->began_ms)
		t->stuck_ms = now;
	snprintf(t->message, sizeof(t->message), "%s", why);
	if (now >= t->stuck_ms + STUCK_MS)
		mcm_task_end(m, t, MCP_TASK_FAILED, -MC_ENOSPACE, why);
}

static void drain_goes_on(struct mcm_task *t)
{
	t->stuck_ms = 0;
	t->message[0] = '\0';
}

static void failed_objects(struct mcm *m, struct mcm_task *t)
{
	unsigned long long failed = t->failed, spare = t->spare;

	if (spare == failed)
		snprintf(t->message, sizeof(t->message),
			 "%llu objects stay; none is lost when the node ends: each has a copy on another node", failed);
	else if (spare)
		snprintf(t->message, sizeof(t->message), "%llu objects stay, %llu of them with a copy on another node: %s",
			 failed, spare, mc_strerror(t->error));
	else
		snprintf(t->message, sizeof(t->message), "%llu objects stay: %s", failed, mc_strerror(t->error));
	mcm_task_end(m, t, MCP_TASK_FAILED, t->error, t->message);
}

void mcm_drain_step(struct mcm *m, struct mcm_task *t)
{
	struct left left;

	mcm_task_set_draining(m, t, MCP_SEG_DRAINING);
	left = what_is_left(m, t);
	t->blocked = left.ranges > left.objects ? left.ranges - left.objects : 0;
	if (!left.ranges)
		mcm_task_end(m, t, MCP_TASK_SUCCEEDED, 0, "the segments are empty");
	else if (!t->active && t->failed && left.objects <= t->failed)
		failed_objects(m, t);
	else if (left.objects && !t->active && (t->no_room || !mcm_drain_has_target(m, t)))
		drain_waits(m, t);
	else
		drain_goes_on(t);
}
