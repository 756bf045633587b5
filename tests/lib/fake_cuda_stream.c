/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_stream.c - the fake CUDA driver: streams, events and copies.
 *
 * Each operation waits until all that it follows have ended: those before it on its stream; on the default ("legacy")
 * stream those of all blocking streams, and on a blocking stream those of the default one; the record of an event. */
#include "tests/lib/fake_cuda_i.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct span {
	void *dst;
	const void *src;
	size_t len;
};

struct event {
	uint64_t asked, done;	/* records */
};

struct op {
	struct op *next;
	uint64_t number;	/* on its stream */
	enum { COPY, RECORD, WAIT, FOLLOW, CALL } kind;
	struct span *spans;
	size_t n;
	struct event *event;
	uint64_t stream;	/* id of the one to follow */
	uint64_t record;	/* of the event; number of the operation to follow */
	void (*fn)(void *arg);
	void *arg;
};

struct stream {
	struct stream *next;
	uint64_t id;
	struct context *c;
	bool blocking, legacy, closing, dead;
	pthread_t thread;
	struct op *first, **last;
	uint64_t added, ended;
};

static struct stream *streams;

/* ---- the thread of a stream -------------------------------------------------------------------- */

static void copy_span_locked(const struct span *s)
{
	char *dst = fake_cuda_access_locked(s->dst, s->len), *src = fake_cuda_access_locked(s->src, s->len);
	bool from = dst == s->dst, to = src == s->src;

	if (!dst || !src) {
		fake_cuda_sticky = CU_ILLEGAL_ADDRESS;
		return;
	}
	fake_cuda_add("bytes_to_host", from ? (int64_t)s->len : 0);
	fake_cuda_add("bytes_to_device", to ? (int64_t)s->len : 0);
	fake_cuda_add("spans", 1);
	if (fake_cuda_no_bytes)
		return;
	/* Memory is freed only after all streams are idle, so the copy needs no lock. */
	pthread_mutex_unlock(&fake_cuda_lock);
	memcpy(dst, src, s->len);
	pthread_mutex_lock(&fake_cuda_lock);
}

static void op_copy_locked(struct op *op)
{
	struct timespec ts = { .tv_nsec = (long)(fake_cuda_copy_us % 1000000) * 1000,
			       .tv_sec = (time_t)(fake_cuda_copy_us / 1000000) };
	int r;

	if (fake_cuda_copy_us) {
		pthread_mutex_unlock(&fake_cuda_lock);
		nanosleep(&ts, NULL);
		pthread_mutex_lock(&fake_cuda_lock);
	}
	while (fake_cuda_held)
		pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
	r = fake_cuda_fails_locked("copy");
	if (r)
		fake_cuda_sticky = r;
	fake_cuda_add("copies", 1);
	for (size_t i = 0; i < op->n && !fake_cuda_sticky; i++)
		copy_span_locked(&op->spans[i]);
}

/* A stream that does not exist any more has ended all. */
static bool is_behind_locked(uint64_t id, uint64_t number)
{
	for (const struct stream *s = streams; s; s = s->next)
		if (s->id == id)
			return s->ended < number;
	return false;
}

static void op_run_locked(struct op *op)
{
	switch (op->kind) {
	case COPY:
		op_copy_locked(op);
		break;
	case RECORD:
		op->event->done = op->record;
		break;
	case WAIT:
		while (op->event->done < op->record)
			pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
		break;
	case FOLLOW:
		while (is_behind_locked(op->stream, op->record))
			pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
		break;
	case CALL:
		pthread_mutex_unlock(&fake_cuda_lock);
		op->fn(op->arg);
		pthread_mutex_lock(&fake_cuda_lock);
		break;
	}
}

static void op_end_locked(struct stream *s, struct op *op)
{
	s->ended = op->number;
	free(op->spans);
	free(op);
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&fake_cuda_lock);
	for (;;) {
		struct op *op = s->first;

		if (!op && s->closing)
			break;
		if (!op) {
			pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
			continue;
		}
		op_run_locked(op);
		s->first = op->next;
		if (!s->first)
			s->last = &s->first;
		op_end_locked(s, op);
		pthread_cond_broadcast(&fake_cuda_changed);
	}
	s->dead = true;
	pthread_cond_broadcast(&fake_cuda_changed);
	pthread_mutex_unlock(&fake_cuda_lock);
	return NULL;
}

struct stream *fake_cuda_stream_new_locked(struct context *c, bool blocking, bool legacy)
{
	struct stream *s = calloc(1, sizeof(*s));
	static uint64_t ids;

	if (!s)
		abort();
	s->id = ++ids;
	s->c = c;
	s->blocking = blocking;
	s->legacy = legacy;
	s->last = &s->first;
	s->next = streams;
	streams = s;
	if (pthread_create(&s->thread, NULL, stream_main, s))
		abort();
	if (!legacy)
		fake_cuda_add("streams", 1);
	return s;
}

