/* SPDX-License-Identifier: Apache-2.0
 * lock.h - mutexes, conditions and reader-writer locks, with waits that end at a deadline on the mc_now_ns() scale.
 *
 * An uncontended lock costs one call of the C library.  Only a thread that has to wait looks for a simulated process
 * (world.h).  Timed waits of conditions and locks follow the fake clock of a test. */
#ifndef MC_SYS_LOCK_H
#define MC_SYS_LOCK_H

#include <pthread.h>
#include <stdint.h>

#include "common/sys/world.h"

struct mc_mutex {
	pthread_mutex_t m;
};

/* Waits may return early: callers check their condition again. */
struct mc_cond {
	pthread_cond_t c;
};

/* Waiting writers precede new readers (mc_rwlock_init_writers()), or not (mc_rwlock_init()). */
struct mc_rwlock {
	pthread_rwlock_t l;
};

#define MC_MUTEX_INIT { PTHREAD_MUTEX_INITIALIZER }
/* Without timed waits: its clock is not the monotonic one. */
#define MC_COND_INIT { PTHREAD_COND_INITIALIZER }
#define MC_RWLOCK_INIT { PTHREAD_RWLOCK_INITIALIZER }

/* The thread sanitizer records the order of locks only for calls that may wait. */
#ifdef __SANITIZE_THREAD__
#define MC_LOCK_TRY(call) 1
#else
#define MC_LOCK_TRY(call) (call)
#endif

/* The initialisers return 0 or -errno; the C library of Linux returns no error for them. */
static inline int mc_mutex_init(struct mc_mutex *m)
{
	return -pthread_mutex_init(&m->m, NULL);
}

static inline void mc_mutex_destroy(struct mc_mutex *m)
{
	pthread_mutex_destroy(&m->m);
}

void mc_mutex_wait(struct mc_mutex *m);		/* of mc_mutex_lock() */

static inline void mc_mutex_lock(struct mc_mutex *m)
{
	if (__builtin_expect(MC_LOCK_TRY(pthread_mutex_trylock(&m->m)), 0))
		mc_mutex_wait(m);
}

/* 0, or EBUSY. */
static inline int mc_mutex_trylock(struct mc_mutex *m)
{
	return pthread_mutex_trylock(&m->m);
}

static inline void mc_mutex_unlock(struct mc_mutex *m)
{
	pthread_mutex_unlock(&m->m);
}

/* Lock @m by @deadline.  0, or -ETIMEDOUT: it is not locked. */
int mc_mutex_lock_until(struct mc_mutex *m, uint64_t deadline);

int mc_cond_init(struct mc_cond *c);

static inline void mc_cond_destroy(struct mc_cond *c)
{
	pthread_cond_destroy(&c->c);
}

void mc_cond_wait(struct mc_cond *c, struct mc_mutex *m);
/* 0, or -ETIMEDOUT at @deadline.  @c is of mc_cond_init(). */
int mc_cond_wait_until(struct mc_cond *c, struct mc_mutex *m, uint64_t deadline);

static inline void mc_cond_signal(struct mc_cond *c)
{
	struct mc_world *w = mc_world();

	if (w)
		w->ops->wake(w, c);
	else
		pthread_cond_signal(&c->c);
}

static inline void mc_cond_broadcast(struct mc_cond *c)
{
	struct mc_world *w = mc_world();

	if (w)
		w->ops->wake(w, c);
	else
		pthread_cond_broadcast(&c->c);
}

static inline int mc_rwlock_init(struct mc_rwlock *l)
{
	return -pthread_rwlock_init(&l->l, NULL);
}

int mc_rwlock_init_writers(struct mc_rwlock *l);

static inline void mc_rwlock_destroy(struct mc_rwlock *l)
{
	pthread_rwlock_destroy(&l->l);
}

void mc_rwlock_wait_read(struct mc_rwlock *l);	/* of mc_rwlock_rdlock() */
void mc_rwlock_wait_write(struct mc_rwlock *l);	/* of mc_rwlock_wrlock() */

static inline void mc_rwlock_rdlock(struct mc_rwlock *l)
{
	if (__builtin_expect(MC_LOCK_TRY(pthread_rwlock_tryrdlock(&l->l)), 0))
		mc_rwlock_wait_read(l);
}

static inline void mc_rwlock_wrlock(struct mc_rwlock *l)
{
	if (__builtin_expect(MC_LOCK_TRY(pthread_rwlock_trywrlock(&l->l)), 0))
		mc_rwlock_wait_write(l);
}

/* 0, or an error number: the lock is not taken. */
static inline int mc_rwlock_tryrdlock(struct mc_rwlock *l)
{
	return pthread_rwlock_tryrdlock(&l->l);
}

static inline int mc_rwlock_trywrlock(struct mc_rwlock *l)
{
	return pthread_rwlock_trywrlock(&l->l);
}

static inline void mc_rwlock_unlock(struct mc_rwlock *l)
{
	pthread_rwlock_unlock(&l->l);
}

#endif
