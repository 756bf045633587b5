/* SPDX-License-Identifier: Apache-2.0
 * tcp_serve.c - serving the requests of one incoming connection.
 *
 * A WRITE is received straight into its region and acknowledged when its last byte is stored; a READ's answer
 * is sent straight from the region.  Every request is checked against one region before a byte of it
 * moves.  The ring of answers bounds the requests in flight on a connection: while it is full no more bytes are
 * read, and the client's window is no larger. */
#include <config.h>

#include <errno.h>
#include <sys/socket.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "engine/peers_bytes.h"
#include "engine/tcp/tcp_server.h"

/* A refused client may continue to send for this time. */
#define LINGER_MS 2000
/* Bytes received before answers are sent again, and before the other connections have their turn. */
#define QUANTUM (512u << 10)
#define TURN (4u << 20)
#define SEND_MAX (1u << 20)
#define SEND_ANSWERS 128u

/* ---- answers ----------------------------------------------------------------------------------- */

struct mce_answer *mce_serve_answer(struct mce_serve_conn *c)
{
	struct mce_answer *a = &c->ring[(c->head + c->n++) % MCE_WIRE_WINDOW];

	a->upto = false;
	a->read = NULL;
	return a;
}

void mce_serve_answer_write(struct mce_serve_conn *c, uint64_t id, int status)
{
	struct mce_answer *a = mce_serve_answer(c);
	struct mce_wire_resp resp = {
		.type = MCE_FRAME_ACK, .id = id, .status = status < 0 ? mc_err_to_wire(status) : 0,
	};

	a->id = id;
	a->at = NULL;
	a->len = 0;
	a->mr = NULL;
	a->hlen = MCE_RESP_SIZE;
	mce_resp_pack(a->hdr, &resp);
}

static void serve_answer(struct mce_serve_conn *c, int status, const uint8_t *at, uint32_t len, struct mce_mr *mr)
{
	struct mce_answer *a = mce_serve_answer(c);
	struct mce_wire_resp resp = {
		.type = MCE_FRAME_DATA, .id = c->req.id, .len = len, .status = status < 0 ? mc_err_to_wire(status) : 0,
	};

	a->id = c->req.id;
	a->at = at;
	a->len = len;
	a->mr = mr;
	a->hlen = MCE_RESP_SIZE;
	mce_resp_pack(a->hdr, &resp);
}

void mce_serve_answer_read(struct mce_serve_conn *c, uint64_t id, int status, const void *at, uint32_t len,
			   struct mce_medium_read *read)
{
	struct mce_answer *a = mce_serve_answer(c);
	struct mce_wire_resp resp = {
		.type = MCE_FRAME_DATA, .id = id, .len = len, .status = status < 0 ? mc_err_to_wire(status) : 0,
	};

	a->id = id;
	a->at = at;
	a->len = len;
	a->mr = NULL;
	a->read = read;
	a->hlen = MCE_RESP_SIZE;
	mce_resp_pack(a->hdr, &resp);
}

/* The WRITE is stored, and the WRITEs before it are stored or refused.  If the last answer in the ring is an ACK_UPTO
 * of which no byte is sent, extend it to this WRITE. */
void mce_serve_acknowledge(struct mce_serve_conn *c, uint64_t seq)
{
	struct mce_wire_resp resp = { .type = MCE_FRAME_ACK_UPTO, .id = seq };
	struct mce_answer *a = &c->ring[(c->head + c->n - 1) % MCE_WIRE_WINDOW];

	if (c->n == 0 || !a->upto || (c->n == 1 && c->tx_off))
		a = mce_serve_answer(c);
	a->id = resp.id;
	a->at = NULL;
	a->len = 0;
	a->mr = NULL;
	a->hlen = MCE_RESP_SIZE;
	a->upto = true;
	mce_resp_pack(a->hdr, &resp);
}

static void answers_pop(struct mce_serve_conn *c)
{
	struct mce_answer *a = &c->ring[c->head];

	if (a->mr)
		mce_mr_unref(a->mr);
	a->mr = NULL;
	if (a->read)
		mce_medium_read_end(a->read);
	a->read = NULL;
	c->head = (c->head + 1) % MCE_WIRE_WINDOW;
	c->n--;
	c->tx_off = 0;
}

static void answers_sent(struct mce_serve_conn *c, size_t sent)
{
	c->tx_moved += sent;
	while (sent) {
		uint64_t left = c->ring[c->head].hlen + c->ring[c->head].len - c->tx_off;

		if (sent < left) {
			c->tx_off += sent;
			return;
		}
		sent -= left;
		answers_pop(c);
	}
}

