/* SPDX-License-Identifier: Apache-2.0
 * rpc_send.c - sending of replies on sockets.
 *
 * A peer that does not read its replies is not read from once they exceed max_outstanding.  While
 * the unread replies of all peers exceed max_unread, that limit is CROWDED_MAX, and a peer that
 * takes nothing for a second is closed.
 *
 * Replies whose changes are not durable yet stay in the connection's buffer behind a gate.  There
 * are two gates: replies that are made while the first is shut wait behind the second, so that a
 * peer that sends more requests does not delay its oldest replies. */
#include <config.h>

#include "proto/rpc_conn_i.h"

#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "common/sys/clock.h"

/* Limit of unread bytes per connection while all together exceed max_unread. */
#define CROWDED_MAX (64u << 10)

MC_COUNTER(bytes_out, "mooncake_rpc_sent_bytes_total", "", "Bytes sent to clients")
MC_GAUGE(unread_bytes, "mooncake_rpc_unread_bytes", "", "Bytes of replies that clients have not taken yet")
MC_COUNTER(unread_closed, "mooncake_rpc_unread_closed_total", "",
	   "Connections that were closed for not reading their replies")

static size_t conn_sendable(const struct mcp_conn *c)
{
	return mcp_conn_pending(c) - c->first.len - c->second.len;
}

/* ---- the loop's pool of buffers ---- */

static void loop_borrow_buf(struct mcp_loop *l, struct mcp_buf *b)
{
	if (!b->data && l->pooled)
		*b = l->pool[--l->pooled];
}

void mcp_conn_return_buf(struct mcp_loop *l, struct mcp_buf *b)
{
	if (!b->data)
		return;
	if (b->cap > MCP_POOL_CAP || l->pooled == MCP_POOL_BUFS) {
		mcp_buf_free(b);
		return;
	}
	b->len = 0;
	l->pool[l->pooled++] = *b;
	*b = (struct mcp_buf){ 0 };
}

int mcp_conn_keep(struct mcp_loop *l, struct mcp_buf *b, const uint8_t *p, size_t len)
{
	int r;

	loop_borrow_buf(l, b);
	r = mcp_buf_reserve(b, len);
	if (r < 0)
		return r;
	memcpy(b->data + b->len, p, len);
	b->len += len;
	return 0;
}

/* ---- unread replies ---- */

static bool server_exceeds_unread(const struct mcp_server *s)
{
	return atomic_load(&s->unread) > s->conf.max_unread;
}

uint64_t mcp_conn_outstanding_max(const struct mcp_conn *c)
{
	uint64_t max = (uint64_t)c->s.server->conf.max_outstanding << 10;

	return max > CROWDED_MAX && server_exceeds_unread(c->s.server) ? CROWDED_MAX : max;
}

/* The number of pending bytes may have changed: update the counters. */
static void conn_count_unread(struct mcp_conn *c)
{
	size_t n = mcp_conn_pending(c);

	if (n == c->unread)
		return;
	atomic_fetch_add(&c->s.server->unread, (unsigned long long)n - c->unread);
	mc_metric_add(&unread_bytes, (int64_t)n - (int64_t)c->unread);
	if (!c->unread) {
		c->taken_seen = UINT64_MAX;
		mc_list_push_back(&c->loop->unread, &c->unread_link);
		mcp_conn_tick_in(c->loop, MCP_CONN_CHECK_NS);
	}
	if (!n)
		mc_list_remove(&c->unread_link);
	c->unread = n;
}

/* Has the peer taken nothing since the last check?  EPOLLOUT reports only much free space in the
 * socket, so try to send.  Negative: the connection has to be closed. */
static int conn_takes_nothing(struct mcp_conn *c)
{
	bool looked = c->taken_seen == c->taken;
	int r;

	if (!conn_sendable(c))
		return 0;
	if (looked) {
		r = mcp_conn_send_pending(c);
		if (r == 0)
			r = mcp_conn_resume(c);
		if (r < 0)
			return r;
	}
	looked = c->taken_seen == c->taken;
	c->taken_seen = c->taken;
	return looked;
}

void mcp_conn_check_unread(struct mcp_loop *l)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &l->unread) {
		struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, unread_link);
		int r = conn_takes_nothing(c);

		if (r < 0) {
			mcp_conn_close(c);
			continue;
		}
		if (!r || !server_exceeds_unread(l->server))
			continue;
		mc_metric_add(&unread_closed, 1);
		mc_warn("rpc", "closing a connection: it does not read its replies peer=%s bytes=%zu", c->s.peer,
			mcp_conn_pending(c));
		mcp_conn_close(c);
	}
}

/* ---- sending ---- */

static void conn_open_gates(struct mcp_conn *c)
{
	if (mc_list_empty(&c->gate_link))
		return;
	mc_list_remove(&c->gate_link);
	atomic_fetch_sub(&c->loop->gated, 1);
}

