/* SPDX-License-Identifier: Apache-2.0
 * tcp_serve.c - the requests of one incoming connection, whatever its protocol (mce_serve_proto) and the kinds of their
 * regions (tcp_bytes.h).
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

static void answers_pop(struct mce_serve_conn *c)
{
	struct mce_answer *a = &c->ring[c->head];

	if (a->mr)
		mce_mr_unref(a->mr);
	a->mr = NULL;
	if (a->late)
		mce_late_end(a->late);
	a->late = NULL;
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

bool mce_serve_answer_begun(const struct mce_serve_conn *c, uint32_t i)
{
	uint64_t upto = c->tx_off + mc_stream_repeat(&c->stream), at = 0;

	for (uint32_t k = 0; k < i && at < upto; k++) {
		const struct mce_answer *a = &c->ring[(c->head + k) % MCE_WIRE_WINDOW];

		at += a->hlen + a->len;
	}
	return at < upto;
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
		if (!a->mr || !mce_bytes_of(a->mr)->read_lost(c, a->mr, a->at, a->len))
			continue;
		if (mce_serve_answer_begun(c, i) || !c->proto->retract(a, -MC_ETRANSFER))
			return -EFAULT;
		r = 0;
	}
	return r;
}

/* Bytes sent, -EAGAIN, or the error that ends the connection. */
static ssize_t serve_send(struct mce_serve_conn *c, struct iovec *iov, unsigned n)
{
	ssize_t sent;

	mce_peers_bytes_begin();
	sent = mc_stream_send(&c->stream, iov, (int)n);
	mce_peers_bytes_end();
	if (sent == -EAGAIN)
		c->tx_blocked = true;
	return sent;
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
	mc_stream_shutdown(&c->stream, SHUT_WR);
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
		if (c->resets)
			return -ECONNRESET;
		serve_linger(c);
	}
	return r == -EAGAIN ? 0 : r;
}

/* ---- requests ---------------------------------------------------------------------------------- */

void mce_serve_refuse(struct mce_serve_conn *c, int status)
{
	if (c->mr)
		mce_mr_unref(c->mr);
	c->mr = NULL;
	c->to = &mce_bytes_none;
	c->status = status;
}

/* 0, or the error that ends the connection. */
static int serve_fail_write(struct mce_serve_conn *c, int status)
{
	mce_serve_refuse(c, status);
	return c->proto->write_failed(c, status);
}

void mce_serve_write(struct mce_serve_conn *c, struct mce_mr *mr, int status, uint64_t addr, uint64_t len)
{
	int r;

	c->mr = mr;
	c->to = mr ? mce_bytes_of(mr) : &mce_bytes_none;
	c->status = status;
	c->dst = (uint8_t *)(uintptr_t)addr;
	c->left = len;
	c->rx.small = len <= MCE_RX_SMALL;
	c->writing = true;
	r = c->to->write_begin(c);
	if (r < 0)
		(void)serve_fail_write(c, r);
}

static void serve_end_write(struct mce_serve_conn *c)
{
	int r = c->to->write_end(c);

	c->writing = false;
	if (r != MCE_BYTES_HELD)
		c->proto->write_answer(c, c->req.id, c->req.seq, r);
}

/* The region's bytes cannot be written: the request fails, and the connection stays open if the protocol permits. */
static ssize_t serve_payload_lost(struct mce_serve_conn *c)
{
	int r;

	mc_warn("engine", "a peer's write is refused: registered memory is protected or unmapped");
	r = serve_fail_write(c, -MC_ETRANSFER);
	return r < 0 ? r : 1;
}

/* Receive payload.  Bytes, 0 when none has arrived, or the error that ends the connection. */
static ssize_t serve_take_payload(struct mce_serve_conn *c)
{
	ssize_t n;
	int r;

	if (c->mr && mce_mr_dead(c->mr)) {
		r = serve_fail_write(c, -ESTALE);
		if (r < 0)
			return r;
	}
	if (mce_rx_have(&c->rx) == 0 && c->rx.dry)
		return 0;
	mce_peers_bytes_begin();
	n = c->to->write_take(c);
	mce_peers_bytes_end();
	if (n == -EFAULT && c->mr)
		return serve_payload_lost(c);
	if (n > 0)
		c->left -= (uint64_t)n;
	return n;
}

/* Take the next request's header and begin the request.  1, 0 when the header has not arrived, or the error that ends
 * the connection. */
static int serve_take_header(struct mce_serve_conn *c)
{
	int r = c->proto->take(c, mce_rx_peek(&c->rx), mce_rx_have(&c->rx));

	if (r < 0)
		return mc_fail(r, "malformed request");
	if (r == 0) {
		if (c->rx.dry)
			return 0;
		r = mce_rx_headers(&c->rx);
		return r < 0 ? r : 1;
	}
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
		if (c->closing)
			return 0;
		if (c->left)
			n = serve_take_payload(c);
		else if (mce_serve_full(c))
			return 1;
		else if (c->parts.mr)
			return 0;
		else
			n = serve_take_header(c);
		if (n <= 0)
			return (int)n;
		if (c->writing && c->left == 0)
			serve_end_write(c);
	}
	return 1;
}

static int serve_receive(struct mce_serve_conn *c)
{
	int r = serve_receive_quantum(c);

	if (r >= 0)
		c->holds->flush(c);
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
		c->proto->more(c);
		/* The ring gets room when the socket does, or when bytes arrive. */
		if ((c->tx_blocked || c->reading) && mce_serve_full(c))
			more = 0;
	} while (r == 0 && more > 0);
	return r;
}

/* ---- releasing regions ------------------------------------------------------------------------- */

bool mce_serve_revoke(struct mce_serve_conn *c, struct mce_mr *mr)
{
	c->holds->flush(c);
	if (c->parts.mr == mr || (c->mr == mr && serve_fail_write(c, -ESTALE) < 0))
		return false;
	for (uint32_t i = 0; i < c->n; i++) {
		struct mce_answer *a = &c->ring[(c->head + i) % MCE_WIRE_WINDOW];

		/* The header that is sent promises bytes that must not be sent any more. */
		if (a->mr == mr && (mce_serve_answer_begun(c, i) || !c->proto->retract(a, -ESTALE)))
			return false;
	}
	return true;
}

void mce_serve_done(struct mce_serve_conn *c)
{
	mce_serve_refuse(c, -ECONNRESET);
	c->holds->drop(c);
	if (c->parts.mr && c->parts.left)
		mce_mr_unref(c->parts.mr);
	c->parts.mr = NULL;
	while (c->n)
		answers_pop(c);
}
