/* SPDX-License-Identifier: Apache-2.0
 * rpc_conn.c - sessions on sockets.
 *
 * One readable event is one receive, the requests in it, and one send of all their replies.  Bytes
 * are received into the loop's scratch memory.  A connection has buffers of its own, from the
 * loop's pool, only while a frame is incomplete or replies are unsent. */
#include <config.h>

#include "proto/rpc_conn_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"

#define SCRATCH (256u << 10)
/* Replies of a batch are sent when they reach this many bytes, to keep the loop's buffer in the CPU cache. */
#define FLUSH (256u << 10)
/* Limit of the hello, which is short: before it a peer must not make us hold max_frame bytes. */
#define GREETING_FRAME_MAX 65536u
#define FIRST_IN 4096u
#define DRAIN_MS 1000
/* A new connection does not give way: in this time its client can register. */
#define FRESH_MS 1000
/* Connections without a place that may wait for their refusal. */
#define REFUSALS_MAX 1000
/* The accept loop lets events gather: for GATHER_US if it has more than CROWD connections, for GATHER_MAX_US if
 * it has more than eight times as many.  A new connection may have to wait that long. */
#define CROWD 256u
#define GATHER_US 5000u
#define GATHER_MAX_US 20000u

MC_COUNTER(refused, "mooncake_rpc_connections_refused_total", "", "Connections over the limit")
MC_COUNTER(gave_way, "mooncake_rpc_connections_gave_way_total", "",
	   "Idle connections that were closed for new ones, at a limit of connections")
MC_COUNTER(bytes_in, "mooncake_rpc_received_bytes_total", "", "Bytes received from clients")

/* With many heartbeat sessions handle several of their requests per wake-up of the accept loop. */
static void loop_pace(struct mcp_loop *l)
{
	unsigned n = atomic_load(&l->load);

	if (l == &l->server->loops[0])
		mc_evloop_gather(l->ev, n > 8 * CROWD ? GATHER_MAX_US : n > CROWD ? GATHER_US : 0);
}

/* ---- places ---- */

/* Without it no connection ever gives way. */
static bool conn_has_keeper(const struct mcp_conn *c)
{
	return c->s.server->conf.keeps != NULL;
}

static void conn_keep(struct mcp_conn *c, bool keep)
{
	if (c->kept == keep || !conn_has_keeper(c))
		return;
	c->kept = keep;
	mcp_place_keep(&c->s.server->places, &c->place, keep);
}

/* @busy: a request is not finished. */
static void conn_keep_if_needed(struct mcp_conn *c, bool busy)
{
	if (conn_has_keeper(c))
		conn_keep(c, busy || c->fresh || c->s.server->conf.keeps(&c->s, c->s.server->conf.arg));
}

static void conn_leave_place(struct mcp_conn *c)
{
	struct mcp_places *ps = &c->s.server->places;

	MC_LOCKED(&ps->lock);
	mcp_place_leave_locked(ps, &c->place);
	mc_list_remove(&c->leave_link);
}

/* Close the loop's connections whose places were taken. */
static void conn_give_way(void *loop)
{
	struct mcp_loop *l = loop;
	struct mcp_places *ps = &l->server->places;
	struct mcp_conn *c;

	for (;;) {
		mc_mutex_lock(&ps->lock);
		c = mc_list_empty(&l->leaving) ? NULL : mc_list_first(&l->leaving, struct mcp_conn, leave_link);
		if (c)
			mc_list_remove(&c->leave_link);
		mc_mutex_unlock(&ps->lock);
		if (!c)
			return;
		mc_metric_add(&gave_way, 1);
		mc_info("rpc", "closing a connection: a limit of connections is reached, and it is not registered "
			"peer=%s", c->s.peer);
		mcp_conn_close(c);
	}
}

