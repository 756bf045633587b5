/* SPDX-License-Identifier: Apache-2.0
 * submit.c - conversion of upstream's transfer requests into requests of the engine: find peer and
 * rkey, submit. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"

/* ---- resolving --------------------------------------------------------------------------------- */

static int cache_set(struct mce_te_batch *b, segment_id_t segment, struct mce_te_view *v,
		     struct mce_te_cache *cache)
{
	int r;

	r = mce_te_batch_keep(b, v);
	if (r < 0)
		return r;
	if (cache->segment != segment)
		cache->reloaded = false;
	cache->segment = segment;
	cache->view = v;
	return 0;
}

/* Use the view in cache->answers, which the batch keeps already. */
static int cache_from_answers(const struct mce_te_batch *b, segment_id_t segment, struct mce_te_cache *cache)
{
	int r, stop;

	cache->segment = segment;
	r = mce_te_asks_view(cache->answers, segment, &cache->view);
	stop = r < 0 ? mce_te_batch_stopped(b) : 0;
	return stop ? stop : r;
}

static int cache_fill(struct mce_te_batch *b, segment_id_t segment, struct mce_te_cache *cache)
{
	struct mce_te_view *v;
	int r;

	if (cache->view && cache->segment == segment)
		return 0;
	cache->view = NULL;
	if (cache->answers)
		return cache_from_answers(b, segment, cache);
	r = mce_te_view_get(b->te, segment, mce_te_deadline(b), &v);
	return r < 0 ? r : cache_set(b, segment, v, cache);
}

/* The peer may have registered the memory after the view was made: fetch it again, once per call. */
static int cache_reload(struct mce_te_batch *b, segment_id_t segment, struct mce_te_cache *cache)
{
	struct mce_te_view *v;
	int r;

	if (cache->reloaded)
		return -ERANGE;
	cache->reloaded = true;
	r = mce_te_view_refetch_by(b->te, segment, cache->view, mce_te_deadline(b), &v);
	return r < 0 ? r : cache_set(b, segment, v, cache);
}

/* With MC_DISABLE_METACACHE no view is cached: fetch the descriptor of each segment of tasks [first,
 * first + n) once. */
static void cache_ask_all(struct mce_te_batch *b, size_t first, size_t n, struct mce_te_asks *asks,
			  struct mce_te_cache *cache)
{
	const struct mce_te_task *t = b->tasks;
	int r = 0;

	if (!b->te->env.no_metacache)
		return;
	for (size_t i = first; i < first + n && r == 0; i++)
		if (i == first || t[i].segment != t[i - 1].segment)
			r = mce_te_asks_add(asks, t[i].segment, NULL);
	mce_te_asks_run(asks);
	cache->answers = asks;
}

int mce_te_resolve(struct mce_te_batch *b, size_t i, bool reload, struct mce_te_cache *cache)
{
	segment_id_t segment = b->tasks[i].segment;
	struct mce_req *req = &b->reqs[i];
	const struct mce_te_buf *buf;
	uint64_t len = b->iovs[i].iov_len;
	int r;

	if (req->op != MCE_READ && req->op != MCE_WRITE)
		return mc_fail(-EINVAL, "task %zu has an unknown opcode", i);
	if (len && !b->iovs[i].iov_base)
		return mc_fail(-EINVAL, "task %zu has no local memory", i);
	r = cache_fill(b, segment, cache);
	if (r < 0)
		return r;
	buf = len ? mce_te_view_find(cache->view, req->addr, len) : NULL;
	if (!buf && len && reload && cache_reload(b, segment, cache) == 0)
		buf = mce_te_view_find(cache->view, req->addr, len);
	if (!buf && len)
		return mc_fail(-ERANGE, "segment %d has no buffer that contains 0x%llx and %llu bytes",
			       segment, (unsigned long long)req->addr, (unsigned long long)len);
	req->peer = cache->view->peer;
	req->rkey = buf ? buf->rkey : 0;
	return 0;
}

/* ---- submitting -------------------------------------------------------------------------------- */

static void submit_fail_task(struct mce_te_batch *b, size_t i, int status)
{
	__atomic_add_fetch(&b->group.failed, 1, __ATOMIC_RELAXED);
	mce_req_set_status(&b->reqs[i], status);
}

