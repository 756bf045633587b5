/* SPDX-License-Identifier: Apache-2.0
 * fault.h - named fault points, switched by tests.
 *
 *	MC_FAULT_POINT("client.put.before_end")	may delay, kill or stop the process
 *	r = mc_fault("engine.tcp.send")		0, or the negative errno to fail with
 *
 * Switched on by the environment variable MC_FAULTS or by mc_fault_set():
 * "point=action[,point=action...]", action one of kill, stop, delay:MS, error:ERRNO, each
 * optionally followed by @N (only the N-th hit, from 1) or %P (each hit with P percent).  Off: one
 * predictable branch on a global.  A point may be named several times; all that apply act.  Points
 * are found by name only: a test makes sure with mc_fault_hits() that its point was passed.  ERRNO
 * is a name (EIO, MC_ENOSPACE) or a number.  A malformed MC_FAULTS ends the process (status 2). */
#ifndef MC_FAULT_H
#define MC_FAULT_H

#include <stdbool.h>

extern bool mc_faults_on;

int mc_fault_slow(const char *point);

static inline int mc_fault(const char *point)
{
	return __builtin_expect(__atomic_load_n(&mc_faults_on, __ATOMIC_RELAXED), 0) ?
		mc_fault_slow(point) : 0;
}

#define MC_FAULT_POINT(point) ((void)mc_fault(point))

/* Replace the whole set; NULL or "" switches everything off.  -EINVAL names the bad part. */
int mc_fault_set(const char *spec);
/* Hits of a point since it was set; -ENOENT when it is not in the set. */
long mc_fault_hits(const char *point);

#endif
