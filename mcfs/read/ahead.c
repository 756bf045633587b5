/* SPDX-License-Identifier: Apache-2.0
 * ahead.c - read-ahead windows. */
#include <config.h>
#include "mcfs/read/ahead.h"

#include <errno.h>
#include <stdlib.h>

#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

#define CHUNK_SIZE MCFS_SLOT
#define CHUNKS 16u		/* chunks of a window: those ahead, and those being answered from */
#define DEPTH_FIRST 2u
#define DEPTH_MAX 8u
/* Largest distance of a read from the end of the last one that counts as sequential: the parts of
 * one large read arrive out of order. */
#define FOLLOW_DISTANCE ((uint64_t)8 << 20)
/* A READ of 1 MiB touches at most two chunks. */
#define SPAN_MAX 2u

MC_COUNTER(from_window, "mcfs_window_reads_total", "", "reads answered from a window")
MC_COUNTER(chunks, "mcfs_window_chunks_total", "", "chunks of 1 MiB that windows have fetched")
MC_GAUGE(slots, "mcfs_window_slots", "", "chunks of 1 MiB that windows hold")

enum state { EMPTY, LOADING, READY };

struct chunk {
	enum state state;
	uint64_t index;
	unsigned users;		/* answers being sent from it */
	void *slot;
	size_t len;
	struct mcfs_ahead *a;	/* constant */
};

struct mcfs_ahead {
	/* constant */
	struct mcfs_pool *pool;
	struct mcfs_object *o;
	uint64_t size, timeout_ms;

	struct mc_mutex lock;
	/* guarded by lock */
	unsigned refs;		/* one for the descriptor, one per chunk that is loading */
	bool closed;
	bool is_local;		/* the object is in local memory: a window would only add a copy */
	uint64_t next;		/* expected offset of the next read */
	unsigned run, depth;
	struct chunk chunk[CHUNKS];
	struct mc_list waiting;	/* struct mcfs_read */
};

/* the read started by this thread completed before the start returned */
static __thread bool completed_inline;

struct mcfs_ahead *mcfs_ahead_new(struct mcfs_pool *pool, struct mcfs_object *o, uint64_t timeout_ms)
{
	struct mcfs_ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->pool = pool;
	a->o = mcfs_object_ref(o);
	a->size = mcfs_object_info(o)->size;
	a->timeout_ms = timeout_ms;
	a->refs = 1;
	mc_mutex_init(&a->lock);
	mc_list_init(&a->waiting);
	for (unsigned i = 0; i < CHUNKS; i++)
		a->chunk[i].a = a;
	return a;
}

/* With the lock held. */
static void chunk_drop(struct chunk *c)
{
	mcfs_slot_put(c->a->pool, c->slot);
	mc_metric_add(&slots, -1);
	c->slot = NULL;
	c->state = EMPTY;
}

/* Releases the lock. */
static void unref_unlock(struct mcfs_ahead *a)
{
	bool last = --a->refs == 0;

	mc_mutex_unlock(&a->lock);
	if (!last)
		return;
	for (unsigned i = 0; i < CHUNKS; i++)
		if (a->chunk[i].state != EMPTY)
			chunk_drop(&a->chunk[i]);
	mcfs_object_unref(a->o);
	mc_mutex_destroy(&a->lock);
	free(a);
}

void mcfs_ahead_free(struct mcfs_ahead *a)
{
	if (!a)
		return;
	mc_mutex_lock(&a->lock);
	a->closed = true;
	unref_unlock(a);
}

/* ---- answers from the window ---- */

static struct chunk *ahead_find(struct mcfs_ahead *a, uint64_t index)
{
	struct chunk *c = &a->chunk[index % CHUNKS];

	return c->state != EMPTY && c->index == index ? c : NULL;
}

static uint64_t last_index(const struct mcfs_read *rd)
{
	return (rd->offset + rd->len - 1) / CHUNK_SIZE;
}