/* For a peer on this host the submitting thread copies the bytes.  Between portions of this size it
 * checks whether the batch was stopped.  Large enough to keep small requests together. */
#define PORTION_TASKS 16384u
#define PORTION_BYTES (64ull << 20)

static size_t submit_portion(const struct mce_te_batch *b, size_t first, size_t n)
{
	uint64_t bytes = 0;
	size_t i = 0;

	if (n > PORTION_TASKS)
		n = PORTION_TASKS;
	while (i < n && bytes < PORTION_BYTES)
		bytes += b->iovs[first + i++].iov_len;
	return i;
}

/* Submit tasks [first, first + n), which are resolved.  Once the batch is stopped, the rest ends with
 * its status. */
static void submit_resolved(struct mce_te_batch *b, size_t first, size_t n)
{
	size_t end = first + n, count;
	int stop = 0;

	while (first < end && !(stop = mce_te_batch_stopped(b))) {
		count = submit_portion(b, first, end - first);
		mce_submit(b->te->engine, &b->group, &b->reqs[first], (unsigned)count);
		first += count;
		if (first < end)
			MC_FAULT_POINT("te.submit.portion");
	}
	for (; first < end; first++)
		submit_fail_task(b, first, stop);
}

/* Submit the tasks whose segments have to be asked first. */
static void submit_later(struct mce_te_batch *b, size_t first, size_t n, struct mce_te_asks *asks)
{
	struct mce_te_cache cache = { .answers = asks };
	size_t run = first, i;
	int r;

	mce_te_asks_run(asks);
	for (i = first; i < first + n; i++) {
		r = b->tasks[i].later ? mce_te_resolve(b, i, false, &cache) : -ERANGE;
		if (r == 0)
			continue;
		if (i > run)
			submit_resolved(b, run, i - run);
		if (b->tasks[i].later)
			submit_fail_task(b, i, r);
		run = i + 1;
	}
	if (i > run)
		submit_resolved(b, run, i - run);
}

/* Submit tasks [first, first + n), adjacent resolved tasks together.  Afterwards ask the segments that may have
 * registered more memory. */
static void submit_tasks(struct mce_te_batch *b, size_t first, size_t n)
{
	struct mce_te_cache cache = { .view = NULL };
	struct mce_te_asks all = { .b = b, .uncached = true }, asks = { .b = b };
	size_t run = first, i;
	int r;

	cache_ask_all(b, first, n, &all, &cache);
	for (i = first; i < first + n; i++) {
		r = mce_te_resolve(b, i, false, &cache);
		if (r == 0)
			continue;
		if (i > run)
			submit_resolved(b, run, i - run);
		/* The peer may have registered the memory after the view was made. */
		if (r == -ERANGE && cache.view && !cache.answers &&
		    mce_te_asks_add(&asks, cache.segment, cache.view) == 0)
			b->tasks[i].later = true;
		else
			submit_fail_task(b, i, r);
		run = i + 1;
	}
	if (i > run)
		submit_resolved(b, run, i - run);
	if (asks.n)
		submit_later(b, first, n, &asks);
	mce_te_asks_done(&asks);
	mce_te_asks_done(&all);
}

static void submit_fill_locked(struct mce_te_batch *b, const struct transfer_request *reqs, size_t n,
			       const struct mce_te_hints *hints, bool ordered)
{
	for (size_t k = 0; k < n; k++) {
		size_t i = b->n + k;
		struct mce_req *req = &b->reqs[i];

		memset(req, 0, offsetof(struct mce_req, status));
		req->op = reqs[k].opcode == OPCODE_READ ? MCE_READ :
			  reqs[k].opcode == OPCODE_WRITE ? MCE_WRITE : (enum mce_op)-1;
		req->addr = reqs[k].target_offset;
		b->iovs[i].iov_base = reqs[k].source;
		b->iovs[i].iov_len = reqs[k].length;
		req->iov = &b->iovs[i];
		req->iovcnt = 1;
		req->ordered = ordered;
		req->prefer = hints->path;
		req->nics = hints->nics;
		b->tasks[i].segment = reqs[k].target_id;
		b->tasks[i].retried = b->tasks[i].later = false;
		mce_req_set_status(req, -EINPROGRESS);
	}
}

/* ---- options ----------------------------------------------------------------------------------- */

