/* SPDX-License-Identifier: Apache-2.0
 * thread.h - threads with names, timed waits, stop flags, signals. */
#ifndef MC_THREAD_H
#define MC_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Start a thread with the given name (15 bytes are shown).  All signals but those of its own faults
 * (SIGSEGV, SIGBUS...)  are blocked in it, because the process handles them in one place.  0 or
 * -errno. */
int mc_thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg);

/* Ask the scheduler to run this thread soon and briefly rather than late and long: for threads that
 * serve others.  Its share of the processor stays the same.  No effect on kernels before 6.12. */
void mc_thread_prompt(void);

/* Give this thread a small share of the processor when others want it: for work in the background. */
void mc_thread_background(void);

/* A condition with timed waits on the monotonic clock.  0, or -errno, which no C library of Linux returns. */
int mc_cond_init(pthread_cond_t *cond);

/* Wait for @cond, of mc_cond_init(), with @m locked.  0, or -ETIMEDOUT at @deadline (mc_now_ns() scale). */
int mc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *m, uint64_t deadline);

/* Lock @m by @deadline (mc_now_ns() scale).  0, or -ETIMEDOUT: it is not locked. */
int mc_lock_until(pthread_mutex_t *m, uint64_t deadline);

/* A stop flag: worker threads sleep on it, shutdown sets it. */
struct mc_stop {
	pthread_mutex_t lock;
	pthread_cond_t cond;	/* monotonic clock */
	bool stopping;
	bool kicked;
};
int mc_stop_init(struct mc_stop *s);
void mc_stop_done(struct mc_stop *s);
/* mc_stop_init() and start a thread that runs until mc_stop_wait() is true.  On failure neither is left. */
int mc_stop_start(struct mc_stop *s, pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg);
/* Stop such a thread, wait for its end, and mc_stop_done(). */
void mc_stop_join(struct mc_stop *s, pthread_t thread);
void mc_stop_set(struct mc_stop *s);
/* Wake one mc_stop_wait() early without stopping. */
void mc_stop_kick(struct mc_stop *s);
/* Sleep up to @ms, or until kicked; true: the thread has to end. */
bool mc_stop_wait(struct mc_stop *s, uint64_t ms);

/* mc_signals_wait() waits for SIGINT, SIGTERM, SIGHUP or SIGUSR1 and returns its number.  main()
 * calls mc_signals_block() before it starts a thread; this also ignores SIGPIPE. */
void mc_signals_block(void);
/* Until the next mc_signals_block(), SIGINT and SIGTERM end the process at once, with status 128 + signal and a line
 * on standard error: for a start that may wait long and has nothing to clean up yet.  A handler, because the default
 * action does not exist for process 1 of a container.  Called by main() before it starts a thread; @program: static. */
void mc_signals_end_at_once(const char *program);
int mc_signals_wait(void);
/* At most @ms milliseconds; 0: none came. */
int mc_signals_wait_ms(uint64_t ms);
/* End the process with status 0 after @ms, unless it ends earlier: for an orderly end that may wait for something
 * that is not worth waiting for.  Uses SIGALRM. */
void mc_signals_end_within(uint64_t ms);

#endif
