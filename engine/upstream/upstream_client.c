/* SPDX-License-Identifier: Apache-2.0
 * upstream_client.c - upstream's protocol on an outgoing lane.
 *
 * Its server takes any number of requests that follow each other on a connection, and any range inside
 * a region, so the queue, the pieces and the lanes are those of our own peers.  Answers name no request:
 * they belong to the lane's pieces in their order.
 *
 * Version 1 does not answer a WRITE.  As requests are carried out in order, the answer to a READ of the
 * WRITE's last byte tells the same, so one goes out behind each. */
#include <config.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "engine/tcp/tcp_client.h"

static int greet(struct mce_tcp_conn *l, int fd, uint32_t epoch, uint64_t deadline,
		 struct mce_greeting *ret)
{
	ret->window = MCE_WIRE_WINDOW;
	ret->len_max = MCE_WIRE_LEN_MAX;
	return 0;
}

static void pack(struct mce_fragment *pc)
{
	struct mce_up_req q = {
		.size = pc->len, .addr = pc->req->addr + pc->off,
		.op = pc->write ? MCE_UP_WRITE : MCE_UP_READ,
		.v2 = pc->lane->t->p->upstream >= 2,
	};
	struct mce_up_req last = { .size = 1, .addr = q.addr + q.size - 1, .op = MCE_UP_READ };

	mce_up_req_pack(pc->hdr, &q);
	mce_up_req_pack(pc->trail, &last);
}

/* The piece that the next answer is for.  A refusal may come while its WRITE is being sent. */
static int next_piece(struct mce_tcp_conn *l, bool refused, struct mce_fragment **ret)
{
	struct mce_fragment *pc;

	MC_LOCKED(&l->t->p->lock);
	for (struct mc_list *pos = l->pieces.next; pos != &l->pieces; pos = pos->next) {
		pc = mc_container_of(pos, struct mce_fragment, node);
		/* Its end only waits for the call that sends it. */
		if (pc->answered)
			continue;
		if (pc->state == MCE_PIECE_FLYING || (refused && pc->state == MCE_PIECE_SENDING)) {
			*ret = pc;
			return 1;
		}
		break;
	}
	return 0;
}

static int answer1(struct mce_tcp_conn *l, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	if (next_piece(l, false, ret) == 0)
		return mce_rx_have(&l->rx) ? mc_fail(-MC_EPROTO, "answer to no request") : 0;
	if (!(*ret)->write) {
		*ret_len = (*ret)->len;
		return 1;
	}
	if (mce_rx_have(&l->rx) == 0)
		return 0;
	mce_rx_use(&l->rx, 1);
	return 1;
}

static int answer2(struct mce_tcp_conn *l, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	uint32_t code;
	int r;

	r = mce_up_status_unpack(mce_rx_peek(&l->rx), mce_rx_have(&l->rx), &code);
	if (r <= 0)
		return r;
	if (next_piece(l, code != MCE_UP_OK, ret) == 0)
		return mc_fail(-MC_EPROTO, "answer to no request");
	mce_rx_use(&l->rx, (size_t)r);
	if (code != MCE_UP_OK)
		*ret_status = -ERANGE;
	else if (!(*ret)->write)
		*ret_len = (*ret)->len;
	return 1;
}

const struct mce_tcp_proto mce_tcp_proto_upstream1 = {
	.path = MCE_PATH_UPSTREAM,
	.hdr_len = MCE_UP_REQ_SIZE,
	.trail_len = MCE_UP_REQ_SIZE,
	.answer_len = 1,
	.in_order = true,
	.greet = greet,
	.pack = pack,
	.answer = answer1,
};

const struct mce_tcp_proto mce_tcp_proto_upstream2 = {
	.path = MCE_PATH_UPSTREAM,
	.hdr_len = MCE_UP_REQ_SIZE,
	.answer_len = MCE_UP_STATUS_SIZE,
	.in_order = true,
	.greet = greet,
	.pack = pack,
	.answer = answer2,
};

static int attach(struct mce_peer *p)
{
	return mce_tcp_attach(p, p->upstream >= 2 ? &mce_tcp_proto_upstream2 : &mce_tcp_proto_upstream1);
}

const struct mce_transport mce_upstream_transport = {
	.name = "upstream",
	.path = MCE_PATH_UPSTREAM,
	.attach = attach,
	.detach = mce_tcp_detach,
	.connect = mce_tcp_connect,
	.prepare = mce_no_prepare,
	.submit = mce_tcp_submit,
	.submit_run = mce_no_run,
	.flush = mce_tcp_flush,
	.poll = mce_tcp_poll,
	.lead = mce_tcp_lead,
	.cancel = mce_tcp_cancel,
	.map = mce_no_map,
};
