/* SPDX-License-Identifier: Apache-2.0
 * async.c - reads of open objects without a waiting thread. */
#include <config.h>

#include "client/direct/async.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "client/direct/object.h"
#include "common/cleanup.h"
#include "common/metrics.h"
#include "common/sys/thread.h"

#define THREADS_MAX 8u
/* Maximum of threads that repeat failed reads, so that some stay free for other reads. */
#define AGAIN_MAX 6u
/* Period of the check for late transfers. */
#define SWEEP_MS 50
/* A thread without work ends. */
#define IDLE_MS 10000

MC_GAUGE(under_way, "mooncake_client_async_reads", "", "running reads of open objects without a waiting thread")
MC_COUNTER(repeated, "mooncake_client_async_reads_repeated_total", "",
	   "such reads whose first transfer failed")

struct job {
	/* guarded by the lock */
	struct mc_list link;
	bool swept, ended;
	/* constant */
	struct mcs_async *a;
	struct mcs_direct_object *o;
	struct mcs_scratch *sc;
	uint64_t deadline, attempt;
	struct iovec iov;
	mcs_read_done_fn done;
	void *arg;

	struct mcs_part part;
	struct mce_batch batch;
};

struct mcs_async {
	struct mcs_direct *s;
	struct mc_mutex lock;
	struct mc_cond work;		/* for threads */
	struct mc_cond changed;		/* a job was swept, a thread ended, nothing is left */
	/* guarded by lock */
	struct mc_list moving;		/* jobs whose transfers run, oldest first */
	struct mc_list arrived;		/* jobs whose transfers have ended or failed */
	struct mc_list again;		/* jobs to be read again */
	unsigned jobs, threads, idle, busy_again;
	bool stopping;
};

int mcs_async_open(struct mcs_direct *s, struct mcs_async **ret)
{
	struct mcs_async *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->s = s;
	mc_list_init(&a->moving);
	mc_list_init(&a->arrived);
	mc_list_init(&a->again);
	mc_mutex_init(&a->lock);
	(void)mc_cond_init(&a->work);
	(void)mc_cond_init(&a->changed);
	*ret = a;
	return 0;
}

void mcs_async_close(struct mcs_async *a)
{
	if (!a)
		return;
	mc_mutex_lock(&a->lock);
	while (a->jobs)
		mc_cond_wait(&a->changed, &a->lock);
	a->stopping = true;
	mc_cond_broadcast(&a->work);
	while (a->threads)
		mc_cond_wait(&a->changed, &a->lock);
	mc_mutex_unlock(&a->lock);
	mc_cond_destroy(&a->work);
	mc_cond_destroy(&a->changed);
	mc_mutex_destroy(&a->lock);
	free(a);
}

/* ---- threads ---- */

static void job_free(struct job *j)
{
	struct mcs_async *a = j->a;

	mcs_scratch_put(a->s->base.scratch, j->sc);
	mcs_direct_object_unref(j->o);
	free(j);
	mc_metric_add(&under_way, -1);
	mc_mutex_lock(&a->lock);
	if (!--a->jobs)
		mc_cond_broadcast(&a->changed);
	mc_mutex_unlock(&a->lock);
}

static void job_finish(struct job *j, int64_t result)
{
	if (result > 0)
		mcs_direct_object_count((uint64_t)result);
	j->done(j->arg, result);
	job_free(j);
}

static void job_read_again(struct job *j)
{
	int64_t n;

	mc_metric_add(&repeated, 1);
	n = mcs_direct_object_read(&j->o->base, j->part.offset, &j->iov, 1, j->deadline);
	j->done(j->arg, n);
	job_free(j);
}

