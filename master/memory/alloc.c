/* SPDX-License-Identifier: Apache-2.0
 * alloc.c - bins of free ranges, bitmaps of bins, chain of ranges.
 *
 * Bin (top, sub) has the free ranges whose length has the same highest bit and the same five bits
 * below it, so lengths in a bin differ by at most 3 %.  A request first checks a few ranges of its
 * own bin, which has the ranges of exactly its length: equal sizes are recycled without loss and
 * without rounding lengths up to a bin's.  Every range of a higher bin is long enough, but for one case: a request
 * of a few whole pages may need up to a page more in a range that does not begin at a page.
 *
 * Odd lengths below 64 KiB are cut off the end of a free range, so that its begin stays aligned for the next whole
 * pages. */
#include <config.h>

#include "master/memory/alloc.h"

#include <string.h>

#include "common/err.h"

#define ID_MASK ((1u << MCM_RANGE_ID_BITS) - 1)
#define OWN_BIN_TRIES 4
#define PAGES_TRIES 8		/* ranges that a request of whole pages checks in the bins above its own */

/* The slab's array of chunks changes under the segment's lock only, so no atomic load is needed. */
static inline struct mcm_range *range_of(const struct mcm_alloc *a, uint32_t id)
{
	struct mcm_range *chunk = (void *)a->slab.chunk[id >> MCM_RANGES_SHIFT];

	return &chunk[id & ((1u << MCM_RANGES_SHIFT) - 1)];
}

/* The first 32 bins have one length each; then there are 32 bins for each power of two. */
static inline unsigned bin_of(uint64_t granules)
{
	unsigned shift = 63 - MCM_BIN_SUB_SHIFT - (unsigned)__builtin_clzll(granules | MCM_BIN_SUB);

	return (shift << MCM_BIN_SUB_SHIFT) + (unsigned)(granules >> shift);
}

static inline bool is_aligned(uint64_t granules)
{
	return granules % MCM_PAGE_GRANULES == 0;
}

static inline bool wants_alignment(uint64_t want)
{
	return want >= MCM_ALIGN_GRANULES || is_aligned(want);
}

bool mcm_alloc_aligns(uint64_t granules)
{
	return wants_alignment(granules);
}

/* Length of the longest request that fits into a range, alignment included. */
static inline uint64_t usable_granules(uint64_t at, uint64_t granules)
{
	uint64_t pad = -at & (MCM_PAGE_GRANULES - 1);

	if (!pad || !wants_alignment(granules))
		return granules;
	/* Without alignment: the longest odd length. */
	if (granules < MCM_ALIGN_GRANULES)
		return granules - 1;
	return granules - pad < MCM_ALIGN_GRANULES ? MCM_ALIGN_GRANULES - 1 : granules - pad;
}

static inline unsigned range_bin(const struct mcm_range *n)
{
	return bin_of(usable_granules(mcm_range_at(n), mcm_range_free_len(n)));
}

unsigned mcm_alloc_bin(const struct mcm_range *n)
{
	return range_bin(n);
}

static void range_set_free_len(struct mcm_range *n, uint64_t granules)
{
	n->owner = (uint32_t)granules;
	n->flags = (granules >> 32 & 7) << 1;
	n->policy = granules >> 35 & 15;
}

static void link_store(uint32_t *word, uint32_t id)
{
	__atomic_store_n(word, (*word & ~ID_MASK) | id, __ATOMIC_RELAXED);
}

static void range_set_start(struct mcm_range *n, uint64_t at)
{
	uint32_t top = (uint32_t)(at >> 32);

	__atomic_store_n(&n->at_lo, (uint32_t)at, __ATOMIC_RELAXED);
	__atomic_store_n(&n->prev_at, (n->prev_at & ID_MASK) | top << MCM_RANGE_ID_BITS, __ATOMIC_RELAXED);
	__atomic_store_n(&n->next_at, (n->next_at & ID_MASK) | top >> 4 << MCM_RANGE_ID_BITS,
			 __ATOMIC_RELAXED);
}

