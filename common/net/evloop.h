/* SPDX-License-Identifier: Apache-2.0
 * evloop.h - a loop over a poller, with timers and posted work, one thread each.  Used by servers and by
 * engine I/O threads.  Functions marked "loop" may only be called on the loop's own thread; the
 * others from any thread.  Before mc_evloop_start() the owner may call all of them. */
#ifndef MC_EVLOOP_H
#define MC_EVLOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/net/poller.h"

struct mc_evloop;

/* A timer, embedded in the owner's struct; initially zero except @fire. */
struct mc_evtimer {
	uint64_t due_ns;	/* 0: not armed */
	void (*fire)(struct mc_evtimer *t);
	struct mc_evtimer *child, *prev, *next;	/* links of the heap; owned by evloop.c */
};

/* @name is the thread's name (15 bytes).  @spin_us: how long the thread polls before it sleeps. */
int mc_evloop_new(const char *name, unsigned spin_us, struct mc_evloop **ret);
/* The same with another poller than the kernel's.  The loop owns @poller from now on, also on failure. */
int mc_evloop_new_on(struct mc_poller *poller, const char *name, unsigned spin_us, struct mc_evloop **ret);
int mc_evloop_start(struct mc_evloop *l);	/* start its thread */
/* loop: from now on sleep @us before each poll, so that events gather; 0: poll at once.  For many
 * peers with small requests that can wait: a wake-up per request costs more than the request. */
void mc_evloop_gather(struct mc_evloop *l, unsigned us);
/* Stop and join the thread, then free.  Work that was posted before runs first; later posts fail
 * with -ESHUTDOWN.  Work of a loop that was never started is dropped.  Watched entries are not
 * closed.  NULL is fine. */
void mc_evloop_free(struct mc_evloop *l);

int mc_evloop_add(struct mc_evloop *l, struct mc_evfd *e, uint32_t events);	/* any thread */
int mc_evloop_mod(struct mc_evloop *l, struct mc_evfd *e, uint32_t events);	/* loop */
/* loop: after return @e->ready is not called any more. */
void mc_evloop_del(struct mc_evloop *l, struct mc_evfd *e);

/* loop: (re)arm at an absolute time (MC_NEVER: disarm), or disarm.  A timer is disarmed before
 * @fire is called, which may free it. */
void mc_evtimer_arm(struct mc_evloop *l, struct mc_evtimer *t, uint64_t due_ns);
void mc_evtimer_disarm(struct mc_evloop *l, struct mc_evtimer *t);

/* any thread: wake the loop to run @fn(@arg) once.  -ENOMEM. */
int mc_evloop_post(struct mc_evloop *l, void (*fn)(void *arg), void *arg);
/* any thread except the loop's (-EDEADLK): the same on a started loop, and wait until @fn has returned. */
int mc_evloop_call(struct mc_evloop *l, void (*fn)(void *arg), void *arg);
bool mc_evloop_here(const struct mc_evloop *l);	/* is this the loop's thread? */

#endif