/* Number of @rd's chunks in the window, loading or ready; *ret_ready: all are ready. */
static unsigned ahead_covered(struct mcfs_ahead *a, const struct mcfs_read *rd, bool *ret_ready)
{
	unsigned n = 0;

	*ret_ready = true;
	for (uint64_t i = rd->offset / CHUNK_SIZE; i <= last_index(rd); i++) {
		struct chunk *c = ahead_find(a, i);

		n += c != NULL;
		if (!c || c->state != READY)
			*ret_ready = false;
	}
	return n;
}

/* Reference all chunks of @rd, which are ready. Lock held. */
static unsigned take_chunks(struct mcfs_ahead *a, struct mcfs_read *rd, struct chunk **ret)
{
	unsigned n = 0;

	for (uint64_t i = rd->offset / CHUNK_SIZE; i <= last_index(rd); i++) {
		ret[n] = ahead_find(a, i);
		ret[n++]->users++;
	}
	a->refs++;
	return n;
}

static void ahead_answer(struct mcfs_ahead *a, struct mcfs_read *rd, struct chunk **c, unsigned n)
{
	struct iovec iov[SPAN_MAX];
	uint64_t at = rd->offset, end = rd->offset + rd->len;

	for (unsigned i = 0; i < n; i++) {
		uint64_t start = c[i]->index * CHUNK_SIZE, stop = start + c[i]->len;

		stop = stop < end ? stop : end;
		iov[i] = (struct iovec){ (char *)c[i]->slot + (at - start), (size_t)(stop - at) };
		at = stop;
	}
	mc_metric_add(&from_window, 1);
	(void)mcfs_reply_read(&rd->op, iov, (int)n, rd->len);
	free(rd);
	mc_mutex_lock(&a->lock);
	for (unsigned i = 0; i < n; i++)
		c[i]->users--;
	unref_unlock(a);
}

/* Remove a waiting read whose chunks are all ready, or one of whose chunks is missing, because its
 * load failed or another chunk replaced it. */
static struct mcfs_read *next_served(struct mcfs_ahead *a, bool *ret_ready)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &a->waiting) {
		struct mcfs_read *rd = mc_container_of(pos, struct mcfs_read, link);

		if (ahead_covered(a, rd, ret_ready) == last_index(rd) - rd->offset / CHUNK_SIZE + 1 && !*ret_ready)
			continue;
		mc_list_remove(&rd->link);
		return rd;
	}
	return NULL;
}

/* ---- reads without the window ---- */

static void on_read(void *arg, int64_t result)
{
	struct mcfs_read *rd = arg;

	completed_inline = true;
	if (result < 0) {
		(void)mcfs_reply_err(&rd->op, (int)result);
	} else {
		struct iovec iov = { rd->slot, (size_t)result };

		(void)mcfs_reply_read(&rd->op, &iov, 1, (size_t)result);
	}
	mcfs_slot_put(rd->pool, rd->slot);
	free(rd);
}

static bool read_straight(struct mcfs_ahead *a, struct mcfs_read *rd)
{
	uint64_t deadline = rd->op.deadline;
	int r;

	rd->pool = a->pool;
	rd->slot = mcfs_slot_get(a->pool);
	if (!rd->slot)
		return false;
	completed_inline = false;
	/* The answer may close the descriptor and free @a. */
	mc_mutex_lock(&a->lock);
	a->refs++;
	mc_mutex_unlock(&a->lock);
	r = mcfs_object_start(a->o, rd->offset, rd->slot, rd->len, deadline, on_read, rd);
	if (r < 0)
		on_read(rd, r);
	mc_mutex_lock(&a->lock);
	a->is_local = completed_inline;
	unref_unlock(a);
	return true;
}

/* ---- filling the window ---- */

static void on_chunk(void *arg, int64_t result)
{
	struct chunk *c = arg, *taken[SPAN_MAX];
	struct mcfs_ahead *a = c->a;
	struct mcfs_read *rd;
	bool ready;

	mc_mutex_lock(&a->lock);
	if (result == (int64_t)c->len) {
		c->state = READY;
		mc_metric_add(&chunks, 1);
	} else {
		chunk_drop(c);
	}
	while ((rd = next_served(a, &ready))) {
		unsigned n = ready ? take_chunks(a, rd, taken) : 0;

		mc_mutex_unlock(&a->lock);
		if (ready) {
			ahead_answer(a, rd, taken, n);
		} else if (!read_straight(a, rd)) {
			(void)mcfs_reply_err(&rd->op, -ENOMEM);
			free(rd);
		}
		mc_mutex_lock(&a->lock);
	}
	unref_unlock(a);
}

