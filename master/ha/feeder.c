/* SPDX-License-Identifier: Apache-2.0
 * feeder.c - a thread for each standby, which sends the journal's files to it. */
#include <config.h>

#include "master/ha/feeder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "master/ha/gate.h"
#include "master/ha/standby.h"
#include "master/journal/feed.h"
#include "master/mcm_i.h"
#include "master/security/security.h"
#include "meta/seat.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"

#define LOG "feeder"
#define STANDBYS_MAX (MCD_SEAT_MEMBERS_MAX - 1)
#define PART (1u << 20)		/* bytes of one message */
#define SMALL (64u << 10)	/* limit of the parts by which the speed of a joining standby is judged */
#define STORE_PAUSE_MS 100	/* between two attempts to write to the store */
#define BEAT_MS 30		/* period of empty parts, which renew the promise of a standby */
#define DRIFT_SHARE 20u		/* clocks of two machines differ by at most this part of a time */
#define JOIN_SHARE 2u		/* a standby that joins must confirm within this part of a promise */

/* These series appear on a leader only: 0 standbys of another master would look like an alarm. */
MC_METRIC_PART(leader_series, "mooncake_master_standbys_")
MC_GAUGE(in_sync, "mooncake_master_standbys_in_sync", "", "Standbys that have every record that was answered for")
MC_COUNTER(removed, "mooncake_master_standbys_removed_total", "", "Standbys in sync that did not confirm in time")

struct feeder {
	struct mcm_feeders *all;
	/* constant */
	char name[MCD_SEAT_NAME_MAX];
	char peer[MCM_GATE_HOST_MAX];	/* address of the process that sent the JOIN */
	struct mcp_id nonce;		/* nonce of the JOIN; zero: the standby has an older version */
	bool links;			/* the standby restores names of files */
	bool unchecked;			/* the thread looks the name's host up before it connects */
	/* guarded by the lock */
	struct mc_thread thread;
	bool known;		/* the receiver has repeated the nonce: it is the standby of that name */
	bool used, ended;	/* the thread was started; it can be joined */
	bool waited;		/* answers wait for this standby */
	bool member;		/* the store lists this standby as a member */
	bool listed;		/* the store may list it, so answers need its promise */
	uint64_t lsn;		/* the standby has the records up to this LSN */
	uint64_t promised;	/* the standby does not lead before this time (mc_now_ns() scale) */
	uint64_t confirms, confirm_ns;	/* number of confirmations of records, and the sum of their times */
};

struct mcm_feeders {
	/* constant */
	struct mcm_feeders_conf conf;
	char self[MCD_SEAT_NAME_MAX];
	struct mcm *m;
	/* serializes changes of the members in the store; taken before lock */
	struct mc_mutex members_lock;
	/* held during calls to the server; mcm_feeders_stop() takes it before the server ends; taken before lock */
	struct mc_mutex report_lock;
	struct mc_mutex lock;
	struct mc_cond change;		/* records were written, or the threads must end */
	struct mc_cond progress;	/* a standby has more records, or answers do not wait for it any more */
	/* guarded by lock */
	struct feeder feeder[STANDBYS_MAX];
	struct mcm_gate gate;
	uint64_t written;
	unsigned linking;		/* changes between link_begin() and link_end() */
	bool stopping;
	uint64_t promised;		/* atomic: earliest end of the needed promises; MC_NEVER: none is needed */
};

int mcm_feeders_new(const struct mcm_feeders_conf *conf, struct mcm_feeders **ret)
{
	struct mcm_feeders *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	mc_metric_part_show(&leader_series);
	f->conf = *conf;
	snprintf(f->self, sizeof(f->self), "%s", conf->self);
	f->conf.self = f->self;
	f->promised = MC_NEVER;
	mc_mutex_init(&f->members_lock);
	mc_mutex_init(&f->report_lock);
	mc_mutex_init(&f->lock);
	(void)mc_cond_init(&f->change);
	(void)mc_cond_init(&f->progress);
	*ret = f;
	return 0;
}

void mcm_feeders_attach(struct mcm_feeders *f, struct mcm *m)
{
	m->feeders = f;
	__atomic_store_n(&f->m, m, __ATOMIC_RELEASE);
}

