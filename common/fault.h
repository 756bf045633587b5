/* SPDX-License-Identifier: Apache-2.0
 * fault.h - named fault points, switched by tests.
 *
 *	MC_FAULT_POINT("client.put.before_end")	may delay, kill or stop the process
 *	r = mc_fault("engine.tcp.send")		0, or the negative errno to fail with
 *
 * Switched on by the environment variable MC_FAULTS or by mc_fault_set():
 * "point=action[,point=action...]", action one of kill, stop, delay:MS, error:ERRNO, each optionally
 * followed by @N (only the N-th hit, from 1) or %P (each hit with P percent).  Off: one predictable
 * branch on a global.  Points are found by name only, so a typing error in a test is an error:
 * mc_fault_hits() tells how often a point was passed. */
#ifndef MC_FAULT_H
#define MC_FAULT_H

#include <stdbool.h>

extern bool mc_faults_on;

int mc_fault_slow(const char *point);

static inline int mc_fault(const char *point)
{
	return __builtin_expect(mc_faults_on, 0) ? mc_fault_slow(point) : 0;
}

#define MC_FAULT_POINT(point) ((void)mc_fault(point))

/* Replace the whole set; NULL or "" switches everything off.  -EINVAL names the bad part. */
int mc_fault_set(const char *spec);
/* Hits of a point since it was set; -ENOENT when it is not in the set. */
long mc_fault_hits(const char *point);

#endif
