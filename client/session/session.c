/* SPDX-License-Identifier: Apache-2.0
 * session.c - the connection to the master, and the retries of requests. */
#include <config.h>

#include "client/session/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/session/masters.h"
#include "client/session/same_pool.h"
#include "client/session/security.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"

#define BACKOFF_FIRST_MS 5
#define BACKOFF_SOON_MS 50	/* a takeover lasts some tenths of a second */
#define BACKOFF_SOON 10
#define BACKOFF_LAST_MS 100
/* Minimum time between two resets of the connection, because each disturbs all running calls. */
#define CLEANSE_MS 1000
/* With several masters, until one has said how long a takeover takes: upstream's lease, and a second. */
#define TAKEOVER_MS 6000
/* A takeover may be followed by the return of owners and, in a full pool, of readers. */
#define RETURN_MS 3000

MC_COUNTER(connects, "mooncake_client_master_connects_total", "", "connections made to the master")
MC_COUNTER(retries, "mooncake_client_retries_total", "cause=\"master\"",
	   "attempts repeated after a failure")

struct mcs_session {
	/* constant after open */
	struct mcs_session_conf conf;
	struct mcp_client *rpc;
	struct mcs_masters *masters;

	/* atomic */
	uint64_t epoch;		/* number of connections made */
	uint64_t down_since;	/* when the first request failed to reach the master, 0: it is up */
	uint64_t tainted;	/* epoch whose connection is to be reset, 0: none */
	uint64_t changed_ns;	/* when another master was found, 0: never */
	uint32_t client_ttl_ms, heartbeat_ms, lease_ttl_ms, takeover_ms;
	uint64_t fence, earlier;
	unsigned version;	/* version of the protocol */
	uint64_t server_lo;	/* half of the id of the server of the connection, 0: none so far */

	/* used by the connecting thread, one at a time */
	struct mcp_id server;
	struct mcs_same_pool pool;

	/* used by the background thread only */
	uint64_t cleansed_ns;
};

static struct mcp_register session_register_msg(const struct mcs_session *s)
{
	return (struct mcp_register){
		.client = s->conf.client,
		.name = mcp_bytes(s->conf.name, strlen(s->conf.name)),
		.engine = s->conf.engine,
		.seen = s->conf.largest_fence ? s->conf.largest_fence(s->conf.arg) : 0,
	};
}

static int session_register(struct mcs_session *s, struct mcp_client *c, uint64_t *ret_fence)
{
	const struct mcp_register msg = session_register_msg(s);
	struct mcp_register_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = mcp_call(c, MCP_REGISTER, &msg, &reply, &mem, mc_deadline_ms(5000));
	if (r < 0)
		return r;
	__atomic_store_n(&s->client_ttl_ms, reply.client_ttl_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->heartbeat_ms, reply.heartbeat_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->lease_ttl_ms, reply.lease_ttl_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->earlier, reply.earlier, __ATOMIC_RELAXED);
	/* A store of leaders is there for takeovers, even if this master is too old to say so. */
	if (reply.takeover_ms || !s->masters)
		__atomic_store_n(&s->takeover_ms, reply.takeover_ms, __ATOMIC_RELAXED);
	*ret_fence = reply.fence;
	mcp_reply_done(&mem);
	return 0;
}

