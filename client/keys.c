/* SPDX-License-Identifier: Apache-2.0
 * keys.c - check keys, and split a batch of keys into requests. */
#include <config.h>

#include "client/store_i.h"

int mcs_key_check(struct mcs_key key)
{
	if (mcs_key_good(key))
		return 0;
	if (!key.data || !key.len)
		return mc_fail(-MC_EKEY, "the key is empty");
	return mc_fail(-MC_EKEY, "the key has %zu bytes, more than %d", key.len, MCP_KEY_MAX);
}

unsigned mcs_batch_split(unsigned n, struct mcs_key (*key_of)(const void *arg, unsigned i), const void *arg)
{
	size_t bytes = 0;
	unsigned k = 0;

	while (k < n && k < MCS_REQUEST_ITEMS && bytes < MCS_REQUEST_BYTES) {
		struct mcs_key key = key_of(arg, k++);

		/* Too long keys are refused before they are sent. */
		bytes += key.len <= MCP_KEY_MAX ? key.len : 0;
	}
	return k;
}
