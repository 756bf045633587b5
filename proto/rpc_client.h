/* SPDX-License-Identifier: Apache-2.0
 * rpc_client.h - call a server: one connection shared by all threads, requests pipelined, replies read
 * by whichever caller waits (no thread of its own, so no extra wake-up).
 *
 * Addresses are those of net.h, several separated by commas (tried in turn), or "local:NAME" for a
 * server in this process: the handler then runs on the caller's thread.
 * A lost connection fails the calls under way with -MC_ERPC; the next call connects again within its
 * own deadline.  Nothing is repeated automatically: the caller knows what is safe to repeat.
 *
 * Fault points: "rpc.connect" (each attempt), "rpc.send" (an error loses the connection). */
#ifndef MCP_RPC_CLIENT_H
#define MCP_RPC_CLIENT_H

#include "proto/codec.h"

struct mcp_client;

struct mcp_client_conf {
	const char *addrs;
	struct mcp_id client;
	enum mcp_channel lane;
	const char *software;
	uint32_t max_frame;		/* 0: MCP_FRAME_MAX */
	uint32_t connect_timeout_ms;	/* limit of one attempt; 0: 5000 */
	unsigned spin_us;		/* a waiting caller polls so long before it sleeps */
	/* After each successful hello, before other calls go out: register, re-attach.  It may use
	 * mcp_call() on @c (from this thread only).  A negative result closes the connection again. */
	int (*connected)(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg);
	/* One-way frames to send ahead of every request (leases to give back); NULL: none.  Appends
	 * frames to @b with mcp_frame_append().  Called with the send lock held: short, no calls. */
	void (*piggyback)(struct mcp_buf *b, void *arg);
	void *arg;
};

/* Does not connect yet.  @conf is copied. */
int mcp_client_open(const struct mcp_client_conf *conf, struct mcp_client **ret);
/* Calls under way fail with -MC_ERPC and are waited for (one that connects: connect_timeout_ms at the
 * most).  Tickets that nobody waits for yet are void.  NULL is fine. */
void mcp_client_close(struct mcp_client *c);

/* A reply's memory: what the decoded struct borrows from. */
struct mcp_reply {
	void *mem;
};
void mcp_reply_done(struct mcp_reply *r);		/* { 0 } and repeated calls are fine */

/* Call and wait.  @type selects the tables; @ret_msg gets the decoded reply, which borrows from
 * @ret_reply (release with mcp_reply_done()).  0, the server's error, -MC_ETIMEDOUT, -MC_ERPC,
 * -MC_ELIMIT when too many calls are outstanding (1024), -MC_EPARAM for a request that cannot be encoded
 * or is larger than the server takes, -MC_EPROTO for a reply that cannot be decoded.
 * @ret_msg NULL: only whether it worked.  @ret_reply may be NULL when the reply has no bytes or lists.
 * After -MC_ETIMEDOUT and -MC_ERPC the server may or may not have done it.
 * @deadline: mc_now_ns() scale.  A request whose deadline has passed is not sent. */
int mcp_call(struct mcp_client *c, uint16_t type, const void *msg, void *ret_msg,
	     struct mcp_reply *ret_reply, uint64_t deadline);

/* The same in two steps, to have several requests on the way from one thread.  Every ticket must be
 * waited for once; tickets may be waited for in any order. */
struct mcp_ticket {
	uint32_t id;
	uint32_t slot;
};
int mcp_call_start(struct mcp_client *c, uint16_t type, const void *msg, struct mcp_ticket *ret,
		   uint64_t deadline);
int mcp_call_wait(struct mcp_client *c, struct mcp_ticket t, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline);

/* Send a one-way message now.  Not delivered when the connection is down: -MC_ERPC.  Waits up to
 * connect_timeout_ms for room in the socket. */
int mcp_send(struct mcp_client *c, uint16_t type, const void *msg);

/* Is a connection up right now?  Asks the socket: an end that nobody has noticed yet counts too. */
bool mcp_client_up(const struct mcp_client *c);
/* Close the connection (the next call connects anew); calls under way fail. */
void mcp_client_reset(struct mcp_client *c);

#endif
