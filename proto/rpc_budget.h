/* SPDX-License-Identifier: Apache-2.0
 * rpc_budget.h - memory budget of a server for incomplete requests, shared by all its connections.
 *
 * Before the rest of a request is read, its connection reserves the whole length: every admitted request can
 * then be completed.  The other connections are not read from and wait in order of arrival, in one queue for
 * small and one for large requests; a quarter of the budget is only for small ones.  Bytes that waiting
 * connections have already received are counted separately, with the same limit. */
#ifndef MCP_RPC_BUDGET_H
#define MCP_RPC_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/lock.h"

struct mcp_budget {
	uint64_t max;			/* bytes; constant */
	atomic_uint waiting;		/* connections */
	/* guarded by lock, a leaf */
	struct mc_mutex lock;
	uint64_t used;			/* reserved bytes */
	uint64_t parked;		/* bytes that waiting connections have received */
	struct mc_list small, large;	/* waiting reservations */
};

/* A connection's reservation.  Initially all zero except @link, which is an empty list. */
struct mcp_reservation {
	struct mc_list link;
	uint64_t bytes;			/* reserved; while waiting: received already */
	uint64_t whole;			/* while waiting: length of the request */
	atomic_bool waits;
};

void mcp_budget_init(struct mcp_budget *b, uint64_t max);
void mcp_budget_done(struct mcp_budget *b);

/* Reserve @whole bytes (at most three quarters of the budget) for a request of which @has bytes are
 * received; replaces an earlier reservation of @s.  0: reserved; 1: waits until
 * mcp_reservation_waits() returns false; -ENOBUFS: the waiting connections have received too much. */
int mcp_budget_reserve(struct mcp_budget *b, struct mcp_reservation *s, uint64_t has, uint64_t whole);
/* The request is complete or abandoned: release the reservation, if there is one, and admit waiting
 * connections. */
void mcp_budget_release(struct mcp_budget *b, struct mcp_reservation *s);

static inline bool mcp_reservation_waits(const struct mcp_reservation *s)
{
	return atomic_load_explicit(&s->waits, memory_order_acquire);
}

#endif
