/* SPDX-License-Identifier: Apache-2.0
 * writeback.c - threads that carry whole slots to the pool behind a writer's back.
 * A file's size is not known before its close, so room is guessed: as much as the last large file came to,
 * and a multiple whenever that was too little, which carries everything again.  The commit gives back what was
 * too much. */
#include <config.h>
#include "mcfs/write/writeback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/thread.h"
#include "mcfs/write/version.h"

#define THREADS 2
/* Smaller files are stored faster than room is made for them. */
#define FIRST_BYTES (6 * MCFS_SLOT)
#define FIRST_ROOM (8 * MCFS_SLOT)
#define GUESS_MAX (256 * MCFS_SLOT)
/* Of what was too little: more would push out objects, or go to another node, for nothing. */
#define GROWTH 2
/* Of the pool, for all writers of this node together. */
#define SHARE 2
/* One step of a thread; a writer that is interrupted by it waits no longer. */
#define STEP_MS 2000
#define IDLE_MS 5000
#define TICK_MS 1000
#define SWEEP_MAX 64
#define YIELD_TRIES 20
#define YIELD_MS 5

struct mcfs_writeback_pool {
	struct mcfs_version_env *env;
	pthread_mutex_t lock;
	pthread_cond_t work;
	/* guarded by lock */
	struct mc_list queue;		/* of struct mcfs_writeback, each with a reference to its writer */
	pthread_t thread[THREADS];
	unsigned threads;
	bool ended;
	/* atomic */
	uint64_t capacity, reserved, guess;
};

MC_COUNTER(carried, "mcfs_carried_bytes_total", "", "bytes stored before the close that publishes them")

static struct mcfs_writer *writer_of(struct mcfs_writeback *c)
{
	return mc_container_of(c, struct mcfs_writer, carry);
}

static struct mcfs_writeback_pool *carrier_of(const struct mcfs_writer *w)
{
	return w->env->carrier;
}

static uint64_t load(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

/* ---- a writer's part; its lock held ---- */

static void forget_stream(struct mcfs_writer *w)
{
	struct mcfs_writeback *c = &w->carry;

	__atomic_fetch_sub(&carrier_of(w)->reserved, c->room, __ATOMIC_RELAXED);
	c->stream = NULL;
	c->room = 0;
	c->next = 0;
	memset(c->sent, 0, c->nsent * sizeof(*c->sent));
}

/* Carry no more, and wait for the step that a thread may be at. */
static int turn_off(struct mcfs_writer *w, uint64_t deadline)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline / MC_NS_PER_SEC),
		.tv_nsec = (long)(deadline % MC_NS_PER_SEC),
	};
	struct mcfs_writeback *c = &w->carry;

	c->off = true;
	while (c->busy)
		if (pthread_cond_timedwait(&c->idle, &w->lock, &until) == ETIMEDOUT && c->busy)
			return mc_fail(-MC_ETIMEDOUT, "what is carried does not arrive");
	return 0;
}

/* The room comes back by @deadline, or soon after it. */
static void drop_stream(struct mcfs_writer *w, uint64_t deadline)
{
	mcs_stream_t *old = w->carry.stream;
	int left = mc_deadline_left_ms(deadline);

	w->carry.off = true;
	if (!old)
		return;
	forget_stream(w);
	mcs_stream_drop(old, left < STEP_MS ? left : STEP_MS);
}

void mcfs_writeback_init(struct mcfs_writer *w)
{
	(void)mc_cond_init(&w->carry.idle);
	w->carry.busy_slot = SIZE_MAX;
}

void mcfs_writeback_done(struct mcfs_writer *w)
{
	mcfs_writeback_stop(w);
	pthread_cond_destroy(&w->carry.idle);
	free(w->carry.sent);
	free(w->carry.key);
}

void mcfs_writeback_stop(struct mcfs_writer *w)
{
	/* The thread reads what is about to be freed. */
	(void)turn_off(w, MC_NEVER);
	drop_stream(w, MC_NEVER);
}

void mcfs_writeback_touch(struct mcfs_writer *w, uint64_t from, uint64_t to)
{
	struct mcfs_writeback *c = &w->carry;
	size_t first = (size_t)(from / MCFS_SLOT), end = (size_t)((to + MCFS_SLOT - 1) / MCFS_SLOT);

	while (c->busy && c->busy_slot >= first && c->busy_slot < end)
		pthread_cond_wait(&c->idle, &w->lock);
	for (size_t i = first; i < end && i < c->nsent; i++)
		c->sent[i] = false;
}

