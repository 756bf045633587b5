/* SPDX-License-Identifier: Apache-2.0
 * tcp_proto.c - our protocol on an outgoing lane: greeting, requests, answers. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "engine/tcp/tcp_client.h"

/* A wait for a greeting looks for the engine's end this often. */
#define CLOSE_LOOK_MS 50

/* ---- greeting ---------------------------------------------------------------------------------- */

/* Send or receive all @len bytes by @deadline. */
static int move_all(struct mce_engine *e, int fd, uint8_t *buf, size_t len, bool out, uint64_t deadline)
{
	struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };
	ssize_t n;
	int ms;

	while (len) {
		n = out ? send(fd, buf, len, MSG_NOSIGNAL) : recv(fd, buf, len, 0);
		if (n == 0)
			return -ECONNRESET;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (mc_now_ns() >= deadline)
			return -ETIMEDOUT;
		if (mce_closing(e))
			return -ECANCELED;
		ms = mc_deadline_left_ms(deadline);
		if (poll(&pfd, 1, ms < CLOSE_LOOK_MS ? ms : CLOSE_LOOK_MS) < 0 && errno != EINTR)
			return -errno;
	}
	return 0;
}

static int greet(struct mce_tcp_conn *l, int fd, uint32_t epoch, uint64_t deadline,
		 struct mce_greeting *ret)
{
	struct mce_engine *e = l->t->p->e;
	struct mce_greeting g = {
		.version = MCE_WIRE_VERSION, .version_min = MCE_WIRE_VERSION_MIN,
		.features = MCE_WIRE_FEATURES, .token = l->t->p->token, .lane = l->idx,
		.epoch = epoch, .id = e->id, .len_max = MCE_WIRE_LEN_MAX, .window = MCE_WIRE_WINDOW,
	};
	uint8_t buf[MCE_GREETING_MAX];
	size_t have = 12, size;
	int r;

	mce_greeting_pack(buf, &g);
	r = move_all(e, fd, buf, MCE_GREETING_SIZE, true, deadline);
	if (r == 0)
		r = move_all(e, fd, buf, have, false, deadline);
	if (r < 0)
		return r;
	r = mce_greeting_unpack(buf, have, ret);
	if (r < 0)
		return mc_fail(r, "not an engine at the other end");
	size = mce_get32(buf + 8);
	r = move_all(e, fd, buf + have, size - have, false, deadline);
	if (r == 0)
		r = mce_greeting_unpack(buf, size, ret);
	if (r < 0)
		return r;
	if (ret->status)
		return mc_fail(mc_err_from_wire(ret->status), "refused by the peer: %s",
			       mc_strerror(mc_err_from_wire(ret->status)));
	if (ret->window == 0 || ret->len_max < MC_CRC_CHUNK)
		return -MC_EPROTO;
	return 0;
}

/* ---- requests and answers ---------------------------------------------------------------------- */

static void pack(struct mce_fragment *pc)
{
	struct mce_req *req = pc->req;
	struct mce_wire_req q = {
		.type = pc->write ? MCE_FRAME_WRITE : MCE_FRAME_READ,
		.id = (uint64_t)pc->gen << 32 | pc->index,
		.len = pc->len, .addr = req->addr + pc->off, .rkey = req->rkey,
		.whole = req->addr, .whole_len = mce_req_span(req), .seq = pc->seq,
	};

	mce_req_pack(pc->hdr, &q);
}

/* The piece that an answer is for, NULL when it makes no sense. */
static struct mce_fragment *answered(struct mce_tcp_conn *l, const struct mce_wire_resp *resp)
{
	struct mce_tcp *t = l->t;
	uint32_t index = (uint32_t)resp->id, gen = (uint32_t)(resp->id >> 32);
	struct mce_fragment *pc;

	MC_LOCKED(&t->p->lock);
	pc = mce_fragment_find_locked(t, index);
	if (!pc || pc->gen != gen || pc->lane != l || pc->state != MCE_PIECE_FLYING || pc->answered)
		return NULL;
	if (pc->write != (resp->type == MCE_FRAME_ACK))
		return NULL;
	if (resp->type == MCE_FRAME_DATA && resp->status == 0 && resp->len != pc->len)
		return NULL;
	return pc;
}

static int acked_upto(struct mce_tcp_conn *l, uint64_t seq)
{
	struct mce_peer *p = l->t->p;
	struct mc_list over;
	int r;

	if (!l->acks_upto)
		return mc_fail(-MC_EPROTO, "answer of a kind that was not agreed on");
	mc_list_init(&over);
	pthread_mutex_lock(&p->lock);
	r = mce_tcp_conn_acked_locked(l, seq, &over);
	pthread_mutex_unlock(&p->lock);
	mce_complete_list(l->t, &over);
	return r < 0 ? r : 1;
}

/* Why the peer refuses a request; not what only this engine can say of one. */
static int refusal(int32_t status)
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

static int answer(struct mce_tcp_conn *l, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status)
{
	struct mce_wire_resp resp;
	int r;

	r = mce_resp_unpack(mce_rx_peek(&l->rx), mce_rx_have(&l->rx), &resp);
	if (r <= 0)
		return r;
	*ret = NULL;
	if (resp.type == MCE_FRAME_ACK_UPTO) {
		mce_rx_use(&l->rx, (size_t)r);
		return acked_upto(l, resp.id);
	}
	*ret = answered(l, &resp);
	if (!*ret)
		return mc_fail(-MC_EPROTO, "answer to no request");
	mce_rx_use(&l->rx, (size_t)r);
	*ret_len = resp.len;
	*ret_status = resp.status ? refusal(resp.status) : 0;
	return 1;
}

const struct mce_tcp_proto mce_tcp_proto_ours = {
	.path = MCE_PATH_TCP,
	.hdr_len = MCE_REQ_SIZE,
	.answer_len = MCE_RESP_SIZE,
	.greet = greet,
	.pack = pack,
	.answer = answer,
};

static int ours_attach(struct mce_peer *p)
{
	return mce_tcp_attach(p, &mce_tcp_proto_ours);
}

const struct mce_transport mce_tcp_transport = {
	.name = "tcp",
	.path = MCE_PATH_TCP,
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
	.map = mce_no_map,
};
