/* SPDX-License-Identifier: Apache-2.0
 * tcp_server.c - the service for TCP peers: listening ports and incoming connections (accept, greet, fence, watch,
 * close). */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/net/networks.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "common/sys/random.h"
#include "engine/tcp/tcp_client.h"
#include "engine/tcp/tcp_server.h"

#define BACKLOG 512
#define ACCEPTS 32
/* Time from the connection to the end of the greeting. */
#define GREETING_MS 10000
/* Idle connections that are closed when the process runs out of descriptors. */
#define YIELD_TOGETHER 8

MC_GAUGE(conns_in, "mooncake_transfer_lanes", "direction=\"in\"", "Open TCP connections between engines")
MC_GAUGE(named_in, "mooncake_transfer_upstream_peer_connections", "",
	 "Connections of other hosts that MC_UPSTREAM_PEERS admits without a credential")
MC_COUNTER(refused, "mooncake_transfer_refused_total", "",
	   "Incoming connections closed at once: over the limit, or not of our protocol")

MC_COUNTER(yielded, "mooncake_transfer_lanes_yielded_total", "",
	   "Idle incoming connections closed to make room for new ones")

struct listener {
	/* constant after open */
	struct mce_tcp_server *s;
	struct mc_listener listener;
	struct mc_evfd evfd;
	const struct mce_serve_proto *proto;
	const struct mc_net *net;
	/* owned by the first loop */
	bool paused;
};

struct mce_tcp_server {
	/* constant after open */
	struct mce_engine *e;
	struct listener ours, upstream;
	struct mce_watcher watcher;
	/* owned by the first loop */
	unsigned next_io;
	/* each owned by its loop */
	struct mc_list on_io[MCE_IO_MAX];
	struct mce_late_queue late[MCE_IO_MAX];
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_list conns;
	unsigned nconns;
};

static struct mce_tcp_server *tcp_server(struct mce_engine *e)
{
	return e->service[MCE_PATH_TCP];
}

/* ---- connections ------------------------------------------------------------------------------- */

void mce_serve_conn_ref(struct mce_serve_conn *c)
{
	MC_LOCKED(&c->s->lock);
	c->refs++;
}

void mce_serve_conn_unref(struct mce_serve_conn *c)
{
	bool last;

	mc_mutex_lock(&c->s->lock);
	last = --c->refs == 0;
	mc_mutex_unlock(&c->s->lock);
	if (!last)
		return;
	mc_stream_close(&c->stream);
	mce_rx_done(&c->rx);
	mc_mutex_destroy(&c->lock);
	free(c);
}

static void conn_count(const struct mce_serve_conn *c, int n)
{
	mc_metric_add(&conns_in, n);
	if (c->named)
		mc_metric_add(&named_in, n);
}

/* On the connection's loop, or after all loops have ended. */
static void conn_close(struct mce_serve_conn *c)
{
	struct mce_tcp_server *s = c->s;

	if (c->io->loop) {
		if (!c->handed_over)
			mc_evloop_del(c->io->loop, &c->evfd);
		mce_io_unwatch(c->io, &c->watcher);
	}
	c->closed = true;
	if (!c->handed_over)
		mc_stream_shutdown(&c->stream, SHUT_RDWR);
	mc_list_remove(&c->io_node);
	mce_serve_done(c);
	mc_mutex_lock(&s->lock);
	mc_list_remove(&c->node);
	s->nconns--;
	mc_mutex_unlock(&s->lock);
	conn_count(c, -1);
	mce_serve_conn_unref(c);
}

static bool conn_has_name(const struct mce_serve_conn *a, const struct mce_greeting *g)
{
	return a->greeted && a->token == g->token && a->idx == g->conn;
}

