/* SPDX-License-Identifier: Apache-2.0
 * ha.c - election of this master, and the end of its term. */
#include <config.h>

#include "master/ha/ha.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/httpd.h"
#include "common/net/stream.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "master/admin/stats.h"
#include "master/ha/feeder.h"
#include "master/ha/identity.h"
#include "master/ha/standby.h"
#include "master/ha/standby_http.h"
#include "master/journal/journal.h"
#include "master/security/security.h"
#include "meta/seat.h"
#include "proto/rpc_client.h"

#define LOG "ha"
#define POLL_MS 100		/* period in which a standby reads the store */
#define NOTICE_MS 10		/* period in which a standby checks whether it has lost its leader */
#define PROBE_MS 200		/* time limit of a connection to a leader that may have ended */
#define PROBES_MS 1000		/* a standby connects to a lost leader again and again for this time */
/* A leader that was replaced by mistake closes no connection, but answers no heartbeat.  Its clients wait this long for
 * the answer before they look for another master. */
#define SILENCE_MS 1000
#define TAKEOVER_MS 1000	/* a standby leads at most this long after the end of the lease */
#define CALL_MS 1000		/* time limit of a call to the store, or to the leader */
#define FED_MS 500		/* a standby that was fed within this time does not join again */
/* A member may have to lead soon, so it asks a silent leader rarely and briefly to feed it. */
#define JOIN_PAUSE_MS 1000	/* between two JOINs of a member */
#define JOIN_MS 100		/* time limit of a JOIN of a member */
#define RENEWALS 4		/* attempts to prolong the lease before it ends */
#define HANDOVER_MS 5000	/* a master that stepped down waits at most this long for the next leader */
#define ANSWER_MS 20		/* time for the answer to the order to step down */
#define WAITS_MS 10000		/* between log messages of a master that waits for another one */
#define STANDBY_SHARE 4		/* a standby has this part of the lease to confirm */
#define SLOW_SHARE 10		/* a standby that often needs longer than this part of the lease is removed */

struct mcm_ha {
	/* constant after mcm_ha_start() */
	struct mcm_ha_conf ends;	/* its callback ends a term */
	const struct mcm_conf *conf;
	const struct mcm_listen *where;
	const char *journal_dir, *addr;
	char name[MCD_SEAT_NAME_MAX];	/* the name of this master (identity.h) */
	char *store;			/* connection string */
	unsigned ttl_ms;		/* time of the lease */
	struct mcm_standby *standby;	/* NULL: this master leads */
	struct mcm_feeders *feeders;	/* NULL: this master is a standby */
	struct mc_mutex lock;
	struct mcd_seat *seat;		/* guarded by lock while the thread of the lease runs */
	uint64_t until;			/* atomic: this master leads until then */
	bool leaving;			/* atomic: an orderly end has begun */
	struct mc_stop stop;
	struct mc_thread thread;
	bool renews;			/* the thread of the lease runs */
	bool silent;			/* the failure of the store was logged */
	bool stepping_down;		/* atomic: the program does not end after mcm_stop(), but starts again */
	bool ended;			/* atomic: MCM_HA_RESTART was sent */
	struct mcm_lead lead;
	/* used by the thread that calls while this master is a standby; times on the mc_now_ns() scale */
	uint64_t looked_ns;		/* end of the last read of the store */
	uint64_t joined_ns;		/* time of the last JOIN */
	uint64_t serve_from;		/* mcm_lead.serve_from of the term that begins; 0: serve at once */
	struct mc_httpd *httpd;
	struct mcm_identity me;
	uint64_t stateless_ns;		/* time of the first read without a state in the store; 0: the store has one */
	uint64_t waits_ns;		/* time of the last log message about a cluster without a leader, or of the
					 * first read of that; 0: a master leads, or this one may */
	bool twin;			/* the log says that the leader has this master's address */
	struct mc_mutex view_lock;
	struct mcm_standby_view view;	/* guarded by view_lock */
};

/* ---- options ------------------------------------------------------------------------------------- */

/* The store's connection string; the caller frees it. */
static int store_of(const struct mcm_conf *c, char **ret)
{
	const char *where = *c->ha_backend_connstring ? c->ha_backend_connstring : c->etcd_endpoints;
	int r = mcd_seat_conn(c->ha_backend_type, where, ret);

	if (r < 0)
		return mc_fail(r, "ha_backend_type=%s", mc_err_detail(r));
	return *where ? 0 : mc_fail(-EINVAL, "enable_ha needs etcd_endpoints or ha_backend_connstring");
}

