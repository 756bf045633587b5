/* SPDX-License-Identifier: Apache-2.0
 * rpc_connect.c - connection attempts of a client.
 *
 * One thread connects, the others wait for the result.  The connecting thread sends its hello, and
 * the requests that connected() makes, by ordinary calls over the new link: mcp_connect_locked()
 * returns the new link to this thread before other threads may use it. */
#include <config.h>

#include "proto/rpc_client_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

/* A connection that was idle this long is checked for its end before it is used. */
#define STALE_CHECK_MS 20
/* Time for one of several addresses. */
#define SEVERAL_MS 1000

MC_COUNTER(connects, "mooncake_rpc_client_connects_total", "", "Connections made to servers")

/* The reason of a refusal that says no more than that. */
static const char *connect_refused(const struct mcp_client *c, const struct mcp_link *l)
{
	if (!strncmp(l->peer, "unix:", 5))
		return "the server does not admit this user (option rpc_socket_uids)";
	if (c->conf.net == mc_net_default())
		return "the server asks for a credential, and there is none: name its file in MC_CREDENTIAL or in "
		       "the option credential (docs/SECURITY.md)";
	return "the server does not admit this credential: see its role, and whether the pool has tenants "
	       "(enable_multi_tenants)";
}

static int connect_hello(struct mcp_client *c, struct mcp_link *l, uint64_t deadline)
{
	const struct mcp_client_conf *conf = &c->conf;
	struct mcp_hello msg = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.client = conf->client, .lane = (uint8_t)conf->channel,
		.software = mcp_bytes(conf->software, strlen(conf->software)),
	};
	struct mcp_reply mem = { 0 };
	struct mcp_hello_reply reply;
	int r;

	r = mcp_call(c, MCP_HELLO, &msg, &reply, &mem, deadline);
	if (r == -EACCES)
		return mc_fail(r, "%s", connect_refused(c, l));
	if (r == -MC_ELIMIT)
		return mc_fail(r, "connection limit of %s reached (max_connections, max_peer_connections)", l->peer);
	if (r < 0)
		return r;
	if (reply.version < MCP_MIN_VERSION || reply.version > MCP_VERSION) {
		r = mc_fail(-MC_EVERSION, "%s uses version %u, this client supports %u to %u",
			    l->peer, reply.version, MCP_MIN_VERSION, MCP_VERSION);
	} else {
		l->max_frame = reply.max_frame;
		if (conf->connected)
			r = conf->connected(c, &reply, conf->arg);
	}
	mcp_reply_done(&mem);
	return r < 0 ? r : 0;
}

const char *mcp_client_greeting(const struct mcp_client *c)
{
	MC_LOCKED((struct mc_mutex *)&c->lock);
	return c->greeting->peer;
}

/* Connect to one address and make it the client's link. */
static int connect_one(struct mcp_client *c, const char *addr, uint64_t deadline)
{
	struct mcp_link *l, *last = NULL;
	int r;

	r = mc_fault("rpc.connect");
	if (r == 0)
		r = mcp_link_new(c, addr, deadline, &l);
	/* Waiting does not make a credential valid; the file of a socket may get another mode. */
	if (r < 0)
		return r == -ENOMEM || (r == -EACCES && strncmp(addr, "unix:", 5)) ? r :
			mc_fail(-MC_ERPC, "%s", strdupa(mc_err_detail(r)));
	mc_mutex_lock(&c->lock);
	c->greeting = l;
	/* mcp_client_close() fails the links that it finds; it could not find this one. */
	if (c->closing)
		mcp_link_fail_locked(l, "closed");
	mc_mutex_unlock(&c->lock);

	r = connect_hello(c, l, deadline);

	mc_mutex_lock(&c->lock);
	c->greeting = NULL;
	if (r == 0 && l->dead)
		r = mc_fail(-MC_ERPC, "connection to %s lost: %s", addr, l->why);
	if (r == 0) {
		c->link = l;
	} else {
		mcp_link_fail_locked(l, "refused");
		last = mcp_link_unref_locked(l);
	}
	mc_mutex_unlock(&c->lock);
	mcp_link_free(last);
	return r;
}

static bool client_is_closing(struct mcp_client *c)
{
	MC_LOCKED(&c->lock);
	return c->closing;
}

static int connect_over(struct mcp_client *c, int r, uint64_t deadline)
{
	if (mc_now_ns() >= deadline)
		return mc_fail(-MC_ETIMEDOUT, "deadline exceeded while connecting to %s: %s",
			       c->conf.addrs, strdupa(mc_err_detail(r)));
	return r == -MC_ETIMEDOUT ?
		mc_fail(-MC_ERPC, "%s does not answer", c->conf.addrs) : r;
}

