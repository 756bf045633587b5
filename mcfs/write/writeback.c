/* SPDX-License-Identifier: Apache-2.0
 * writeback.c - threads that copy full slots to the pool while the file is still being written. The final size
 * is unknown until the close, so the space to allocate is a guess: the size of the last large file, and a
 * multiple whenever that was too small, which copies all slots again. The commit returns the excess.
 * For a guess no object is evicted, because the file may turn out to be larger than any object can be. Without
 * free space the commit stores the file, and evicts for its size. */
#include <config.h>
#include "mcfs/write/writeback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "mcfs/write/attrs.h"

#define THREADS 2
/* Smaller files are stored faster than a stream is opened for them. */
#define FIRST_BYTES (6 * MCFS_SLOT)
#define FIRST_ROOM (8 * MCFS_SLOT)
#define GUESS_MAX (256 * MCFS_SLOT)
/* Factor of a guess that was too small: a larger one would choose another node needlessly. */
#define GROWTH 2
/* Fraction of the pool that all writers of this node may reserve together. */
#define SHARE 2
/* Timeout of one step of a thread; a writer waits at most this long for the step to end. */
#define STEP_MS 2000
#define IDLE_MS 5000
#define TICK_MS 1000
#define SWEEP_MAX 64
#define YIELD_TRIES 20
#define YIELD_MS 5

struct mcfs_writeback_pool {
	struct mcfs_version_env *env;
	struct mc_mutex lock;
	struct mc_cond work;
	/* guarded by lock */
	struct mc_list queue;		/* list of struct mcfs_writeback, each with a reference to its writer */
	struct mc_thread thread[THREADS];
	unsigned threads;
	bool ended;
	/* atomic */
	uint64_t capacity, reserved, guess;
};

MC_COUNTER(stored_early, "mcfs_carried_bytes_total", "", "bytes stored before the close that publishes them")

static struct mcfs_writer *writer_of(struct mcfs_writeback *wb)
{
	return mc_container_of(wb, struct mcfs_writer, writeback);
}

static struct mcfs_writeback_pool *pool_of(const struct mcfs_writer *w)
{
	return w->env->writeback_pool;
}