/* Check that the option is a list of HOST:PORT and has the address of this master. */
static int check_members(const struct mcm_ha *ha)
{
	auto_free char *list = strdup(ha->conf->ha_members);
	char host[MC_ADDR_MAX], *save = NULL;
	bool is_one = !*ha->conf->ha_members;
	int port, r;

	if (!list)
		return -ENOMEM;
	for (char *at = strtok_r(list, ",", &save); at; at = strtok_r(NULL, ",", &save)) {
		r = mc_addr_split(at, host, sizeof(host), -1, &port);
		if (r < 0 || !*host)
			return mc_fail(-EINVAL, "ha_members=%s: not a list of HOST:PORT", ha->conf->ha_members);
		is_one |= !strcmp(at, ha->addr);
	}
	return is_one ? 0 : mc_fail(-EINVAL, "ha_members=%s does not have the address of this master, %s",
				    ha->conf->ha_members, ha->addr);
}

static int ha_check(struct mcm_ha *ha)
{
	int r = mcm_journal_wanted(ha->conf, &ha->journal_dir);

	if (r < 0)
		return r;
	if (r == 0)
		return mc_fail(-EINVAL, "enable_ha needs a journal, but journal_dir=%s switches it off",
			       ha->conf->journal_dir);
	if (!strncmp(ha->addr, "0.0.0.0:", 8) || !strncmp(ha->addr, "[::]:", 5))
		return mc_fail(-EINVAL, "enable_ha needs rpc_address or rpc_interface: clients and other masters "
			       "connect to it, so it cannot be %s", ha->addr);
	return check_members(ha);
}

int mcm_ha_new(const struct mcm_ha_conf *conf, struct mcm_ha **ret)
{
	struct mcm_ha *ha = calloc(1, sizeof(*ha));
	int r;

	if (!ha)
		return -ENOMEM;
	ha->ends = *conf;
	ha->conf = conf->conf;
	ha->where = conf->where;
	ha->addr = conf->where->addrs[0];
	ha->ttl_ms = (unsigned)conf->conf->ha_leader_lease_ttl_sec * 1000;
	mc_mutex_init(&ha->lock);
	mc_mutex_init(&ha->view_lock);
	r = ha_check(ha);
	if (r == 0)
		r = store_of(ha->conf, &ha->store);
	if (r < 0) {
		mcm_ha_free(ha);
		return r;
	}
	*ret = ha;
	return 0;
}

void mcm_ha_free(struct mcm_ha *ha)
{
	if (!ha)
		return;
	if (ha->renews)
		mc_stop_join(&ha->stop, ha->thread);
	mc_httpd_stop(ha->httpd);
	mcm_standby_stop(ha->standby);
	mcm_feeders_free(ha->feeders);
	mcd_seat_close(ha->seat);
	free(ha->store);
	mc_mutex_destroy(&ha->view_lock);
	mc_mutex_destroy(&ha->lock);
	free(ha);
}

/* ---- identity ------------------------------------------------------------------------------------ */

static void ha_note(struct mcm_ha *ha, uint64_t term, enum mcm_standing standing)
{
	int r = mcm_identity_note(&ha->me, term, standing);

	if (r < 0)
		mc_warn(LOG, "%s", mc_err_detail(r));
}

static bool is_member(const struct mcm_ha *ha, const struct mcd_seat_view *v)
{
	bool member = false;

	for (unsigned i = 0; i < v->n; i++)
		member |= !strcmp(v->member[i], ha->name);
	return member;
}

/* ---- leading ------------------------------------------------------------------------------------- */

static int ha_set_members(void *arg, const char *const *member, unsigned n)
{
	struct mcm_ha *ha = arg;
	int r = mc_mutex_lock_until(&ha->lock, mc_deadline_ms(CALL_MS));

	if (r < 0)
		return mc_fail(r, "the lease is being prolonged");
	r = mcd_seat_set_members(ha->seat, member, n, mc_deadline_ms(CALL_MS));
	mc_mutex_unlock(&ha->lock);
	if (r == -MC_EOWNER && ha->renews && !__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE)) {
		/* Another master leads: wake the thread of the lease, which ends this term. */
		__atomic_store_n(&ha->until, 0, __ATOMIC_RELEASE);
		mc_stop_kick(&ha->stop);
	}
	return r;
}

