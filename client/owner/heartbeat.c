/* SPDX-License-Identifier: Apache-2.0
 * heartbeat.c - the heartbeat thread. */
#include <config.h>

#include "client/owner/heartbeat.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/owner/confirm.h"
#include "client/owner/mover.h"
#include "client/owner/owner.h"
#include "client/session/masters.h"
#include "client/session/security.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/thread.h"

#define ANSWER_MIN_MS 1000
#define FAILURES_MAX 5		/* then reconnect */
/* Where another master takes over a silent one, it is looked for like this, that many times. */
#define SEEK_MS 100
#define SEEK_ANSWER_MS 400
#define SEEKS_MAX 60
#define PAUSED_MAX 64u		/* disks of this process; the master does not learn of more */
#define LOOK_MS 500u		/* between two looks whether a disk was paused, or works again */

MC_COUNTER(beats, "mooncake_client_heartbeats_total", "result=\"ok\"", "heartbeats sent")
MC_COUNTER(lost, "mooncake_client_heartbeats_total", "result=\"failed\"", "heartbeats sent")

struct mcs_heartbeat {
	/* constant after start */
	struct mcs_direct *s;
	struct mcp_client *rpc;
	struct mcs_masters *masters;
	struct mc_thread thread;
	struct mc_stop stop;

	/* atomic */
	bool ok;

	/* used by the thread only */
	struct mcp_id pool;	/* pool of the connected master */
	uint64_t sequence;
	unsigned failures;
	struct mcp_fenced fenced[MCP_FENCES_MAX];	/* orders to confirm */
	unsigned n_fenced;
	uint64_t revocations;	/* in the last answer before the list was fetched; UINT64_MAX: it has to be */
	struct mcp_paused paused[PAUSED_MAX];		/* disks, as the master was told */
	unsigned n_paused;
};

/* Maximum period of an owner, so that the master does not declare it dead when one heartbeat is lost. */
static uint32_t heartbeat_owner_ms(const struct mcs_heartbeat *h)
{
	uint32_t ms = mcs_session_terms(h->s->base.session).client_ttl_ms / 5 * 2;

	return ms ? ms : 1000;
}

/* The master has not answered, and another one may take over, or has done so. */
static bool heartbeat_seeks(const struct mcs_heartbeat *h)
{
	return h->failures && h->failures <= SEEKS_MAX && mcs_session_terms(h->s->base.session).takeover_ms;
}

/* The period that the master asked for.  At most that of an owner while the master does not
 * answer, and for an owner, because the master may not know yet that this client is one. */
static uint32_t heartbeat_period_ms(const struct mcs_heartbeat *h)
{
	uint32_t ms = mcs_session_terms(h->s->base.session).heartbeat_ms, most = heartbeat_owner_ms(h);

	if (heartbeat_seeks(h))
		return SEEK_MS;
	ms = ms ? ms : 1000;
	return ms > most && (h->failures || h->s->has_memory) ? most : ms;
}

static uint32_t heartbeat_answer_ms(const struct mcs_heartbeat *h)
{
	uint32_t ms = heartbeat_period_ms(h), most = heartbeat_owner_ms(h);

	if (heartbeat_seeks(h))
		return SEEK_ANSWER_MS;
	ms = ms < most ? ms : most;
	return ms > ANSWER_MIN_MS ? ms : ANSWER_MIN_MS;
}

static bool heartbeat_is_own(const struct mcs_heartbeat *h, const uint64_t nonce[2])
{
	uint8_t own[16];

	mce_engine_nonce(h->s->engine, own);
	return !memcmp(own, nonce, sizeof(own));
}

/* Carry out the master's orders; those that are done are confirmed by the next heartbeat, the others are repeated by
 * the master. */
static void heartbeat_fence(struct mcs_heartbeat *h, const struct mcp_seq *orders)
{
	struct mcp_fence f;
	struct mcp_iter it;
	uint64_t nonce[2];
	int r;

	mcp_iter_init(&it, orders, &mcp_desc_fence);
	while (h->n_fenced < MCP_FENCES_MAX && mcp_iter_next(&it, &f)) {
		nonce[0] = htole64(f.engine.hi);
		nonce[1] = htole64(f.engine.lo);
		r = mc_fault("client.heartbeat.fence");
		/* Only this process writes to its disks. */
		if (r == 0 && (mcp_id_zero(f.engine) || heartbeat_is_own(h, nonce)) &&
		    !mcs_segments_fence(mcs_owner_of(h->s)->segments, f.upto))
			r = -EAGAIN;
		if (r == 0)
			r = mce_engine_fence(h->s->engine, mcp_id_zero(f.engine) ? NULL : (uint8_t *)nonce, f.upto);
		if (r == 0)
			h->fenced[h->n_fenced++].number = f.number;
	}
}

