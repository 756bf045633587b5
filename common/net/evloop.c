/* SPDX-License-Identifier: Apache-2.0
 * evloop.c - event loop: waiting, timers, posted work.
 *
 * Timers are the nodes of a pairing heap, so arming cannot fail.  Work is posted under a mutex. The poster
 * wakes the poller only when the loop is about to sleep, so posting to a busy loop needs no system call. */
#include <config.h>

#include "common/net/evloop.h"
#include "common/sys/world.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define BATCH 64
/* Limit of timers fired between two polls: a timer that rearms itself for now must not starve the descriptors. */
#define FIRE_MAX 1024
/* A spin without an event halves the next one, down to spin_us / SPIN_SHRINK. */
#define SPIN_SHRINK 32

struct work {
	struct work *next;
	void (*fn)(void *arg);
	void *arg;
	bool allocated;		/* else in the poster's memory, which may be reused as soon as @fn runs */
};

struct mc_evloop {
	/* constant after mc_evloop_new() */
	struct mc_poller *poller;
	char name[16];
	uint64_t spin_max_ns;
	uint64_t gather_ns;	/* owned by the loop's thread */
	/* owned by the thread that starts and frees the loop */
	struct mc_thread thread;
	bool started;
	/* guarded by lock */
	struct mc_mutex lock;
	struct work *head, **tail;
	bool sleeping;		/* the next poster has to wake the poller */
	bool closed;		/* no more work is accepted */
	/* atomic */
	atomic_bool stop, posted;
	/* owned by the loop's thread */
	struct mc_evtimer *timers;
	uint64_t spin_ns, idle_since;
	struct epoll_event batch[BATCH];
	int batch_at, batch_n;
};

static __thread const struct mc_evloop *current;
MC_WORLD_LOCAL(current)

/* ---- timers ---- */

static struct mc_evtimer *heap_meld(struct mc_evtimer *a, struct mc_evtimer *b)
{
	struct mc_evtimer *low;

	if (!a || !b)
		return a ? a : b;
	if (b->due_ns < a->due_ns) {
		low = b;
		b = a;
		a = low;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	return a;
}

/* Make one heap of a list of siblings: meld them in pairs, then meld the pairs from the last to the
 * first.  That order makes removal logarithmic (amortised). */
static struct mc_evtimer *heap_merge(struct mc_evtimer *first)
{
	struct mc_evtimer *pairs = NULL, *heap = NULL, *a, *b;

