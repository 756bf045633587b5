/* SPDX-License-Identifier: Apache-2.0
 * evict.h - eviction.
 *
 * Victims are selected under the segment's lock and removed one by one under their shards' locks,
 * after a second check: an object that was read, pinned, renamed or removed meanwhile stays. */
#ifndef MCM_EVICT_H
#define MCM_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/clock.h"
#include "master/space/evict_policy.h"
#include "master/index/object.h"
#include "master/space/segment.h"

struct mcm;

/* Samples of the time at which generations were given out, taken by evictors: a put that took long
 * is as new as its commit, even if its generation is old.  Relaxed atomics; a sample read
 * half-written makes an estimate a little wrong. */
#define MCM_PUT_SAMPLES 16u
struct mcm_put_samples {
	uint32_t last;			/* samples taken; the newest is at last % MCM_PUT_SAMPLES */
	uint32_t wall_ms[MCM_PUT_SAMPLES];	/* wall clock, ms, low bits */
	uint64_t generation[MCM_PUT_SAMPLES];
};

/* Limit of the time for which a put frees space before it answers MCP_AGAIN, so that its thread
 * serves other requests. */
struct mcm_slice {
	uint64_t end_ns;		/* mc_now_ns(), 0: no limit */
	/* the last slice ended while it evicted a run here (mcm_evict_run()); segment + 1, 0: it did not */
	unsigned segment, level;
	/* the last slice ended between two segments: level + 1 (0: it did not), the next number, and the first one */
	unsigned at, next, origin;
	/* the search met objects that stay until they are on a disk (offload.h) */
	bool awaits;
};

/* @sl: NULL is a slice without limit. */
static inline bool mcm_slice_over(const struct mcm_slice *sl)
{
	return sl && sl->end_ns && mc_now_ns() >= sl->end_ns;
}

/* Whether the put continues here, where its last slice ended. */
static inline bool mcm_slice_continues(const struct mcm_slice *sl, const struct mcm_segment *s, unsigned level)
{
	return sl && sl->segment == s->index + 1u && sl->level == level;
}

/* ---- no lock held, but for mcm_evict_relist() ---- */

/* Allocate a range of @len bytes on @s, evicting objects that @level allows: first about that many bytes
 * in the policy's order; then, when free space is fragmented, neighbouring ranges.  -MC_ENOSPACE when
 * evicting everything that the level allows makes no range long enough; -ENOMEM; MCP_AGAIN when the slice
 * is over: evicted objects stay evicted, and mostly the largest free range grows from slice to slice.
 * When nothing is evictable, the segment leaves the candidates of the level (candidates.h). */
int mcm_make_room(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  struct mcm_slice *sl, uint32_t *ret_range);

/* Remove selected victims; returns the bytes freed.  A victim that has to stay is put back on its list. */
uint64_t mcm_evict_victims(struct mcm *m, struct mcm_segment *s, const struct mcm_victim *v,
			   unsigned n, unsigned level);

/* Evict a victim with all of its copies (range 0: not selected by a policy), and its group; with @whole false only
 * from memory, if it is on a disk too.  *@freed grows by the bytes evicted so far times the copies in memory.
 * False: it stays and is back on its list. */
bool mcm_evict_object(struct mcm *m, const struct mcm_victim *v, unsigned level, bool whole, uint64_t *freed);
/* The same for a member of a group that is being evicted; if it stays, it is still on its list.  Returns the bytes. */
uint64_t mcm_evict_member(struct mcm *m, const struct mcm_victim *v, unsigned level);

/* Put a range that is on no list back on one, if @slot still owns it.  The owner's shard is locked. */
void mcm_evict_relist(struct mcm *m, struct mcm_segment *s, uint32_t range, uint32_t slot);

/* Evict a run of neighbouring ranges that together have @len bytes, and allocate it (evict_run.c).
 * -EAGAIN: another put took it, or an object of the run was pinned meanwhile.  -MC_ENOSPACE: there
 * is no such run.  MCP_AGAIN: the slice is over, and a part of the run is free; @sl names the segment. */
int mcm_evict_run(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  struct mcm_slice *sl, uint32_t *ret_range);

/* The levels of eviction (evict_level.c): a level is tried on every segment, and only if that frees
 * too little, the next one.  A recent object is one that was put lately (mcm_evict_view_of()); it
 * is protected only while promise leases are active, so that old leased objects are evicted before
 * new ones that had no chance to be read.
 *
 *	level	no lease	soft-pinned	leased	no lease, but recent
 *	  1	yes		-		-	-
 *	  2	yes		yes*		-	-
 *	  3	yes		yes*		yes	-
 *	  4	yes		yes*		yes	yes
 *
 * * with --allow_evict_soft_pinned_objects.  Pinned and hard-pinned objects are never evicted.  The
 * background evictor uses levels 1 and 2.  Returns the number of levels, without repetitions. */
#define MCM_EVICT_LEVELS 5
unsigned mcm_evict_levels(const struct mcm *m, unsigned ret_level[MCM_EVICT_LEVELS]);
/* The same for puts: from the third one on, also objects that wait to be copied to a disk
 * (MCM_EVICT_WAITING), if they need not stay for it (offload.h). */
unsigned mcm_evict_levels_put(const struct mcm *m, unsigned ret_level[MCM_EVICT_LEVELS]);

/* Count a put for --max_objects until mcm_count_leave(); committed objects are counted by the index.
 * If there are too many, others are evicted (evict_count.c).  -MC_ENOSPACE when none is evictable. */
int mcm_count_admit(struct mcm *m, uint32_t key_len);
void mcm_count_leave(struct mcm *m, uint32_t key_len);

/* The policies' view for selecting victims of a segment.  Recent are: the last eighth of the
 * objects put; those committed since the first of these was begun, which is limited to a second;
 * those committed less than MCM_RECENT_MIN_MS ago. */
struct mcm_evict_view mcm_evict_view_of(struct mcm *m, struct mcm_segment *s);
/* The same for objects without ranges. */
struct mcm_evict_view mcm_evict_view_empties(struct mcm *m);
/* Whether any promise lease may be active: then recent objects are protected (MCM_EVICT_KEEP_RECENT). */
bool mcm_promise_leases_active(const struct mcm *m);

/* Bring every segment below its watermark, and remove the objects of unmounted segments.  True:
 * there is more to do. */
bool mcm_evict_background(struct mcm *m);
/* Wake the background evictor when @s is above the watermark. */
void mcm_evict_kick(struct mcm *m, const struct mcm_segment *s);
/* Would an unfinished put of @more bytes bring the segment above its watermark? */
bool mcm_evict_begins_with(const struct mcm *m, const struct mcm_segment *s, uint64_t more);
/* Does the segment stay below its watermark with objects of @more bytes more? */
bool mcm_evict_stays_below(const struct mcm *m, const struct mcm_segment *s, uint64_t more);

#endif
