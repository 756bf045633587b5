/* SPDX-License-Identifier: Apache-2.0
 * batch_dedup.c - finds items with the same key by a table of hashes. */
#include <config.h>

#include "client/batch_dedup.h"

#include <errno.h>
#include <string.h>

#include "common/hash.h"

static bool same(struct mcs_key a, struct mcs_key b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

/* The place of @key in a table of numbers of items plus one. */
static unsigned *place(const struct mcs_put_item *items, struct mcs_key key, unsigned *table,
		       size_t mask)
{
	size_t at = mc_hash(key.data, key.len, 0) & mask;

	while (table[at] && !same(items[table[at] - 1].key, key))
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
		unsigned *p;

		/* What is no key is refused, each by itself. */
		if (!items[i].key.data || !items[i].key.len)
			continue;
		p = place(items, items[i].key, table, cap - 1);
		if (*p && !winner) {
			winner = mcs_scratch_raw(sc, n, sizeof(*winner));
			if (!winner)
				return -ENOMEM;
		}
		if (!*p || last)
			*p = i + 1;
	}
	for (unsigned i = 0; i < n && winner; i++)
		winner[i] = items[i].key.data && items[i].key.len ?
			*place(items, items[i].key, table, cap - 1) - 1 : i;
	*ret = (struct mcs_dedup){ items, winner, n };
	return 0;
}

int mcs_dedup_settle(const struct mcs_dedup *tw, struct mcs_put_item *items)
{
	int change = 0;

	for (unsigned i = 0; i < tw->n && tw->winner; i++) {
		const struct mcs_put_item *won = &items[tw->winner[i]];

		if (won == &items[i])
			continue;
		change += !won->result - !items[i].result;
		items[i].result = won->result;
		items[i].existed = won->existed;
	}
	return change;
}
