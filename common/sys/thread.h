/* SPDX-License-Identifier: Apache-2.0
 * thread.h - threads with names, stop flags, signals. */
#ifndef MC_THREAD_H
#define MC_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

/* A handle of a thread; may be copied. */
struct mc_thread {
	pthread_t id;
	void *simulated;	/* the thread of a simulated process (world.h), else NULL */
};

/* Start a thread with the given name (15 bytes are shown).  All signals but those of its own faults
 * (SIGSEGV, SIGBUS...)  are blocked in it, because the process handles them in one place.  0 or
 * -errno. */
int mc_thread_start(struct mc_thread *ret, const char *name, void *(*fn)(void *arg), void *arg);

/* Wait for the end of @t, or let it free itself at its end.  Each thread needs one of them once. */
void mc_thread_join(struct mc_thread t);
void mc_thread_detach(struct mc_thread t);

struct mc_thread mc_thread_self(void);
bool mc_thread_equal(struct mc_thread a, struct mc_thread b);
/* Let other threads that are ready use this processor first. */
void mc_thread_yield(void);

/* Ask the scheduler to run this thread soon and briefly rather than late and long: for threads that
 * serve others.  Its share of the processor stays the same.  No effect on kernels before 6.12. */
void mc_thread_prompt(void);

/* Give this thread a small share of the processor when others want it: for work in the background. */
void mc_thread_background(void);

/* A stop flag: worker threads sleep on it, shutdown sets it. */
struct mc_stop {
	struct mc_mutex lock;
	struct mc_cond cond;
	bool stopping;
	bool kicked;
};
int mc_stop_init(struct mc_stop *s);
void mc_stop_done(struct mc_stop *s);
/* mc_stop_init() and start a thread that runs until mc_stop_wait() is true.  On failure neither is left. */
int mc_stop_start(struct mc_stop *s, struct mc_thread *ret, const char *name, void *(*fn)(void *arg), void *arg);
/* Stop such a thread, wait for its end, and mc_stop_done(). */
void mc_stop_join(struct mc_stop *s, struct mc_thread thread);
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