void mcm_feeders_stop(struct mcm_feeders *f)
{
	mc_mutex_lock(&f->report_lock);
	mc_mutex_lock(&f->lock);
	f->stopping = true;
	mc_cond_broadcast(&f->change);
	mc_cond_broadcast(&f->progress);
	mc_mutex_unlock(&f->lock);
	mc_mutex_unlock(&f->report_lock);
	for (unsigned i = 0; i < STANDBYS_MAX; i++)
		if (f->feeder[i].used)
			mc_thread_join(f->feeder[i].thread);
	/* The thread that prolongs the lease lives longer than the server. */
	MC_LOCKED(&f->report_lock);
	__atomic_store_n(&f->m, NULL, __ATOMIC_RELEASE);
}

void mcm_feeders_free(struct mcm_feeders *f)
{
	if (!f)
		return;
	mc_cond_destroy(&f->progress);
	mc_cond_destroy(&f->change);
	mc_mutex_destroy(&f->lock);
	mc_mutex_destroy(&f->report_lock);
	mc_mutex_destroy(&f->members_lock);
	free(f);
}

/* ---- answers ------------------------------------------------------------------------------------- */

/* Lock held: the LSN up to which all standbys that answers wait for have the records. */
static uint64_t common_lsn(const struct mcm_feeders *f)
{
	uint64_t lsn = UINT64_MAX;

	for (unsigned i = 0; i < STANDBYS_MAX; i++)
		if (f->feeder[i].used && f->feeder[i].waited && f->feeder[i].lsn < lsn)
			lsn = f->feeder[i].lsn;
	return lsn;
}

bool mcm_feeders_have(struct mcm_feeders *f, uint64_t lsn)
{
	bool have;

	MC_LOCKED(&f->lock);
	have = common_lsn(f) >= lsn && !f->stopping;
	if (lsn > f->written) {
		f->written = lsn;
		mc_cond_broadcast(&f->change);
	}
	return have;
}

void mcm_feeders_wait(struct mcm_feeders *f, uint64_t lsn)
{
	if (mcm_feeders_have(f, lsn))
		return;
	MC_LOCKED(&f->lock);
	while (common_lsn(f) < lsn && !f->stopping)
		mc_cond_wait(&f->progress, &f->lock);
}

unsigned mcm_feeders_in_sync(struct mcm_feeders *f)
{
	unsigned n = 0;

	MC_LOCKED(&f->lock);
	for (unsigned i = 0; i < STANDBYS_MAX; i++)
		n += f->feeder[i].used && f->feeder[i].member;
	return n;
}

/* A standby has confirmed more: let the answers leave that waited for it. */
static void feeders_report(struct mcm_feeders *f)
{
	struct mcp_server *server;
	struct mcm *m;
	bool stops;
	uint64_t lsn;

	MC_LOCKED(&f->report_lock);
	m = __atomic_load_n(&f->m, __ATOMIC_ACQUIRE);
	if (!m)
		return;
	server = __atomic_load_n(&m->server, __ATOMIC_ACQUIRE);
	mc_mutex_lock(&f->lock);
	stops = f->stopping;
	lsn = common_lsn(f);
	lsn = lsn < f->written ? lsn : f->written;
	mc_cond_broadcast(&f->progress);
	mc_mutex_unlock(&f->lock);
	if (server && !stops && mcm_feeders_lead(f))
		mcp_server_durable(server, lsn + 1);
}

bool mcm_feeders_lead(const struct mcm_feeders *f)
{
	uint64_t now = mc_now_ns();

	return now < __atomic_load_n(f->conf.until, __ATOMIC_ACQUIRE) &&
	       now < __atomic_load_n(&f->promised, __ATOMIC_ACQUIRE);
}

void mcm_feeders_prolonged(struct mcm_feeders *f)
{
	if (__atomic_load_n(&f->m, __ATOMIC_ACQUIRE))
		feeders_report(f);
}

/* ---- members in the store ------------------------------------------------------------------------ */