static int range_new(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret)
{
	struct mcm_range *n;
	int r;

	if (a->spare) {
		*ret = a->spare;
		a->spare = mcm_range_next(range_of(a, *ret));
	} else {
		if (a->slab.next >> MCM_RANGE_ID_BITS)
			return -MC_ENOSPACE;
		r = mcm_slab_take(&a->slab, 1, ret);
		if (r < 0)
			return r;
	}
	n = range_of(a, *ret);
	range_set_start(n, at);
	n->list_prev = n->list_next = 0;
	range_set_free_len(n, granules);
	return 0;
}

static void range_recycle(struct mcm_alloc *a, uint32_t id)
{
	link_store(&range_of(a, id)->next_at, a->spare);
	a->spare = id;
}

static void bin_add(struct mcm_alloc *a, uint32_t id, unsigned bin)
{
	struct mcm_range *n = range_of(a, id);
	uint32_t head = a->bin[bin];

	n->list_prev = 0;
	n->list_next = head;
	a->bin[bin] = id;
	if (head) {
		range_of(a, head)->list_prev = id;
		return;
	}
	a->sub_map[bin / MCM_BIN_SUB] |= 1u << bin % MCM_BIN_SUB;
	a->top_map |= 1ull << bin / MCM_BIN_SUB;
}

/* The range's own links are not changed. */
static void bin_del(struct mcm_alloc *a, uint32_t id, unsigned bin)
{
	const struct mcm_range *n = range_of(a, id);
	uint32_t prev = n->list_prev, next = n->list_next;

	if (next)
		range_of(a, next)->list_prev = prev;
	if (prev) {
		range_of(a, prev)->list_next = next;
		return;
	}
	a->bin[bin] = next;
	if (next)
		return;
	a->sub_map[bin / MCM_BIN_SUB] &= ~(1u << bin % MCM_BIN_SUB);
	if (!a->sub_map[bin / MCM_BIN_SUB])
		a->top_map &= ~(1ull << bin / MCM_BIN_SUB);
}

int mcm_alloc_init(struct mcm_alloc *a, uint64_t size)
{
	int r;

	memset(a, 0, sizeof(*a));
	if (size < MCM_GRANULE || size > MCM_ALLOC_MAX)
		return mc_fail(-MC_EPARAM, "segment size not supported bytes=%llu", (unsigned long long)size);
	mcm_slab_init(&a->slab, sizeof(struct mcm_range), MCM_RANGES_SHIFT);
	a->granules = size >> MCM_GRANULE_SHIFT;
	r = range_new(a, 0, a->granules, &a->first);
	if (r == 0)
		r = range_new(a, a->granules, 0, &a->end);
	if (r < 0) {
		mcm_alloc_done(a);
		return r;
	}
	range_of(a, a->end)->flags = MCM_RANGE_USED;
	range_of(a, a->end)->owner = 0;
	link_store(&range_of(a, a->end)->prev_at, a->first);
	link_store(&range_of(a, a->first)->next_at, a->end);
	a->cursor = a->window = a->first;
	bin_add(a, a->first, range_bin(range_of(a, a->first)));
	return 0;
}

void mcm_alloc_done(struct mcm_alloc *a)
{
	if (!a->slab.elem)
		return;
	mcm_slab_done(&a->slab);
	memset(a, 0, sizeof(*a));
}

int mcm_alloc_grow(struct mcm_alloc *a, uint64_t size)
{
	uint64_t more, granules = size >> MCM_GRANULE_SHIFT;
	struct mcm_range *end = range_of(a, a->end);
	uint32_t last = mcm_range_prev(end), id;
	int r;

	if (granules < a->granules || size > MCM_ALLOC_MAX)
		return mc_fail(-MC_EPARAM, "cannot change segment size from %llu to %llu bytes",
			       (unsigned long long)a->granules << MCM_GRANULE_SHIFT,
			       (unsigned long long)size);
	more = granules - a->granules;
	if (!more)
		return 0;
	if (range_of(a, last)->flags & MCM_RANGE_USED) {
		r = range_new(a, a->granules, more, &id);
		if (r < 0)
			return r;
		link_store(&range_of(a, id)->prev_at, last);
		link_store(&range_of(a, id)->next_at, a->end);
		link_store(&range_of(a, last)->next_at, id);
		link_store(&end->prev_at, id);
	} else {
		id = last;
		bin_del(a, id, range_bin(range_of(a, id)));
		range_set_free_len(range_of(a, id), mcm_range_free_len(range_of(a, id)) + more);
	}
	bin_add(a, id, range_bin(range_of(a, id)));
	a->granules = granules;
	range_set_start(end, granules);
	return 0;
}