/* The places' lock is held: let the connection that lost its place @gone be closed.  Returns its loop, NULL: none. */
static struct mcp_loop *conn_evict_locked(struct mcp_place *gone)
{
	struct mcp_conn *old = gone ? mc_container_of(gone, struct mcp_conn, place) : NULL;

	if (old)
		mc_list_push_back(&old->loop->leaving, &old->leave_link);
	return old ? old->loop : NULL;
}

static void conn_evict_post(struct mcp_loop *loop)
{
	/* Without memory for the post: the next one closes that connection too. */
	if (loop)
		(void)mc_evloop_post(loop->ev, conn_give_way, loop);
}

/* accept loop: find a place for a new connection, or mark it as one that has to be refused.  -MC_ELIMIT: too many
 * wait for their refusal; -ENOMEM. */
static int conn_take_place(struct mcp_conn *c)
{
	struct mcp_server *s = c->s.server;
	struct mcp_place *gone = NULL;
	struct mcp_loop *loop;
	unsigned used;
	int r;

	mc_mutex_lock(&s->places.lock);
	r = mcp_place_take_locked(&s->places, c->s.peer, &c->place, &gone);
	used = s->places.used;
	loop = conn_evict_locked(gone);
	mc_mutex_unlock(&s->places.lock);
	conn_evict_post(loop);
	c->s.excess = r < 0;
	if (r < 0) {
		mc_metric_add(&refused, 1);
		mc_warn("rpc", "refusing a connection: %s", mc_err_detail(r));
	}
	return r < 0 && atomic_load(&s->connections) > used + REFUSALS_MAX ? r : 0;
}

/* The peer has shown a credential: its place counts for that from now on. */
static int conn_move_place(struct mcp_conn *c)
{
	struct mcp_places *ps = &c->s.server->places;
	struct mcp_place *gone;
	struct mcp_loop *loop;
	char holder[40];
	int r;

	if (c->s.principal.source != MC_PRINCIPAL_CREDENTIAL)
		return 0;
	snprintf(holder, sizeof(holder), "serial-%016" PRIx64, c->s.principal.serial);
	mc_mutex_lock(&ps->lock);
	r = mcp_place_move_locked(ps, holder, &c->place, &gone);
	loop = conn_evict_locked(gone);
	mc_mutex_unlock(&ps->lock);
	conn_evict_post(loop);
	if (r < 0)
		mc_metric_add(&refused, 1);
	return r;
}

/* ---- the end of a connection ---- */

static void conn_free(struct mcp_conn *c)
{
	conn_leave_place(c);
	mc_stream_close(&c->stream);
	mcp_buf_free(&c->in);
	mcp_buf_free(&c->out);
	atomic_fetch_sub(&c->loop->load, 1);
	loop_pace(c->loop);
	mcp_server_count(c->s.server, -1);
	free(c);
}

void mcp_conn_close(struct mcp_conn *c)
{
	struct mcp_server_conf *conf = &c->s.server->conf;

	mc_evloop_del(c->loop->ev, &c->ev);
	mc_evtimer_disarm(c->loop->ev, &c->timer);
	mc_list_remove(&c->link);
	mc_list_remove(&c->again_link);
	mcp_conn_partial_end(c);
	if (c->opened && conf->closed)
		conf->closed(&c->s, conf->arg);
	mcp_conn_return_buf(c->loop, &c->in);
	mcp_conn_send_end(c);
	conn_free(c);
}

void mcp_conn_close_all(struct mcp_loop *l)
{
	while (!mc_list_empty(&l->conns))
		mcp_conn_close(mc_list_first(&l->conns, struct mcp_conn, link));
}