static uint64_t load_relaxed(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

/* ---- a writer's writeback; the writer's lock is held ---- */

static void forget_stream(struct mcfs_writer *w)
{
	struct mcfs_writeback *wb = &w->writeback;

	__atomic_fetch_sub(&pool_of(w)->reserved, wb->room, __ATOMIC_RELAXED);
	wb->stream = NULL;
	wb->room = 0;
	wb->next = 0;
	memset(wb->sent, 0, wb->nsent * sizeof(*wb->sent));
}

/* Stop copying, and wait for a step that a thread may be executing. */
static int turn_off(struct mcfs_writer *w, uint64_t deadline)
{
	struct mcfs_writeback *wb = &w->writeback;

	wb->off = true;
	while (wb->busy)
		if (mc_cond_wait_until(&wb->idle, &w->lock, deadline) == -ETIMEDOUT && wb->busy)
			return mc_fail(-MC_ETIMEDOUT, "timed out waiting for writeback");
	return 0;
}

/* Drop the stream; the pool frees its memory by @deadline or soon after. */
static void drop_stream(struct mcfs_writer *w, uint64_t deadline)
{
	mcs_stream_t *old = w->writeback.stream;
	int left = mc_deadline_left_ms(deadline);

	w->writeback.off = true;
	if (!old)
		return;
	forget_stream(w);
	mcs_stream_drop(old, left < STEP_MS ? left : STEP_MS);
}

void mcfs_writeback_init(struct mcfs_writer *w)
{
	(void)mc_cond_init(&w->writeback.idle);
	w->writeback.busy_slot = SIZE_MAX;
}

void mcfs_writeback_done(struct mcfs_writer *w)
{
	mcfs_writeback_stop(w);
	mc_cond_destroy(&w->writeback.idle);
	free(w->writeback.sent);
	free(w->writeback.key);
}

void mcfs_writeback_stop(struct mcfs_writer *w)
{
	/* A thread may be reading bytes that are about to be freed. */
	(void)turn_off(w, MC_NEVER);
	drop_stream(w, MC_NEVER);
}

void mcfs_writeback_touch(struct mcfs_writer *w, uint64_t from, uint64_t to)
{
	struct mcfs_writeback *wb = &w->writeback;
	size_t first = (size_t)(from / MCFS_SLOT), end = (size_t)((to + MCFS_SLOT - 1) / MCFS_SLOT);

	while (wb->busy && wb->busy_slot >= first && wb->busy_slot < end)
		mc_cond_wait(&wb->idle, &w->lock);
	for (size_t i = first; i < end && i < wb->nsent; i++)
		wb->sent[i] = false;
}

void mcfs_writeback_cut(struct mcfs_writer *w, uint64_t size)
{
	uint64_t was = w->stage.size;

	mcfs_writeback_touch(w, size < was ? size : was, size < was ? was : size);
	if (size < w->writeback.seq)
		w->writeback.seq = size;
}

static bool has_work(const struct mcfs_writer *w)
{
	const struct mcfs_writeback *wb = &w->writeback;

	return !wb->off && wb->seq >= FIRST_BYTES && ((uint64_t)wb->next + 1) * MCFS_SLOT <= wb->seq &&
		!w->failed && !w->revoked && !w->unlinked;
}

/* Other flags than the commit's would publish a different put. */
static unsigned put_flags_of(const struct mcfs_writer *w)
{
	return (w->excl ? MCS_PUT_EXCL : MCS_PUT_UPSERT) | w->put_flags;
}

/* Space to allocate; 0: no more than now.  *@announced: it is enough for the size that the program announced. */
static uint64_t writeback_room(const struct mcfs_writer *w, bool *announced)
{
	const struct mcfs_writeback_pool *pool = pool_of(w);
	const struct mcfs_writeback *wb = &w->writeback;
	uint64_t room = wb->room ? GROWTH * wb->room : FIRST_ROOM, guess = load_relaxed(&pool->guess);
	uint64_t need = ((uint64_t)wb->next + 1) * MCFS_SLOT, held = load_relaxed(&pool->reserved) - wb->room;
	uint64_t limit = load_relaxed(&pool->capacity) / SHARE;
	uint64_t known = wb->hint > w->stage.size ? wb->hint : w->stage.size;

	if (!wb->room && guess > room)
		room = guess < GUESS_MAX ? guess : GUESS_MAX;
	/* A file that has become longer than announced has an unknown size, too. */
	*announced = wb->hint && wb->hint >= w->stage.size;
	if (room < known || *announced)
		room = (known + MCFS_SLOT - 1) / MCFS_SLOT * MCFS_SLOT;
	if (room > load_relaxed(&w->env->max_size))
		room = load_relaxed(&w->env->max_size);
	if (held >= limit)
		return 0;
	if (room > limit - held)
		room = limit - held;
	room -= room % MCFS_SLOT;
	*announced &= room >= known;
	return room > wb->room && room >= need ? room : 0;
}

/* Record the key and options of the stream. */
static bool note_key(struct mcfs_writer *w)
{
	struct mcfs_writeback *wb = &w->writeback;
	char *key = realloc(wb->key, w->key_len + 1);

	if (!key)
		return false;
	memcpy(key, w->key, w->key_len);
	wb->key = key;
	wb->key_len = w->key_len;
	wb->flags = put_flags_of(w);
	wb->replicas = w->replicas;
	return true;
}

static bool note_room(struct mcfs_writeback *wb, uint64_t room)
{
	size_t n = (size_t)(room / MCFS_SLOT);
	bool *sent = realloc(wb->sent, n * sizeof(*sent));

	if (!sent)
		return false;
	wb->sent = sent;
	wb->nsent = n;
	memset(sent, 0, n * sizeof(*sent));
	return true;
}

/* ---- steps of a thread: the lock is held before and after, not during a request ---- */

static void begin_busy(struct mcfs_writer *w, size_t slot)
{
	w->writeback.busy = true;
	w->writeback.busy_slot = slot;
	mc_mutex_unlock(&w->lock);
}

static void end_busy(struct mcfs_writer *w)
{
	mc_mutex_lock(&w->lock);
	w->writeback.busy = false;
	w->writeback.busy_slot = SIZE_MAX;
	mc_cond_broadcast(&w->writeback.idle);
}

static void make_room(struct mcfs_writer *w)
{
	struct mcfs_writeback *wb = &w->writeback;
	struct mcs_put_opts opts = { .kind = MCS_OBJECT };
	bool announced;
	uint64_t room = writeback_room(w, &announced);
	mcs_stream_t *old = wb->stream, *st = NULL;
	int r;

	if (!room || !note_key(w)) {
		drop_stream(w, MC_NEVER);
		return;
	}
	opts.flags = wb->flags | (announced ? 0 : MCS_PUT_NO_EVICT);
	opts.replicas = wb->replicas;
	if (old)
		forget_stream(w);
	if (!note_room(wb, room)) {
		wb->off = true;
		mcs_stream_drop(old, STEP_MS);
		return;
	}
	__atomic_fetch_add(&pool_of(w)->reserved, room, __ATOMIC_RELAXED);
	begin_busy(w, SIZE_MAX);
	mcs_stream_drop(old, STEP_MS);
	/* No other thread changes wb->key while this step is busy. */
	r = mcs_stream_open(w->env->store, (struct mcs_key){ wb->key, wb->key_len }, room, &opts, &st,
			    STEP_MS);
	end_busy(w);
	wb->room = room;
	wb->stream = st;
	wb->next = 0;
	wb->last_ns = mc_now_ns();
	if (r < 0) {
		forget_stream(w);
		wb->off = true;
	}
}

static void send_slot(struct mcfs_writer *w)
{
	struct mcfs_writeback *wb = &w->writeback;
	size_t i = wb->next++;
	struct iovec iov = { i < w->stage.nslot ? w->stage.slot[i] : NULL, MCFS_SLOT };
	int r;

	/* No slot: a hole, or bytes of the base. */
	if (!iov.iov_base)
		return;
	begin_busy(w, i);
	r = mcs_stream_write(wb->stream, (uint64_t)i * MCFS_SLOT, &iov, 1, STEP_MS);
	end_busy(w);
	wb->last_ns = mc_now_ns();
	if (r < 0) {
		drop_stream(w, MC_NEVER);
		return;
	}
	wb->sent[i] = true;
	mc_metric_add(&stored_early, MCFS_SLOT);
}

static void writeback_serve(struct mcfs_writer *w)
{
	struct mcfs_writeback *wb = &w->writeback;

	mc_mutex_lock(&w->lock);
	while (has_work(w)) {
		if (!wb->stream || ((uint64_t)wb->next + 1) * MCFS_SLOT > wb->room)
			make_room(w);
		else
			send_slot(w);
	}
	wb->queued = false;
	mc_mutex_unlock(&w->lock);
}

/* Drop the streams of idle writers; @every: of all writers except @but. A writer whose stream is in
 * use keeps it. */
static bool writeback_sweep(struct mcfs_version_env *env, const struct mcfs_writer *but, bool every)
{
	struct mcfs_writer *w[SWEEP_MAX];
	struct mc_list *pos;
	bool any = false;
	size_t n = 0;

	mc_mutex_lock(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *one = mc_container_of(pos, struct mcfs_writer, link);

		if (n == SWEEP_MAX)
			break;
		if (one == but)
			continue;
		one->refs++;
		w[n++] = one;
	}
	mc_mutex_unlock(&env->names);
	for (size_t i = 0; i < n; i++) {
		struct mcfs_writeback *wb = &w[i]->writeback;

		if (mc_mutex_trylock(&w[i]->lock) == 0) {
			if (wb->stream && !wb->busy &&
			    (every || mc_now_ns() - wb->last_ns > IDLE_MS * MC_NS_PER_MS)) {
				drop_stream(w[i], MC_NEVER);
				any = true;
			}
			mc_mutex_unlock(&w[i]->lock);
		}
		mcfs_writer_unref(w[i]);
	}
	return any;
}

/* ---- the threads ---- */

/* A writer to serve, with the queue's reference; NULL: sweep, or end. */
static struct mcfs_writer *next_writer(struct mcfs_writeback_pool *pool, bool *ret_ended)
{
	struct mcfs_writeback *wb;
	int r = 0;

	MC_LOCKED(&pool->lock);
	while (mc_list_empty(&pool->queue) && !pool->ended && r != -ETIMEDOUT) {
		/* If no space is reserved, there is nothing to sweep. */
		if (!load_relaxed(&pool->reserved))
			mc_cond_wait(&pool->work, &pool->lock);
		else
			r = mc_cond_wait_until(&pool->work, &pool->lock, mc_deadline_ms(TICK_MS));
	}
	*ret_ended = pool->ended;
	if (mc_list_empty(&pool->queue))
		return NULL;
	wb = mc_list_first(&pool->queue, struct mcfs_writeback, link);
	mc_list_remove(&wb->link);
	return writer_of(wb);
}

static void *writeback_run(void *arg)
{
	struct mcfs_writeback_pool *pool = arg;
	bool ended = false;

	while (!ended) {
		struct mcfs_writer *w = next_writer(pool, &ended);

		if (w && !ended)
			writeback_serve(w);
		else if (!ended)
			(void)writeback_sweep(pool->env, NULL, false);
		mcfs_writer_unref(w);
	}
	return NULL;
}

/* Pool lock held. */
static bool start_threads(struct mcfs_writeback_pool *pool)
{
	while (pool->threads < THREADS &&
	       mc_thread_start(&pool->thread[pool->threads], "mcfs-writeback", writeback_run, pool) == 0)
		pool->threads++;
	return pool->threads;
}

static void writeback_enqueue(struct mcfs_writer *w)
{
	struct mcfs_writeback_pool *pool = pool_of(w);

	mc_mutex_lock(&w->env->names);
	w->refs++;
	mc_mutex_unlock(&w->env->names);
	MC_LOCKED(&pool->lock);
	if (!pool->ended)
		(void)start_threads(pool);
	mc_list_push_back(&pool->queue, &w->writeback.link);
	w->writeback.queued = true;
	mc_cond_signal(&pool->work);
}

void mcfs_writeback_wrote(struct mcfs_writer *w, uint64_t offset, size_t len)
{
	struct mcfs_writeback_pool *pool = pool_of(w);
	struct mcfs_writeback *wb = &w->writeback;

	if (offset <= wb->seq && offset + len > wb->seq)
		wb->seq = offset + len;
	if (pool && load_relaxed(&pool->capacity) && !wb->queued && has_work(w))
		writeback_enqueue(w);
}

struct mcfs_writeback_pool *mcfs_writeback_pool_new(struct mcfs_version_env *env)
{
	struct mcfs_writeback_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->env = env;
	mc_list_init(&pool->queue);
	mc_mutex_init(&pool->lock);
	(void)mc_cond_init(&pool->work);
	return pool;
}

void mcfs_writeback_pool_free(struct mcfs_writeback_pool *pool)
{
	if (!pool)
		return;
	mc_mutex_lock(&pool->lock);
	pool->ended = true;
	mc_cond_broadcast(&pool->work);
	mc_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->threads; i++)
		mc_thread_join(pool->thread[i]);
	while (!mc_list_empty(&pool->queue)) {
		struct mcfs_writeback *wb = mc_list_first(&pool->queue, struct mcfs_writeback, link);

		mc_list_remove(&wb->link);
		mcfs_writer_unref(writer_of(wb));
	}
	mc_cond_destroy(&pool->work);
	mc_mutex_destroy(&pool->lock);
	free(pool);
}

