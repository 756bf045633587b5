/* SPDX-License-Identifier: Apache-2.0
 * stream.c - the streams .mcfs/trace and .mcfs/events. One thread runs while a stream is open. It receives
 * events from the master and answers reads whose callers were interrupted. */
#include <config.h>
#include "mcfs/control/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/thread.h"
#include "mcfs/keymap.h"
#include "mcfs/mcfs.h"

#define ROOM ((size_t)256 << 10)	/* of unread lines per stream */
#define STREAMS_MAX 64u
#define TICK_MS 200

struct mcfs_stream {
	enum mcfs_stream_kind kind;
	struct mc_list link;
	char *text;		/* buffer of ROOM bytes */
	size_t len;
	uint64_t lost;		/* number of dropped lines */
	struct mc_list waiting;	/* struct mcfs_read */
};

static struct {
	struct mc_mutex lock;
	/* guarded by lock */
	struct mc_list list;
	unsigned n;
	bool begun;
	bool ended;		/* streams end: reads no longer wait */
	struct mcfs *fs;
	struct mc_stop stop;
	struct mc_thread thread;
	/* atomic */
	unsigned open[MCFS_STREAM_KINDS];
} streams = { .lock = MC_MUTEX_INIT };

/* ---- lines ---- */

/* Lock held, also for stream_portion() and answer_new(). */
static void stream_add(struct mcfs_stream *s, const char *line, size_t len)
{
	char note[64];
	size_t n = 0;

	if (s->lost)
		n = (size_t)snprintf(note, sizeof(note), "# %" PRIu64 " lines lost\n", s->lost);
	if (s->len + n + len > ROOM) {
		s->lost++;
		return;
	}
	memcpy(s->text + s->len, note, n);
	memcpy(s->text + s->len + n, line, len);
	s->len += n + len;
	s->lost = 0;
}

/* Bytes to return for a read of @max: whole lines if at least one fits. */
static size_t stream_portion(const struct mcfs_stream *s, size_t max)
{
	const char *end;

	if (s->len <= max)
		return s->len;
	end = memrchr(s->text, '\n', max);
	return end ? (size_t)(end - s->text) + 1 : max;
}

/* The answer of a read, sent without the lock: sending may close the descriptor and adds a line to the trace. */
struct answer {
	struct mc_list link;
	struct mcfs_read *rd;
	int err;
	size_t len;
	char text[];
};

static struct answer *answer_new(struct mcfs_stream *s, struct mcfs_read *rd, int err)
{
	size_t n = err ? 0 : stream_portion(s, rd->len);
	struct answer *a = malloc(sizeof(*a) + n);

	if (!a)
		return NULL;
	a->rd = rd;
	a->err = err;
	a->len = n;
	if (n) {
		memcpy(a->text, s->text, n);
		s->len -= n;
		memmove(s->text, s->text + n, s->len);
	}
	return a;
}

static void send_answer(struct answer *a)
{
	struct iovec iov = { a->text, a->len };

	if (a->err)
		(void)mcfs_reply_err(&a->rd->op, a->err);
	else
		(void)mcfs_reply_read(&a->rd->op, &iov, a->len > 0, a->len);
	free(a->rd);
	free(a);
}

/* Answer the waiting reads of all streams that can be answered. */
static void streams_serve(void)
{
	struct mc_list *at, *pos, *tmp, answers;

	mc_list_init(&answers);
	mc_mutex_lock(&streams.lock);
	mc_list_for_each(at, &streams.list) {
		struct mcfs_stream *s = mc_container_of(at, struct mcfs_stream, link);

		mc_list_for_each_safe(pos, tmp, &s->waiting) {
			struct mcfs_read *rd = mc_container_of(pos, struct mcfs_read, link);
			bool gone = mcfs_op_given_up(&rd->op);
			struct answer *a;

			if (!gone && !s->len && !streams.ended)
				continue;
			a = answer_new(s, rd, gone ? -EINTR : 0);
			if (!a)
				continue;
			mc_list_remove(pos);
			mc_list_push_back(&answers, &a->link);
		}
	}
	mc_mutex_unlock(&streams.lock);
	mc_list_for_each_safe(pos, tmp, &answers)
		send_answer(mc_container_of(pos, struct answer, link));
}

static void stream_broadcast(enum mcfs_stream_kind kind, const char *line, size_t len)
{
	struct mc_list *pos;

	MC_LOCKED(&streams.lock);
	if (!streams.begun)
		return;
	mc_list_for_each(pos, &streams.list) {
		struct mcfs_stream *s = mc_container_of(pos, struct mcfs_stream, link);

		if (s->kind == kind)
			stream_add(s, line, len);
	}
	mc_stop_kick(&streams.stop);
}

bool mcfs_trace_on(void)
{
	return __atomic_load_n(&streams.open[MCFS_TRACE], __ATOMIC_RELAXED);
}

void mcfs_trace_line(const char *text, size_t len)
{
	stream_broadcast(MCFS_TRACE, text, len);
}

/* ---- events ---- */