void mcp_conn_cut(struct mcp_loop *l, bool (*cut)(const struct mc_principal *p, void *arg), void *arg)
{
	struct mc_list keep;

	mc_list_init(&keep);
	while (!mc_list_empty(&l->conns)) {
		struct mcp_conn *c = mc_list_first(&l->conns, struct mcp_conn, link);

		mc_list_remove(&c->link);
		mc_list_push_back(&keep, &c->link);
		if (!cut(&c->s.principal, arg))
			continue;
		mc_info("rpc", "closing a connection: its credential is not valid any more name=%s peer=%s",
			c->s.principal.name, c->s.peer);
		mcp_conn_close(c);
	}
	while (!mc_list_empty(&keep)) {
		struct mcp_conn *c = mc_list_first(&keep, struct mcp_conn, link);

		mc_list_remove(&c->link);
		mc_list_push_back(&l->conns, &c->link);
	}
}

/* ---- requests ---- */

static int conn_refuse(struct mcp_conn *c, uint32_t id, int err)
{
	int r;

	mc_info("rpc", "refusing a client: %s peer=%s", mc_err_detail(err), c->s.peer);
	mcp_serve_refused(&c->s, err);
	r = mcp_serve_welcome(&c->s, id, err, &c->loop->out);
	if (r == 0)
		r = mcp_conn_flush(c);
	if (r < 0)
		return r;
	/* Closing at once with unread input would reset the connection and lose the reply. */
	c->state = MCP_CONN_DRAINING;
	mc_stream_shutdown(&c->stream, SHUT_WR);
	mc_evtimer_arm(c->loop->ev, &c->timer, mc_deadline_ms(DRAIN_MS));
	return 0;
}

static int conn_identify(struct mcp_conn *c)
{
	struct mcp_server_conf *conf = &c->s.server->conf;
	struct mc_stream_peer peer;

	if (!conf->identify)
		return 0;
	mc_stream_peer(&c->stream, &peer);
	return conf->identify(&peer, &c->s.principal, conf->arg);
}

static int conn_hello(struct mcp_conn *c, const struct mcp_frame *f, const uint8_t *body)
{
	int r = mcp_serve_hello(&c->s, f, body);

	if (r == 0)
		r = conn_identify(c);
	if (r == 0)
		r = conn_move_place(c);
	if (r < 0)
		return conn_refuse(c, f->id, r);
	c->hello_id = f->id;
	c->state = MCP_CONN_MOVING;
	return 0;
}

/* Handle one complete frame. */
static int conn_handle(struct mcp_conn *c, const struct mcp_frame *f, const uint8_t *body, uint64_t *now)
{
	struct mcp_loop *l = c->loop;
	int r;

	if (c->state == MCP_CONN_GREETING)
		return conn_hello(c, f, body);
	r = mcp_serve_request(&c->s, f, body, &l->out, now);
	conn_keep_if_needed(c, r == MCP_AGAIN);
	if (r == 0 && l->out.len >= FLUSH)
		r = mcp_conn_flush(c);
	if (mcp_conn_pending(c) + l->out.len > mcp_conn_outstanding_max(c)) {
		if (r == 0)
			r = mcp_conn_flush(c);
		c->stalled = mcp_conn_pending(c) > mcp_conn_outstanding_max(c);
	}
	return r;
}

/* Handle the complete frames at @p.  *@used gets their length in bytes. */
static int conn_feed(struct mcp_conn *c, const uint8_t *p, size_t len, size_t *used)
{
	uint32_t max = c->state == MCP_CONN_GREETING ? GREETING_FRAME_MAX : c->s.server->conf.max_frame;
	uint64_t now = c->active_ns;
	struct mcp_frame f;
	size_t at = 0;
	int r = 0;

	while (r == 0 && mcp_conn_takes_frames(c) && len - at >= MCP_FRAME_HEADER) {
		r = mcp_frame_unpack(p + at, max, &f);
		if (r == 0 && (f.flags & MCP_FRAME_REPLY || f.status))
			r = mc_fail(-MC_EPROTO, "malformed frame: a reply from a client");
		if (r < 0) {
			if (c->state != MCP_CONN_GREETING || !mcp_serve_refuse_tls(&c->s, p + at, &c->loop->out))
				mcp_serve_bad_header(&c->s);
			break;
		}
		if (len - at - MCP_FRAME_HEADER < f.length)
			break;
		r = conn_handle(c, &f, p + at + MCP_FRAME_HEADER, &now);
		if (r == MCP_AGAIN) {
			c->again = true;
			r = 0;
			break;
		}
		at += MCP_FRAME_HEADER + f.length;
	}
	*used = at;
	/* Also on error: the requests before the bad frame have been executed. */
	if (mcp_conn_flush(c) < 0 && r == 0)
		r = -EPIPE;
	return r;
}

