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
#include "common/net/net.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "master/ha/feeder.h"
#include "master/ha/identity.h"
#include "master/ha/standby.h"
#include "master/ha/standby_http.h"
#include "master/journal/journal.h"
#include "meta/seat.h"
#include "proto/rpc_client.h"

#define LOG "ha"
#define POLL_MS 100		/* a standby looks at the store so often */
#define NOTICE_MS 10		/* and so often whether it has lost its leader */
#define PROBE_MS 200		/* time limit of a connection to a leader that may have ended */
#define PROBES_MS 1000		/* a lost leader is probed for this time */
/* A leader that was replaced by mistake closes no connection, but answers no heartbeat: clients wait for the answer. */
#define SILENCE_MS 1000
#define TAKEOVER_MS 1000	/* a standby leads so long after the end of the lease, at the latest */
#define CALL_MS 1000		/* time limit of a call to the store, or to the leader */
#define FED_MS 500		/* a standby that was fed so recently does not join again */
/* A member asks a silent leader to feed it, with this pause and time limit: it may have to lead instead soon. */
#define JOIN_PAUSE_MS 1000
#define JOIN_MS 100
#define RENEWALS 4		/* in the time of a lease */
#define HANDOVER_MS 5000		/* a master that stepped down waits so long for the next leader */
#define ANSWER_MS 20
#define WAITS_MS 10000		/* between messages of a master that waits for another one */
#define STANDBY_SHARE 4		/* a standby has this part of the lease to confirm */
#define SLOW_SHARE 10		/* one that often needs longer than this part is removed */

struct mcm_ha {
	const struct mcm_conf *conf;
	const struct mcm_listen *where;
	char **argv;
	const char *journal_dir, *addr;
	char name[MCD_SEAT_NAME_MAX];	/* identity.h */
	char *store;
	unsigned ttl_ms;
	struct mcm_standby *standby;
	struct mcm_feeders *feeders;
	struct mc_mutex lock;		/* of the seat, once it renews */
	struct mcd_seat *seat;
	uint64_t until;			/* atomic: this master leads until then */
	bool leaving;			/* atomic: an orderly end has begun */
	struct mc_stop stop;
	struct mc_thread thread;
	bool renews;
	bool silent;			/* the store's failure was logged */
	bool stepping_down;		/* atomic: the end is not that of the program */
	struct mcm_lead lead;
	/* standby */
	uint64_t looked_ns;		/* when the store was last looked at */
	uint64_t joined_ns;		/* when the leader was last asked to feed this master */
	uint64_t serve_from;		/* of mcm_lead, 0: at once */
	struct mc_httpd *httpd;
	struct mcm_identity me;
	uint64_t stateless_ns;		/* since when the store has no state; 0: it has */
	uint64_t waits_ns;		/* since when no master leads, and this one may not; 0: not so */
	bool twin;			/* another master with this address was logged */
	struct mc_mutex view_lock;
	struct mcm_standby_view view;	/* guarded by view_lock */
};

/* ---- options ------------------------------------------------------------------------------------- */

/* The store's connection string; the caller frees it. */
static int store_of(const struct mcm_conf *c, char **ret)
{
	const char *where = *c->ha_backend_connstring ? c->ha_backend_connstring : c->etcd_endpoints;
	const char *type = c->ha_backend_type;
	bool is_url;

	if (!strcmp(type, "k8s"))
		return mc_fail(-EINVAL, "ha_backend_type=k8s is not built into this version, use etcd or redis");
	if (strcmp(type, "etcd") != 0 && strcmp(type, "redis") != 0)
		return mc_fail(-EINVAL, "ha_backend_type=%s: unknown, use etcd or redis", type);
	if (!*where)
		return mc_fail(-EINVAL, "enable_ha needs etcd_endpoints or ha_backend_connstring");
	/* etcd's own documents write endpoints as http://HOST:PORT, which would name a metadata server of HTTP; they
	 * may follow others, or USER:PASSWORD@. */
	is_url = !strcmp(type, "etcd") ? !strncmp(where, "etcd://", 7) : strstr(where, "://") != NULL;
	return (is_url ? asprintf(ret, "%s", where) : asprintf(ret, "%s://%s", type, where)) < 0 ? -ENOMEM : 0;
}

/* A list of HOST:PORT that has this master. */
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

static int check(struct mcm_ha *ha)
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