/* Bytes that the socket took, 0 when it is full, or negative. */
static ssize_t conn_send_some(struct mcp_conn *c, const uint8_t *p, size_t len)
{
	const struct iovec iov = { (void *)(uintptr_t)p, len };
	ssize_t n = mc_stream_send(&c->stream, &iov, 1);

	if (n > 0) {
		mc_metric_add(&bytes_out, n);
		c->taken += (uint64_t)n;
	}
	return n == -EAGAIN ? 0 : n;
}

static int conn_send_out(struct mcp_conn *c)
{
	ssize_t n;

	while (conn_sendable(c)) {
		n = conn_send_some(c, c->out.data + c->out_sent, conn_sendable(c));
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		c->out_sent += (size_t)n;
	}
	if (!mcp_conn_pending(c)) {
		c->out_sent = 0;
		mcp_conn_return_buf(c->loop, &c->out);
		return mcp_conn_watch(c, c->ev.events & ~(uint32_t)EPOLLOUT);
	}
	if (c->out_sent > c->out.len / 2) {
		memmove(c->out.data, c->out.data + c->out_sent, mcp_conn_pending(c));
		c->out.len -= c->out_sent;
		c->out_sent = 0;
	}
	return mcp_conn_watch(c, conn_sendable(c) ? c->ev.events | EPOLLOUT : c->ev.events & ~(uint32_t)EPOLLOUT);
}

int mcp_conn_send_pending(struct mcp_conn *c)
{
	int r = conn_send_out(c);

	conn_count_unread(c);
	return r;
}

/* Open the gates whose marks are durable, and send. */
static int conn_release(struct mcp_conn *c)
{
	uint64_t durable = c->first.len && mcp_serve_may_send(&c->s) ? atomic_load(&c->s.server->durable) : 0;

	while (c->first.len && c->first.mark <= durable) {
		c->first = c->second;
		c->second = (struct gate){ 0 };
	}
	if (!c->first.len)
		conn_open_gates(c);
	return mcp_conn_send_pending(c);
}

/* Keep the loop's replies, all of which are this connection's, until @mark is durable. */
static int conn_hold(struct mcp_conn *c, uint64_t mark)
{
	struct mcp_buf *out = &c->loop->out;
	struct gate *g = c->first.len ? &c->second : &c->first;
	int r;

	r = mcp_conn_keep(c->loop, &c->out, out->data, out->len);
	if (r < 0)
		return r;
	g->len += out->len;
	if (g->mark < mark)
		g->mark = mark;
	if (mc_list_empty(&c->gate_link)) {
		mc_list_push_back(&c->loop->gates, &c->gate_link);
		atomic_fetch_add(&c->loop->gated, 1);
	}
	/* mcp_server_durable() ignores this loop if it ran before the connection was counted in gated. */
	return atomic_load(&c->s.server->durable) >= c->first.mark ? conn_release(c) : 0;
}

int mcp_conn_flush(struct mcp_conn *c)
{
	struct mcp_buf *out = &c->loop->out;
	uint64_t mark;
	ssize_t n = 0;
	int r;

	if (!out->len)
		return 0;
	mark = mcp_serve_pending_mark(&c->s);
	if (!mcp_conn_pending(c) && !mark)
		n = conn_send_some(c, out->data, out->len);
	if (mark || c->first.len) {
		r = conn_hold(c, mark);
	} else if (n >= 0 && (size_t)n < out->len) {
		r = mcp_conn_keep(c->loop, &c->out, out->data + n, out->len - (size_t)n);
		if (r == 0)
			r = mcp_conn_watch(c, c->ev.events | EPOLLOUT);
	} else {
		r = n < 0 ? (int)n : 0;
	}
	conn_count_unread(c);
	mcp_buf_reset(out);
	if (out->cap > MCP_POOL_CAP)
		mcp_buf_free(out);
	return r;
}

int mcp_conn_resume(struct mcp_conn *c)
{
	if (!c->stalled || mcp_conn_pending(c) > mcp_conn_outstanding_max(c) / 2)
		return 0;
	c->stalled = false;
	return mcp_conn_feed_kept(c);
}

void mcp_conn_send_end(struct mcp_conn *c)
{
	conn_open_gates(c);
	mcp_conn_return_buf(c->loop, &c->out);
	c->out_sent = 0;
	conn_count_unread(c);
}

void mcp_conn_release_all(void *loop)
{
	struct mcp_loop *l = loop;
	struct mc_list *pos, *tmp;

	atomic_store(&l->release, false);
	mc_list_for_each_safe(pos, tmp, &l->gates) {
		struct mcp_conn *c = mc_container_of(pos, struct mcp_conn, gate_link);

		if (conn_release(c) < 0 || mcp_conn_resume(c) < 0)
			mcp_conn_close(c);
	}
}