/* The one place where a term ends before the program does.  Only the first MCM_HA_RESTART is sent: a thread that comes
 * later finds the term ended. */
static void term_ends(struct mcm_ha *ha, enum mcm_ha_end end, const char *why)
{
	if (end == MCM_HA_RESTART) {
		if (__atomic_exchange_n(&ha->ended, true, __ATOMIC_ACQ_REL))
			return;
		__atomic_store_n(&ha->until, 0, __ATOMIC_RELEASE);
		mc_warn(LOG, "%s, starting again as a standby name=%s", why, ha->name);
	}
	ha->ends.end(ha->ends.arg, end, why);
}

static void *renew_main(void *arg)
{
	struct mcm_ha *ha = arg;
	bool failing = false, told = false;
	uint64_t until;
	int r;

	while (!mc_stop_wait(&ha->stop, ha->ttl_ms / RENEWALS)) {
		if (!told && __atomic_load_n(&ha->stepping_down, __ATOMIC_ACQUIRE)) {
			/* The answer to the order must leave before the server ends. */
			mc_sleep_ms(ANSWER_MS);
			told = true;
			term_ends(ha, MCM_HA_STOP, "stepping down");
		}
		if (__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE))
			continue;
		until = __atomic_load_n(&ha->until, __ATOMIC_RELAXED);
		mc_mutex_lock(&ha->lock);
		r = mcd_seat_renew(ha->seat, until);
		/* A renewal moves the end forward, so it never delays an answer that could leave before it. */
		__atomic_store_n(&ha->until, mcd_seat_until(ha->seat), __ATOMIC_RELEASE);
		mc_mutex_unlock(&ha->lock);
		if (r < 0 && !failing)
			mc_warn(LOG, "cannot prolong the lease, serving until its end: %s", mc_err_detail(r));
		if (r == 0 && failing)
			mc_info(LOG, "the lease is prolonged again");
		if (r == 0)
			mcm_feeders_prolonged(ha->feeders);
		failing = r < 0;
		if (mc_now_ns() >= __atomic_load_n(&ha->until, __ATOMIC_RELAXED) &&
		    !__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE)) {
			term_ends(ha, MCM_HA_RESTART, "the lease is lost");
			break;
		}
	}
	return NULL;
}

/* Called by mcm_stop() when no client is served any more: give the lease back, so that a standby leads at once. */
static void ha_stopped(void *arg)
{
	struct mcm_ha *ha = arg;
	int r;

	__atomic_store_n(&ha->leaving, true, __ATOMIC_RELEASE);
	MC_LOCKED(&ha->lock);
	__atomic_store_n(&ha->until, 0, __ATOMIC_RELEASE);
	r = mcd_seat_leave(ha->seat, mc_deadline_ms(CALL_MS));
	if (r < 0)
		mc_warn(LOG, "cannot give the lease back, it ends in %u s: %s", ha->ttl_ms / 1000, mc_err_detail(r));
}

/* Begin an end as after a signal, after which mcm_ha_stay() starts the program again. */
static int ha_step_down(void *arg)
{
	struct mcm_ha *ha = arg;

	if (!mcm_feeders_in_sync(ha->feeders))
		return mc_fail(-MC_EMODE, "no standby is in sync, so none could take over");
	mc_info(LOG, "stepping down name=%s", ha->name);
	__atomic_store_n(&ha->stepping_down, true, __ATOMIC_RELEASE);
	mc_stop_kick(&ha->stop);
	return 0;
}

void mcm_ha_stay(struct mcm_ha *ha)
{
	uint64_t deadline = mc_deadline_ms(HANDOVER_MS);
	struct mcd_seat_view v = { .leader = "" };

	if (!__atomic_load_n(&ha->stepping_down, __ATOMIC_ACQUIRE))
		return;
	/* This master still may lead: without this wait it could take the lease before a standby does. */
	while (!*v.leader && mc_now_ns() < deadline) {
		int sig = mc_signals_wait_ms(POLL_MS);

		if (sig == SIGINT || sig == SIGTERM)
			return;
		(void)mcd_seat_look(ha->seat, &v, mc_deadline_ms(CALL_MS));
	}
	term_ends(ha, MCM_HA_RESTART, "stepped down");
}

