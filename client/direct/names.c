/* SPDX-License-Identifier: Apache-2.0
 * names.c - requests to the master about keys that move no bytes: stat, exist, remove. */
#include <config.h>

#include <errno.h>

#include "client/direct/read.h"

int mcs_direct_stat_once(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline)
{
	struct mcp_key one = { mcp_bytes(key.data, (uint32_t)key.len) };
	struct mcp_get msg = { .keys = mcp_seq(&one, 1), .tenant = b->tenant };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcs_version v;
	struct mcp_object obj;
	struct mcp_iter it;
	int r;

	r = mcs_call(b->session, MCP_GET, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	r = mcp_iter_next(&it, &obj) ? mcs_version_decode(&obj, 0, 0, &v) :
		mc_fail(-MC_EPROTO, "protocol error: reply without a result");
	mcp_reply_done(&mem);
	if (!r)
		*ret = v.info;
	return r;
}

int mcs_direct_stat(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline)
{
	struct mcs_patience owner = { 0 };
	int r;

	do
		r = mcs_direct_stat_once(b, key, ret, deadline);
	while (r == -MC_ENOTREADY && mcs_session_await_owner(b->session, &owner, deadline));
	return r;
}

static int stat_request(struct mcs_direct *s, struct mcs_scratch *sc, const struct mcs_key *keys, unsigned n,
			struct mcs_info *infos, int *results, uint64_t deadline)
{
	struct mcp_get msg = { .flags = MCP_GET_DIRS, .tenant = s->base.tenant };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcs_version v;
	struct mcp_object obj;
	struct mcp_iter it;
	int r, count = 0;

	r = mcs_keys_list(sc, keys, n, &msg.keys);
	if (r < 0)
		return r;
	r = mcs_call(s->base.session, MCP_GET, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n; i++) {
		r = mcs_key_check(keys[i]);
		if (!r)
			r = mcp_iter_next(&it, &obj) ? mcs_version_decode(&obj, 0, 0, &v) :
				mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys");
		results[i] = r;
		if (r < 0)
			continue;
		infos[i] = v.info;
		count++;
	}
	mcp_reply_done(&mem);
	return count;
}

static bool stat_not_ready(const int *results, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (results[i] == -MC_ENOTREADY)
			return true;
	return false;
}

int mcs_direct_stat_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			  int *results, uint64_t deadline)
{
	struct mcs_patience owner = { 0 };
	int r, count = 0;

	for (unsigned i = 0; i < n;) {
		unsigned k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		struct mcs_scratch *sc = mcs_scratch_get(b->scratch);

		r = sc ? stat_request(mcs_direct_of(b), sc, keys + i, k, infos + i, results + i, deadline) : -ENOMEM;
		mcs_scratch_put(b->scratch, sc);
		if (r < 0)
			return r;
		if (stat_not_ready(results + i, k) && mcs_session_await_owner(b->session, &owner, deadline))
			continue;
		count += r;
		i += k;
	}
	return count;
}

/* ---- exist ---- */

/* A large request is split, so that the master works on one part while the next is sent. */
#define EXIST_WINDOW 4
#define EXIST_PART_MIN 512

struct exist_part {
	const struct mcs_key *keys;
	uint8_t *present;
	unsigned n, asked;		/* keys; valid keys */
	bool sent;			/* @ticket has a request */
	struct mcp_ticket ticket;
};

static int exist_answer(const struct exist_part *p, const struct mcp_exist_reply *reply)
{
	const uint8_t *answer = reply->present.data;
	unsigned k = 0;
	int count = 0;

	if (reply->present.len != p->asked)
		return mc_fail(-MC_EPROTO, "protocol error: reply has %u results for %u keys",
			       reply->present.len, p->asked);
	/* An invalid key cannot exist. */
	for (unsigned i = 0; i < p->n; i++) {
		p->present[i] = mcs_key_good(p->keys[i]) && answer[k++] == 1;
		count += p->present[i];
	}
	return count;
}

/* Send the request, and wait for the reply unless there is a @ticket. */
static int exist_ask(struct mcs_direct *s, struct exist_part *p, struct mcp_exist_reply *reply,
		     struct mcp_reply *mem, struct mcp_ticket *ticket, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(s->base.scratch);
	struct mcp_exist msg = { .tenant = s->base.tenant };
	int r = sc ? mcs_keys_list(sc, p->keys, p->n, &msg.keys) : -ENOMEM;

	p->asked = msg.keys.count;
	if (!r)
		r = ticket ? mcs_call_start(s->base.session, MCP_EXIST, &msg, ticket, deadline) :
			mcs_call(s->base.session, MCP_EXIST, &msg, reply, mem, deadline);
	mcs_scratch_put(s->base.scratch, sc);
	return r;
}