void mcfs_writeback_cut(struct mcfs_writer *w, uint64_t size)
{
	uint64_t was = w->stage.size;

	mcfs_writeback_touch(w, size < was ? size : was, size < was ? was : size);
	if (size < w->carry.seq)
		w->carry.seq = size;
}

static bool has_work(const struct mcfs_writer *w)
{
	const struct mcfs_writeback *c = &w->carry;

	return !c->off && c->seq >= FIRST_BYTES && ((uint64_t)c->next + 1) * MCFS_SLOT <= c->seq &&
		!w->failed && !w->revoked && !w->unlinked;
}

/* Another flag than the last commit's would make it another put. */
static unsigned put_flags_of(const struct mcfs_writer *w)
{
	return (w->excl ? MCS_PUT_EXCL : MCS_PUT_UPSERT) | w->put_flags;
}

/* How much to ask for; 0: no more than there is. */
static uint64_t room_for(const struct mcfs_writer *w)
{
	const struct mcfs_writeback_pool *all = carrier_of(w);
	const struct mcfs_writeback *c = &w->carry;
	uint64_t room = c->room ? GROWTH * c->room : FIRST_ROOM, guess = load(&all->guess);
	uint64_t need = ((uint64_t)c->next + 1) * MCFS_SLOT, held = load(&all->reserved) - c->room;
	uint64_t limit = load(&all->capacity) / SHARE;
	uint64_t known = c->hint > w->stage.size ? c->hint : w->stage.size;

	if (!c->room && guess > room)
		room = guess < GUESS_MAX ? guess : GUESS_MAX;
	if (room < known)
		room = (known + MCFS_SLOT - 1) / MCFS_SLOT * MCFS_SLOT;
	if (room > load(&w->env->max_size))
		room = load(&w->env->max_size);
	if (held >= limit)
		return 0;
	if (room > limit - held)
		room = limit - held;
	room -= room % MCFS_SLOT;
	return room > c->room && room >= need ? room : 0;
}

/* Note what the stream is begun with. */
static bool note_key(struct mcfs_writer *w)
{
	struct mcfs_writeback *c = &w->carry;
	char *key = realloc(c->key, w->key_len + 1);

	if (!key)
		return false;
	memcpy(key, w->key, w->key_len);
	c->key = key;
	c->key_len = w->key_len;
	c->flags = put_flags_of(w);
	c->replicas = w->replicas;
	return true;
}

static bool note_room(struct mcfs_writeback *c, uint64_t room)
{
	size_t n = (size_t)(room / MCFS_SLOT);
	bool *sent = realloc(c->sent, n * sizeof(*sent));

	if (!sent)
		return false;
	c->sent = sent;
	c->nsent = n;
	memset(sent, 0, n * sizeof(*sent));
	return true;
}

/* ---- steps of a thread: the lock is held before and after, not in between ---- */

static void begin_busy(struct mcfs_writer *w, size_t slot)
{
	w->carry.busy = true;
	w->carry.busy_slot = slot;
	pthread_mutex_unlock(&w->lock);
}

static void end_busy(struct mcfs_writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->carry.busy = false;
	w->carry.busy_slot = SIZE_MAX;
	pthread_cond_broadcast(&w->carry.idle);
}

static void make_room(struct mcfs_writer *w)
{
	struct mcfs_writeback *c = &w->carry;
	struct mcs_put_opts opts = { .kind = MCS_OBJECT };
	uint64_t room = room_for(w);
	mcs_stream_t *old = c->stream, *st = NULL;
	int r;

	if (!room || !note_key(w)) {
		drop_stream(w, MC_NEVER);
		return;
	}
	opts.flags = c->flags;
	opts.replicas = c->replicas;
	if (old)
		forget_stream(w);
	if (!note_room(c, room)) {
		c->off = true;
		mcs_stream_drop(old, STEP_MS);
		return;
	}
	__atomic_fetch_add(&carrier_of(w)->reserved, room, __ATOMIC_RELAXED);
	begin_busy(w, SIZE_MAX);
	mcs_stream_drop(old, STEP_MS);
	/* Nobody else changes the key's copy while this is busy. */
	r = mcs_stream_open(w->env->store, (struct mcs_key){ c->key, c->key_len }, room, &opts, &st,
			    STEP_MS);
	end_busy(w);
	c->room = room;
	c->stream = st;
	c->next = 0;
	c->last_ns = mc_now_ns();
	if (r < 0) {
		forget_stream(w);
		c->off = true;
	}
}

