/* SPDX-License-Identifier: Apache-2.0
 * finish.c - steps after the last completion of a batch: retry tasks whose peer has changed since the
 * lookup, send the notification, wake the waiting threads.
 *
 * Completions run on I/O threads, which must not block; steps that use the network are left to worker
 * threads, which are started on demand. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

/* ---- retry ------------------------------------------------------------------------------------- */

/* The region was unregistered or the peer restarted: the view that the task used may be out of date. */
static bool retry_allowed(const struct mce_te_batch *b, size_t i)
{
	int status = mce_req_status(&b->reqs[i]);

	return !b->tasks[i].retried && (status == -ESTALE || status == -MC_ETRANSFER);
}

/* Resolve task @i again with the new views.  True if its peer or rkey changed, or if its peer was waiting for the new
 * view: after -ESTALE of a peer over RDMA only, the engine gets the keys of its regions from the view, also if they are
 * the same as before. */
static bool retry_resolve(struct mce_te_batch *b, size_t i, const struct mce_te_asks *asks)
{
	struct mce_te_cache cache = { .answers = asks };
	struct mce_req *req = &b->reqs[i];
	bool stale = mce_req_status(req) == -ESTALE;
	struct mce_peer *peer = req->peer;
	uint64_t rkey = req->rkey;

	b->tasks[i].retried = true;
	return mce_te_resolve(b, i, false, &cache) == 0 &&
		(req->peer != peer || req->rkey != rkey || (stale && cache.view->rdma));
}

/* No retry any more: tasks that wait for one end with @status. */
static void retry_abandon(struct mce_te_batch *b, size_t n, int status)
{
	for (size_t i = b->since; i < n; i++)
		if (retry_allowed(b, i))
			mce_req_set_status(&b->reqs[i], status);
}

/* Submit again those tasks from b->since up to @n for which retry_resolve() is true; the batch is held.
 * True if there was any.  Earlier tasks have been reported as failed, so the caller may already use
 * their memory for something else. */
static bool retry_run(struct mce_te_batch *b, size_t n)
{
	struct mce_te_asks asks = { .b = b };
	bool any = false;
	int stop = 0;

	for (size_t i = b->since; i < n; i++)
		if (retry_allowed(b, i) && mce_te_asks_add(&asks, b->tasks[i].segment, NULL) < 0)
			break;
	mce_te_asks_run(&asks);
	for (size_t i = b->since; i < n && !stop; i++) {
		if (!retry_allowed(b, i))
			continue;
		stop = mce_te_batch_stopped(b);
		if (stop || !retry_resolve(b, i, &asks))
			continue;
		any = true;
		MC_FAULT_POINT("te.finish.again");
		mce_req_set_status(&b->reqs[i], -EINPROGRESS);
		mce_submit(b->te->engine, &b->group, &b->reqs[i], 1);
	}
	if (stop)
		retry_abandon(b, n, stop);
	mce_te_asks_done(&asks);
	return any;
}

/* ---- the end of a batch ------------------------------------------------------------------------ */

static bool all_completed(const struct mce_te_batch *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (mce_req_status(&b->reqs[i]) != 0)
			return false;
	return true;
}

/* Notify the peer that the data has arrived.  A lost notification does not make the transfer fail. */
static int finish_notify(struct mce_te_batch *b, segment_id_t segment, const char *name, const char *msg)
{
	int r;

	MC_FAULT_POINT("te.finish.notify");
	r = mce_te_notify_by(b->te, segment, name, msg, mce_te_deadline(b));
	if (r < 0)
		mc_warn("engine", "a notification is lost: %s segment=%d", mc_err_detail(r), segment);
	return r;
}

static bool retry_wanted_locked(struct mce_te_batch *b)
{
	if (!__atomic_load_n(&b->group.failed, __ATOMIC_RELAXED))
		return false;
	for (size_t i = b->since; i < b->n; i++)
		if (retry_allowed(b, i))
			return true;
	return false;
}

/* The queue for a batch whose requests have ended; NULL: none is needed. */
static struct mce_te_queue *queue_for_locked(struct mce_te_batch *b)
{
	if (b->stop_status)
		return NULL;
	if (retry_wanted_locked(b))
		return &b->te->work.retry;
	return b->notify ? &b->te->work.notify : NULL;
}

