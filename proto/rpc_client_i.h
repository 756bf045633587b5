/* SPDX-License-Identifier: Apache-2.0
 * rpc_client_i.h - rpc client, shared by its files.
 *
 *	rpc_client.c	calls: slots, waiting, opening and closing
 *	rpc_link.c	one connection (link): sending, receiving, failure
 *	rpc_connect.c	making a connection: addresses, hello, choice of the thread
 *
 * Locks: a link's send_lock before the client's lock.  The reader's role of a link is a flag under
 * the client's lock that no thread waits for: a caller that waits for a reply either has the role,
 * or sleeps until its reply or the role is there. */
#ifndef MCP_RPC_CLIENT_I_H
#define MCP_RPC_CLIENT_I_H

#include <stdatomic.h>

#include "common/list.h"
#include "common/net/stream.h"
#include "common/sys/thread.h"
#include "proto/rpc_client.h"

struct mcp_local;

/* A request id is a slot's index and use count, so that the late reply to an abandoned call does
 * not match a later call. */
#define MCP_SLOT_BITS 10
#define MCP_SLOTS (1u << MCP_SLOT_BITS)

/* One connection. */
struct mcp_link {
	/* constant */
	struct mcp_client *client;
	struct mcp_local *local;	/* or NULL: stream */
	struct mc_stream stream;
	char peer[MC_ADDR_MAX];
	/* constant after the hello */
	uint32_t max_frame;		/* the server's limit */
	/* guarded by the client's lock */
	unsigned refs;			/* the client's, one per slot in use, and callers' */
	unsigned calls;			/* slots in use */
	bool reading;			/* a thread has the reader's role */
	struct mc_list waiters;		/* slots whose callers sleep */
	uint64_t active_ms;		/* end of the last call; mc_now_ms() */
	char why[160];			/* reason of its failure */
	/* atomic, set with the client's lock */
	atomic_bool dead;
	/* owned by the thread with the reader's role; guarded by send_lock in a local link */
	struct mcp_buf rx;
	uint64_t spin_ns;
	/* guarded by send_lock */
	struct mc_mutex send_lock;
	struct mcp_buf ahead;		/* one-way frames */
	struct mcp_buf unsent;		/* rest of frames whose sender timed out */
};

enum mcp_slot_state { MCP_SLOT_FREE, MCP_SLOT_WAITING, MCP_SLOT_DONE };

/* A call. */
struct mcp_slot {
	/* guarded by the client's lock */
	enum mcp_slot_state state;
	uint32_t index, uses;
	uint32_t id;
	uint16_t type;
	struct mcp_link *link;
	struct mc_cond cond;
	struct mc_list waiter;
	struct mcp_slot *next_free;
	int status;			/* when done: status from the wire */
	int err;			/* when done: local failure */
	void *body;
	uint32_t len;
	/* owned by the caller */
	struct mcp_buf tx;
};

struct mcp_client {
	/* constant after open */
	struct mcp_client_conf conf;
	char *addrs, *software;		/* addrs is split at the commas */
	const char **addr;
	unsigned addr_count;
	uint64_t spin_max_ns;
	unsigned fork_depth;
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond changed;		/* an attempt to connect, or the last user, has ended */
	bool closing;
	unsigned users;			/* threads inside calls */
	struct mcp_link *link;		/* NULL: not connected */
	bool connecting;
	struct mc_thread connector;		/* the thread that connects */
	struct mcp_link *greeting;	/* its new link, which only it may use until the hello is done */
	uint64_t attempts;
	int attempt_err;		/* result of the last attempt */
	char attempt_why[256];
	struct mcp_slot *slots[MCP_SLOTS];
	unsigned slot_count;
	struct mcp_slot *free_slots;
	unsigned addr_prefer;		/* the address to begin with next time, counted from 1; 0: addr_next */
	/* owned by the connector */
	unsigned addr_next;		/* the address to begin with */
};

/* ---- rpc_link.c ---- */

/* A link to @addr with one reference; connects a socket within @deadline. */
int mcp_link_new(struct mcp_client *c, const char *addr, uint64_t deadline, struct mcp_link **ret);
/* Drop a reference; the lock is held.  Not NULL: that was the last one, the caller unlocks and
 * calls mcp_link_free(). */
struct mcp_link *mcp_link_unref_locked(struct mcp_link *l);
void mcp_link_free(struct mcp_link *l);		/* NULL is fine */
void mcp_link_unref(struct mcp_link *l);

/* The connection cannot be used any more: fail its calls and wake their callers.  Only the first
 * call has an effect. */
void mcp_link_fail_locked(struct mcp_link *l, const char *why);
void mcp_link_fail(struct mcp_link *l, const char *why);
/* Has the server ended the connection, and is no reply left to read?  The caller holds the lock,
 * and no thread has the reader's role. */
bool mcp_link_is_stale(struct mcp_link *l);
/* Has the server ended the connection?  Replies may be left to read. */
bool mcp_link_is_over(struct mcp_link *l);

/* Send whole frames.  @ahead: the piggyback hook may put one-way frames in front.  -MC_ETIMEDOUT;
 * -MC_ERPC: the link has failed. */
int mcp_link_send(struct mcp_link *l, const struct mcp_buf *frames, bool ahead, uint64_t deadline);
/* With the reader's role: receive replies once and deliver them; wait for that up to @deadline,
 * with POLLOUT in @events also at most until the socket is writable. */
void mcp_link_read(struct mcp_link *l, short events, uint64_t deadline);
/* Offer the free reader's role to a caller that sleeps. */
void mcp_link_offer_locked(struct mcp_link *l);

/* ---- rpc_connect.c ---- */

/* Get the connection with a reference; make one when there is none.  The lock is held and dropped in between. */
int mcp_connect_locked(struct mcp_client *c, uint64_t deadline, struct mcp_link **ret);

/* ---- rpc_client.c ---- */

/* Deliver a reply with its @body (malloc'ed, taken over) to its caller.  -MC_EPROTO: its type is
 * not the request's. */
int mcp_client_reply(struct mcp_client *c, struct mcp_link *l, const struct mcp_frame *f, void *body);
void mcp_slot_done_locked(struct mcp_slot *slot, int err);

#endif
