/* SPDX-License-Identifier: Apache-2.0
 * feed.c - the feeds .mcfs/trace and .mcfs/events. One thread runs while a feed is open. It receives
 * events from the master and answers reads whose callers were interrupted. */
#include <config.h>
#include "mcfs/control/feed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/thread.h"
#include "mcfs/keymap.h"
#include "mcfs/mcfs.h"

#define ROOM ((size_t)256 << 10)	/* bytes of unread lines per reader */
#define FEEDS_MAX 64u
#define TICK_MS 200

struct mcfs_feed {
	enum mcfs_feed_kind kind;
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
	bool ended;		/* feeds end: reads no longer wait */
	struct mcfs *fs;
	struct mc_stop stop;
	struct mc_thread thread;
	/* atomic */
	unsigned open[MCFS_FEED_KINDS];
} feeds = { .lock = MC_MUTEX_INIT };

/* ---- lines ---- */

/* Lock held, also for feed_portion() and answer_new(). */
static void feed_add(struct mcfs_feed *f, const char *line, size_t len)
{
	char note[64];
	size_t n = 0;

	if (f->lost)
		n = (size_t)snprintf(note, sizeof(note), "# %" PRIu64 " lines lost\n", f->lost);
	if (f->len + n + len > ROOM) {
		f->lost++;
		return;
	}
	memcpy(f->text + f->len, note, n);
	memcpy(f->text + f->len + n, line, len);
	f->len += n + len;
	f->lost = 0;
}

/* Bytes to return for a read of @max: whole lines if at least one fits. */
static size_t feed_portion(const struct mcfs_feed *f, size_t max)
{
	const char *end;

	if (f->len <= max)
		return f->len;
	end = memrchr(f->text, '\n', max);
	return end ? (size_t)(end - f->text) + 1 : max;
}

/* The answer of a read, sent without the lock: sending may close the descriptor and adds a line to the trace. */
struct answer {
	struct mc_list link;
	struct mcfs_read *rd;
	int err;
	size_t len;
	char text[];
};

static struct answer *answer_new(struct mcfs_feed *f, struct mcfs_read *rd, int err)
{
	size_t n = err ? 0 : feed_portion(f, rd->len);
	struct answer *a = malloc(sizeof(*a) + n);

