/* SPDX-License-Identifier: Apache-2.0
 * rpc_i.h - rpc server, shared by its files, and the interface of local clients to it.
 *
 *	rpc_server.c	start and stop, listening, loops
 *	rpc_conn.c	sessions on sockets (rpc_conn_i.h)
 *	rpc_send.c	replies of sessions on sockets
 *	rpc_partial.c	incomplete requests of sessions on sockets
 *	rpc_budget.c	memory budget for incomplete requests
 *	rpc_place.c	limits of connections
 *	rpc_local.c	sessions without sockets
 *	rpc_serve.c	one request, of either kind of session
 *
 * Loop 0 (the accept loop) accepts connections, reads the hellos and keeps the heartbeat sessions. The other
 * loops have the control sessions; a new one is assigned to the loop with the fewest. One acceptor is used
 * instead of SO_REUSEPORT listeners because the kernel's hash distributes few connections badly, because unix
 * sockets do not have it, and because then no handler can delay a new heartbeat session. */
#ifndef MCP_RPC_I_H
#define MCP_RPC_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/net/evloop.h"
#include "common/list.h"
#include "common/metrics.h"
#include "common/net/net.h"
#include "proto/rpc_budget.h"
#include "proto/rpc_place.h"
#include "proto/rpc_server.h"

/* Buffers that a loop keeps for reuse by its connections, and bytes of one at most. */
#define MCP_POOL_BUFS 16
#define MCP_POOL_CAP (1u << 20)

struct mcp_loop {
	/* constant after start */
	struct mcp_server *server;
	struct mc_evloop *ev;
	/* atomic */
	atomic_uint load;		/* sessions assigned to it */
	atomic_uint gated;		/* connections with replies behind a gate */
	atomic_bool release;		/* mcp_conn_release_all() is posted */
	/* guarded by the places' lock */
	struct mc_list leaving;		/* connections that lost their place */
	/* owned by the loop's thread */
	struct mc_list conns;
	struct mc_list gates;		/* connections with replies behind a gate */
	struct mc_list agains;		/* connections to be continued: MCP_AGAIN, or bytes pending in the stream */
	bool again_posted;
	struct mc_list partials;	/* connections with an incomplete request */
	struct mc_list waiting;		/* connections whose incomplete request waits for memory */
	struct mc_list unread;		/* connections with unread replies */
	struct mc_evtimer tick;		/* checks the last three lists while they are not empty */
	uint64_t checked_ns;		/* last check of partials and unread */
	uint8_t *scratch;		/* bytes are received into this first */
	struct mcp_buf out;		/* replies of the current batch */
	struct mcp_buf pool[MCP_POOL_BUFS];
	unsigned pooled;
};

struct mcp_listener {
	struct mc_evfd ev;		/* first */
	struct mcp_server *server;
	struct mc_listener listener;
};

struct mcp_server {
	/* constant after start */
	struct mcp_server_conf conf;	/* defaults filled in */
	char *software, *local_name;
	struct mcp_serves {
		mcp_handler_fn fn;	/* NULL: the type has no handler */
		uint32_t roles;
		bool any_channel, audited;
	} *by_type;
	unsigned types;
	struct mcp_loop *loops;		/* [0] is the accept loop */
	unsigned loop_count;
	struct mcp_listener *listeners;
	unsigned listener_count;
	/* atomic */
	atomic_uint connections;
	atomic_ullong durable;		/* replies with a mark up to this one may be sent */
	atomic_ullong unread;		/* bytes of unread replies */
	struct mcp_budget budget;
	struct mcp_places places;
	/* owned by the accept loop's thread */
	struct mc_evtimer retry;	/* accept again after descriptors were exhausted */
	/* guarded by the registry's lock (rpc_local.c) */
	struct mc_list named;		/* servers that local clients can find */
	struct mc_list locals;		/* local sessions */
};

struct mcp_session {
	/* constant after the hello */
	struct mcp_server *server;
	struct mcp_id client;
	uint16_t version;
	enum mcp_channel channel;
	bool excess;			/* it got no place: its hello is refused */
	struct mc_principal principal;	/* all roles, until identify() was called */
	char peer[MC_ADDR_MAX];
	/* owned by the thread that runs the session's handlers */
	void *user;
};