void mcfs_writeback_pool_set_capacity(struct mcfs_writeback_pool *pool, uint64_t bytes)
{
	if (pool)
		__atomic_store_n(&pool->capacity, bytes, __ATOMIC_RELAXED);
}

bool mcfs_writeback_pool_yield(struct mcfs_writeback_pool *pool, const struct mcfs_writer *but)
{
	bool any = false;

	/* Writers that were busy a moment ago may be idle now. */
	for (int i = 0; pool && load_relaxed(&pool->reserved) && i < YIELD_TRIES; i++) {
		if (i)
			mc_sleep_ms(YIELD_MS);
		any |= writeback_sweep(pool->env, but, true);
	}
	return any;
}

/* ---- the commit ---- */

/* Send the slots that the threads have not copied, or that changed afterwards. */
static int send_rest(struct mcfs_writer *w, const struct iovec *iov, int n, uint64_t deadline)
{
	const bool *sent = w->writeback.sent;
	int r = 0;

	for (int i = 0, k; i < n && r == 0; i = k) {
		k = i + 1;
		if (sent[i])
			continue;
		while (k < n && !sent[k])
			k++;
		r = mcs_stream_write(w->writeback.stream, (uint64_t)i * MCFS_SLOT, iov + i, k - i,
				     mc_deadline_left_ms(deadline));
	}
	return r;
}

