/* SPDX-License-Identifier: Apache-2.0
 * tier.c - copies of objects: copies on another medium, copies to be freed, and the end of this process's disks. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "client/store_i.h"

/* A request about keys whose reply has one status for each.  @keys and @results are those lists of @msg and @reply. */
struct copies_call {
	int op;
	void *msg, *reply;
	struct mcp_seq *keys, *results;
};

static int copies_request(struct mcs *s, struct mcs_scratch *sc, const struct copies_call *call,
			  const struct mcs_key *keys, unsigned n, int *results, uint64_t deadline)
{
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;
	int r, done = 0;

	r = mcs_keys_list(sc, keys, n, call->keys);
	if (r < 0)
		return r;
	r = mcs_call(s->session, call->op, call->msg, call->reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, call->results, &mcp_desc_status);
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

static int copies_ask(struct mcs *s, const struct copies_call *call, const struct mcs_key *keys, unsigned n,
		      int *results, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(&s->scratch);
	int r = 0, done = 0;

	if (!sc)
		return -ENOMEM;
	for (unsigned i = 0, k; i < n && r >= 0; i += k) {
		k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		r = copies_request(s, sc, call, keys + i, k, results ? results + i : NULL, deadline);
		done += r > 0 ? r : 0;
	}
	mcs_scratch_put(&s->scratch, sc);
	return r < 0 ? r : done;
}

int mcs_tier(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned medium, int *results, int64_t timeout_ms)
{
	struct mcp_tier msg = { .tenant = s->tenant };
	struct mcp_tier_reply reply;
	const struct copies_call call = { MCP_TIER, &msg, &reply, &msg.keys, &reply.results };
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (medium != MCS_IN_MEMORY && medium != MCS_IN_FAR_MEMORY && medium != MCS_ON_DISK && medium != MCS_ON_SHARED)
		return mc_fail(-MC_EPARAM, "unknown medium 0x%x", medium);
	while (mcs_medium_flag(msg.medium) != medium)
		msg.medium++;
	return copies_ask(s, &call, keys, n, results, deadline);
}

int mcs_clear_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, const char *segment, int *results,
		    int64_t timeout_ms)
{
	size_t len = segment ? strlen(segment) : 0;
	struct mcp_clear msg = { .segment = mcp_bytes(segment, (uint32_t)len), .tenant = s->tenant };
	struct mcp_clear_reply reply;
	const struct copies_call call = { MCP_CLEAR, &msg, &reply, &msg.keys, &reply.results };
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (len > UINT16_MAX)
		return mc_fail(-MC_EPARAM, "the name of the segment has %zu bytes", len);
	return copies_ask(s, &call, keys, n, results, deadline);
}

int mcs_disks_remove(struct mcs *s, int64_t timeout_ms)
{
	int r = mcs_check_fork(s);

	return r < 0 ? r : s->backend->ops->disks_remove(s->backend, mcs_deadline(s, timeout_ms));
}