uint64_t mcm_alloc_round(uint64_t len)
{
	uint64_t g = (len + MCM_GRANULE - 1) >> MCM_GRANULE_SHIFT, pages;

	if (!g)
		g = 1;
	if (g < MCM_PAGE_GRANULES)
		return g;
	/* A tail that is small compared to the object is not worth a range of its own. */
	pages = (g + MCM_PAGE_GRANULES - 1) & ~(uint64_t)(MCM_PAGE_GRANULES - 1);
	return (pages - g) * 64 <= g ? pages : g;
}

static uint64_t aligned_start(uint64_t at, uint64_t want)
{
	if (!wants_alignment(want))
		return at;
	return (at + MCM_PAGE_GRANULES - 1) & ~(uint64_t)(MCM_PAGE_GRANULES - 1);
}

static bool range_fits(uint64_t at, uint64_t granules, uint64_t want)
{
	return aligned_start(at, want) + want <= at + granules;
}

bool mcm_alloc_fits(uint64_t at, uint64_t granules, uint64_t len)
{
	return range_fits(at, granules, mcm_alloc_round(len));
}

/* Where @want granules begin in a free range. */
static uint64_t carve_start(uint64_t at, uint64_t granules, uint64_t want)
{
	return want < MCM_PAGE_GRANULES || wants_alignment(want) ? aligned_start(at, want) : at + granules - want;
}

/* First range of the first non-empty bin that is not below @bin; 0: all are empty. */
static uint32_t bin_first(const struct mcm_alloc *a, unsigned bin)
{
	unsigned top = bin / MCM_BIN_SUB;
	uint32_t subs = a->sub_map[top] & ~0u << bin % MCM_BIN_SUB;
	uint64_t tops;

	if (!subs) {
		tops = a->top_map & ~1ull << top;
		if (!tops)
			return 0;
		top = (unsigned)__builtin_ctzll(tops);
		subs = a->sub_map[top];
	}
	return a->bin[top * MCM_BIN_SUB + (unsigned)__builtin_ctz(subs)];
}

/* Check at most @tries ranges of a bin. */
static uint32_t bin_try(const struct mcm_alloc *a, uint32_t id, unsigned tries, uint64_t want)
{
	for (; id && tries; tries--) {
		const struct mcm_range *n = range_of(a, id);

		if (range_fits(mcm_range_at(n), mcm_range_free_len(n), want))
			return id;
		id = n->list_next;
	}
	return 0;
}

/* The next range in the order of bins, within a bin that of its list. */
static uint32_t bin_next(const struct mcm_alloc *a, uint32_t id)
{
	uint32_t next = range_of(a, id)->list_next;

	return next ? next : bin_first(a, range_bin(range_of(a, id)) + 1);
}

/* A range of a bin from @bin on for less than MCM_ALIGN_GRANULES of whole pages. */
static uint32_t pages_find(const struct mcm_alloc *a, unsigned bin, uint64_t want)
{
	uint32_t id = bin_first(a, bin);

	for (unsigned i = 0; id && i < PAGES_TRIES; i++) {
		const struct mcm_range *n = range_of(a, id);

		if (range_fits(mcm_range_at(n), mcm_range_free_len(n), want))
			return id;
		id = bin_next(a, id);
	}
	return id ? bin_first(a, bin_of(want + MCM_PAGE_GRANULES - 1) + 1) : 0;
}

