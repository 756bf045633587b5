/* SPDX-License-Identifier: Apache-2.0
 * rpc_server.h - serve messages: listening sockets, event-loop threads, sessions.
 *
 * A connection is a session on one loop.  That loop's thread handles its requests in order; handlers never
 * wait.  The accept loop accepts connections, reads their hellos and keeps the sessions of channel HEARTBEAT;
 * these receive -MC_ENOTSUP for every type that is not in any_channel, so no client's work keeps the loop busy.
 * Other sessions are assigned to the control loop with the fewest.  Programs in the same process get sessions
 * without a socket (rpc_client.h, "local:" addresses).
 *
 * A client that does not read its replies: the session is not read from while more than
 * max_outstanding of them are unread.  While the unread replies of all sessions exceed max_unread,
 * a session that takes nothing for a second is closed.
 *
 * A client that does not complete its request: the connection is closed after 30 s plus one second per received
 * MiB.  Together incomplete requests may reserve max_unfinished bytes.  Further ones wait unread, and while any
 * waits, a connection that receives less than a MiB in a second is closed.
 *
 * A malformed header ends the session.  A malformed body is answered with -MC_EPROTO, an unknown
 * type with -MC_ENOTSUP, and the session continues.
 *
 * Fault points: "rpc.serve" before each handler (an error is the answer), "rpc.reply" after it. */
#ifndef MCP_RPC_SERVER_H
#define MCP_RPC_SERVER_H

#include <errno.h>

#include "common/net/stream.h"
#include "common/principal.h"
#include "proto/codec.h"

struct mcp_server;
struct mcp_session;
struct mcp_answer;

/* Handle a request whose frame is complete.  Decode @body (borrowed), do it, and either answer with
 * mcp_answer() and return 0 or a count, or return a negative error, which becomes the reply's
 * status.  Called on a loop thread, or on the caller's thread for a local session; several sessions
 * run at the same time, one session's requests one after another. */
typedef int (*mcp_handler_fn)(struct mcp_session *s, const void *body, size_t len,
			      struct mcp_answer *answer, void *arg);

/* A handler that has done a part of a long request returns this.  Other sessions are served, then
 * it is called with the same request again.  The handler keeps its position in its session: no
 * other request of the session is handled meanwhile. */
#define MCP_AGAIN (-EINPROGRESS)

struct mcp_handler {
	uint16_t type;
	mcp_handler_fn fn;
};

