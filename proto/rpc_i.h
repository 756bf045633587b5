/* SPDX-License-Identifier: Apache-2.0
 * rpc_i.h - insides of the rpc server, shared by its files, and the door for local clients.
 *
 *	rpc_server.c	start and stop, listening, loops
 *	rpc_conn.c	sessions on sockets (rpc_conn_i.h)
 *	rpc_send.c	their replies
 *	rpc_part.c	their requests of which only a part has come
 *	rpc_room.c	what their unfinished requests may hold
 *	rpc_local.c	sessions without sockets
 *	rpc_serve.c	one request, whatever it came over
 *
 * Loop 0 (the lane loop) accepts, hears the hellos and keeps the heartbeat sessions; the others have
 * the control sessions, each new one going to the loop that has the fewest.  One acceptor that deals
 * out is chosen over SO_REUSEPORT listeners because the kernel's hash spreads few connections badly,
 * unix sockets have none, and because no handler can then keep a new heartbeat waiting. */
#ifndef MCP_RPC_I_H
#define MCP_RPC_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/net/evloop.h"
#include "common/list.h"
#include "common/metrics.h"
#include "common/net/net.h"
#include "proto/rpc_room.h"
#include "proto/rpc_server.h"

/* Buffers that a loop keeps for its connections: so many, of at most so many bytes. */
#define MCP_POOL_BUFS 16
#define MCP_POOL_CAP (1u << 20)

struct mcp_loop {
	/* constant after start */
	struct mcp_server *server;
	struct mc_evloop *ev;
	/* atomic */
	atomic_uint load;		/* sessions dealt to it */
	atomic_uint gated;		/* connections whose replies wait to be safe */
	atomic_bool release;		/* somebody has asked it to look at them */
	/* owned by the loop's thread */
	struct mc_list conns;
	struct mc_list gates;		/* those of them that are gated */
	struct mc_list agains;		/* those whose request is not done yet */
	bool again_posted;
	struct mc_list parts;		/* those of which a part of a request has come */
	struct mc_list waiters;		/* those of which the rest has to wait */
	struct mc_list unread;		/* those that have not read all replies */
	struct mc_evtimer tick;		/* looks at the three while there are any */
	uint64_t looked_ns;		/* when at those that do not wait for us */
	uint8_t *scratch;		/* what is received goes here first */
	struct mcp_buf out;		/* replies of the batch under way */
	struct mcp_buf pool[MCP_POOL_BUFS];
	unsigned pooled;
};

struct mcp_listener {
	struct mc_evfd ev;		/* first */
	struct mcp_server *server;
	char bound[MC_ADDR_MAX];
	bool tcp;
};

struct mcp_server {
	/* constant after start */
	struct mcp_server_conf conf;	/* defaults filled in */
	char *software, *local_name;
	struct mcp_serves {
		mcp_handler_fn fn;	/* NULL: nobody does */
		bool any_lane;
	} *by_type;
	unsigned types;
	struct mcp_loop *loops;		/* [0] is the lane loop */
	unsigned loop_count;
	struct mcp_listener *listeners;
	unsigned listener_count;
	/* atomic */
	atomic_uint connections;
	atomic_ullong settled;		/* replies that owe no more than this may leave */
	atomic_ullong unread;		/* bytes of replies that were not read */
	struct mcp_room room;
	/* owned by the lane loop's thread */
	struct mc_evtimer retry;	/* accept again: descriptors had run out */
	/* guarded by the registry's lock (rpc_local.c) */
	struct mc_list named;		/* servers that local clients can find */
	struct mc_list locals;		/* sessions */
};

struct mcp_session {
	/* constant after the hello */
	struct mcp_server *server;
	struct mcp_id client;
	uint16_t version;
	enum mcp_channel lane;
	bool excess;			/* one more than there may be: its hello is refused */
	char peer[MC_ADDR_MAX];
	/* owned by whoever runs the session's handlers */
	void *user;
};

/* ---- rpc_serve.c ---- */

/* Check a hello and note in @s who it is.  0, or the error to refuse it with. */
int mcp_serve_hello(struct mcp_session *s, const struct mcp_frame *f, const void *body);
/* Append the reply to the hello with request id @id; @err negative: the refusal. */
int mcp_serve_welcome(struct mcp_session *s, uint32_t id, int err, struct mcp_buf *out);
/* Run the handler of a request and append its reply, if it gets one.  *@now is when the request came,
 * then when it was done.  MCP_AGAIN: it is not done, there is no reply yet.  -ENOMEM: there is no reply, the
 * session has to end. */
int mcp_serve_request(struct mcp_session *s, const struct mcp_frame *f, const void *body,
		      struct mcp_buf *out, uint64_t *now);
/* Before replies leave. */
static inline void mcp_serve_settle(const struct mcp_session *s)
{
	if (s->server->conf.settle)
		s->server->conf.settle(s->server->conf.arg);
}
/* The same without waiting: what the replies have to wait for, 0: nothing. */
static inline uint64_t mcp_serve_owed(struct mcp_session *s)
{
	uint64_t mark;

	if (!s->server->conf.owed) {
		mcp_serve_settle(s);
		return 0;
	}
	mark = s->server->conf.owed(s->server->conf.arg);
	return mark > atomic_load(&s->server->settled) ? mark : 0;
}
/* Count a header that is no header, for whoever closes the session then. */
void mcp_serve_bad_header(const struct mcp_session *s);

/* ---- rpc_conn.c ---- */

/* lane loop: a new connection; @fd is given. */
int mcp_conn_new(struct mcp_loop *lane, int fd);
/* loop: end all connections of the loop. */
void mcp_conn_close_all(struct mcp_loop *l);
/* loop: replies of connections may be safe by now (rpc_send.c). */
void mcp_conn_release(void *loop);
/* loop: requests of which only a part has come, replies that are not read (rpc_part.c). */
void mcp_conn_tick(struct mc_evtimer *t);

/* ---- rpc_server.c ---- */

/* The loop for a new session of @lane; counts it there. */
struct mcp_loop *mcp_server_deal(struct mcp_server *s, enum mcp_channel lane);
void mcp_server_count(struct mcp_server *s, int connections);

/* ---- rpc_local.c ---- */

struct mcp_local;

/* Make @s known under its local_name.  -EEXIST. */
int mcp_local_publish(struct mcp_server *s);
/* Forget the name and end all local sessions; returns when no handler of one runs. */
void mcp_local_retire(struct mcp_server *s);

/* Client side.  -MC_ERPC when no server has that name. */
int mcp_local_open(const char *name, struct mcp_local **ret);
/* Give it whole frames, as over a socket, and get the replies' frames appended to @out.  Requests of
 * threads that share @l wait for each other, up to @deadline.  -MC_ERPC when the session has ended. */
int mcp_local_exchange(struct mcp_local *l, const struct mcp_buf *in, struct mcp_buf *out,
		       uint64_t deadline);
bool mcp_local_up(struct mcp_local *l);
/* Not while an exchange is under way. */
void mcp_local_close(struct mcp_local *l);

#endif
