/* SPDX-License-Identifier: Apache-2.0
 * model.h - when objects of a class are used again, and the value of keeping one.
 *
 * Reuse times are counted in logarithmic bins of the age, the time since an object's last use.  For each bin the
 * model counts the objects that reached it, and those that were used in it: a life table, which needs no
 * assumption about objects that were not used again yet.  The value of an object is
 *
 *	max over t:  P(used again within t) / E[time until it is used, at most t]
 *
 * given its age: the rate of hits for the time during which it occupies memory (the Gittins index; Aalto et al.,
 * Queueing Systems 2009).  Evicting the lowest value per byte is the best order when classes are known.
 *
 * Ages are in steps of the clock of learn.h.  The counts belong to the lock of the caller; values are read by other
 * threads without it. */
#ifndef MCM_MODEL_H
#define MCM_MODEL_H

#include <stdint.h>

#define MCM_CLASSES 65u
#define MCM_AGE_BINS 56u	/* age 0, then two per power of two; the last one has no end */

struct mcm_model {
	float reached[MCM_CLASSES][MCM_AGE_BINS];	/* objects that reached the age */
	float used[MCM_CLASSES][MCM_AGE_BINS];		/* objects used again at it */
	float value[MCM_CLASSES][MCM_AGE_BINS];		/* atomic: hits per step of the clock */
};

void mcm_model_init(struct mcm_model *md);

/* The age of an object at @now; the clock wraps.  It may have been used since the caller read the clock. */
static inline uint32_t mcm_model_age(uint32_t now, uint32_t last)
{
	return now - last > UINT32_MAX - 65536 ? 0 : now - last;
}

unsigned mcm_model_bin(uint32_t age);
/* Compute the values from the counts, and reduce the counts a little, so that old observations are forgotten. */
void mcm_model_learn(struct mcm_model *md);
/* Interpolated between bins, so that of two objects of one class the order by age is kept within a bin. */
float mcm_model_value(const struct mcm_model *md, unsigned class, uint32_t age);

#endif