/* Does the other connection of this process belong to the same pool, as far as both are known? */
static bool heartbeat_same_pool(const struct mcs_heartbeat *h, struct mcp_id pool)
{
	struct mcp_id is = mcs_session_pool(h->s->base.session);

	return mcp_id_zero(is) || mcp_id_zero(pool) || mcp_id_eq(is, pool);
}

static int heartbeat_connected(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg)
{
	struct mcs_heartbeat *h = arg;

	if (!heartbeat_same_pool(h, hello->pool))
		return mc_fail(-MC_ERPC, "%s is the master of another pool", mcp_client_greeting(c));
	h->pool = hello->pool;
	h->revocations = UINT64_MAX;
	mcs_session_met(h->s->base.session, hello->server, mcp_client_greeting(c));
	return 0;
}

static unsigned heartbeat_look(const struct mcs_heartbeat *h, struct mcp_paused ret[PAUSED_MAX])
{
	return mcs_segments_paused(mcs_owner_of(h->s)->segments, ret, PAUSED_MAX);
}

static bool heartbeat_has_news(const struct mcs_heartbeat *h)
{
	struct mcp_paused now[PAUSED_MAX];
	unsigned n = heartbeat_look(h, now);

	return n != h->n_paused || memcmp(now, h->paused, n * sizeof(*now)) != 0;
}

/* Wait for the time of the next heartbeat, or until there is something to tell.  True: stop. */
static bool heartbeat_wait(struct mcs_heartbeat *h, uint32_t ms)
{
	bool looks = mcs_segments_offload(mcs_owner_of(h->s)->segments);

	for (uint32_t step; ms; ms -= step) {
		step = looks && ms > LOOK_MS ? LOOK_MS : ms;
		if (mc_stop_wait(&h->stop, step))
			return true;
		if (looks && !h->failures && heartbeat_has_news(h))
			return false;
	}
	return mc_stop_wait(&h->stop, 0);
}

/* Fetch the serial numbers of revoked credentials: connections of their holders end.  On failure the next heartbeat
 * tries again. */
static void heartbeat_revoked(struct mcs_heartbeat *h, uint64_t revocations)
{
	struct mcp_revoked msg = { .after = 0 };
	uint64_t *all = NULL;
	unsigned n = 0;
	bool whole = false;

	while (!whole) {
		struct mcp_revoked_reply reply;
		struct mcp_reply mem = { 0 };
		struct mcp_serial serial;
		struct mcp_iter it;
		uint64_t *more;

		if (mcp_call(h->rpc, MCP_REVOKED, &msg, &reply, &mem, mc_deadline_ms(heartbeat_answer_ms(h))) < 0)
			break;
		more = realloc(all, (n + reply.serials.count + 1) * sizeof(*all));
		if (more) {
			all = more;
			mcp_iter_init(&it, &reply.serials, &mcp_desc_serial);
			while (mcp_iter_next(&it, &serial))
				msg.after = all[n++] = serial.serial;
		}
		whole = more && !reply.serials.count;
		mcp_reply_done(&mem);
		if (!more)
			break;
	}
	if (whole && mcs_security_revoke(h->s->base.store->security, all, n) == 0)
		h->revocations = revocations;
	free(all);
}

