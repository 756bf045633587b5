/* SPDX-License-Identifier: Apache-2.0
 * expect.c - which threads open what they look up, and what is pinned for them. */
#include <config.h>
#include "mcfs/read/expect.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/thread.h"

#define SCORE_MAX 3u
#define SCORE_OPENS 2u		/* from here on */

MC_COUNTER(kept, "mcfs_expected_opens_total", "", "versions that lookups have pinned for the opens after them")
MC_COUNTER(taken, "mcfs_expected_opens_taken_total", "", "those of them that were opened")

void mcfs_expect_init(struct mcfs_expect *x)
{
	memset(x, 0, sizeof(*x));
	x->idle = true;
	pthread_mutex_init(&x->lock, NULL);
}

/* Lock held; the object is let go of without it, since that may talk to the master. */
static struct mcfs_object *take(struct mcfs_expect *x, struct mcfs_expected *e)
{
	struct mcfs_object *o = e->object;

	if (o)
		__atomic_sub_fetch(&x->kept, 1, __ATOMIC_SEQ_CST);
	e->object = NULL;
	return o;
}

void mcfs_expect_done(struct mcfs_expect *x)
{
	for (unsigned i = 0; i < MCFS_EXPECT_PLACES; i++)
		mcfs_object_unref(take(x, &x->place[i]));
	pthread_mutex_destroy(&x->lock);
}

static struct mcfs_expected *place_of(struct mcfs_expect *x, pid_t tid)
{
	return &x->place[(unsigned)tid % MCFS_EXPECT_PLACES];
}

bool mcfs_expect_lookup(struct mcfs_expect *x, pid_t tid)
{
	struct mcfs_expected *e = place_of(x, tid);
	struct mcfs_object *o;
	bool opens;

	pthread_mutex_lock(&x->lock);
	o = take(x, e);
	if (e->tid != tid)
		*e = (struct mcfs_expected){ .tid = tid };
	else if (e->looked && e->score)
		e->score--;
	e->looked = true;
	opens = e->score >= SCORE_OPENS;
	pthread_mutex_unlock(&x->lock);
	mcfs_object_unref(o);
	return opens;
}

void mcfs_expect_nothing(struct mcfs_expect *x, pid_t tid, bool missing)
{
	struct mcfs_expected *e = place_of(x, tid);

	MC_LOCKED(&x->lock);
	if (e->tid != tid)
		return;
	e->looked = false;
	if (missing)
		e->score = 0;
}

bool mcfs_expect_keep(struct mcfs_expect *x, pid_t tid, struct mcfs_object *o)
{
	struct mcfs_expected *e = place_of(x, tid);
	struct mcfs_object *old = o;

	pthread_mutex_lock(&x->lock);
	if (e->tid == tid) {
		old = take(x, e);
		e->object = o;
		e->since_ms = mc_now_ms();
		__atomic_add_fetch(&x->kept, 1, __ATOMIC_SEQ_CST);
		mc_metric_add(&kept, 1);
	}
	pthread_mutex_unlock(&x->lock);
	mcfs_object_unref(old);
	return __atomic_load_n(&x->idle, __ATOMIC_SEQ_CST) &&
		__atomic_exchange_n(&x->idle, false, __ATOMIC_SEQ_CST);
}

struct mcfs_object *mcfs_expect_take(struct mcfs_expect *x, pid_t tid, uint64_t generation)
{
	struct mcfs_expected *e = place_of(x, tid);
	struct mcfs_object *o;
	bool mine;

	pthread_mutex_lock(&x->lock);
	o = take(x, e);
	mine = e->tid == tid;
	if (!mine)
		*e = (struct mcfs_expected){ .tid = tid };
	e->looked = false;
	e->score += e->score < SCORE_MAX;
	if (o && mine && mcfs_object_info(o)->generation == generation &&
	    mc_now_ms() - e->since_ms <= MCFS_EXPECT_MS) {
		mc_metric_add(&taken, 1);
		pthread_mutex_unlock(&x->lock);
		return o;
	}
	pthread_mutex_unlock(&x->lock);
	mcfs_object_unref(o);
	return NULL;
}

bool mcfs_expect_sweep(struct mcfs_expect *x)
{
	struct mcfs_object *late[MCFS_EXPECT_PLACES];
	uint64_t now = mc_now_ms();
	unsigned n = 0;

	pthread_mutex_lock(&x->lock);
	for (unsigned i = 0; i < MCFS_EXPECT_PLACES; i++)
		if (x->place[i].object && now - x->place[i].since_ms > MCFS_EXPECT_MS)
			late[n++] = take(x, &x->place[i]);
	pthread_mutex_unlock(&x->lock);
	for (unsigned i = 0; i < n; i++)
		mcfs_object_unref(late[i]);
	if (__atomic_load_n(&x->kept, __ATOMIC_SEQ_CST))
		return true;
	__atomic_store_n(&x->idle, true, __ATOMIC_SEQ_CST);
	/* What was kept just before said that somebody sweeps. */
	return __atomic_load_n(&x->kept, __ATOMIC_SEQ_CST) &&
		__atomic_exchange_n(&x->idle, false, __ATOMIC_SEQ_CST);
}