static int session_connected(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg)
{
	struct mcs_session *s = arg;
	uint64_t epoch, fence = 0;
	struct mcs_terms terms;
	int r;

	if (hello->version < s->conf.min_version)
		return mc_fail(-MC_ENOTSUP, "the master is too old for tenants");
	r = mcs_same_pool_enter(&s->pool, mcp_client_greeting(c), hello->pool, mcs_session_terms(s).client_ttl_ms);
	if (r == 0)
		r = session_register(s, c, &fence);
	if (r < 0)
		return r;
	if (!mcp_id_zero(s->server) && !mcp_id_eq(s->server, hello->server))
		__atomic_store_n(&s->changed_ns, mc_now_ns(), __ATOMIC_RELAXED);
	s->server = hello->server;
	__atomic_store_n(&s->server_lo, hello->server.lo, __ATOMIC_RELAXED);
	__atomic_store_n(&s->version, hello->version, __ATOMIC_RELAXED);
	/* In this order: a thread that reads the number, and then the epoch of its grant, has that grant's number. */
	epoch = __atomic_add_fetch(&s->epoch, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&s->fence, fence, __ATOMIC_RELEASE);
	terms = mcs_session_terms(s);
	r = s->conf.attach ? s->conf.attach(c, epoch, &terms, s->conf.arg) : 0;
	if (r < 0)
		return r;
	__atomic_store_n(&s->down_since, 0, __ATOMIC_RELAXED);
	mc_metric_add(&connects, 1);
	mc_debug("client", "connected to the master server=%llx%016llx epoch=%llu",
		 (unsigned long long)hello->server.hi, (unsigned long long)hello->server.lo,
		 (unsigned long long)epoch);
	return 0;
}

static void session_piggyback(struct mcp_buf *b, void *arg)
{
	struct mcs_session *s = arg;

	if (s->conf.piggyback)
		s->conf.piggyback(b, s->conf.arg);
}

