/* SPDX-License-Identifier: Apache-2.0
 * lock.c - waiting for locks and conditions. */
#include <config.h>

#include "common/sys/lock.h"

#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "common/sys/sys_i.h"

/* Let another thread of the simulated process run, and try again: an unlock does not call the simulator. */
static void lock_yield(struct mc_world *w)
{
	w->ops->block(w, NULL, MC_NEVER);
}

static int simulated_mutex_lock(pthread_mutex_t *m)
{
	struct mc_world *w = mc_world();

	if (!w)
		return pthread_mutex_lock(m);
	while (pthread_mutex_trylock(m))
		lock_yield(w);
	return 0;
}

static int simulated_rdlock(pthread_rwlock_t *l)
{
	struct mc_world *w = mc_world();

	if (!w)
		return pthread_rwlock_rdlock(l);
	while (pthread_rwlock_tryrdlock(l))
		lock_yield(w);
	return 0;
}

static int simulated_wrlock(pthread_rwlock_t *l)
{
	struct mc_world *w = mc_world();

	if (!w)
		return pthread_rwlock_wrlock(l);
	while (pthread_rwlock_trywrlock(l))
		lock_yield(w);
	return 0;
}

#define KERNEL_CALLS { pthread_mutex_lock, pthread_rwlock_rdlock, pthread_rwlock_wrlock }

struct mc_lock_calls mc_lock_calls = KERNEL_CALLS;

void mc_lock_simulate(bool on)
{
	static const struct mc_lock_calls kernel = KERNEL_CALLS,
		simulated = { simulated_mutex_lock, simulated_rdlock, simulated_wrlock };

	mc_lock_calls = on ? simulated : kernel;
}

int mc_rwlock_init_writers(struct mc_rwlock *l)
{
	pthread_rwlockattr_t attr;
	int r;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	r = pthread_rwlock_init(&l->l, &attr);
	pthread_rwlockattr_destroy(&attr);
	return -r;
}

void mc_cond_wait(struct mc_cond *c, struct mc_mutex *m)
{
	struct mc_world *w = mc_world();

	if (!w) {
		pthread_cond_wait(&c->c, &m->m);
		return;
	}
	/* No thread runs between the unlock and the wait, so no wake-up is lost. */
	mc_mutex_unlock(m);
	w->ops->block(w, c, MC_NEVER);
	mc_mutex_lock(m);
}

int mc_cond_wait_until(struct mc_cond *c, struct mc_mutex *m, uint64_t deadline)
{
	struct mc_world *w = mc_world();
	/* The wait of this thread that a step has ended early: its caller repeats it. */
	static __thread struct {
		const struct mc_cond *cond;
		struct mc_wait wait;
	} last;
	struct timespec until;
	bool more;

	if (w) {
		mc_mutex_unlock(m);
		w->ops->block(w, c, deadline);
		mc_mutex_lock(m);
		return mc_now_ns() >= deadline ? -ETIMEDOUT : 0;
	}
	if (last.cond != c || last.wait.deadline != deadline)
		mc_wait_begin(&last.wait, CLOCK_MONOTONIC, deadline);
	last.cond = NULL;
	if (!mc_wait_step(&last.wait, &until))
		return -ETIMEDOUT;
	if (!pthread_cond_clockwait(&c->c, &m->m, CLOCK_MONOTONIC, &until))
		return 0;
	/* The caller has to check its condition after each step: a signal between the end of the step and the lock of
	 * @m reached no waiter. */
	more = mc_wait_step(&last.wait, &until);
	if (more)
		last.cond = c;
	return more ? 0 : -ETIMEDOUT;
}

/* The thread sanitizer of gcc 12 does not support pthread_mutex_clocklock(). */
#ifdef __SANITIZE_THREAD__
#define LOCK_CLOCK CLOCK_REALTIME
#define lock_until(m, until) pthread_mutex_timedlock(m, until)
#else
#define LOCK_CLOCK CLOCK_MONOTONIC
#define lock_until(m, until) pthread_mutex_clocklock(m, LOCK_CLOCK, until)
#endif

int mc_mutex_lock_until(struct mc_mutex *m, uint64_t deadline)
{
	struct mc_world *w = mc_world();
	struct timespec until;
	struct mc_wait wait;

	if (pthread_mutex_trylock(&m->m) == 0)
		return 0;
	while (w && mc_now_ns() < deadline) {
		w->ops->block(w, NULL, deadline);
		if (pthread_mutex_trylock(&m->m) == 0)
			return 0;
	}
	if (w)
		return -ETIMEDOUT;
	mc_wait_begin(&wait, LOCK_CLOCK, deadline);
	while (mc_wait_step(&wait, &until))
		if (lock_until(&m->m, &until) == 0)
			return 0;
	return -ETIMEDOUT;
}
