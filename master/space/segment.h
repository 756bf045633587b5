/* SPDX-License-Identifier: Apache-2.0
 * segment.h - segments: one allocator and one set of eviction lists each.
 *
 * Segments are numbered (objects store 16 bits), and their structs are not freed while the master
 * runs, so a number leads to a struct without a lock.  Its contents are used under the segment's
 * own lock, after a check of its state.  The table's lock guards which segments are mounted, and
 * their names.  Mounting and look-ups cost the same with very many segments as with a few. */
#ifndef MCM_SEGMENT_H
#define MCM_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/principal.h"
#include "common/security/capability.h"
#include "common/sys/lock.h"
#include "master/memory/alloc.h"
#include "master/space/backlog.h"
#include "master/space/candidates.h"
#include "master/space/evict_policy.h"
#include "master/space/unproven.h"
#include "proto/msg.h"
#include "proto/medium.h"

#ifdef MC_FUZZING
#define MCM_SEGMENTS_MAX 255u	/* a fuzz target starts masters for every input; tables of this size cost most of it */
#else
#define MCM_SEGMENTS_MAX 65535u
#endif
#define MCM_DISK_BLOCK 4096u	/* unit of a segment on a disk */
#define MCM_NAME_MAX 255u	/* bytes of a segment's name, endpoint or protocol, at most */

/* Objects of a disk that were removed, replaced or renamed, until its owner learns of them: the latest ones.
 * A rename of a directory (MCM_RENAME_DIR_MAX) has room. */
#define MCM_GONE_MAX 16384u
struct mcm_gone {
	struct {
		uint64_t offset, generation;
	} *ring;			/* NULL: none yet */
	unsigned head, n;
};

/* No segment; the other states are those of enum mcp_segment_state. */
#define MCM_SEG_NONE 0

struct mcm_segment {
	/* The fields that each put reads come first, in few cache lines: in a pool of many segments they are cold.
	 * Constant once the struct exists: */
	uint16_t index;
	/* constant while mounted; changed under the table's lock for writing; also read without it (relaxed) */
	uint8_t medium;			/* enum mcp_medium */
	uint8_t traits;			/* MCP_TRAIT_* of that medium, as this master uses it (segment.c) */
	uint8_t rank;			/* enum mcp_rank of that medium */
	uint8_t high, low;		/* percent, 0: the master's */
	/* the tenant whose objects it takes: number + 1, by the credential of its owner; 0: of all tenants, without
	 * --security=on, or not mounted since the restart */
	uint16_t tenant;
	/* atomic */
	uint8_t state;			/* MCP_SEG_*; UNMOUNTING: its objects are being removed */
	bool connected;			/* its owner has an open connection: it accepts new objects */
	uint8_t draining;		/* MCP_SEG_DRAINING, _DRAINED: it accepts no new objects; else 0 */
	bool paused;			/* its owner says that its device does not work (liveness.h) */
	/* its owner has a segment of a higher rank that takes copies, or had one before the master's restart */
	bool offloads;
	bool sealed;			/* its bytes are encrypted, or will be when its owner mounts it */
	bool awaited;			/* restored: clients wait for its owner's return (object/grace.h) */
	uint16_t disk;			/* number + 1 of one of these segments, of the lowest rank */
	uint64_t objects;		/* committed copies */
	uint64_t evictable;		/* bytes of the copies that a policy may choose */
	uint64_t used;			/* bytes allocated, as of the last change of alloc */
	/* constant while mounted, as above */
	uint64_t size, name_hash;
	/* constant once the struct exists */
	uint32_t *room;			/* its entry of mcm_segments.room */
	struct mc_mutex lock;
	/* guarded by lock */
	const struct mcm_evict_ops *evict;	/* constant while mounted: the policy, */
	void *policy;			/* and its state */
	struct mcm_alloc alloc;
	struct mcm_backlog backlog;	/* objects to copy to a higher rank */
	struct mcm_backlog promotions;	/* objects to copy to memory */
	struct mcm_backlog nof;		/* objects of other owners to copy to it (task/nof.h) */
	struct mcm_gone gone;		/* a disk: records that are void (task/adopt.h) */
	/* atomic */
	unsigned errors;		/* a disk: copies to it that failed since the last good one */
	uint64_t pause_ms;		/* no copies to it before this time, after many errors */
	bool refuses;			/* a disk: the last copies to it failed, or found no space (offload.h) */
	/* a disk: before unfit_ms, no range of unfit bytes is looked for: eviction frees as much only in pieces */
	uint64_t unfit, unfit_ms;
	/* bytes of the largest range that one of the owner's segments of higher ranks takes, 0: none takes any */
	uint64_t copy_max;
	uint64_t fetched_ms;		/* when its owner last could get copies to these */
	/* constant while mounted; changed under the table's lock for writing */
	struct mcp_id id, client;
	uint64_t epoch, base, rkey;
	uint8_t own_policy;		/* enum mcp_evict_policy */
	char name[MCM_NAME_MAX + 1], endpoint[MCM_NAME_MAX + 1], protocol[MCM_NAME_MAX + 1];
	char node[MC_PRINCIPAL_NAME_MAX + 1];	/* name in the credential of its owner, "": it had none */
	uint32_t node_secret;		/* atomic: number of the pool's secret in the newest credential of that name */
	bool guarded;			/* its owner wants capabilities under this key (security/capability.h) */
	uint8_t key[MC_CAPABILITY_KEY];
	uint64_t silent_ms;		/* since when it is silent, on the master's clock */
	/* guarded by the table's lock */
	unsigned live_at;		/* index in mcm_segments.live */
	bool adopting;			/* a disk that gets no copies yet; also read without the lock (task/adopt.h) */
	/* its owner has unmounted it and kept its objects, and is not asked to mount it again; also guarded by the
	 * clients' lock */
	bool left;
	bool unproven;			/* it is from a snapshot, and its owner has not confirmed all objects */
	uint16_t next_id, next_name;	/* hash chains of the table: number + 1, 0: end */
	/* mounted: in the list of its owner, also guarded by the clients' lock (client.h); else in
	 * the list of unused structs */
	struct mc_list link;
	/* guarded by the quarantine's lock */
	struct mc_list fences;		/* struct mcm_fence that its owner has not confirmed */
	struct mcm_confirm confirm;	/* comparison of an unproven segment */
	/* guarded by run_lock, which is taken before all other locks of objects (evict_run.c) */
	struct mc_mutex run_lock;
	struct {
		uint64_t retry_ns;	/* no search before this time; atomic: growing sets it to 0 */
		uint64_t want;		/* holds for that many granules or more */
	} walk[MCM_EVICT_FLAG_SETS];
};