static unsigned answers_gather(struct mce_serve_conn *c, struct iovec *iov)
{
	unsigned n = 0;
	size_t bytes = 0;

	for (uint32_t i = 0; i < c->n && i < SEND_ANSWERS && bytes < SEND_MAX; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];
		uint64_t off = i == 0 ? c->tx_off : 0, skip, take;

		if (off < a->hlen) {
			iov[n].iov_base = a->hdr + off;
			iov[n++].iov_len = a->hlen - off;
		}
		skip = off > a->hlen ? off - a->hlen : 0;
		if (a->len > skip) {
			take = a->len - skip < SEND_MAX ? a->len - skip : SEND_MAX;
			iov[n].iov_base = (void *)(uintptr_t)(a->at + skip);
			iov[n++].iov_len = take;
			bytes += take;
			/* The next answer must follow the rest of this one. */
			if (take < a->len - skip)
				break;
		}
	}
	return n;
}

/* No byte of the answer is sent: replace it with @status. */
static void answer_retract(struct mce_answer *a, int status)
{
	struct mce_wire_resp resp = {
		.type = MCE_FRAME_DATA, .id = a->id, .status = mc_err_to_wire(status),
	};

	mce_mr_unref(a->mr);
	a->mr = NULL;
	a->len = 0;
	mce_resp_pack(a->hdr, &resp);
}

/* Some gathered bytes cannot be read.  0 when the answers with such bytes were replaced with errors.  Else close
 * the connection, because such an answer is partly sent or the protocol has no error: a client that asks again
 * gets the error. */
static int answers_lost(struct mce_serve_conn *c)
{
	uint64_t bytes = 0;
	int r = -EFAULT;

	for (uint32_t i = 0; i < c->n && bytes < SEND_MAX; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];

		bytes += a->len;
		if (!a->mr || mce_user_readable(c->io, a->at, a->len))
			continue;
		__atomic_store_n(&a->mr->holes, true, __ATOMIC_RELAXED);
		if (c->upstream || (i == 0 && c->tx_off))
			return -EFAULT;
		answer_retract(a, -MC_ETRANSFER);
		r = 0;
	}
	return r;
}

