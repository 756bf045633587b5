/* SPDX-License-Identifier: Apache-2.0
 * rpc_conn.c - sessions on sockets.
 *
 * One readable event is one recv(), the requests in it, and one send() of all their replies.  Input
 * goes into the loop's scratch memory; a connection holds memory of its own only while part of a frame
 * or of the replies is outstanding, and that comes from a pool of the loop.
 *
 * The rest of a request is read when there is room for it (rpc_room.h).  Who then does not send it is looked for once
 * a second.
 *
 * A peer that does not read its replies is not read from once they exceed max_outstanding.
 *
 * Replies that have to wait until what they say is safe stay in the connection's buffer behind a gate.  There are
 * two gates: what comes while the first one is shut is behind the second, so that a peer that goes on asking
 * does not put off the replies that it has waited for longest. */
#include <config.h>

#include "proto/rpc_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "proto/codec_i.h"

#define SCRATCH (256u << 10)
/* Replies of a batch are sent when they are so many bytes, to keep the loop's buffer in cache. */
#define FLUSH (256u << 10)
/* A hello is short; nobody is trusted with max_frame before it. */
#define GREETING_FRAME_MAX 65536u
#define FIRST_IN 4096u
#define DRAIN_MS 1000
#define CROWD 256u		/* connections on the lane loop */
#define LOOK_NS MC_NS_PER_SEC	/* at requests that do not come */
#define TURN_NS (2 * MC_NS_PER_MS)	/* at those that wait for room */
#define REST_MS 30000u		/* for a request to come whole, and for each of RATE bytes a second more */
#define RATE (1u << 20)
#define GATHER_US 5000u
#define GATHER_MAX_US 20000u	/* of eight times as many, and what a new connection may have to wait */

MC_COUNTER(bytes_in, "mooncake_rpc_received_bytes_total", "", "Bytes received from clients")
MC_COUNTER(given_up, "mooncake_rpc_requests_given_up_total", "", "Requests of which the rest did not come")
MC_COUNTER(bytes_out, "mooncake_rpc_sent_bytes_total", "", "Bytes sent to clients")

enum state {
	GREETING,	/* no hello yet; on the lane loop */
	ARRIVING,	/* hello heard, on the way to its loop */
	OPEN,
	DRAINING,	/* refused: the reply is out, what comes is dropped until the peer closes */
};

struct conn {
	struct mcp_session s;
	/* all owned by the loop's thread; while it arrives by nobody else */
	struct mcp_loop *loop;
	struct mc_list link;
	struct mc_evfd ev;
	struct mc_evtimer timer;
	enum state state;
	bool opened;			/* closed() is due */
	bool stalled;			/* not read from: see above */
	bool again;			/* nor now: the first request of @in is done in parts */
	uint32_t hello_id;
	uint64_t active_ns;		/* when bytes moved last */
	struct mcp_buf in;		/* begins with a frame that is not complete, or when stalled */
	struct mcp_buf out;		/* what the socket did not take */
	size_t out_sent;
	/* of the unfinished request in @in */
	struct mc_list part_link;	/* of the loop's parts or waiters */
	struct mcp_share share;
	uint64_t part_ns;		/* since when it is read */
	size_t part_seen;		/* bytes of it at the last look, 0: none yet */
	/* the end of it, behind gates that open when the server has settled their marks */
	struct mc_list gate_link;
	struct mc_list again_link;
	struct gate {
		size_t len;		/* 0: open */
		uint64_t mark;
	} first, second;
};

static size_t pending(const struct conn *c)
{
	return c->out.len - c->out_sent;
}

static size_t sendable(const struct conn *c)
{
	return pending(c) - c->first.len - c->second.len;
}

static uint64_t outstanding_max(const struct conn *c)
{
	return (uint64_t)c->s.server->conf.max_outstanding << 10;
}

/* ---- the loop's pool of buffers ---- */

static void borrow_buf(struct mcp_loop *l, struct mcp_buf *b)
{
	if (!b->data && l->pooled)
		*b = l->pool[--l->pooled];
}

static void return_buf(struct mcp_loop *l, struct mcp_buf *b)
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