int mcm_ha_new(const struct mcm_conf *conf, const struct mcm_listen *where, char **argv, struct mcm_ha **ret)
{
	struct mcm_ha *ha = calloc(1, sizeof(*ha));
	int r;

	if (!ha)
		return -ENOMEM;
	ha->conf = conf;
	ha->where = where;
	ha->argv = argv;
	ha->addr = where->addrs[0];
	ha->ttl_ms = (unsigned)conf->ha_leader_lease_ttl_sec * 1000;
	mc_mutex_init(&ha->lock);
	mc_mutex_init(&ha->view_lock);
	r = check(ha);
	if (r == 0)
		r = store_of(conf, &ha->store);
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

static void note(struct mcm_ha *ha, uint64_t term, enum mcm_standing standing)
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

static int set_members(void *arg, const char *const *member, unsigned n)
{
	struct mcm_ha *ha = arg;
	int r = mc_mutex_lock_until(&ha->lock, mc_deadline_ms(CALL_MS));

	if (r < 0)
		return mc_fail(r, "the lease is being prolonged");
	r = mcd_seat_set_members(ha->seat, member, n, mc_deadline_ms(CALL_MS));
	mc_mutex_unlock(&ha->lock);
	if (r == -MC_EOWNER && ha->renews && !__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE)) {
		/* Another master leads: the thread that renews ends this one. */
		__atomic_store_n(&ha->until, 0, __ATOMIC_RELEASE);
		mc_stop_kick(&ha->stop);
	}
	return r;
}

/* Another master may lead: nothing of this process counts any more. */
static void start_again(struct mcm_ha *ha, const char *why)
{
	mc_warn(LOG, "%s, starting again as a standby name=%s", why, ha->name);
	execv("/proc/self/exe", ha->argv);
	mc_err(LOG, "cannot start again: %s", mc_strerror(-errno));
	mc_process_end(1);
}

static void *renew_main(void *arg)
{
	struct mcm_ha *ha = arg;
	bool failing = false, told = false;
	uint64_t until;
	int r;

	while (!mc_stop_wait(&ha->stop, ha->ttl_ms / RENEWALS)) {
		if (!told && __atomic_load_n(&ha->stepping_down, __ATOMIC_ACQUIRE)) {
			/* The answer to the order leaves first. */
			mc_sleep_ms(ANSWER_MS);
			told = kill(getpid(), SIGTERM) == 0;
		}
		if (__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE))
			continue;
		until = __atomic_load_n(&ha->until, __ATOMIC_RELAXED);
		mc_mutex_lock(&ha->lock);
		r = mcd_seat_renew(ha->seat, until);
		/* A later end never makes answers wait that an earlier one let leave. */
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
		    !__atomic_load_n(&ha->leaving, __ATOMIC_ACQUIRE))
			start_again(ha, "the lease is lost");
	}
	return NULL;
}

/* mcm_stop(): clients are gone, give the lease to a standby. */
static void stopped(void *arg)
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

/* The program ends as after a signal, and then starts again. */
static int step_down(void *arg)
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
	/* Otherwise this master, which may still lead, could be faster than the standbys. */
	while (!*v.leader && mc_now_ns() < deadline) {
		int sig = mc_signals_wait_ms(POLL_MS);

		if (sig == SIGINT || sig == SIGTERM)
			return;
		(void)mcd_seat_look(ha->seat, &v, mc_deadline_ms(CALL_MS));
	}
	start_again(ha, "stepped down");
}

/* The state on disk is removed, so this master cannot lead again before it has copied another one. */
static void lost(void *arg)
{
	struct mcm_ha *ha = arg;

	if (!mcm_feeders_in_sync(ha->feeders))
		return;
	stopped(ha);
	start_again(ha, "the journal cannot be written, a standby takes over");
}