static bool writeback_fits(const struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags)
{
	const struct mcfs_writeback *wb = &w->writeback;

	return w->stage.size && w->stage.size <= wb->room && wb->key_len == len &&
		memcmp(wb->key, key, len) == 0 && wb->flags == put_flags && wb->replicas == w->replicas;
}

int mcfs_writeback_commit(struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags,
		      uint64_t deadline)
{
	struct mcfs_writeback *wb = &w->writeback;
	uint64_t size = w->stage.size, generation;
	const struct mcs_attrs *attrs;
	struct iovec *iov = NULL;
	mcs_stream_t *st;
	int n = 0, r;

	r = turn_off(w, deadline);
	if (r < 0)
		return r;
	if (pool_of(w) && size >= FIRST_BYTES)
		__atomic_store_n(&pool_of(w)->guess, size, __ATOMIC_RELAXED);
	if (!wb->stream || !writeback_fits(w, key, len, put_flags)) {
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
	st = wb->stream;
	attrs = mcfs_writer_attrs_put(w);
	if (attrs)
		mcs_stream_set_attrs(st, attrs);
	generation = mcs_stream_generation(st);
	r = mcs_stream_commit(st, size, mc_deadline_left_ms(deadline));
	forget_stream(w);
	if (r == 0) {
		mcfs_writer_attrs_sent(w, generation);
		return 1;
	}
	return r == -MCS_EEXISTS && put_flags & MCS_PUT_EXCL ? r : 0;
}