struct mcm_segments {
	struct mc_rwlock lock;
	const struct mcm_evict_ops *evict;
	void *evict_shared;
	uint32_t lease_ticks;
	struct mcm_segment **at;	/* segments by number; each entry is set once, atomically */
	/* free granules by number, atomic: a put finds full segments without their structs */
	uint32_t *room;
	struct mcm_candidates *candidates;	/* segments of memory on which puts may evict */
	unsigned top;			/* numbers ever used; atomic */
	struct mc_list free;		/* structs that no segment uses */
	uint16_t *live;			/* numbers of the mounted segments (OK or SILENT) */
	unsigned n_live;
	unsigned n_far;			/* mounted segments of far memory that take puts; atomic */
	bool sealed;			/* constant: --security=on, so media that are not memory are encrypted */
	bool puts_far;			/* constant: objects are put into far memory (--allocation_strategy=cxl) */
	unsigned n_hidden;		/* segments with objects that readers cannot see; atomic */
	unsigned n_confirming;		/* segments in that state; atomic */
	uint64_t largest;		/* bytes of the largest mounted segment of memory; atomic */
	unsigned n_largest;		/* number of segments of that size */
	uint64_t capacity;		/* sum of all mounted segments of memory; atomic */
	uint64_t disk_capacity;		/* sum of all mounted disks; atomic */
	uint16_t *by_id, *by_name;	/* buckets of mounted segments: number + 1, 0: none */
	uint16_t *by_host;		/* in the order of their hosts (strategy_local.c) */
	unsigned n_by_host;
};

/* Copy of a mounted segment's description. */
struct mcm_segment_view {
	struct mcp_id id;
	uint64_t base, size, used, objects;
	uint8_t shown, medium;
	char name[MCM_NAME_MAX + 1], endpoint[MCM_NAME_MAX + 1], protocol[MCM_NAME_MAX + 1];
};

