/* SPDX-License-Identifier: Apache-2.0
 * copies.c - requests of an owner about copies that it makes for the master. */
#include <config.h>

#include "client/owner/copies.h"

#include "client/direct/put_i.h"
#include "client/layout.h"
#include "common/sys/clock.h"

#define CALL_MS 5000
#define SETTLE_MS 20		/* between two questions whether a WRITE has ended */

static int copies_call(struct mcs_direct *s, uint16_t type, const void *msg, void *reply, struct mcp_reply *mem)
{
	int r = mcs_call_once(s->base.session, type, msg, reply, mem, mc_deadline_ms(CALL_MS));

	/* Copies of a lost reply would keep their ranges as long as the connection lasts. */
	if (r == -MC_ETIMEDOUT)
		mcs_session_taint(s->base.session, mcs_direct_epoch(s));
	return r;
}

int mcs_copies_fetch(struct mcs_direct *s, const struct mcp_task_fetch *msg, struct mcs_copies *ret)
{
	int r = 0;

	/* Connect first: if the fetch connected, its ranges would belong to a later epoch than the one read here. */
	if (!mcs_session_up(s->base.session))
		r = mcs_session_probe(s->base.session, mc_deadline_ms(CALL_MS));
	if (r < 0)
		return r;
	*ret = (struct mcs_copies){
		.epoch = mcs_direct_epoch(s), .fence = mcs_session_terms(s->base.session).fence,
	};
	r = copies_call(s, MCP_TASK_FETCH, msg, &ret->reply, &ret->mem);
	if (r < 0)
		return r;
	mcp_iter_init(&ret->it, &ret->reply.copies, &mcp_desc_copy);
	return 0;
}

static bool copies_replica(const struct mcp_seq *list, struct mcp_replica *ret)
{
	struct mcp_iter it;

	mcp_iter_init(&it, list, &mcp_desc_replica);
	return mcp_iter_next(&it, ret);
}

bool mcs_copies_next(struct mcs_copies *f, struct mcp_copy *ret, struct mcp_replica *ret_from,
		     struct mcp_replica *ret_to)
{
	while (mcp_iter_next(&f->it, ret))
		if (ret->size <= MCS_SIZE_MAX && copies_replica(&ret->from, ret_from) &&
		    copies_replica(&ret->to, ret_to))
			return true;
	return false;
}

bool mcs_copies_settled(struct mcs_direct *s, const struct mcs_seg *dst)
{
	uint64_t deadline = mc_deadline_ms(CALL_MS);

	while (dst && !mce_peer_settle(dst->peer)) {
		if (mc_now_ns() >= deadline) {
			mcs_session_taint(s->base.session, mcs_direct_epoch(s));
			return false;
		}
		mc_sleep_ms(SETTLE_MS);
	}
	return true;
}

int mcs_copies_report(struct mcs_direct *s, const struct mcp_copied *done, unsigned n)
{
	struct mcp_copied_list msg = { .items = mcp_seq(done, n) };
	struct mcp_copied_list_reply reply;
	struct mcp_reply mem = { 0 };
	int r = n ? copies_call(s, MCP_COPIED, &msg, &reply, &mem) : 0;

	mcp_reply_done(&mem);
	return r;
}