static void tell_event(const struct mcs_event *e)
{
	static const char *const names[] = {
		[MCS_EVENT_PUT] = "put", [MCS_EVENT_REMOVE] = "remove", [MCS_EVENT_EVICT] = "evict",
		[MCS_EVENT_RENAME] = "rename", [MCS_EVENT_ATTRS] = "attrs", [MCS_EVENT_GAP] = "gap",
	};
	static char key[4 * MCFS_KEY_MAX], to[4 * MCFS_KEY_MAX], line[10 * MCFS_KEY_MAX];
	char when[40];
	size_t n;

	mcfs_format_time(e->time_ms, when, sizeof(when));
	n = (size_t)snprintf(line, sizeof(line), "%s %s", when, names[e->type]);
	if (e->type == MCS_EVENT_GAP) {
		n += (size_t)snprintf(line + n, sizeof(line) - n, " lost=%" PRIu64 "\n", e->lost);
	} else {
		mcfs_key_print(e->key, key, sizeof(key));
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %s", key);
		if (e->type == MCS_EVENT_RENAME) {
			mcfs_key_print(e->to, to, sizeof(to));
			n += (size_t)snprintf(line + n, sizeof(line) - n, " %s", to);
		}
		n += (size_t)snprintf(line + n, sizeof(line) - n, " size=%" PRIu64 " generation=%"
				      PRIu64 "\n", e->size, e->generation);
	}
	stream_broadcast(MCFS_EVENTS, line, n);
}

/* Opens and closes @watch as needed. False: there was no event to wait for. */
static bool pump_events(mcs_watch_t **watch)
{
	struct mcs_event e;
	int r;

	if (!__atomic_load_n(&streams.open[MCFS_EVENTS], __ATOMIC_ACQUIRE)) {
		mcs_watch_close(*watch);
		*watch = NULL;
		return false;
	}
	if (!*watch && mcs_watch_open(streams.fs->store, (struct mcs_key){ "", 0 }, 0, watch, 1000) < 0) {
		*watch = NULL;
		return false;
	}
	r = mcs_watch_next(*watch, &e, TICK_MS);
	if (r == 1)
		tell_event(&e);
	return r >= 0;
}

static void *streams_run(void *arg)
{
	mcs_watch_t *watch = NULL;

	while (!mc_stop_wait(&streams.stop, pump_events(&watch) ? 0 : TICK_MS))
		streams_serve();
	mcs_watch_close(watch);
	return NULL;
}

/* ---- streams ---- */

/* With the lock held. */
static int streams_begin(struct mcfs *fs)
{
	int r;

	if (streams.begun)
		return 0;
	streams.fs = fs;
	mc_list_init(&streams.list);
	r = mc_stop_start(&streams.stop, &streams.thread, "mcfs-stream", streams_run, NULL);
	streams.begun = r == 0;
	return r;
}

int mcfs_stream_open(struct mcfs *fs, enum mcfs_stream_kind kind, struct mcfs_stream **ret)
{
	struct mcfs_stream *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->kind = kind;
	mc_list_init(&s->waiting);
	s->text = malloc(ROOM);
	mc_mutex_lock(&streams.lock);
	r = !s->text ? -ENOMEM : streams.n >= STREAMS_MAX ? -EMFILE : streams_begin(fs);
	if (r == 0) {
		mc_list_push_back(&streams.list, &s->link);
		streams.n++;
		__atomic_add_fetch(&streams.open[kind], 1, __ATOMIC_RELEASE);
	}
	mc_mutex_unlock(&streams.lock);
	if (r < 0) {
		free(s->text);
		free(s);
		return r;
	}
	mc_stop_kick(&streams.stop);
	*ret = s;
	return 0;
}

void mcfs_stream_close(struct mcfs_stream *s)
{
	if (!s)
		return;
	mc_mutex_lock(&streams.lock);
	mc_list_remove(&s->link);
	streams.n--;
	__atomic_sub_fetch(&streams.open[s->kind], 1, __ATOMIC_RELEASE);
	mc_mutex_unlock(&streams.lock);
	free(s->text);
	free(s);
}

void mcfs_stream_read(struct mcfs_stream *s, struct mcfs_read *rd, bool nonblock)
{
	bool now, ready;
	struct answer *a = NULL;

	mc_mutex_lock(&streams.lock);
	ready = s->len || streams.ended;
	now = ready || nonblock;
	if (now)
		a = answer_new(s, rd, ready ? 0 : -EAGAIN);
	else
		mc_list_push_back(&s->waiting, &rd->link);
	mc_mutex_unlock(&streams.lock);
	if (a) {
		send_answer(a);
	} else if (now) {
		(void)mcfs_reply_err(&rd->op, -ENOMEM);
		free(rd);
	}
}

void mcfs_streams_hang_up(void)
{
	mc_mutex_lock(&streams.lock);
	streams.ended = true;
	mc_mutex_unlock(&streams.lock);
	if (streams.begun)
		streams_serve();
}

void mcfs_streams_end(void)
{
	if (!streams.begun) {
		streams.ended = false;
		return;
	}
	mc_stop_join(&streams.stop, streams.thread);
	streams.begun = streams.ended = false;
}