static void send_slot(struct mcfs_writer *w)
{
	struct mcfs_writeback *c = &w->carry;
	size_t i = c->next++;
	struct iovec iov = { i < w->stage.nslot ? w->stage.slot[i] : NULL, MCFS_SLOT };
	int r;

	/* Has not got a slot: a hole, or what the file began with. */
	if (!iov.iov_base)
		return;
	begin_busy(w, i);
	r = mcs_stream_write(c->stream, (uint64_t)i * MCFS_SLOT, &iov, 1, STEP_MS);
	end_busy(w);
	c->last_ns = mc_now_ns();
	if (r < 0) {
		drop_stream(w, MC_NEVER);
		return;
	}
	c->sent[i] = true;
	mc_metric_add(&carried, MCFS_SLOT);
}

static void serve(struct mcfs_writer *w)
{
	struct mcfs_writeback *c = &w->carry;

	pthread_mutex_lock(&w->lock);
	while (has_work(w)) {
		if (!c->stream || ((uint64_t)c->next + 1) * MCFS_SLOT > c->room)
			make_room(w);
		else
			send_slot(w);
	}
	c->queued = false;
	pthread_mutex_unlock(&w->lock);
}

/* Streams of writers that do not go on (all of them with @all) are given up.  Who is at work keeps its own. */
static bool sweep(struct mcfs_version_env *env, const struct mcfs_writer *but, bool all)
{
	struct mcfs_writer *w[SWEEP_MAX];
	struct mc_list *pos;
	bool any = false;
	size_t n = 0;

	pthread_mutex_lock(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *one = mc_container_of(pos, struct mcfs_writer, link);

		if (n == SWEEP_MAX)
			break;
		if (one == but)
			continue;
		one->refs++;
		w[n++] = one;
	}
	pthread_mutex_unlock(&env->names);
	for (size_t i = 0; i < n; i++) {
		struct mcfs_writeback *c = &w[i]->carry;

		if (pthread_mutex_trylock(&w[i]->lock) == 0) {
			if (c->stream && !c->busy &&
			    (all || mc_now_ns() - c->last_ns > IDLE_MS * MC_NS_PER_MS)) {
				drop_stream(w[i], MC_NEVER);
				any = true;
			}
			pthread_mutex_unlock(&w[i]->lock);
		}
		mcfs_writer_unref(w[i]);
	}
	return any;
}

/* ---- the threads ---- */

/* A writer to serve, with the queue's reference; NULL: it is time to sweep, or over. */
static struct mcfs_writer *next_writer(struct mcfs_writeback_pool *all, bool *ret_ended)
{
	struct timespec until;
	struct mcfs_writeback *c;
	int r = 0;

