/* SPDX-License-Identifier: Apache-2.0
 * batch.c - batches: handles, the states of their tasks, waiting for them.
 *
 * An id consists of a generation and a slot.  A generation is not reused, so the id of a freed batch is refused
 * even if another batch uses the slot. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"

#define INDEX_BITS 20
#define GENERATION_MASK ((1ull << (63 - INDEX_BITS)) - 1)
#define TASKS_MAX (1u << 24)
/* When a batch is freed, its slot keeps arrays for at most this many tasks. */
#define TASKS_KEPT 1024u

_Static_assert(MCE_TE_CHUNKS * MCE_TE_CHUNK == 1u << INDEX_BITS, "an id has bits for every slot");

/* ---- slots ------------------------------------------------------------------------------------- */

static void slot_init(struct mce_te *te, struct mce_te_batch *b, uint32_t index)
{
	mc_mutex_init(&b->lock);
	(void)mc_cond_init(&b->change);
	b->te = te;
	b->index = index;
	b->eventfd = -1;
	b->views = b->few;
	b->views_cap = MCE_TE_FEW;
	mce_te_deadline_set(b, MC_NEVER);
	/* A random start makes an id of one engine invalid in another. */
	b->generation = mc_random_u64() & GENERATION_MASK;
	mc_list_init(&b->work_node);
	mc_list_init(&b->timer_node);
}

