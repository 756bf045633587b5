/* SPDX-License-Identifier: Apache-2.0
 * late.c - calls with a deadline, each in a thread of its own.
 *
 * A thread that waits for a server in the kernel cannot be interrupted by its process, so the caller leaves it. */
#include <config.h>

#include "common/sys/late.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/lock.h"
#include "common/sys/thread.h"

struct mc_late_state {
	struct mc_mutex lock;
	struct mc_cond cond;
	/* guarded by lock */
	bool ended, left;
	bool hangs;		/* counted in late_hanging */
	int result;
	char why[256];
};

static unsigned late_hanging;	/* atomic */

static void state_free(struct mc_late_state *s)
{
	mc_cond_destroy(&s->cond);
	mc_mutex_destroy(&s->lock);
	free(s);
}

static void late_over(struct mc_late *l)
{
	state_free(l->state);
	l->drop(l);
}

static void *late_main(void *arg)
{
	struct mc_late *l = arg;
	struct mc_late_state *s = l->state;
	int r = l->run(l);
	bool left;

	mc_mutex_lock(&s->lock);
	s->result = r;
	if (r < 0)
		snprintf(s->why, sizeof(s->why), "%s", mc_err_detail(r));
	if (s->hangs)
		__atomic_sub_fetch(&late_hanging, 1, __ATOMIC_RELAXED);
	left = s->left;
	s->ended = true;
	mc_cond_signal(&s->cond);
	mc_mutex_unlock(&s->lock);
	if (left)
		late_over(l);
	return NULL;
}

int mc_late_start(struct mc_late *l)
{
	struct mc_late_state *s;
	struct mc_thread thread;
	int r;

	if (__atomic_load_n(&late_hanging, __ATOMIC_RELAXED) >= MC_LATE_MAX)
		return mc_fail(-MC_EUNAVAILABLE, "%u earlier calls still wait for a filesystem that does not answer",
			       MC_LATE_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	mc_cond_init(&s->cond);
	l->state = s;
	r = mc_thread_start(&thread, l->name, late_main, l);
	if (r < 0)
		state_free(s);
	else
		mc_thread_detach(thread);
	return r;
}

int mc_late_wait(struct mc_late *l, uint64_t deadline)
{
	struct mc_late_state *s = l->state;
	int r;

	mc_mutex_lock(&s->lock);
	while (!s->ended && deadline && mc_cond_wait_until(&s->cond, &s->lock, deadline) == 0)
		;
	if (!s->ended) {
		if (!s->hangs)
			__atomic_add_fetch(&late_hanging, 1, __ATOMIC_RELAXED);
		s->hangs = true;
		mc_mutex_unlock(&s->lock);
		return mc_fail(-EINPROGRESS, "the filesystem does not answer");
	}
	r = s->result < 0 ? mc_fail(s->result, "%s", s->why) : s->result;
	mc_mutex_unlock(&s->lock);
	state_free(s);
	return r;
}

void mc_late_leave(struct mc_late *l)
{
	bool ended;

	mc_mutex_lock(&l->state->lock);
	l->state->left = true;
	ended = l->state->ended;
	mc_mutex_unlock(&l->state->lock);
	if (ended)
		late_over(l);
}