/* The batch was stopped before its retry or notification: tasks that were not final get the stop status. */
static void stop_tasks_locked(struct mce_te_batch *b)
{
	bool unsent = b->notify && all_completed(b, b->n);

	retry_abandon(b, b->n, b->stop_status);
	for (size_t i = b->since; unsent && i < b->n; i++)
		mce_req_set_status(&b->reqs[i], b->stop_status);
}

static int queue_add(struct mce_te_queue *queue, struct mce_te_batch *b);

/* No request is running: settle the batch, or queue it for a worker.  Negative: no worker can send the
 * notification. */
static int finish_locked(struct mce_te_batch *b)
{
	struct mce_te_queue *queue;
	int r = 0;

	/* More tasks were submitted, or another call has handled it. */
	if (!b->busy || b->finishing || !mce_batch_done(&b->group))
		return 0;
	queue = queue_for_locked(b);
	if (queue)
		r = queue_add(queue, b);
	b->finishing = queue && r == 0;
	if (b->finishing)
		return 0;
	if (!b->notify || !all_completed(b, b->n))
		r = 0;
	if (b->stop_status)
		stop_tasks_locked(b);
	b->notify = false;
	mce_te_batch_settle_locked(b);
	return r;
}

void mce_te_batch_ended(void *arg)
{
	struct mce_te_batch *b = arg;
	int r;

	mc_mutex_lock(&b->lock);
	r = finish_locked(b);
	mc_mutex_unlock(&b->lock);
	if (r < 0)
		mc_warn("engine", "a notification is lost, cannot start a worker thread: %s", mc_strerror(r));
}

/* Worker thread.  While b->finishing is set, the worker owns the requests, except those submitted meanwhile. */
static void finish_batch(struct mce_te_batch *b)
{
	auto_free char *name = NULL, *msg = NULL;
	bool again, over, send = false;
	segment_id_t segment = 0;
	int stop = 0;
	size_t n;

	mc_mutex_lock(&b->lock);
	while (b->pollers)
		mc_cond_wait(&b->change, &b->lock);
	n = b->n;
	again = b->group.failed && !mce_te_stopping(b->te);
	mce_batch_hold(&b->group);
	mc_mutex_unlock(&b->lock);
	again = again && retry_run(b, n);
	MC_FAULT_POINT("te.finish.tell");
	mc_mutex_lock(&b->lock);
	/* The cursor may already be past the retried tasks. */
	if (again)
		b->cursor = 0;
	/* Only our own hold is left and no task was added.  Otherwise a later completion finishes the batch. */
	over = !again && b->n == n && mce_batch_left(&b->group) == 1;
	if (over) {
		stop = mce_te_batch_stopped(b);
		send = b->notify && !stop && all_completed(b, n);
		segment = b->notify_segment;
		name = TAKE_PTR(b->notify_name);
		msg = TAKE_PTR(b->notify_msg);
	}
	mc_mutex_unlock(&b->lock);
	if (send && finish_notify(b, segment, name, msg) < 0)
		stop = mce_te_batch_stopped(b);
	mc_mutex_lock(&b->lock);
	/* The next notification may have been set meanwhile; a stopped batch keeps its flag for the
	 * stop status. */
	if (over && !stop && !b->notify_name)
		b->notify = false;
	b->finishing = false;
	if (stop && !b->stop_status)
		mce_te_stop_set(b, stop);
	/* Requests submitted by the retry do not have the stop status. */
	if (b->stop_status)
		mce_te_batch_stop_locked(b, b->stop_status);
	mc_mutex_unlock(&b->lock);
	mce_batch_release(&b->group);
}

/* ---- workers ----------------------------------------------------------------------------------- */

static struct mce_te_batch *queue_take(struct mce_te_queue *queue)
{
	struct mce_te_work *w = &queue->te->work;
	struct mce_te_batch *b = NULL;

	MC_LOCKED(&w->lock);
	while (mc_list_empty(&queue->list) && !w->stopping) {
		queue->idle++;
		mc_cond_wait(&queue->added, &w->lock);
		queue->idle--;
	}
	if (!mc_list_empty(&queue->list)) {
		b = mc_list_first(&queue->list, struct mce_te_batch, work_node);
		mc_list_remove(&b->work_node);
	}
	return b;
}

static void *worker_main(void *arg)
{
	struct mce_te_queue *queue = arg;
	struct mce_te_batch *b;

	while ((b = queue_take(queue)))
		finish_batch(b);
	return NULL;
}

