/* SPDX-License-Identifier: Apache-2.0
 * test_master_alloc_check.c - implementation of test_master_alloc_check.h. */
#include <config.h>

#include "tests/unit/test_master_alloc_check.h"

#include <stddef.h>

#include "common/err.h"

static bool range_in_bin(const struct mcm_alloc *a, uint32_t id)
{
	unsigned bin;
	uint32_t i;

	for (bin = 0; bin < MCM_BIN_TOP * MCM_BIN_SUB; bin++)
		for (i = a->bin[bin]; i; i = mcm_range(a, i)->list_next)
			if (i == id)
				return true;
	return false;
}

/* Ranges follow each other without a gap, and no two free ranges are neighbours. */
static int alloc_check_ranges(const struct mcm_alloc *a, uint64_t *ret_free)
{
	uint64_t at = 0, used = 0, ranges = 0, free_ranges = 0;
	uint32_t id, prev = 0;
	bool was_free = false, cursor = false, window = false;

	for (id = a->first; id != a->end; id = mcm_range_next(mcm_range(a, id))) {
		const struct mcm_range *n = mcm_range(a, id);
		uint64_t g = mcm_range_granules(a, n);

		cursor |= id == a->cursor;
		window |= id == a->window;
		if (mcm_range_at(n) != at || mcm_range_prev(n) != prev || !g)
			return mc_fail(-MC_EINTERNAL, "range %u at %llu, expected at %llu", id,
				       (unsigned long long)mcm_range_at(n), (unsigned long long)at);
		if (n->flags & MCM_RANGE_USED) {
			used += g;
			ranges++;
			/* A shorter one may be the rest of a longer one of odd length. */
			if (g >= MCM_ALIGN_GRANULES && at % MCM_PAGE_GRANULES)
				return mc_fail(-MC_EINTERNAL, "range %u is not aligned", id);
		} else if (was_free) {
			return mc_fail(-MC_EINTERNAL, "range %u and its predecessor are both free", id);
		} else {
			free_ranges++;
		}
		was_free = !(n->flags & MCM_RANGE_USED);
		at += g;
		prev = id;
	}
	if (at != a->granules || mcm_range_at(mcm_range(a, a->end)) != at)
		return mc_fail(-MC_EINTERNAL, "ranges end too early");
	if (used != a->used || ranges != a->ranges)
		return mc_fail(-MC_EINTERNAL, "used %llu in %llu ranges, counted %llu in %llu",
			       (unsigned long long)a->used, (unsigned long long)a->ranges,
			       (unsigned long long)used, (unsigned long long)ranges);
	if ((!cursor && a->cursor != a->end) || (!window && a->window != a->end))
		return mc_fail(-MC_EINTERNAL, "a cursor points to no range");
	*ret_free = free_ranges;
	return 0;
}

int mcm_alloc_check(const struct mcm_alloc *a)
{
	uint64_t free_ranges = 0, binned = 0;
	unsigned bin, top;
	uint32_t id;
	int r;

	r = alloc_check_ranges(a, &free_ranges);
	if (r < 0)
		return r;
	for (bin = 0; bin < MCM_BIN_TOP * MCM_BIN_SUB; bin++) {
		top = bin / MCM_BIN_SUB;
		if (!(a->top_map >> top & 1) != !a->sub_map[top] ||
		    !(a->sub_map[top] >> bin % MCM_BIN_SUB & 1) != !a->bin[bin])
			return mc_fail(-MC_EINTERNAL, "bitmap is wrong for bin %u", bin);
		for (id = a->bin[bin]; id; id = mcm_range(a, id)->list_next) {
			if (mcm_range(a, id)->flags & MCM_RANGE_USED)
				return mc_fail(-MC_EINTERNAL, "used range in a bin");
			if (mcm_alloc_bin(mcm_range(a, id)) != bin)
				return mc_fail(-MC_EINTERNAL, "range in the wrong bin");
			binned++;
		}
	}
	if (binned != free_ranges)
		return mc_fail(-MC_EINTERNAL, "%llu free ranges, %llu in bins",
			       (unsigned long long)free_ranges, (unsigned long long)binned);
	id = mcm_alloc_largest(a);
	if (id && !range_in_bin(a, id))
		return mc_fail(-MC_EINTERNAL, "largest range is in no bin");
	return 0;
}