/* Wait for the reply to one part: the number of present keys.  Repeats a request that was lost or came too
 * early. */
static int exist_finish(struct mcs_direct *s, struct exist_part *p, uint64_t deadline)
{
	struct mcp_reply mem = { 0 };
	struct mcp_exist_reply reply;
	int r = -MC_ERPC;

	if (p->sent)
		r = mcs_call_wait(s->base.session, p->ticket, &reply, &mem, deadline);
	if (r == -MC_ERPC || r == -MC_ENOTREADY)
		r = exist_ask(s, p, &reply, &mem, NULL, deadline);
	if (r < 0)
		return r;
	r = exist_answer(p, &reply);
	mcp_reply_done(&mem);
	return r;
}

int mcs_direct_exist(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t *present,
		     uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_of(b);
	unsigned most = n / EXIST_WINDOW < EXIST_PART_MIN ? EXIST_PART_MIN : n / EXIST_WINDOW + 1;
	unsigned asked = 0, begun = 0, done = 0;
	struct exist_part part[EXIST_WINDOW], *p;
	int r, count = 0, bad = 0;

	for (;;) {
		while (asked < n && begun - done < EXIST_WINDOW && !bad) {
			p = &part[begun++ % EXIST_WINDOW];
			*p = (struct exist_part){ .keys = keys + asked, .present = present + asked };
			p->n = mcs_batch_split(n - asked < most ? n - asked : most, p->keys, sizeof(*keys));
			asked += p->n;
			if (p->n < n)
				p->sent = exist_ask(s, p, NULL, NULL, &p->ticket, deadline) == 0;
		}
		if (begun == done)
			return bad ? bad : count;
		/* Also after a failure, wait for each ticket. */
		p = &part[done++ % EXIST_WINDOW];
		if (bad && !p->sent)
			continue;
		r = exist_finish(s, p, deadline);
		count += r > 0 ? r : 0;
		bad = bad ? bad : r < 0 ? r : 0;
	}
}

/* ---- remove ---- */

/* Send one request.  *lost: the first attempt may have been carried out before its reply was lost. */
static int remove_call(struct mcs_direct *s, const struct mcp_remove *msg, struct mcp_remove_reply *reply,
		       struct mcp_reply *mem, bool *lost, uint64_t deadline)
{
	int r;

	*lost = false;
	r = mcs_call_once(s->base.session, MCP_REMOVE, msg, reply, mem, deadline);
	if (r != -MC_ERPC)
		return r;
	*lost = true;
	return mcs_call(s->base.session, MCP_REMOVE, msg, reply, mem, deadline);
}

static int remove_request(struct mcs_direct *s, struct mcs_scratch *sc, const struct mcs_key *keys,
			  unsigned n, unsigned flags, int *results, uint64_t deadline)
{
	struct mcp_remove msg = { .flags = flags, .tenant = s->base.tenant };
	struct mcp_remove_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;
	int r, count = 0;
	bool lost;

	r = mcs_keys_list(sc, keys, n, &msg.keys);
	if (r < 0)
		return r;
	r = remove_call(s, &msg, &reply, &mem, &lost, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	for (unsigned i = 0; i < n; i++) {
		r = mcs_key_check(keys[i]);
		if (!r && !mcp_iter_next(&it, &st))
			r = mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys");
		else if (!r)
			r = mc_err_from_wire(st.status);
		/* A retry may miss the key because the first attempt removed it. */
		if (r == -MC_ENOOBJECT && lost)
			r = 0;
		results[i] = r;
		count += !r;
	}
	mcp_reply_done(&mem);
	return count;
}

int mcs_direct_remove_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			    int *results, uint64_t deadline)
{
	int r, count = 0;

	for (unsigned i = 0; i < n;) {
		unsigned k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		struct mcs_scratch *sc = mcs_scratch_get(b->scratch);
		int *res = sc ? mcs_scratch_raw(sc, k, sizeof(*res)) : NULL;

		r = res ? remove_request(mcs_direct_of(b), sc, keys + i, k, flags, res, deadline) : -ENOMEM;
		for (unsigned j = 0; j < k && results; j++)
			results[i + j] = r < 0 ? r : res[j];
		mcs_scratch_put(b->scratch, sc);
		i += k;
		if (r < 0) {
			for (; i < n && results; i++)
				results[i] = r;
			return count ? count : r;
		}
		count += r;
	}
	return count;
}
