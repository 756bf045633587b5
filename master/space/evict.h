/* SPDX-License-Identifier: Apache-2.0
 * evict.h - making room.
 *
 * Victims are chosen under the segment's lock and removed under their shards' locks, one after the
 * other, after a second look: what was read, pinned, renamed or removed meanwhile is left alone. */
#ifndef MCM_EVICT_H
#define MCM_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "master/space/evict_policy.h"
#include "master/index/object.h"
#include "master/space/segment.h"

struct mcm;

/* When which generations were given out, noted now and then by who evicts: a put that took long is as new
 * as its commit, however old its generation is.  Relaxed atomics; a sample that is half there is a guess
 * that is a little off. */
#define MCM_PUT_SAMPLES 16u
struct mcm_put_samples {
	uint32_t last;			/* sample, counted on */
	uint32_t wall_ms[MCM_PUT_SAMPLES];	/* ms, low bits */
	uint64_t generation[MCM_PUT_SAMPLES];
};

/* How long a put makes room before it says MCP_AGAIN, so that others of its thread are served. */
struct mcm_slice {
	uint64_t end_ns;		/* mc_now_ns(), 0: until there is room */
	unsigned segment, level;	/* 1 + the one in which the put's last slice ended; 0: none did */
};

/* @sl: NULL is one without an end. */
static inline bool mcm_slice_over(const struct mcm_slice *sl)
{
	return sl && sl->end_ns && mc_now_ns() >= sl->end_ns;
}

/* Does this one go on where the last one ended? */
static inline bool mcm_slice_continues(const struct mcm_slice *sl, const struct mcm_segment *s, unsigned level)
{
	return sl && sl->segment == s->index + 1u && sl->level == level;
}

/* No lock held for any of these but mcm_evict_relist(). */

/* A range of @len bytes from @s, evicting what @level allows: first about as many bytes as are wanted
 * in the policy's order, then, when free space lies scattered, neighbours.  -MC_ENOSPACE when even
 * everything that the level allows leaves no range long enough; -ENOMEM; MCP_AGAIN when the slice is over: what
 * has gone has gone, and most often the largest hole grows from slice to slice. */
int mcm_make_room(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  const struct mcm_slice *sl, uint32_t *ret_range);

/* Remove proposed victims; bytes freed.  Those that must stay go back on the lists. */
uint64_t mcm_evict_victims(struct mcm *m, struct mcm_segment *s, const struct mcm_victim *v,
			   unsigned n, unsigned level);

/* Evict a proposed victim with all of its copies (node 0: no policy has proposed it), and the group that it is
 * in.  The bytes of what has gone by now times the copies, or 0: then it goes back on the lists. */
uint64_t mcm_evict_object(struct mcm *m, const struct mcm_victim *v, unsigned level);
/* The same for a member of a group that is going already; it stays on its lists. */
uint64_t mcm_evict_member(struct mcm *m, const struct mcm_victim *v, unsigned level);

/* Put a range that is on no list, and whose owner still is @slot, back on one.  The owner's shard is
 * locked. */
void mcm_evict_relist(struct mcm *m, struct mcm_segment *s, uint32_t range, uint32_t slot);

/* Empty a run of neighbouring ranges that together hold @len bytes (evict_run.c) and take it.
 * -EAGAIN: somebody else got it, or an object of the run was pinned meanwhile.  -MC_ENOSPACE: there is
 * no such run.  MCP_AGAIN: the slice is over, and a part of the run is empty. */
int mcm_evict_run(struct mcm *m, struct mcm_segment *s, uint64_t len, unsigned level,
		  const struct mcm_slice *sl, uint32_t *ret_range);

/* The levels at which room is made one after the other, the mildest first; how many. */
#define MCM_EVICT_STEPS 4
unsigned mcm_evict_levels(const struct mcm *m, unsigned ret_level[MCM_EVICT_STEPS]);

/* Count a put that begins for --max_objects, until mcm_count_leave(); objects count for themselves.  When there are too
 * many, others are evicted (evict_count.c).  -MC_ENOSPACE when none may go. */
int mcm_count_admit(struct mcm *m);
void mcm_count_leave(struct mcm *m);

/* The view for choosing victims of a segment.  New is the last eighth of what was put, what was committed
 * since that began to be put, and what was committed less than MCM_RECENT_MIN_MS ago. */
struct mcm_evict_view mcm_evict_view_of(struct mcm *m, struct mcm_segment *s);
/* Does any exist's promise stand?  Then what was just put waits with MCM_EVICT_KEEP_RECENT. */
bool mcm_promise_leases_active(const struct mcm *m);

/* Bring every segment below its watermark; drop the objects of unmounted segments.  True: there is
 * more to do. */
bool mcm_evict_background(struct mcm *m);
/* Wake the evictor when @s is above the watermark. */
void mcm_evict_kick(struct mcm *m, const struct mcm_segment *s);

#endif
