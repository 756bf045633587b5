/* SPDX-License-Identifier: Apache-2.0
 * candidates.h - the segments on which a put may find an object to evict, one set for each level of eviction.
 *
 * A full pool has many segments, and most of them may have nothing that a mild level permits to evict: all objects
 * have leases, are recent, or are read.  A search that finds nothing on a segment removes it from the set of its
 * level, so the next put does not search there again.  The segment returns to the set when an object is listed for
 * eviction there, when the segment becomes usable again, or at the tick at which the policy expects a change (a lease
 * ends, an object is no longer recent).
 *
 * Threads: the caller of every function that names a segment holds that segment's lock, except for mcm_candidates_has()
 * and mcm_candidates_next(), whose answers are hints, and mcm_candidates_turn(). */
#ifndef MCM_CANDIDATES_H
#define MCM_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#define MCM_CANDIDATE_SETS 16u		/* sets of flags of a level, except KEEP_NEWEST */
#ifdef MC_FUZZING
#define MCM_CANDIDATES_MAX 4096u	/* see MCM_SEGMENTS_MAX */
#else
#define MCM_CANDIDATES_MAX 65536u	/* segments */
#endif
#define MCM_CANDIDATES_WORDS (MCM_CANDIDATES_MAX / 64)
#define MCM_NO_SEGMENT UINT32_MAX
#define MCM_TICK_NEVER UINT32_MAX

struct mcm_candidates {
	/* atomic: the members, and which words of those have any */
	uint64_t member[MCM_CANDIDATE_SETS][MCM_CANDIDATES_WORDS];
	uint64_t any[MCM_CANDIDATE_SETS][MCM_CANDIDATES_WORDS / 64];
	/* atomic: tick at which a segment returns to the set, 0: no tick; and the first of these ticks */
	uint32_t retry[MCM_CANDIDATE_SETS][MCM_CANDIDATES_MAX];
	uint32_t due[MCM_CANDIDATE_SETS];
	uint32_t top;			/* atomic: segments ever known */
	uint32_t turned;		/* atomic: tick of the last mcm_candidates_turn() */
	/* guarded by the segment's lock: the sets that the segment has perhaps left, a bit each */
	uint16_t left[MCM_CANDIDATES_MAX];
};

/* NULL: no memory. */
struct mcm_candidates *mcm_candidates_new(void);
void mcm_candidates_free(struct mcm_candidates *c);

/* An object of the segment may be evictable at any level: one came back, or the segment is usable again. */
void mcm_candidates_all(struct mcm_candidates *c, uint16_t segment);
/* The segment takes no objects, or has no evictable ones, until mcm_candidates_all(). */
void mcm_candidates_none(struct mcm_candidates *c, uint16_t segment);
/* An object was just put: it is recent until tick @old. */
void mcm_candidates_put(struct mcm_candidates *c, uint16_t segment, uint32_t old);
/* A search at @level found nothing.  It may find something from tick @retry on (MCM_TICK_NEVER: not by time). */
void mcm_candidates_leave(struct mcm_candidates *c, uint16_t segment, unsigned level, uint32_t retry);

/* Return segments to the sets whose tick has come.  Cheap when nothing is due, and once per tick. */
void mcm_candidates_turn(struct mcm_candidates *c, uint32_t now);

bool mcm_candidates_has(const struct mcm_candidates *c, uint16_t segment, unsigned level);
/* The first member with the number @from or more; MCM_NO_SEGMENT: there is none. */
uint32_t mcm_candidates_next(const struct mcm_candidates *c, unsigned level, uint32_t from);

#endif
