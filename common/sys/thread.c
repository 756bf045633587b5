/* SPDX-License-Identifier: Apache-2.0
 * thread.c - start of threads, stop flags, signals of the process. */
#include <config.h>

#include "common/sys/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"

/* The kernel's minimum slice. */
#define PROMPT_NS (100 * 1000)
#define BACKGROUND_NICE 10
/* In a simulated process, how long a thread yields if no other thread can run. */
#define YIELD_NS 10000

struct birth {
	void *(*fn)(void *arg);
	void *arg;
	char name[16];
};

static void *thread_main(void *p)
{
	struct birth b = *(struct birth *)p;

	free(p);
	pthread_setname_np(pthread_self(), b.name);
	return b.fn(b.arg);
}

static int thread_start_kernel(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	/* Signals of the thread's own faults must reach their handlers (SIGBUS in a truncated mapped file). */
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
	sigset_t block, old;
	struct birth *b;
	int r;

	b = malloc(sizeof(*b));
	if (!b)
		return mc_fail(-ENOMEM, "no memory to start thread %s", name);
	b->fn = fn;
	b->arg = arg;
	strncpy(b->name, name, sizeof(b->name) - 1);
	b->name[sizeof(b->name) - 1] = '\0';

	sigfillset(&block);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&block, faults[i]);
	pthread_sigmask(SIG_SETMASK, &block, &old);
	r = pthread_create(ret, NULL, thread_main, b);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		free(b);
		return mc_fail(-r, "cannot start thread %s: %s", name, mc_strerror(r));
	}
	return 0;
}

int mc_thread_start(struct mc_thread *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	struct mc_world *w = mc_world();

	ret->simulated = NULL;
	return w ? w->ops->thread_start(w, name, fn, arg, &ret->simulated) :
		   thread_start_kernel(&ret->id, name, fn, arg);
}

void mc_thread_join(struct mc_thread t)
{
	struct mc_world *w = mc_world();

	if (t.simulated)
		w->ops->thread_join(w, t.simulated);
	else
		pthread_join(t.id, NULL);
}

void mc_thread_detach(struct mc_thread t)
{
	struct mc_world *w = mc_world();

	if (t.simulated)
		w->ops->thread_detach(w, t.simulated);
	else
		pthread_detach(t.id);
}

struct mc_thread mc_thread_self(void)
{
	struct mc_world *w = mc_world();

	return (struct mc_thread){ .id = pthread_self(), .simulated = w ? w->ops->thread_self(w) : NULL };
}

bool mc_thread_equal(struct mc_thread a, struct mc_thread b)
{
	return a.simulated == b.simulated && (a.simulated || pthread_equal(a.id, b.id));
}

void mc_thread_yield(void)
{
	struct mc_world *w = mc_world();

	if (w)
		w->ops->block(w, NULL, mc_now_ns() + YIELD_NS);
	else
		sched_yield();
}

/* As in linux/sched/types.h, which conflicts with the C library's headers. */
struct sched_wish {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

void mc_thread_background(void)
{
	/* On Linux the priority is the thread's own. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), BACKGROUND_NICE);
}

void mc_thread_prompt(void)
{
	struct sched_wish w;

	/* Only the slice is changed.  A thread with another policy was given it on purpose. */
	if (syscall(SYS_sched_getattr, 0, &w, sizeof(w), 0) < 0 || w.policy != SCHED_OTHER)
		return;
	w.size = sizeof(w);
	w.runtime = PROMPT_NS;
	(void)syscall(SYS_sched_setattr, 0, &w, 0);
}

int mc_stop_init(struct mc_stop *s)
{
	int r;

	memset(s, 0, sizeof(*s));
	r = mc_cond_init(&s->cond);
	return r < 0 ? r : mc_mutex_init(&s->lock);
}

void mc_stop_done(struct mc_stop *s)
{
	mc_cond_destroy(&s->cond);
	mc_mutex_destroy(&s->lock);
}

int mc_stop_start(struct mc_stop *s, struct mc_thread *ret, const char *name, void *(*fn)(void *arg), void *arg)
{
	int r;

	r = mc_stop_init(s);
	if (r < 0)
		return r;
	r = mc_thread_start(ret, name, fn, arg);
	if (r < 0)
		mc_stop_done(s);
	return r;
}

void mc_stop_join(struct mc_stop *s, struct mc_thread thread)
{
	mc_stop_set(s);
	mc_thread_join(thread);
	mc_stop_done(s);
}

void mc_stop_set(struct mc_stop *s)
{
	mc_mutex_lock(&s->lock);
	s->stopping = true;
	mc_cond_broadcast(&s->cond);
	mc_mutex_unlock(&s->lock);
}

void mc_stop_kick(struct mc_stop *s)
{
	mc_mutex_lock(&s->lock);
	s->kicked = true;
	mc_cond_signal(&s->cond);
	mc_mutex_unlock(&s->lock);
}

bool mc_stop_wait(struct mc_stop *s, uint64_t ms)
{
	uint64_t due = mc_deadline_ms(ms < INT64_MAX ? (int64_t)ms : -1);
	bool stopping;

	mc_mutex_lock(&s->lock);
	while (!s->stopping && !s->kicked)
		if (mc_cond_wait_until(&s->cond, &s->lock, due) == -ETIMEDOUT)
			break;
	s->kicked = false;
	stopping = s->stopping;
	mc_mutex_unlock(&s->lock);
	return stopping;
}

static void handled_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
}

void mc_signals_block(void)
{
	sigset_t set;

	handled_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static const char *ending_program;

static void end_at_once(int sig)
{
	static const char text[] = ": ended by a signal during the start\n";
	struct iovec iov[2] = {
		{ (char *)(uintptr_t)ending_program, strlen(ending_program) },
		{ (char *)(uintptr_t)text, sizeof(text) - 1 },
	};
	ssize_t n = writev(STDERR_FILENO, iov, 2);

	(void)n;
	_exit(128 + sig);
}

void mc_signals_end_at_once(const char *program)
{
	struct sigaction end = { .sa_handler = end_at_once };
	sigset_t set;

	ending_program = program;
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void end_quietly(int sig)
{
	_exit(0);
}

void mc_signals_end_within(uint64_t ms)
{
	struct sigaction end = { .sa_handler = end_quietly };
	struct itimerval timer = {
		.it_value = { .tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000) },
	};

	sigaction(SIGALRM, &end, NULL);
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

int mc_signals_wait_ms(uint64_t ms)
{
	struct timespec wait = mc_timespec(ms * MC_NS_PER_MS);
	sigset_t set;
	int sig;

	handled_signals(&set);
	sig = sigtimedwait(&set, NULL, &wait);
	return sig < 0 ? 0 : sig;
}

int mc_signals_wait(void)
{
	sigset_t set;
	int sig;

	handled_signals(&set);
	while (sigwait(&set, &sig))
		;
	return sig;
}