static int keep(struct mcp_loop *l, struct mcp_buf *b, const uint8_t *p, size_t len)
{
	int r;

	borrow_buf(l, b);
	r = mcp_buf_reserve(b, len);
	if (r < 0)
		return r;
	memcpy(b->data + b->len, p, len);
	b->len += len;
	return 0;
}

/* ---- the end of a connection ---- */

/* The lane loop of a crowd looks at its heartbeats some at a time. */
static void pace(struct mcp_loop *l)
{
	unsigned n = atomic_load(&l->load);

	if (l == &l->server->loops[0])
		mc_evloop_gather(l->ev, n > 8 * CROWD ? GATHER_MAX_US : n > CROWD ? GATHER_US : 0);
}

static void conn_free(struct conn *c)
{
	close(c->ev.fd);
	mcp_buf_free(&c->in);
	mcp_buf_free(&c->out);
	atomic_fetch_sub(&c->loop->load, 1);
	pace(c->loop);
	mcp_server_count(c->s.server, -1);
	free(c);
}

/* It waits for nothing any more. */
static void open_gates(struct conn *c)
{
	if (mc_list_empty(&c->gate_link))
		return;
	mc_list_remove(&c->gate_link);
	atomic_fetch_sub(&c->loop->gated, 1);
}

/* There is no unfinished request any more. */
static void part_over(struct conn *c)
{
	mc_list_remove(&c->part_link);
	mcp_room_give(&c->s.server->room, &c->share);
}

static void conn_close(struct conn *c)
{
	struct mcp_server_conf *conf = &c->s.server->conf;

	mc_evloop_del(c->loop->ev, &c->ev);
	mc_evtimer_disarm(c->loop->ev, &c->timer);
	mc_list_remove(&c->link);
	mc_list_remove(&c->again_link);
	part_over(c);
	open_gates(c);
	if (c->opened && conf->closed)
		conf->closed(&c->s, conf->arg);
	return_buf(c->loop, &c->in);
	return_buf(c->loop, &c->out);
	conn_free(c);
}

void mcp_conn_close_all(struct mcp_loop *l)
{
	while (!mc_list_empty(&l->conns))
		conn_close(mc_list_first(&l->conns, struct conn, link));
}

/* ---- sending ---- */

static int watch(struct conn *c, uint32_t events)
{
	return events == c->ev.events ? 0 : mc_evloop_mod(c->loop->ev, &c->ev, events);
}

