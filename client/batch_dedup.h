/* SPDX-License-Identifier: Apache-2.0
 * batch_dedup.h - deduplication of a batch of puts: of the items with the same key, one is stored. */
#ifndef MCS_DEDUP_H
#define MCS_DEDUP_H

#include <stdbool.h>

#include "client/scratch.h"
#include <mooncake/mcs.h>

struct mcs_dedup {
	const struct mcs_put_item *items;	/* the batch */
	const unsigned *winner;			/* for each item the stored one; NULL: all keys differ */
	unsigned n;
};

/* Find the items to store: the first one with each key, or the @last one.  Memory from @sc.
 * -ENOMEM. */
int mcs_dedup_find(struct mcs_scratch *sc, const struct mcs_put_item *items, unsigned n, bool last,
		   struct mcs_dedup *ret);

/* Is @item of the batch not stored? */
static inline bool mcs_dedup_skip(const struct mcs_dedup *dd, const struct mcs_put_item *item)
{
	return dd->winner && dd->winner[item - dd->items] != item - dd->items;
}

/* Give the skipped items the results of the stored ones. */
void mcs_dedup_settle(const struct mcs_dedup *dd, struct mcs_put_item *items);

#endif
