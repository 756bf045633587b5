/* SPDX-License-Identifier: Apache-2.0
 * finish.c - what follows the last completion of a batch: a second try of tasks whose peer has changed
 * since we looked, the notification, the news for whoever waits.
 *
 * Completions come on I/O threads, which must not wait; what has to ask others is left to workers, which
 * are started when there is something to do. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/thread.h"

/* ---- a second try ------------------------------------------------------------------------------ */

/* Its region has ended or its engine is another one by now: what was looked up may be out of date. */
static bool may_retry(const struct mce_te_batch *b, size_t i)
{
	int status = mce_req_status(&b->reqs[i]);

	return !b->tasks[i].retried && (status == -ESTALE || status == -MC_ETRANSFER);
}

/* Look task @i up again in what its segment has told just now.  True when that changed something. */
static bool look_again(struct mce_te_batch *b, size_t i, const struct mce_te_asks *asks)
{
	struct mce_te_cache cache = { .told = asks };
	struct mce_req *req = &b->reqs[i];
	struct mce_peer *peer = req->peer;
	uint64_t rkey = req->rkey;

	b->tasks[i].retried = true;
	return mce_te_resolve(b, i, false, &cache) == 0 && (req->peer != peer || req->rkey != rkey);
}

/* There is no second try any more: what waits for one ends with @status. */
static void give_up(struct mce_te_batch *b, size_t n, int status)
{
	for (size_t i = b->since; i < n; i++)
		if (may_retry(b, i))
			mce_req_set_status(&b->reqs[i], status);
}

/* Hand over again what has a new place, of the tasks under way, which are before @n; the batch is held.  True when
 * there was any.  Those of before have been told of as failed, and their memory may be used for something else. */