	MC_LOCKED(&all->lock);
	while (mc_list_empty(&all->queue) && !all->ended && r != ETIMEDOUT) {
		/* While nobody holds room there is nothing to sweep. */
		if (!load(&all->reserved)) {
			pthread_cond_wait(&all->work, &all->lock);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += TICK_MS / 1000;
		r = pthread_cond_timedwait(&all->work, &all->lock, &until);
	}
	*ret_ended = all->ended;
	if (mc_list_empty(&all->queue))
		return NULL;
	c = mc_list_first(&all->queue, struct mcfs_writeback, link);
	mc_list_remove(&c->link);
	return writer_of(c);
}

static void *run(void *arg)
{
	struct mcfs_writeback_pool *all = arg;
	bool ended = false;

	while (!ended) {
		struct mcfs_writer *w = next_writer(all, &ended);

		if (w && !ended)
			serve(w);
		else if (!ended)
			(void)sweep(all->env, NULL, false);
		mcfs_writer_unref(w);
	}
	return NULL;
}

/* With the carrier's lock held. */
static bool threads_run(struct mcfs_writeback_pool *all)
{
	while (all->threads < THREADS &&
	       mc_thread_start(&all->thread[all->threads], "mcfs-carry", run, all) == 0)
		all->threads++;
	return all->threads;
}

static void enqueue(struct mcfs_writer *w)
{
	struct mcfs_writeback_pool *all = carrier_of(w);

	pthread_mutex_lock(&w->env->names);
	w->refs++;
	pthread_mutex_unlock(&w->env->names);
	MC_LOCKED(&all->lock);
	if (!all->ended)
		(void)threads_run(all);
	mc_list_push_back(&all->queue, &w->carry.link);
	w->carry.queued = true;
	pthread_cond_signal(&all->work);
}

void mcfs_writeback_wrote(struct mcfs_writer *w, uint64_t offset, size_t len)
{
	struct mcfs_writeback_pool *all = carrier_of(w);
	struct mcfs_writeback *c = &w->carry;

	if (offset <= c->seq && offset + len > c->seq)
		c->seq = offset + len;
	if (all && load(&all->capacity) && !c->queued && has_work(w))
		enqueue(w);
}

struct mcfs_writeback_pool *mcfs_writeback_pool_new(struct mcfs_version_env *env)
{
	struct mcfs_writeback_pool *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	all->env = env;
	mc_list_init(&all->queue);
	pthread_mutex_init(&all->lock, NULL);
	(void)mc_cond_init(&all->work);
	return all;
}

void mcfs_writeback_pool_free(struct mcfs_writeback_pool *all)
{
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	all->ended = true;
	pthread_cond_broadcast(&all->work);
	pthread_mutex_unlock(&all->lock);
	for (unsigned i = 0; i < all->threads; i++)
		pthread_join(all->thread[i], NULL);
	while (!mc_list_empty(&all->queue)) {
		struct mcfs_writeback *c = mc_list_first(&all->queue, struct mcfs_writeback, link);

		mc_list_remove(&c->link);
		mcfs_writer_unref(writer_of(c));
	}
	pthread_cond_destroy(&all->work);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

void mcfs_writeback_pool_set_capacity(struct mcfs_writeback_pool *all, uint64_t bytes)
{
	if (all)
		__atomic_store_n(&all->capacity, bytes, __ATOMIC_RELAXED);
}

bool mcfs_writeback_pool_yield(struct mcfs_writeback_pool *all, const struct mcfs_writer *but)
{
	const struct timespec moment = { .tv_nsec = YIELD_MS * (long)MC_NS_PER_MS };
	bool any = false;

	/* Those who are at work a moment ago may be done now. */
	for (int i = 0; all && load(&all->reserved) && i < YIELD_TRIES; i++) {
		if (i)
			nanosleep(&moment, NULL);
		any |= sweep(all->env, but, true);
	}
	return any;
}

/* ---- the commit ---- */

/* What the threads have not carried, or has changed since. */
static int send_rest(struct mcfs_writer *w, const struct iovec *iov, int n, uint64_t deadline)
{
	const bool *sent = w->carry.sent;
	int r = 0;

	for (int i = 0, k; i < n && r == 0; i = k) {
		k = i + 1;
		if (sent[i])
			continue;
		while (k < n && !sent[k])
			k++;
		r = mcs_stream_write(w->carry.stream, (uint64_t)i * MCFS_SLOT, iov + i, k - i,
				     mc_deadline_left_ms(deadline));
	}
	return r;
}

static bool fits(const struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags)
{
	const struct mcfs_writeback *c = &w->carry;

	return w->stage.size && w->stage.size <= c->room && c->key_len == len &&
		memcmp(c->key, key, len) == 0 && c->flags == put_flags && c->replicas == w->replicas;
}

int mcfs_writeback_commit(struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags,
		      uint64_t deadline)
{
	struct mcfs_writeback *c = &w->carry;
	uint64_t size = w->stage.size;
	struct iovec *iov = NULL;
	mcs_stream_t *st;
	int n = 0, r;

	r = turn_off(w, deadline);
	if (r < 0)
		return r;
	if (carrier_of(w) && size >= FIRST_BYTES)
		__atomic_store_n(&carrier_of(w)->guess, size, __ATOMIC_RELAXED);
	if (!c->stream || !fits(w, key, len, put_flags)) {
		drop_stream(w, deadline);
		return 0;
	}
	r = mcfs_stage_vectors(&w->stage, deadline, &iov, &n);
	if (r == 0)
		r = send_rest(w, iov, n, deadline);
	free(iov);
	if (r < 0) {
		drop_stream(w, deadline);
		return 0;
	}
	st = c->stream;
	r = mcs_stream_commit(st, size, mc_deadline_left_ms(deadline));
	forget_stream(w);
	if (r == 0)
		return 1;
	return r == -MCS_EEXISTS && put_flags & MCS_PUT_EXCL ? r : 0;
}