/* A woken worker counts as idle until it has the lock, so compare idle workers with queued batches. */
static bool queue_workers_busy_locked(const struct mce_te_queue *queue)
{
	unsigned idle = queue->idle;
	struct mc_list *pos;

	mc_list_for_each(pos, &queue->list) {
		if (idle == 0)
			break;
		idle--;
	}
	return idle == 0;
}

static int queue_add(struct mce_te_queue *queue, struct mce_te_batch *b)
{
	struct mce_te_work *w = &queue->te->work;
	int r = mc_fault("te.finish.enqueue");

	MC_LOCKED(&w->lock);
	if (w->stopping || r < 0)
		return w->stopping ? -ECANCELED : r;
	if (queue_workers_busy_locked(queue) && queue->workers < MCE_TE_WORKERS) {
		r = mc_thread_start(&queue->worker[queue->workers], "mce-te-finish", worker_main, queue);
		if (r == 0)
			queue->workers++;
		else if (queue->workers == 0)
			return r;
	}
	mc_list_push_back(&queue->list, &b->work_node);
	mc_cond_signal(&queue->added);
	return 0;
}

/* False: the batch is in no queue, or a worker has taken it. */
static bool queue_remove(struct mce_te_batch *b)
{
	MC_LOCKED(&b->te->work.lock);
	if (mc_list_empty(&b->work_node))
		return false;
	mc_list_remove(&b->work_node);
	return true;
}

/* ---- stopping ---------------------------------------------------------------------------------- */

void mce_te_batch_stop_locked(struct mce_te_batch *b, int status)
{
	bool unqueued;
	size_t n;

	if (!b->stop_status)
		mce_te_stop_set(b, status);
	unqueued = b->finishing && queue_remove(b);
	if (unqueued)
		b->finishing = false;
	/* A request that is being submitted could miss the status: its submitter ends it.  Do not wait for
	 * submitters: they may be asking a peer, and the slot could belong to another batch afterwards. */
	if (b->submitters || b->finishing || !b->busy)
		return;
	n = b->n;
	b->pollers++;
	b->stoppers++;
	mc_mutex_unlock(&b->lock);
	MC_FAULT_POINT("te.finish.stop");
	for (size_t i = 0; i < n; i++)
		if (mce_req_status(&b->reqs[i]) == -EINPROGRESS)
			mce_peer_cancel(b->reqs[i].peer, &b->reqs[i], status);
	mc_mutex_lock(&b->lock);
	b->stoppers--;
	b->pollers--;
	if (!b->pollers || !b->stoppers)
		mc_cond_broadcast(&b->change);
	/* All requests had ended, and no completion will finish the batch. */
	if (unqueued)
		(void)finish_locked(b);
}

/* ---- the timer --------------------------------------------------------------------------------- */

/* Remove the first batch whose deadline has passed from the list; NULL: none, *ret_next is the next deadline. */
static struct mce_te_batch *timer_take_late(struct mce_te_work *w, uint64_t now, uint64_t *ret_next)
{
	struct mc_list *pos;

	*ret_next = MC_NEVER;
	mc_list_for_each(pos, &w->timed) {
		struct mce_te_batch *b = mc_container_of(pos, struct mce_te_batch, timer_node);
		uint64_t due = __atomic_load_n(&b->deadline, __ATOMIC_RELAXED);

		if (due <= now) {
			mc_list_remove(&b->timer_node);
			return b;
		}
		if (due < *ret_next)
			*ret_next = due;
	}
	return NULL;
}

static void timer_sleep(struct mce_te_work *w, uint64_t until)
{
	if (until == MC_NEVER)
		mc_cond_wait(&w->timer_changed, &w->lock);
	else
		(void)mc_cond_wait_until(&w->timer_changed, &w->lock, until);
}

/* Check again: the batch may have ended meanwhile, or another batch may use the slot. */
static void timer_stop_late(struct mce_te_batch *b)
{
	MC_LOCKED(&b->lock);
	if (b->busy && b->deadline <= mc_now_ns())
		mce_te_batch_stop_locked(b, -MC_ETIMEDOUT);
}