static int conn_receive(struct mcp_conn *c);
static int conn_move(struct mcp_conn *c);
static void conn_continue_all(void *loop);

/* Continue with this connection after the loop has served others. */
static int conn_defer(struct mcp_conn *c)
{
	struct mcp_loop *l = c->loop;
	int r = l->again_posted ? 0 : mc_evloop_post(l->ev, conn_continue_all, l);

	if (r < 0)
		return r;
	l->again_posted = true;
	if (mc_list_empty(&c->again_link))
		mc_list_push_back(&l->agains, &c->again_link);
	return 0;
}

/* After conn_feed(): move to another loop, or stop or continue reading.  @more: as for
 * mcp_conn_partial_update(). */
static int conn_after_feed(struct mcp_conn *c, bool more)
{
	int r = mcp_conn_partial_update(c, more);

	if (r < 0)
		return r;
	if (c->state == MCP_CONN_MOVING)
		return conn_move(c);
	if (c->state == MCP_CONN_DRAINING) {
		mcp_buf_reset(&c->in);
		return 0;
	}
	if (c->again && conn_defer(c) < 0)
		return -ENOMEM;
	return mcp_conn_read_on(c, !(c->stalled || c->again || mcp_reservation_waits(&c->reservation)));
}

int mcp_conn_read_on(struct mcp_conn *c, bool on)
{
	/* Bytes that are already in the stream's buffer cause no event. */
	if (on && mc_stream_pending(&c->stream) && conn_defer(c) < 0)
		return -ENOMEM;
	return mcp_conn_watch(c, on ? c->ev.events | EPOLLIN : c->ev.events & ~(uint32_t)EPOLLIN);
}

int mcp_conn_feed_kept(struct mcp_conn *c)
{
	size_t used = 0;
	int r;

	if (c->in.len) {
		r = conn_feed(c, c->in.data, c->in.len, &used);
		if (r < 0)
			return r;
		if (used)
			memmove(c->in.data, c->in.data + used, c->in.len - used);
		c->in.len -= used;
		if (!c->in.len)
			mcp_conn_return_buf(c->loop, &c->in);
	}
	return conn_after_feed(c, !used);
}

/* Continue every connection of the list once: its unfinished request, or bytes pending in its stream. */
static void conn_continue_all(void *loop)
{
	struct mcp_loop *l = loop;
	struct mc_list todo;

	l->again_posted = false;
	mc_list_init(&todo);
	while (!mc_list_empty(&l->agains)) {
		struct mcp_conn *c = mc_list_first(&l->agains, struct mcp_conn, again_link);

		mc_list_remove(&c->again_link);
		mc_list_push_back(&todo, &c->again_link);
	}
	while (!mc_list_empty(&todo)) {
		struct mcp_conn *c = mc_list_first(&todo, struct mcp_conn, again_link);
		bool again = c->again;
		int r = 0;

		mc_list_remove(&c->again_link);
		c->again = false;
		if (again)
			r = mcp_conn_feed_kept(c);
		else if (c->ev.events & EPOLLIN)
			r = conn_receive(c);
		if (r < 0)
			mcp_conn_close(c);
	}
}

/* ---- receiving ---- */

/* Reserve space for the rest of the frame that @in begins with.  The buffer grows with the bytes
 * received, so that a header alone does not make the server allocate a whole frame. */