	if (!a)
		return NULL;
	a->rd = rd;
	a->err = err;
	a->len = n;
	if (n) {
		memcpy(a->text, f->text, n);
		f->len -= n;
		memmove(f->text, f->text + n, f->len);
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

/* Answer the waiting reads of all feeds that can be answered. */
static void feeds_serve(void)
{
	struct mc_list *at, *pos, *tmp, answers;

	mc_list_init(&answers);
	mc_mutex_lock(&feeds.lock);
	mc_list_for_each(at, &feeds.list) {
		struct mcfs_feed *f = mc_container_of(at, struct mcfs_feed, link);

		mc_list_for_each_safe(pos, tmp, &f->waiting) {
			struct mcfs_read *rd = mc_container_of(pos, struct mcfs_read, link);
			bool gone = mcfs_op_given_up(&rd->op);
			struct answer *a;

			if (!gone && !f->len && !feeds.ended)
				continue;
			a = answer_new(f, rd, gone ? -EINTR : 0);
			if (!a)
				continue;
			mc_list_remove(pos);
			mc_list_push_back(&answers, &a->link);
		}
	}
	mc_mutex_unlock(&feeds.lock);
	mc_list_for_each_safe(pos, tmp, &answers)
		send_answer(mc_container_of(pos, struct answer, link));
}

static void feed_broadcast(enum mcfs_feed_kind kind, const char *line, size_t len)
{
	struct mc_list *pos;

	MC_LOCKED(&feeds.lock);
	if (!feeds.begun)
		return;
	mc_list_for_each(pos, &feeds.list) {
		struct mcfs_feed *f = mc_container_of(pos, struct mcfs_feed, link);

		if (f->kind == kind)
			feed_add(f, line, len);
	}
	mc_stop_kick(&feeds.stop);
}

bool mcfs_trace_on(void)
{
	return __atomic_load_n(&feeds.open[MCFS_TRACE], __ATOMIC_RELAXED);
}

void mcfs_trace_line(const char *text, size_t len)
{
	feed_broadcast(MCFS_TRACE, text, len);
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
	feed_broadcast(MCFS_EVENTS, line, n);
}

/* Opens and closes @watch as needed. False: there was no event to wait for. */
static bool pump_events(mcs_watch_t **watch)
{
	struct mcs_event e;
	int r;

	if (!__atomic_load_n(&feeds.open[MCFS_EVENTS], __ATOMIC_ACQUIRE)) {
		mcs_watch_close(*watch);
		*watch = NULL;
		return false;
	}
	if (!*watch && mcs_watch_open(feeds.fs->store, (struct mcs_key){ "", 0 }, 0, watch, 1000) < 0) {
		*watch = NULL;
		return false;
	}
	r = mcs_watch_next(*watch, &e, TICK_MS);
	if (r == 1)
		tell_event(&e);
	return r >= 0;
}

static void *feeds_run(void *arg)
{
	mcs_watch_t *watch = NULL;

	while (!mc_stop_wait(&feeds.stop, pump_events(&watch) ? 0 : TICK_MS))
		feeds_serve();
	mcs_watch_close(watch);
	return NULL;
}

/* ---- feeds ---- */

/* With the lock held. */
static int feeds_begin(struct mcfs *fs)
{
	int r;

	if (feeds.begun)
		return 0;
	feeds.fs = fs;
	mc_list_init(&feeds.list);
	r = mc_stop_start(&feeds.stop, &feeds.thread, "mcfs-feed", feeds_run, NULL);
	feeds.begun = r == 0;
	return r;
}

int mcfs_feed_open(struct mcfs *fs, enum mcfs_feed_kind kind, struct mcfs_feed **ret)
{
	struct mcfs_feed *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->kind = kind;
	mc_list_init(&f->waiting);
	f->text = malloc(ROOM);
	mc_mutex_lock(&feeds.lock);
	r = !f->text ? -ENOMEM : feeds.n >= FEEDS_MAX ? -EMFILE : feeds_begin(fs);
	if (r == 0) {
		mc_list_push_back(&feeds.list, &f->link);
		feeds.n++;
		__atomic_add_fetch(&feeds.open[kind], 1, __ATOMIC_RELEASE);
	}
	mc_mutex_unlock(&feeds.lock);
	if (r < 0) {
		free(f->text);
		free(f);
		return r;
	}
	mc_stop_kick(&feeds.stop);
	*ret = f;
	return 0;
}

void mcfs_feed_close(struct mcfs_feed *f)
{
	if (!f)
		return;
	mc_mutex_lock(&feeds.lock);
	mc_list_remove(&f->link);
	feeds.n--;
	__atomic_sub_fetch(&feeds.open[f->kind], 1, __ATOMIC_RELEASE);
	mc_mutex_unlock(&feeds.lock);
	free(f->text);
	free(f);
}

void mcfs_feed_read(struct mcfs_feed *f, struct mcfs_read *rd, bool nonblock)
{
	bool now, ready;
	struct answer *a = NULL;

	mc_mutex_lock(&feeds.lock);
	ready = f->len || feeds.ended;
	now = ready || nonblock;
	if (now)
		a = answer_new(f, rd, ready ? 0 : -EAGAIN);
	else
		mc_list_push_back(&f->waiting, &rd->link);
	mc_mutex_unlock(&feeds.lock);
	if (a) {
		send_answer(a);
	} else if (now) {
		(void)mcfs_reply_err(&rd->op, -ENOMEM);
		free(rd);
	}
}

void mcfs_feeds_hang_up(void)
{
	mc_mutex_lock(&feeds.lock);
	feeds.ended = true;
	mc_mutex_unlock(&feeds.lock);
	if (feeds.begun)
		feeds_serve();
}

void mcfs_feeds_end(void)
{
	if (!feeds.begun) {
		feeds.ended = false;
		return;
	}
	mc_stop_join(&feeds.stop, feeds.thread);
	feeds.begun = feeds.ended = false;
}