/* Give @c the name of the greeting and find the connection that had it.  -ESTALE when that is newer. */
static int conn_take_name(struct mce_serve_conn *c, const struct mce_greeting *g, struct mce_serve_conn **ret_old)
{
	struct mce_tcp_server *s = c->s;
	struct mce_serve_conn *old = NULL;
	struct mc_list *pos;
	int r = 0;

	mc_mutex_lock(&s->lock);
	mc_list_for_each(pos, &s->conns) {
		struct mce_serve_conn *o = mc_container_of(pos, struct mce_serve_conn, node);

		if (!conn_has_name(o, g))
			continue;
		if (o->epoch >= g->epoch)
			r = -ESTALE;
		else if (!old || o->epoch > old->epoch)
			old = o;
	}
	if (r == 0) {
		c->token = g->token;
		c->idx = g->conn;
		c->epoch = g->epoch;
		c->fence = g->fence;
		memcpy(c->nonce, g->id.nonce, sizeof(c->nonce));
		/* Under the lock under which a fence looks for the connections that it closes. */
		c->read_only = mce_writer_is_fenced(s->e, g->id.nonce, g->fence) ||
			       !mce_may_write(c->principal);
		c->greeted = true;
		if (old)
			old->refs++;
	}
	mc_mutex_unlock(&s->lock);
	*ret_old = r == 0 ? old : NULL;
	return r;
}

/* After return no request in the socket of @old is carried out. */
static void conn_fence(struct mce_serve_conn *old)
{
	mc_mutex_lock(&old->lock);
	old->fenced = true;
	mc_mutex_unlock(&old->lock);
	mc_stream_shutdown(&old->stream, SHUT_RDWR);
	mce_serve_conn_unref(old);
}

static void conn_reply(struct mce_serve_conn *c, int status)
{
	struct mce_greeting g = {
		.version = MCE_WIRE_VERSION, .version_min = MCE_WIRE_VERSION_MIN,
		.features = mce_wire_features(c->io->e) | mce_services_features(c->io->e), .id = c->io->e->id,
		.status = status < 0 ? mc_err_to_wire(status) : 0,
		.len_max = MCE_WIRE_LEN_MAX, .window = MCE_WIRE_WINDOW,
	};

	mce_greeting_pack(c->greeting, &g);
	c->greeting_left = MCE_GREETING_SIZE;
	c->closing = status < 0;
}

/* The connection belongs to another service from now on, which answers the greeting.  The result ends it here. */
static int conn_hand_over(struct mce_serve_conn *c, const struct mce_greeting *g)
{
	int r;

	/* The client sends nothing before the answer. */
	if (mce_rx_have(&c->rx))
		return -MC_EPROTO;
	/* Before the other service, which may close the stream at once. */
	mc_evloop_del(c->io->loop, &c->evfd);
	r = mce_services_take_connection(c->io->e, &c->stream, g);
	if (r < 0)
		return r;
	c->stream.ops = NULL;
	c->handed_over = true;
	return -ECANCELED;
}

/* The handshake, if there is one, is complete. */
static void conn_identify(struct mce_serve_conn *c)
{
	struct mc_stream_peer peer;

	mc_stream_peer(&c->stream, &peer);
	c->principal = peer.principal;
}

static bool conn_admitted(const struct mce_serve_conn *c)
{
	return mce_admits(c->io->e, c->principal);
}

/* 0: greeted, or the greeting is incomplete. */
static int conn_greet(struct mce_serve_conn *c)
{
	struct mce_serve_conn *old = NULL;
	struct mce_greeting g = { .size = 0 };
	int r;

	while ((r = mce_greeting_unpack(mce_rx_peek(&c->rx), mce_rx_have(&c->rx), &g)) == 0) {
		if (c->rx.dry)
			return 0;
		r = mce_rx_headers(&c->rx);
		if (r < 0)
			return r;
	}
	if (r < 0) {
		mc_metric_add(&refused, 1);
		return mc_fail(r, "not a protocol of this port");
	}
	mce_rx_use(&c->rx, (size_t)r);
	conn_identify(c);
	/* conn_tick() would let a peer that was revoked send requests until then, and connect again. */
	if (!conn_admitted(c)) {
		mc_metric_add(&refused, 1);
		return mc_fail(-EACCES, "the peer's identity is not admitted any more");
	}
	if (g.version < MCE_WIRE_VERSION_MIN || g.version_min > MCE_WIRE_VERSION)
		r = -MC_EVERSION;
	else if (g.conn == MCE_CONTROL_CONN && g.features & MCE_FEATURE_RDMA)
		return conn_hand_over(c, &g);
	else
		r = conn_take_name(c, &g, &old);
	if (old)
		conn_fence(old);
	c->acks_upto = g.features & MCE_FEATURE_ACK_UPTO;
	if (g.features & MCE_FEATURE_CAPS)
		c->rx.header = MCE_REQ_CAP_SIZE;
	conn_reply(c, r < 0 ? r : 0);
	return 0;
}

