/* SPDX-License-Identifier: Apache-2.0
 * rpc_client_i.h - insides of the rpc client, shared by its files.
 *
 *	rpc_client.c	calls: slots, waiting, opening and closing
 *	rpc_link.c	one connection: sending, reading, its end
 *	rpc_connect.c	getting a connection: addresses, hello, who does it
 *
 * Locks: a link's send_lock before the client's lock.  The reader's role of a link is a lock too, but
 * one that nobody waits for: whoever waits for a reply either has it or sleeps until it is offered. */
#ifndef MCP_RPC_CLIENT_I_H
#define MCP_RPC_CLIENT_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/list.h"
#include "common/net/net.h"
#include "common/net/stream.h"
#include "proto/rpc_client.h"

struct mcp_local;

/* A request id is a slot and how often the slot was used before: the reply to a call that was given up
 * does not fit a later one. */
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
	uint32_t max_frame;		/* what the server takes */
	/* guarded by the client's lock */
	unsigned refs;			/* the client's, one per slot in use, callers */
	unsigned calls;			/* slots in use */
	bool reading;			/* somebody has the reader's role */
	struct mc_list waiters;		/* slots whose callers sleep */
	uint64_t active_ms;		/* when it was last used; mc_now_ms() */
	char why[160];			/* it died of */
	/* atomic, set with the client's lock */
	atomic_bool dead;
	/* owned by who has the reader's role; of a local link guarded by send_lock */
	struct mcp_buf rx;
	uint64_t spin_ns;
	/* guarded by send_lock */
	pthread_mutex_t send_lock;
	struct mcp_buf ahead;		/* one-way frames */
	struct mcp_buf unsent;		/* rest of a frame whose sender ran out of time */
};

enum mcp_slot_state { MCP_SLOT_FREE, MCP_SLOT_WAITING, MCP_SLOT_DONE };

/* A call under way. */
struct mcp_slot {
	/* guarded by the client's lock */
	enum mcp_slot_state state;
	uint32_t index, uses;
	uint32_t id;
	uint16_t type;
	struct mcp_link *link;
	pthread_cond_t cond;
	struct mc_list waiter;
	struct mcp_slot *next_free;
	int status;			/* when done: of the wire, or local failure in err */
	int err;
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
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* connect attempt or last user has ended */
	bool closing;
	unsigned users;			/* threads inside calls */
	struct mcp_link *link;		/* NULL: not connected */
	bool connecting;
	pthread_t connector;		/* thread that connects */
	struct mcp_link *greeting;	/* its link, before others may use it */
	uint64_t attempts;
	int attempt_err;		/* how the last attempt ended */
	char attempt_why[160];
	struct mcp_slot *slots[MCP_SLOTS];
	unsigned slot_count;
	struct mcp_slot *free_slots;
	/* owned by the connector */
	unsigned addr_next;		/* begin with this address */
};

/* ---- rpc_link.c ---- */

/* A link to @addr with one reference; connects a socket within @deadline. */
int mcp_link_new(struct mcp_client *c, const char *addr, uint64_t deadline, struct mcp_link **ret);
/* Drop a reference with the lock held; not NULL: it was the last, mcp_link_free() it without. */
struct mcp_link *mcp_link_unref_locked(struct mcp_link *l);
void mcp_link_free(struct mcp_link *l);		/* NULL is fine */
void mcp_link_unref(struct mcp_link *l);

/* The connection is of no use any more: fail its calls, wake everybody.  Once; later ones are ignored. */
void mcp_link_fail_locked(struct mcp_link *l, const char *why);
void mcp_link_fail(struct mcp_link *l, const char *why);
/* Nothing can be read any more: replies that are still there are used first. */
bool mcp_link_is_stale(struct mcp_link *l);
/* The server has ended it, whatever may still be read. */
bool mcp_link_is_over(const struct mcp_link *l);

/* Send whole frames.  @ahead: the piggyback hook may put one-way frames in front.
 * -MC_ETIMEDOUT, -MC_ERPC (the link has failed then). */
int mcp_link_send(struct mcp_link *l, const struct mcp_buf *frames, bool ahead, uint64_t deadline);
/* With the reader's role: wait for replies up to @deadline (@events: POLLIN, with POLLOUT until it can
 * be written as well), hand them out, once. */
void mcp_link_read(struct mcp_link *l, short events, uint64_t deadline);
/* Offer the free reader's role to a caller that sleeps. */
void mcp_link_offer_locked(struct mcp_link *l);

/* ---- rpc_connect.c ---- */

/* The connection, made when there is none; with a reference.  The lock is held, and dropped meanwhile. */
int mcp_connect_locked(struct mcp_client *c, uint64_t deadline, struct mcp_link **ret);

/* ---- rpc_client.c ---- */

/* A reply came: give @body (malloc'ed) to its caller.  -MC_EPROTO: no such reply can come. */
int mcp_client_reply(struct mcp_client *c, struct mcp_link *l, const struct mcp_frame *f,
		     void *body);
void mcp_slot_done_locked(struct mcp_slot *slot, int err);

#endif