static bool retry(struct mce_te_batch *b, size_t n)
{
	struct mce_te_asks asks = { .b = b };
	bool any = false;
	int stop = 0;

	for (size_t i = b->since; i < n; i++)
		if (may_retry(b, i) && mce_te_asks_add(&asks, b->tasks[i].segment, NULL) < 0)
			break;
	mce_te_asks_run(&asks);
	for (size_t i = b->since; i < n && !stop; i++) {
		if (!may_retry(b, i))
			continue;
		stop = mce_te_batch_stopped(b);
		if (stop || !look_again(b, i, &asks))
			continue;
		any = true;
		MC_FAULT_POINT("te.finish.again");
		mce_req_set_status(&b->reqs[i], -EINPROGRESS);
		mce_submit(b->te->engine, &b->group, &b->reqs[i], 1);
	}
	if (stop)
		give_up(b, n, stop);
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

/* The data is there: say so.  A notification that cannot be delivered does not undo the transfer. */
static int notify(struct mce_te_batch *b, segment_id_t segment, const char *name, const char *msg)
{
	int r;

	MC_FAULT_POINT("te.finish.notify");
	r = mce_te_notify_by(b->te, segment, name, msg, mce_te_deadline(b));
	if (r < 0)
		mc_warn("engine", "a notification is lost: %s segment=%d", mc_err_detail(r), segment);
	return r;
}

static bool wants_retry_locked(struct mce_te_batch *b)
{
	if (!__atomic_load_n(&b->group.failed, __ATOMIC_RELAXED))
		return false;
	for (size_t i = b->since; i < b->n; i++)
		if (may_retry(b, i))
			return true;
	return false;
}

/* Where a batch whose requests have ended has to wait; NULL: nowhere. */
static struct mce_te_line *line_for_locked(struct mce_te_batch *b)
{
	if (b->stop_status)
		return NULL;
	if (wants_retry_locked(b))
		return &b->te->work.again;
	return b->notify ? &b->te->work.tell : NULL;
}

/* Stopped before its second try, or before the data was told of: until then it had not ended. */
static void end_stopped_locked(struct mce_te_batch *b)
{
	bool untold = b->notify && all_completed(b, b->n);

	give_up(b, b->n, b->stop_status);
	for (size_t i = b->since; untold && i < b->n; i++)
		mce_req_set_status(&b->reqs[i], b->stop_status);
}

static int enqueue(struct mce_te_line *line, struct mce_te_batch *b);

/* Nothing is under way: the end, or work to do first.  Negative: there is a notification, and nobody to send it. */
static int conclude_locked(struct mce_te_batch *b)
{
	struct mce_te_line *line;
	int r = 0;

	/* More came, or it was seen to before. */
	if (!b->busy || b->finishing || !mce_batch_done(&b->group))
		return 0;
	line = line_for_locked(b);
	if (line)
		r = enqueue(line, b);
	b->finishing = line && r == 0;
	if (b->finishing)
		return 0;
	if (!b->notify || !all_completed(b, b->n))
		r = 0;
	if (b->stop_status)
		end_stopped_locked(b);
	b->notify = false;
	mce_te_batch_settle_locked(b);
	return r;
}

void mce_te_batch_ended(void *arg)
{
	struct mce_te_batch *b = arg;
	int r;

	pthread_mutex_lock(&b->lock);
	r = conclude_locked(b);
	pthread_mutex_unlock(&b->lock);
	if (r < 0)
		mc_warn("engine", "a notification is lost, nobody can send it: %s", mc_strerror(r));
}

/* Worker: the requests are ours while finishing says so, but for those that come anew. */
static void finish(struct mce_te_batch *b)
{
	auto_free char *name = NULL, *msg = NULL;
	bool again, over, tell = false;
	segment_id_t segment = 0;
	int stop = 0;
	size_t n;

	pthread_mutex_lock(&b->lock);
	while (b->pollers)
		pthread_cond_wait(&b->change, &b->lock);
	n = b->n;
	again = b->group.failed && !mce_te_stopping(b->te);
	mce_batch_hold(&b->group);
	pthread_mutex_unlock(&b->lock);
	again = again && retry(b, n);
	MC_FAULT_POINT("te.finish.tell");
	pthread_mutex_lock(&b->lock);
	/* Who looks for the first task under way may have passed those that are again. */
	if (again)
		b->cursor = 0;
	/* Nothing is under way but our own hold, nor has come and gone: else the end is yet to come,
	 * and is seen to then. */
	over = !again && b->n == n && mce_batch_left(&b->group) == 1;
	if (over) {
		stop = mce_te_batch_stopped(b);
		tell = b->notify && !stop && all_completed(b, n);
		segment = b->notify_segment;
		name = TAKE_PTR(b->notify_name);
		msg = TAKE_PTR(b->notify_msg);
	}
	pthread_mutex_unlock(&b->lock);
	if (tell && notify(b, segment, name, msg) < 0)
		stop = mce_te_batch_stopped(b);
	pthread_mutex_lock(&b->lock);
	/* The next one may have come meanwhile; what was stopped has not been told of. */
	if (over && !stop && !b->notify_name)
		b->notify = false;
	b->finishing = false;
	if (stop && !b->stop_status)
		mce_te_stop_set(b, stop);
	/* The requests of the second try do not know. */
	if (b->stop_status)
		mce_te_batch_stop_locked(b, b->stop_status);
	pthread_mutex_unlock(&b->lock);
	mce_batch_release(&b->group);
}

/* ---- workers ----------------------------------------------------------------------------------- */

static struct mce_te_batch *take(struct mce_te_line *line)
{
	struct mce_te_work *w = &line->te->work;
	struct mce_te_batch *b = NULL;

	MC_LOCKED(&w->lock);
	while (mc_list_empty(&line->queue) && !w->stopping) {
		line->idle++;
		pthread_cond_wait(&line->news, &w->lock);
		line->idle--;
	}
	if (!mc_list_empty(&line->queue)) {
		b = mc_list_first(&line->queue, struct mce_te_batch, work_node);
		mc_list_remove(&b->work_node);
	}
	return b;
}

static void *worker_main(void *arg)
{
	struct mce_te_line *line = arg;
	struct mce_te_batch *b;

	while ((b = take(line)))
		finish(b);
	return NULL;
}

/* Idle workers have been woken for what is in the queue, but count as idle until they have the lock. */
static bool all_needed_locked(const struct mce_te_line *line)
{
	unsigned idle = line->idle;
	struct mc_list *pos;

	mc_list_for_each(pos, &line->queue) {
		if (idle == 0)
			break;
		idle--;
	}
	return idle == 0;
}

static int enqueue(struct mce_te_line *line, struct mce_te_batch *b)
{
	struct mce_te_work *w = &line->te->work;
	int r = mc_fault("te.finish.enqueue");

	MC_LOCKED(&w->lock);
	if (w->stopping || r < 0)
		return w->stopping ? -ECANCELED : r;
	if (all_needed_locked(line) && line->workers < MCE_TE_WORKERS) {
		r = mc_thread_start(&line->worker[line->workers], "mce-te-finish", worker_main, line);
		if (r == 0)
			line->workers++;
		else if (line->workers == 0)
			return r;
	}
	mc_list_push_back(&line->queue, &b->work_node);
	pthread_cond_signal(&line->news);
	return 0;
}

/* False: it is in no queue, or a worker has taken it. */
static bool unqueue(struct mce_te_batch *b)
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
	unqueued = b->finishing && unqueue(b);
	if (unqueued)
		b->finishing = false;
	/* Requests that are just being handed over would not know: who hands them over ends them.  To wait for it
	 * would keep others waiting, since it may be asking a peer; and the place could be another batch's by then. */
	if (b->submitters || b->finishing || !b->busy)
		return;
	n = b->n;
	b->pollers++;
	b->stoppers++;
	pthread_mutex_unlock(&b->lock);
	MC_FAULT_POINT("te.finish.stop");
	for (size_t i = 0; i < n; i++)
		if (mce_req_status(&b->reqs[i]) == -EINPROGRESS)
			mce_peer_cancel(b->reqs[i].peer, &b->reqs[i], status);
	pthread_mutex_lock(&b->lock);
	b->stoppers--;
	b->pollers--;
	if (!b->pollers || !b->stoppers)
		pthread_cond_broadcast(&b->change);
	/* All of it had ended, and nobody else will say so. */
	if (unqueued)
		(void)conclude_locked(b);
}

