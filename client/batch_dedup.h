/* SPDX-License-Identifier: Apache-2.0
 * batch_dedup.h - items of one batch of puts that have the same key: one of them is stored. */
#ifndef MCS_DEDUP_H
#define MCS_DEDUP_H

#include <stdbool.h>

#include "client/scratch.h"
#include <mooncake/mcs.h>

struct mcs_dedup {
	const struct mcs_put_item *items;	/* the batch */
	const unsigned *winner;			/* per item, NULL: there are no twins */
	unsigned n;
};

/* The first of each key wins, or the @last one.  Memory from @sc.  -ENOMEM. */
int mcs_dedup_find(struct mcs_scratch *sc, const struct mcs_put_item *items, unsigned n, bool last,
		   struct mcs_dedup *ret);

/* Is @item, one of the batch, not to be stored? */
static inline bool mcs_dedup_skip(const struct mcs_dedup *tw, const struct mcs_put_item *item)
{
	return tw->winner && tw->winner[item - tw->items] != item - tw->items;
}

/* The others get the winners' results.  How much the number of items that succeeded changes. */
int mcs_dedup_settle(const struct mcs_dedup *tw, struct mcs_put_item *items);

#endif