/* The journal was removed from the disk, so this master may lead again only after it has copied the state of another
 * one.  A standby in sync has every record that was answered for. */
static void ha_lost(void *arg)
{
	struct mcm_ha *ha = arg;

	if (!mcm_feeders_in_sync(ha->feeders))
		return;
	ha_stopped(ha);
	term_ends(ha, MCM_HA_RESTART, "the journal cannot be written, a standby takes over");
}

static int ha_lead(struct mcm_ha *ha, uint64_t term, struct mcm_listen *where)
{
	const struct mcm_feeders_conf feeders = {
		.term = term, .self = ha->name, .timeout_ms = ha->ttl_ms / STANDBY_SHARE, .set_members = ha_set_members,
		.slow_ms = ha->ttl_ms / SLOW_SHARE, .members = ha->conf->ha_members, .set_ms = 2 * CALL_MS,
		.until = &ha->until, .security = ha->where->security, .arg = ha,
	};
	const char *self = ha->name;
	int r;

	ha_note(ha, term, MCM_LEADER);
	__atomic_store_n(&ha->until, mcd_seat_until(ha->seat), __ATOMIC_RELEASE);
	mc_httpd_stop(ha->httpd);
	ha->httpd = NULL;
	mcm_standby_stop(ha->standby);
	ha->standby = NULL;
	/* The members of the last term are no standbys of this leader, and do not confirm its records. */
	r = ha_set_members(ha, &self, 1);
	if (r == 0)
		r = mcm_feeders_new(&feeders, &ha->feeders);
	if (r == 0)
		r = mc_stop_start(&ha->stop, &ha->thread, "mc-lease", renew_main, ha);
	ha->renews = r == 0;
	if (r < 0)
		return r;
	mc_info(LOG, "this master leads name=%s term=%llu", ha->name, (unsigned long long)term);
	ha->lead = (struct mcm_lead){
		.feeders = ha->feeders, .name = ha->addr, .term = term, .stopped = ha_stopped,
		.step_down = ha_step_down, .lost = ha_lost, .arg = ha, .serve_from = ha->serve_from,
		.silence_ms = ha->serve_from ? SILENCE_MS : 0, .takeover_ms = ha->ttl_ms + TAKEOVER_MS,
	};
	where->lead = &ha->lead;
	return 1;
}

/* ---- standby ------------------------------------------------------------------------------------- */

static void view_of(void *arg, struct mcm_standby_view *ret)
{
	struct mcm_ha *ha = arg;

	MC_LOCKED(&ha->view_lock);
	*ret = ha->view;
}

static void view_set(struct mcm_ha *ha, const struct mcd_seat_view *v, bool ready)
{
	MC_LOCKED(&ha->view_lock);
	ha->view.term = v->term;
	ha->view.ready = ready;
	mcd_seat_address(v->leader, ha->view.leader);
}

/* The store has no state: the cluster is new, or the store has lost its data.  The last leader may lead at once, a
 * member later, another master never. */
static bool may_begin(struct mcm_ha *ha)
{
	uint64_t now = mc_now_ns();

	ha->stateless_ns = ha->stateless_ns ? ha->stateless_ns : now;
	switch (ha->me.standing) {
	case MCM_NEW:
	case MCM_LEADER:
		return true;
	case MCM_MEMBER:
		return now - ha->stateless_ns > 2 * ha->ttl_ms * MC_NS_PER_MS;
	default:
		return false;
	}
}

static bool may_lead(struct mcm_ha *ha, const struct mcd_seat_view *v)
{
	bool whole = mcm_standby_whole(ha->standby);

	if (!v->exists)
		return may_begin(ha) && (whole || ha->me.standing == MCM_NEW);
	ha->stateless_ns = 0;
	/* A leader that was alone and could not write its journal has lost the state, but no other master has it. */
	return is_member(ha, v) && (whole || v->n == 1);
}

/* @waits: no master leads, and this one may not.  When this lasts, log for which masters the pool waits. */
static void say_waits(struct mcm_ha *ha, const struct mcd_seat_view *v, bool waits)
{
	uint64_t now = mc_now_ns();

	if (!waits || !ha->waits_ns)
		ha->waits_ns = waits ? now : 0;
	if (!waits || now - ha->waits_ns < WAITS_MS * MC_NS_PER_MS)
		return;
	ha->waits_ns = now;
	mc_warn(LOG, "no master leads, and this one does not have the whole state; waiting for %s%s%s%s; if it never "
		"returns, delete the key mooncake-store/%s/master_state to begin with an empty pool",
		v->n ? v->member[0] : "a master that had it", v->n > 1 ? " or " : "", v->n > 1 ? v->member[1] : "",
		v->n > 2 ? ", ..." : "", ha->conf->cluster_id);
}