static int conn_reserve(struct mcp_buf *in)
{
	size_t whole = mcp_conn_request_len(in), limit;

	limit = in->len < FIRST_IN ? FIRST_IN : in->len;
	return mcp_buf_reserve(in, whole - in->len < limit ? whole - in->len : limit);
}

static int conn_receive(struct mcp_conn *c)
{
	struct mcp_loop *l = c->loop;
	bool part = c->in.len > 0;
	struct iovec to = { l->scratch, SCRATCH };
	size_t used;
	ssize_t n;
	int r;

	if (part) {
		r = conn_reserve(&c->in);
		if (r < 0)
			return r;
		to = (struct iovec){ c->in.data + c->in.len, c->in.cap - c->in.len };
	}
	n = mc_stream_recv(&c->stream, &to, 1);
	if (n <= 0)
		return n == -EAGAIN ? 0 : -EPIPE;
	mc_metric_add(&bytes_in, n);
	c->active_ns = mc_now_ns();
	if (c->state == MCP_CONN_DRAINING)
		return 0;
	if (part) {
		c->in.len += (size_t)n;
		return mcp_conn_feed_kept(c);
	}
	r = conn_feed(c, l->scratch, (size_t)n, &used);
	if (r == 0 && used < (size_t)n && c->state != MCP_CONN_DRAINING)
		r = mcp_conn_keep(l, &c->in, l->scratch + used, (size_t)n - used);
	return r < 0 ? r : conn_after_feed(c, false);
}

static void conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcp_conn *c = mc_container_of(e, struct mcp_conn, ev);
	int r = 0;

	if (events & EPOLLOUT) {
		size_t before = mcp_conn_pending(c);

		r = mcp_conn_send_pending(c);
		if (mcp_conn_pending(c) < before)
			c->active_ns = mc_now_ns();
		if (r == 0)
			r = mcp_conn_resume(c);
		/* It may be moving to another loop or have more to send: receive at the next event. */
	} else if (events & EPOLLIN) {
		r = conn_receive(c);
	} else {
		r = -EPIPE;
	}
	if (r < 0)
		mcp_conn_close(c);
}

/* ---- from hello to open ---- */

/* Arm the timer for the end of the time in which the connection is new; after it, for its time-out. */
static void conn_arm(struct mcp_conn *c)
{
	const struct mcp_server_conf *conf = &c->s.server->conf;
	uint64_t due = c->born_ns + FRESH_MS * MC_NS_PER_MS;

	if (!c->fresh && c->state == MCP_CONN_GREETING)
		due = c->born_ns + conf->hello_timeout_ms * MC_NS_PER_MS;
	else if (!c->fresh)
		due = conf->idle_timeout_ms ? c->active_ns + conf->idle_timeout_ms * MC_NS_PER_MS : MC_NEVER;
	mc_evtimer_arm(c->loop->ev, &c->timer, due);
}

/* End of the time in which the connection is new, hello timeout, idle timeout, end of draining.  Traffic does not
 * rearm the timer: when it fires, it checks the time of the last traffic. */
static void conn_timed_out(struct mc_evtimer *t)
{
	struct mcp_conn *c = mc_container_of(t, struct mcp_conn, timer);
	uint64_t due = c->active_ns + c->s.server->conf.idle_timeout_ms * MC_NS_PER_MS;

	if (c->fresh && c->state != MCP_CONN_DRAINING) {
		c->fresh = false;
		if (c->state == MCP_CONN_OPEN)
			conn_keep_if_needed(c, c->again);
		else
			conn_keep(c, false);
		conn_arm(c);
		return;
	}
	if (c->state == MCP_CONN_OPEN && due > mc_now_ns()) {
		mc_evtimer_arm(c->loop->ev, t, due);
		return;
	}
	mc_info("rpc", "closing a connection: %s peer=%s",
		c->state == MCP_CONN_OPEN ? "idle" : c->state == MCP_CONN_GREETING ? "no hello" : "refused", c->s.peer);
	mcp_conn_close(c);
}