static void *timer_main(void *arg)
{
	struct mce_te *te = arg;
	struct mce_te_work *w = &te->work;
	struct mce_te_batch *b;
	uint64_t next;

	mc_mutex_lock(&w->lock);
	while (!w->stopping) {
		b = timer_take_late(w, mc_now_ns(), &next);
		if (b) {
			mc_mutex_unlock(&w->lock);
			timer_stop_late(b);
			mc_mutex_lock(&w->lock);
		} else {
			timer_sleep(w, next);
		}
	}
	mc_mutex_unlock(&w->lock);
	return NULL;
}

static int timer_start_locked(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;
	int r = 0;

	if (!w->timer_runs)
		r = mc_thread_start(&w->timer, "mce-te-timer", timer_main, te);
	if (r == 0)
		w->timer_runs = true;
	return r;
}

/* Not the timer thread: a peer that does not answer must not delay deadlines. */
static void *refresh_main(void *arg)
{
	struct mce_te *te = arg;
	struct mce_te_work *w = &te->work;
	uint64_t every = te->env.refresh_ms * MC_NS_PER_MS, next = mc_now_ns() + every;

	mc_mutex_lock(&w->lock);
	while (!w->stopping) {
		if (mc_now_ns() < next) {
			timer_sleep(w, next);
			continue;
		}
		mc_mutex_unlock(&w->lock);
		(void)mce_te_sync(te);
		next = mc_now_ns() + every;
		mc_mutex_lock(&w->lock);
	}
	mc_mutex_unlock(&w->lock);
	return NULL;
}

int mce_te_refresh_start(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;
	int r;

	r = mc_thread_start(&w->refresher, "mce-te-refresh", refresh_main, te);
	w->refresher_runs = r == 0;
	return r;
}

int mce_te_timer_add(struct mce_te_batch *b)
{
	struct mce_te_work *w = &b->te->work;
	int r;

	MC_LOCKED(&w->lock);
	r = w->stopping ? -ECANCELED : timer_start_locked(b->te);
	if (r < 0)
		return r;
	mc_list_remove(&b->timer_node);
	mc_list_push_back(&w->timed, &b->timer_node);
	mc_cond_broadcast(&w->timer_changed);
	return 0;
}

void mce_te_timer_remove(struct mce_te_batch *b)
{
	MC_LOCKED(&b->te->work.lock);
	mc_list_remove(&b->timer_node);
}

/* ---- life -------------------------------------------------------------------------------------- */

static void queue_init(struct mce_te *te, struct mce_te_queue *queue)
{
	queue->te = te;
	mc_list_init(&queue->list);
	mc_cond_init(&queue->added);
}

void mce_te_work_init(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;

	queue_init(te, &w->retry);
	queue_init(te, &w->notify);
	mc_list_init(&w->timed);
	w->last = MC_NEVER;
	mc_mutex_init(&w->lock);
	(void)mc_cond_init(&w->timer_changed);
}

bool mce_te_stopping(const struct mce_te *te)
{
	return __atomic_load_n(&te->work.last, __ATOMIC_RELAXED) != MC_NEVER;
}

uint64_t mce_te_ask_by(const struct mce_te *te)
{
	uint64_t by = mc_deadline_ms(te->env.ask_ms), last = __atomic_load_n(&te->work.last, __ATOMIC_RELAXED);

	return by < last ? by : last;
}

static void queue_join(struct mce_te_queue *queue)
{
	while (queue->workers > 0)
		mc_thread_join(queue->worker[--queue->workers]);
}

void mce_te_work_stop(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;

	__atomic_store_n(&w->last, mc_deadline_ms(MCE_TE_ASK_MS), __ATOMIC_RELAXED);
	mc_mutex_lock(&w->lock);
	w->stopping = true;
	mc_cond_broadcast(&w->retry.added);
	mc_cond_broadcast(&w->notify.added);
	mc_cond_broadcast(&w->timer_changed);
	mc_mutex_unlock(&w->lock);
	queue_join(&w->retry);
	queue_join(&w->notify);
	if (w->timer_runs)
		mc_thread_join(w->timer);
	if (w->refresher_runs)
		mc_thread_join(w->refresher);
	w->timer_runs = w->refresher_runs = false;
}

void mce_te_work_done(struct mce_te_work *w)
{
	mc_cond_destroy(&w->retry.added);
	mc_cond_destroy(&w->notify.added);
	mc_cond_destroy(&w->timer_changed);
	mc_mutex_destroy(&w->lock);
}