	while (first) {
		a = first;
		b = a->next;
		first = b ? b->next : NULL;
		a->prev = a->next = NULL;
		if (b)
			b->prev = b->next = NULL;
		a = heap_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		a = pairs;
		pairs = a->next;
		a->next = NULL;
		heap = heap_meld(heap, a);
	}
	return heap;
}

static void timer_remove(struct mc_evloop *l, struct mc_evtimer *t)
{
	struct mc_evtimer *children = heap_merge(t->child);

	if (t == l->timers) {
		l->timers = children;
	} else {
		if (t->prev->child == t)
			t->prev->child = t->next;
		else
			t->prev->next = t->next;
		if (t->next)
			t->next->prev = t->prev;
		l->timers = heap_meld(l->timers, children);
	}
	t->child = t->prev = t->next = NULL;
	t->due_ns = 0;
}

void mc_evtimer_disarm(struct mc_evloop *l, struct mc_evtimer *t)
{
	if (t->due_ns)
		timer_remove(l, t);
}

void mc_evtimer_arm(struct mc_evloop *l, struct mc_evtimer *t, uint64_t due_ns)
{
	mc_evtimer_disarm(l, t);
	if (due_ns == MC_NEVER)
		return;
	t->due_ns = due_ns ? due_ns : 1;
	l->timers = heap_meld(l->timers, t);
}

static void loop_fire_timers(struct mc_evloop *l)
{
	uint64_t now;

	if (!l->timers)
		return;
	now = mc_now_ns();
	for (int i = 0; i < FIRE_MAX && l->timers && l->timers->due_ns <= now; i++) {
		struct mc_evtimer *t = l->timers;

		timer_remove(l, t);
		t->fire(t);
	}
}

/* ---- posted work ---- */

static int loop_post(struct mc_evloop *l, struct work *w)
{
	bool wake;

	mc_mutex_lock(&l->lock);
	if (l->closed) {
		mc_mutex_unlock(&l->lock);
		return mc_fail(-ESHUTDOWN, "loop %s has ended", l->name);
	}
	*l->tail = w;
	l->tail = &w->next;
	atomic_store_explicit(&l->posted, true, memory_order_relaxed);
	wake = l->sleeping;
	l->sleeping = false;
	/* With the lock held: as soon as it is free, @fn may run and cause the owner to free the loop. */
	if (wake)
		l->poller->ops->wake(l->poller);
	mc_mutex_unlock(&l->lock);
	return 0;
}

int mc_evloop_post(struct mc_evloop *l, void (*fn)(void *arg), void *arg)
{
	struct work *w = malloc(sizeof(*w));
	int r;

	if (!w)
		return mc_fail(-ENOMEM, "no memory to post work to loop %s", l->name);
	*w = (struct work){ .fn = fn, .arg = arg, .allocated = true };
	r = loop_post(l, w);
	if (r < 0)
		free(w);
	return r;
}

static void loop_run_posted(struct mc_evloop *l)
{
	struct work *w, *next;

	if (!atomic_load_explicit(&l->posted, memory_order_relaxed))
		return;
	mc_mutex_lock(&l->lock);
	w = l->head;
	l->head = NULL;
	l->tail = &l->head;
	atomic_store_explicit(&l->posted, false, memory_order_relaxed);
	mc_mutex_unlock(&l->lock);
	for (; w; w = next) {
		bool allocated = w->allocated;

		next = w->next;
		w->fn(w->arg);
		if (allocated)
			free(w);
	}
}

struct call {
	struct work work;
	void (*fn)(void *arg);
	void *arg;
	struct mc_mutex lock;
	struct mc_cond cond;
	bool done;
};

static void call_run(void *p)
{
	struct call *c = p;

	c->fn(c->arg);
	mc_mutex_lock(&c->lock);
	c->done = true;
	mc_cond_signal(&c->cond);
	mc_mutex_unlock(&c->lock);
}

int mc_evloop_call(struct mc_evloop *l, void (*fn)(void *arg), void *arg)
{
	/* No allocation: owners stop by this call, which must not fail. */
	struct call c = {
		.work = { .fn = call_run, .arg = &c }, .fn = fn, .arg = arg,
		.lock = MC_MUTEX_INIT, .cond = MC_COND_INIT,
	};
	int r;

	if (mc_evloop_here(l))
		return mc_fail(-EDEADLK, "loop %s cannot wait for itself", l->name);
	r = loop_post(l, &c.work);
	if (r < 0)
		return r;
	mc_mutex_lock(&c.lock);
	while (!c.done)
		mc_cond_wait(&c.cond, &c.lock);
	mc_mutex_unlock(&c.lock);
	mc_cond_destroy(&c.cond);
	mc_mutex_destroy(&c.lock);
	return 0;
}

bool mc_evloop_here(const struct mc_evloop *l)
{
	return current == l;
}

/* ---- events ---- */

int mc_evloop_add(struct mc_evloop *l, struct mc_evfd *e, uint32_t events)
{
	e->events = events;
	return l->poller->ops->add(l->poller, e);
}

int mc_evloop_mod(struct mc_evloop *l, struct mc_evfd *e, uint32_t events)
{
	e->events = events;
	return l->poller->ops->mod(l->poller, e);
}

void mc_evloop_del(struct mc_evloop *l, struct mc_evfd *e)
{
	l->poller->ops->del(l->poller, e);
	/* The current batch may have an event of it behind the one that is being handled. */
	for (int i = l->batch_at + 1; i < l->batch_n; i++)
		if (l->batch[i].data.ptr == e)
			l->batch[i].data.ptr = NULL;
}

static void loop_dispatch(struct mc_evloop *l)
{
	for (l->batch_at = 0; l->batch_at < l->batch_n; l->batch_at++) {
		struct epoll_event *ev = &l->batch[l->batch_at];
		struct mc_evfd *e = ev->data.ptr;

		/* NULL: a wake-up, or deleted meanwhile. */
		if (e)
			e->ready(e, ev->events);
	}
	l->batch_n = 0;
}

/* ---- the thread ---- */

static bool timer_due(const struct mc_evloop *l, uint64_t now)
{
	return l->timers && l->timers->due_ns <= now;
}

/* Collect the ready entries; wait for the first one until @deadline. */
static void loop_collect(struct mc_evloop *l, uint64_t deadline)
{
	l->batch_n = l->poller->ops->wait(l->poller, l->batch, BATCH, deadline);
}

/* Poll without sleeping for spin_ns; true: there is an event, work or a due timer.  A spin without
 * one makes the next shorter; an event soon after it makes them long again. */
static bool loop_spin(struct mc_evloop *l)
{
	uint64_t now = mc_now_ns(), until = now + l->spin_ns;

	do {
		loop_collect(l, 0);
		if (l->batch_n > 0 || atomic_load_explicit(&l->posted, memory_order_relaxed) ||
		    timer_due(l, now) || atomic_load(&l->stop)) {
			l->spin_ns = l->spin_max_ns;
			return true;
		}
		now = mc_now_ns();
		/* Another thread that is ready on this processor may be the one that has to make the event. */
		mc_thread_yield();
	} while (now < until);
	if (l->spin_ns > l->spin_max_ns / SPIN_SHRINK)
		l->spin_ns /= 2;
	return false;
}

/* Until when the loop may sleep; 0: not at all. */
static uint64_t loop_sleep_until(struct mc_evloop *l)
{
	bool work;

	mc_mutex_lock(&l->lock);
	work = l->head || atomic_load(&l->stop);
	l->sleeping = !work;
	mc_mutex_unlock(&l->lock);
	if (work)
		return 0;
	return l->timers ? l->timers->due_ns : MC_NEVER;
}

void mc_evloop_gather(struct mc_evloop *l, unsigned us)
{
	l->gather_ns = us * 1000ull;
}

static void loop_wait(struct mc_evloop *l)
{
	uint64_t from, until;

	l->batch_n = 0;
	if (l->gather_ns)
		mc_sleep_ns(l->gather_ns);
	if (l->spin_ns && loop_spin(l))
		return;
	from = l->spin_max_ns ? mc_now_ns() : 0;
	until = loop_sleep_until(l);
	loop_collect(l, until);
	if (until) {
		mc_mutex_lock(&l->lock);
		l->sleeping = false;
		mc_mutex_unlock(&l->lock);
	}
	if (l->spin_max_ns && mc_now_ns() - from < l->spin_max_ns)
		l->spin_ns = l->spin_max_ns;
}

/* Accept no more work if none is left; false: there is more work to run. */
static bool loop_close_posts(struct mc_evloop *l)
{
	MC_LOCKED(&l->lock);
	l->closed = !l->head;
	return l->closed;
}

static void *loop_main(void *arg)
{
	struct mc_evloop *l = arg;

	current = l;
	mc_thread_prompt();
	while (!atomic_load(&l->stop)) {
		loop_wait(l);
		loop_dispatch(l);
		loop_run_posted(l);
		loop_fire_timers(l);
	}
	do {
		loop_run_posted(l);
	} while (!loop_close_posts(l));
	current = NULL;
	return NULL;
}

int mc_evloop_new_on(struct mc_poller *poller, const char *name, unsigned spin_us, struct mc_evloop **ret)
{
	struct mc_evloop *l = calloc(1, sizeof(*l));

	if (!l) {
		poller->ops->close(poller);
		return mc_fail(-ENOMEM, "no memory for loop %s", name);
	}
	l->poller = poller;
	snprintf(l->name, sizeof(l->name), "%s", name);
	mc_mutex_init(&l->lock);
	l->tail = &l->head;
	/* Not with one processor: the peer could not run while this thread spins. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		l->spin_ns = l->spin_max_ns = spin_us * 1000ull;
	*ret = l;
	return 0;
}

int mc_evloop_new(const char *name, unsigned spin_us, struct mc_evloop **ret)
{
	struct mc_poller *poller;
	int r = mc_poller_new(&poller);

	if (r < 0)
		return mc_fail(r, "cannot make loop %s: %s", name, strdupa(mc_err_detail(r)));
	return mc_evloop_new_on(poller, name, spin_us, ret);
}

int mc_evloop_start(struct mc_evloop *l)
{
	int r = mc_thread_start(&l->thread, l->name, loop_main, l);

	l->started = r == 0;
	return r;
}

void mc_evloop_free(struct mc_evloop *l)
{
	if (!l)
		return;
	if (l->started) {
		atomic_store(&l->stop, true);
		l->poller->ops->wake(l->poller);
		mc_thread_join(l->thread);
	}
	while (l->head) {
		struct work *w = l->head;

		l->head = w->next;
		if (w->allocated)
			free(w);
	}
	l->poller->ops->close(l->poller);
	mc_mutex_destroy(&l->lock);
	free(l);
}