/* Lock held: compute the earliest end of the needed promises again. */
static void promises_changed(struct mcm_feeders *f)
{
	uint64_t first = MC_NEVER;

	for (unsigned i = 0; i < STANDBYS_MAX; i++)
		if (f->feeder[i].used && f->feeder[i].listed && f->feeder[i].promised < first)
			first = f->feeder[i].promised;
	__atomic_store_n(&f->promised, first, __ATOMIC_RELEASE);
}

static void need_promise(struct feeder *p, bool on)
{
	MC_LOCKED(&p->all->lock);
	p->listed = on;
	promises_changed(p->all);
}

/* Add the standby to the members in the store (@is), or remove it.  After a failure the store may list it or not. */
static int member_set(struct feeder *p, bool is)
{
	struct mcm_feeders *f = p->all;
	const char *name[MCD_SEAT_MEMBERS_MAX] = { f->self };
	unsigned n = 1, in = 0;
	int r;

	MC_LOCKED(&f->members_lock);
	mc_mutex_lock(&f->lock);
	for (unsigned i = 0; i < STANDBYS_MAX; i++) {
		const struct feeder *q = &f->feeder[i];

		if (q->used && (q == p ? is : q->member))
			name[n++] = q->name;
	}
	mc_mutex_unlock(&f->lock);
	if (is)
		need_promise(p, true);
	r = f->conf.set_members(f->conf.arg, name, n);
	if (r < 0)
		return r;
	if (!is)
		need_promise(p, false);
	mc_mutex_lock(&f->lock);
	p->member = is;
	for (unsigned i = 0; i < STANDBYS_MAX; i++)
		in += f->feeder[i].used && f->feeder[i].member;
	mc_mutex_unlock(&f->lock);
	mc_metric_set(&in_sync, in);
	return 0;
}

static bool feeders_stopping(struct mcm_feeders *f)
{
	MC_LOCKED(&f->lock);
	return f->stopping;
}

/* ---- feeding ------------------------------------------------------------------------------------- */

struct feeding {
	struct feeder *p;
	struct mcp_client *client;
	struct mcm_feed *feed;
	uint8_t *buf;
	struct mcm_pace pace;
	bool begun;		/* the receiver has removed its old copy */
	bool complete;		/* the last confirmation said that the copy is complete */
	bool whole;		/* the copy was complete once, so the standby must keep it */
	bool answers;		/* the last part was confirmed, so the connection lives */
	bool in;		/* the standby is in sync, so its promises must come in time */
	uint64_t took;		/* nanoseconds of the last call */
	uint64_t sent;		/* time at which the last part was sent (mc_now_ns() scale) */
	uint64_t late;		/* sending time of the first of the parts in a row that were confirmed after the end of
				 * their promise; 0: the last one was confirmed in time */
};

/* The standby has confirmed the part that was sent at g->sent.  -ETIMEDOUT: for a long time each confirmation came
 * after the end of its promise, so no answer could leave. */
static int feeding_promised(struct feeding *g, unsigned promise_ms)
{
	const struct mcm_feeders *f = g->p->all;
	uint64_t until = g->sent + (promise_ms - promise_ms / DRIFT_SHARE) * MC_NS_PER_MS, now = mc_now_ns();

	mc_mutex_lock(&g->p->all->lock);
	g->p->promised = until;
	promises_changed(g->p->all);
	mc_mutex_unlock(&g->p->all->lock);
	if (now < until || !g->in) {
		g->late = 0;
		return 0;
	}
	/* One late confirmation does not count: this process may have stood still. */
	if (!g->late)
		g->late = g->sent;
	else if (now - g->late > f->conf.timeout_ms * MC_NS_PER_MS)
		return mc_fail(-ETIMEDOUT, "for %u ms every confirmation came after its promise of %u ms",
			       f->conf.timeout_ms, promise_ms);
	return 0;
}

/* Do not rely on a longer promise any more: the part that is sent next replaces it at the standby. */
static void shorten_promise(struct feeding *g, unsigned promise_ms)
{
	uint64_t until = g->sent + (promise_ms - promise_ms / DRIFT_SHARE) * MC_NS_PER_MS;

	MC_LOCKED(&g->p->all->lock);
	if (g->p->promised <= until)
		return;
	g->p->promised = until;
	promises_changed(g->p->all);
}

