/* SPDX-License-Identifier: Apache-2.0
 * tcp_serve.c - the requests of one incoming lane.
 *
 * A WRITE is received where it belongs and acknowledged when its last byte is there; a READ's answer
 * is sent from where the bytes are.  Every request is checked against one region before a byte of it
 * moves.  The ring of answers bounds what a lane can have under way: while it is full nothing more is
 * read, and the client's window is no larger anyway. */
#include <config.h>

#include <errno.h>
#include <sys/socket.h>

#include "common/err.h"
#include "engine/peers_bytes.h"
#include "engine/tcp_server.h"

/* Received before answers are sent again, and before the other connections have their turn. */
#define QUANTUM (512u << 10)
#define TURN (4u << 20)
#define SEND_MAX (1u << 20)
#define SEND_ANSWERS 32u

/* ---- answers ----------------------------------------------------------------------------------- */

static void answer(struct mce_conn *c, int status, const uint8_t *at, uint32_t len, struct mce_mr *mr)
{
	struct mce_answer *a = &c->ring[(c->head + c->n++) % MCE_WIRE_WINDOW];
	struct mce_wire_resp resp = {
		.type = c->req.type == MCE_FRAME_WRITE ? MCE_FRAME_ACK : MCE_FRAME_DATA,
		.id = c->req.id, .len = len, .status = status < 0 ? mc_err_to_wire(status) : 0,
	};

	a->id = c->req.id;
	a->at = at;
	a->len = len;
	a->mr = mr;
	mce_resp_pack(a->hdr, &resp);
}

static void pop_answer(struct mce_conn *c)
{
	struct mce_answer *a = &c->ring[c->head];

	if (a->mr)
		mce_mr_unref(a->mr);
	a->mr = NULL;
	c->head = (c->head + 1) % MCE_WIRE_WINDOW;
	c->n--;
	c->tx_off = 0;
}

static void consume(struct mce_conn *c, size_t sent)
{
	c->tx_moved += sent;
	while (sent) {
		size_t left = MCE_RESP_SIZE + c->ring[c->head].len - c->tx_off;

		if (sent < left) {
			c->tx_off += (uint32_t)sent;
			return;
		}
		sent -= left;
		pop_answer(c);
	}
}

static unsigned gather(struct mce_conn *c, struct iovec *iov)
{
	unsigned n = 0;
	size_t bytes = 0;

	for (uint32_t i = 0; i < c->n && i < SEND_ANSWERS && bytes < SEND_MAX; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];
		uint32_t off = i == 0 ? c->tx_off : 0, skip;

		if (off < MCE_RESP_SIZE) {
			iov[n].iov_base = a->hdr + off;
			iov[n++].iov_len = MCE_RESP_SIZE - off;
		}
		skip = off > MCE_RESP_SIZE ? off - MCE_RESP_SIZE : 0;
		if (a->len > skip) {
			iov[n].iov_base = (void *)(uintptr_t)(a->at + skip);
			iov[n++].iov_len = a->len - skip;
			bytes += a->len - skip;
		}
	}
	return n;
}

/* Bytes sent, -EAGAIN or the connection's end. */
static ssize_t send_iov(struct mce_conn *c, struct iovec *iov, unsigned n)
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

static int send_greeting(struct mce_conn *c)
{
	struct iovec iov;
	ssize_t n;

	iov.iov_base = c->greeting + (MCE_GREETING_SIZE - c->greeting_left);
	iov.iov_len = c->greeting_left;
	n = send_iov(c, &iov, 1);
	if (n < 0)
		return (int)n;
	c->greeting_left -= (uint32_t)n;
	c->tx_moved += (size_t)n;
	return c->greeting_left == 0 && c->closing ? -ECONNRESET : 0;
}