/* Bytes sent, -EAGAIN, or the error that ends the connection. */
static ssize_t serve_send(struct mce_serve_conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	ssize_t sent;

	mce_peers_bytes_begin();
	do
		sent = sendmsg(c->evfd.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	mce_peers_bytes_end();
	if (sent < 0 && errno == EAGAIN)
		c->tx_blocked = true;
	return sent < 0 ? -errno : sent;
}

static int serve_send_greeting(struct mce_serve_conn *c)
{
	struct iovec iov;
	ssize_t n;

	iov.iov_base = c->greeting + (MCE_GREETING_SIZE - c->greeting_left);
	iov.iov_len = c->greeting_left;
	n = serve_send(c, &iov, 1);
	if (n < 0)
		return (int)n;
	c->greeting_left -= (uint32_t)n;
	c->tx_moved += (size_t)n;
	return 0;
}

/* A refusal is sent.  While bytes of the peer are unread, a close would reset the connection, and the
 * peer might never see the reason. */
static void serve_linger(struct mce_serve_conn *c)
{
	shutdown(c->evfd.fd, SHUT_WR);
	c->lingering = true;
	c->linger_until_ms = mc_now_ms() + LINGER_MS;
}

static int serve_send_answers(struct mce_serve_conn *c)
{
	struct iovec iov[2 * SEND_ANSWERS];
	ssize_t n;
	int r = 0;

	while (c->greeting_left && r == 0)
		r = serve_send_greeting(c);
	while (r == 0 && c->n) {
		n = serve_send(c, iov, answers_gather(c, iov));
		if (n == -EFAULT)
			r = answers_lost(c);
		else if (n < 0)
			r = (int)n;
		else
			answers_sent(c, (size_t)n);
	}
	if (r == 0 && c->closing) {
		/* A version 1 client learns of a refusal only by a reset. */
		if (c->upstream && !c->up.v2)
			return -ECONNRESET;
		serve_linger(c);
	}
	return r == -EAGAIN ? 0 : r;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static void serve_refuse_payload(struct mce_serve_conn *c, int status)
{
	if (c->mr)
		mce_mr_unref(c->mr);
	c->mr = NULL;
	c->gpu_dst = NULL;
	c->status = status;
}

/* A region that is not memory: begin to read it.  The caller answers with the error. */
static int serve_begin_medium(struct mce_serve_conn *c)
{
	const struct mce_wire_req *q = &c->req;
	struct mce_mr *mr;
	int r;

	r = mce_mr_get(c->io->e, q->rkey, q->whole, q->whole_len, MCE_ACCESS_MEDIUM, &mr);
	if (r < 0)
		return r;
	r = mce_serve_medium(c, mr, q->id, q->addr - mr->base, q->len);
	if (r < 0)
		mce_mr_unref(mr);
	return r;
}

static int serve_find_region(struct mce_serve_conn *c, unsigned access, struct mce_mr **ret)
{
	const struct mce_wire_req *q = &c->req;
	int r;

	r = mce_range_check(q->whole, q->whole_len, q->addr, q->len);
	if (r == 0)
		r = mce_mr_get(c->io->e, q->rkey, q->whole, q->whole_len, access, ret);
	return r;
}

static void serve_begin_write(struct mce_serve_conn *c)
{
	struct mce_wire_req *q = &c->req;
	int r;

	c->status = c->read_only ? -MC_ESTALE_PUT : serve_find_region(c, MCE_ACCESS_WRITE, &c->mr);
	if (c->status < 0)
		c->mr = NULL;
	c->dst = (uint8_t *)(uintptr_t)q->addr;
	c->left = q->len;
	c->rx.small = q->len <= MCE_RX_SMALL;
	c->writing = true;
	/* Answers keep the order of the WRITEs. */
	if (!c->mr || c->mr->gpu < 0) {
		mce_gpu_flush(c);
		return;
	}
	r = mce_gpu_write_begin(c, q->addr, q->len);
	if (r < 0)
		serve_refuse_payload(c, r);
}

static void serve_begin_read(struct mce_serve_conn *c)
{
	struct mce_wire_req *q = &c->req;
	struct mce_mr *mr;
	int r;

	mce_gpu_flush(c);
	r = serve_find_region(c, MCE_ACCESS_READ, &mr);
	if (r == 0 && mr->gpu >= 0) {
		r = mce_serve_medium(c, mr, q->id, q->addr - mr->base, q->len);
		if (r == 0)
			return;
		mce_mr_unref(mr);
	}
	if (r == 0 && __atomic_load_n(&mr->holes, __ATOMIC_RELAXED) &&
	    !mce_user_readable(c->io, (const void *)(uintptr_t)q->addr, q->len)) {
		mce_mr_unref(mr);
		r = -MC_ETRANSFER;
	}
	if (r == -EACCES && serve_begin_medium(c) == 0)
		return;
	if (r < 0)
		serve_answer(c, r, NULL, 0, NULL);
	else
		serve_answer(c, 0, (const uint8_t *)(uintptr_t)q->addr, q->len, mr);
}

static void serve_end_write(struct mce_serve_conn *c)
{
	if (c->upstream) {
		mce_upstream_end_write(c);
		return;
	}
	if (c->mr && c->gpu_dst) {
		mce_gpu_write_end(c);
		return;
	}
	/* The bytes are stored before the answer is sent, so the region may be released now. */
	if (c->mr)
		mce_mr_unref(c->mr);
	c->mr = NULL;
	c->writing = false;
	if (c->acks_upto && c->req.seq && c->status == 0)
		mce_serve_acknowledge(c, c->req.seq);
	else
		mce_serve_answer_write(c, c->req.id, c->status);
}

/* Payload that was received together with the header. */
static ssize_t serve_take_buffered(struct mce_serve_conn *c)
{
	size_t n = mce_rx_have(&c->rx) < c->left ? mce_rx_have(&c->rx) : c->left;
	ssize_t got;

	if (mce_mr_is_plain(c->mr))
		return (ssize_t)mce_rx_copy(&c->rx, c->dst, n);
	got = mce_user_write(c->io, c->dst, mce_rx_peek(&c->rx), n);
	if (got > 0)
		mce_rx_use(&c->rx, (size_t)got);
	return got;
}

/* The region's memory cannot be written: the request fails, and the connection stays open if the protocol permits. */
static ssize_t serve_payload_lost(struct mce_serve_conn *c)
{
	mc_warn("engine", "a peer's write is refused: registered memory is protected or unmapped");
	serve_refuse_payload(c, -MC_ETRANSFER);
	if (c->upstream) {
		c->writing = false;
		c->left = 0;
		mce_upstream_refuse(c);
	}
	return 1;
}

/* Receive payload.  Bytes, 0 when none has arrived, or the error that ends the connection. */
static ssize_t serve_take_payload(struct mce_serve_conn *c)
{
	struct iovec iov = { .iov_base = c->dst, .iov_len = c->left };
	ssize_t n;

	if (c->mr && mce_mr_dead(c->mr)) {
		serve_refuse_payload(c, -ESTALE);
		if (c->upstream)
			return -ESTALE;
	}
	if (mce_rx_have(&c->rx) == 0 && c->rx.dry)
		return 0;
	mce_peers_bytes_begin();
	if (!c->mr)
		n = mce_rx_drain(&c->rx, c->left);
	else if (c->gpu_dst)
		n = mce_gpu_write_payload(c);
	else if (mce_rx_have(&c->rx))
		n = serve_take_buffered(c);
	else
		n = mce_rx_payload(&c->rx, &iov, 1, c->left);
	mce_peers_bytes_end();
	if (n == -EFAULT && c->mr)
		return serve_payload_lost(c);
	if (n > 0) {
		if (c->mr)
			c->dst += n;
		c->left -= (uint64_t)n;
	}
	return n;
}

/* Take the next request's header and begin the request.  1, 0 when the header has not arrived, or the error that ends
 * the connection. */
static int serve_take_header(struct mce_serve_conn *c)
{
	const uint8_t *at = mce_rx_peek(&c->rx);
	size_t have = mce_rx_have(&c->rx);
	int r;

	r = c->upstream ? mce_up_req_unpack(at, have, &c->up) : mce_req_unpack(at, have, &c->req);
	if (r < 0)
		return mc_fail(r, "malformed request");
	if (r == 0) {
		if (c->rx.dry)
			return 0;
		r = mce_rx_headers(&c->rx);
		return r < 0 ? r : 1;
	}
	mce_rx_use(&c->rx, (size_t)r);
	c->rx.small = true;
	if (c->upstream)
		mce_upstream_begin(c);
	else if (c->req.type == MCE_FRAME_READ)
		serve_begin_read(c);
	else
		serve_begin_write(c);
	return 1;
}

/* 0: all received requests are carried out.  1: there is more, but a quantum is received or the ring is full.
 * Else the error that ends the connection. */
static int serve_receive_quantum(struct mce_serve_conn *c)
{
	uint64_t until = c->rx.moved + QUANTUM;
	ssize_t n;

	while (c->rx.moved < until) {
		MC_FAULT_POINT("engine.tcp.serve");
		/* The process may have been stopped within a turn, too. */
		if (mce_serve_conn_stale(c))
			return -ESTALE;
		if (c->closing) {
			return 0;
		} else if (c->left) {
			n = serve_take_payload(c);
		} else if (c->writing) {
			serve_end_write(c);
			continue;
		} else if (mce_serve_full(c)) {
			return 1;
		} else if (c->gpu_mr) {
			return 0;
		} else {
			n = serve_take_header(c);
		}
		if (n <= 0)
			return (int)n;
	}
	return 1;
}

static int serve_receive(struct mce_serve_conn *c)
{
	int r = serve_receive_quantum(c);

	if (r >= 0)
		mce_gpu_flush(c);
	return c->broken ? -EIO : r;
}

/* Discard received bytes.  0 until the peer closes, then the error that ends the connection. */
static int serve_drop(struct mce_serve_conn *c)
{
	uint64_t until = c->rx.moved + QUANTUM;
	ssize_t n;

	while (mce_rx_have(&c->rx) || !c->rx.dry) {
		if (c->rx.moved >= until)
			return -EAGAIN;
		n = mce_rx_drain(&c->rx, QUANTUM);
		if (n < 0)
			return (int)n;
	}
	return 0;
}

int mce_serve(struct mce_serve_conn *c)
{
	uint64_t until = c->rx.moved + c->tx_moved + TURN;
	int more, r;

	if (c->lingering)
		return serve_drop(c);
	if (c->closing)
		return serve_send_answers(c);
	do {
		if (c->rx.moved + c->tx_moved >= until)
			return -EAGAIN;
		more = serve_receive(c);
		r = more < 0 ? more : 0;
		if (r == 0 && !c->tx_blocked)
			r = serve_send_answers(c);
		mce_gpu_upstream_next(c);
		/* The ring gets room when the socket does, or a medium delivers. */
		if (mce_serve_full(c) && (c->tx_blocked || c->reading))
			more = 0;
	} while (r == 0 && more > 0);
	return r;
}

/* ---- releasing regions ------------------------------------------------------------------------- */

/* Upstream's answers contain no request id and its connections carry one request at a time, so only closing the
 * connection can report the error. */
static bool upstream_uses(const struct mce_serve_conn *c, const struct mce_mr *mr)
{
	bool uses = c->mr == mr || c->gpu_mr == mr;

	for (uint32_t i = 0; i < c->n; i++)
		uses = uses || c->ring[(c->head + i) % MCE_WIRE_WINDOW].mr == mr;
	return uses;
}

bool mce_serve_revoke(struct mce_serve_conn *c, struct mce_mr *mr)
{
	mce_gpu_flush(c);
	if (c->upstream)
		return !upstream_uses(c, mr);
	if (c->mr == mr)
		serve_refuse_payload(c, -ESTALE);
	for (uint32_t i = 0; i < c->n; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];

		if (a->mr != mr)
			continue;
		/* The header that is sent promises bytes that must not be sent any more. */
		if (i == 0 && c->tx_off)
			return false;
		answer_retract(a, -ESTALE);
	}
	return true;
}

void mce_serve_done(struct mce_serve_conn *c)
{
	serve_refuse_payload(c, -ECONNRESET);
	mce_gpu_drop(c);
	while (c->n)
		answers_pop(c);
}
