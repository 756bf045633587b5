/* SPDX-License-Identifier: Apache-2.0
 * master.c - start and stop of a master: its state, its threads, its servers.
 *
 *	monitor		the clock, liveness, leases and puts that expire, the summary in the log
 *	evictor		eviction above the watermark, objects of unmounted segments
 *	tasks		time-outs and progress of copy, move, drain and eviction tasks
 *	journal		records that no answer waits for, checkpoints
 *	rpc loops	everything else; one loop serves only heartbeats */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/metrics.h"
#include "common/net/httpd.h"
#include "common/net/net.h"
#include "common/sys/random.h"
#include "master/admin/admin.h"
#include "master/admin/stats.h"
#include "master/ha/feeder.h"
#include "master/identity.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/ops/pin.h"
#include "master/ops/uses.h"
#include "master/pool.h"
#include "master/security/audit.h"
#include "master/security/security.h"
#include "master/service/service.h"
#include "master/session.h"
#include "master/snapshot/snapshot.h"
#include "meta/server_http.h"

#define LOG "master"

#define EVICTOR_PERIOD_MS 200
#define SUMMARY_PERIOD_MS 10000
#define PINS_PERIOD_MAX_MS 1000
#define EXPIRY_PERIOD_MS 5000
#define RPC_THREADS_MIN 1
#define CLIENT_TTL_LEAST_MS 1000	/* upstream's effective value of 0 */

static uint64_t half_of_memory(void)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);

	return pages * page / 2;
}

/* @check: only read the journal in @dir, NULL: use that of @conf. */
static int core_new(const struct mcm_conf *conf, struct mcm_security *security, const char *dir,
		    struct mcm_check *check, struct mcm **ret)
{
	struct mcm *m;
	void *mem;
	int r, learned;

