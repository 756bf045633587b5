/* SPDX-License-Identifier: Apache-2.0
 * main.c - the program mooncake_master. */
#include <config.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/guard.h"
#include "common/net/stream.h"
#include "common/process/stdfds.h"
#include "common/sys/process.h"
#include "common/sys/thread.h"
#include "master/admin/kv_events.h"
#include "master/admin/kv_events_curve.h"
#include "master/ha/ha.h"
#include "master/journal/check.h"
#include "master/journal/journal.h"
#include "master/master.h"
#include "master/security/audit.h"
#include "master/security/security.h"

#define LOG "main"
#define CURVE_OPTIONS "--kv_events_curve_secret_key_file and --kv_events_curve_clients"
/* Descriptors for HTTP, the journal and libraries, and for connections over the limit until they are refused. */
#define DESCRIPTORS_BESIDE 1500u
#define HOST_LEN (MC_ADDR_MAX - 16)

static int main_fail(int err)
{
	mc_log_fatal("mooncake_master", LOG, "%s", mc_err_detail(err));
	return 1;
}

static int open_log(const struct mcm_conf *conf)
{
	struct mc_log_conf lc = {
		.program = "mooncake_master",
		.dir = conf->logtostderr ? NULL : conf->log_dir,
		.max_file_size = (uint64_t)conf->max_log_size << 20,
		.max_files = (unsigned)conf->max_log_files,
		.to_stderr = mc_log_to_stderr(conf->alsologtostderr, conf->stderrthreshold),
		.levels = mc_log_levels(conf->minloglevel, conf->v, conf->log),
	};

	return mc_log_open(&lc);
}

/* The first IPv4 address of an interface. */
static int interface_addr(const char *name, char *ret, size_t len)
{
	struct ifaddrs *all, *i;
	int r = -ENODEV;

	if (getifaddrs(&all))
		return mc_fail(-errno, "cannot list the network interfaces");
	for (i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, name) != 0 || !i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, ret,
			  (socklen_t)len);
		r = 0;
		break;
	}
	freeifaddrs(all);
	return r < 0 ? mc_fail(r, "rpc_interface=%s: no interface of this name has an IPv4 address", name) :
		0;
}

struct addresses {
	char rpc[MC_ADDR_MAX], unix_addr[MC_ADDR_MAX], http[MC_ADDR_MAX];
	const char *addrs[3];
	struct mcm_listen listen;
	bool is_closed;		/* a default has become the loopback */
	struct mc_guard closed_by;	/* it says how to open it */
};

/* ---- addresses that other hosts reach ---- */

static bool security_is_on(const struct mcm_conf *conf)
{
	return !strcmp(conf->security, "on");
}

/* The guard of an option for an address of the RPC port; @shown: its value. */
static struct mc_guard guard_of_rpc(const struct mcm_conf *conf, const char *shown)
{
	return (struct mc_guard){
		.harm = MC_GUARD_POOL_HARM, .secure = MC_GUARD_POOL_SECURE, .shown = shown,
		.secured = security_is_on(conf), .allowed = conf->allow_insecure,
	};
}

/* With security, HTTP servers receive tokens, which need TLS. */
static struct mc_guard guard_of_http(const struct mcm_conf *conf)
{
	if (!security_is_on(conf))
		return guard_of_rpc(conf, NULL);
	return (struct mc_guard){
		.harm = "read and use the tokens of its clients", .secure = "use --http_tls_cert and --http_tls_key",
		.secured = *conf->http_tls_cert, .strict = true,
	};
}

/* KV events are published over TCP, or at a name of this host.  They have the keys of all tenants, so with security
 * every subscriber over TCP needs a key of its own. */
static int guard_events(const struct mcm_conf *conf)
{
	const char *at = conf->kv_events_bind_endpoint;
	const struct mc_guard g = {
		.harm = "receive the keys of all objects", .secure = "use " CURVE_OPTIONS, .shown = at,
		.secured = mcm_kv_events_is_secured(conf), .allowed = conf->allow_insecure,
	};

	if (!conf->enable_kv_events || !strncmp(at, "ipc://", 6) || !strncmp(at, "inproc://", 9))
		return 0;
	if (security_is_on(conf) && !g.secured)
		return mc_fail(-EACCES, "kv_events_bind_endpoint=%s: every program that reaches it can %s; with "
			       "--security=on use " CURVE_OPTIONS, at, g.harm);
	return mc_guard_listen(&g, "kv_events_bind_endpoint", strncmp(at, "tcp://", 6) ? at : at + 6);
}

