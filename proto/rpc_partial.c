/* SPDX-License-Identifier: Apache-2.0
 * rpc_partial.c - incomplete requests on sockets.  The rest of a request is read when memory is reserved for it
 * (rpc_budget.h); once a second, connections that do not send the rest are looked for and closed. */
#include <config.h>

#include "proto/rpc_conn_i.h"

#include "common/log.h"
#include "common/sys/clock.h"

#define TURN_NS (2 * MC_NS_PER_MS)	/* between checks of connections that wait for memory */
/* Time to complete a request: REST_MS, and a second for every RATE bytes received. */
#define REST_MS 30000u
#define RATE (1u << 20)

MC_COUNTER(given_up, "mooncake_rpc_requests_given_up_total", "", "Requests that were not completed in time")

void mcp_conn_partial_end(struct mcp_conn *c)
{
	mc_list_remove(&c->partial_link);
	mcp_budget_release(&c->s.server->budget, &c->reservation);
}

size_t mcp_conn_request_len(const struct mcp_buf *in)
{
	return MCP_FRAME_HEADER + (in->len >= MCP_FRAME_HEADER ? mcp_get_u32(in->data) : 0);
}

void mcp_conn_tick_in(struct mcp_loop *l, uint64_t ns)
{
	uint64_t due = mc_now_ns() + ns;

	if (!l->tick.due_ns || due < l->tick.due_ns)
		mc_evtimer_arm(l->ev, &l->tick, due);
}

static void partial_begin(struct mcp_conn *c)
{
	c->partial_ns = mc_now_ns();
	c->partial_seen = 0;
	mc_list_remove(&c->partial_link);
	mc_list_push_back(&c->loop->partials, &c->partial_link);
	mcp_conn_tick_in(c->loop, MCP_CONN_CHECK_NS);
}

int mcp_conn_partial_update(struct mcp_conn *c, bool more)
{
	size_t whole = mcp_conn_request_len(&c->in);
	int r;

	/* The unhandled input of a peer that does not read its replies is small compared to these. */
	if (!c->in.len || !mcp_conn_takes_frames(c)) {
		mcp_conn_partial_end(c);
		return 0;
	}
	if (more && c->reservation.bytes == whole)
		return 0;
	r = mcp_budget_reserve(&c->s.server->budget, &c->reservation, c->in.len, whole);
	if (r < 0)
		return r;
	if (r == 0 && !(more && !mc_list_empty(&c->partial_link))) {
		partial_begin(c);
	} else if (r) {
		mc_list_remove(&c->partial_link);
		mc_list_push_back(&c->loop->waiting, &c->partial_link);
		mcp_conn_tick_in(c->loop, TURN_NS);
	}
	return 0;
}

/* Has the peer not completed its request in time?  Not if bytes wait in the socket: then this
 * server may have stalled. */
static bool partial_is_overdue(struct mcp_conn *c, uint64_t now)
{
	uint64_t rest_ns = REST_MS * MC_NS_PER_MS + c->in.len * MC_NS_PER_SEC / RATE;
	bool slow = c->partial_seen && c->in.len - c->partial_seen < RATE;

	c->partial_seen = c->in.len;
	if (now - c->partial_ns < rest_ns && !(slow && atomic_load(&c->s.server->budget.waiting)))
		return false;
	return mc_stream_peek(&c->stream) <= 0;
}

static void partial_admit(struct mcp_loop *l)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &l->waiting) {
		struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, partial_link);

		if (mcp_reservation_waits(&c->reservation))
			continue;
		partial_begin(c);
		if (mcp_conn_read_on(c, true) < 0)
			mcp_conn_close(c);
	}
}

void mcp_conn_tick(struct mc_evtimer *t)
{
	struct mcp_loop *l = mc_container_of(t, struct mcp_loop, tick);
	uint64_t now = mc_now_ns();
	struct mc_list *pos, *tmp;

	partial_admit(l);
	if (now - l->checked_ns >= MCP_CONN_CHECK_NS) {
		l->checked_ns = now;
		mc_list_for_each_safe(pos, tmp, &l->partials) {
			struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, partial_link);

			if (!partial_is_overdue(c, now))
				continue;
			mc_metric_add(&given_up, 1);
			mc_warn("rpc", "closing a connection: a request was not completed in time peer=%s",
				c->s.peer);
			mcp_conn_close(c);
		}
		mcp_conn_check_unread(l);
	}
	if (!mc_list_empty(&l->waiting))
		mcp_conn_tick_in(l, TURN_NS);
	else if (!mc_list_empty(&l->partials) || !mc_list_empty(&l->unread))
		mcp_conn_tick_in(l, MCP_CONN_CHECK_NS);
}