/* ---- the timer --------------------------------------------------------------------------------- */

/* The first batch that is late, off the list, and used; else the time of the next. */
static struct mce_te_batch *late_one(struct mce_te_work *w, uint64_t now, uint64_t *ret_next)
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
	struct timespec ts = { .tv_sec = (time_t)(until / MC_NS_PER_SEC),
			       .tv_nsec = (long)(until % MC_NS_PER_SEC) };

	if (until == MC_NEVER)
		pthread_cond_wait(&w->timer_news, &w->lock);
	else
		pthread_cond_timedwait(&w->timer_news, &w->lock, &ts);
}

/* It was late when it was taken off; by now it may have ended, or be another batch in the same place. */
static void stop_late(struct mce_te_batch *b)
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

	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		b = late_one(w, mc_now_ns(), &next);
		if (b) {
			pthread_mutex_unlock(&w->lock);
			stop_late(b);
			pthread_mutex_lock(&w->lock);
		} else {
			timer_sleep(w, next);
		}
	}
	pthread_mutex_unlock(&w->lock);
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

/* A thread of its own: peers that do not answer must not keep deadlines waiting. */
static void *refresh_main(void *arg)
{
	struct mce_te *te = arg;
	struct mce_te_work *w = &te->work;
	uint64_t every = te->env.refresh_ms * MC_NS_PER_MS, next = mc_now_ns() + every;

	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		if (mc_now_ns() < next) {
			timer_sleep(w, next);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		(void)mce_te_sync(te);
		next = mc_now_ns() + every;
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
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
	pthread_cond_broadcast(&w->timer_news);
	return 0;
}

void mce_te_timer_remove(struct mce_te_batch *b)
{
	MC_LOCKED(&b->te->work.lock);
	mc_list_remove(&b->timer_node);
}

/* ---- life -------------------------------------------------------------------------------------- */

static void line_init(struct mce_te *te, struct mce_te_line *line)
{
	line->te = te;
	mc_list_init(&line->queue);
	pthread_cond_init(&line->news, NULL);
}

void mce_te_work_init(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;

	line_init(te, &w->again);
	line_init(te, &w->tell);
	mc_list_init(&w->timed);
	w->last = MC_NEVER;
	pthread_mutex_init(&w->lock, NULL);
	(void)mc_cond_init(&w->timer_news);
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

static void line_join(struct mce_te_line *line)
{
	while (line->workers > 0)
		pthread_join(line->worker[--line->workers], NULL);
}

void mce_te_work_stop(struct mce_te *te)
{
	struct mce_te_work *w = &te->work;

	__atomic_store_n(&w->last, mc_deadline_ms(MCE_TE_ASK_MS), __ATOMIC_RELAXED);
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->again.news);
	pthread_cond_broadcast(&w->tell.news);
	pthread_cond_broadcast(&w->timer_news);
	pthread_mutex_unlock(&w->lock);
	line_join(&w->again);
	line_join(&w->tell);
	if (w->timer_runs)
		pthread_join(w->timer, NULL);
	if (w->refresher_runs)
		pthread_join(w->refresher, NULL);
	w->timer_runs = w->refresher_runs = false;
}

void mce_te_work_done(struct mce_te_work *w)
{
	pthread_cond_destroy(&w->again.news);
	pthread_cond_destroy(&w->tell.news);
	pthread_cond_destroy(&w->timer_news);
	pthread_mutex_destroy(&w->lock);
}