static bool conn_is_greeted(const struct mce_serve_conn *c)
{
	return !c->proto->greets || c->greeting_left || c->greeted;
}

bool mce_serve_conn_stale(const struct mce_serve_conn *c)
{
	bool stalled = mce_io_stalled(c->io);

	return stalled && c->proto->greets && c->begun_ms <= c->io->last_ms;
}

static void conn_run(struct mce_serve_conn *c)
{
	int r = 0;

	if (!conn_is_greeted(c))
		r = conn_greet(c);
	if (r == 0 && conn_is_greeted(c)) {
		mc_mutex_lock(&c->lock);
		r = c->fenced ? -ESTALE : mce_serve(c);
		mc_mutex_unlock(&c->lock);
	}
	if (r == -EAGAIN)
		mce_io_resume_later(c->io, &c->watcher);
	else if (r < 0)
		conn_close(c);
}

static void conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_serve_conn *c = mc_container_of(e, struct mce_serve_conn, evfd);

	if (mce_serve_conn_stale(c)) {
		conn_close(c);
		return;
	}
	if (events & EPOLLOUT)
		c->tx_blocked = false;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->rx.ending = true;
	c->rx.dry = false;
	conn_run(c);
}

void mce_serve_conn_resume(struct mce_serve_conn *c)
{
	if (mce_serve_conn_stale(c))
		conn_close(c);
	else
		conn_run(c);
}

static void conn_resume(struct mce_watcher *w)
{
	mce_serve_conn_resume(mc_container_of(w, struct mce_serve_conn, watcher));
}

struct mce_late_queue *mce_serve_late_queue(const struct mce_serve_conn *c)
{
	return &c->s->late[c->io - c->io->e->io];
}

static void conn_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_serve_conn *c = mc_container_of(w, struct mce_serve_conn, watcher);
	uint64_t moved = c->rx.moved + c->tx_moved, limit;

	mce_idle_tick(c, moved != c->seen_moved, now_ms);
	limit = conn_is_greeted(c) ? c->io->e->conf.progress_timeout_ms : GREETING_MS;
	/* A slow source of bytes is not the peer's fault. */
	if (moved != c->seen_moved || c->reading || (conn_is_greeted(c) && !mce_serve_busy(c))) {
		c->seen_moved = moved;
		c->since_ms = now_ms;
	}
	if (mce_serve_conn_stale(c) || now_ms - c->since_ms > limit || !conn_admitted(c) ||
	    (c->lingering && now_ms > c->linger_until_ms))
		conn_close(c);
}

/* ---- accepting --------------------------------------------------------------------------------- */