int mcs_session_open(const struct mcs_session_conf *conf, struct mcs_session **ret)
{
	struct mcs_session *s = calloc(1, sizeof(*s));
	struct mcp_client_conf rpc = {
		.net = mcs_security_net(conf->security),
		.client = conf->client,
		.channel = MCP_CHANNEL_CONTROL,
		.software = "libmooncake_store",
		.spin_us = conf->spin_us,
		.connected = session_connected,
		.piggyback = session_piggyback,
		.arg = s,
	};
	int r;

	if (!s)
		return -ENOMEM;
	s->conf = *conf;
	/* Upstream's defaults, until the master sends its values. */
	s->client_ttl_ms = 10000;
	s->heartbeat_ms = 1000;
	s->lease_ttl_ms = 5000;
	r = mcs_masters_open(conf->addrs, &rpc, &s->masters);
	if (r < 0) {
		free(s);
		return r;
	}
	s->takeover_ms = s->masters || strchr(conf->addrs, ',') ? TAKEOVER_MS : 0;
	/* A store has one leader, as if there were one address. */
	mcs_same_pool_init(&s->pool, s->masters ? "" : conf->addrs, conf->pool, rpc.net);
	r = mcp_client_open(&rpc, &s->rpc);
	if (r < 0) {
		mcs_same_pool_done(&s->pool);
		mcs_masters_close(s->masters);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void mcs_session_close(struct mcs_session *s)
{
	if (!s)
		return;
	mcp_client_close(s->rpc);
	mcs_masters_close(s->masters);
	mcs_same_pool_done(&s->pool);
	free(s);
}

struct mcp_id mcs_session_pool(const struct mcs_session *s)
{
	return mcs_same_pool_id(&s->pool);
}

bool mcs_session_up(const struct mcs_session *s)
{
	return mcp_client_up(s->rpc);
}

bool mcs_session_ever(const struct mcs_session *s)
{
	return mcs_session_epoch(s) > 0;
}

bool mcs_session_young(const struct mcs_session *s, uint64_t ms)
{
	uint64_t since = __atomic_load_n(&s->changed_ns, __ATOMIC_RELAXED);

	return since && mc_now_ns() - since < ms * MC_NS_PER_MS;
}

uint64_t mcs_session_epoch(const struct mcs_session *s)
{
	return __atomic_load_n(&s->epoch, __ATOMIC_ACQUIRE);
}

unsigned mcs_session_version(const struct mcs_session *s)
{
	return __atomic_load_n(&s->version, __ATOMIC_RELAXED);
}

struct mcs_terms mcs_session_terms(const struct mcs_session *s)
{
	return (struct mcs_terms){
		.client_ttl_ms = __atomic_load_n(&s->client_ttl_ms, __ATOMIC_RELAXED),
		.heartbeat_ms = __atomic_load_n(&s->heartbeat_ms, __ATOMIC_RELAXED),
		.lease_ttl_ms = __atomic_load_n(&s->lease_ttl_ms, __ATOMIC_RELAXED),
		.fence = __atomic_load_n(&s->fence, __ATOMIC_ACQUIRE),
		.earlier = __atomic_load_n(&s->earlier, __ATOMIC_RELAXED),
		.takeover_ms = __atomic_load_n(&s->takeover_ms, __ATOMIC_RELAXED),
		.server = __atomic_load_n(&s->server_lo, __ATOMIC_RELAXED),
	};
}

void mcs_session_set_heartbeat(struct mcs_session *s, uint32_t ms)
{
	__atomic_store_n(&s->heartbeat_ms, ms, __ATOMIC_RELAXED);
}

/* Was the connection lost, rather than the request refused? */
static bool session_lost(int r)
{
	return r == -MC_ERPC;
}

/* Record the result of an attempt; returns since when the master is down, 0: it is up. */
static uint64_t session_note(struct mcs_session *s, int r)
{
	uint64_t now, since = 0;

	if (!session_lost(r)) {
		if (r != -MC_ETIMEDOUT && __atomic_load_n(&s->down_since, __ATOMIC_RELAXED))
			__atomic_store_n(&s->down_since, 0, __ATOMIC_RELAXED);
		return 0;
	}
	now = mc_now_ns();
	if (__atomic_compare_exchange_n(&s->down_since, &since, now, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		return now;
	return since;
}

/* Wait before attempt number @n + 1; false: @until would pass. */
static bool session_back_off(unsigned n, uint64_t until)
{
	uint64_t ms = BACKOFF_FIRST_MS << (n < 5 ? n : 5), most = n < BACKOFF_SOON ? BACKOFF_SOON_MS : BACKOFF_LAST_MS;

	if (ms > most)
		ms = most;
	if (mc_now_ns() + ms * MC_NS_PER_MS >= until)
		return false;
	mc_metric_add(&retries, 1);
	mc_sleep_ms(ms);
	return true;
}

uint64_t mcs_session_takeover_ms(const struct mcs_session *s)
{
	uint64_t ms = __atomic_load_n(&s->takeover_ms, __ATOMIC_RELAXED);

	return ms ? 2 * ms + RETURN_MS : 0;
}

uint64_t mcs_session_grace_ms(const struct mcs_session *s)
{
	uint64_t ms = mcs_session_takeover_ms(s), grace = s->conf.grace_ms;

	return grace >= MCS_SETUP_TIMEOUT_MS && grace < ms ? ms : grace;
}

/* Until when a call retries, if the master is down since @since. */
static uint64_t session_retry_until(const struct mcs_session *s, uint64_t since, uint64_t deadline)
{
	uint64_t until = since + mcs_session_grace_ms(s) * MC_NS_PER_MS;

	return until < deadline ? until : deadline;
}

bool mcs_session_await_owner(const struct mcs_session *s, struct mcs_patience *p, uint64_t deadline)
{
	if (!p->since_ns)
		p->since_ns = mc_now_ns();
	return session_back_off(p->n++, session_retry_until(s, p->since_ns, deadline));
}

int mcs_call(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
	     struct mcp_reply *ret_reply, uint64_t deadline)
{
	struct mcs_patience owner = { 0 };

	for (unsigned n = 0;; n++) {
		int r = mcp_call(s->rpc, type, msg, ret_msg, ret_reply, deadline);
		uint64_t since = session_note(s, r);

		if (r == -MC_ENOTREADY && mcs_session_await_owner(s, &owner, deadline))
			continue;
		if (!since || !session_back_off(n, session_retry_until(s, since, deadline)))
			return r;
	}
}

int mcs_call_pins(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline, bool ask, uint64_t *ret_epoch)
{
	for (unsigned n = 0;; n++) {
		uint64_t epoch, since;
		int r = 0;

		/* Connect first: if the call connected, its pins would belong to a later epoch
		 * than the one read here. */
		if ((n || ask) && !mcs_session_up(s))
			r = mcs_session_probe(s, deadline);
		epoch = mcs_session_epoch(s);
		if (r == 0)
			r = mcp_call(s->rpc, type, msg, ret_msg, ret_reply, deadline);
		MC_FAULT_POINT("client.pins.after_answer");
		*ret_epoch = epoch == mcs_session_epoch(s) ? epoch : 0;
		since = session_note(s, r);
		if (!since || !session_back_off(n, session_retry_until(s, since, deadline)))
			return r;
	}
}

int mcs_call_start(struct mcs_session *s, uint16_t type, const void *msg, struct mcp_ticket *ret,
		   uint64_t deadline)
{
	int r = mcp_call_start(s->rpc, type, msg, ret, deadline);

	if (r < 0)
		session_note(s, r);
	return r;
}

int mcs_call_wait(struct mcs_session *s, struct mcp_ticket t, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline)
{
	int r = mcp_call_wait(s->rpc, t, ret_msg, ret_reply, deadline);

	session_note(s, r);
	return r;
}

int mcs_session_probe(struct mcs_session *s, uint64_t deadline)
{
	const struct mcp_register msg = session_register_msg(s);
	struct mcp_register_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = mcp_call(s->rpc, MCP_REGISTER, &msg, &reply, &mem, deadline);
	if (r >= 0)
		mcp_reply_done(&mem);
	session_note(s, r);
	return r < 0 ? r : 0;
}

int mcs_session_connect(struct mcs_session *s, uint64_t deadline)
{
	char why[256] = "";

	for (unsigned n = 0;; n++) {
		int r = mcs_session_probe(s, deadline);

		/* The reason of the last failure says more than a timeout. */
		if (r == -MC_ETIMEDOUT && *why)
			return mc_fail(-MC_ERPC, "%s", why);
		if (!session_lost(r))
			return r;
		(void)snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		if (!session_back_off(n, deadline))
			return r;
	}
}

static int session_call_once(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
			     struct mcp_reply *ret_reply, uint64_t deadline)
{
	int r;

	for (unsigned n = 0; !mcs_session_up(s); n++) {
		uint64_t since;

		r = mcs_session_probe(s, deadline);
		since = session_note(s, r);
		if (since && session_back_off(n, session_retry_until(s, since, deadline)))
			continue;
		if (r < 0)
			return r;
		break;
	}
	r = mcp_call(s->rpc, type, msg, ret_msg, ret_reply, deadline);
	session_note(s, r);
	return r;
}

int mcs_call_once(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline)
{
	struct mcs_patience owner = { 0 };
	int r;

	/* The master has not carried out a request that it answered like this. */
	do
		r = session_call_once(s, type, msg, ret_msg, ret_reply, deadline);
	while (r == -MC_ENOTREADY && mcs_session_await_owner(s, &owner, deadline));
	return r;
}

void mcs_session_taint(struct mcs_session *s, uint64_t epoch)
{
	__atomic_store_n(&s->tainted, epoch, __ATOMIC_RELAXED);
}

void mcs_session_cleanse(struct mcs_session *s)
{
	uint64_t now = mc_now_ns();

	if (__atomic_load_n(&s->tainted, __ATOMIC_RELAXED) != mcs_session_epoch(s) ||
	    !mcs_session_ever(s) || now - s->cleansed_ns < CLEANSE_MS * MC_NS_PER_MS)
		return;
	s->cleansed_ns = now;
	mcs_session_taint(s, 0);
	mcp_client_reset(s->rpc);
}

void mcs_session_met(struct mcs_session *s, struct mcp_id server, const char *addr)
{
	uint64_t ours = __atomic_load_n(&s->server_lo, __ATOMIC_RELAXED);

	if (!ours || ours == server.lo)
		return;
	mcp_client_prefer(s->rpc, addr);
	mcp_client_reset(s->rpc);
}

int mcs_send(struct mcs_session *s, uint16_t type, const void *msg)
{
	int r = mc_fault("client.send");

	return r < 0 ? r : mcp_send(s->rpc, type, msg);
}