void fake_cuda_drain_locked(void)
{
	for (struct stream *s = streams; s;) {
		if (s->ended == s->added) {
			s = s->next;
			continue;
		}
		pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
		s = streams;
	}
}

/* ---- adding operations ------------------------------------------------------------------------- */

static struct stream *stream_of_locked(struct stream *s)
{
	if (s == NULL || s == (struct stream *)1)
		return fake_cuda_current()->legacy;
	for (struct stream *t = streams; t; t = t->next)
		if (t == s)
			return s;
	return NULL;
}

static bool op_is_instant(const struct op *op)
{
	return op->kind == COPY || op->kind == RECORD || (op->kind == WAIT && op->event->done >= op->record);
}

/* Its number. */
static uint64_t op_add_locked(struct stream *s, struct op op)
{
	struct op *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = op;
	copy->next = NULL;
	copy->number = ++s->added;
	/* For measurements: a stream without work does it at once. */
	if (fake_cuda_no_bytes && !s->first && op_is_instant(copy)) {
		op_run_locked(copy);
		op_end_locked(s, copy);
		return s->added;
	}
	*s->last = copy;
	s->last = &copy->next;
	pthread_cond_broadcast(&fake_cuda_changed);
	return s->added;
}

/* @s waits for all of @other that is there now. */
static void follow_locked(struct stream *s, const struct stream *other)
{
	if (other->ended < other->added)
		op_add_locked(s, (struct op){ .kind = FOLLOW, .stream = other->id, .record = other->added });
}

static void order_locked(struct stream *s)
{
	if (s->legacy) {
		for (struct stream *t = streams; t; t = t->next)
			if (t != s && t->c == s->c && t->blocking)
				follow_locked(s, t);
	} else if (s->blocking) {
		follow_locked(s, s->c->legacy);
	}
}

static void wait_number_locked(struct stream *s, uint64_t number)
{
	while (s->ended < number)
		pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
}

static int copy_add_locked(struct stream *s, const struct span *spans, size_t n, bool now)
{
	struct span *copy = calloc(n, sizeof(*copy));
	bool pageable = false;
	uint64_t number;

	if (!copy)
		abort();
	memcpy(copy, spans, n * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < 2; k++) {
			const void *p = k ? spans[i].src : spans[i].dst;
			int pinned = fake_cuda_find_locked(p, 0) ? 1 : fake_cuda_pinned_locked(p, spans[i].len);

			if (pinned < 0) {
				free(copy);
				return CU_INVALID_VALUE;
			}
			pageable = pageable || !pinned;
		}
	order_locked(s);
	number = op_add_locked(s, (struct op){ .kind = COPY, .spans = copy, .n = n });
	if (pageable && !now)
		fake_cuda_add("pageable", 1);
	if (pageable || now)
		wait_number_locked(s, number);
	return fake_cuda_sticky;
}

static int copy_call(const char *name, uint64_t dst, uint64_t src, size_t len, struct stream *s, bool now)
{
	const struct span span = { (void *)(uintptr_t)dst, (const void *)(uintptr_t)src, len };
	int r = fake_cuda_enter(name, true);

	s = r ? NULL : stream_of_locked(s);
	if (!r && !s)
		r = CU_INVALID_HANDLE;
	if (!r && len)
		r = copy_add_locked(s, &span, 1, now);
	return fake_cuda_leave(r);
}

int cuMemcpy(uint64_t dst, uint64_t src, size_t len);
int cuMemcpy(uint64_t dst, uint64_t src, size_t len)
{
	return copy_call("cuMemcpy", dst, src, len, NULL, true);
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t len, struct stream *s);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t len, struct stream *s)
{
	return copy_call("cuMemcpyAsync", dst, src, len, s, false);
}

int cuMemcpyBatchAsync(uint64_t *dst, uint64_t *src, size_t *len, size_t n, void *attr, size_t *first, size_t nattr,
		       size_t *ret_failed, struct stream *s);
int cuMemcpyBatchAsync(uint64_t *dst, uint64_t *src, size_t *len, size_t n, void *attr, size_t *first, size_t nattr,
		       size_t *ret_failed, struct stream *s)
{
	int r = fake_cuda_enter("cuMemcpyBatchAsync", true);
	struct span *spans = calloc(n ? n : 1, sizeof(*spans));

	if (!spans)
		abort();
	for (size_t i = 0; i < n; i++)
		spans[i] = (struct span){ (void *)(uintptr_t)dst[i], (const void *)(uintptr_t)src[i], len[i] };
	/* The legacy stream has no batches. */
	s = r || s == NULL || s == (struct stream *)1 ? NULL : stream_of_locked(s);
	if (!r && (!s || !n || !attr || nattr != 1 || *first))
		r = s ? CU_INVALID_VALUE : CU_INVALID_HANDLE;
	if (!r)
		r = copy_add_locked(s, spans, n, false);
	free(spans);
	return fake_cuda_leave(r);
}

