/* SPDX-License-Identifier: Apache-2.0
 * same_pool.c - which masters belong to the pool of this process. */
#include <config.h>

#include "client/session/same_pool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"

#define ASK_MS 500		/* time limit of the first connection, for each other address */
#define ID_TEXT 9		/* the first digits are enough to tell pools apart */

void mcs_same_pool_init(struct mcs_same_pool *p, const char *addrs, struct mcp_id pool, const struct mc_net *net)
{
	*p = (struct mcs_same_pool){ .net = net, .addrs = addrs, .pool = pool, .addr = "unknown" };
	mc_mutex_init(&p->lock);
}

void mcs_same_pool_done(struct mcs_same_pool *p)
{
	mc_mutex_destroy(&p->lock);
}

struct mcp_id mcs_same_pool_id(const struct mcs_same_pool *p)
{
	MC_LOCKED((struct mc_mutex *)&p->lock);
	return p->pool;
}

static const char *pool_text(struct mcp_id id, char text[ID_TEXT])
{
	(void)snprintf(text, ID_TEXT, "%08llx", (unsigned long long)id.hi >> 32);
	return text;
}

static void pool_is(struct mcs_same_pool *p, const char *addr, struct mcp_id pool)
{
	mc_mutex_lock(&p->lock);
	p->pool = pool;
	mc_mutex_unlock(&p->lock);
	(void)snprintf(p->addr, sizeof(p->addr), "%s", addr);
	p->foreign_ns = 0;
}

/* ---- the first connection ---- */

/* Take the identity and close the connection again. */
static int ask_connected(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg)
{
	*(struct mcp_id *)arg = hello->pool;
	return -ECANCELED;
}

/* The pool of the master at @addr; zero: no answer. */
static struct mcp_id ask_pool(const struct mc_net *net, const char *addr)
{
	struct mcp_id pool = { 0, 0 };
	struct mcp_client_conf conf = {
		.net = net, .addrs = addr, .channel = MCP_CHANNEL_CONTROL, .software = "libmooncake_store",
		.connect_timeout_ms = ASK_MS, .connected = ask_connected, .arg = &pool,
	};
	struct mcp_stats msg = { 0 };
	struct mcp_client *c;

	if (mcp_client_open(&conf, &c) < 0)
		return pool;
	(void)mcp_call(c, MCP_STATS, &msg, NULL, NULL, mc_deadline_ms(ASK_MS));
	mcp_client_close(c);
	return pool;
}

static int pool_two(const char *addr, struct mcp_id pool, const char *other, struct mcp_id other_pool)
{
	char a[ID_TEXT], b[ID_TEXT];

	return mc_fail(-MC_EPARAM, "two pools: master %s has pool %s, master %s has pool %s; use the addresses "
		       "of one master only", addr, pool_text(pool, a), other, pool_text(other_pool, b));
}

/* Are the other masters that answer now of the same pool? */
static int pool_agreed(const struct mcs_same_pool *p, const char *addr, struct mcp_id pool)
{
	for (const char *at = p->addrs; *at; at += strcspn(at, ","), at += *at == ',') {
		char other[MC_ADDR_MAX];
		size_t len = strcspn(at, ",");
		struct mcp_id id;

		if (!len || len >= sizeof(other))
			continue;
		memcpy(other, at, len);
		other[len] = 0;
		if (!strcmp(other, addr))
			continue;
		id = ask_pool(p->net, other);
		if (!mcp_id_zero(id) && !mcp_id_eq(id, pool))
			return pool_two(addr, pool, other, id);
	}
	return 0;
}

/* ---- later ones ---- */

static int pool_changes(struct mcs_same_pool *p, const char *addr, struct mcp_id pool, uint32_t ttl_ms)
{
	uint64_t now = mc_now_ns(), wait = (uint64_t)MCS_POOL_TTLS * ttl_ms * MC_NS_PER_MS;
	bool several = strchr(p->addrs, ',');
	char a[ID_TEXT], b[ID_TEXT];

	p->foreign_ns = p->foreign_ns ? p->foreign_ns : now;
	if (several && now - p->foreign_ns < wait)
		return mc_fail(-MC_ERPC, "master %s has pool %s, not pool %s of master %s, for which this process "
			       "waits up to %llu s", addr, pool_text(pool, a), pool_text(p->pool, b), p->addr,
			       (unsigned long long)(wait / MC_NS_PER_SEC));
	mc_warn("client", "the master lost its state or was replaced, its objects are gone: "
		"master=%s pool=%s previous_master=%s previous_pool=%s", addr, pool_text(pool, a), p->addr,
		pool_text(p->pool, b));
	pool_is(p, addr, pool);
	return 0;
}

int mcs_same_pool_enter(struct mcs_same_pool *p, const char *addr, struct mcp_id pool, uint32_t ttl_ms)
{
	int r;

	if (mcp_id_zero(pool))
		return 0;
	if (!mcp_id_zero(p->pool) && !mcp_id_eq(p->pool, pool))
		return pool_changes(p, addr, pool, ttl_ms);
	r = mcp_id_zero(p->pool) ? pool_agreed(p, addr, pool) : 0;
	if (r == 0)
		pool_is(p, addr, pool);
	return r;
}