/* Check that the receiver is the standby that sent the JOIN, and that it still has its copy. */
static int check_reply(struct feeding *g, const struct mcp_feed_reply *reply)
{
	struct feeder *p = g->p;

	if (!mcp_id_zero(p->nonce) && !mcp_id_eq(reply->nonce, p->nonce))
		return mc_fail(-MC_EFEED, "the receiver does not repeat the nonce of the JOIN: it is another standby, "
			       "or one of an older version");
	g->complete = reply->complete;
	if (g->whole && !g->complete)
		return mc_fail(-MC_EFEED, "the standby has lost its copy");
	if (p->known)
		return 0;
	MC_LOCKED(&p->all->lock);
	p->known = true;
	return 0;
}

/* A part with records was confirmed: judge the speed of the standby.  -ETIMEDOUT: it is too slow. */
static int count_records(struct feeding *g, size_t len)
{
	struct feeder *p = g->p;

	/* The first parts of a copy are large, and do not show how long later ones take. */
	if (!p->waited && len > SMALL)
		return 0;
	mc_mutex_lock(&p->all->lock);
	p->confirms++;
	p->confirm_ns += g->took;
	mc_mutex_unlock(&p->all->lock);
	return mcm_pace_add(&g->pace, g->sent, g->sent + g->took);
}

static int send_part(struct feeding *g, const struct mcm_feed_part *part, bool begin, unsigned promise_ms)
{
	const struct mcm_feeders *f = g->p->all;
	struct mcp_feed msg = {
		.term = f->conf.term, .begin = begin, .checkpoint = part->checkpoint, .last = part->last,
		.sequence = part->sequence, .offset = part->offset, .data = mcp_bytes(g->buf, part->len),
		.promise_ms = promise_ms,
	};
	struct mcp_feed_reply reply;
	int r;

	if (!g->begun && !mcp_id_zero(g->p->nonce)) {
		msg.nonce = g->p->nonce;
		msg.receiver = mcp_bytes(g->p->name, strlen(g->p->name));
	}
	g->sent = mc_now_ns();
	shorten_promise(g, promise_ms);
	r = mcp_call(g->client, MCP_FEED, &msg, &reply, NULL, mc_deadline_ms(f->conf.timeout_ms));
	g->took = mc_now_ns() - g->sent;
	if (r == 0)
		r = check_reply(g, &reply);
	g->answers = r == 0;
	if (r == 0)
		r = feeding_promised(g, promise_ms);
	if (r == 0 && part->lsn)
		r = count_records(g, part->len);
	return r;
}

/* Send an empty part, for a promise. */
static int feeding_beat(struct feeding *g, unsigned promise_ms)
{
	const struct mcm_feed_part none = { .len = 0 };

	return send_part(g, &none, false, promise_ms);
}

/* Time of a promise that lasts during a change of the members, when no part is sent. */
static unsigned long_promise_ms(const struct mcm_feeders *f)
{
	return f->conf.set_ms + MCM_PROMISE_MS;
}

/* Limit of a confirmation.  One that comes after the end of its promise delays reads, too. */
static unsigned slow_ms(const struct mcm_feeders *f)
{
	unsigned promise_ms = MCM_PROMISE_MS - MCM_PROMISE_MS / DRIFT_SHARE;

	return f->conf.slow_ms < promise_ms ? f->conf.slow_ms : promise_ms;
}

/* Send an empty part.  -ETIMEDOUT: the standby confirms too slowly for promises that let answers leave. */
static int try_promise(struct feeding *g, unsigned promise_ms)
{
	uint64_t ns;
	int r = feeding_beat(g, promise_ms);

	ns = mc_now_ns() - g->sent;
	if (r == 0 && ns > MCM_PROMISE_MS / JOIN_SHARE * MC_NS_PER_MS)
		r = mc_fail(-ETIMEDOUT, "it confirms after %u ms, and a standby in sync must within %u ms",
			    (unsigned)(ns / MC_NS_PER_MS), MCM_PROMISE_MS / JOIN_SHARE);
	return r;
}