/* ---- streams ----------------------------------------------------------------------------------- */

int cuStreamCreate(struct stream **ret, unsigned flags);
int cuStreamCreate(struct stream **ret, unsigned flags)
{
	int r = fake_cuda_enter("cuStreamCreate", true);

	if (!r)
		*ret = fake_cuda_stream_new_locked(fake_cuda_current(), !(flags & 1), false);
	return fake_cuda_leave(r);
}

int cuStreamSynchronize(struct stream *s);
int cuStreamSynchronize(struct stream *s)
{
	int r = fake_cuda_enter("cuStreamSynchronize", true);

	s = r ? NULL : stream_of_locked(s);
	if (s && s->legacy)
		order_locked(s);
	if (s)
		wait_number_locked(s, s->added);
	return fake_cuda_leave(r ? r : s ? fake_cuda_sticky : CU_INVALID_HANDLE);
}

int cuStreamDestroy_v2(struct stream *s);
int cuStreamDestroy_v2(struct stream *s)
{
	int r = fake_cuda_enter("cuStreamDestroy_v2", true);
	struct stream **at = &streams;

	while (*at && *at != s)
		at = &(*at)->next;
	if (!*at)
		return fake_cuda_leave(CU_INVALID_HANDLE);
	s->closing = true;
	pthread_cond_broadcast(&fake_cuda_changed);
	while (!s->dead)
		pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
	for (at = &streams; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	fake_cuda_add("streams", -1);
	pthread_mutex_unlock(&fake_cuda_lock);
	pthread_join(s->thread, NULL);
	free(s);
	return r;
}

int cuStreamWaitEvent(struct stream *s, struct event *ev, unsigned flags);
int cuStreamWaitEvent(struct stream *s, struct event *ev, unsigned flags)
{
	int r = fake_cuda_enter("cuStreamWaitEvent", true);

	s = r ? NULL : stream_of_locked(s);
	if (!r && !s)
		r = CU_INVALID_HANDLE;
	if (!r && ev->asked)
		op_add_locked(s, (struct op){ .kind = WAIT, .event = ev, .record = ev->asked });
	return fake_cuda_leave(r);
}

int cuLaunchHostFunc(struct stream *s, void (*fn)(void *arg), void *arg);
int cuLaunchHostFunc(struct stream *s, void (*fn)(void *arg), void *arg)
{
	int r = fake_cuda_enter("cuLaunchHostFunc", true);

	s = r ? NULL : stream_of_locked(s);
	if (!r && !s)
		r = CU_INVALID_HANDLE;
	if (!r) {
		order_locked(s);
		op_add_locked(s, (struct op){ .kind = CALL, .fn = fn, .arg = arg });
	}
	return fake_cuda_leave(r);
}

/* ---- events ------------------------------------------------------------------------------------ */

int cuEventCreate(struct event **ret, unsigned flags);
int cuEventCreate(struct event **ret, unsigned flags)
{
	int r = fake_cuda_enter("cuEventCreate", true);

	if (!r) {
		*ret = calloc(1, sizeof(**ret));
		fake_cuda_add("events", 1);
	}
	return fake_cuda_leave(r);
}

int cuEventDestroy_v2(struct event *ev);
int cuEventDestroy_v2(struct event *ev)
{
	int r = fake_cuda_enter("cuEventDestroy_v2", true);

	/* Its last record, and streams that wait for it, still use it. */
	fake_cuda_drain_locked();
	free(ev);
	fake_cuda_add("events", -1);
	return fake_cuda_leave(r);
}

int cuEventRecord(struct event *ev, struct stream *s);
int cuEventRecord(struct event *ev, struct stream *s)
{
	int r = fake_cuda_enter("cuEventRecord", true);

	s = r ? NULL : stream_of_locked(s);
	if (!r && !s)
		r = CU_INVALID_HANDLE;
	if (!r) {
		order_locked(s);
		op_add_locked(s, (struct op){ .kind = RECORD, .event = ev, .record = ++ev->asked });
	}
	return fake_cuda_leave(r);
}

int cuEventQuery(struct event *ev);
int cuEventQuery(struct event *ev)
{
	int r = fake_cuda_enter("cuEventQuery", true);

	return fake_cuda_leave(r ? r : ev->done < ev->asked ? CU_NOT_READY : fake_cuda_sticky);
}

int cuEventSynchronize(struct event *ev);
int cuEventSynchronize(struct event *ev)
{
	int r = fake_cuda_enter("cuEventSynchronize", true);
	uint64_t asked = r ? 0 : ev->asked;

	while (!r && ev->done < asked)
		pthread_cond_wait(&fake_cuda_changed, &fake_cuda_lock);
	return fake_cuda_leave(r ? r : fake_cuda_sticky);
}
