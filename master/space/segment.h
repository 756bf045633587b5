/* SPDX-License-Identifier: Apache-2.0
 * segment.h - memory that clients offer: one allocator and one set of eviction lists each.
 *
 * Segments are numbered (objects store 16 bits) and their structs are never freed while the master
 * runs, so a number can be followed without a lock; what is found is used under the segment's own lock
 * after a look at its state.  The table's lock guards who is mounted and what they are called.  Mounting and
 * looking one up take as long with very many segments as with a few. */
#ifndef MCM_SEGMENT_H
#define MCM_SEGMENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "master/memory/alloc.h"
#include "master/space/evict_policy.h"
#include "proto/msg.h"

#define MCM_SEGMENTS_MAX 65535u
#define MCM_NAME_MAX 255u	/* bytes of a segment's name, endpoint, protocol */

/* The states of enum mcp_segment_state, and none. */
#define MCM_SEG_NONE 0

struct mcm_segment {
	/* constant once the struct exists */
	uint16_t index;
	pthread_mutex_t lock;
	/* constant while mounted; changed under the table's lock for writing.  size and name_hash are
	 * also peeked at. */
	struct mcp_id id, client;
	uint64_t epoch, base, rkey, size;
	uint64_t name_hash;
	char name[MCM_NAME_MAX + 1], endpoint[MCM_NAME_MAX + 1], protocol[MCM_NAME_MAX + 1];
	uint64_t silent_ms;		/* since when; the master's clock */
	/* guarded by the table's lock */
	unsigned live_at;		/* its place among the mounted ones */
	uint16_t next_id, next_name;	/* chains of the table's buckets: number + 1, 0: the end */
	/* mounted: of its owner, guarded by the clients' lock too (client.h); none: of the free ones */
	struct mc_list link;
	/* atomic */
	uint8_t state;			/* MCP_SEG_*; UNMOUNTING: its objects are being dropped */
	bool connected;			/* its owner has an open connection: new objects may go there */
	uint8_t draining;		/* MCP_SEG_DRAINING, _DRAINED: nothing new is put there; 0 */
	uint64_t objects;		/* committed copies in it */
	uint64_t evictable;		/* bytes of those that a policy may choose */
	uint64_t used;			/* bytes, as of the last change of alloc */
	/* guarded by lock */
	struct mcm_alloc alloc;
	void *policy;			/* state of the eviction policy */
	/* guarded by run_lock, taken before all other locks of objects (evict_run.c) */
	pthread_mutex_t run_lock;
	struct {
		uint64_t retry_ns;	/* no walk before; atomic: growing sets it to 0 */
		uint64_t want;		/* for so many granules or more */
	} walk[MCM_EVICT_LEVELS];
};

struct mcm_segments {
	pthread_rwlock_t lock;
	const struct mcm_evict_ops *evict;
	void *evict_shared;
	uint32_t lease_ticks;
	struct mcm_segment **at;	/* by number; entries are set once, atomic */
	unsigned top;			/* numbers ever used */
	struct mc_list free;		/* structs that no segment uses */
	uint16_t *live;			/* mounted ones (OK or SILENT) */
	unsigned n_live;
	unsigned n_hidden;		/* those whose objects readers do not see; atomic */
	uint64_t largest;		/* bytes of the largest mounted one; atomic */
	unsigned n_largest;		/* so many have as much */
	uint64_t capacity;		/* of all mounted ones; atomic */
	uint16_t *by_id, *by_name;	/* live ones in buckets: number + 1, 0: none */
	uint16_t *by_host;		/* live ones in the order of their hosts (strategy_local.c) */
	unsigned n_by_host;
};

/* What a mounted one was when it was looked at. */
struct mcm_segment_view {
	struct mcp_id id, client;
	uint64_t base, size, used, objects;
	uint8_t shown;
	char name[MCM_NAME_MAX + 1], endpoint[MCM_NAME_MAX + 1], protocol[MCM_NAME_MAX + 1];
};

/* All mounted ones of one name. */
struct mcm_segment_sum {
	uint64_t size, used, objects;
	char name[MCM_NAME_MAX + 1];
};

int mcm_segments_init(struct mcm_segments *ss, const struct mcm_evict_ops *evict,
		      uint32_t lease_ticks);
void mcm_segments_done(struct mcm_segments *ss);

