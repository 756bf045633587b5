/* SPDX-License-Identifier: Apache-2.0
 * rpc_part.c - requests of which only a part has come.  The rest is read when there is room for it (rpc_room.h); who
 * then does not send it is looked for once a second. */
#include <config.h>

#include "proto/rpc_conn_i.h"

#include "common/clock.h"
#include "common/log.h"

#define TURN_NS (2 * MC_NS_PER_MS)	/* between looks at those that wait for room */
#define REST_MS 30000u		/* for a request to come whole, and for each of RATE bytes a second more */
#define RATE (1u << 20)

MC_COUNTER(given_up, "mooncake_rpc_requests_given_up_total", "", "Requests of which the rest did not come")

void mcp_conn_part_over(struct mcp_conn *c)
{
	mc_list_remove(&c->part_link);
	mcp_room_give(&c->s.server->room, &c->share);
}

size_t mcp_conn_whole(const struct mcp_buf *in)
{
	return MCP_FRAME_HEADER + (in->len >= MCP_FRAME_HEADER ? mcp_get_u32(in->data) : 0);
}

void mcp_conn_look_in(struct mcp_loop *l, uint64_t ns)
{
	uint64_t due = mc_now_ns() + ns;

	if (!l->tick.due_ns || due < l->tick.due_ns)
		mc_evtimer_arm(l->ev, &l->tick, due);
}

static void part_begins(struct mcp_conn *c)
{
	c->part_ns = mc_now_ns();
	c->part_seen = 0;
	mc_list_remove(&c->part_link);
	mc_list_push_back(&c->loop->parts, &c->part_link);
	mcp_conn_look_in(c->loop, MCP_CONN_LOOK_NS);
}

int mcp_conn_part(struct mcp_conn *c, bool more)
{
	size_t whole = mcp_conn_whole(&c->in);
	int r;

	/* What is there of a peer that does not read its replies is little beside those. */
	if (!c->in.len || !mcp_conn_takes_frames(c)) {
		mcp_conn_part_over(c);
		return 0;
	}
	if (more && c->share.bytes == whole)
		return 0;
	r = mcp_room_take(&c->s.server->room, &c->share, c->in.len, whole);
	if (r < 0)
		return r;
	if (r == 0 && !(more && !mc_list_empty(&c->part_link))) {
		part_begins(c);
	} else if (r) {
		mc_list_remove(&c->part_link);
		mc_list_push_back(&c->loop->waiters, &c->part_link);
		mcp_conn_look_in(c->loop, TURN_NS);
	}
	return 0;
}

/* Has it not come for too long?  What is in the socket has come: maybe it was this server that stood still. */
static bool overdue(struct mcp_conn *c, uint64_t now)
{
	uint64_t rest_ns = REST_MS * MC_NS_PER_MS + c->in.len * MC_NS_PER_SEC / RATE;
	bool slow = c->part_seen && c->in.len - c->part_seen < RATE;

	c->part_seen = c->in.len;
	if (now - c->part_ns < rest_ns && !(slow && atomic_load(&c->s.server->room.waiting)))
		return false;
	return mc_stream_peek(&c->stream) <= 0;
}

static void let_in(struct mcp_loop *l)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &l->waiters) {
		struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, part_link);

		if (mcp_share_waits(&c->share))
			continue;
		part_begins(c);
		if (mcp_conn_read_on(c, true) < 0)
			mcp_conn_close(c);
	}
}

void mcp_conn_tick(struct mc_evtimer *t)
{
	struct mcp_loop *l = mc_container_of(t, struct mcp_loop, tick);
	uint64_t now = mc_now_ns();
	struct mc_list *pos, *tmp;

	let_in(l);
	if (now - l->looked_ns >= MCP_CONN_LOOK_NS) {
		l->looked_ns = now;
		mc_list_for_each_safe(pos, tmp, &l->parts) {
			struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, part_link);

			if (!overdue(c, now))
				continue;
			mc_metric_add(&given_up, 1);
			mc_warn("rpc", "closing a connection: the rest of a request does not come peer=%s",
				c->s.peer);
			mcp_conn_close(c);
		}
		mcp_conn_look_unread(l);
	}
	if (!mc_list_empty(&l->waiters))
		mcp_conn_look_in(l, TURN_NS);
	else if (!mc_list_empty(&l->parts) || !mc_list_empty(&l->unread))
		mcp_conn_look_in(l, MCP_CONN_LOOK_NS);
}
