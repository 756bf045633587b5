/* SPDX-License-Identifier: Apache-2.0
 * same_pool.h - the pool that this process belongs to, so that it never uses the masters of two pools.
 *
 * A master sends the identity of its pool (master/pool.h) in the reply to HELLO.  The first connection
 * decides the pool.  Masters older than version 3 of the protocol send none; they are accepted as before.
 *
 *	one address	another identity means that the master lost its state: the new pool is used, because
 *			there is one master at one address.
 *	several		the first connection asks all addresses: two pools among them are an error.  Later, a
 *			master of another pool is refused while the old one may return: until no address has
 *			answered with the old identity for MCS_POOL_TTLS times the time to live of clients. */
#ifndef MCS_SAME_POOL_H
#define MCS_SAME_POOL_H

#include "common/net/net.h"
#include "common/sys/lock.h"
#include "proto/rpc_client.h"

#define MCS_POOL_TTLS 3

struct mc_net;

struct mcs_same_pool {
	/* constant after init */
	const char *addrs;
	const struct mc_net *net;
	/* guarded by lock */
	struct mc_mutex lock;
	struct mcp_id pool;		/* zero: not known yet */
	/* used by the connecting thread, one at a time */
	char addr[MC_ADDR_MAX];		/* address of the last master of the pool */
	uint64_t foreign_ns;		/* since when only masters of other pools answer, 0: they do not */
};

/* @addrs: of the masters, separated by commas; must stay valid.  @pool: of the process that this
 * one replaces; zero: none.  @net: connects to masters; NULL: the default one. */
void mcs_same_pool_init(struct mcs_same_pool *p, const char *addrs, struct mcp_id pool, const struct mc_net *net);
void mcs_same_pool_done(struct mcs_same_pool *p);
/* Any thread; zero: not known yet. */
struct mcp_id mcs_same_pool_id(const struct mcs_same_pool *p);

/* A master at @addr has identity @pool: may this process use it?  @ttl_ms: time to live of clients.
 * Names both masters in the detail: -MC_EPARAM when the addresses belong to two pools; -MC_ERPC when the
 * old master may return. */
int mcs_same_pool_enter(struct mcs_same_pool *p, const char *addr, struct mcp_id pool, uint32_t ttl_ms);

#endif