static int opts_check(const struct mce_te_submit_opts *opts, struct mce_te_submit_opts *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (!opts)
		return 0;
	/* A program built with an older header has fewer fields, one built with a newer header may have more. */
	if (opts->size < offsetof(struct mce_te_submit_opts, notify_name) || opts->size > 4096)
		return mc_fail(-EINVAL, "invalid size %zu of the options", opts->size);
	memcpy(ret, opts, opts->size < sizeof(*ret) ? opts->size : sizeof(*ret));
	if (!ret->notify_name != !ret->notify_msg)
		return mc_fail(-EINVAL, "a notification needs a name and a message");
	if (ret->deadline_ms < 0)
		return mc_fail(-EINVAL, "the deadline has passed");
	return 0;
}

/* Zero tasks: no peer can be notified. */
static int opts_check_empty(const struct mce_te_submit_opts *opts)
{
	return opts->notify_name ? mc_fail(-EINVAL, "a notification without a transfer has no target") : 0;
}

static int notify_set_locked(struct mce_te_batch *b, segment_id_t segment,
			     const struct mce_te_submit_opts *opts)
{
	char *name, *msg;

	if (!opts->notify_name)
		return 0;
	name = strdup(opts->notify_name);
	msg = strdup(opts->notify_msg);
	if (!name || !msg) {
		free(name);
		free(msg);
		return -ENOMEM;
	}
	free(b->notify_name);
	free(b->notify_msg);
	b->notify_name = name;
	b->notify_msg = msg;
	b->notify_segment = segment;
	b->notify = true;
	return 0;
}

static int deadline_set_locked(struct mce_te_batch *b, uint64_t deadline)
{
	uint64_t was = b->deadline;
	int r;

	/* The earliest deadline applies to all tasks. */
	if (deadline >= was)
		return 0;
	mce_te_deadline_set(b, deadline);
	r = mce_te_timer_add(b);
	if (r < 0)
		mce_te_deadline_set(b, was);
	return r;
}

static int opts_set_locked(struct mce_te_batch *b, segment_id_t segment,
			   const struct mce_te_submit_opts *opts)
{
	int r;

	r = notify_set_locked(b, segment, opts);
	if (r == 0 && opts->deadline_ms > 0)
		r = deadline_set_locked(b, mc_deadline_ms(opts->deadline_ms));
	/* No submitted task is left that the notification could follow. */
	if (r < 0 && !b->busy)
		b->notify = false;
	return r;
}

/* Submit tasks from @first on: the batch cannot become final before submit_end(). */
static void submit_begin_locked(struct mce_te_batch *b, size_t first)
{
	if (!b->busy) {
		b->cursor = 0;
		b->since = first;
		b->began_ns = b->te->metric ? mc_now_ns() : 0;
	}
	b->busy = true;
	b->submitters++;
	mce_batch_hold(&b->group);
}

static void submit_end(struct mce_te_batch *b)
{
	mc_mutex_lock(&b->lock);
	if (--b->submitters == 0) {
		mc_cond_broadcast(&b->change);
		if (b->stop_status)
			mce_te_batch_stop_locked(b, b->stop_status);
	}
	mc_mutex_unlock(&b->lock);
	mce_batch_release(&b->group);
}

/* ---- public ------------------------------------------------------------------------------------ */

static struct mce_te_batch *submit_lock(struct mce_te *te, batch_id_t id, const void *reqs, size_t n,
					int *ret_err)
{
	struct mce_te_batch *b;

	if (n && !reqs) {
		*ret_err = mc_fail(-EINVAL, "no list of requests");
		return NULL;
	}
	b = mce_te_batch_lock(te, id);
	if (!b)
		*ret_err = mc_fail(-EINVAL, "unknown batch id, or the batch was freed");
	return b;
}

static int submit_check_locked(const struct mce_te_batch *b, size_t n)
{
	if (n > b->capacity - b->n)
		return mc_fail(-ENOBUFS, "the batch can take %zu more tasks, not %zu",
			       b->capacity - b->n, n);
	return 0;
}

