/* SPDX-License-Identifier: Apache-2.0
 * alloc.h - the allocator of one segment's bytes.
 *
 * Constant time: free ranges are kept in bins of similar size, found through a two-level bitmap;
 * neighbours merge at once.  Its bookkeeping lies in nodes outside the segment (the memory is somebody
 * else's), 24 bytes each, which never move.  Lengths are whole granules of 64 bytes; ranges of 4 KiB
 * and more begin at a multiple of 4 KiB.  No locking here: the segment's lock guards it. */
#ifndef MCM_ALLOC_H
#define MCM_ALLOC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "master/memory/slab.h"

#define MCM_GRANULE_SHIFT 6
#define MCM_GRANULE (1u << MCM_GRANULE_SHIFT)
#define MCM_PAGE_GRANULES 64u		/* 4 KiB */
#define MCM_ALLOC_MAX ((1ull << 45) - 4096)	/* bytes of a segment */

#define MCM_BIN_SUB_SHIFT 5
#define MCM_BIN_SUB (1u << MCM_BIN_SUB_SHIFT)
#define MCM_BIN_TOP (45 - MCM_GRANULE_SHIFT - MCM_BIN_SUB_SHIFT + 2)

#define MCM_RANGE_USED 0x01u
#define MCM_RANGE_EVICTABLE 0x02u	/* @owner is an object that the eviction policy may choose */
#define MCM_RANGE_LISTED 0x04u		/* on one of the policy's lists */
#define MCM_RANGE_MOVING 0x08u		/* a task copies it */

#define MCM_RANGE_ID_BITS 28		/* so many ranges has a segment at the most */

/* Beginning and length are in granules.  A used range ends where the next one begins, so only free ones
 * keep their length: it stands where used ones have flags, policy and owner.  Each number of 28 bits
 * shares its word with 4 bits of something else: bytes that straddle words cost a third of the time.
 * Who does not hold the segment's lock may ask where a used range begins, so what says that is atomic. */
struct mcm_range {
	uint32_t at_lo;
	/* by address; next is never 0 but in the end mark.  Above them, the beginning's bits 32 on. */
	uint32_t prev_at, next_at;
	/* free: its bin's; used: the eviction policy's list */
	uint32_t list_prev : MCM_RANGE_ID_BITS;
	uint32_t flags : 4;		/* MCM_NODE_*; free: the length's upper bits above the first */
	uint32_t list_next : MCM_RANGE_ID_BITS;
	uint32_t policy : 4;		/* the eviction policy's (evict_lists.h); free: the length's top */
	uint32_t owner;			/* used: the object, 0 while none is committed; free: length */
};
_Static_assert(sizeof(struct mcm_range) == 24, "memory per range is what it is");

struct mcm_alloc {
	struct mcm_slab slab;
	uint64_t granules;		/* of the segment */
	uint64_t used;			/* granules in used ranges */
	uint64_t ranges;		/* number of used ranges */
	uint32_t first, end;		/* first range; end mark */
	uint32_t spare;			/* free list of nodes, by next */
	/* Where a walk goes on, and where what it has found begins; when the range merges, the merged one. */
	uint32_t cursor, window;
	uint64_t top_map;
	uint32_t sub_map[MCM_BIN_TOP];
	uint32_t bin[MCM_BIN_TOP * MCM_BIN_SUB];
};

/* @size bytes, at least one granule; the rest of a last partial granule is not used.  -ENOMEM. */
int mcm_alloc_init(struct mcm_alloc *a, uint64_t size);
void mcm_alloc_done(struct mcm_alloc *a);
/* The segment has @size bytes from now on, more than before.  -MC_EPARAM when it would have fewer, or too
 * many; -ENOMEM. */
int mcm_alloc_grow(struct mcm_alloc *a, uint64_t size);

/* A range of at least @len (1..) bytes.  -MC_ENOSPACE when no free range is large enough or there are
 * 2^28 ranges, -ENOMEM. */
int mcm_alloc_take(struct mcm_alloc *a, uint64_t len, uint32_t *ret_range);
/* The range [@at, @at + @granules) exactly, behind all that is in use, within the segment: to build an
 * allocator from front to back.  -MC_EINTERNAL when something is in the way, -ENOMEM. */
int mcm_alloc_take_at(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret_range);
/* Give a range back.  It must not be on a list of the eviction policy. */
void mcm_alloc_free(struct mcm_alloc *a, uint32_t range);

/* Give back what lies behind the first @granules (1..) of a used range.  -ENOMEM: it stays as it was. */
int mcm_alloc_trim(struct mcm_alloc *a, uint32_t range, uint64_t granules);

/* Granules that mcm_alloc_take() of @len bytes takes. */
uint64_t mcm_alloc_round(uint64_t len);
/* Would @len bytes fit into a free range of @granules that begins at granule @at? */
bool mcm_alloc_fits(uint64_t at, uint64_t granules, uint64_t len);
/* A free range, one of the largest; 0 when there is none. */
uint32_t mcm_alloc_largest(const struct mcm_alloc *a);
/* Bytes of the largest object that could be placed now: exact up to what the largest bin hides. */
uint64_t mcm_alloc_largest_free(const struct mcm_alloc *a);

/* Of a free range; for alloc_check.c. */
unsigned mcm_alloc_bin(const struct mcm_range *n);
/* Recount everything.  0, or -MC_EINTERNAL with a detail of what does not agree. */
int mcm_alloc_check(const struct mcm_alloc *a);

#define MCM_RANGES_SHIFT 18		/* 6 MiB */
static inline struct mcm_range *mcm_range(const struct mcm_alloc *a, uint32_t id)
{
	return mcm_slab_get(&a->slab, id, sizeof(struct mcm_range), MCM_RANGES_SHIFT);
}

static inline uint64_t mcm_range_at(const struct mcm_range *n)
{
	uint32_t lo = __atomic_load_n(&n->at_lo, __ATOMIC_RELAXED);
	uint32_t mid = __atomic_load_n(&n->prev_at, __ATOMIC_RELAXED) >> MCM_RANGE_ID_BITS;
	uint32_t hi = __atomic_load_n(&n->next_at, __ATOMIC_RELAXED) >> MCM_RANGE_ID_BITS;

	return (uint64_t)(hi << 4 | mid) << 32 | lo;
}

static inline uint32_t mcm_range_prev(const struct mcm_range *n)
{
	return n->prev_at & ((1u << MCM_RANGE_ID_BITS) - 1);
}

static inline uint32_t mcm_range_next(const struct mcm_range *n)
{
	return n->next_at & ((1u << MCM_RANGE_ID_BITS) - 1);
}

/* Length of a free range. */
static inline uint64_t mcm_range_free_len(const struct mcm_range *n)
{
	return (uint64_t)(n->policy << 3 | n->flags >> 1) << 32 | n->owner;
}

/* Where a range begins, in bytes from the segment's beginning. */
static inline uint64_t mcm_range_offset(const struct mcm_alloc *a, uint32_t id)
{
	return mcm_range_at(mcm_range(a, id)) << MCM_GRANULE_SHIFT;
}

static inline uint64_t mcm_range_granules(const struct mcm_alloc *a, const struct mcm_range *n)
{
	if (n->flags & MCM_RANGE_USED)
		return mcm_range_at(mcm_range(a, mcm_range_next(n))) - mcm_range_at(n);
	return mcm_range_free_len(n);
}

#endif
