/* SPDX-License-Identifier: Apache-2.0
 * late.h - calls that may hang in the kernel, as those of a network filesystem whose server is silent: each runs in a
 * thread of its own, so that its caller can leave it. */
#ifndef MC_SYS_LATE_H
#define MC_SYS_LATE_H

#include <stdbool.h>
#include <stdint.h>

struct mc_late_state;

/* One such call, embedded in memory of the caller. */
struct mc_late {
	const char *name;		/* name of the thread */
	/* The call, in that thread; its result, but not -EINPROGRESS.  It uses nothing that the caller may free. */
	int (*run)(struct mc_late *l);
	/* The caller has left it, and run has returned: undo its effect, and free the memory.  In the same thread. */
	void (*drop)(struct mc_late *l);
	struct mc_late_state *state;	/* filled in */
};

/* Calls of this process that have missed a deadline and still run, at most. */
#define MC_LATE_MAX 16u

/* Begin the call.  -MC_EUNAVAILABLE: MC_LATE_MAX others hang; -ENOMEM, -EAGAIN. */
int mc_late_start(struct mc_late *l);
/* Wait for its end until @deadline (0: do not wait).  Its result, with its detail: then the call is over.
 * -EINPROGRESS: it runs on; wait again, or leave it. */
int mc_late_wait(struct mc_late *l, uint64_t deadline);
/* Do not wait any more: the memory is not the caller's any more. */
void mc_late_leave(struct mc_late *l);

#endif