/* A free range for @want granules; 0: none found. */
static uint32_t range_find(const struct mcm_alloc *a, uint64_t want)
{
	unsigned bin = bin_of(want);
	uint32_t id;

	id = bin_try(a, a->bin[bin], OWN_BIN_TRIES, want);
	if (!id && is_aligned(want) && want < MCM_ALIGN_GRANULES)
		id = pages_find(a, bin + 1, want);
	else if (!id)
		id = bin_first(a, bin + 1);
	/* The evictor leaves the cursor on the run that it emptied for this request. */
	if (!id && !(range_of(a, a->cursor)->flags & MCM_RANGE_USED))
		id = bin_try(a, a->cursor, 1, want);
	return id;
}

/* Change a free range to [@at, @at + @granules).  If its bin stays the same, its position in the
 * bin's list does too, which saves the access to its neighbours in that list. */
static void bin_resize(struct mcm_alloc *a, uint32_t id, uint64_t at, uint64_t granules)
{
	struct mcm_range *n = range_of(a, id);
	unsigned bin = range_bin(n), next = bin_of(usable_granules(at, granules));

	if (bin != next)
		bin_del(a, id, bin);
	range_set_start(n, at);
	range_set_free_len(n, granules);
	if (bin != next)
		bin_add(a, id, next);
}

/* Insert the new range @id between two neighbours; @prev may be 0. */
static void chain_insert(struct mcm_alloc *a, uint32_t prev, uint32_t id, uint32_t next)
{
	struct mcm_range *n = range_of(a, id);

	link_store(&n->prev_at, prev);
	link_store(&n->next_at, next);
	link_store(&range_of(a, next)->prev_at, id);
	if (prev)
		link_store(&range_of(a, prev)->next_at, id);
	else
		a->first = id;
}

/* Remove range @id from the chain; it is part of @into from now on. */
static void chain_merge(struct mcm_alloc *a, uint32_t id, uint32_t into)
{
	const struct mcm_range *n = range_of(a, id);
	uint32_t prev = mcm_range_prev(n), next = mcm_range_next(n);

	link_store(&range_of(a, next)->prev_at, prev);
	if (prev)
		link_store(&range_of(a, prev)->next_at, next);
	else
		a->first = next;
	if (a->cursor == id)
		a->cursor = into;
	if (a->window == id)
		a->window = into;
	range_recycle(a, id);
}

static void range_set_used(struct mcm_alloc *a, uint32_t id, uint64_t granules)
{
	struct mcm_range *n = range_of(a, id);

	n->flags = MCM_RANGE_USED;
	n->policy = 0;
	n->owner = 0;
	a->used += granules;
	a->ranges++;
}

/* Use [start, start + want) of the free range @id, whose record then describes a remaining part. */
static int range_carve(struct mcm_alloc *a, uint32_t id, uint64_t start, uint64_t want, uint32_t *ret)
{
	struct mcm_range *n = range_of(a, id);
	uint64_t at = mcm_range_at(n), end = at + mcm_range_free_len(n), behind = start + want;
	uint32_t used, rest = 0;
	int r;

	if (start == at && behind == end) {
		bin_del(a, id, range_bin(n));
		range_set_used(a, id, want);
		*ret = id;
		return 0;
	}
	r = range_new(a, start, want, &used);
	if (r == 0 && start > at && behind < end) {
		r = range_new(a, behind, end - behind, &rest);
		if (r < 0)
			range_recycle(a, used);
	}
	if (r < 0)
		return r;
	if (start == at) {
		bin_resize(a, id, behind, end - behind);
		chain_insert(a, mcm_range_prev(n), used, id);
	} else {
		bin_resize(a, id, at, start - at);
		chain_insert(a, id, used, mcm_range_next(n));
	}
	if (rest) {
		chain_insert(a, used, rest, mcm_range_next(range_of(a, used)));
		bin_add(a, rest, range_bin(range_of(a, rest)));
	}
	range_set_used(a, used, want);
	*ret = used;
	return 0;
}

int mcm_alloc_take(struct mcm_alloc *a, uint64_t len, uint32_t *ret_range)
{
	uint64_t want = mcm_alloc_round(len);
	const struct mcm_range *n;
	uint32_t id;

	if (want > a->granules - a->used)
		return -MC_ENOSPACE;
	id = range_find(a, want);
	if (!id)
		return -MC_ENOSPACE;
	n = range_of(a, id);
	return range_carve(a, id, carve_start(mcm_range_at(n), mcm_range_free_len(n), want), want, ret_range);
}