/* Start loading chunk @index. Lock held, released meanwhile. */
static void ahead_load(struct mcfs_ahead *a, uint64_t index)
{
	struct chunk *c = &a->chunk[index % CHUNKS];
	uint64_t start = index * CHUNK_SIZE;
	int r;

	if (start >= a->size || (c->state != EMPTY && c->index == index))
		return;
	if (c->state == LOADING || c->users)
		return;
	if (c->state == READY)
		chunk_drop(c);
	if (mc_metric_get(&slots) >= MCFS_AHEAD_SLOTS)
		return;
	c->slot = mcfs_slot_get(a->pool);
	if (!c->slot)
		return;
	mc_metric_add(&slots, 1);
	c->state = LOADING;
	c->index = index;
	c->len = a->size - start < CHUNK_SIZE ? (size_t)(a->size - start) : CHUNK_SIZE;
	a->refs++;
	mc_mutex_unlock(&a->lock);
	r = mcfs_object_start(a->o, start, c->slot, c->len, mc_deadline_ms((int64_t)a->timeout_ms),
			      on_chunk, c);
	if (r < 0)
		on_chunk(c, r);
	mc_mutex_lock(&a->lock);
}

/* Update the expected offset. Lock held. True: the reader is sequential. */
static bool ahead_follow(struct mcfs_ahead *a, const struct mcfs_read *rd)
{
	uint64_t end = rd->offset + rd->len;
	uint64_t off = rd->offset > a->next ? rd->offset - a->next : a->next - rd->offset;

	if (off > FOLLOW_DISTANCE) {
		a->run = a->depth = 0;
		a->next = end;
		return false;
	}
	a->run++;
	if (end / CHUNK_SIZE > a->next / CHUNK_SIZE && a->depth)
		a->depth = a->depth * 2 < DEPTH_MAX ? a->depth * 2 : DEPTH_MAX;
	if (end > a->next)
		a->next = end;
	if (a->is_local || a->run < 2)
		return false;
	if (!a->depth)
		a->depth = DEPTH_FIRST;
	return true;
}

/* Start loading the missing chunks up to the window's end. Lock held. */
static void ahead_fill(struct mcfs_ahead *a, const struct mcfs_read *rd)
{
	uint64_t first = rd->offset / CHUNK_SIZE, until = last_index(rd) + 1 + a->depth;

	for (uint64_t i = first; i < until && !a->closed; i++)
		ahead_load(a, i);
}

/* ---- reading ---- */

bool mcfs_ahead_read(struct mcfs_ahead *a, struct mcfs_read *rd)
{
	struct chunk *taken[SPAN_MAX];
	unsigned n, want;
	bool ready;

	if (rd->offset >= a->size || !rd->len) {
		(void)mcfs_reply_read(&rd->op, NULL, 0, 0);
		free(rd);
		return true;
	}
	if (rd->len > a->size - rd->offset)
		rd->len = (size_t)(a->size - rd->offset);
	mc_mutex_lock(&a->lock);
	/* Loading releases the lock, so that another thread's answer could drop the last reference. */
	a->refs++;
	if (ahead_follow(a, rd))
		ahead_fill(a, rd);
	n = ahead_covered(a, rd, &ready);
	want = (unsigned)(last_index(rd) - rd->offset / CHUNK_SIZE + 1);
	if (n < want) {
		mc_mutex_unlock(&a->lock);
		ready = read_straight(a, rd);
		mc_mutex_lock(&a->lock);
		unref_unlock(a);
		return ready;
	}
	if (ready) {
		n = take_chunks(a, rd, taken);
		a->refs--;
		mc_mutex_unlock(&a->lock);
		ahead_answer(a, rd, taken, n);
		return true;
	}
	mc_list_push_back(&a->waiting, &rd->link);
	unref_unlock(a);
	return true;
}
