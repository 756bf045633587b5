/* SPDX-License-Identifier: Apache-2.0
 * upstream_client.c - upstream's protocol on an outgoing connection.
 *
 * Its server accepts any number of consecutive requests on a connection, and any range inside a region, so the
 * queue, the fragments and the connections are those of our own peers.  Answers contain no request id: they belong
 * to the connection's fragments in order.
 *
 * Version 1 does not answer a WRITE.  As requests are carried out in order, the answer to a READ of the WRITE's
 * last byte shows that it is stored, so such a READ follows each WRITE. */
#include <config.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "engine/tcp/tcp_client.h"
#include "engine/upstream/upstream_wire.h"

static int upstream_greet(struct mce_tcp_conn *conn, struct mc_stream *s, uint32_t epoch, uint64_t fence,
			  uint64_t deadline, struct mce_greeting *ret)
{
	ret->window = MCE_WIRE_WINDOW;
	ret->len_max = MCE_WIRE_LEN_MAX;
	return 0;
}

static void upstream_pack(struct mce_fragment *frag)
{
	struct mce_up_req q = {
		.size = frag->len, .addr = frag->req->addr + frag->off,
		.op = frag->write ? MCE_UP_WRITE : MCE_UP_READ,
		.v2 = frag->conn->t->p->upstream >= 2,
	};
	struct mce_up_req last = { .size = 1, .addr = q.addr + q.size - 1, .op = MCE_UP_READ };

	_Static_assert(MCE_UP_REQ_SIZE <= MCE_TRAIL_MAX, "trail[] is too small");
	mce_up_req_pack(frag->hdr, &q);
	frag->hdr_len = MCE_UP_REQ_SIZE;
	mce_up_req_pack(frag->trail, &last);
}

/* The fragment that the next answer is for.  A refusal may come while its WRITE is being sent. */
static int upstream_next(struct mce_tcp_conn *conn, bool refused, struct mce_fragment **ret)
{
	struct mce_fragment *frag;

	MC_LOCKED(&conn->t->p->lock);
	for (struct mc_list *pos = conn->fragments.next; pos != &conn->fragments; pos = pos->next) {
		frag = mc_container_of(pos, struct mce_fragment, node);
		/* It is answered already, and ends when the call that sends it returns. */
		if (frag->answered)
			continue;
		if (frag->state == MCE_FRAGMENT_FLYING || (refused && frag->state == MCE_FRAGMENT_SENDING)) {
			*ret = frag;
			return 1;
		}
		break;
	}
	return 0;
}

static int upstream_answer1(struct mce_tcp_conn *conn, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	if (upstream_next(conn, false, ret) == 0)
		return mce_rx_have(&conn->rx) ? mc_fail(-MC_EPROTO, "response without a request") : 0;
	if (!(*ret)->write) {
		*ret_len = (*ret)->len;
		return 1;
	}
	if (mce_rx_have(&conn->rx) == 0)
		return 0;
	mce_rx_use(&conn->rx, 1);
	return 1;
}

static int upstream_answer2(struct mce_tcp_conn *conn, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	uint32_t code;
	int r;

	r = mce_up_status_unpack(mce_rx_peek(&conn->rx), mce_rx_have(&conn->rx), &code);
	if (r <= 0)
		return r;
	if (upstream_next(conn, code != MCE_UP_OK, ret) == 0)
		return mc_fail(-MC_EPROTO, "response without a request");
	mce_rx_use(&conn->rx, (size_t)r);
	if (code != MCE_UP_OK)
		*ret_status = -ERANGE;
	else if (!(*ret)->write)
		*ret_len = (*ret)->len;
	return 1;
}

const struct mce_tcp_proto mce_tcp_proto_upstream1 = {
	.path = MCE_PATH_UPSTREAM,
	.trail_len = MCE_UP_REQ_SIZE,
	.answer_len = 1,
	.in_order = true,
	.greet = upstream_greet,
	.pack = upstream_pack,
	.answer = upstream_answer1,
};

const struct mce_tcp_proto mce_tcp_proto_upstream2 = {
	.path = MCE_PATH_UPSTREAM,
	.answer_len = MCE_UP_STATUS_SIZE,
	.in_order = true,
	.greet = upstream_greet,
	.pack = upstream_pack,
	.answer = upstream_answer2,
};

static int upstream_attach(struct mce_peer *p)
{
	return mce_tcp_attach(p, p->upstream >= 2 ? &mce_tcp_proto_upstream2 : &mce_tcp_proto_upstream1,
			      mc_net_plain());
}

const struct mce_transport mce_upstream_transport = {
	.name = "upstream",
	.path = MCE_PATH_UPSTREAM,
	.distance = MCE_DISTANCE_NETWORK,
	.attach = upstream_attach,
	.detach = mce_tcp_detach,
	.connect = mce_tcp_connect,
	.prepare = mce_no_prepare,
	.submit = mce_tcp_submit,
	.submit_run = mce_no_run,
	.flush = mce_tcp_flush,
	.poll = mce_tcp_poll,
	.lead = mce_tcp_lead,
	.cancel = mce_tcp_cancel,
	.writes_in_doubt = mce_tcp_writes_in_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = mce_no_map,
};
