/* SPDX-License-Identifier: Apache-2.0
 * batch_dedup.c - find the items of a batch that have the same key, with a hash table. */
#include <config.h>

#include "client/batch_dedup.h"

#include <errno.h>
#include <string.h>

#include "common/hash.h"

static bool dedup_same_key(struct mcs_key a, struct mcs_key b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

/* The slot of @key in the table, which holds item numbers plus 1; 0: free. */
static unsigned *dedup_slot(const struct mcs_put_item *items, struct mcs_key key, unsigned *table,
			    size_t mask)
{
	size_t at = mc_hash(key.data, key.len, 0) & mask;

	while (table[at] && !dedup_same_key(items[table[at] - 1].key, key))
		at = (at + 1) & mask;
	return &table[at];
}

int mcs_dedup_find(struct mcs_scratch *sc, const struct mcs_put_item *items, unsigned n, bool last,
		   struct mcs_dedup *ret)
{
	unsigned *winner = NULL, *table;
	size_t cap = 4;

	while (cap < 2 * (size_t)n)
		cap *= 2;
	table = mcs_scratch_alloc(sc, cap, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		unsigned *slot;

		/* Items without a key are refused separately. */
		if (!items[i].key.data || !items[i].key.len)
			continue;
		slot = dedup_slot(items, items[i].key, table, cap - 1);
		if (*slot && !winner) {
			winner = mcs_scratch_raw(sc, n, sizeof(*winner));
			if (!winner)
				return -ENOMEM;
		}
		if (!*slot || last)
			*slot = i + 1;
	}
	for (unsigned i = 0; i < n && winner; i++)
		winner[i] = items[i].key.data && items[i].key.len ?
			*dedup_slot(items, items[i].key, table, cap - 1) - 1 : i;
	*ret = (struct mcs_dedup){ items, winner, n };
	return 0;
}

void mcs_dedup_settle(const struct mcs_dedup *dd, struct mcs_put_item *items)
{
	for (unsigned i = 0; i < dd->n && dd->winner; i++) {
		const struct mcs_put_item *won = &items[dd->winner[i]];

		items[i].result = won->result;
		items[i].existed = won->existed;
	}
}