int mcm_alloc_take_at(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret_range)
{
	uint32_t id = mcm_range_prev(range_of(a, a->end));
	const struct mcm_range *n = range_of(a, id);

	if (!granules || n->flags & MCM_RANGE_USED || at < mcm_range_at(n) ||
	    granules > mcm_range_free_len(n) || at - mcm_range_at(n) > mcm_range_free_len(n) - granules)
		return mc_fail(-MC_EINTERNAL, "the range at %llu is not free", (unsigned long long)at);
	return range_carve(a, id, at, granules, ret_range);
}

static bool range_is_free(const struct mcm_alloc *a, uint32_t id)
{
	return id && !(range_of(a, id)->flags & MCM_RANGE_USED);
}

void mcm_alloc_free(struct mcm_alloc *a, uint32_t id)
{
	struct mcm_range *n = range_of(a, id);
	uint32_t prev = mcm_range_prev(n), next = mcm_range_next(n);
	uint64_t granules;
	bool before, behind;

	/* The neighbours' records may be anywhere in memory: load both at the same time. */
	__builtin_prefetch(range_of(a, prev), 1);
	granules = mcm_range_granules(a, n);
	a->used -= granules;
	a->ranges--;
	range_set_free_len(n, granules);
	before = range_is_free(a, prev);
	behind = range_is_free(a, next);
	if (before) {
		if (behind) {
			granules += mcm_range_free_len(range_of(a, next));
			bin_del(a, next, range_bin(range_of(a, next)));
			chain_merge(a, next, prev);
		}
		chain_merge(a, id, prev);
		bin_resize(a, prev, mcm_range_at(range_of(a, prev)),
			   mcm_range_free_len(range_of(a, prev)) + granules);
	} else if (behind) {
		uint64_t at = mcm_range_at(n);

		chain_merge(a, id, next);
		bin_resize(a, next, at, mcm_range_free_len(range_of(a, next)) + granules);
	} else {
		bin_add(a, id, bin_of(usable_granules(mcm_range_at(n), granules)));
	}
}

int mcm_alloc_trim(struct mcm_alloc *a, uint32_t id, uint64_t granules)
{
	const struct mcm_range *n = range_of(a, id);
	uint64_t have = mcm_range_granules(a, n), behind = mcm_range_at(n) + granules;
	uint32_t next = mcm_range_next(n), rest;
	int r;

	if (granules >= have)
		return 0;
	if (range_is_free(a, next)) {
		bin_resize(a, next, behind, mcm_range_free_len(range_of(a, next)) + have - granules);
	} else {
		r = range_new(a, behind, have - granules, &rest);
		if (r < 0)
			return r;
		chain_insert(a, id, rest, next);
		bin_add(a, rest, range_bin(range_of(a, rest)));
	}
	a->used -= have - granules;
	return 0;
}

uint32_t mcm_alloc_largest(const struct mcm_alloc *a)
{
	unsigned top, sub, i;
	uint64_t best = 0;
	uint32_t id, ret = 0;

	if (!a->top_map)
		return 0;
	top = 63 - (unsigned)__builtin_clzll(a->top_map);
	sub = 31 - (unsigned)__builtin_clz(a->sub_map[top]);
	id = a->bin[top * MCM_BIN_SUB + sub];
	for (i = 0; id && i < 16; i++, id = range_of(a, id)->list_next) {
		uint64_t g = mcm_range_free_len(range_of(a, id));

		if (g > best) {
			best = g;
			ret = id;
		}
	}
	return ret;
}

uint64_t mcm_alloc_largest_free(const struct mcm_alloc *a)
{
	uint32_t id = mcm_alloc_largest(a);
	const struct mcm_range *n = id ? range_of(a, id) : NULL;

	return n ? usable_granules(mcm_range_at(n), mcm_range_free_len(n)) << MCM_GRANULE_SHIFT : 0;
}