/* Sums over all mounted segments of one name. */
struct mcm_segment_sum {
	uint64_t size, used, objects;
	char name[MCM_NAME_MAX + 1];
};

/* @puts_far: far memory takes puts.  -ENOMEM. */
int mcm_segments_init(struct mcm_segments *ss, const struct mcm_evict_ops *evict, struct mcm_learn *learn,
		      uint32_t lease_ticks, bool puts_far);
void mcm_segments_done(struct mcm_segments *ss);

static inline struct mcm_segment *mcm_segment(const struct mcm_segments *ss, uint16_t index)
{
	return __atomic_load_n(&ss->at[index], __ATOMIC_ACQUIRE);
}

static inline uint8_t mcm_segment_state(const struct mcm_segment *s)
{
	return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
}

/* Has its medium one of these MCP_TRAIT_*?  Without the table's lock as the medium. */
static inline bool mcm_segment_is(const struct mcm_segment *s, unsigned traits)
{
	return mcm_load_relaxed(&s->traits) & traits;
}

/* Do clients read it while its owner does not run?  Only the owner has the key of an encrypted one. */
static inline bool mcm_segment_is_public(const struct mcm_segment *s)
{
	return mcm_segment_is(s, MCP_TRAIT_SHARED) && !mcm_load_relaxed(&s->sealed);
}

static inline bool mcm_segment_readable(const struct mcm_segment *s)
{
	return mcm_segment_state(s) == MCP_SEG_OK;
}

/* Its owner serves it, but maybe not all of its objects. */
static inline bool mcm_segment_attached(const struct mcm_segment *s)
{
	uint8_t state = mcm_segment_state(s);

	return state == MCP_SEG_OK || state == MCP_SEG_CONFIRMING;
}

/* A segment's owner, also read without the table's lock: then two owners may be mixed while it changes. */
static inline struct mcp_id mcm_segment_client(const struct mcm_segment *s)
{
	return (struct mcp_id){ __atomic_load_n(&s->client.hi, __ATOMIC_RELAXED),
				__atomic_load_n(&s->client.lo, __ATOMIC_RELAXED) };
}

static inline void mcm_segment_set_client(struct mcm_segment *s, struct mcp_id client)
{
	__atomic_store_n(&s->client.hi, client.hi, __ATOMIC_RELAXED);
	__atomic_store_n(&s->client.lo, client.lo, __ATOMIC_RELAXED);
}

/* The state that clients are told. */
static inline uint8_t mcm_segment_shown(const struct mcm_segment *s)
{
	uint8_t state = mcm_segment_state(s), draining = mcm_load_relaxed(&s->draining);

	if (state != MCP_SEG_OK)
		return state;
	return draining ? draining : mcm_load_relaxed(&s->paused) ? MCP_SEG_PAUSED : state;
}

/* Does it take copies from its owner's segments of lower ranks? */
static inline bool mcm_segment_offloadable(const struct mcm_segment *s)
{
	return mcm_segment_is(s, MCP_TRAIT_COPIES) && mcm_segment_state(s) == MCP_SEG_OK &&
	       __atomic_load_n(&s->connected, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&s->draining, __ATOMIC_RELAXED);
}

/* May objects be evicted from it?  Not from a disk with --enable_disk_eviction=false. */
static inline bool mcm_segment_may_evict(const struct mcm_segment *s, bool disks)
{
	return disks || mcm_load_relaxed(&s->rank) < MCP_RANK_DISK;
}

/* Does it take new objects? */
static inline bool mcm_segment_allocatable(const struct mcm_segment *s)
{
	return mcm_segment_is(s, MCP_TRAIT_PUTS) && mcm_segment_state(s) == MCP_SEG_OK &&
	       __atomic_load_n(&s->connected, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&s->draining, __ATOMIC_RELAXED);
}

/* Are @want bytes, whole granules, free or evictable?  They need not be in one piece. */
static inline bool mcm_segment_could_hold(const struct mcm_segment *s, uint64_t want)
{
	return mcm_load_relaxed(&s->evictable) + mcm_load_relaxed(&s->size) >= mcm_load_relaxed(&s->used) + want;
}

/* ---- the table's lock is held ---- */

/* The mounted segment with an id; NULL: there is none. */
struct mcm_segment *mcm_segments_find(struct mcm_segments *ss, struct mcp_id id);
/* The mounted segments whose name has this hash: the first one (@after NULL), or the next one;
 * NULL: no more. */
