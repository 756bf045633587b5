/* SPDX-License-Identifier: Apache-2.0
 * rpc_server.c - start and stop of a server, listeners, accepting, loops. */
#include <config.h>

#include "proto/rpc_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"

#define BACKLOG 1024
#define SCRATCH (256u << 10)
#define ACCEPTS_PER_EVENT 64
#define ACCEPT_RETRY_NS (100 * MC_NS_PER_MS)

MC_GAUGE(connections, "mooncake_rpc_connections", "", "Open connections")

void mcp_server_count(struct mcp_server *s, int n)
{
	atomic_fetch_add(&s->connections, (unsigned)n);
	mc_metric_add(&connections, n);
}

struct mcp_loop *mcp_server_assign(struct mcp_server *s, enum mcp_channel channel)
{
	struct mcp_loop *best = &s->loops[0];

	if (channel == MCP_CHANNEL_CONTROL) {
		best = &s->loops[1];
		for (unsigned i = 2; i < s->loop_count; i++)
			if (atomic_load(&s->loops[i].load) < atomic_load(&best->load))
				best = &s->loops[i];
	}
	atomic_fetch_add(&best->load, 1);
	return best;
}

/* ---- accepting, on the accept loop ---- */

static void listener_admit(struct mcp_listener *li, struct mc_stream *stream)
{
	struct mcp_server *s = li->server;
	const struct mc_stream_tuning tuning = { .nodelay = s->conf.tcp_nodelay };
	int r;

	mc_stream_tune(stream, &tuning);
	r = mcp_conn_new(&s->loops[0], stream);
	if (r < 0)
		mc_warn("rpc", "dropping a new connection: %s", mc_err_detail(r));
}

static void server_watch_listeners(struct mcp_server *s, uint32_t events)
{
	for (unsigned i = 0; i < s->listener_count; i++)
		mc_evloop_mod(s->loops[0].ev, &s->listeners[i].ev, events);
}

/* While no descriptor is free, the connection that waits to be accepted would wake the loop again and again. */
static void server_pause_accepting(struct mcp_server *s, int err)
{
	mc_warn("rpc", "cannot accept connections for now: %s", mc_strerror(err));
	server_watch_listeners(s, 0);
	mc_evtimer_arm(s->loops[0].ev, &s->retry, mc_now_ns() + ACCEPT_RETRY_NS);
}

static void server_resume_accepting(struct mc_evtimer *t)
{
	server_watch_listeners(mc_container_of(t, struct mcp_server, retry), EPOLLIN);
}

static void listener_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcp_listener *li = mc_container_of(e, struct mcp_listener, ev);

	for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
		struct mc_stream stream;
		int r = mc_listener_accept(&li->listener, &stream);

		if (r == 0) {
			listener_admit(li, &stream);
		} else {
			if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -ENOBUFS)
				server_pause_accepting(li->server, r);
			return;
		}
	}
}

static int listener_open(struct mcp_server *s, const char *addr)
{
	struct mcp_listener *li = &s->listeners[s->listener_count];

	int r;

	li->server = s;
	li->ev.ready = listener_ready;
	r = mc_net_listen(s->conf.net, addr, BACKLOG, &li->listener);
	if (r < 0)
		return r;
	mc_evfd_listener(&li->ev, &li->listener);
	s->listener_count++;
	return 0;
}

void mcp_server_durable(struct mcp_server *s, uint64_t mark)
{
	unsigned i;

	atomic_store(&s->durable, mark);
	for (i = 0; i < s->loop_count; i++) {
		struct mcp_loop *l = &s->loops[i];

		if (!atomic_load(&l->gated) || atomic_exchange(&l->release, true))
			continue;
		/* Without memory for the post: the next call releases these replies too. */
		if (mc_evloop_post(l->ev, mcp_conn_release_all, l) < 0)
			atomic_store(&l->release, false);
	}
}

const char *mcp_server_addr(const struct mcp_server *s, unsigned i)
{
	return i < s->listener_count ? s->listeners[i].listener.addr : NULL;
}

/* ---- start ---- */