static int guard_interface(const struct mcm_conf *conf)
{
	const struct mc_guard g = guard_of_rpc(conf, conf->rpc_interface);
	char found[MC_ADDR_MAX];
	int r;

	if (!*conf->rpc_interface)
		return 0;
	r = interface_addr(conf->rpc_interface, found, sizeof(found));
	return r < 0 ? r : mc_guard_listen(&g, "rpc_interface", found);
}

/* Refuse addresses beyond the loopback that the user has given; then defaults become the loopback (w->is_closed). */
static int guard_addresses(struct mcm_conf *conf, const struct mc_options *options, struct addresses *w)
{
	const struct mc_guard rpc = guard_of_rpc(conf, NULL), http = guard_of_http(conf);
	struct {
		const char *option;
		char **host;
		const struct mc_guard *guard;
		bool used, is_default;
	} rows[] = {
		{ "rpc_address", &conf->rpc_address, &rpc, !*conf->rpc_interface, false },
		{ "metrics_host", &conf->metrics_host, &http, true, false },
		{ "http_metadata_server_host", &conf->http_metadata_server_host, &http,
		  conf->enable_http_metadata_server, false },
	};
	const unsigned n = sizeof(rows) / sizeof(rows[0]);
	static char loopback[] = MC_GUARD_LOOPBACK;
	int r = guard_interface(conf);
	bool warns;

	/* Several masters need an address that the user chooses; mcm_ha_new() says so, and no warning comes before. */
	if (conf->enable_ha && mc_options_origin(options, "rpc_address") == MC_ORIGIN_DEFAULT)
		rows[0].used = false;
	warns = rows[0].used || *conf->rpc_interface;
	for (unsigned i = 0; r == 0 && i < n; i++) {
		rows[i].is_default = mc_options_origin(options, rows[i].option) == MC_ORIGIN_DEFAULT;
		if (rows[i].used && !rows[i].is_default)
			r = mc_guard_listen(rows[i].guard, rows[i].option, *rows[i].host);
	}
	if (r == 0)
		r = guard_events(conf);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		if (!rows[i].used || !rows[i].is_default)
			continue;
		if (mc_guard_closes(rows[i].guard, *rows[i].host)) {
			*rows[i].host = loopback;
			w->is_closed = warns;
			w->closed_by = *rows[i].guard;
		} else {
			r = mc_guard_listen(rows[i].guard, rows[i].option, *rows[i].host);
		}
	}
	return r;
}

static int listen_of(const struct mcm_conf *conf, struct addresses *w)
{
	const char *host = conf->rpc_address;
	char found[MC_ADDR_MAX];
	unsigned n = 0;
	int r = 0;

	if (*conf->rpc_interface) {
		r = interface_addr(conf->rpc_interface, found, sizeof(found));
		host = found;
	}
	if (r == 0)
		r = mc_addr_join(host, (int)(conf->rpc_port ? conf->rpc_port : conf->port), w->rpc);
	if (r == 0)
		r = mc_addr_join(conf->metrics_host, (int)conf->metrics_port, w->http);
	if (r < 0)
		return r;
	w->addrs[n++] = w->rpc;
	if (*conf->rpc_socket) {
		if (strlen(conf->rpc_socket) > HOST_LEN)
			return mc_fail(-EINVAL, "path too long: %s", conf->rpc_socket);
		snprintf(w->unix_addr, MC_ADDR_MAX, "unix:%.*s", HOST_LEN, conf->rpc_socket);
		w->addrs[n++] = w->unix_addr;
	}
	w->listen.addrs = w->addrs;
	w->listen.http_addr = w->http;
	return 0;
}

