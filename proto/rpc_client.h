/* SPDX-License-Identifier: Apache-2.0
 * rpc_client.h - call a server over one connection that all threads share.
 *
 * Requests are pipelined.  Replies are read by one of the callers that wait: there is no extra thread, so no
 * extra wake-up.  Addresses are those of net.h, several separated by commas (tried in turn), or "local:NAME"
 * for a server in this process, whose handlers then run on the caller's thread.  A lost connection fails
 * running calls with -MC_ERPC; the next call connects again within its own deadline.  No request is retried
 * automatically: only the caller knows which are safe to repeat.
 *
 * Fault points: "rpc.connect" (each attempt), "rpc.send" (an error loses the connection). */
#ifndef MCP_RPC_CLIENT_H
#define MCP_RPC_CLIENT_H

#include "common/net/stream.h"
#include "proto/codec.h"

struct mcp_client;

struct mcp_client_conf {
	const struct mc_net *net;	/* makes the connections; NULL: mc_net_default() */
	const char *addrs;
	/* NULL, or asked for the server's address (@size bytes) at each attempt to connect; @addrs is then only a name
	 * for messages.  -MC_ERPC: not known now. */
	int (*find)(void *arg, char *ret, size_t size, uint64_t deadline);
	void *find_arg;
	struct mcp_id client;
	enum mcp_channel channel;	/* sent in the hello */
	const char *software;
	uint32_t max_frame;		/* 0: MCP_FRAME_MAX */
	uint32_t connect_timeout_ms;	/* limit of one attempt; 0: 5000 */
	unsigned spin_us;		/* how long a waiting caller polls before it sleeps */
	/* Called after each successful hello, before other calls are sent: register, re-attach.  It may use
	 * mcp_call() on @c (from this thread only).  A negative result closes the connection again. */
	int (*connected)(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg);
	/* Appends one-way frames (leases to release) to @b with mcp_frame_append(); they are sent in front of
	 * the next request.  NULL: none.  The send lock is held: it must be short and make no calls. */
	void (*piggyback)(struct mcp_buf *b, void *arg);
	void *arg;
};

/* Does not connect yet.  @conf is copied. */
int mcp_client_open(const struct mcp_client_conf *conf, struct mcp_client **ret);
/* Running calls fail with -MC_ERPC, and this waits until they have returned (one that connects: at
 * most connect_timeout_ms).  Tickets that have not been waited for become invalid.  NULL is fine. */
void mcp_client_close(struct mcp_client *c);

/* Memory of a reply, from which the decoded struct borrows. */
struct mcp_reply {
	void *mem;
};
void mcp_reply_done(struct mcp_reply *r);		/* { 0 } and repeated calls are fine */

/* Call and wait.  @type selects the tables; @ret_msg gets the decoded reply, which borrows from
 * @ret_reply (release it with mcp_reply_done()).  @ret_msg NULL: only the result is wanted.
 * @ret_reply may be NULL when the reply has no bytes or lists.  @deadline: mc_now_ns() scale; a
 * request whose deadline has passed is not sent.  0, the server's error, -MC_ETIMEDOUT, -MC_ERPC,
 * -MC_ELIMIT when too many calls are outstanding (1024), -MC_EPARAM for a request that cannot be
 * encoded or exceeds the server's limit, -MC_EPROTO for a reply that cannot be decoded.  After
 * -MC_ETIMEDOUT and -MC_ERPC the server may or may not have executed the request. */
int mcp_call(struct mcp_client *c, uint16_t type, const void *msg, void *ret_msg,
	     struct mcp_reply *ret_reply, uint64_t deadline);

/* The same in two steps, so that one thread can have several outstanding requests.  Every ticket
 * must be waited for once; tickets may be waited for in any order. */
struct mcp_ticket {
	uint32_t id;
	uint32_t slot;
};
int mcp_call_start(struct mcp_client *c, uint16_t type, const void *msg, struct mcp_ticket *ret,
		   uint64_t deadline);
int mcp_call_wait(struct mcp_client *c, struct mcp_ticket t, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline);

/* Send a one-way message now, or return -MC_ERPC when there is no connection.  Waits up to
 * connect_timeout_ms for space in the socket. */
int mcp_send(struct mcp_client *c, uint16_t type, const void *msg);

/* In connected() only: the address of the server that has just answered the hello. */
const char *mcp_client_greeting(const struct mcp_client *c);

/* Is a connection up right now?  Queries the socket, so an end that no call has noticed yet counts too. */
bool mcp_client_up(const struct mcp_client *c);
/* Connect to @addr first the next time, if it is one of the addresses. */
void mcp_client_prefer(struct mcp_client *c, const char *addr);
/* Close the connection; running calls fail, the next call connects again. */
void mcp_client_reset(struct mcp_client *c);

#endif