static int heartbeat_send(struct mcs_heartbeat *h)
{
	unsigned n_paused = heartbeat_look(h, h->paused);
	struct mcp_heartbeat msg = {
		.client = h->s->client, .sequence = ++h->sequence,
		.fenced = mcp_seq(h->fenced, h->n_fenced), .paused = mcp_seq(h->paused, n_paused),
	};
	struct mcp_heartbeat_reply reply;
	struct mcp_reply mem = { 0 };
	uint64_t asked_ms = mc_now_ms();
	int r;

	r = mc_fault("client.heartbeat");
	if (r < 0)
		return r;
	/* The process may have entered a pool, or another one, since this connection was made. */
	if (!heartbeat_same_pool(h, h->pool))
		mcp_client_reset(h->rpc);
	r = mcp_call(h->rpc, MCP_HEARTBEAT, &msg, &reply, &mem, mc_deadline_ms(heartbeat_answer_ms(h)));
	if (r < 0)
		return r;
	if (reply.now_ms)
		mce_engine_set_time(h->s->engine, reply.now_ms, asked_ms);
	if (reply.reattach)
		mcs_background_remount(h->s->background);
	if (reply.tasks || mcs_confirm_wanted(h->s))
		mcs_mover_kick(mcs_owner_of(h->s)->mover);
	h->n_fenced = 0;
	h->n_paused = n_paused;
	heartbeat_fence(h, &reply.fences);
	if (h->s->base.store->security && reply.revocations != h->revocations)
		heartbeat_revoked(h, reply.revocations);
	if (reply.heartbeat_ms)
		mcs_session_set_heartbeat(h->s->base.session, reply.heartbeat_ms);
	mcp_reply_done(&mem);
	return 0;
}

static void heartbeat_note(struct mcs_heartbeat *h, int r)
{
	bool was = __atomic_load_n(&h->ok, __ATOMIC_RELAXED);

	mc_metric_add(r < 0 ? &lost : &beats, 1);
	__atomic_store_n(&h->ok, r >= 0, __ATOMIC_RELAXED);
	if (r >= 0) {
		if (h->failures)
			mc_info("client", "the master answers again after=%u", h->failures);
		h->failures = 0;
		return;
	}
	h->failures++;
	if (was)
		mc_warn("client", "the master does not answer, will retry master=%s "
			"error=\"%s\"", h->s->base.store->conf.master, mc_err_detail(r));
	/* TCP may not have noticed yet that the connection is dead. */
	if (h->failures % FAILURES_MAX == 0 || heartbeat_seeks(h))
		mcp_client_reset(h->rpc);
}

static void *heartbeat_main(void *arg)
{
	struct mcs_heartbeat *h = arg;
	uint64_t sent_ms;
	int r;

	do {
		sent_ms = mc_now_ms();
		r = heartbeat_send(h);
		/* Interrupted by the stop: not a failure of the master. */
		if (mc_stop_wait(&h->stop, 0))
			break;
		if (r >= 0)
			__atomic_store_n(&h->s->answered_ms, sent_ms, __ATOMIC_RELAXED);
		heartbeat_note(h, r);
		/* The master reuses memory when it has the confirmation. */
	} while (!heartbeat_wait(h, r >= 0 && h->n_fenced ? 0 : heartbeat_period_ms(h)));
	return NULL;
}

int mcs_heartbeat_start(struct mcs_direct *s, struct mcs_heartbeat **ret)
{
	struct mcs_heartbeat *h = calloc(1, sizeof(*h));
	struct mcp_client_conf conf = {
		.net = mcs_security_net(s->base.store->security),
		.client = s->client,
		.channel = MCP_CHANNEL_HEARTBEAT,
		.software = "libmooncake_store",
		.connected = heartbeat_connected,
		.arg = h,
	};
	int r;

	if (!h)
		return -ENOMEM;
	h->s = s;
	h->ok = true;
	h->revocations = UINT64_MAX;
	r = mcs_masters_open(s->base.store->conf.master, &conf, &h->masters);
	if (r == 0)
		r = mcp_client_open(&conf, &h->rpc);
	if (r < 0)
		goto fail;
	r = mc_stop_start(&h->stop, &h->thread, "mcs-heartbeat", heartbeat_main, h);
	if (r < 0)
		goto fail_rpc;
	*ret = h;
	return 0;
fail_rpc:
	mcp_client_close(h->rpc);
fail:
	mcs_masters_close(h->masters);
	free(h);
	return r;
}

void mcs_heartbeat_stop(struct mcs_heartbeat *h)
{
	if (!h)
		return;
	mc_stop_set(&h->stop);
	mcp_client_reset(h->rpc);	/* ends the wait for an answer */
	mc_thread_join(h->thread);
	mcp_client_close(h->rpc);
	mcs_masters_close(h->masters);
	mc_stop_done(&h->stop);
	free(h);
}

bool mcs_heartbeat_ok(const struct mcs_heartbeat *h)
{
	return __atomic_load_n(&h->ok, __ATOMIC_RELAXED);
}