static inline struct mcm_segment *mcm_segment(const struct mcm_segments *ss, uint16_t index)
{
	return __atomic_load_n(&ss->at[index], __ATOMIC_ACQUIRE);
}

static inline uint8_t mcm_segment_state(const struct mcm_segment *s)
{
	return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
}

static inline bool mcm_segment_readable(const struct mcm_segment *s)
{
	return mcm_segment_state(s) == MCP_SEG_OK;
}

/* The state as others are told of it. */
static inline uint8_t mcm_segment_shown(const struct mcm_segment *s)
{
	uint8_t state = mcm_segment_state(s), draining = mcm_load_relaxed(&s->draining);

	return state == MCP_SEG_OK && draining ? draining : state;
}

static inline bool mcm_segment_allocatable(const struct mcm_segment *s)
{
	return mcm_segment_state(s) == MCP_SEG_OK &&
	       __atomic_load_n(&s->connected, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&s->draining, __ATOMIC_RELAXED);
}

/* ---- table lock held ---- */

/* A mounted segment, NULL when there is none. */
struct mcm_segment *mcm_segments_find(struct mcm_segments *ss, struct mcp_id id);
/* The mounted ones whose name has this hash: the first (@after NULL), the one after; NULL: no more. */
struct mcm_segment *mcm_segments_named(struct mcm_segments *ss, uint64_t hash,
				       const struct mcm_segment *after);
/* A new segment from a checked request, mounted and OK; on no list yet (@link).  For writing.  -ENOMEM,
 * -MC_ELIMIT. */
int mcm_segments_add(struct mcm_segments *ss, const struct mcp_mount *rq,
		     struct mcm_segment **ret);
/* A segment of an earlier master, under its number: mounted and silent until its owner comes.  -ENOMEM,
 * -MC_EPARAM. */
struct mcm_segment_record;
int mcm_segments_restore(struct mcm_segments *ss, const struct mcm_segment_record *rec,
			 struct mcm_segment **ret);
/* Take over what may change while the memory stays: owner, address, names.  For writing. */
void mcm_segments_describe(struct mcm_segments *ss, struct mcm_segment *s,
			   const struct mcp_mount *rq);
/* Its memory has become larger; what lies in it stays.  For writing.  -MC_EPARAM, -ENOMEM. */
int mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size);
/* A mounted one.  For writing. */
void mcm_segments_set_silent(struct mcm_segments *ss, struct mcm_segment *s, bool silent);
/* From now on its objects are gone for readers; the sweeper drops them.  It leaves its owner's list.  For
 * writing. */
void mcm_segments_remove(struct mcm_segments *ss, struct mcm_segment *s);

/* ---- no lock held ---- */

#define MCM_SEGMENT_VIEWS 64u

/* Some of the mounted ones (segment_view.c): up to MCM_SEGMENT_VIEWS to @v, maybe none, their number to *@n.  Whether
 * there may be more; *@next, 0 at first, is where they begin.  What comes or goes between two calls may be missed. */
bool mcm_segments_view(struct mcm_segments *ss, unsigned *next, struct mcm_segment_view *v, unsigned *n);
/* The names of the mounted ones in their order, each once, and their sums; to be freed, NULL when there are none.
 * -ENOMEM. */
int mcm_segments_sums(struct mcm_segments *ss, struct mcm_segment_sum **ret, unsigned *ret_n);

/* An unmounted segment that holds no range any more becomes free for the next mount. */
void mcm_segments_reap(struct mcm_segments *ss, struct mcm_segment *s);

/* A range; the segment's lock is taken.  -MC_ENOSPACE, -ENOMEM. */
int mcm_segment_take(struct mcm_segment *s, uint64_t len, uint32_t *ret_range);
void mcm_segment_free(struct mcm_segment *s, uint32_t range);
/* @len bytes of a range are enough for its object. */
void mcm_segment_trim(struct mcm_segment *s, uint32_t range, uint64_t len);

/* ---- segment's lock held ---- */

int mcm_segment_take_locked(struct mcm_segment *s, uint64_t len, uint32_t *ret_range);
void mcm_segment_free_locked(struct mcm_segment *s, const struct mcm_evict_ops *ops,
			     const struct mcm_index *ix, uint32_t range);
void mcm_segment_used(struct mcm_segment *s);

#endif
