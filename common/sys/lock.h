/* SPDX-License-Identifier: Apache-2.0
 * lock.h - mutexes, conditions and reader-writer locks, with waits that end at a deadline on the mc_now_ns() scale.
 *
 * Locking calls the C library through a pointer, which costs no more than a direct call of a shared library.  Timed
 * waits of conditions and locks follow the fake clock of a test. */
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
#define MC_COND_INIT { PTHREAD_COND_INITIALIZER }
#define MC_RWLOCK_INIT { PTHREAD_RWLOCK_INITIALIZER }

/* The initialisers return 0 or -errno; the C library of Linux returns no error for them. */
static inline int mc_mutex_init(struct mc_mutex *m)
{
	return -pthread_mutex_init(&m->m, NULL);
}

static inline void mc_mutex_destroy(struct mc_mutex *m)
{
	pthread_mutex_destroy(&m->m);
}

/* The calls that may wait: the C library's, unless there are simulated processes (mc_world_simulate()).  Hidden, so
 * that a call needs no other instruction. */
struct mc_lock_calls {
	int (*mutex_lock)(pthread_mutex_t *m);
	int (*rdlock)(pthread_rwlock_t *l);
	int (*wrlock)(pthread_rwlock_t *l);
};
extern struct mc_lock_calls mc_lock_calls __attribute__((visibility("hidden")));

static inline void mc_mutex_lock(struct mc_mutex *m)
{
	mc_lock_calls.mutex_lock(&m->m);
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

static inline int mc_cond_init(struct mc_cond *c)
{
	return -pthread_cond_init(&c->c, NULL);
}

static inline void mc_cond_destroy(struct mc_cond *c)
{
	pthread_cond_destroy(&c->c);
}

void mc_cond_wait(struct mc_cond *c, struct mc_mutex *m);
/* 0, or -ETIMEDOUT at @deadline. */
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

static inline void mc_rwlock_rdlock(struct mc_rwlock *l)
{
	mc_lock_calls.rdlock(&l->l);
}

static inline void mc_rwlock_wrlock(struct mc_rwlock *l)
{
	mc_lock_calls.wrlock(&l->l);
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