struct mcp_server_conf {
	const struct mc_net *net;	/* makes the listeners; NULL: mc_net_default() */
	const char *const *addrs;	/* NULL-ended, as net.h; may be empty (local sessions only) */
	const char *local_name;		/* name for "local:NAME" clients in this process, NULL: none */
	unsigned loops;			/* control loops, at least 1 */
	unsigned spin_us;
	uint32_t max_frame;		/* 0: MCP_FRAME_MAX */
	/* For a further connection, in total or of one peer (the holder of a credential; else an address
	 * without the port, as before the hello; a user of a Unix socket),
	 * the oldest one that may give way is closed, unless it is younger than a second.  If none may, the new one
	 * receives -MC_ELIMIT as the reply to its hello and is closed; at most a thousand wait for that, more are
	 * closed at once.  0: 65536, or no limit per peer. */
	uint32_t max_connections, max_peer_connections;
	uint32_t max_outstanding;	/* bytes of unread replies per connection, in KiB; 0: 262144 */
	uint64_t max_unread;		/* bytes of them of all connections; 0: four times that */
	/* Bytes reserved for incomplete requests of all connections; waiting connections may have
	 * received as much again.  At least four times max_frame; 0 means that minimum. */
	uint64_t max_unfinished;
	uint32_t hello_timeout_ms;	/* 0: 10000 */
	uint32_t idle_timeout_ms;	/* 0: never */
	bool tcp_nodelay;
	const char *software;		/* sent in the hello */
	struct mcp_id server_id;	/* all zero: random */
	struct mcp_id pool;		/* sent in the hello; all zero: not known */
	const struct mcp_handler *handlers; /* ends with type 0; HELLO is handled by the server */
	/* Types that sessions of channel HEARTBEAT may request too (short work); ends with 0.
	 * NULL: none. */
	const uint16_t *any_channel;
	/* Identify the peer of a connection, on the loop thread, when its hello has arrived: only then does a stream
	 * with a handshake know the peer.  *@ret is mc_principal_of_peer() before.  An error refuses the hello.
	 * NULL: every peer has all roles. */
	int (*identify)(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg);
	/* For records of calls, on the threads of handlers: a request of a type in @audited, or of one that only
	 * administrators may send, has ended with @result, or any request or hello (type MCP_HELLO, no body) with
	 * -EACCES.  @body is borrowed.  NULL: nothing to do. */
	void (*audit)(struct mcp_session *s, uint16_t type, const void *body, size_t len, int result, void *arg);
	const uint16_t *audited;	/* ends with 0; NULL: none */
	/* A session's hello was accepted; a session has ended, also at server stop.  Same threads
	 * as handlers; no handler of the session runs during or after closed(). */
	int (*opened)(struct mcp_session *s, void *arg);
	void (*closed)(struct mcp_session *s, void *arg);
	/* Must the session stay open when other connections need its place?  Called after its hello and after each
	 * of its requests, on the same threads; before its hello a connection may give way.  NULL: no one may. */
	bool (*keeps)(struct mcp_session *s, void *arg);
	/* Called before replies are sent, on the thread whose handlers made them, once for several replies.
	 * Returns when the changes that the handlers made are durable.  NULL: nothing to do. */
	void (*make_durable)(void *arg);
	/* Used instead of make_durable() for sessions on sockets: the replies are sent when
	 * mcp_server_durable() has been called with this mark or a higher one; 0: at once.  Marks
	 * grow.  Meanwhile the thread serves other sessions.  NULL: make_durable(). */
	uint64_t (*pending_mark)(void *arg);
	/* Replies that have a mark are sent only while this is true, even if the mark is durable already; they are
	 * tried again at each mcp_server_durable().  Same threads as handlers.  NULL: always. */
	bool (*may_send)(void *arg);
	void *arg;
};

/* All addresses accept connections when this returns 0.  @conf is copied with everything it points
 * to except handlers. */
int mcp_server_start(const struct mcp_server_conf *conf, struct mcp_server **ret);
/* Close all sessions (closed() runs for each), join the threads, free.  Not from a handler.  NULL is fine. */
void mcp_server_stop(struct mcp_server *s);
/* Close the sessions on sockets whose principals @cut selects; it is called on the loops' threads.  Any thread but
 * these, before mcp_server_stop().  Returns when they are closed. */
void mcp_server_cut(struct mcp_server *s, bool (*cut)(const struct mc_principal *p, void *arg), void *arg);
/* Any thread, but not after mcp_server_stop() has begun: all changes up to @mark, as returned by
 * pending_mark(), are durable. */
void mcp_server_durable(struct mcp_server *s, uint64_t mark);
/* The i-th bound address, with the real port; NULL past the end. */
const char *mcp_server_addr(const struct mcp_server *s, unsigned i);

/* For the users of a listener that serves only TLS: a refusal for a peer that begins with @first, which may be the
 * hello of a client without credentials: -EACCES, or -MC_EVERSION for a version that cannot have one, whose client says
 * that it needs another version.  Bytes in @ret, 0: it is no hello. */
size_t mcp_refuse_plain(const uint8_t *first, size_t len, uint8_t ret[64]);

/* Encode the reply.  Once per request; @msg is borrowed for the call.  For a one-way request it
 * does nothing and returns 0.  -MC_EBUFFER_OVERFLOW when the reply is larger than a frame may be. */
int mcp_answer(struct mcp_answer *a, const struct mcp_desc *d, const void *msg);

void mcp_session_set(struct mcp_session *s, void *user);
void *mcp_session_get(const struct mcp_session *s);
struct mcp_id mcp_session_client(const struct mcp_session *s);	/* client id in its hello */
/* The identity of its peer; constant, and valid as long as the session. */
const struct mc_principal *mcp_session_principal(const struct mcp_session *s);
/* The peer's address without its port, "unix:UID", or "local"; valid as long as the session. */
struct mcp_bytes mcp_session_host(const struct mcp_session *s);

#endif