static int send_answers(struct mce_conn *c)
{
	struct iovec iov[2 * SEND_ANSWERS];
	ssize_t n;
	int r = 0;

	while (c->greeting_left && r == 0)
		r = send_greeting(c);
	while (r == 0 && c->n) {
		n = send_iov(c, iov, gather(c, iov));
		if (n < 0)
			r = (int)n;
		else
			consume(c, (size_t)n);
	}
	return r == -EAGAIN ? 0 : r;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static void refuse_payload(struct mce_conn *c, int status)
{
	if (c->mr)
		mce_mr_unref(c->mr);
	c->mr = NULL;
	c->status = status;
}

static int find_region(struct mce_conn *c, unsigned access, struct mce_mr **ret)
{
	const struct mce_wire_req *q = &c->req;
	int r;

	r = mce_range_check(q->whole, q->whole_len, q->addr, q->len);
	if (r == 0)
		r = mce_mr_get(c->io->e, q->rkey, q->whole, q->whole_len, access, ret);
	return r;
}

static void begin_write(struct mce_conn *c)
{
	struct mce_wire_req *q = &c->req;

	c->status = find_region(c, MCE_ACCESS_WRITE, &c->mr);
	if (c->status < 0)
		c->mr = NULL;
	c->dst = (uint8_t *)(uintptr_t)q->addr;
	c->left = q->len;
	c->writing = true;
}

static void begin_read(struct mce_conn *c)
{
	struct mce_wire_req *q = &c->req;
	struct mce_mr *mr;
	int r;

	r = find_region(c, MCE_ACCESS_READ, &mr);
	if (r < 0)
		answer(c, r, NULL, 0, NULL);
	else
		answer(c, 0, (const uint8_t *)(uintptr_t)q->addr, q->len, mr);
}

static void end_write(struct mce_conn *c)
{
	/* The answer leaves only after the bytes are in place, so the region may go now. */
	if (c->mr)
		mce_mr_unref(c->mr);
	c->mr = NULL;
	c->writing = false;
	answer(c, c->status, NULL, 0, NULL);
}

/* Some payload.  0 when there is none now, bytes, or the connection's end. */
static ssize_t take_payload(struct mce_conn *c)
{
	struct iovec iov = { .iov_base = c->dst, .iov_len = c->left };
	ssize_t n;

	if (c->mr && mce_mr_dead(c->mr))
		refuse_payload(c, -ESTALE);
	if (mce_rx_have(&c->rx) == 0 && c->rx.dry)
		return 0;
	mce_peers_bytes_begin();
	if (!c->mr)
		n = mce_rx_drain(&c->rx, c->left);
	else if (mce_rx_have(&c->rx))
		n = (ssize_t)mce_rx_copy(&c->rx, c->dst, c->left);
	else
		n = mce_rx_payload(&c->rx, &iov, 1, c->left);
	mce_peers_bytes_end();
	if (n > 0) {
		if (c->mr)
			c->dst += n;
		c->left -= (uint32_t)n;
	}
	return n;
}

/* The next request's header.  1, 0 when it is not there yet, or the connection's end. */
static int take_header(struct mce_conn *c)
{
	int r;

	r = mce_req_unpack(mce_rx_peek(&c->rx), mce_rx_have(&c->rx), &c->req);
	if (r < 0)
		return mc_fail(r, "malformed request");
	if (r == 0) {
		if (c->rx.dry)
			return 0;
		r = mce_rx_headers(&c->rx);
		return r < 0 ? r : 1;
	}
	mce_rx_use(&c->rx, (size_t)r);
	c->rx.small = c->req.type == MCE_FRAME_READ || c->req.len <= MCE_RX_SMALL;
	if (c->req.type == MCE_FRAME_READ)
		begin_read(c);
	else
		begin_write(c);
	return 1;
}

/* 0: all that has come is carried out.  1: there is more, but a quantum has come or the ring is full.
 * Else the connection's end. */
static int receive(struct mce_conn *c)
{
	uint64_t until = c->rx.moved + QUANTUM;
	ssize_t n;

	while (c->rx.moved < until) {
		if (c->left) {
			n = take_payload(c);
		} else if (c->writing) {
			end_write(c);
			continue;
		} else if (c->n == MCE_WIRE_WINDOW) {
			return 1;
		} else {
			n = take_header(c);
		}
		if (n <= 0)
			return (int)n;
	}
	return 1;
}

int mce_serve(struct mce_conn *c)
{
	uint64_t until = c->rx.moved + c->tx_moved + TURN;
	int more, r;

	if (c->closing)
		return send_answers(c);
	do {
		if (c->rx.moved + c->tx_moved >= until)
			return -EAGAIN;
		more = receive(c);
		r = more < 0 ? more : 0;
		if (r == 0 && !c->tx_blocked)
			r = send_answers(c);
		/* The ring makes room when the socket does. */
		if (c->n == MCE_WIRE_WINDOW && c->tx_blocked)
			more = 0;
	} while (r == 0 && more > 0);
	return r;
}

/* ---- letting go -------------------------------------------------------------------------------- */

bool mce_serve_revoke(struct mce_conn *c, struct mce_mr *mr)
{
	if (c->mr == mr)
		refuse_payload(c, -ESTALE);
	for (uint32_t i = 0; i < c->n; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];
		struct mce_wire_resp resp = {
			.type = MCE_FRAME_DATA, .id = a->id, .status = mc_err_to_wire(-ESTALE),
		};

		if (a->mr != mr)
			continue;
		/* The header has promised bytes that must not be sent any more. */
		if (i == 0 && c->tx_off)
			return false;
		mce_mr_unref(mr);
		a->mr = NULL;
		a->len = 0;
		mce_resp_pack(a->hdr, &resp);
	}
	return true;
}

void mce_serve_done(struct mce_conn *c)
{
	refuse_payload(c, -ECONNRESET);
	while (c->n)
		pop_answer(c);
}