static void conn_begin(void *arg)
{
	struct mce_serve_conn *c = arg;

	mc_list_push_back(&c->s->on_io[c->io - c->io->e->io], &c->io_node);
	mce_io_watch(c->io, &c->watcher);
	/* Note that the loop runs now, so that a later stall begins after begun_ms. */
	(void)mce_io_stalled(c->io);
	c->begun_ms = c->since_ms = mc_now_ms();
	if (mc_evloop_add(c->io->loop, &c->evfd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0)
		conn_close(c);
}

void mce_tcp_tune(struct mc_stream *s, uint64_t timeout_ms)
{
	const struct mc_stream_tuning tuning = {
		.nodelay = true, .unacked_ms = timeout_ms > 600000 ? 600000 : (unsigned)timeout_ms,
	};

	mc_stream_tune(s, &tuning);
}

/* On the loop of a connection that gives way: it may have got work meanwhile. */
static void conn_yield(void *arg)
{
	struct mce_serve_conn *c = arg;

	if (!c->closed && !mce_serve_busy(c)) {
		mc_metric_add(&yielded, 1);
		conn_close(c);
	} else {
		mc_mutex_lock(&c->s->lock);
		c->yields = false;
		mc_mutex_unlock(&c->s->lock);
	}
	mce_serve_conn_unref(c);
}

static void conn_post_yield(struct mce_serve_conn *c)
{
	if (mc_evloop_post(c->io->loop, conn_yield, c) < 0)
		mce_serve_conn_unref(c);
}

static int conn_admit(struct mce_tcp_server *s, const struct in6_addr *from)
{
	struct mce_serve_conn *yields;
	int r;

	mc_mutex_lock(&s->lock);
	r = mce_idle_admit_locked(&s->conns, s->e->conf.max_peers_in, from, mc_now_ms(), &yields);
	if (yields)
		yields->refs++;
	mc_mutex_unlock(&s->lock);
	if (yields)
		conn_post_yield(yields);
	return r;
}

/* The process has no free descriptor for a new connection. */
static void server_free_descriptors(struct mce_tcp_server *s)
{
	struct mce_serve_conn *c;

	for (unsigned i = 0; i < YIELD_TOGETHER; i++) {
		mc_mutex_lock(&s->lock);
		c = mce_idle_pick_locked(&s->conns, NULL, mc_now_ms());
		if (c)
			c->refs++;
		mc_mutex_unlock(&s->lock);
		if (!c)
			return;
		conn_post_yield(c);
	}
}

/* The stream becomes the connection's on success. */
static int conn_new(struct listener *from, const struct mc_stream *stream)
{
	struct mce_tcp_server *s = from->s;
	struct mc_stream_peer peer;
	struct mce_serve_conn *c;
	struct in6_addr addr;
	bool named;
	int r;

	mce_idle_address(stream, &addr);
	mc_stream_peer(stream, &peer);
	named = s->e->conf.networks && !peer.same_host;
	if (named && !mc_networks_admit(s->e->conf.networks, &addr))
		return -EACCES;
	r = conn_admit(s, &addr);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	r = mce_rx_init(&c->rx, &c->stream, from->proto->header);
	if (r < 0) {
		free(c);
		return r;
	}
	/* A greeting, then possibly small requests: receive all that has arrived. */
	c->rx.small = true;
	c->s = s;
	c->from = addr;
	c->named = named;
	c->proto = from->proto;
	c->to = c->holds = &mce_bytes_none;
	c->io = &s->e->io[s->next_io++ % s->e->nio];
	c->refs = 1;
	c->stream = *stream;
	mc_evfd_stream(&c->evfd, &c->stream);
	c->evfd.ready = conn_ready;
	c->watcher.tick = conn_tick;
	c->watcher.resume = conn_resume;
	mc_list_init(&c->io_node);
	mc_list_init(&c->watcher.node);
	mc_list_init(&c->watcher.resume_node);
	mc_mutex_init(&c->lock);
	mc_mutex_lock(&s->lock);
	mc_list_push_back(&s->conns, &c->node);
	s->nconns++;
	mc_mutex_unlock(&s->lock);
	conn_count(c, 1);
	r = mc_evloop_post(c->io->loop, conn_begin, c);
	if (r < 0) {
		mc_mutex_lock(&s->lock);
		mc_list_remove(&c->node);
		s->nconns--;
		mc_mutex_unlock(&s->lock);
		conn_count(c, -1);
		mce_serve_conn_unref(c);
	}
	return 0;
}

static void listener_ready(struct mc_evfd *e, uint32_t events)
{
	struct listener *from = mc_container_of(e, struct listener, evfd);
	struct mce_tcp_server *s = from->s;
	struct mc_stream stream;
	int r;

	for (unsigned i = 0; i < ACCEPTS; i++) {
		r = mc_listener_accept(&from->listener, &stream);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			mc_warn("engine", "cannot accept, trying again soon: %s", mc_err_detail(r));
			if (r == -EMFILE || r == -ENFILE)
				server_free_descriptors(s);
			from->paused = mc_evloop_mod(s->e->io[0].loop, e, 0) == 0;
			return;
		}
		mce_tcp_tune(&stream, s->e->conf.progress_timeout_ms);
		r = conn_new(from, &stream);
		if (r < 0) {
			mc_warn("engine", "incoming connection refused: %s limit=%u", mc_strerror(r),
				s->e->conf.max_peers_in);
			mc_metric_add(&refused, 1);
			mc_stream_close(&stream);
		}
	}
}

static void listener_resume(struct listener *l)
{
	if (l->paused)
		l->paused = mc_evloop_mod(l->s->e->io[0].loop, &l->evfd, EPOLLIN) != 0;
}

static void server_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_tcp_server *s = mc_container_of(w, struct mce_tcp_server, watcher);

	listener_resume(&s->ours);
	listener_resume(&s->upstream);
}

