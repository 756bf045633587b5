/* SPDX-License-Identifier: Apache-2.0
 * twins.h - items of one batch of puts that have the same key: one of them is stored. */
#ifndef MCS_TWINS_H
#define MCS_TWINS_H

#include <stdbool.h>

#include "client/store_i.h"

struct mcs_twins {
	const struct mcs_put_item *items;	/* the batch */
	const unsigned *winner;			/* per item, NULL: there are no twins */
	unsigned n;
};

/* The first of each key wins, or the @last one.  Memory from @sc.  -ENOMEM. */
int mcs_twins_find(struct mcs_scratch *sc, const struct mcs_put_item *items, unsigned n, bool last,
		   struct mcs_twins *ret);

/* Is @item, one of the batch, not to be stored? */
static inline bool mcs_twins_skip(const struct mcs_twins *tw, const struct mcs_put_item *item)
{
	return tw->winner && tw->winner[item - tw->items] != item - tw->items;
}

/* The others get the winners' results.  How much the number of items that succeeded changes. */
int mcs_twins_settle(const struct mcs_twins *tw, struct mcs_put_item *items);

#endif