struct mcm_segment *mcm_segments_named(struct mcm_segments *ss, uint64_t hash,
				       const struct mcm_segment *after);
/* Add a segment from a checked request, mounted and OK, in no list yet (@link).  Lock held for
 * writing.  -ENOMEM, -MC_ELIMIT. */
int mcm_segments_add(struct mcm_segments *ss, const struct mcp_mount *rq, struct mcm_segment **ret);
/* Add a segment of an earlier master under its number, mounted, and silent until its owner returns.
 * -ENOMEM, -MC_EPARAM. */
struct mcm_segment_record;
int mcm_segments_restore(struct mcm_segments *ss, const struct mcm_segment_record *rec,
			 struct mcm_segment **ret);
/* Take over the fields that a new mount may change while the memory stays: owner, address, names.
 * Lock held for writing. */
void mcm_segments_describe(struct mcm_segments *ss, struct mcm_segment *s, const struct mcp_mount *rq);
/* Enlarge a segment; its objects stay.  Lock held for writing.  -MC_EPARAM, -ENOMEM. */
int mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size);
/* @s is mounted.  Lock held for writing. */
void mcm_segments_set_silent(struct mcm_segments *ss, struct mcm_segment *s, bool silent);
/* Its owner is back, and compares its objects with its memory (snapshot/confirm.h).  Lock held for writing. */
void mcm_segments_set_confirming(struct mcm_segments *ss, struct mcm_segment *s);
/* Unmount: readers no longer see its objects, the background evictor removes them, and it leaves
 * its owner's list.  Lock held for writing. */
void mcm_segments_remove(struct mcm_segments *ss, struct mcm_segment *s);

/* ---- no lock held ---- */

#define MCM_SEGMENT_VIEWS 64u

/* Copy up to MCM_SEGMENT_VIEWS mounted segments to @v, maybe none, and their number to *@n
 * (segment_view.c).  Continues at *@next, 0 at first.  True: there may be more.  A segment that is
 * mounted or unmounted between two calls may be missed. */
bool mcm_segments_view(struct mcm_segments *ss, unsigned *next, struct mcm_segment_view *v, unsigned *n);
/* The sums by name, in the order of names; the caller frees *ret, which is NULL when there are none.  -ENOMEM. */
int mcm_segments_sums(struct mcm_segments *ss, struct mcm_segment_sum **ret, unsigned *ret_n);

/* The segment accepts new objects again, or may have others to evict: puts search there again. */
void mcm_segment_usable(struct mcm_segments *ss, struct mcm_segment *s);
/* Puts need not search on a segment that accepts no objects, or has none that can be evicted. */
void mcm_segment_unusable(struct mcm_segments *ss, struct mcm_segment *s);

/* Make the struct of an unmounted segment available when no range is left. */
void mcm_segments_reap(struct mcm_segments *ss, struct mcm_segment *s);

/* Allocate a range; takes the segment's lock.  -MC_ENOSPACE, -ENOMEM. */
int mcm_segment_take(struct mcm_segment *s, uint64_t len, uint32_t *ret_range);
void mcm_segment_free(struct mcm_segment *s, uint32_t range);
/* Free all but the first @len bytes of a range. */
void mcm_segment_trim(struct mcm_segment *s, uint32_t range, uint64_t len);

/* ---- the segment's lock is held ---- */

int mcm_segment_take_locked(struct mcm_segment *s, uint64_t len, uint32_t *ret_range);
void mcm_segment_free_locked(struct mcm_segment *s, const struct mcm_evict_ops *ops,
			     const struct mcm_index *ix, uint32_t range);
void mcm_segment_used(struct mcm_segment *s);
/* A range was listed at the tick @now: puts search there again. */
void mcm_segment_listed(struct mcm_segments *ss, struct mcm_segment *s, uint32_t now, bool fresh);
/* List a range for eviction: its object was just put (@fresh), or can be evicted again. */
static inline void mcm_segment_list(struct mcm_segments *ss, struct mcm_segment *s, const struct mcm_evict_view *v,
				    uint32_t range, bool fresh)
{
	s->evict->insert(s->policy, v, range, fresh);
	if (ss->candidates->left[s->index])
		mcm_segment_listed(ss, s, v->now, fresh);
}

#endif