static int server_copy_conf(struct mcp_server *s, const struct mcp_server_conf *conf)
{
	struct mcp_server_conf *c = &s->conf;

	*c = *conf;
	c->net = conf->net ? conf->net : mc_net_default();
	c->addrs = NULL;
	c->max_connections = conf->max_connections ? conf->max_connections : 65536;
	mcp_places_init(&s->places, c->max_connections,
			conf->max_peer_connections ? conf->max_peer_connections : c->max_connections);
	s->software = strdup(conf->software ? conf->software : "");
	s->local_name = conf->local_name ? strdup(conf->local_name) : NULL;
	if (!s->software || (conf->local_name && !s->local_name))
		return mc_fail(-ENOMEM, "no memory for an rpc server");
	c->software = s->software;
	c->local_name = s->local_name;
	c->max_frame = conf->max_frame ? conf->max_frame : MCP_FRAME_MAX;
	c->max_outstanding = conf->max_outstanding ? conf->max_outstanding : 262144;
	c->max_unread = conf->max_unread ? conf->max_unread : 4 * ((uint64_t)c->max_outstanding << 10);
	if (c->max_unfinished < 4 * (uint64_t)(c->max_frame + MCP_FRAME_HEADER))
		c->max_unfinished = 4 * (uint64_t)(c->max_frame + MCP_FRAME_HEADER);
	mcp_budget_init(&s->budget, c->max_unfinished);
	c->hello_timeout_ms = conf->hello_timeout_ms ? conf->hello_timeout_ms : 10000;
	if (mcp_id_zero(c->server_id))
		c->server_id = (struct mcp_id){ mc_random_u64(), mc_random_u64() };
	return 0;
}

static int server_make_handlers(struct mcp_server *s, const struct mcp_handler *h, const uint16_t *any_channel,
				const uint16_t *audited)
{
	static const uint16_t none[] = { 0 };

	for (unsigned i = 0; h[i].type; i++) {
		if (!h[i].fn || !mcp_roles_of(h[i].type) || h[i].type == MCP_HELLO || !mcp_desc_of(h[i].type, false))
			return mc_fail(-EINVAL, "invalid rpc handler for message type %u", h[i].type);
		if (h[i].type >= s->types)
			s->types = h[i].type + 1u;
	}
	s->by_type = calloc(s->types + 1u, sizeof(*s->by_type));
	if (!s->by_type)
		return mc_fail(-ENOMEM, "no memory for an rpc server");
	for (; h->type; h++) {
		s->by_type[h->type].fn = h->fn;
		s->by_type[h->type].roles = mcp_roles_of(h->type);
		s->by_type[h->type].audited = s->by_type[h->type].roles == MC_MAY_ADMINISTER;
	}
	for (any_channel = any_channel ? any_channel : none; *any_channel; any_channel++) {
		if (*any_channel >= s->types || !s->by_type[*any_channel].fn)
			return mc_fail(-EINVAL, "no rpc handler for message type %u on any channel", *any_channel);
		s->by_type[*any_channel].any_channel = true;
	}
	for (audited = audited ? audited : none; *audited; audited++)
		if (*audited < s->types)
			s->by_type[*audited].audited = true;
	return 0;
}

static int server_make_loop(struct mcp_server *s, unsigned i)
{
	struct mcp_loop *l = &s->loops[i];
	char name[32];
	int r;

	snprintf(name, sizeof(name), i ? "mc-rpc-%u" : "mc-rpc-accept", i);
	l->server = s;
	mc_list_init(&l->gates);
	mc_list_init(&l->agains);
	mc_list_init(&l->conns);
	mc_list_init(&l->partials);
	mc_list_init(&l->waiting);
	mc_list_init(&l->unread);
	mc_list_init(&l->leaving);
	l->tick.fire = mcp_conn_tick;
	l->scratch = malloc(SCRATCH);
	if (!l->scratch)
		return mc_fail(-ENOMEM, "no memory for loop %s", name);
	r = mc_evloop_new(name, i ? s->conf.spin_us : 0, &l->ev);
	if (r < 0)
		return r;
	r = mc_evloop_start(l->ev);
	if (r < 0)
		mc_evloop_free(TAKE_PTR(l->ev));
	return r;
}

static int server_make_loops(struct mcp_server *s)
{
	unsigned count = (s->conf.loops ? s->conf.loops : 1) + 1;
	int r = 0;

	s->loops = calloc(count, sizeof(*s->loops));
	if (!s->loops)
		return mc_fail(-ENOMEM, "no memory for %u loops", count);
	while (r == 0 && s->loop_count < count)
		r = server_make_loop(s, s->loop_count++);
	return r;
}

