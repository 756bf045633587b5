/* SPDX-License-Identifier: Apache-2.0
 * rpc_server.h - serve messages: listening sockets, event-loop threads, sessions.
 *
 * Each connection is a session on one loop; its requests are handled in order on that loop's thread
 * and never wait.  A loop of its own accepts, hears the hellos and keeps the sessions of lane HEARTBEAT, which
 * are answered -MC_ENOTSUP to all but what is any_lane's: nobody's work keeps that loop busy.
 * The others go to the control loop that has the fewest.  Programs in the same process get sessions
 * without a socket: rpc_client.h, "local:" addresses.
 *
 * A session whose client does not read its replies is not read from while more than max_outstanding
 * of them wait; while together more than max_unread wait, one that takes nothing for a second is closed.  A request
 * of which only a part has come is given up after 30 s and a second for each MiB that is there; together they hold
 * max_unfinished bytes, further ones wait unread, and then one that does not go on, with a MiB in a second, is given
 * up for them.  A malformed header ends the session; a malformed body is answered -MC_EPROTO, an unknown type
 * -MC_ENOTSUP, and the session goes on.
 *
 * Fault points: "rpc.serve" before each handler (an error is the answer), "rpc.reply" after it. */
#ifndef MCP_RPC_SERVER_H
#define MCP_RPC_SERVER_H

#include <errno.h>

#include "proto/codec.h"

struct mcp_server;
struct mcp_session;
struct mcp_answer;

/* Handle a request whose frame is complete.  Decode @body (borrowed), do it, and either answer with
 * mcp_answer() and return 0 or a count, or return a negative error, which becomes the reply's status.
 * Called on a loop thread, or on the caller's thread for a local session; several sessions run at the
 * same time, one session's requests one after another. */
typedef int (*mcp_handler_fn)(struct mcp_session *s, const void *body, size_t len,
			      struct mcp_answer *answer, void *arg);

/* A handler that has done a part of a long request returns this: others are served, then it is called with
 * the same request again.  Where it goes on is for it to note, in its session: nothing else of the session
 * is handled meanwhile. */
#define MCP_AGAIN (-EINPROGRESS)

struct mcp_handler {
	uint16_t type;
	mcp_handler_fn fn;
};

struct mcp_server_conf {
	const char *const *addrs;	/* NULL-ended, as net.h; may be empty (local sessions only) */
	const char *local_name;		/* name for "local:NAME" clients in this process, NULL: none */
	unsigned loops;			/* control loops, at least 1 */
	unsigned spin_us;
	uint32_t max_frame;		/* 0: MCP_FRAME_MAX */
	/* Further ones are told -MC_ELIMIT when they say hello, and closed; a thousand that wait for it
	 * at the most, more are closed at once.  0: 65536. */
	uint32_t max_connections;
	uint32_t max_outstanding;	/* bytes of unread replies per connection, in KiB; 0: 262144 */
	uint64_t max_unread;		/* bytes of them of all connections; 0: four times that */
	/* Bytes of requests of which only a part has come, of all connections, and as much of those that wait;
	 * no less than four times max_frame, which is what 0 means. */
	uint64_t max_unfinished;
	uint32_t hello_timeout_ms;	/* 0: 10000 */
	uint32_t idle_timeout_ms;	/* 0: never */
	bool tcp_nodelay;
	const char *software;		/* told in the hello */
	struct mcp_id server_id;	/* all zero: random */
	const struct mcp_handler *handlers; /* ends with type 0; HELLO is handled by the server */
	/* Types of them that sessions of lane HEARTBEAT may ask for too, short work; ends with 0.  NULL: none. */
	const uint16_t *any_lane;
	/* A session has said hello / has ended (also at server stop).  Same threading as handlers; no
	 * handler of the session runs during or after closed(). */
	int (*opened)(struct mcp_session *s, void *arg);
	void (*closed)(struct mcp_session *s, void *arg);
	/* Before replies leave, on the thread whose handlers made them; once for several of them.  May
	 * block for as long as what the handlers did takes to be safe.  NULL: nothing. */
	void (*settle)(void *arg);
	/* Instead of it, for sessions on sockets: the replies leave when mcp_server_settled() has said this
	 * number or a higher one; 0: now.  Numbers grow.  Meanwhile the thread goes on with other
	 * sessions.  NULL: settle(). */
	uint64_t (*owed)(void *arg);
	void *arg;
};

/* Everything listens when this returns 0.  @conf and what it points to are copied except handlers. */
int mcp_server_start(const struct mcp_server_conf *conf, struct mcp_server **ret);
/* Close all sessions (closed() runs for each), join the threads, free.  Not from a handler.  NULL is
 * fine. */
void mcp_server_stop(struct mcp_server *s);
/* Any thread, not after mcp_server_stop() has begun: what owed() has called @mark, and all below, is safe. */
void mcp_server_settled(struct mcp_server *s, uint64_t mark);
/* The i-th bound address, with the real port; NULL past the end. */
const char *mcp_server_addr(const struct mcp_server *s, unsigned i);

/* Encode the reply.  Once per request; @msg is borrowed for the call.  To a one-way request: 0, nothing
 * happens.  -MC_EBUFFER_OVERFLOW when the reply is larger than a frame may be. */
int mcp_answer(struct mcp_answer *a, const struct mcp_desc *d, const void *msg);

void mcp_session_set(struct mcp_session *s, void *user);
void *mcp_session_get(const struct mcp_session *s);
struct mcp_id mcp_session_client(const struct mcp_session *s);	/* of its hello */
enum mcp_channel mcp_session_channel(const struct mcp_session *s);
const char *mcp_session_peer(const struct mcp_session *s);	/* address as text */

#endif
