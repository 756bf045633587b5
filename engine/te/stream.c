/* SPDX-License-Identifier: Apache-2.0
 * stream.c - transfers that begin when a stream of the GPU gets to them, and that the stream waits for.
 *
 * The driver calls a function of ours at that place of the stream, which must not call the driver.  So it passes the
 * transfers to a thread of the engine, which copies and sends, and waits for it. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/gpu/gpu.h"
#include "common/log.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "common/sys/thread.h"

/* How long a close waits for streams. */
#define STOP_MS 30000

struct streamed {
	struct mce_te *te;
	batch_id_t batch;
	size_t n;
	/* guarded by mce_te_streams.lock */
	struct mc_list node;
	bool done;
	struct transfer_request reqs[];
};

static int streamed_run(struct streamed *s)
{
	const struct mce_te_submit_opts opts = { .size = sizeof(opts), .ordered = 1 };
	struct mce_te_batch_status st = { .status = STATUS_FAILED };
	int r = mce_te_submit(s->te, s->batch, s->reqs, s->n, &opts);

	if (r == 0)
		r = mce_te_wait(s->te, s->batch, -1);
	if (r == 0)
		r = mce_te_batch_status(s->te, s->batch, &st);
	(void)mce_te_batch_free(s->te, s->batch);
	if (r == 0 && st.status != STATUS_COMPLETED)
		r = mc_fail(-MC_ETRANSFER, "%zu of %zu transfers failed", st.failed, st.tasks);
	return r;
}

static void *streams_main(void *arg)
{
	struct mce_te_streams *w = arg;
	struct streamed *s;
	int r;

	MC_LOCKED(&w->lock);
	for (;;) {
		while (mc_list_empty(&w->queue) && !w->closing)
			mc_cond_wait(&w->change, &w->lock);
		if (mc_list_empty(&w->queue))
			return NULL;
		s = mc_list_first(&w->queue, struct streamed, node);
		mc_list_remove(&s->node);
		mc_mutex_unlock(&w->lock);
		r = streamed_run(s);
		if (r < 0) {
			/* As in upstream: the work that follows on the stream would use wrong bytes. */
			mc_err("engine", "a transfer on a GPU's stream failed, ending the process: %s",
			       mc_err_detail(r));
			mc_process_end(1);
		}
		mc_mutex_lock(&w->lock);
		s->done = true;
		mc_cond_broadcast(&w->change);
	}
}

/* On a thread of the driver, when the stream is there. */
static void stream_is_there(void *arg)
{
	struct streamed *s = arg;
	struct mce_te_streams *w = &s->te->streams;

	mc_mutex_lock(&w->lock);
	mc_list_push_back(&w->queue, &s->node);
	mc_cond_broadcast(&w->change);
	while (!s->done)
		mc_cond_wait(&w->change, &w->lock);
	w->pending--;
	mc_cond_broadcast(&w->change);
	mc_mutex_unlock(&w->lock);
	free(s);
}

static int streams_start(struct mce_te_streams *w)
{
	int r = 0;

	MC_LOCKED(&w->lock);
	if (w->closing)
		return -ECANCELED;
	if (!w->started)
		r = mc_thread_start(&w->thread, "mce-on-stream", streams_main, w);
	w->started = w->started || r == 0;
	w->pending += r == 0;
	return r;
}

static void streams_forget(struct mce_te_streams *w)
{
	MC_LOCKED(&w->lock);
	w->pending--;
	mc_cond_broadcast(&w->change);
}

int mce_te_submit_on_stream(struct mce_te *te, uintptr_t stream, const struct transfer_request *reqs, size_t n)
{
	const struct mc_gpu_driver *d = mc_gpu();
	struct streamed *s;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	if (!d)
		return mc_fail(-MC_ENOTSUP, "this process has loaded no GPU driver");
	if (n && !reqs)
		return mc_fail(-EINVAL, "no list of requests");
	s = malloc(sizeof(*s) + n * sizeof(*reqs));
	if (!s)
		return -ENOMEM;
	*s = (struct streamed){ .te = te, .n = n };
	mc_list_init(&s->node);
	if (n)
		memcpy(s->reqs, reqs, n * sizeof(*reqs));
	r = mce_te_batch_new(te, n, &s->batch);
	if (r < 0) {
		free(s);
		return r;
	}
	r = streams_start(&te->streams);
	if (r == 0) {
		r = d->call_on(stream, stream_is_there, s);
		if (r < 0)
			streams_forget(&te->streams);
	}
	if (r < 0) {
		(void)mce_te_batch_free(te, s->batch);
		free(s);
	}
	return r;
}

int mce_te_gpu_of(const void *p)
{
	return mc_gpu_of(p);
}

int mce_te_gpu_memcpy(void *dst, const void *src, size_t n)
{
	return mc_gpu_memcpy(dst, src, n);
}

void mce_te_streams_init(struct mce_te_streams *w)
{
	mc_mutex_init(&w->lock);
	(void)mc_cond_init(&w->change);
	mc_list_init(&w->queue);
}

bool mce_te_streams_stop(struct mce_te_streams *w)
{
	uint64_t deadline = mc_deadline_ms(STOP_MS);
	bool started;

	mc_mutex_lock(&w->lock);
	/* Streams will still get to the queued transfers; but not after an error of the GPU. */
	while (w->pending && mc_now_ns() < deadline)
		(void)mc_cond_wait_until(&w->change, &w->lock, deadline);
	if (w->pending) {
		mc_err("engine", "a stream of a GPU does not get to its transfers, the engine is not freed "
		       "transfers=%u", w->pending);
		mc_mutex_unlock(&w->lock);
		return false;
	}
	w->closing = true;
	started = w->started;
	mc_cond_broadcast(&w->change);
	mc_mutex_unlock(&w->lock);
	if (started)
		mc_thread_join(w->thread);
	return true;
}

void mce_te_streams_done(struct mce_te_streams *w)
{
	mc_cond_destroy(&w->change);
	mc_mutex_destroy(&w->lock);
}