/* Connect to the server whose address is asked for.  It may have been replaced, so a silent one gets little time. */
static int connect_found(struct mcp_client *c, uint64_t deadline)
{
	uint64_t limit = mc_now_ns() + c->conf.connect_timeout_ms * MC_NS_PER_MS;
	char addr[MC_ADDR_MAX];
	int r;

	limit = limit < deadline ? limit : deadline;
	r = c->conf.find(c->conf.find_arg, addr, sizeof(addr), limit);
	if (r == 0) {
		uint64_t few = mc_now_ns() + SEVERAL_MS * MC_NS_PER_MS;

		r = connect_one(c, addr, few < limit ? few : limit);
	}
	if (r == 0)
		mc_metric_add(&connects, 1);
	else
		mc_info("rpc", "cannot connect: %s address=%s", mc_err_detail(r), c->conf.addrs);
	return r == 0 ? 0 : connect_over(c, r, deadline);
}

/* Try the addresses, beginning with the last one that worked; each gets an equal share of the time left, and a silent
 * one does not delay the others for long. */
static int connect_any(struct mcp_client *c, uint64_t deadline)
{
	uint64_t limit = c->conf.connect_timeout_ms * MC_NS_PER_MS;
	uint64_t few = SEVERAL_MS * MC_NS_PER_MS;
	int r = -MC_ERPC;

	if (c->addr_count > 1 && limit > few)
		limit = few;
	for (unsigned i = 0; i < c->addr_count && !client_is_closing(c); i++) {
		unsigned at = (c->addr_next + i) % c->addr_count;
		uint64_t share = mc_deadline_left_ns(deadline) / (c->addr_count - i);

		r = connect_one(c, c->addr[at], mc_now_ns() + (share < limit ? share : limit));
		if (r == 0) {
			c->addr_next = at;
			mc_metric_add(&connects, 1);
			return 0;
		}
		mc_info("rpc", "cannot connect: %s address=%s", mc_err_detail(r), c->addr[at]);
	}
	return connect_over(c, r, deadline);
}

/* Connect in this thread. */
static int connect_attempt_locked(struct mcp_client *c, uint64_t deadline)
{
	int r;

	c->connecting = true;
	c->connector = mc_thread_self();
	if (c->addr_prefer)
		c->addr_next = c->addr_prefer - 1;
	c->addr_prefer = 0;
	mc_mutex_unlock(&c->lock);
	r = c->conf.find ? connect_found(c, deadline) : connect_any(c, deadline);
	mc_mutex_lock(&c->lock);
	c->connecting = false;
	c->attempts++;
	c->attempt_err = r;
	snprintf(c->attempt_why, sizeof(c->attempt_why), "%s", r < 0 ? mc_err_detail(r) : "");
	mc_cond_broadcast(&c->changed);
	return r;
}

/* Wait for the thread that connects.  Return its error, except when only its own deadline had passed. */
static int connect_await_locked(struct mcp_client *c, uint64_t deadline)
{
	uint64_t attempt = c->attempts;

	while (c->attempts == attempt && !c->closing)
		if (mc_cond_wait_until(&c->changed, &c->lock, deadline) == -ETIMEDOUT && mc_now_ns() >= deadline)
			return mc_fail(-MC_ETIMEDOUT, "deadline exceeded while another call connects");
	if (c->attempts == attempt + 1 && c->attempt_err < 0 && c->attempt_err != -MC_ETIMEDOUT)
		return mc_fail(c->attempt_err, "%s", c->attempt_why);
	return 0;
}

/* Drop the link if it has failed, or if the server closed it while it was idle. */
static struct mcp_link *connect_drop_dead_locked(struct mcp_client *c)
{
	struct mcp_link *l = c->link;

	if (!l->dead && !l->calls && !l->reading && mc_now_ms() - l->active_ms >= STALE_CHECK_MS &&
	    mcp_link_is_stale(l))
		mcp_link_fail_locked(l, "closed by the server");
	if (!l->dead)
		return NULL;
	c->link = NULL;
	return mcp_link_unref_locked(l);
}

static int connect_use_locked(struct mcp_link *l, struct mcp_link **ret)
{
	l->refs++;
	*ret = l;
	return 0;
}

int mcp_connect_locked(struct mcp_client *c, uint64_t deadline, struct mcp_link **ret)
{
	struct mcp_link *last;
	int r = 0;

	while (r == 0) {
		if (c->closing)
			return mc_fail(-MC_ERPC, "client is being closed");
		if (mc_now_ns() >= deadline)
			return mc_fail(-MC_ETIMEDOUT, "deadline exceeded before the call");
		if (c->greeting && mc_thread_equal(c->connector, mc_thread_self()))
			return connect_use_locked(c->greeting, ret);
		last = c->link ? connect_drop_dead_locked(c) : NULL;
		if (last) {
			mc_mutex_unlock(&c->lock);
			mcp_link_free(last);
			mc_mutex_lock(&c->lock);
			continue;
		}
		if (c->link)
			return connect_use_locked(c->link, ret);
		r = c->connecting ? connect_await_locked(c, deadline) : connect_attempt_locked(c, deadline);
	}
	return r;
}