/* Send the next part.  1: sent; 0: there is none. */
static int feeding_step(struct feeding *g)
{
	struct mcm_feeders *f = g->p->all;
	struct mcm_feed_part part;
	int r = mcm_feed_read(g->feed, g->buf, PART, &part);

	if (r <= 0)
		return r;
	r = send_part(g, &part, false, MCM_PROMISE_MS);
	if (r < 0)
		return r;
	if (part.lsn) {
		mc_mutex_lock(&f->lock);
		g->p->lsn = part.lsn;
		mc_mutex_unlock(&f->lock);
	}
	/* A part without a record counts, too: answers may have waited for its promise. */
	if (g->p->waited)
		feeders_report(f);
	return 1;
}

static int feeding_steps(struct feeding *g)
{
	int r;

	do
		r = feeders_stopping(g->p->all) ? -ECANCELED : feeding_step(g);
	while (r > 0);
	return r;
}

static void wait_for(struct feeding *g, bool on)
{
	struct mcm_feeders *f = g->p->all;

	MC_LOCKED(&f->lock);
	g->p->waited = on;
}

/* Send a whole copy; then let answers wait for the standby and add it to the members.  A standby that is
 * too slow keeps the copy that it has, and asks again later. */
static int bring_in(struct feeding *g)
{
	const struct mcm_feed_part none = { .len = 0 };
	int r = try_promise(g, MCM_PROMISE_MS);

	if (r == 0)
		r = send_part(g, &none, true, MCM_PROMISE_MS);
	g->begun = r == 0;
	if (r == 0)
		r = mcm_feed_open(g->p->all->m, &g->feed);
	if (r == 0)
		r = feeding_steps(g);
	if (r == 0 && !g->complete)
		r = mc_fail(-MC_EFEED, "the standby has all parts, but no complete copy");
	if (r == 0 && mcm_pace_slow(&g->pace))
		r = mc_fail(-ETIMEDOUT, "it needs more than %u ms to confirm records", g->pace.limit_ms);
	if (r < 0)
		return r;
	g->whole = true;
	wait_for(g, true);
	/* Send the records that were answered for before answers waited for this standby. */
	r = feeding_steps(g);
	/* No part is sent during the call to the store.  The next part shortens this promise again, because a standby
	 * that replaces this master waits for the end of its promise before it serves. */
	if (r == 0)
		r = try_promise(g, long_promise_ms(g->p->all));
	if (r == 0)
		r = member_set(g->p, true);
	if (r == 0)
		r = feeding_beat(g, MCM_PROMISE_MS);
	return r;
}

static int keep_in(struct feeding *g)
{
	struct mcm_feeders *f = g->p->all;
	int r;

	g->in = true;
	for (;;) {
		/* Send it before the records, which may wait for this master's disk. */
		if (mc_now_ns() - g->sent >= BEAT_MS * MC_NS_PER_MS) {
			r = feeding_beat(g, MCM_PROMISE_MS);
			if (r < 0)
				return r;
			/* An answer may have begun to wait after the last report. */
			feeders_report(f);
		}
		r = feeding_steps(g);
		if (r < 0)
			return r;
		mc_mutex_lock(&f->lock);
		while (!f->stopping && f->written <= g->p->lsn && r == 0)
			r = mc_cond_wait_until(&f->change, &f->lock, mc_deadline_ms(BEAT_MS));
		mc_mutex_unlock(&f->lock);
		if (r < 0 && r != -ETIMEDOUT)
			return r;
	}
}

/* Remove the standby from the members in the store; only then may answers leave without it.  Until the store has done
 * so, the standby may lead next: answers need its promises, and writes need its copy. */
static void take_out(struct feeding *g)
{
	struct mcm_feeders *f = g->p->all;
	bool was = g->p->member;

	g->in = false;
	while (g->p->listed && !feeders_stopping(f) && member_set(g->p, false) < 0) {
		mc_sleep_ms(STORE_PAUSE_MS);
		if (g->answers && feeding_steps(g) == 0 && feeding_beat(g, long_promise_ms(f)) == 0)
			feeders_report(f);
	}
	if (g->p->listed)
		return;
	if (was)
		mc_metric_add(&removed, 1);
	wait_for(g, false);
	feeders_report(f);
}

