/* SPDX-License-Identifier: Apache-2.0
 * tcp_proto.c - our protocol on an outgoing connection: greeting, requests, answers. */
#include <config.h>

#include <errno.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/tcp/tcp_client.h"

/* ---- greeting ---------------------------------------------------------------------------------- */

int mce_tcp_greet(struct mce_engine *e, struct mc_stream *s, struct mce_greeting *g, uint64_t deadline,
		  struct mce_greeting *ret)
{
	uint8_t buf[MCE_GREETING_MAX];
	size_t have = 12, size;
	int r;

	g->version = MCE_WIRE_VERSION;
	g->version_min = MCE_WIRE_VERSION_MIN;
	g->id = e->id;
	g->len_max = MCE_WIRE_LEN_MAX;
	g->window = MCE_WIRE_WINDOW;
	mce_greeting_pack(buf, g);
	r = mce_move_all(e, s, buf, MCE_GREETING_SIZE, true, deadline);
	if (r == 0)
		r = mce_move_all(e, s, buf, have, false, deadline);
	if (r < 0)
		return r;
	r = mce_greeting_unpack(buf, have, ret);
	if (r < 0)
		return mc_fail(r, "the other end is not an engine");
	size = mce_get32(buf + 8);
	r = mce_move_all(e, s, buf + have, size - have, false, deadline);
	if (r == 0)
		r = mce_greeting_unpack(buf, size, ret);
	if (r < 0)
		return r;
	if (ret->status)
		return mc_fail(mc_err_from_wire(ret->status), "refused by the peer: %s",
			       mc_strerror(mc_err_from_wire(ret->status)));
	return ret->window == 0 || ret->len_max < MC_CRC_CHUNK ? -MC_EPROTO : 0;
}

static int ours_greet(struct mce_tcp_conn *conn, struct mc_stream *s, uint32_t epoch, uint64_t fence,
		      uint64_t deadline, struct mce_greeting *ret)
{
	struct mce_greeting g = {
		.features = mce_wire_features(conn->t->p->e), .token = conn->t->p->token, .conn = conn->idx,
		.epoch = epoch, .fence = fence,
	};

	return mce_tcp_greet(conn->t->p->e, s, &g, deadline, ret);
}

/* ---- requests and answers ---------------------------------------------------------------------- */

static void ours_pack(struct mce_fragment *frag)
{
	struct mce_req *req = frag->req;
	struct mce_wire_req q = {
		.type = frag->write ? MCE_FRAME_WRITE : MCE_FRAME_READ,
		.id = (uint64_t)frag->gen << 32 | frag->index,
		.len = frag->len, .addr = req->addr + frag->off, .rkey = req->rkey,
		.whole = req->addr, .whole_len = mce_req_span(req), .seq = frag->seq,
	};

	mce_req_pack(frag->hdr, &q);
	frag->hdr_len = MCE_REQ_SIZE;
	if (req->cap && frag->conn->caps) {
		mce_req_pack_cap(frag->hdr, req->cap);
		frag->hdr_len = MCE_REQ_CAP_SIZE;
	}
}

/* The fragment that an answer is for, NULL when there is none. */
static struct mce_fragment *ours_answered(struct mce_tcp_conn *conn, const struct mce_wire_resp *resp)
{
	struct mce_tcp *t = conn->t;
	uint32_t index = (uint32_t)resp->id, gen = (uint32_t)(resp->id >> 32);
	struct mce_fragment *frag;

	MC_LOCKED(&t->p->lock);
	frag = mce_fragment_find_locked(t, index);
	if (!frag || frag->gen != gen || frag->conn != conn || frag->state != MCE_FRAGMENT_FLYING || frag->answered)
		return NULL;
	if (frag->write != (resp->type == MCE_FRAME_ACK))
		return NULL;
	if (resp->type == MCE_FRAME_DATA && resp->status == 0 && resp->len != frag->len)
		return NULL;
	return frag;
}

static int ours_acked_upto(struct mce_tcp_conn *conn, uint64_t seq)
{
	struct mce_peer *p = conn->t->p;
	struct mc_list over;
	int r;

	if (!conn->acks_upto)
		return mc_fail(-MC_EPROTO, "response of a kind that was not negotiated");
	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	r = mce_tcp_conn_acked_locked(conn, seq, &over);
	mc_mutex_unlock(&p->lock);
	mce_complete_list(conn->t, &over);
	return r < 0 ? r : 1;
}

/* The status with which the peer refuses a request; statuses that only this engine may set are replaced. */
static int ours_refusal(int32_t status)
{
	int err = mc_err_from_wire(status);

	switch (err) {
	case -EAGAIN:
	case -ECANCELED:
	case -MC_ETIMEDOUT:
	case -MC_ENOTSUP:
		return -MC_EINTERNAL;
	default:
		return err;
	}
}

static int ours_answer(struct mce_tcp_conn *conn, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	struct mce_wire_resp resp;
	int r;

	r = mce_resp_unpack(mce_rx_peek(&conn->rx), mce_rx_have(&conn->rx), &resp);
	if (r <= 0)
		return r;
	*ret = NULL;
	if (resp.type == MCE_FRAME_ACK_UPTO) {
		mce_rx_use(&conn->rx, (size_t)r);
		return ours_acked_upto(conn, resp.id);
	}
	*ret = ours_answered(conn, &resp);
	if (!*ret)
		return mc_fail(-MC_EPROTO, "response with unknown request id");
	mce_rx_use(&conn->rx, (size_t)r);
	*ret_len = resp.len;
	*ret_status = resp.status ? ours_refusal(resp.status) : 0;
	if (*ret_status == -MC_ESTALE_PUT)
		__atomic_store_n(&conn->t->p->e->refused_fence, conn->fence, __ATOMIC_RELAXED);
	return 1;
}

const struct mce_tcp_proto mce_tcp_proto_ours = {
	.path = MCE_PATH_TCP,
	.answer_len = MCE_RESP_SIZE,
	.greets = true,
	.greet = ours_greet,
	.pack = ours_pack,
	.answer = ours_answer,
};

static int ours_attach(struct mce_peer *p)
{
	int r = mce_tcp_attach(p, &mce_tcp_proto_ours, p->e->conf.net);

	if (r == 0)
		mce_fence_take_locked(p);
	return r;
}

const struct mce_transport mce_tcp_transport = {
	.name = "tcp",
	.path = MCE_PATH_TCP,
	.distance = MCE_DISTANCE_NETWORK,
	.attach = ours_attach,
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
	.note_doubts = mce_tcp_note_doubts,
	.keep_doubts = mce_tcp_keep_doubts,
	.new_fence = mce_tcp_new_fence,
	.map = mce_no_map,
};
