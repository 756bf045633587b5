/* SPDX-License-Identifier: Apache-2.0
 * queue.c - a stream of a GPU and a thread that waits for the end of its copies, see queue.h. */
#include <config.h>

#include "common/gpu/queue.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/gpu/gpu.h"
#include "common/sys/thread.h"

/* Events that are kept for further jobs. */
#define EVENTS_KEPT 64u

struct mc_gpu_queue {
	/* constant */
	const struct mc_gpu_driver *d;
	struct mc_gpu_stream *stream;
	struct mc_thread thread;
	/* guarded by lock, which is held while copies are added: the order of jobs is that of the copies */
	struct mc_mutex lock;
	struct mc_cond added;
	struct mc_list jobs;
	bool closing;
	struct mc_gpu_event *kept[EVENTS_KEPT];
	unsigned nkept;
};

static int event_take_locked(struct mc_gpu_queue *q, struct mc_gpu_event **ret)
{
	if (q->nkept == 0)
		return q->d->event_open(q->stream, ret);
	*ret = q->kept[--q->nkept];
	return 0;
}

static void event_keep(struct mc_gpu_queue *q, struct mc_gpu_event *ev)
{
	mc_mutex_lock(&q->lock);
	if (q->nkept < EVENTS_KEPT) {
		q->kept[q->nkept++] = ev;
		ev = NULL;
	}
	mc_mutex_unlock(&q->lock);
	q->d->event_close(ev);
}

/* The event is recorded also after a failure: some of the copies may have been added. */
static int job_start_locked(struct mc_gpu_queue *q, struct mc_gpu_job *job)
{
	int r, err;

	r = event_take_locked(q, &job->event);
	if (r < 0) {
		job->event = NULL;
		return r;
	}
	r = mc_fault("gpu.queue.add");
	if (r == 0 && job->follow)
		r = q->d->follow(q->stream);
	if (r == 0)
		r = q->d->copy(q->stream, job->spans, job->n);
	err = q->d->event_record(job->event, q->stream);
	return r < 0 ? r : err;
}

void mc_gpu_queue_add(struct mc_gpu_queue *q, struct mc_gpu_job *job)
{
	MC_LOCKED(&q->lock);
	job->status = job_start_locked(q, job);
	mc_list_push_back(&q->jobs, &job->node);
	mc_cond_signal(&q->added);
}

static struct mc_gpu_job *job_next(struct mc_gpu_queue *q)
{
	struct mc_gpu_job *job;

	MC_LOCKED(&q->lock);
	while (mc_list_empty(&q->jobs)) {
		if (q->closing)
			return NULL;
		mc_cond_wait(&q->added, &q->lock);
	}
	job = mc_list_first(&q->jobs, struct mc_gpu_job, node);
	mc_list_remove(&job->node);
	return job;
}

static void *queue_main(void *arg)
{
	struct mc_gpu_queue *q = arg;
	struct mc_gpu_job *job;

	while ((job = job_next(q))) {
		struct mc_gpu_event *ev = job->event;
		int r = ev ? q->d->event_wait(ev) : 0;

		if (job->status < 0)
			r = job->status;
		/* Without a proof by the event, some of its copies may still go on. */
		if (r < 0)
			q->d->drain(q->stream);
		if (ev)
			event_keep(q, ev);
		job->done(job, r);
	}
	return NULL;
}

int mc_gpu_queue_open(int gpu, const char *name, struct mc_gpu_queue **ret)
{
	const struct mc_gpu_driver *d = mc_gpu();
	struct mc_gpu_queue *q;
	int r;

	if (!d)
		return mc_fail(-MC_ENOTSUP, "no GPU driver is loaded");
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->d = d;
	mc_list_init(&q->jobs);
	mc_mutex_init(&q->lock);
	mc_cond_init(&q->added);
	r = d->stream_open(gpu, &q->stream);
	if (r == 0) {
		r = mc_thread_start(&q->thread, name, queue_main, q);
		if (r < 0)
			d->stream_close(q->stream);
	}
	if (r < 0) {
		mc_cond_destroy(&q->added);
		mc_mutex_destroy(&q->lock);
		free(q);
		return r;
	}
	*ret = q;
	return 0;
}

void mc_gpu_queue_close(struct mc_gpu_queue *q)
{
	if (!q)
		return;
	mc_mutex_lock(&q->lock);
	q->closing = true;
	mc_cond_signal(&q->added);
	mc_mutex_unlock(&q->lock);
	mc_thread_join(q->thread);
	while (q->nkept)
		q->d->event_close(q->kept[--q->nkept]);
	q->d->stream_close(q->stream);
	mc_cond_destroy(&q->added);
	mc_mutex_destroy(&q->lock);
	free(q);
}
