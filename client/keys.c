/* SPDX-License-Identifier: Apache-2.0
 * keys.c - check keys, split a batch of keys into requests, and list them in a request. */
#include <config.h>

#include <errno.h>

#include "client/store_i.h"

int mcs_key_check(struct mcs_key key)
{
	if (mcs_key_good(key))
		return 0;
	if (!key.data || !key.len)
		return mc_fail(-MC_EKEY, "the key is empty");
	return mc_fail(-MC_EKEY, "the key has %zu bytes, more than %d", key.len, MCP_KEY_MAX);
}

unsigned mcs_batch_split(unsigned n, const struct mcs_key *first, size_t stride)
{
	const char *at = (const char *)first;
	size_t bytes = 0;
	unsigned k = 0;

	while (k < n && k < MCS_REQUEST_ITEMS && bytes < MCS_REQUEST_BYTES) {
		size_t len = ((const struct mcs_key *)(at + stride * k++))->len;

		/* Too long keys are refused before they are sent. */
		bytes += len <= MCP_KEY_MAX ? len : 0;
	}
	return k;
}

int mcs_keys_list(struct mcs_scratch *sc, const struct mcs_key *keys, unsigned n, struct mcp_seq *ret)
{
	struct mcp_key *list = mcs_scratch_raw(sc, n, sizeof(*list));
	unsigned k = 0;

	if (!list)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		if (mcs_key_good(keys[i]))
			list[k++].key = mcp_bytes(keys[i].data, (uint32_t)keys[i].len);
	*ret = mcp_seq(list, k);
	return 0;
}
