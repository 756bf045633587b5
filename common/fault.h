/* SPDX-License-Identifier: Apache-2.0
 * fault.h - named fault points, which tests switch on.
 *
 *	MC_FAULT_POINT("client.put.before_end")	may delay, kill or stop the process
 *	r = mc_fault("engine.tcp.send")		0, or the negative errno to fail with
 *
 * The environment variable MC_FAULTS or mc_fault_set() switches them on:
 * "point=action[,point=action...]".  An action is kill, stop, delay:MS or error:ERRNO, optionally
 * followed by @N (only the N-th hit, from 1), %P (each hit with P percent) or ?FILE (each hit while
 * the file exists).  ERRNO is a name (EIO, MC_ENOSPACE) or a number.  A point may be named several
 * times; all actions that apply are executed.  Names are not checked: a test verifies with
 * mc_fault_hits() that its point was passed.
 * A malformed MC_FAULTS ends the process (status 2).  While off, a point costs one predictable
 * branch on a global. */
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
/* Hits of a point since it was switched on; -ENOENT when it is not in the set. */
long mc_fault_hits(const char *point);

#endif
