/* SPDX-License-Identifier: Apache-2.0
 * found.c - versions that were looked up once, for several reads.  Their leases expire at the master, unreleased. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "client/direct/read.h"
#include "common/cleanup.h"

struct direct_found {
	struct mcs_found base;
	struct direct_found_key {
		int result;		/* 0: @v is valid; other than a miss: ask the master again */
		struct mcs_version v;
	} key[];
};

static int found_request(struct mcs_direct *s, const struct mcs_key *keys, unsigned n, struct direct_found *f,
			 struct direct_found_key *ret, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(s->base.scratch);
	struct mcp_get msg = { .flags = MCP_GET_LEASE, .tenant = s->base.tenant };
	uint64_t epoch, asked_ns = mc_now_ns(), until;
	struct mcp_reply mem = { 0 };
	struct mcp_get_reply reply;
	struct mcp_object obj;
	struct mcp_iter it;
	int r = sc ? mcs_keys_list(sc, keys, n, &msg.keys) : -ENOMEM;

	if (r == 0)
		r = mcs_call_pins(s->base.session, MCP_GET, &msg, &reply, &mem, deadline, false, &epoch);
	if (r == 0) {
		mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
		for (unsigned i = 0; i < n; i++) {
			ret[i].result = mcp_iter_next(&it, &obj) ?
				mcs_version_decode(&obj, epoch, asked_ns, &ret[i].v) : -MC_EPROTO;
			until = asked_ns + ret[i].v.lease_ms * MC_NS_PER_MS / 2;
			if (!ret[i].result && ret[i].v.pin.id && until < f->base.until_ns)
				f->base.until_ns = until;
		}
		mcp_reply_done(&mem);
	}
	mcs_scratch_put(s->base.scratch, sc);
	return r;
}

int mcs_direct_find(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_found **ret,
		    uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_of(b);
	uint64_t half = mcs_session_terms(b->session).lease_ttl_ms * MC_NS_PER_MS / 2;
	struct direct_found *f = calloc(1, sizeof(*f) + n * sizeof(f->key[0]));
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->base = (struct mcs_found){ mc_now_ns() + half, b };
	for (unsigned i = 0, k; i < n && r == 0; i += k) {
		k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		r = found_request(s, keys + i, k, f, &f->key[i], deadline);
	}
	if (r < 0)
		free(f);
	else
		*ret = &f->base;
	return r;
}

int mcs_direct_get_found(struct mcs_found *found, const unsigned *which, struct mcs_get_item *items, unsigned n,
			 uint64_t deadline)
{
	struct direct_found *f = mc_container_of(found, struct direct_found, base);
	const struct mcs_version **known = calloc((size_t)n + 1, sizeof(*known));
	int r;

	if (!known)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		const struct direct_found_key *k = &f->key[which[i]];

		known[i] = k->result == 0 ? &k->v : NULL;
		if (k->result == -MC_ENOOBJECT)
			items[i].result = k->result;
	}
	r = mcs_direct_get_known(found->backend, items, known, n, deadline);
	free(known);
	return r;
}
