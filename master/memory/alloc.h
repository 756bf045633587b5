/* SPDX-License-Identifier: Apache-2.0
 * alloc.h - allocator of one segment's bytes.
 *
 * Constant time: free ranges are in bins of similar size, found through a two-level bitmap; free neighbours are
 * merged at once.  The segment's memory belongs to another process, so the allocator keeps its records (24
 * bytes per range, never moved) in a slab of its own.  Lengths are whole granules of 64 bytes.  A range is allocated
 * aligned to 4 KiB when that costs less than 1/16 of it: ranges of whole pages, and of 64 KiB and more; between 4
 * and 64 KiB, one of odd length would leave up to half of its memory unused.  No locks: the caller holds the
 * segment's lock. */
#ifndef MCM_ALLOC_H
#define MCM_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "master/memory/slab.h"

#define MCM_GRANULE_SHIFT 6
#define MCM_GRANULE (1u << MCM_GRANULE_SHIFT)
#define MCM_PAGE_GRANULES 64u		/* 4 KiB */
#define MCM_ALIGN_GRANULES 1024u	/* 64 KiB: from this length on also ranges of odd length are aligned */
#define MCM_ALLOC_MAX ((1ull << 45) - 4096)	/* bytes of a segment, at most */

#define MCM_BIN_SUB_SHIFT 5
#define MCM_BIN_SUB (1u << MCM_BIN_SUB_SHIFT)
#define MCM_BIN_TOP (45 - MCM_GRANULE_SHIFT - MCM_BIN_SUB_SHIFT + 2)

#define MCM_RANGE_USED 0x01u
#define MCM_RANGE_EVICTABLE 0x02u	/* @owner is an object that the eviction policy may choose */
#define MCM_RANGE_LISTED 0x04u		/* on one of the eviction policy's lists */
#define MCM_RANGE_MOVING 0x08u		/* a task is copying it */

#define MCM_RANGE_ID_BITS 28		/* 2^28 ranges per segment at most */

/* Begin and length are in granules.  A used range ends where the next one begins, so only a free range stores
 * its length, in the bits that a used one has for flags, policy and owner.  Each 28-bit number shares its word
 * with 4 other bits: fields that cross a word boundary cost a third of the time.  Threads without the segment's
 * lock may read where a used range begins, so those words are written atomically. */
struct mcm_range {
	uint32_t at_lo;
	/* neighbours by address; next is 0 only in the end mark.  Upper 4 bits: bits 32 and up of the begin. */
	uint32_t prev_at, next_at;
	/* free: links of its bin's list; used: of the eviction policy's list */
	uint32_t list_prev : MCM_RANGE_ID_BITS;
	uint32_t flags : 4;		/* MCM_RANGE_*; free: bits 32 to 34 of the length */
	uint32_t list_next : MCM_RANGE_ID_BITS;
	uint32_t policy : 4;		/* eviction policy's (evict_lists.h); free: bits 35 to 38 */
	uint32_t owner;			/* used: slot of the object, 0: not committed; free: length */
};
_Static_assert(sizeof(struct mcm_range) == 24, "a range record has 24 bytes");

struct mcm_alloc {
	struct mcm_slab slab;
	uint64_t granules;		/* length of the segment */
	uint64_t used;			/* granules in used ranges */
	uint64_t ranges;		/* number of used ranges */
	uint32_t first, end;		/* first range; end mark */
	uint32_t spare;			/* free list of range records, linked by next */
	/* Cursors of a scan that releases the lock (evict_run.c, task_plan.c): the range at which it continues,
	 * and the first range of its window.  When that range is merged, the cursor moves to the merged range. */
	uint32_t cursor, window;
	uint64_t top_map;
	uint32_t sub_map[MCM_BIN_TOP];
	uint32_t bin[MCM_BIN_TOP * MCM_BIN_SUB];
};

/* @size: bytes, at least one granule; a partial last granule is not used.  -ENOMEM. */
int mcm_alloc_init(struct mcm_alloc *a, uint64_t size);
void mcm_alloc_done(struct mcm_alloc *a);
/* Enlarge the segment to @size bytes.  -MC_EPARAM when that is smaller than now or too large; -ENOMEM. */
int mcm_alloc_grow(struct mcm_alloc *a, uint64_t size);

/* Allocate a range of at least @len (1..) bytes.  -MC_ENOSPACE when no free range is large enough
 * or all 2^28 ranges are in use, -ENOMEM. */
int mcm_alloc_take(struct mcm_alloc *a, uint64_t len, uint32_t *ret_range);
/* Allocate exactly [@at, @at + @granules), which must be behind all used ranges: builds an
 * allocator from front to back.  -MC_EINTERNAL when the range is not free, -ENOMEM. */
int mcm_alloc_take_at(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret_range);
/* Free a range, which must not be on a list of the eviction policy. */
void mcm_alloc_free(struct mcm_alloc *a, uint32_t range);

/* Free all but the first @granules (1..) of a used range.  -ENOMEM: the range is unchanged. */
int mcm_alloc_trim(struct mcm_alloc *a, uint32_t range, uint64_t granules);

/* Granules that mcm_alloc_take() allocates for @len bytes. */
uint64_t mcm_alloc_round(uint64_t len);
/* Whether a range of @granules is allocated at a multiple of 4 KiB. */
bool mcm_alloc_aligns(uint64_t granules);
/* Whether @len bytes fit into a free range of @granules that begins at granule @at. */
bool mcm_alloc_fits(uint64_t at, uint64_t granules, uint64_t len);
/* One of the largest free ranges; 0: no range is free. */
uint32_t mcm_alloc_largest(const struct mcm_alloc *a);
/* Bytes of the largest object that could be allocated now, exact within the resolution of the largest bin. */
uint64_t mcm_alloc_largest_free(const struct mcm_alloc *a);

/* Bin of a free range. */
unsigned mcm_alloc_bin(const struct mcm_range *n);

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

/* Begin of a range in bytes from the segment's begin. */
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