/* Add new slots to the list of free ones. */
static int chunk_add_locked(struct mce_te *te)
{
	uint32_t *more, at = te->nslots;
	struct mce_te_batch *chunk;

	if (at / MCE_TE_CHUNK == MCE_TE_CHUNKS)
		return mc_fail(-MC_ELIMIT, "too many batches");
	more = realloc(te->free_slot, (at + MCE_TE_CHUNK) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	te->free_slot = more;
	chunk = calloc(MCE_TE_CHUNK, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	for (uint32_t i = MCE_TE_CHUNK; i-- > 0;) {
		slot_init(te, &chunk[i], at + i);
		te->free_slot[te->nfree++] = at + i;
	}
	te->nslots += MCE_TE_CHUNK;
	__atomic_store_n(&te->chunk[at / MCE_TE_CHUNK], chunk, __ATOMIC_RELEASE);
	return 0;
}

static struct mce_te_batch *slot_at(struct mce_te *te, uint32_t index)
{
	struct mce_te_batch *chunk;

	chunk = __atomic_load_n(&te->chunk[index / MCE_TE_CHUNK], __ATOMIC_ACQUIRE);
	return chunk ? &chunk[index % MCE_TE_CHUNK] : NULL;
}

static int slot_take(struct mce_te *te, struct mce_te_batch **ret)
{
	int r = 0;

	mc_mutex_lock(&te->slot_lock);
	if (te->nfree == 0)
		r = chunk_add_locked(te);
	if (r == 0)
		*ret = slot_at(te, te->free_slot[--te->nfree]);
	mc_mutex_unlock(&te->slot_lock);
	return r;
}

static void slot_give(struct mce_te *te, struct mce_te_batch *b)
{
	mc_mutex_lock(&te->slot_lock);
	te->free_slot[te->nfree++] = b->index;
	mc_mutex_unlock(&te->slot_lock);
}

struct mce_te_batch *mce_te_batch_lock(struct mce_te *te, batch_id_t id)
{
	struct mce_te_batch *b;

	if (mc_fork_check(te->fork_depth) < 0)
		return NULL;
	b = id && id != INVALID_BATCH ? slot_at(te, (uint32_t)(id & ((1u << INDEX_BITS) - 1))) : NULL;
	if (!b)
		return NULL;
	mc_mutex_lock(&b->lock);
	if (b->id == id)
		return b;
	mc_mutex_unlock(&b->lock);
	return NULL;
}

void mce_te_batch_unlock(struct mce_te_batch *b)
{
	mc_mutex_unlock(&b->lock);
}

static int no_batch(void)
{
	return mc_fail(-EINVAL, "unknown batch id, or the batch was freed");
}

/* ---- allocating -------------------------------------------------------------------------------- */

static void tasks_free(struct mce_te_batch *b)
{
	free(b->reqs);
	free(b->iovs);
	free(b->tasks);
	b->reqs = NULL;
	b->iovs = NULL;
	b->tasks = NULL;
	b->allocated = 0;
}

static int tasks_alloc(struct mce_te_batch *b, size_t capacity)
{
	if (capacity <= b->allocated)
		return 0;
	tasks_free(b);
	b->reqs = calloc(capacity, sizeof(*b->reqs));
	b->iovs = calloc(capacity, sizeof(*b->iovs));
	b->tasks = calloc(capacity, sizeof(*b->tasks));
	if (!b->reqs || !b->iovs || !b->tasks) {
		tasks_free(b);
		return -ENOMEM;
	}
	b->allocated = capacity;
	return 0;
}

int mce_te_batch_new(struct mce_te *te, size_t capacity, batch_id_t *ret)
{
	struct mce_te_batch *b = NULL;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	if (capacity > TASKS_MAX)
		return mc_fail(-MC_ELIMIT, "a batch has at most %u tasks", TASKS_MAX);
	r = slot_take(te, &b);
	if (r < 0)
		return r;
	mc_mutex_lock(&b->lock);
	r = tasks_alloc(b, capacity);
	if (r == 0) {
		b->generation = b->generation % GENERATION_MASK + 1;
		b->id = b->generation << INDEX_BITS | b->index;
		b->capacity = capacity;
		b->n = 0;
		mce_batch_init(&b->group);
		b->group.done = mce_te_batch_ended;
		b->group.arg = b;
		*ret = b->id;
	}
	mc_mutex_unlock(&b->lock);
	if (r < 0)
		slot_give(te, b);
	return r;
}

static int views_grow_locked(struct mce_te_batch *b)
{
	struct mce_te_view **more, **was = b->views == b->few ? NULL : b->views;
	unsigned cap = b->views_cap * 2;

	more = realloc(was, cap * sizeof(*more));
	if (!more)
		return -ENOMEM;
	if (!was)
		memcpy(more, b->few, sizeof(b->few));
	b->views = more;
	b->views_cap = cap;
	return 0;
}

int mce_te_batch_keep(struct mce_te_batch *b, struct mce_te_view *v)
{
	unsigned i;
	int r = 0;

	mc_mutex_lock(&b->lock);
	for (i = 0; i < b->nviews && b->views[i] != v; i++)
		;
	if (i == b->nviews && i == b->views_cap)
		r = views_grow_locked(b);
	if (i == b->nviews && r == 0) {
		b->views[b->nviews++] = v;
		v = NULL;
	}
	mc_mutex_unlock(&b->lock);
	/* Already in the list: the batch has a reference.  Without memory: the caller must not use the view. */
	mce_te_view_unref(v);
	return r;
}

int mce_te_batch_stopped(const struct mce_te_batch *b)
{
	int status = __atomic_load_n(&b->stop_status, __ATOMIC_RELAXED);
	uint64_t deadline = mce_te_deadline(b);

	if (status == 0 && deadline != MC_NEVER && mc_now_ns() >= deadline)
		status = -MC_ETIMEDOUT;
	return status;
}

/* ---- freeing ----------------------------------------------------------------------------------- */

static void wait_change_locked(struct mce_te_batch *b, uint64_t deadline)
{
	if (deadline == MC_NEVER)
		mc_cond_wait(&b->change, &b->lock);
	else
		(void)mc_cond_wait_until(&b->change, &b->lock, deadline);
}

/* Views taken out of a batch, to be released without its lock. */
struct views {
	struct mce_te_view **list;	/* few, or allocated */
	unsigned n;
	struct mce_te_view *few[MCE_TE_FEW];
};

static void views_take(struct mce_te_batch *b, struct views *ret)
{
	ret->n = b->nviews;
	ret->list = b->views;
	if (b->views == b->few) {
		memcpy(ret->few, b->few, b->nviews * sizeof(b->few[0]));
		ret->list = ret->few;
	}
	b->views = b->few;
	b->views_cap = MCE_TE_FEW;
	b->nviews = 0;
}

static void views_unref(struct views *v)
{
	for (unsigned i = 0; i < v->n; i++)
		mce_te_view_unref(v->list[i]);
	if (v->list != v->few)
		free(v->list);
}

/* Release all that a slot owns, except small task arrays. */
static void slot_empty(struct mce_te_batch *b, struct views *ret)
{
	views_take(b, ret);
	free(b->notify_name);
	free(b->notify_msg);
	b->notify_name = b->notify_msg = NULL;
	b->notify = b->prepared = b->ended = false;
	mce_te_stop_set(b, 0);
	if (b->eventfd >= 0)
		close(b->eventfd);
	b->eventfd = -1;
	if (b->deadline != MC_NEVER)
		mce_te_timer_remove(b);
	mce_te_deadline_set(b, MC_NEVER);
	b->id = 0;
	b->n = b->capacity = 0;
	if (b->allocated > TASKS_KEPT)
		tasks_free(b);
}

static bool all_ended_locked(const struct mce_te_batch *b)
{
	for (size_t i = b->cursor; i < b->n; i++)
		if (mce_req_status(&b->reqs[i]) == -EINPROGRESS)
			return false;
	return true;
}

/* A task's status is set shortly before the batch counts the task as ended, so check the tasks too. */
static bool tasks_left_locked(const struct mce_te_batch *b)
{
	return b->submitters || b->finishing ||
	       (!mce_batch_done(&b->group) && !all_ended_locked(b));
}

int mce_te_batch_free(struct mce_te *te, batch_id_t id)
{
	struct mce_te_batch *b;
	struct views views;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	if (tasks_left_locked(b)) {
		mce_te_batch_unlock(b);
		return mc_fail(-EBUSY, "tasks of the batch have not ended");
	}
	/* The last task has just ended, or another thread is reading the state: wait for that. */
	while (b->id == id && (b->busy || b->users || b->pollers) && !tasks_left_locked(b))
		wait_change_locked(b, MC_NEVER);
	if (b->id != id || tasks_left_locked(b)) {
		bool freed = b->id != id;

		mce_te_batch_unlock(b);
		return freed ? no_batch() : mc_fail(-EBUSY, "tasks of the batch have not ended");
	}
	slot_empty(b, &views);
	mce_te_batch_unlock(b);
	views_unref(&views);
	slot_give(te, b);
	return 0;
}

void mce_te_batches_stop(struct mce_te *te)
{
	for (uint32_t i = 0; i < te->nslots; i++) {
		struct mce_te_batch *b = slot_at(te, i);

		mc_mutex_lock(&b->lock);
		if (b->busy)
			mce_te_batch_stop_locked(b, -ECANCELED);
		while (b->busy)
			wait_change_locked(b, MC_NEVER);
		mc_mutex_unlock(&b->lock);
	}
}

void mce_te_batches_done(struct mce_te *te)
{
	for (uint32_t i = 0; i < te->nslots; i++) {
		struct mce_te_batch *b = slot_at(te, i);
		struct views views;

		slot_empty(b, &views);
		views_unref(&views);
		tasks_free(b);
	}
}

void mce_te_batches_free(struct mce_te *te)
{
	for (uint32_t i = 0; i < te->nslots; i++) {
		struct mce_te_batch *b = slot_at(te, i);

		mc_cond_destroy(&b->change);
		mc_mutex_destroy(&b->lock);
	}
	for (uint32_t i = 0; i * MCE_TE_CHUNK < te->nslots; i++)
		free(te->chunk[i]);
	free(te->free_slot);
	mc_mutex_destroy(&te->slot_lock);
}

/* ---- states ------------------------------------------------------------------------------------ */

static void eventfd_signal_locked(struct mce_te_batch *b)
{
	uint64_t one = 1;

	/* EAGAIN (counter full) is fine: the descriptor is readable. */
	if (b->eventfd >= 0)
		(void)!write(b->eventfd, &one, sizeof(one));
}

void mce_te_batch_settle_locked(struct mce_te_batch *b)
{
	b->busy = false;
	b->ended = true;
	mce_te_stop_set(b, 0);
	if (b->began_ns)
		mce_te_metric_batch(b->te->metric, b->began_ns);
	if (b->deadline != MC_NEVER) {
		mce_te_timer_remove(b);
		mce_te_deadline_set(b, MC_NEVER);
	}
	eventfd_signal_locked(b);
	mc_cond_broadcast(&b->change);
}

/* A failure is final when all tasks of the batch are: until then the task may be retried.  Tasks that
 * were final before the last submission (before b->since) stay final. */
static int state_locked(const struct mce_te_batch *b, size_t i, uint64_t *ret_bytes)
{
	int status = mce_req_status(&b->reqs[i]);

	*ret_bytes = 0;
	if (status == -EINPROGRESS || (b->busy && i >= b->since && (status < 0 || b->notify)))
		return STATUS_WAITING;
	switch (status) {
	case 0:
		*ret_bytes = b->iovs[i].iov_len;
		return STATUS_COMPLETED;
	case -ECANCELED:
		return STATUS_CANCELED;
	case -MC_ETIMEDOUT:
		return STATUS_TIMEOUT;
	default:
		return STATUS_FAILED;
	}
}

/* Poll the transports in the caller's thread, which probably calls again and again. */
static void poll_task(struct mce_te_batch *b, size_t task)
{
	if (b->finishing || b->submitters || mce_req_status(&b->reqs[task]) != -EINPROGRESS)
		return;
	b->pollers++;
	mc_mutex_unlock(&b->lock);
	mce_req_poll(&b->reqs[task]);
	if (mce_req_status(&b->reqs[task]) == -EINPROGRESS)
		mc_thread_yield();
	mc_mutex_lock(&b->lock);
	if (--b->pollers == 0)
		mc_cond_broadcast(&b->change);
}

int mce_te_task_status(struct mce_te *te, batch_id_t id, size_t task, struct transfer_status *ret)
{
	struct mce_te_batch *b;
	uint64_t bytes;
	int r = 0;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	if (task >= b->n)
		r = mc_fail(-EINVAL, "the batch has no task %zu", task);
	else
		poll_task(b, task);
	if (r == 0) {
		ret->status = state_locked(b, task, &bytes);
		ret->transferred_bytes = bytes;
	}
	mce_te_batch_unlock(b);
	return r;
}

/* Poll for the first task that has not ended. */
static void poll_first(struct mce_te_batch *b)
{
	while (b->cursor < b->n && mce_req_status(&b->reqs[b->cursor]) != -EINPROGRESS)
		b->cursor++;
	if (b->cursor < b->n)
		poll_task(b, b->cursor);
}

static void state_sum_locked(const struct mce_te_batch *b, struct mce_te_batch_status *st)
{
	uint64_t bytes;

	for (size_t i = 0; i < b->n; i++) {
		int state = state_locked(b, i, &bytes);

		st->bytes += bytes;
		st->failed += state != STATUS_COMPLETED;
		if (state != STATUS_COMPLETED)
			st->status = state;
	}
}

int mce_te_batch_status(struct mce_te *te, batch_id_t id, struct mce_te_batch_status *ret)
{
	struct mce_te_batch_status st = { .status = STATUS_COMPLETED };
	struct mce_te_batch *b;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	if (b->busy)
		poll_first(b);
	st.tasks = st.ended = b->n;
	if (b->busy) {
		unsigned left = mce_batch_left(&b->group);

		st.status = STATUS_WAITING;
		st.ended -= left < b->n ? left : b->n;
	} else {
		state_sum_locked(b, &st);
	}
	mce_te_batch_unlock(b);
	*ret = st;
	return 0;
}

static int eventfd_locked(struct mce_te_batch *b)
{
	if (b->eventfd >= 0)
		return b->eventfd;
	b->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->eventfd < 0)
		return mc_fail(-errno, "cannot create an eventfd: %s", strerror(errno));
	if (b->ended && !b->busy)
		eventfd_signal_locked(b);
	return b->eventfd;
}

int mce_te_batch_eventfd(struct mce_te *te, batch_id_t id)
{
	struct mce_te_batch *b;
	int fd;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	fd = eventfd_locked(b);
	mce_te_batch_unlock(b);
	return fd;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Poll the transports for a short time: this saves the wake-up of an I/O thread. */
static void spin_locked(struct mce_te_batch *b, uint64_t deadline)
{
	uint64_t now = mc_now_ns(), until = now + b->te->engine->conf.spin_us * 1000ull;

	if (until > deadline)
		until = deadline;
	while (b->busy && !b->finishing && now < until) {
		poll_first(b);
		now = mc_now_ns();
	}
}

/* Receive in this thread: this saves the wake-up of an I/O thread and then of this one. */
static void lead_locked(struct mce_te_batch *b, uint64_t deadline)
{
	uint64_t until = b->deadline < deadline ? b->deadline : deadline;
	size_t n = b->n;

	if (!b->busy || b->finishing || b->submitters || n > UINT_MAX)
		return;
	b->pollers++;
	mc_mutex_unlock(&b->lock);
	mce_batch_lead(&b->group, b->reqs, (unsigned)n, until);
	mc_mutex_lock(&b->lock);
	if (--b->pollers == 0)
		mc_cond_broadcast(&b->change);
}

int mce_te_wait(struct mce_te *te, batch_id_t id, int64_t timeout_ms)
{
	uint64_t deadline = mc_deadline_ms(timeout_ms);
	struct mce_te_batch *b;
	int r = 0;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	b->users++;
	lead_locked(b, deadline);
	spin_locked(b, deadline);
	while (b->busy && r == 0) {
		if (mc_now_ns() >= deadline)
			r = mc_fail(-MC_ETIMEDOUT, "tasks of the batch have not ended");
		else
			wait_change_locked(b, deadline);
	}
	if (--b->users == 0)
		mc_cond_broadcast(&b->change);
	mce_te_batch_unlock(b);
	return r;
}

int mce_te_cancel(struct mce_te *te, batch_id_t id)
{
	struct mce_te_batch *b;

	b = mce_te_batch_lock(te, id);
	if (!b)
		return no_batch();
	b->users++;
	if (b->busy)
		mce_te_batch_stop_locked(b, -ECANCELED);
	while (b->busy)
		wait_change_locked(b, MC_NEVER);
	if (--b->users == 0)
		mc_cond_broadcast(&b->change);
	mce_te_batch_unlock(b);
	return 0;
}

/* ---- unregistered memory ----------------------------------------------------------------------- */

/* Shortest and longest interval of the checks: the end of a single task wakes no thread. */
#define CHECK_NS (100 * 1000ull)
#define CHECK_MAX_NS (20 * MC_NS_PER_MS)

/* The task is running, or may be retried. */
static bool range_task_open_locked(const struct mce_te_batch *b, size_t i)
{
	int status = mce_req_status(&b->reqs[i]);

	return status == -EINPROGRESS ||
		((status == -ESTALE || status == -MC_ETRANSFER) && (b->finishing || !b->tasks[i].retried));
}

static bool range_used_locked(const struct mce_te_batch *b, uint64_t addr, uint64_t len)
{
	for (size_t i = b->since; b->busy && i < b->n; i++) {
		uint64_t at = (uintptr_t)b->iovs[i].iov_base;

		if ((at < addr ? addr - at < b->iovs[i].iov_len : at - addr < len) &&
		    range_task_open_locked(b, i))
			return true;
	}
	return false;
}

static void range_wait(struct mce_te_batch *b, uint64_t addr, uint64_t len, uint64_t deadline)
{
	uint64_t pause = CHECK_NS, now;

	MC_LOCKED(&b->lock);
	if (!range_used_locked(b, addr, len))
		return;
	b->users++;
	do {
		now = mc_now_ns();
		if (now >= deadline && !b->stop_status)
			mce_te_batch_stop_locked(b, -ECANCELED);
		else
			wait_change_locked(b, now + pause);
		pause = pause * 2 < CHECK_MAX_NS ? pause * 2 : CHECK_MAX_NS;
	} while (range_used_locked(b, addr, len));
	if (--b->users == 0)
		mc_cond_broadcast(&b->change);
}

void mce_te_batches_wait_range(struct mce_te *te, uint64_t addr, uint64_t len, uint64_t deadline)
{
	uint32_t n;

	mc_mutex_lock(&te->slot_lock);
	n = te->nslots;
	mc_mutex_unlock(&te->slot_lock);
	for (uint32_t i = 0; i < n; i++)
		range_wait(slot_at(te, i), addr, len, deadline);
}