/* Check the bytes of a job.  False: it must be read again. */
static bool job_check(struct job *j)
{
	struct mcs_async *a = j->a;

	mcs_read_finish(a->s, &j->part);
	if (!j->part.status) {
		if (j->part.fetched)
			mcs_direct_object_keep_trailer(j->o, j->part.fetched);
		job_finish(j, (int64_t)j->part.len);
		return true;
	}
	if (mc_now_ns() >= j->deadline) {
		job_finish(j, mc_fail(-MC_ETIMEDOUT, "read did not end in time"));
		return true;
	}
	return false;
}

/* Cancel the oldest transfer that is late, and queue its job as arrived.  False: none is late. */
static bool async_sweep(struct mcs_async *a)
{
	uint64_t now = mc_now_ns();
	struct mc_list *pos;
	struct job *j = NULL;

	mc_list_for_each(pos, &a->moving) {
		j = mc_container_of(pos, struct job, link);
		if (!j->swept && now >= j->attempt)
			break;
		j = NULL;
	}
	if (!j)
		return false;
	j->swept = true;
	mc_list_remove(&j->link);
	mc_mutex_unlock(&a->lock);
	(void)mce_batch_wait(a->s->engine, &j->batch, j->part.req, j->part.n_req, 0);
	mc_mutex_lock(&a->lock);
	/* The callback of the batch may still run. */
	while (!j->ended)
		mc_cond_wait(&a->changed, &a->lock);
	mc_list_push_back(&a->arrived, &j->link);
	return true;
}

static struct job *async_take(struct mc_list *from)
{
	struct job *j = mc_list_first(from, struct job, link);

	mc_list_remove(&j->link);
	return j;
}

/* Do one piece of work; the lock is held before and after.  False: there is none. */
static bool async_work(struct mcs_async *a)
{
	struct job *j;

	if (!mc_list_empty(&a->arrived)) {
		j = async_take(&a->arrived);
		mc_mutex_unlock(&a->lock);
		if (job_check(j)) {
			mc_mutex_lock(&a->lock);
		} else {
			mc_mutex_lock(&a->lock);
			mc_list_push_back(&a->again, &j->link);
		}
		return true;
	}
	if (!mc_list_empty(&a->again) && a->busy_again < AGAIN_MAX) {
		j = async_take(&a->again);
		a->busy_again++;
		mc_mutex_unlock(&a->lock);
		job_read_again(j);
		mc_mutex_lock(&a->lock);
		a->busy_again--;
		return true;
	}
	return async_sweep(a);
}

static void async_nap(struct mcs_async *a, uint64_t ms)
{
	a->idle++;
	(void)mc_cond_wait_until(&a->work, &a->lock, mc_deadline_ms((int64_t)ms));
	a->idle--;
}

static void *async_main(void *arg)
{
	struct mcs_async *a = arg;
	uint64_t last = mc_now_ms();

	mc_mutex_lock(&a->lock);
	while (!a->stopping) {
		if (async_work(a)) {
			last = mc_now_ms();
			continue;
		}
		/* While transfers run, one thread must stay to check for late ones. */
		if (!a->jobs && mc_now_ms() - last >= IDLE_MS)
			break;
		async_nap(a, a->jobs ? SWEEP_MS : IDLE_MS);
	}
	a->threads--;
	mc_cond_broadcast(&a->changed);
	mc_mutex_unlock(&a->lock);
	return NULL;
}

/* With the lock held: wake or start a thread for one more piece of work. */
static int async_want_thread(struct mcs_async *a)
{
	struct mc_thread thread;
	int r;

	if (a->idle) {
		mc_cond_signal(&a->work);
		return 0;
	}
	if (a->threads == THREADS_MAX)
		return 0;
	r = mc_thread_start(&thread, "mcs-read", async_main, a);
	if (r < 0)
		return a->threads ? 0 : r;
	mc_thread_detach(thread);
	a->threads++;
	return 0;
}

/* ---- jobs ---- */