/* A master that cannot listen must not touch the journal, perhaps that of a running master: try it before. */
static int check_listen(const struct addresses *w)
{
	const char *const addrs[] = { w->rpc, w->http };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct mc_listener l;
		int r = mc_net_listen(mc_net_default(), addrs[i], 1, &l);

		if (r < 0)
			return r;
		mc_listener_close(&l);
	}
	return 0;
}

/* Read the config file and the command line again, and apply the log options. */
static int reopen_log(int argc, char **argv)
{
	struct mc_options *options = NULL;
	struct mcm_conf conf;
	int r;

	r = mc_options_parse(&mcm_program, argc, argv, &conf, &options);
	if (r == 0)
		r = open_log(&conf);
	mc_options_free(options);
	return r;
}

/* Wait for SIGINT or SIGTERM.  SIGHUP starts a new log file with the current log options, and
 * opens the audit log again. */
static void wait_for_end(int argc, char **argv, struct mcm_audit *audit)
{
	int sig, r;

	for (;;) {
		sig = mc_signals_wait();
		if (sig == SIGINT || sig == SIGTERM)
			break;
		r = sig == SIGHUP ? reopen_log(argc, argv) : 0;
		mcm_audit_reopen(sig == SIGHUP ? audit : NULL);
		if (r < 0)
			mc_warn(LOG, "cannot reopen the log, keeping the old one: %s", mc_err_detail(r));
		else
			mc_debug(LOG, "log options reloaded");
	}
	mc_info(LOG, "stopping signal=%d", sig);
}

/* Raise the descriptor limit for max_connections.  If that is impossible, lower max_connections, so
 * that further clients are refused at once instead of waiting for an accept that cannot succeed. */
static void fit_descriptors(struct mcm_conf *conf)
{
	uint64_t want = (uint64_t)conf->max_connections + DESCRIPTORS_BESIDE;
	struct rlimit lim, more;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur >= want)
		return;
	more.rlim_cur = more.rlim_max = want;
	if (lim.rlim_max >= want || setrlimit(RLIMIT_NOFILE, &more) < 0) {
		more.rlim_cur = lim.rlim_max < want ? lim.rlim_max : want;
		more.rlim_max = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &more) < 0)
			more = lim;
	}
	if (more.rlim_cur >= want)
		return;
	conf->max_connections = more.rlim_cur > 2 * DESCRIPTORS_BESIDE ?
		(int64_t)(more.rlim_cur - DESCRIPTORS_BESIDE) : (int64_t)(more.rlim_cur / 2);
}

/* The last lines have the words of upstream's releases, for which scripts search. */
static void log_up(const struct mcm_conf *conf, const struct mcm *m)
{
	const char *port = strrchr(mcm_addr(m, 0), ':');

	mc_info(LOG, "mooncake_master " PACKAGE_VERSION " is up rpc=%s http_port=%d", mcm_addr(m, 0),
		mcm_http_port(m));
	mc_info(LOG, "Mooncake master version: " PACKAGE_VERSION);
	mc_info(LOG, "Master service started on port %s, metrics_port=%d, metrics_host=%s", port ? port + 1 : "none",
		mcm_http_port(m), conf->metrics_host);
	if (conf->enable_http_metadata_server)
		mc_info(LOG, "HTTP metadata server started on %s:%d", conf->http_metadata_server_host,
			mcm_meta_port(m));
	mc_info(LOG, "HTTP metrics server started on port %d", mcm_http_port(m));
	mc_info(LOG, "Master admin server started on port %d", mcm_http_port(m));
}

/* The program ends as after SIGTERM, or executes itself again: then nothing of the term is left in the process. */
static void end_term(void *arg, enum mcm_ha_end end, const char *why)
{
	int r;

	(void)why;
	if (end == MCM_HA_STOP) {
		kill(getpid(), SIGTERM);
		return;
	}
	r = mc_process_exec("/proc/self/exe", arg, mc_env_revealed());
	mc_err(LOG, "cannot start again: %s", mc_err_detail(r));
	mc_process_end(1);
}