static int lead(struct mcm_ha *ha, uint64_t term, struct mcm_listen *where)
{
	const struct mcm_feeders_conf feeders = {
		.term = term, .self = ha->name, .timeout_ms = ha->ttl_ms / STANDBY_SHARE, .set_members = set_members,
		.slow_ms = ha->ttl_ms / SLOW_SHARE, .members = ha->conf->ha_members, .set_ms = 2 * CALL_MS,
		.until = &ha->until, .arg = ha,
	};
	const char *self = ha->name;
	int r;

	note(ha, term, MCM_LEADER);
	__atomic_store_n(&ha->until, mcd_seat_until(ha->seat), __ATOMIC_RELEASE);
	mc_httpd_stop(ha->httpd);
	ha->httpd = NULL;
	mcm_standby_stop(ha->standby);
	ha->standby = NULL;
	/* Answers do not wait for the members of the last term. */
	r = set_members(ha, &self, 1);
	if (r == 0)
		r = mcm_feeders_new(&feeders, &ha->feeders);
	if (r == 0)
		r = mc_stop_start(&ha->stop, &ha->thread, "mc-lease", renew_main, ha);
	ha->renews = r == 0;
	if (r < 0)
		return r;
	mc_info(LOG, "this master leads name=%s term=%llu", ha->name, (unsigned long long)term);
	ha->lead = (struct mcm_lead){
		.feeders = ha->feeders, .name = ha->addr, .term = term, .stopped = stopped, .step_down = step_down,
		.lost = lost, .arg = ha, .serve_from = ha->serve_from,
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

/* The store has no state: a new cluster, or one whose state was lost.  The last leader is the first to lead again. */
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
	/* A leader that was alone, and could not write its journal, has lost the state: nothing else has it either. */
	return is_member(ha, v) && (whole || v->n == 1);
}

/* Nothing leads for long: say for which masters the pool waits. */
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

/* Ask the leader to connect to us.  @member: this master could lead. */
static void join(struct mcm_ha *ha, const char *leader, bool member)
{
	char addr[MCD_SEAT_NAME_MAX];
	const struct mcp_client_conf conf = {
		.addrs = addr, .channel = MCP_CHANNEL_CONTROL, .software = "mooncake_master " PACKAGE_VERSION,
		.client = { mc_random_u64() | 1, mc_random_u64() }, .connect_timeout_ms = member ? JOIN_MS : CALL_MS,
	};
	struct mcp_join msg = { .name = mcp_bytes(ha->name, strlen(ha->name)) };
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

/* One look at the store.  1: this master has the lease. */
static int look(struct mcm_ha *ha, uint64_t *ret_term)
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
	/* Without a state (a store that lost its data) the leader keeps its term to the end of its lease. */
	if (v.exists)
		mcm_standby_term(ha->standby, v.term);
	may = may_lead(ha, &v);
	view_set(ha, &v, may);
	say_waits(ha, &v, !*v.leader && !may);
	if (v.exists)
		note(ha, v.term, is_member(ha, &v) ? MCM_MEMBER : MCM_OUT);
	if (*v.leader && strcmp(v.leader, ha->name) != 0)
		join(ha, v.leader, is_member(ha, &v));
	if (*v.leader || !may)
		return 0;
	r = mcd_seat_take(ha->seat, ha->me.term + 1, mc_deadline_ms(CALL_MS), ret_term);
	if (r < 0 && r != -EAGAIN)
		mc_warn(LOG, "cannot take the lease: %s", mc_err_detail(r));
	return r == 0;
}

/* Does nothing listen at that address?  Only a refusal is a sign of that. */
static bool refuses(const char *name)
{
	char addr[MCD_SEAT_NAME_MAX];
	int fd;

	mcd_seat_address(name, addr);
	fd = mc_connect(addr, mc_deadline_ms(PROBE_MS));
	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

/* The connection from the leader has ended.  1: nothing listens at its address any more either, so its process has
 * ended, and this master has the lease instead. */
static int notice(struct mcm_ha *ha, uint64_t *ret_term)
{
	uint64_t term, since, promised;
	struct mcd_seat_view v;
	int r;

	if (!mcm_standby_lost(ha->standby, &term, &since) || mc_now_ns() - since > PROBES_MS * MC_NS_PER_MS)
		return 0;
	r = mcd_seat_look(ha->seat, &v, mc_deadline_ms(PROBE_MS));
	if (r < 0 || v.term != term || !*v.leader || !strcmp(v.leader, ha->name) || !is_member(ha, &v) ||
	    !mcm_standby_whole(ha->standby) || !refuses(v.leader))
		return 0;
	/* The sign may be wrong.  A leader that lives cannot answer writes from now on, nor reads after the promise. */
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

/* Whatever comes first: this master has the lease (1), or a signal (0). */
static int await_lease(struct mcm_ha *ha, uint64_t *ret_term)
{
	int sig;

	for (;;) {
		if (notice(ha, ret_term))
			return 1;
		if (mc_now_ns() - ha->looked_ns >= POLL_MS * MC_NS_PER_MS) {
			if (look(ha, ret_term))
				return 1;
			ha->looked_ns = mc_now_ns();
		}
		sig = mc_signals_wait_ms(NOTICE_MS);
		if (sig == SIGINT || sig == SIGTERM)
			return 0;
	}
}

/* A copy has at most two checkpoints, and journals of about half of one, or of the option's size.  A checkpoint is
 * smaller than the index in memory. */
static uint64_t copy_limit(uint64_t checkpoint_size)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return 3 * memory + 2 * checkpoint_size;
}

int mcm_ha_await(struct mcm_ha *ha, struct mcm_listen *where)
{
	const struct mcm_standby_conf standby = {
		.addrs = ha->where->addrs, .copy = {
			.dir = ha->journal_dir, .cluster = ha->conf->cluster_id,
			.max_bytes = copy_limit(ha->conf->journal_checkpoint_size),
		},
		.sync = !strcmp(ha->conf->journal_sync, "fdatasync"),
	};
	struct mcd_seat_conf seat = {
		.conn = ha->store, .cluster = ha->conf->cluster_id, .name = ha->name, .ttl_ms = ha->ttl_ms,
		.http_port = (int)ha->conf->metrics_port,
	};
	uint64_t term = 0;
	int r;

	r = mcm_standby_start(&standby, &ha->standby);
	if (r == 0)
		r = mcm_identity_open(ha->journal_dir, &ha->me);
	if (r == 0 && snprintf(ha->name, sizeof(ha->name), "%s#%s", ha->addr, ha->me.id) >= (int)sizeof(ha->name))
		r = mc_fail(-ENAMETOOLONG, "the address is too long: %s", ha->addr);
	if (r == 0)
		r = mcd_seat_open(&seat, &ha->seat);
	if (r == 0)
		r = mcm_standby_http_start(ha->where->http_addr, view_of, ha, &ha->httpd);
	if (r < 0)
		return r;
	mcm_series_show();
	mc_info(LOG, "standby name=%s", ha->name);
	return await_lease(ha, &term) ? lead(ha, term, where) : 0;
}