/* Ask the leader to connect to this standby and to feed it.  @member: this master is in sync, as the store says. */
static void ha_join(struct mcm_ha *ha, const char *leader, bool member)
{
	char addr[MCD_SEAT_NAME_MAX];
	const struct mcp_client_conf conf = {
		.addrs = addr, .channel = MCP_CHANNEL_CONTROL, .software = "mooncake_master " PACKAGE_VERSION,
		.net = mcm_security_net(ha->where->security), .client = { mc_random_u64() | 1, mc_random_u64() },
		.connect_timeout_ms = member ? JOIN_MS : CALL_MS,
	};
	struct mcp_join msg = { .name = mcp_bytes(ha->name, strlen(ha->name)), .records = MCM_RECORDS_LINKS };
	uint64_t fed = mcm_standby_fed(ha->standby);
	struct mcp_join_reply reply;
	struct mcp_client *c;
	int r;

	if (fed && mc_now_ns() - fed < FED_MS * MC_NS_PER_MS)
		return;
	if (member && mc_now_ns() - ha->joined_ns < JOIN_PAUSE_MS * MC_NS_PER_MS)
		return;
	ha->joined_ns = mc_now_ns();
	mcd_seat_address(leader, addr);
	if (!ha->twin && !strcmp(addr, ha->addr))
		mc_warn(LOG, "another master has the address of this one, or this one had another journal before; "
			"each needs an address of its own address=%s", addr);
	ha->twin = !strcmp(addr, ha->addr);
	if (ha->twin)
		return;
	r = mcp_client_open(&conf, &c);
	if (r < 0)
		return;
	msg.nonce = mcm_standby_join(ha->standby, ha->name);
	r = mcp_call(c, MCP_JOIN, &msg, &reply, NULL, mc_deadline_ms(conf.connect_timeout_ms));
	mcp_client_close(c);
	if (r < 0)
		mc_info(LOG, "cannot join the leader yet leader=%s: %s", leader, mc_err_detail(r));
}

/* Read the store, and take the lease if it is free and this master may lead.  1: this master has the lease. */
static int ha_look(struct mcm_ha *ha, uint64_t *ret_term)
{
	struct mcd_seat_view v;
	int r = mcd_seat_look(ha->seat, &v, mc_deadline_ms(CALL_MS));
	bool may;

	if (r < 0) {
		view_set(ha, &(const struct mcd_seat_view){ .leader = "" }, false);
		if (!ha->silent)
			mc_warn(LOG, "cannot read the lease: %s", mc_err_detail(r));
		ha->silent = true;
		return 0;
	}
	ha->silent = false;
	/* A store that lost its data has no term; the leader keeps its own until its lease ends. */
	if (v.exists)
		mcm_standby_term(ha->standby, v.term);
	may = may_lead(ha, &v);
	view_set(ha, &v, may);
	say_waits(ha, &v, !*v.leader && !may);
	if (v.exists)
		ha_note(ha, v.term, is_member(ha, &v) ? MCM_MEMBER : MCM_OUT);
	if (*v.leader && strcmp(v.leader, ha->name) != 0)
		ha_join(ha, v.leader, is_member(ha, &v));
	if (*v.leader || !may)
		return 0;
	r = mcd_seat_take(ha->seat, ha->me.term + 1, mc_deadline_ms(CALL_MS), ret_term);
	if (r < 0 && r != -EAGAIN)
		mc_warn(LOG, "cannot take the lease: %s", mc_err_detail(r));
	return r == 0;
}

/* Does no process listen at the address of master @name?  A refusal says so; a timeout does not. */
static bool address_refuses(const char *name)
{
	char addr[MCD_SEAT_NAME_MAX];
	struct mc_stream s = { .ops = NULL };
	int r;

	mcd_seat_address(name, addr);
	r = mc_net_connect(mc_net_default(), addr, mc_deadline_ms(PROBE_MS), &s);
	mc_stream_close(&s);
	return r == -ECONNREFUSED;
}