/* ---- rpc_serve.c ---- */

/* Check a hello and note the client in @s.  0, or the error to refuse it with. */
int mcp_serve_hello(struct mcp_session *s, const struct mcp_frame *f, const void *body);
/* Append the reply to the hello with request id @id; @err negative: the refusal. */
int mcp_serve_welcome(struct mcp_session *s, uint32_t id, int err, struct mcp_buf *out);
/* The hello was refused with @err: tell mcp_server_conf.audit. */
void mcp_serve_refused(struct mcp_session *s, int err);
/* Run the handler of a request and append its reply, if it has one.  *@now: in, when the request
 * was received; out, when its handler returned.  MCP_AGAIN: the handler has to be called again,
 * there is no reply yet.  -ENOMEM: there is no reply, the session has to end. */
int mcp_serve_request(struct mcp_session *s, const struct mcp_frame *f, const void *body,
		      struct mcp_buf *out, uint64_t *now);
/* Before replies are sent: wait until they may be. */
static inline void mcp_serve_make_durable(const struct mcp_session *s)
{
	if (s->server->conf.make_durable)
		s->server->conf.make_durable(s->server->conf.arg);
}
/* May replies that have a mark be sent?  They were made before this call. */
static inline bool mcp_serve_may_send(const struct mcp_session *s)
{
	const struct mcp_server_conf *conf = &s->server->conf;

	return !conf->may_send || conf->may_send(conf->arg);
}

/* As make_durable(), without waiting: the mark that the replies have to wait for; 0: none. */
static inline uint64_t mcp_serve_pending_mark(struct mcp_session *s)
{
	uint64_t mark;

	if (!s->server->conf.pending_mark) {
		mcp_serve_make_durable(s);
		return 0;
	}
	mark = s->server->conf.pending_mark(s->server->conf.arg);
	return mark && (mark > atomic_load(&s->server->durable) || !mcp_serve_may_send(s)) ? mark : 0;
}
/* Count and log a malformed header; the caller closes the session. */
void mcp_serve_bad_header(const struct mcp_session *s);
/* A client with a credential begins with TLS (@first), which this server does not speak: the alert in @out lets it fail
 * at once.  False, and nothing in @out: these bytes are no TLS. */
bool mcp_serve_refuse_tls(const struct mcp_session *s, const uint8_t first[MCP_FRAME_HEADER], struct mcp_buf *out);

/* ---- rpc_conn.c ---- */

/* accept loop: a new connection, which takes over *@stream, also on failure. */
int mcp_conn_new(struct mcp_loop *accept, struct mc_stream *stream);
/* loop: close all connections of the loop. */
void mcp_conn_close_all(struct mcp_loop *l);
/* loop: close the connections whose principals @cut selects. */
void mcp_conn_cut(struct mcp_loop *l, bool (*cut)(const struct mc_principal *p, void *arg), void *arg);
/* loop: send replies whose marks have become durable (rpc_send.c). */
void mcp_conn_release_all(void *loop);
/* loop: check incomplete requests and unread replies (rpc_partial.c). */
void mcp_conn_tick(struct mc_evtimer *t);

/* ---- rpc_server.c ---- */

/* The loop for a new session of @channel, which is counted in its load. */
struct mcp_loop *mcp_server_assign(struct mcp_server *s, enum mcp_channel channel);
void mcp_server_count(struct mcp_server *s, int connections);

/* ---- rpc_local.c ---- */

struct mcp_local;

/* Register @s under its local_name.  -EEXIST. */
int mcp_local_publish(struct mcp_server *s);
/* Unregister the name and end all local sessions; when it returns, no handler of them runs. */
void mcp_local_retire(struct mcp_server *s);

/* Client side.  -MC_ERPC when no server has that name. */
int mcp_local_open(const char *name, struct mcp_local **ret);
/* Handle the whole frames in @in and append the reply frames to @out, as a socket would carry them.
 * Threads that share @l wait for each other, up to @deadline.  -MC_ERPC when the session has ended. */
int mcp_local_exchange(struct mcp_local *l, const struct mcp_buf *in, struct mcp_buf *out,
		       uint64_t deadline);
bool mcp_local_up(struct mcp_local *l);
/* No exchange may be running. */
void mcp_local_close(struct mcp_local *l);

#endif