int mce_te_submit(struct mce_te *te, batch_id_t id, const struct transfer_request *reqs, size_t n,
		  const struct mce_te_submit_opts *opts)
{
	struct mce_te_submit_opts o;
	struct mce_te_hints hints;
	struct mce_te_batch *b;
	size_t first;
	int r;

	r = opts_check(opts, &o);
	if (r < 0)
		return r;
	mce_te_hints(te, &o, &hints);
	b = submit_lock(te, id, reqs, n, &r);
	if (!b)
		return r;
	r = submit_check_locked(b, n);
	if (r == 0 && b->prepared)
		r = mc_fail(-EINVAL, "the batch has prepared tasks");
	if (r == 0)
		r = n ? opts_set_locked(b, reqs[0].target_id, &o) : opts_check_empty(&o);
	if (r < 0 || n == 0) {
		mce_te_batch_unlock(b);
		return r;
	}
	first = b->n;
	submit_fill_locked(b, reqs, n, &hints, o.ordered);
	b->n += n;
	submit_begin_locked(b, first);
	mce_te_batch_unlock(b);
	submit_tasks(b, first, n);
	submit_end(b);
	return 0;
}

int mce_te_prepare(struct mce_te *te, batch_id_t id, const struct transfer_request *reqs, size_t n)
{
	struct mce_te_cache cache = { .view = NULL };
	struct mce_te_hints none = { .nics = 0 };
	struct mce_te_asks all = { .uncached = true };
	struct mce_te_batch *b;
	bool before;
	size_t first;
	int r;

	b = submit_lock(te, id, reqs, n, &r);
	if (!b)
		return r;
	r = submit_check_locked(b, n);
	if (r == 0 && (b->busy || b->submitters || (b->n && !b->prepared)))
		r = mc_fail(-EBUSY, "the batch has submitted tasks");
	if (r < 0) {
		mce_te_batch_unlock(b);
		return r;
	}
	first = b->n;
	before = b->prepared;
	/* Set before the network is used: a concurrent submission would otherwise use the same tasks. */
	b->prepared = true;
	submit_fill_locked(b, reqs, n, &none, false);
	b->submitters++;
	mce_te_batch_unlock(b);
	all.b = b;
	cache_ask_all(b, first, n, &all, &cache);
	for (size_t i = first; i < first + n && r == 0; i++)
		r = mce_te_resolve(b, i, !cache.answers, &cache);
	mce_te_asks_done(&all);
	mc_mutex_lock(&b->lock);
	if (r == 0)
		b->n += n;
	else
		b->prepared = before;
	if (--b->submitters == 0)
		mc_cond_broadcast(&b->change);
	mc_mutex_unlock(&b->lock);
	return r;
}

/* Wait for threads that end tasks of the last post; this is short.  The batch may be freed afterwards. */
static void submit_wait_stoppers_locked(struct mce_te_batch *b, batch_id_t id)
{
	while (b->id == id && b->stoppers)
		mc_cond_wait(&b->change, &b->lock);
}

int mce_te_post(struct mce_te *te, batch_id_t id, const struct mce_te_submit_opts *opts)
{
	struct mce_te_submit_opts o;
	struct mce_te_hints hints;
	struct mce_te_batch *b;
	size_t n;
	int r;

	r = opts_check(opts, &o);
	if (r < 0)
		return r;
	mce_te_hints(te, &o, &hints);
	b = submit_lock(te, id, NULL, 0, &r);
	if (!b)
		return r;
	submit_wait_stoppers_locked(b, id);
	if (b->id != id)
		r = mc_fail(-EINVAL, "unknown batch id, or the batch was freed");
	else if (!b->prepared)
		r = mc_fail(-EINVAL, "the batch has no prepared tasks");
	else if (b->busy || b->submitters)
		r = mc_fail(-EBUSY, "the tasks of the last post have not ended");
	else
		r = b->n ? opts_set_locked(b, b->tasks[0].segment, &o) : opts_check_empty(&o);
	if (r < 0 || b->n == 0) {
		mce_te_batch_unlock(b);
		return r;
	}
	for (size_t i = 0; i < b->n; i++) {
		b->reqs[i].prefer = hints.path;
		b->reqs[i].nics = hints.nics;
		mce_req_set_status(&b->reqs[i], -EINPROGRESS);
		b->tasks[i].retried = false;
	}
	b->group.failed = 0;
	n = b->n;
	submit_begin_locked(b, 0);
	mce_te_batch_unlock(b);
	submit_resolved(b, 0, n);
	submit_end(b);
	return 0;
}