/* ---- peers and regions ------------------------------------------------------------------------- */

static bool tcp_knows_peer(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who)
{
	struct mce_tcp_server *s = tcp_server(e);
	struct mc_list *pos;
	bool found = false;

	mc_mutex_lock(&s->lock);
	mc_list_for_each(pos, &s->conns) {
		struct mce_serve_conn *c = mc_container_of(pos, struct mce_serve_conn, node);

		if (!c->greeted || c->token != token)
			continue;
		memcpy(ret_nonce, c->nonce, sizeof(c->nonce));
		*ret_who = c->principal ? *c->principal : mc_principal_of_peer(-1);
		found = true;
	}
	mc_mutex_unlock(&s->lock);
	return found;
}

/* A greeted connection that the order affects and that is not fenced yet, with a reference; NULL: none. */
static struct mce_serve_conn *conn_to_fence(struct mce_tcp_server *s, const uint8_t nonce[16], uint64_t upto)
{
	struct mce_serve_conn *found = NULL;
	struct mc_list *pos;

	mc_mutex_lock(&s->lock);
	mc_list_for_each(pos, &s->conns) {
		struct mce_serve_conn *c = mc_container_of(pos, struct mce_serve_conn, node);

		if (c->greeted && !c->ending && !c->read_only && mce_fence_matches(nonce, upto, c->nonce, c->fence)) {
			c->ending = true;
			c->refs++;
			found = c;
			break;
		}
	}
	mc_mutex_unlock(&s->lock);
	return found;
}

static int tcp_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto)
{
	struct mce_serve_conn *c;

	while ((c = conn_to_fence(tcp_server(e), nonce, upto)))
		conn_fence(c);
	return 0;
}

static void tcp_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr)
{
	mce_bytes_set(mr, mr->medium ? &mce_bytes_medium : mr->gpu >= 0 ? &mce_bytes_gpu : &mce_bytes_memory);
}

struct revoke {
	struct mce_tcp_server *s;
	struct mce_mr *mr;
	unsigned io;
};

static void revoke_run(void *arg)
{
	struct revoke *v = arg;
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &v->s->on_io[v->io]) {
		struct mce_serve_conn *c = mc_container_of(pos, struct mce_serve_conn, io_node);

		if (!mce_serve_revoke(c, v->mr))
			conn_close(c);
	}
}

/* After return no I/O thread uses the region. */
static void tcp_revoke_begin(struct mce_mr *mr)
{
	struct revoke v = { .s = tcp_server(mr->e), .mr = mr };

	for (v.io = 0; v.io < mr->e->nio; v.io++)
		mce_io_call(&mr->e->io[v.io], revoke_run, &v);
}

/* ---- opening and closing ----------------------------------------------------------------------- */

static void server_begin(void *arg)
{
	struct mce_tcp_server *s = arg;

	mce_io_watch(&s->e->io[0], &s->watcher);
}

static void listener_init(struct mce_tcp_server *s, struct listener *l, const struct mce_serve_proto *proto,
			  const struct mc_net *net)
{
	l->s = s;
	l->proto = proto;
	l->net = net;
	l->evfd.ready = listener_ready;
}

static int tcp_open(struct mce_engine *e)
{
	struct mce_tcp_server *s;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	e->service[MCE_PATH_TCP] = s;
	s->e = e;
	listener_init(s, &s->ours, &mce_serve_ours, e->conf.net);
	listener_init(s, &s->upstream, &mce_serve_upstream, mc_net_plain());
	mc_list_init(&s->conns);
	for (unsigned i = 0; i < MCE_IO_MAX; i++) {
		mc_list_init(&s->on_io[i]);
		mce_late_queue_init(&s->late[i]);
	}
	mc_mutex_init(&s->lock);
	s->watcher.tick = server_tick;
	return mc_evloop_post(e->io[0].loop, server_begin, s);
}

/* NULL @host: on the addresses of both families, if the machine has both. */
static int listener_listen(struct listener *l, const char *host, int port)
{
	char addr[MC_ADDR_MAX];
	int r = mc_addr_join(host ? host : "::", port, addr);

	if (r < 0)
		return r;
	r = mc_net_listen(l->net, addr, BACKLOG, &l->listener);
	if (!host && (r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL)) {
		(void)mc_addr_join("0.0.0.0", port, addr);
		r = mc_net_listen(l->net, addr, BACKLOG, &l->listener);
	}
	if (r == 0)
		mc_evfd_listener(&l->evfd, &l->listener);
	return r;
}

