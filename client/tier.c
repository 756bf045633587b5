/* SPDX-License-Identifier: Apache-2.0
 * tier.c - media of objects: copies that are asked for, and the end of this process's disks. */
#include <config.h>

#include <errno.h>

#include "client/store_i.h"

static struct mcs_key tier_key(const void *keys, unsigned i)
{
	return ((const struct mcs_key *)keys)[i];
}

static int tier_request(struct mcs *s, struct mcs_scratch *sc, const struct mcs_key *keys, unsigned n, uint8_t medium,
			int *results, uint64_t deadline)
{
	struct mcp_key *list = mcs_scratch_raw(sc, n, sizeof(*list));
	struct mcp_tier msg = { .medium = medium, .tenant = s->tenant };
	struct mcp_tier_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;
	unsigned k = 0;
	int r, done = 0;

	if (!list)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		if (mcs_key_good(keys[i]))
			list[k++].key = mcp_bytes(keys[i].data, (uint32_t)keys[i].len);
	msg.keys = mcp_seq(list, k);
	r = mcs_call(s->session, MCP_TIER, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	for (unsigned i = 0; i < n; i++) {
		int one = mcs_key_check(keys[i]);

		if (one == 0)
			one = mcp_iter_next(&it, &st) ? mc_err_from_wire(st.status) :
				mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys");
		if (results)
			results[i] = one;
		done += one == 0;
	}
	mcp_reply_done(&mem);
	return done;
}

int mcs_tier(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned medium, int *results, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_scratch *sc;
	int r = mcs_check_fork(s), done = 0;

	if (r < 0)
		return r;
	if (medium != MCS_IN_MEMORY && medium != MCS_ON_DISK)
		return mc_fail(-MC_EPARAM, "unknown medium 0x%x", medium);
	sc = mcs_scratch_get(&s->scratch);
	if (!sc)
		return -ENOMEM;
	for (unsigned i = 0, k; i < n && r >= 0; i += k) {
		k = mcs_batch_split(n - i, tier_key, keys + i);
		r = tier_request(s, sc, keys + i, k, medium == MCS_ON_DISK ? MCP_MEDIUM_DISK : MCP_MEDIUM_MEMORY,
				 results ? results + i : NULL, deadline);
		done += r > 0 ? r : 0;
	}
	mcs_scratch_put(&s->scratch, sc);
	return r < 0 ? r : done;
}

int mcs_disks_remove(struct mcs *s, int64_t timeout_ms)
{
	int r = mcs_check_fork(s);

	return r < 0 ? r : s->backend->ops->disks_remove(s->backend, mcs_deadline(s, timeout_ms));
}
