/* SPDX-License-Identifier: Apache-2.0
 * rpc_room.h - what requests of which only a part has come may hold, of all connections of a server together.
 *
 * A connection has the whole length of its request set aside before the rest of it is read, so that whoever is let
 * in can come to its end; the others wait unread, in their order, large ones apart: a quarter of the room is for
 * those that are small.  What those that wait have brought along is counted too, and has the same limit. */
#ifndef MCP_RPC_ROOM_H
#define MCP_RPC_ROOM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

struct mcp_room {
	uint64_t max;			/* constant */
	atomic_uint waiting;		/* connections */
	/* guarded by lock, a leaf */
	pthread_mutex_t lock;
	uint64_t used, parked;		/* set aside; held by those who wait */
	struct mc_list small, large;	/* those who wait */
};

/* A connection's share; all zero but for the list: none. */
struct mcp_share {
	struct mc_list link;
	uint64_t bytes;			/* of the request, or brought along by one that waits */
	uint64_t whole;			/* one that waits: what it waits for */
	atomic_bool waits;
};

void mcp_room_init(struct mcp_room *r, uint64_t max);
void mcp_room_done(struct mcp_room *r);

/* A request of @whole bytes (at most three quarters of the room) has begun, @has of them are there.  0: it may
 * come; 1: not before mcp_share_waits() says false; -ENOBUFS: too much is there already. */
int mcp_room_take(struct mcp_room *r, struct mcp_share *s, uint64_t has, uint64_t whole);
/* It is there, or will never be; none is fine.  Whoever waits may have its turn now. */
void mcp_room_give(struct mcp_room *r, struct mcp_share *s);

static inline bool mcp_share_waits(const struct mcp_share *s)
{
	return atomic_load_explicit(&s->waits, memory_order_acquire);
}

#endif