/* Listen on a free port of the range; -EADDRINUSE: none is free.  Begins at a random port, so that engines that start
 * together seldom try the same one. */
static int listener_listen_between(struct listener *l, const char *host, int min, int max)
{
	unsigned n = (unsigned)(max - min) + 1, from = mc_random_u64() % n;
	int r = -EADDRINUSE;

	for (unsigned i = 0; i < n && r == -EADDRINUSE; i++)
		r = listener_listen(l, host, min + (int)((from + i) % n));
	return r;
}

static int listener_port(const struct listener *l, int *ret)
{
	char ignored[MC_ADDR_MAX];

	return mc_addr_split(l->listener.addr, ignored, sizeof(ignored), -1, ret);
}

/* Listen at @bind_host, at a port that mce_conf allows.  Peers connect to @host, which becomes the engine's
 * endpoint. */
static int server_listen(struct mce_tcp_server *s, const char *host, const char *bind_host)
{
	const struct mce_conf *c = &s->e->conf;
	bool range = c->port == 0 && c->port_max;
	int port, r = -EADDRINUSE;

	if (range)
		r = listener_listen_between(&s->ours, bind_host, c->port_min, c->port_max);
	if (range && r == -EADDRINUSE)
		mc_warn("engine", "no free port from %d to %d is left, of which an engine takes three: "
			"listening for engines of this kind on a port outside the range", c->port_min, c->port_max);
	if (r == -EADDRINUSE)
		r = listener_listen(&s->ours, bind_host, c->port);
	if (r == 0)
		r = listener_port(&s->ours, &port);
	if (r == 0)
		r = mc_addr_join(host, port, s->e->endpoint);
	return r < 0 ? r : mc_evloop_add(s->e->io[0].loop, &s->ours.evfd, EPOLLIN);
}

/* Listen for upstream's nodes as well; NULL @bind_host: on all addresses of both families. */
static int server_listen_upstream(struct mce_tcp_server *s, const char *bind_host)
{
	const struct mce_conf *c = &s->e->conf;
	int min = c->upstream_port ? c->upstream_port : c->upstream_port_min;
	int max = c->upstream_port ? c->upstream_port : c->upstream_port_max;
	int r;

	r = listener_listen_between(&s->upstream, bind_host, min, max);
	if (r == -EADDRINUSE && c->upstream_port == 0)
		return mc_fail(r, "no free port found between %d and %d, of which an engine takes three", min, max);
	if (r == 0)
		r = listener_port(&s->upstream, &s->e->upstream_port);
	return r < 0 ? r : mc_evloop_add(s->e->io[0].loop, &s->upstream.evfd, EPOLLIN);
}

static int tcp_start(struct mce_engine *e, const struct mce_conf *conf)
{
	const char *host = conf->host ? conf->host : "127.0.0.1";
	int r = 0;

	/* First, because only this range is possible for upstream's port. */
	if (conf->upstream)
		r = server_listen_upstream(tcp_server(e), conf->bind_host);
	return r < 0 ? r : server_listen(tcp_server(e), host, conf->bind_host ? conf->bind_host : host);
}

static void tcp_close(struct mce_engine *e)
{
	struct mce_tcp_server *s = tcp_server(e);

	mce_fences_close(e);
	if (!s)
		return;
	while (!mc_list_empty(&s->conns))
		conn_close(mc_list_first(&s->conns, struct mce_serve_conn, node));
	mc_listener_close(&s->ours.listener);
	mc_listener_close(&s->upstream.listener);
	mc_mutex_destroy(&s->lock);
	free(s);
}

const struct mce_service mce_tcp_service = {
	.open = tcp_open,
	.start = tcp_start,
	.close = tcp_close,
	.region_add = tcp_region_add,
	.revoke_begin = tcp_revoke_begin,
	.revoke_wait = mce_no_revoke,
	.knows_peer = tcp_knows_peer,
	.features = mce_no_features,
	.take_connection = mce_no_connection,
	.fence = tcp_fence,
};