/* Did answers wait for this standby longer than the limit? */
static bool was_late(const struct feeding *g, int r)
{
	return g->p->waited && (r == -ETIMEDOUT || g->took > g->pace.limit_ms * MC_NS_PER_MS);
}

static void remember_late(struct feeder *p)
{
	MC_LOCKED(&p->all->lock);
	mcm_gate_late(&p->all->gate, p->peer, mc_now_ns());
}

static void *feeder_main(void *arg)
{
	struct feeder *p = arg;
	struct feeding g = { .p = p, .buf = malloc(PART), .pace.limit_ms = slow_ms(p->all) };
	char addr[MCD_SEAT_NAME_MAX];
	const struct mcp_client_conf conf = {
		.net = mcm_security_net(p->all->conf.security), .addrs = addr, .channel = MCP_CHANNEL_CONTROL,
		.software = "mooncake_master " PACKAGE_VERSION,
		.client = { MCM_STANDBY_LEADER_ID, mc_random_u64() }, .connect_timeout_ms = p->all->conf.timeout_ms,
	};
	int r;

	mcd_seat_address(p->name, addr);
	r = g.buf ? mcp_client_open(&conf, &g.client) : -ENOMEM;
	if (r == 0 && p->unchecked)
		r = mcm_gate_address("", addr, p->peer, mc_deadline_ms(p->all->conf.timeout_ms));
	if (r == 0)
		r = bring_in(&g);
	if (r == 0) {
		mc_info(LOG, "a standby is in sync standby=%s", p->name);
		r = keep_in(&g);
	}
	if (r != -ECANCELED)
		mc_warn(LOG, "a standby is not fed any more standby=%s: %s", p->name, mc_err_detail(r));
	if (r != -ECANCELED && was_late(&g, r))
		remember_late(p);
	take_out(&g);
	mcm_feed_close(g.feed);
	mcp_client_close(g.client);
	free(g.buf);
	MC_LOCKED(&p->all->lock);
	p->ended = true;
	return NULL;
}

/* ---- joining ------------------------------------------------------------------------------------- */

static bool same_address(const char *a, const char *b)
{
	char x[MCD_SEAT_NAME_MAX], y[MCD_SEAT_NAME_MAX];

	mcd_seat_address(a, x);
	mcd_seat_address(b, y);
	return !strcmp(x, y);
}

/* Lock held: is @p the feed that @j asks for?  A feed that another host has asked for counts only after the receiver
 * has confirmed it. */
static bool is_fed(const struct feeder *p, const struct feeder *j)
{
	return p->used && !strcmp(p->name, j->name) &&
	       (p->known || mcp_id_zero(j->nonce) || !strcmp(p->peer, j->peer));
}

/* Lock held: find a place for @j.  0 and NULL: the standby is being fed already. */
static int place_for(struct mcm_feeders *f, const struct feeder *j, struct feeder **ret)
{
	unsigned of_host = 0;

	*ret = NULL;
	for (unsigned i = 0; i < STANDBYS_MAX; i++) {
		struct feeder *p = &f->feeder[i];

		if (p->used && p->ended && !p->listed) {
			mc_thread_join(p->thread);
			*p = (struct feeder){ .all = f };
		}
		if (is_fed(p, j)) {
			*ret = NULL;
			return 0;
		}
		/* A standby of an older version cannot confirm its name. */
		if (p->used && mcp_id_zero(j->nonce) && same_address(p->name, j->name))
			return mc_fail(-MC_EJOIN, "%s is fed, and %s has the same address", p->name, j->name);
		of_host += p->used && !strcmp(p->peer, j->peer);
		if (!p->used && !*ret)
			*ret = p;
	}
	if (of_host >= MCM_GATE_PER_HOST)
		return mc_fail(-MC_ELIMIT, "%s has asked for %u standbys already", j->peer, MCM_GATE_PER_HOST);
	return *ret ? 0 : mc_fail(-MC_ELIMIT, "there are %u standbys already", STANDBYS_MAX);
}