/* Bytes that the socket took, 0 when it is full, or negative. */
static ssize_t send_some(struct conn *c, const uint8_t *p, size_t len)
{
	ssize_t n = send(c->ev.fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0) {
		mc_metric_add(&bytes_out, n);
		return n;
	}
	return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

/* Send what is pending; what the socket does not take waits for EPOLLOUT. */
static int send_pending(struct conn *c)
{
	ssize_t n;

	while (sendable(c)) {
		n = send_some(c, c->out.data + c->out_sent, sendable(c));
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		c->out_sent += (size_t)n;
	}
	if (!pending(c)) {
		c->out_sent = 0;
		return_buf(c->loop, &c->out);
		return watch(c, c->ev.events & ~(uint32_t)EPOLLOUT);
	}
	if (c->out_sent > c->out.len / 2) {
		memmove(c->out.data, c->out.data + c->out_sent, pending(c));
		c->out.len -= c->out_sent;
		c->out_sent = 0;
	}
	return watch(c, sendable(c) ? c->ev.events | EPOLLOUT :
		     c->ev.events & ~(uint32_t)EPOLLOUT);
}

/* Send what is behind gates that may open; shut those that stay. */
static int release(struct conn *c)
{
	uint64_t settled = atomic_load(&c->s.server->settled);

	while (c->first.len && c->first.mark <= settled) {
		c->first = c->second;
		c->second = (struct gate){ 0 };
	}
	if (!c->first.len)
		open_gates(c);
	return send_pending(c);
}

/* Keep the loop's replies, which are all this connection's, until @mark is settled. */
static int hold(struct conn *c, uint64_t mark)
{
	struct mcp_buf *out = &c->loop->out;
	struct gate *g = c->first.len ? &c->second : &c->first;
	int r;

	r = keep(c->loop, &c->out, out->data, out->len);
	if (r < 0)
		return r;
	g->len += out->len;
	if (g->mark < mark)
		g->mark = mark;
	if (mc_list_empty(&c->gate_link)) {
		mc_list_push_back(&c->loop->gates, &c->gate_link);
		atomic_fetch_add(&c->loop->gated, 1);
	}
	/* Whoever has settled it before it was counted has not looked for it. */
	return atomic_load(&c->s.server->settled) >= c->first.mark ? release(c) : 0;
}

/* Send the loop's replies, which are all this connection's.  Behind unsent ones they have to queue. */
static int flush(struct conn *c)
{
	struct mcp_buf *out = &c->loop->out;
	uint64_t mark;
	ssize_t n = 0;
	int r;

	if (!out->len)
		return 0;
	mark = mcp_serve_owed(&c->s);
	if (!pending(c) && !mark)
		n = send_some(c, out->data, out->len);
	if (mark || c->first.len) {
		r = hold(c, mark);
	} else if (n >= 0 && (size_t)n < out->len) {
		r = keep(c->loop, &c->out, out->data + n, out->len - (size_t)n);
		if (r == 0)
			r = watch(c, c->ev.events | EPOLLOUT);
	} else {
		r = n < 0 ? (int)n : 0;
	}
	mcp_buf_reset(out);
	if (out->cap > MCP_POOL_CAP)
		mcp_buf_free(out);
	return r;
}

/* ---- requests ---- */

static int refuse(struct conn *c, uint32_t id, int err)
{
	int r;

	mc_info("rpc", "refusing a client: %s peer=%s", mc_err_detail(err), c->s.peer);
	r = mcp_serve_welcome(&c->s, id, err, &c->loop->out);
	if (r == 0)
		r = flush(c);
	if (r < 0)
		return r;
	/* Closing at once, with input unread, would reset the connection and lose the reply. */
	c->state = DRAINING;
	shutdown(c->ev.fd, SHUT_WR);
	mc_evtimer_arm(c->loop->ev, &c->timer, mc_deadline_ms(DRAIN_MS));
	return 0;
}

static int hello(struct conn *c, const struct mcp_frame *f, const uint8_t *body)
{
	int r = mcp_serve_hello(&c->s, f, body);

	if (r < 0)
		return refuse(c, f->id, r);
	c->hello_id = f->id;
	c->state = ARRIVING;
	return 0;
}

/* Handle one frame that is complete. */
static int handle(struct conn *c, const struct mcp_frame *f, const uint8_t *body, uint64_t *now)
{
	struct mcp_loop *l = c->loop;
	int r;

	if (c->state == GREETING)
		return hello(c, f, body);
	r = mcp_serve_request(&c->s, f, body, &l->out, now);
	if (r == 0 && l->out.len >= FLUSH)
		r = flush(c);
	if (pending(c) + l->out.len > outstanding_max(c)) {
		if (r == 0)
			r = flush(c);
		c->stalled = pending(c) > outstanding_max(c);
	}
	return r;
}

static bool takes_frames(const struct conn *c)
{
	return !c->stalled && !c->again && (c->state == GREETING || c->state == OPEN);
}

/* Handle the complete frames of @p.  *@used gets how many bytes they were. */
static int feed(struct conn *c, const uint8_t *p, size_t len, size_t *used)
{
	uint32_t max = c->state == GREETING ? GREETING_FRAME_MAX : c->s.server->conf.max_frame;
	uint64_t now = c->active_ns;
	struct mcp_frame f;
	size_t at = 0;
	int r = 0;

	while (r == 0 && takes_frames(c) && len - at >= MCP_FRAME_HEADER) {
		r = mcp_frame_unpack(p + at, max, &f);
		if (r == 0 && (f.flags & MCP_FRAME_REPLY || f.status))
			r = mc_fail(-MC_EPROTO, "malformed frame: a reply from a client");
		if (r < 0) {
			mcp_serve_bad_header(&c->s);
			break;
		}
		if (len - at - MCP_FRAME_HEADER < f.length)
			break;
		r = handle(c, &f, p + at + MCP_FRAME_HEADER, &now);
		if (r == MCP_AGAIN) {
			c->again = true;
			r = 0;
			break;
		}
		at += MCP_FRAME_HEADER + f.length;
	}
	*used = at;
	/* Also before an error: what was asked before the bad frame has been done. */
	if (flush(c) < 0 && r == 0)
		r = -EPIPE;
	return r;
}

/* ---- requests of which a part has come ---- */

/* What the request at the beginning of @in will be, as far as that is known. */
static size_t whole_of(const struct mcp_buf *in)
{
	return MCP_FRAME_HEADER + (in->len >= MCP_FRAME_HEADER ? mcp_get_u32(in->data) : 0);
}

static void look_in(struct mcp_loop *l, uint64_t ns)
{
	uint64_t due = mc_now_ns() + ns;

	if (!l->tick.due_ns || due < l->tick.due_ns)
		mc_evtimer_arm(l->ev, &l->tick, due);
}

static void part_begins(struct conn *c)
{
	c->part_ns = mc_now_ns();
	c->part_seen = 0;
	mc_list_remove(&c->part_link);
	mc_list_push_back(&c->loop->parts, &c->part_link);
	look_in(c->loop, LOOK_NS);
}

/* After frames were handled: is there a part of one, and does it have room?  @more: bytes came, but no request
 * has ended. */
static int part(struct conn *c, bool more)
{
	size_t whole = whole_of(&c->in);
	int r;

	/* What is there of a peer that does not read its replies is little beside those. */
	if (!c->in.len || !takes_frames(c)) {
		part_over(c);
		return 0;
	}
	if (more && c->share.bytes == whole)
		return 0;
	r = mcp_room_take(&c->s.server->room, &c->share, c->in.len, whole);
	if (r < 0)
		return r;
	if (r == 0 && !(more && !mc_list_empty(&c->part_link))) {
		part_begins(c);
	} else if (r) {
		mc_list_remove(&c->part_link);
		mc_list_push_back(&c->loop->waiters, &c->part_link);
		look_in(c->loop, TURN_NS);
	}
	return 0;
}

/* Has it not come for too long?  What is in the socket has come: maybe it was this server that stood still. */
static bool overdue(struct conn *c, uint64_t now)
{
	uint64_t rest_ns = REST_MS * MC_NS_PER_MS + c->in.len * MC_NS_PER_SEC / RATE;
	bool slow = c->part_seen && c->in.len - c->part_seen < RATE;
	uint8_t byte;

	c->part_seen = c->in.len;
	if (now - c->part_ns < rest_ns && !(slow && atomic_load(&c->s.server->room.waiting)))
		return false;
	return recv(c->ev.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static void let_in(struct mcp_loop *l)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &l->waiters) {
		struct conn *c = mc_container_of(pos, struct conn, part_link);

		if (mcp_share_waits(&c->share))
			continue;
		part_begins(c);
		if (watch(c, c->ev.events | EPOLLIN) < 0)
			conn_close(c);
	}
}

void mcp_conn_tick(struct mc_evtimer *t)
{
	struct mcp_loop *l = mc_container_of(t, struct mcp_loop, tick);
	uint64_t now = mc_now_ns();
	struct mc_list *pos, *tmp;

	let_in(l);
	if (now - l->looked_ns >= LOOK_NS) {
		l->looked_ns = now;
		mc_list_for_each_safe(pos, tmp, &l->parts) {
			struct conn *c = mc_container_of(pos, struct conn, part_link);

			if (!overdue(c, now))
				continue;
			mc_metric_add(&given_up, 1);
			mc_warn("rpc", "closing a connection: the rest of a request does not come peer=%s",
				c->s.peer);
			conn_close(c);
		}
	}
	if (!mc_list_empty(&l->waiters))
		look_in(l, TURN_NS);
	else if (!mc_list_empty(&l->parts))
		look_in(l, LOOK_NS);
}

static int set_off(struct conn *c);
static void go_on(void *loop);

/* After others have been served. */
static int later(struct conn *c)
{
	struct mcp_loop *l = c->loop;
	int r = l->again_posted ? 0 : mc_evloop_post(l->ev, go_on, l);

	if (r < 0)
		return r;
	l->again_posted = true;
	if (mc_list_empty(&c->again_link))
		mc_list_push_back(&l->agains, &c->again_link);
	return 0;
}

/* What has to happen after feed(): move to the right loop, stop or go on reading.  @more: as for part(). */
static int settle(struct conn *c, bool more)
{
	int r = part(c, more);

	if (r < 0)
		return r;
	if (c->state == ARRIVING)
		return set_off(c);
	if (c->state == DRAINING) {
		mcp_buf_reset(&c->in);
		return 0;
	}
	if (c->again && later(c) < 0)
		return -ENOMEM;
	return watch(c, c->stalled || c->again || mcp_share_waits(&c->share) ?
		     c->ev.events & ~(uint32_t)EPOLLIN : c->ev.events | EPOLLIN);
}

/* Handle what was kept of earlier input. */
static int feed_kept(struct conn *c)
{
	size_t used = 0;
	int r;

	if (c->in.len) {
		r = feed(c, c->in.data, c->in.len, &used);
		if (r < 0)
			return r;
		memmove(c->in.data, c->in.data + used, c->in.len - used);
		c->in.len -= used;
		if (!c->in.len)
			return_buf(c->loop, &c->in);
	}
	return settle(c, !used);
}

/* The loop's requests that are not done: each a part. */
static void go_on(void *loop)
{
	struct mcp_loop *l = loop;
	struct mc_list todo;

	l->again_posted = false;
	mc_list_init(&todo);
	while (!mc_list_empty(&l->agains)) {
		struct conn *c = mc_list_first(&l->agains, struct conn, again_link);

		mc_list_remove(&c->again_link);
		mc_list_push_back(&todo, &c->again_link);
	}
	while (!mc_list_empty(&todo)) {
		struct conn *c = mc_list_first(&todo, struct conn, again_link);

		mc_list_remove(&c->again_link);
		c->again = false;
		if (feed_kept(c) < 0)
			conn_close(c);
	}
}

/* ---- receiving ---- */

/* Room for the rest of the frame that @in begins with.  It grows with what has really come, so that
 * a header alone does not make the server hold a frame's worth of memory. */
static int make_room(struct mcp_buf *in)
{
	size_t whole = whole_of(in), limit;

	limit = in->len < FIRST_IN ? FIRST_IN : in->len;
	return mcp_buf_reserve(in, whole - in->len < limit ? whole - in->len : limit);
}

static int receive(struct conn *c)
{
	struct mcp_loop *l = c->loop;
	bool part = c->in.len > 0;
	size_t used, len = SCRATCH;
	uint8_t *to = l->scratch;
	ssize_t n;
	int r;

	if (part) {
		r = make_room(&c->in);
		if (r < 0)
			return r;
		to = c->in.data + c->in.len;
		len = c->in.cap - c->in.len;
	}
	n = recv(c->ev.fd, to, len, MSG_DONTWAIT);
	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
	mc_metric_add(&bytes_in, n);
	c->active_ns = mc_now_ns();
	if (c->state == DRAINING)
		return 0;
	if (part) {
		c->in.len += (size_t)n;
		return feed_kept(c);
	}
	r = feed(c, to, (size_t)n, &used);
	if (r == 0 && used < (size_t)n && c->state != DRAINING)
		r = keep(l, &c->in, to + used, (size_t)n - used);
	return r < 0 ? r : settle(c, false);
}

/* Replies have gone: is the peer read from again? */
static int resume(struct conn *c)
{
	if (!c->stalled || pending(c) > outstanding_max(c) / 2)
		return 0;
	c->stalled = false;
	return feed_kept(c);
}

void mcp_conn_release(void *loop)
{
	struct mcp_loop *l = loop;
	struct mc_list *pos, *tmp;

	atomic_store(&l->release, false);
	mc_list_for_each_safe(pos, tmp, &l->gates) {
		struct conn *c = mc_container_of(pos, struct conn, gate_link);

		if (release(c) < 0 || resume(c) < 0)
			conn_close(c);
	}
}

static void ready(struct mc_evfd *e, uint32_t events)
{
	struct conn *c = mc_container_of(e, struct conn, ev);
	int r = 0;

	if (events & EPOLLOUT) {
		size_t before = pending(c);

		r = send_pending(c);
		if (pending(c) < before)
			c->active_ns = mc_now_ns();
		if (r == 0)
			r = resume(c);
		/* It may be on its way to another loop or have more to send: the rest next time. */
	} else if (events & EPOLLIN) {
		r = receive(c);
	} else {
		r = -EPIPE;
	}
	if (r < 0)
		conn_close(c);
}

/* ---- from hello to open ---- */

/* Hello timeout, idle timeout, end of draining.  Traffic does not touch the timer: it looks itself,
 * when it fires, how long ago the last was. */
static void timed_out(struct mc_evtimer *t)
{
	struct conn *c = mc_container_of(t, struct conn, timer);
	uint64_t due = c->active_ns + c->s.server->conf.idle_timeout_ms * MC_NS_PER_MS;

	if (c->state == OPEN && due > mc_now_ns()) {
		mc_evtimer_arm(c->loop->ev, t, due);
		return;
	}
	mc_info("rpc", "closing a connection: %s peer=%s",
		c->state == OPEN ? "idle" : c->state == GREETING ? "no hello" : "refused", c->s.peer);
	conn_close(c);
}

/* The application says yes or no, then the client hears it and its early requests are handled. */
static int welcome(struct conn *c)
{
	struct mcp_server_conf *conf = &c->s.server->conf;
	int r = conf->opened ? conf->opened(&c->s, conf->arg) : 0;

	if (r < 0) {
		r = refuse(c, c->hello_id, r);
		return r < 0 ? r : settle(c, false);
	}
	c->opened = true;
	c->state = OPEN;
	if (conf->idle_timeout_ms)
		mc_evtimer_arm(c->loop->ev, &c->timer,
			       c->active_ns + conf->idle_timeout_ms * MC_NS_PER_MS);
	r = mcp_serve_welcome(&c->s, c->hello_id, 0, &c->loop->out);
	if (r == 0)
		r = flush(c);
	return r < 0 ? r : feed_kept(c);
}

static void arrive(void *arg)
{
	struct conn *c = arg;

	mc_list_push_back(&c->loop->conns, &c->link);
	if (mc_evloop_add(c->loop->ev, &c->ev, EPOLLIN) < 0 || welcome(c) < 0)
		conn_close(c);
}

/* lane loop: hand the connection to the loop of its lane.  After 0 it is not this thread's any more,
 * unless that loop is this one. */
static int set_off(struct conn *c)
{
	struct mcp_loop *lane = c->loop, *to;
	int r;

	mc_evtimer_disarm(lane->ev, &c->timer);
	if (c->s.lane == MCP_LANE_HEARTBEAT)
		return welcome(c);
	to = mcp_server_deal(c->s.server, c->s.lane);
	mc_evloop_del(lane->ev, &c->ev);
	mc_list_remove(&c->link);
	c->loop = to;
	r = mc_evloop_post(to->ev, arrive, c);
	if (r < 0) {
		atomic_fetch_sub(&to->load, 1);
		c->loop = lane;
		return r;
	}
	atomic_fetch_sub(&lane->load, 1);
	return 0;
}

int mcp_conn_new(struct mcp_loop *lane, int fd)
{
	struct mcp_server *s = lane->server;
	struct conn *c;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return mc_fail(-ENOMEM, "no memory for a connection");
	}
	c->s.server = s;
	c->loop = lane;
	c->ev.fd = fd;
	c->ev.ready = ready;
	c->timer.fire = timed_out;
	mc_list_init(&c->gate_link);
	mc_list_init(&c->again_link);
	mc_list_init(&c->part_link);
	mc_list_init(&c->share.link);
	c->active_ns = mc_now_ns();
	mc_peer_name(fd, c->s.peer);
	mcp_server_count(s, 1);
	c->s.excess = atomic_load(&s->connections) > s->conf.max_connections;
	atomic_fetch_add(&lane->load, 1);
	pace(lane);
	mc_list_push_back(&lane->conns, &c->link);
	r = mc_evloop_add(lane->ev, &c->ev, EPOLLIN);
	if (r < 0)
		conn_close(c);
	else
		mc_evtimer_arm(lane->ev, &c->timer,
			       c->active_ns + s->conf.hello_timeout_ms * MC_NS_PER_MS);
	return r;
}