/* If the connection from the leader has ended and its address refuses connections, its process has ended: replace it.
 * 1: this master has the lease. */
static int ha_notice(struct mcm_ha *ha, uint64_t *ret_term)
{
	uint64_t term, since, promised;
	struct mcd_seat_view v;
	int r;

	if (!mcm_standby_lost(ha->standby, &term, &since) || mc_now_ns() - since > PROBES_MS * MC_NS_PER_MS)
		return 0;
	r = mcd_seat_look(ha->seat, &v, mc_deadline_ms(PROBE_MS));
	if (r < 0 || v.term != term || !*v.leader || !strcmp(v.leader, ha->name) || !is_member(ha, &v) ||
	    !mcm_standby_whole(ha->standby) || !address_refuses(v.leader))
		return 0;
	/* The sign may be wrong.  If the leader lives, it cannot answer writes from now on, because this standby
	 * refuses its records, nor reads after the end of the promise. */
	promised = mcm_standby_refuse(ha->standby);
	r = mcd_seat_replace(ha->seat, mc_deadline_ms(CALL_MS), ret_term);
	if (r < 0) {
		if (r != -EAGAIN)
			mc_warn(LOG, "cannot replace the leader, whose process has ended: %s", mc_err_detail(r));
		mcm_standby_accept(ha->standby);
		return 0;
	}
	mc_warn(LOG, "the leader's process has ended: it closed its connection, and refuses others leader=%s",
		v.leader);
	ha->serve_from = promised;
	return 1;
}

/* Limit of the bytes of a copy.  A copy has at most two checkpoints, and journals that are half as large as one, or as
 * large as the option says.  A checkpoint is smaller than the index in memory. */
static uint64_t copy_limit(uint64_t checkpoint_size)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return 3 * memory + 2 * checkpoint_size;
}

int mcm_ha_start(struct mcm_ha *ha)
{
	const struct mc_httpd_security security = mcm_security_http(ha->where->security, ha->conf);
	const struct mcm_standby_conf standby = {
		.addrs = ha->where->addrs, .audit = ha->where->audit,
		.security = ha->where->security, .copy = {
			.dir = ha->journal_dir, .cluster = ha->conf->cluster_id, .security = ha->where->security,
			.max_bytes = copy_limit(ha->conf->journal_checkpoint_size),
		},
		.sync = !strcmp(ha->conf->journal_sync, "fdatasync"),
	};
	struct mcd_seat_conf seat = {
		.conn = ha->store, .credentials = ha->conf->store_credentials,
		.cluster = ha->conf->cluster_id, .name = ha->name, .ttl_ms = ha->ttl_ms,
		.http_port = (int)ha->conf->metrics_port,
	};
	int r;

	r = mcm_standby_start(&standby, &ha->standby);
	if (r == 0)
		r = mcm_identity_open(ha->journal_dir, &ha->me);
	if (r == 0 && snprintf(ha->name, sizeof(ha->name), "%s#%s", ha->addr, ha->me.id) >= (int)sizeof(ha->name))
		r = mc_fail(-ENAMETOOLONG, "the address is too long: %s", ha->addr);
	if (r == 0)
		r = mcd_seat_open(&seat, &ha->seat);
	if (r == 0 && ha->where->http_addr)
		r = mcm_standby_http_start(ha->where->http_addr, view_of, ha, &security, &ha->httpd);
	if (r < 0)
		return r;
	mcm_series_show();
	mc_info(LOG, "standby name=%s", ha->name);
	return 0;
}

int mcm_ha_step(struct mcm_ha *ha, struct mcm_listen *where)
{
	uint64_t term = 0;

	mcm_standby_tick(ha->standby);
	if (ha_notice(ha, &term))
		return ha_lead(ha, term, where);
	if (mc_now_ns() - ha->looked_ns < POLL_MS * MC_NS_PER_MS)
		return 0;
	if (ha_look(ha, &term))
		return ha_lead(ha, term, where);
	ha->looked_ns = mc_now_ns();
	return 0;
}

int mcm_ha_await(struct mcm_ha *ha, struct mcm_listen *where)
{
	int r = mcm_ha_start(ha), sig;

	while (r == 0) {
		r = mcm_ha_step(ha, where);
		sig = r == 0 ? mc_signals_wait_ms(NOTICE_MS) : 0;
		if (sig == SIGINT || sig == SIGTERM)
			break;
	}
	return r;
}