static int feeder_start(struct mcm_feeders *f, const struct feeder *j)
{
	struct feeder *p = NULL;
	int r;

	MC_LOCKED(&f->lock);
	if (f->stopping)
		return 0;
	r = mcm_gate_wait(&f->gate, j->peer, mc_now_ns());
	if (r == 0 && !j->links && (f->linking || mcm_links_any(&f->m->index.links)))
		r = mc_fail(-MC_EJOIN, "there are files with several names, and a standby of an older version cannot "
			    "restore them");
	if (r == 0)
		r = place_for(f, j, &p);
	if (r < 0 || !p)
		return r;
	*p = *j;
	r = mc_thread_start(&p->thread, "mc-feeder", feeder_main, p);
	p->used = r == 0;
	return r;
}

int mcm_feeders_join(struct mcm_feeders *f, const struct mcp_join *rq, struct mcp_bytes peer, uint64_t *ret_term)
{
	struct feeder j = { .all = f, .nonce = rq->nonce, .links = rq->records & MCM_RECORDS_LINKS };
	char addr[MCD_SEAT_NAME_MAX];
	int r;

	if (rq->name.len >= sizeof(j.name) || memchr(rq->name.data, 0, rq->name.len) || peer.len >= sizeof(j.peer))
		return mc_fail(-MC_EPARAM, "invalid name of a standby");
	memcpy(j.name, rq->name.data, rq->name.len);
	memcpy(j.peer, peer.data, peer.len);
	if (!mcd_seat_name_valid(j.name))
		return mc_fail(-MC_EPARAM, "invalid name of a standby");
	*ret_term = f->conf.term;
	/* A standby of an older version takes all objects of its copy for true.  The state is unproven from the start
	 * of this master on, or never. */
	if (mcp_id_zero(j.nonce) && mcm_load_relaxed(&f->m->unproven))
		return mc_fail(-MC_EUNAVAILABLE, "a standby of an older version is not fed before all objects of the "
			       "restored snapshot are compared");
	mcd_seat_address(j.name, addr);
	r = mcm_gate_address(f->conf.members, addr, j.peer, 0);
	j.unchecked = r == -EAGAIN;
	if (r == 0 || j.unchecked)
		r = feeder_start(f, &j);
	if (r < 0)
		mc_warn(LOG, "a standby is not fed standby=%s: %s", j.name, mc_err_detail(r));
	return r;
}

int mcm_feeders_link_begin(struct mcm_feeders *f)
{
	if (!f)
		return 0;
	MC_LOCKED(&f->lock);
	for (unsigned i = 0; i < STANDBYS_MAX; i++) {
		const struct feeder *p = &f->feeder[i];

		/* One that has ended may still be a member in the store, and lead. */
		if (p->used && !p->links && (!p->ended || p->listed))
			return mc_fail(-MC_ENOTSUP, "a standby of an older version cannot restore files with several "
				       "names: upgrade %s", p->name);
	}
	f->linking++;
	return 0;
}

void mcm_feeders_link_end(struct mcm_feeders *f)
{
	if (!f)
		return;
	MC_LOCKED(&f->lock);
	f->linking--;
}

void mcm_feeders_print(struct mcm_feeders *f, FILE *to)
{
	char addr[MCD_SEAT_NAME_MAX];

	fputs("# HELP mooncake_master_standby_confirm_seconds Time until a standby confirmed records that were sent\n"
	      "# TYPE mooncake_master_standby_confirm_seconds summary\n", to);
	for (unsigned i = 0; i < STANDBYS_MAX; i++) {
		struct feeder p;

		mc_mutex_lock(&f->lock);
		p = f->feeder[i];
		mc_mutex_unlock(&f->lock);
		if (!p.used || p.ended || !p.known)
			continue;
		mcd_seat_address(p.name, addr);
		fprintf(to, "mooncake_master_standby_confirm_seconds_sum{standby=\"%s\"} %.6f\n"
			"mooncake_master_standby_confirm_seconds_count{standby=\"%s\"} %" PRIu64 "\n",
			addr, (double)p.confirm_ns / (double)MC_NS_PER_SEC, addr, p.confirms);
	}
}