/* Runs on the engine's thread that ended the transfer, or in mcs_object_read_start(). */
static void job_on_batch(void *arg)
{
	struct job *j = arg;
	struct mcs_async *a = j->a;

	MC_LOCKED(&a->lock);
	j->ended = true;
	if (j->swept) {
		mc_cond_broadcast(&a->changed);
		return;
	}
	mc_list_remove(&j->link);
	mc_list_push_back(&a->arrived, &j->link);
	/* A thread exists since the job began. */
	(void)async_want_thread(a);
}

static struct job *job_new(struct mcs_direct_object *o, struct mcs_direct *s, uint64_t offset, void *buf,
			   size_t len, uint64_t deadline)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->sc = mcs_scratch_get(s->base.scratch);
	if (!j->sc) {
		free(j);
		return NULL;
	}
	j->o = o;
	j->a = s->async;
	j->deadline = deadline;
	j->iov = (struct iovec){ buf, len };
	j->part = (struct mcs_part){
		.v = mcs_direct_object_version(o, j->sc), .offset = offset, .iov = &j->iov, .iovcnt = 1,
		.trailer = mcs_direct_object_trailer(o),
		.unverified = !s->base.store->conf.verify, .len = len,
	};
	mcs_direct_object_ref(o);
	mc_metric_add(&under_way, 1);
	return j;
}

/* Submit the transfer to the engine.  False: the master must be asked first, or there is no memory. */
static bool job_submit(struct mcs_direct *s, struct job *j)
{
	struct mcs_async *a = j->a;

	if (!j->part.v || mcs_read_prepare(s, j->sc, &j->part) < 0)
		return false;
	j->attempt = mcs_read_patience(&j->part, j->deadline);
	mce_batch_init(&j->batch);
	j->batch.done = job_on_batch;
	j->batch.arg = j;
	/* Prevent completion before the job is on the list. */
	mce_batch_hold(&j->batch);
	(void)mce_submit(s->engine, &j->batch, j->part.req, j->part.n_req);
	if (mce_batch_left(&j->batch) == 1) {
		j->batch.done = NULL;
		mce_batch_release(&j->batch);
		if (!job_check(j)) {
			mc_mutex_lock(&a->lock);
			mc_list_push_back(&a->again, &j->link);
			(void)async_want_thread(a);
			mc_mutex_unlock(&a->lock);
		}
		return true;
	}
	mc_mutex_lock(&a->lock);
	/* Wake a thread that sleeps for long: it must check for late transfers now. */
	if (mc_list_empty(&a->moving))
		mc_cond_signal(&a->work);
	mc_list_push_back(&a->moving, &j->link);
	mc_mutex_unlock(&a->lock);
	mce_batch_release(&j->batch);
	return true;
}

int mcs_direct_object_read_start(struct mcs_object *obj, uint64_t offset, void *buf, size_t len, uint64_t deadline,
				 mcs_read_done_fn done, void *arg)
{
	struct mcs_direct_object *o = mcs_direct_object_of(obj);
	struct mcs_direct *s = mcs_direct_object_owner(o);
	struct mcs_async *a = s->async;
	uint64_t size = o->v.info.size;
	struct job *j;
	int r;

	if (offset >= size || !len) {
		done(arg, 0);
		return 0;
	}
	if (len > size - offset)
		len = (size_t)(size - offset);
	j = job_new(o, s, offset, buf, len, deadline);
	if (!j)
		return -ENOMEM;
	j->done = done;
	j->arg = arg;
	mc_mutex_lock(&a->lock);
	a->jobs++;
	/* Start a thread before the job depends on one. */
	r = a->threads ? 0 : async_want_thread(a);
	mc_mutex_unlock(&a->lock);
	if (r < 0) {
		job_free(j);
		return r;
	}
	if (job_submit(s, j))
		return 0;
	mc_mutex_lock(&a->lock);
	mc_list_push_back(&a->again, &j->link);
	(void)async_want_thread(a);
	mc_mutex_unlock(&a->lock);
	return 0;
}
