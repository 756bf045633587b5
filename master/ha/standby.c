/* SPDX-License-Identifier: Apache-2.0
 * standby.c - a master while another one leads. */
#include <config.h>

#include "master/ha/standby.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "common/sys/random.h"
#include "master/journal/copy.h"
#include "master/security/audit.h"
#include "master/security/security.h"
#include "meta/seat.h"
#include "proto/rpc_server.h"

#define LOG "standby"
#define PROMISE_MAX_MS 10000u	/* a leader that wants more is not replaced during its lease */
#define JOINS 8u		/* number of JOINs that the leader may still answer: not only the last one */
#define JOIN_MS 10000u		/* time in which the leader may answer a JOIN */

/* A JOIN that no leader has answered with a feed. */
struct join {
	struct mcp_id nonce;
	uint64_t until;		/* end of the time in which it is open; 0: the place is free */
};

struct mcm_standby {
	struct mcp_server *server;
	struct mcm_audit *audit;	/* constant after start; NULL: none */
	struct mcm_security *security;	/* constant after start; NULL: off */
	bool sync;		/* constant after start */
	struct mc_mutex lock;
	/* guarded by lock */
	struct mcm_copy *copy;
	uint64_t term;		/* the term in the store; no message changes it */
	uint64_t fed_ns;	/* arrival of the last part; 0: none has come */
	char name[MCD_SEAT_NAME_MAX];
	struct join join[JOINS];
	unsigned joins;
	const struct mcp_session *leader;	/* the session whose feed answers a JOIN; NULL: there is none */
	struct mcp_id nonce;	/* the nonce of that JOIN */
	bool begun;		/* the feed has begun a copy */
	/* This master promised the leader of promised_term not to replace it before promised; MC_NEVER: before its
	 * lease ends. */
	uint64_t promised, promised_term;
	const struct mcp_session *feeder;	/* session of the last confirmation; NULL: none, or it has ended */
	uint64_t lost_ns;	/* end of that session; 0: it has not ended */
	bool refuses;		/* this master takes the lead */
	bool whole;		/* the directory has a complete state */
};

/* Promise from @came on, when the request arrived.  The leader counts from before it sent the request. */
static void promise_locked(struct mcm_standby *s, const struct mcp_session *session, const struct mcp_feed *rq,
			   uint64_t came)
{
	/* A leader of an older version names no time: it answers reads without a promise. */
	bool limited = rq->promise_ms && rq->promise_ms <= PROMISE_MAX_MS;
	uint64_t until = limited ? came + rq->promise_ms * MC_NS_PER_MS : MC_NEVER;

	/* Leaders of older terms have ended.  A leader that sends on the same connection has given a longer promise up
	 * before it sent the part, so it relies on the last promise only. */
	if (rq->term != s->promised_term || session == s->feeder || until > s->promised)
		s->promised = until;
	s->promised_term = rq->term;
	s->feeder = session;
	s->lost_ns = 0;
}

static bool joined_locked(const struct mcm_standby *s, struct mcp_id nonce)
{
	uint64_t now = mc_now_ns();

	for (unsigned i = 0; i < JOINS; i++)
		if (now < s->join[i].until && mcp_id_eq(s->join[i].nonce, nonce))
			return true;
	return false;
}

/* Is this the leader that the store names, and that this standby has asked?  Only that leader knows the nonce. */
static int admit_locked(struct mcm_standby *s, const struct mcp_session *session, const struct mcp_feed *rq)
{
	if (rq->term != s->term)
		return mc_fail(-MC_EFEED, "it is of term %llu, and the term in the store is %llu",
			       (unsigned long long)rq->term, (unsigned long long)s->term);
	if (session == s->leader)
		return 0;
	if (mcp_id_zero(rq->nonce))
		return mc_fail(-MC_EFEED, "the sender does not repeat the nonce of a JOIN: it is not the leader, or a "
			       "leader of an older version; the leader must be upgraded first");
	if (!joined_locked(s, rq->nonce))
		return mc_fail(-MC_EFEED, "no open JOIN of this standby has this nonce");
	if (strlen(s->name) != rq->receiver.len || memcmp(s->name, rq->receiver.data, rq->receiver.len) != 0)
		return mc_fail(-MC_EFEED, "it is for another standby");
	s->leader = session;
	s->nonce = rq->nonce;
	s->begun = false;
	memset(s->join, 0, sizeof(s->join));
	return 0;
}

/* Each JOIN allows one copy, so a feed removes the old copy only once. */
static int begin_locked(struct mcm_standby *s)
{
	if (s->begun)
		return mc_fail(-MC_EFEED, "the copy has begun already; another one needs a new JOIN");
	s->begun = true;
	s->whole = false;
	return mcm_copy_begin(s->copy);
}

static int part_locked(struct mcm_standby *s, const struct mcp_feed *rq)
{
	const struct mcm_feed_part part = {
		.checkpoint = rq->checkpoint, .last = rq->last, .sequence = rq->sequence, .offset = rq->offset,
		.len = rq->data.len,
	};
	int r;

	if (!s->begun)
		return mc_fail(-MC_EFEED, "a part came before the begin of the copy");
	r = mcm_copy_add(s->copy, &part, rq->data.data);
	if (r == 0 && s->sync)
		r = mcm_copy_sync(s->copy);
	if (r == 0)
		s->whole = mcm_copy_complete(s->copy);
	else
		mc_warn(LOG, "cannot copy the leader's journal: %s", mc_err_detail(r));
	return r == -EINVAL ? -MC_EPROTO : r;
}

