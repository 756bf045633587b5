/* SPDX-License-Identifier: Apache-2.0
 * rpc_place.h - places of connections: how many a server has, and how many one peer address has.
 *
 * A peer is the address of a TCP connection without its port, or the user of a Unix socket; from the hello on, the
 * credential of the connection, if it has one: its holder may use many addresses, and many may share one.  When no
 * place is left, the oldest connection that may give way (mcp_server_conf.keeps) loses its place to the new one and is
 * closed. */
#ifndef MCP_RPC_PLACE_H
#define MCP_RPC_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/net/net.h"
#include "common/sys/lock.h"

#define MCP_PEER_BUCKETS 1024u

/* One peer while it has places; guarded by the places' lock. */
struct mcp_peer {
	struct mcp_peer *next;
	unsigned used;
	struct mc_list spare;		/* its places that may be taken, oldest first */
	char host[MC_ADDR_MAX];
};

struct mcp_places {
	/* constant */
	uint32_t max, max_peer;
	struct mc_mutex lock;
	/* guarded by lock */
	unsigned used;
	struct mc_list spare;		/* spare places of all peers */
	struct mcp_peer *bucket[MCP_PEER_BUCKETS];
};

enum mcp_place_state {
	MCP_PLACE_NONE,			/* it lost its place, or never had one */
	MCP_PLACE_KEPT,
	MCP_PLACE_SPARE			/* it may give way */
};

/* The place of one connection; guarded by the places' lock. */
struct mcp_place {
	struct mcp_peer *peer;
	struct mc_list link, peer_link;	/* in the lists of spare places */
	enum mcp_place_state state;
};

void mcp_places_init(struct mcp_places *ps, uint32_t max, uint32_t max_peer);
/* No place may be in use. */
void mcp_places_done(struct mcp_places *ps);

/* The address of a session's peer without its port, from its full name: the length of the part. */
size_t mcp_peer_host(const char *peer);

/* The functions below take the lock, unless they have the suffix _locked. */

/* Give a place to a new connection, as a kept one.  *ret_gone: the place that lost it, NULL: none.
 * -MC_ELIMIT with a detail when all are kept; -ENOMEM. */
int mcp_place_take_locked(struct mcp_places *ps, const char *peer, struct mcp_place *p, struct mcp_place **ret_gone);
/* Let the kept place @p count for @peer.  *ret_gone: the place that was lost for it, NULL: none.  -MC_ELIMIT with a
 * detail when all of @peer are kept; -ENOMEM; then it counts as before. */
int mcp_place_move_locked(struct mcp_places *ps, const char *peer, struct mcp_place *p, struct mcp_place **ret_gone);
/* Keep the place, or let it be taken. */
void mcp_place_keep(struct mcp_places *ps, struct mcp_place *p, bool keep);
void mcp_place_leave_locked(struct mcp_places *ps, struct mcp_place *p);

#endif