static int server_make_listeners(struct mcp_server *s, const char *const *addrs)
{
	unsigned count = 0;
	int r = 0;

	while (addrs && addrs[count])
		count++;
	s->listeners = calloc(count + 1, sizeof(*s->listeners));
	if (!s->listeners)
		return mc_fail(-ENOMEM, "no memory for %u addresses", count);
	for (unsigned i = 0; i < count && r == 0; i++)
		r = listener_open(s, addrs[i]);
	return r;
}

int mcp_server_start(const struct mcp_server_conf *conf, struct mcp_server **ret)
{
	struct mcp_server *s;
	int r;

	s = calloc(1, sizeof(*s));
	if (!s)
		return mc_fail(-ENOMEM, "no memory for an rpc server");
	mc_list_init(&s->named);
	mc_list_init(&s->locals);
	s->retry.fire = server_resume_accepting;
	r = server_copy_conf(s, conf);
	if (r == 0)
		r = server_make_handlers(s, conf->handlers, conf->any_channel, conf->audited);
	if (r == 0)
		r = server_make_listeners(s, conf->addrs);
	if (r == 0)
		r = server_make_loops(s);
	if (r == 0 && s->local_name)
		r = mcp_local_publish(s);
	for (unsigned i = 0; i < s->listener_count && r == 0; i++)
		r = mc_evloop_add(s->loops[0].ev, &s->listeners[i].ev, EPOLLIN);
	if (r < 0) {
		mcp_server_stop(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* ---- revoked peers ---- */

struct cut {
	struct mcp_loop *loop;
	bool (*cut)(const struct mc_principal *p, void *arg);
	void *arg;
};

static void loop_cut(void *arg)
{
	const struct cut *c = arg;

	mcp_conn_cut(c->loop, c->cut, c->arg);
}

void mcp_server_cut(struct mcp_server *s, bool (*cut)(const struct mc_principal *p, void *arg), void *arg)
{
	/* The accept loop first: a connection that it hands over meanwhile is found in its next loop. */
	for (unsigned i = 0; i < s->loop_count; i++) {
		struct cut c = { &s->loops[i], cut, arg };

		mc_evloop_call(s->loops[i].ev, loop_cut, &c);
	}
}

/* ---- stop ---- */

static void loop_stop(void *arg)
{
	struct mcp_loop *l = arg;
	struct mcp_server *s = l->server;

	if (l == &s->loops[0]) {
		mc_evtimer_disarm(l->ev, &s->retry);
		for (unsigned i = 0; i < s->listener_count; i++)
			mc_evloop_del(l->ev, &s->listeners[i].ev);
	}
	mc_evtimer_disarm(l->ev, &l->tick);
	mcp_conn_close_all(l);
}

static void loop_free(struct mcp_loop *l)
{
	mc_evloop_free(l->ev);
	for (unsigned i = 0; i < l->pooled; i++)
		mcp_buf_free(&l->pool[i]);
	mcp_buf_free(&l->out);
	free(l->scratch);
}

void mcp_server_stop(struct mcp_server *s)
{
	if (!s)
		return;
	mcp_local_retire(s);
	/* The accept loop first: sessions that it has handed over have reached their loops before these stop. */
	for (unsigned i = 0; i < s->loop_count; i++)
		if (s->loops[i].ev)
			mc_evloop_call(s->loops[i].ev, loop_stop, &s->loops[i]);
	for (unsigned i = 0; i < s->loop_count; i++)
		loop_free(&s->loops[i]);
	for (unsigned i = 0; i < s->listener_count; i++)
		mc_listener_close(&s->listeners[i].listener);
	mcp_budget_done(&s->budget);
	mcp_places_done(&s->places);
	free(s->listeners);
	free(s->loops);
	free(s->by_type);
	free(s->local_name);
	free(s->software);
	free(s);
}

/* ---- session data for handlers ---- */

void mcp_session_set(struct mcp_session *s, void *user)
{
	s->user = user;
}

void *mcp_session_get(const struct mcp_session *s)
{
	return s->user;
}

struct mcp_id mcp_session_client(const struct mcp_session *s)
{
	return s->client;
}

const struct mc_principal *mcp_session_principal(const struct mcp_session *s)
{
	return &s->principal;
}

struct mcp_bytes mcp_session_host(const struct mcp_session *s)
{
	return mcp_bytes(s->peer, (uint32_t)mcp_peer_host(s->peer));
}