static int feed_locked(struct mcm_standby *s, const struct mcp_session *session, const struct mcp_feed *rq)
{
	int r;

	if (s->refuses)
		return mc_fail(-MC_EMODE, "this master takes the lead, because the leader seemed to have ended");
	r = admit_locked(s, session, rq);
	if (r < 0)
		return r;
	s->fed_ns = mc_now_ns();
	if (rq->begin)
		return begin_locked(s);
	return rq->data.len || rq->last ? part_locked(s, rq) : 0;
}

static int serve_feed(struct mcp_session *session, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcm_standby *s = arg;
	struct mcp_feed_reply reply = { 0 };
	uint64_t came = mc_now_ns();
	struct mcp_feed rq;
	int r = mcp_decode(&mcp_desc_feed, body, len, &rq);

	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	r = feed_locked(s, session, &rq);
	if (r == 0)
		promise_locked(s, session, &rq, came);
	reply.complete = s->whole;
	reply.nonce = s->nonce;
	mc_mutex_unlock(&s->lock);
	if (r == -MC_EFEED)
		mc_warn(LOG, "refused a feed: %s peer=%.*s", mc_err_detail(r), (int)mcp_session_host(session).len,
			(const char *)mcp_session_host(session).data);
	if (r == -MC_EFEED || (r == 0 && rq.begin))
		mcm_audit_request(s->audit, session, MCP_FEED, NULL, 0, r);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_feed_reply, &reply);
}

static int standby_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg)
{
	return mcm_security_identify(peer, ret, ((const struct mcm_standby *)arg)->security);
}

static int standby_opened(struct mcp_session *session, void *arg)
{
	(void)arg;
	return mcp_session_client(session).hi == MCM_STANDBY_LEADER_ID ? 0 :
		mc_fail(-MC_ERPC, "this master is a standby");
}

static void standby_closed(struct mcp_session *session, void *arg)
{
	struct mcm_standby *s = arg;

	MC_LOCKED(&s->lock);
	if (session == s->leader)
		s->leader = NULL;
	if (session != s->feeder)
		return;
	s->feeder = NULL;
	s->lost_ns = mc_now_ns();
}

int mcm_standby_start(const struct mcm_standby_conf *conf, struct mcm_standby **ret)
{
	static const struct mcp_handler handlers[] = {
		{ MCP_FEED, serve_feed },
		{ 0, NULL },
	};
	struct mcm_standby *s = calloc(1, sizeof(*s));
	struct mcp_server_conf server = {
		.net = mcm_security_net(conf->security), .identify = conf->security ? standby_identify : NULL,
		.addrs = conf->addrs, .local_name = conf->local_name, .loops = 1,
		.software = "mooncake_master " PACKAGE_VERSION, .tcp_nodelay = true,
		.handlers = handlers, .opened = standby_opened, .closed = standby_closed, .arg = s,
	};
	int r;

	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	s->sync = conf->sync;
	s->audit = conf->audit;
	s->security = conf->security;
	r = mcm_copy_open(&conf->copy, &s->copy);
	if (r == 0)
		s->whole = mcm_copy_complete(s->copy);
	if (r == 0)
		r = mcp_server_start(&server, &s->server);
	if (r < 0) {
		mcm_standby_stop(s);
		return r;
	}
	*ret = s;
	return 0;
}

void mcm_standby_stop(struct mcm_standby *s)
{
	if (!s)
		return;
	mcp_server_stop(s->server);
	mcm_copy_close(s->copy);
	mc_mutex_destroy(&s->lock);
	free(s);
}

static bool principal_invalid(const struct mc_principal *p, void *arg)
{
	return !mcm_security_valid(((const struct mcm_standby *)arg)->security, p);
}

void mcm_standby_tick(struct mcm_standby *s)
{
	if (s->security && mcm_security_changed(s->security))
		mcp_server_cut(s->server, principal_invalid, s);
}

bool mcm_standby_whole(struct mcm_standby *s)
{
	MC_LOCKED(&s->lock);
	return s->whole;
}

void mcm_standby_term(struct mcm_standby *s, uint64_t term)
{
	MC_LOCKED(&s->lock);
	if (s->term == term)
		return;
	/* The JOINs went to the leader of another term, and so did the one that the present feed answers. */
	memset(s->join, 0, sizeof(s->join));
	s->leader = NULL;
	s->term = term;
}

struct mcp_id mcm_standby_join(struct mcm_standby *s, const char *name)
{
	struct join j = { { mc_random_u64() | 1, mc_random_u64() }, mc_deadline_ms(JOIN_MS) };

	MC_LOCKED(&s->lock);
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->join[s->joins++ % JOINS] = j;
	return j.nonce;
}

uint64_t mcm_standby_fed(struct mcm_standby *s)
{
	MC_LOCKED(&s->lock);
	return s->fed_ns;
}

bool mcm_standby_lost(struct mcm_standby *s, uint64_t *ret_term, uint64_t *ret_since)
{
	MC_LOCKED(&s->lock);
	if (!s->lost_ns || s->promised == MC_NEVER)
		return false;
	*ret_term = s->promised_term;
	*ret_since = s->lost_ns;
	return true;
}

uint64_t mcm_standby_refuse(struct mcm_standby *s)
{
	MC_LOCKED(&s->lock);
	s->refuses = true;
	return s->promised;
}

void mcm_standby_accept(struct mcm_standby *s)
{
	MC_LOCKED(&s->lock);
	s->refuses = false;
}