static int main_serve(struct mcm_conf *conf, const struct mc_options *options, int argc, char **argv)
{
	int64_t asked = conf->max_connections;
	char journal[MCM_JOURNAL_PATH_MAX];
	struct mcm_ha *ha = NULL;
	struct addresses w = { .is_closed = false };
	struct mcm *m;
	int r;

	r = open_log(conf);
	if (r == 0)
		mc_options_report(options);
	if (r == 0)
		r = mcm_conf_check(conf);
	if (r == 0)
		r = guard_addresses(conf, options, &w);
	if (r == 0)
		r = listen_of(conf, &w);
	if (r == 0)
		r = check_listen(&w);
	if (r < 0)
		return main_fail(r);
	if (w.is_closed)
		mc_guard_warn_closed(&w.closed_by);
	mc_env_report_inert();
	mcm_conf_report(conf);
	fit_descriptors(conf);
	mcm_journal_auto(conf, journal);
	r = mcm_audit_open(conf, &w.listen.audit);
	if (r == 0)
		r = mcm_security_open(conf, w.listen.audit, &w.listen.security);
	if (r < 0) {
		mcm_audit_close(w.listen.audit);
		return main_fail(r);
	}
	if (conf->enable_ha) {
		r = mcm_ha_new(&(const struct mcm_ha_conf){ conf, &w.listen, end_term, argv }, &ha);
		if (r == 0)
			r = mcm_ha_await(ha, &w.listen);
		if (r <= 0) {
			mcm_ha_free(ha);
			mcm_security_close(w.listen.security);
			mcm_audit_close(w.listen.audit);
			return r < 0 ? main_fail(r) : 0;
		}
	}
	r = mcm_start(conf, &w.listen, &m);
	if (r < 0)
		return main_fail(r);
	if (conf->max_connections < asked)
		mc_info(LOG, "max_connections lowered to the limit of open files requested=%lld connections=%lld",
			(long long)asked, (long long)conf->max_connections);
	log_up(conf, m);
	wait_for_end(argc, argv, w.listen.audit);
	mcm_stop(m);
	if (ha)
		mcm_ha_stay(ha);
	mcm_ha_free(ha);
	mcm_security_close(w.listen.security);
	mcm_audit_close(w.listen.audit);
	mc_log_close();
	return 0;
}

/* Exit statuses of --check_journal. */
enum { CHECK_GOOD, CHECK_DAMAGED, CHECK_UNREADABLE };

static int check_journal(const struct mcm_conf *conf)
{
	struct mcm_check c;
	int r = mcm_journal_check(conf, conf->check_journal, &c), status = c.faults ? CHECK_DAMAGED : CHECK_GOOD;

	if (r < 0)
		main_fail(r);
	else
		mcm_check_print(&c, conf->check_journal, stdout);
	mcm_check_done(&c);
	if (r < 0 || fflush(stdout) != 0)
		return CHECK_UNREADABLE;
	return status;
}

static int curve_keygen(const struct mcm_conf *conf)
{
	char public[MCM_KV_CURVE_TEXT];
	int r = mcm_kv_curve_keygen(conf->kv_events_curve_keygen, public);

	if (r < 0)
		return main_fail(r);
	printf("%s\n", public);
	return fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
	struct mc_options *options = NULL;
	struct mcm_conf conf;
	int r;

	mc_stdfds_open();
	mc_signals_block();
	r = mc_options_parse(&mcm_program, argc, argv, &conf, &options);
	if (r < 0) {
		main_fail(r);
		return MC_OPTIONS_STATUS;
	}
	if (r > 0)
		return 0;
	mc_env_hide();
	if (mc_options_argc(options)) {
		fprintf(stderr, "mooncake_master: unexpected argument %s\n", mc_options_argv(options, 0));
		r = MC_OPTIONS_STATUS;
	} else if (conf.init_security || conf.rotate_security) {
		r = conf.init_security ? mcm_security_init(&conf) : mcm_security_rotate(&conf);
		r = r < 0 ? main_fail(r) : 0;
	} else if (*conf.check_journal) {
		r = check_journal(&conf);
	} else if (*conf.kv_events_curve_keygen) {
		r = curve_keygen(&conf);
	} else {
		r = main_serve(&conf, options, argc, argv);
	}
	mc_options_free(options);
	return r;
}