	r = mcm_conf_check(conf);
	if (r < 0)
		return r;
	if (posix_memalign(&mem, 64, sizeof(*m)))
		return -ENOMEM;
	m = memset(mem, 0, sizeof(*m));
	m->conf = *conf;
	m->security = security;
	if (!m->conf.client_ttl)
		m->conf.client_ttl = CLIENT_TTL_LEAST_MS;
	m->id = (struct mcp_id){ mc_random_u64(), mc_random_u64() | 1 };
	m->strategy = conf->enable_cxl ? &mcm_strategy_cxl : mcm_strategy_find(conf->allocation_strategy);
	m->evict = mcm_evict_ops_find(conf->eviction_policy);
	m->start_ms = mc_now_ms();
	m->summary_due_ms = m->start_ms + SUMMARY_PERIOD_MS;
	mcm_clock_start(m);
	/* Larger than all generations of earlier starts, which began fewer than one put per 64 ns, and took longer than
	 * a millisecond. */
	m->generation = (mc_wall_ns() + mc_random_u64() % MC_NS_PER_MS) >> MCM_PUT_SHARD_BITS;
	mc_list_init(&m->sessions);
	mc_mutex_init(&m->sessions_lock);
	mc_mutex_init(&m->server_lock);
	mc_stop_init(&m->monitor_stop);
	mc_stop_init(&m->evictor_stop);
	mcm_index_init(&m->index, (uint64_t)conf->max_objects);
	if (conf->index_seed)
		m->index.seed = (uint64_t)conf->index_seed;
	if (!conf->max_objects)
		mcm_index_limit_memory(&m->index, half_of_memory());
	mcm_credentials_init(&m->credentials);
	mcm_clients_init(&m->clients);
	mcm_puts_init(&m->puts);
	mcm_quarantine_init(m);
	m->puts.quarantine.restored_upto = mcm_generation_next(m, 0);
	mcm_groups_init(&m->groups);
	mcm_rates_init(&m->rates);
	mcm_object_lists_init(&m->empties.lists);
	mcm_slab_init(&m->object_links, sizeof(struct mcm_object_link), MCM_OBJECT_LINKS_SHIFT);
	learned = mcm_learn_init(&m->learn, m->evict == &mcm_evict_learn);
	r = mcm_tenants_init(m);
	if (r == 0)
		r = learned;
	mcm_tasks_init(&m->tasks);
	mcm_events_init(&m->events);
	mcm_nof_init(m);
	if (r == 0)
		r = mcm_offload_init(m);
	if (r == 0)
		r = mcm_hot_init(m);
	if (r == 0)
		r = mcm_segments_init(&m->segments, m->evict, &m->learn, mcm_tick_after(conf->default_kv_lease_ttl),
				      m->strategy == &mcm_strategy_cxl);
	m->segments.sealed = security != NULL;
	if (r == 0)
		r = mcm_names_init(&m->names, &m->index);
	if (r == 0)
		r = mcm_durables_init(&m->durables);
	if (r == 0 && !check)
		r = mcm_snapshots_open(m);
	if (r == 0)
		r = check ? mcm_check_read(m, dir, check) : mcm_journal_open(m);
	if (r == 0)
		r = mcm_pool_load(m);
	if (r == 0)
		r = mcm_tenants_load(m);
	if (r == 0)
		r = mcm_credentials_load(m);
	if (r == 0)
		mcm_uses_load(m);
	if (r == 0)
		mcm_tasks_restore(m);
	if (r < 0) {
		mcm_core_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

int mcm_core_new(const struct mcm_conf *conf, struct mcm **ret)
{
	return mcm_core_new_secured(conf, NULL, ret);
}

int mcm_core_new_secured(const struct mcm_conf *conf, struct mcm_security *security, struct mcm **ret)
{
	return core_new(conf, security, NULL, NULL, ret);
}

int mcm_core_read(const struct mcm_conf *conf, struct mcm_security *security, const char *dir, struct mcm_check *check,
		  struct mcm **ret)
{
	return core_new(conf, security, dir, check, ret);
}

void mcm_core_free(struct mcm *m)
{
	if (!m)
		return;
	mcm_journal_close(m, false);
	mcm_snapshots_close(m);
	mcm_durables_done(&m->durables);
	mcm_names_done(&m->names);
	mcm_quarantine_done(m);
	if (m->segments.at)
		mcm_segments_done(&m->segments);
	mcm_learn_done(&m->learn);
	mcm_puts_done(&m->puts);
	mcm_groups_done(&m->groups);
	mcm_tenants_done(m);
	mcm_object_lists_done(&m->empties.lists);
	mcm_slab_done(&m->object_links);
	mcm_tasks_done(m);
	mcm_events_done(&m->events);
	mcm_clients_done(&m->clients);
	mcm_rates_done(&m->rates);
	mcm_credentials_done(&m->credentials);
	mcm_hot_done(&m->hot);
	mcm_offload_done(&m->offload);
	mcm_index_done(&m->index);
	mc_stop_done(&m->evictor_stop);
	mc_stop_done(&m->monitor_stop);
	mc_mutex_destroy(&m->sessions_lock);
	mc_mutex_destroy(&m->server_lock);
	free(m);
}

/* ---- threads ---- */

static void log_summary(struct mcm *m)
{
	char line[MCM_SUMMARY_MAX] = "";
	FILE *to = fmemopen(line, sizeof(line) - 1, "w");

	if (!to)
		return;
	mcm_stats_print_summary(m, to);
	fclose(to);
	if (!strcmp(line, m->summary))
		return;
	memcpy(m->summary, line, sizeof(line));
	mc_info(LOG, "summary: %s", line);
}

/* A round visits every session, so an expired lease is noticed at most an eighth of its time late. */
static uint64_t pins_period_ms(const struct mcm *m)
{
	uint64_t ms = mcm_read_lease_ms(m) / 8;

	return ms < PINS_PERIOD_MAX_MS ? ms : PINS_PERIOD_MAX_MS;
}

static bool principal_invalid(const struct mc_principal *p, void *arg)
{
	return !mcm_security_valid(((const struct mcm *)arg)->security, p);
}

/* Close the connections of credentials that are not valid any more. */
static void security_tick(struct mcm *m, uint64_t now_ms)
{
	bool changed = mcm_security_changed(m->security);
	struct mcp_server *server;

	if (!changed && now_ms < m->expiry_due_ms)
		return;
	mcm_credentials_tick(m);
	mc_mutex_lock(&m->server_lock);
	server = __atomic_load_n(&m->server, __ATOMIC_ACQUIRE);
	if (server)
		mcp_server_cut(server, principal_invalid, m);
	mc_mutex_unlock(&m->server_lock);
	m->expiry_due_ms = now_ms + EXPIRY_PERIOD_MS;
}

bool mcm_monitor_tick(struct mcm *m, uint64_t now_ms)
{
	mcm_clock_tick(m);
	mcm_liveness_tick(m);
	if (m->pins_left || now_ms >= m->pins_due_ms) {
		m->pins_left = mcm_pins_tick(m);
		m->pins_due_ms = now_ms + pins_period_ms(m);
	}
	mcm_puts_tick(m);
	if (mcm_links_any_due(&m->index.links))
		mcm_links_tick(m);
	mcm_events_tick(m);
	mcm_tenants_tick(m);
	mcm_rates_tick(&m->rates);
	if (m->security)
		security_tick(m, now_ms);
	if (m->conf.enable_metric_reporting && now_ms >= m->summary_due_ms) {
		log_summary(m);
		m->summary_due_ms = now_ms + SUMMARY_PERIOD_MS;
	}
	return m->pins_left;
}

static void *monitor_run(void *arg)
{
	struct mcm *m = arg;
	bool more = false;

	while (!mc_stop_wait(&m->monitor_stop, more ? 0 : mcm_tick_ms(m)))
		more = mcm_monitor_tick(m, mc_now_ms());
	return NULL;
}

static void *evictor_run(void *arg)
{
	struct mcm *m = arg;
	bool more = false;

	while (!mc_stop_wait(&m->evictor_stop, more ? 0 : EVICTOR_PERIOD_MS))
		more = mcm_evict_background(m);
	return NULL;
}

static int threads_start(struct mcm *m)
{
	int r;

	mcm_clock_start(m);
	r = mc_thread_start(&m->monitor, "mc-monitor", monitor_run, m);
	if (r < 0)
		return r;
	m->monitor_runs = true;
	r = mc_thread_start(&m->evictor, "mc-evictor", evictor_run, m);
	m->evictor_runs = r == 0;
	if (r == 0)
		r = mcm_tasks_start(m);
	if (r == 0)
		r = mcm_tenants_start(m);
	if (r == 0)
		r = mcm_journal_start(m);
	return r < 0 ? r : mcm_snapshots_start(m);
}

static void threads_stop(struct mcm *m)
{
	mcm_tenants_stop(m);
	mcm_tasks_stop(m);
	mc_stop_set(&m->monitor_stop);
	mc_stop_set(&m->evictor_stop);
	if (m->monitor_runs)
		mc_thread_join(m->monitor);
	if (m->evictor_runs)
		mc_thread_join(m->evictor);
	mcm_journal_stop(m);
}

/* ---- start and stop ---- */

static unsigned rpc_threads(const struct mcm_conf *conf)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (conf->rpc_thread_num)
		return (unsigned)conf->rpc_thread_num;
	if (cpus < RPC_THREADS_MIN)
		cpus = RPC_THREADS_MIN;
	return (unsigned)(cpus < conf->max_threads ? cpus : conf->max_threads);
}

static uint32_t peer_connections(const struct mcm_conf *conf)
{
	int64_t most = conf->max_peer_connections ? conf->max_peer_connections : conf->max_connections / 4;

	return most > 0 ? (uint32_t)most : 1;
}

static void journal_wait(void *arg)
{
	mcm_journal_wait(arg);
}

static uint64_t journal_pending(void *arg)
{
	return mcm_journal_pending_lsn(arg);
}

static bool answers_may_leave(void *arg)
{
	return mcm_feeders_lead(((const struct mcm *)arg)->feeders);
}

static void journal_synced(struct mcm *m, uint64_t lsn)
{
	struct mcp_server *s = __atomic_load_n(&m->server, __ATOMIC_ACQUIRE);

	if (s)
		mcp_server_durable(s, lsn);
}

static int meta_start(struct mcm *m)
{
	char addr[MC_ADDR_MAX];
	const struct mc_httpd_security security = mcm_security_http(m->security, &m->conf);
	const struct mcd_server_conf conf = { .addr = addr, .security = &security };
	int r;

	if (!m->conf.enable_http_metadata_server)
		return 0;
	r = mc_addr_join(m->conf.http_metadata_server_host, (int)m->conf.http_metadata_server_port, addr);
	return r < 0 ? r : mcd_server_start(&conf, &m->meta_port, &m->meta);
}

static int http_start(struct mcm *m, const char *addr)
{
	const struct mc_httpd_security security = mcm_security_http(m->security, &m->conf);

	return mc_httpd_start(addr, MCM_HTTP_THREADS, MCM_HTTP_BODY_MAX, mcm_http_routes, m, &security, &m->http_port,
			      &m->httpd);
}

static void audit_request(struct mcp_session *s, uint16_t type, const void *body, size_t len, int result, void *arg)
{
	mcm_audit_request(((const struct mcm *)arg)->audit, s, type, body, len, result);
}

static int server_start(struct mcm *m, const struct mcm_listen *where)
{
	static const char *const none[] = { NULL };
	struct mcp_server *server;
	int r;
	struct mcp_server_conf conf = {
		.net = mcm_security_net(where->security),
		.addrs = where->addrs ? where->addrs : none,
		.local_name = where->local_name,
		.loops = rpc_threads(&m->conf),
		.spin_us = (unsigned)m->conf.rpc_spin_us,
		.max_connections = (uint32_t)m->conf.max_connections,
		.max_peer_connections = peer_connections(&m->conf),
		.idle_timeout_ms = (uint32_t)m->conf.rpc_conn_timeout_seconds,
		.tcp_nodelay = m->conf.rpc_enable_tcp_no_delay,
		.software = "mooncake_master " PACKAGE_VERSION,
		.pool = m->pool,
		.server_id = m->id,
		.handlers = mcm_handlers,
		.any_channel = mcm_any_channel,
		.identify = mcm_identify,
		.audit = m->audit ? audit_request : NULL,
		.audited = mcm_audited,
		.opened = mcm_session_opened,
		.closed = mcm_session_closed,
		.keeps = mcm_session_keeps,
		.make_durable = journal_wait,
		.pending_mark = journal_pending,
		.may_send = m->feeders ? answers_may_leave : NULL,
		.arg = m,
	};

	r = mcm_journal_sync_start(m, journal_synced);
	if (r == 0)
		r = mcp_server_start(&conf, &server);
	if (r == 0)
		__atomic_store_n(&m->server, server, __ATOMIC_RELEASE);
	return r;
}

/* The last leader may still answer, and its clients may not notice for a while that this master leads. */
static void follow_leader(struct mcm *m)
{
	mcm_grace_extend(m, m->lead->silence_ms);
	mc_sleep_until(m->lead->serve_from);
}

int mcm_start(const struct mcm_conf *conf, const struct mcm_listen *where, struct mcm **ret)
{
	struct mcm *m;
	int r;

	r = mcm_core_new_secured(conf, where->security, &m);
	if (r < 0)
		return r;
	m->lead = where->lead;
	m->audit = where->audit;
	mcm_security_attach(m->security, m);
	if (m->lead) {
		mcm_feeders_attach(m->lead->feeders, m);
		m->journal->lead = m->lead;
		follow_leader(m);
	}
	mcm_series_show();
	mc_metrics_collector(mcm_stats_collect, m);
	/* Start HTTP first, so that /health shows that the master is starting and when it is ready. */
	r = mcm_identity_init(m);
	if (r == 0 && where->http_addr)
		r = http_start(m, where->http_addr);
	if (r == 0)
		r = meta_start(m);
	if (r == 0)
		r = mcm_kv_events_start(m);
	if (r == 0)
		r = threads_start(m);
	if (r == 0)
		r = server_start(m, where);
	if (r < 0) {
		mcm_stop(m);
		return r;
	}
	__atomic_store_n(&m->ready, true, __ATOMIC_RELEASE);
	*ret = m;
	return 0;
}

void mcm_stop(struct mcm *m)
{
	struct mcp_server *server;

	if (!m)
		return;
	mc_httpd_stop(m->httpd);
	if (m->feeders)
		mcm_feeders_stop(m->feeders);
	mcm_journal_sync_stop(m);
	/* The monitor still runs, and must not use the server. */
	mc_mutex_lock(&m->server_lock);
	server = __atomic_exchange_n(&m->server, NULL, __ATOMIC_ACQ_REL);
	mc_mutex_unlock(&m->server_lock);
	mcp_server_stop(server);
	mcm_security_attach(m->security, NULL);
	if (m->lead)
		m->lead->stopped(m->lead->arg);
	threads_stop(m);
	mcm_kv_events_stop(m);
	mcd_server_stop(m->meta);
	/* Where another master leads from now on, it would not be the last one. */
	mcm_snapshots_stop(m, m->ready && !m->lead);
	mcm_identity_done(m);
	mcm_journal_close(m, true);
	mc_metrics_collector_remove(mcm_stats_collect, m);
	mcm_core_free(m);
}

const char *mcm_addr(const struct mcm *m, unsigned i)
{
	return mcp_server_addr(m->server, i);
}

int mcm_meta_port(const struct mcm *m)
{
	return m->meta ? m->meta_port : 0;
}

int mcm_http_port(const struct mcm *m)
{
	return m->http_port;
}
