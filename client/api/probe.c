/* SPDX-License-Identifier: Apache-2.0
 * probe.c - existence of objects without leases.  The master answers it for both back ends. */
#include <config.h>

#include <errno.h>

#include "client/store_i.h"

static int probe_request(struct mcs *s, struct mcs_scratch *sc, const struct mcs_key *keys, unsigned n,
			 uint8_t *present, uint64_t deadline)
{
	struct mcp_exist msg = { .flags = MCP_EXIST_PEEK, .tenant = s->tenant };
	struct mcs_patience owner = { 0 };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	const uint8_t *answer;
	int r, found = 0;

	r = mcs_keys_list(sc, keys, n, &msg.keys);
	if (r < 0)
		return r;
	do
		r = mcs_call(s->session, MCP_EXIST, &msg, &reply, &mem, deadline);
	while (r == -MC_ENOTREADY && mcs_session_await_owner(s->session, &owner, deadline));
	if (r < 0)
		return r;
	if (reply.present.len != msg.keys.count)
		r = mc_fail(-MC_EPROTO, "protocol error: reply has %u results for %u keys", reply.present.len,
			    msg.keys.count);
	answer = reply.present.data;
	/* An invalid key cannot exist. */
	for (unsigned i = 0; i < n && r == 0; i++) {
		present[i] = mcs_key_good(keys[i]) && *answer++ == 1;
		found += present[i];
	}
	mcp_reply_done(&mem);
	return r < 0 ? r : found;
}

int mcs_probe(struct mcs *s, const struct mcs_key *keys, unsigned n, uint8_t *present, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_scratch *sc;
	int r = mcs_check_fork(s), found = 0;

	if (r < 0)
		return r;
	sc = mcs_scratch_get(&s->scratch);
	if (!sc)
		return -ENOMEM;
	for (unsigned i = 0, k; i < n && r >= 0; i += k) {
		k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		r = probe_request(s, sc, keys + i, k, present + i, deadline);
		found += r > 0 ? r : 0;
	}
	mcs_scratch_put(&s->scratch, sc);
	return r < 0 ? r : found;
}