/* Ask the application whether it accepts the session, send the reply to the hello, and handle
 * requests that the client has sent meanwhile. */
static int conn_welcome(struct mcp_conn *c)
{
	struct mcp_server_conf *conf = &c->s.server->conf;
	int r = conf->opened ? conf->opened(&c->s, conf->arg) : 0;

	if (r < 0) {
		r = conn_refuse(c, c->hello_id, r);
		return r < 0 ? r : conn_after_feed(c, false);
	}
	c->opened = true;
	c->state = MCP_CONN_OPEN;
	conn_keep_if_needed(c, false);
	conn_arm(c);
	r = mcp_serve_welcome(&c->s, c->hello_id, 0, &c->loop->out);
	if (r == 0)
		r = mcp_conn_flush(c);
	return r < 0 ? r : mcp_conn_feed_kept(c);
}

static void conn_arrive(void *arg)
{
	struct mcp_conn *c = arg;

	mc_list_push_back(&c->loop->conns, &c->link);
	if (mc_evloop_add(c->loop->ev, &c->ev, EPOLLIN) < 0 || conn_welcome(c) < 0)
		mcp_conn_close(c);
}

/* accept loop: hand the connection to a loop of its channel.  After 0 it does not belong to this
 * thread any more, unless it is a heartbeat session. */
static int conn_move(struct mcp_conn *c)
{
	struct mcp_loop *accept = c->loop, *to;
	int r;

	mc_evtimer_disarm(accept->ev, &c->timer);
	/* It does not give way until it has reached its loop. */
	conn_keep(c, true);
	if (c->s.channel == MCP_CHANNEL_HEARTBEAT)
		return conn_welcome(c);
	to = mcp_server_assign(c->s.server, c->s.channel);
	mc_evloop_del(accept->ev, &c->ev);
	mc_list_remove(&c->link);
	mc_list_remove(&c->again_link);
	c->loop = to;
	r = mc_evloop_post(to->ev, conn_arrive, c);
	if (r < 0) {
		atomic_fetch_sub(&to->load, 1);
		c->loop = accept;
		return r;
	}
	atomic_fetch_sub(&accept->load, 1);
	return 0;
}

int mcp_conn_new(struct mcp_loop *accept, struct mc_stream *stream)
{
	struct mcp_server *s = accept->server;
	struct mc_stream_peer peer;
	struct mcp_conn *c;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c) {
		mc_stream_close(stream);
		return mc_fail(-ENOMEM, "no memory for a connection");
	}
	c->s.server = s;
	c->loop = accept;
	c->stream = *stream;
	mc_evfd_stream(&c->ev, &c->stream);
	c->ev.ready = conn_ready;
	c->timer.fire = conn_timed_out;
	mc_list_init(&c->gate_link);
	mc_list_init(&c->again_link);
	mc_list_init(&c->partial_link);
	mc_list_init(&c->unread_link);
	mc_list_init(&c->reservation.link);
	mc_list_init(&c->leave_link);
	c->active_ns = c->born_ns = mc_now_ns();
	mc_stream_peer(&c->stream, &peer);
	strcpy(c->s.peer, peer.name);
	c->s.principal = mc_principal_of_peer(peer.local ? (int64_t)peer.uid : -1);
	mcp_server_count(s, 1);
	c->kept = true;
	r = conn_take_place(c);
	atomic_fetch_add(&accept->load, 1);
	loop_pace(accept);
	mc_list_push_back(&accept->conns, &c->link);
	if (r == 0)
		r = mc_evloop_add(accept->ev, &c->ev, EPOLLIN);
	if (r < 0) {
		mcp_conn_close(c);
		return r;
	}
	c->fresh = conn_has_keeper(c);
	conn_arm(c);
	return 0;
}
