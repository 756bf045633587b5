/* SPDX-License-Identifier: Apache-2.0
 * index.c - the ranges of a medium by their offsets: a sorted array, because a change is much rarer and cheaper than
 * the call to the store that it belongs to. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/objects/objects_i.h"

size_t mct_objects_index_find(const struct mct_objects_index *ix, uint64_t off)
{
	size_t lo = 0, hi = ix->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ix->at[mid].off + ix->at[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct mct_objects_range *mct_objects_index_have(const struct mct_objects_index *ix, uint64_t off, uint64_t len)
{
	size_t i = mct_objects_index_find(ix, off);
	const struct mct_objects_range *r = &ix->at[i];

	return i < ix->n && r->off <= off && len <= r->len - (off - r->off) ? r : NULL;
}

int mct_objects_index_add(struct mct_objects_index *ix, const struct mct_objects_range *r,
			  void (*replaced)(void *arg, const struct mct_objects_range *r), void *arg)
{
	size_t first = mct_objects_index_find(ix, r->off), end = first;

	for (; end < ix->n && ix->at[end].off < r->off + r->len; end++)
		if (ix->at[end].order > r->order)
			return -EEXIST;
	if (first == end && ix->n == ix->cap) {
		size_t cap = ix->cap ? 2 * ix->cap : 256;
		struct mct_objects_range *more = realloc(ix->at, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		ix->at = more;
		ix->cap = cap;
	}
	for (size_t i = first; i < end; i++)
		replaced(arg, &ix->at[i]);
	memmove(&ix->at[first + 1], &ix->at[end], (ix->n - end) * sizeof(*ix->at));
	ix->n = ix->n + 1 - (end - first);
	ix->at[first] = *r;
	return 0;
}

bool mct_objects_index_remove(struct mct_objects_index *ix, const struct mct_objects_range *r)
{
	size_t i = mct_objects_index_find(ix, r->off);

	if (i == ix->n || ix->at[i].off != r->off || ix->at[i].order != r->order)
		return false;
	memmove(&ix->at[i], &ix->at[i + 1], (ix->n - i - 1) * sizeof(*ix->at));
	ix->n--;
	return true;
}
