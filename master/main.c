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
#include "common/net/stream.h"
#include "common/process/stdfds.h"
#include "common/sys/process.h"
#include "common/sys/thread.h"
#include "master/ha/ha.h"
#include "master/journal/check.h"
#include "master/journal/journal.h"
#include "master/master.h"

#define LOG "main"
/* Descriptors for HTTP, the journal and libraries, and for connections over the limit until they are refused. */
#define DESCRIPTORS_BESIDE 1500u
#define HOST_LEN (MC_ADDR_MAX - 16)

static int main_fail(int err)
{
	mc_log_fatal("mooncake_master", LOG, "%s", mc_err_detail(err));
	return 1;
}

static const char *levels_of(const struct mcm_conf *conf)
{
	static const char *const by_severity[] = { "info", "warn", "err", "err" };

	if (*conf->log)
		return conf->log;
	if (conf->v)
		return conf->v == 1 ? "debug" : "trace";
	return by_severity[conf->minloglevel];
}

static int open_log(const struct mcm_conf *conf)
{
	struct mc_log_conf lc = {
		.program = "mooncake_master",
		.dir = conf->logtostderr ? NULL : conf->log_dir,
		.max_file_size = (uint64_t)conf->max_log_size << 20,
		.max_files = (unsigned)conf->max_log_files,
		.levels = levels_of(conf),
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
};

static int listen_of(const struct mcm_conf *conf, struct addresses *w)
{
	const char *host = conf->rpc_address;
	char found[MC_ADDR_MAX];
	unsigned n = 0;
	int r = 0;

	memset(w, 0, sizeof(*w));
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

/* Wait for SIGINT or SIGTERM.  SIGHUP starts a new log file with the current log options. */
static void wait_for_end(int argc, char **argv)
{
	int sig, r;

	for (;;) {
		sig = mc_signals_wait();
		if (sig == SIGINT || sig == SIGTERM)
			break;
		r = sig == SIGHUP ? reopen_log(argc, argv) : 0;
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
	r = mc_process_exec("/proc/self/exe", arg);
	mc_err(LOG, "cannot start again: %s", mc_err_detail(r));
	mc_process_end(1);
}

static int main_serve(struct mcm_conf *conf, const struct mc_options *options, int argc, char **argv)
{
	int64_t asked = conf->max_connections;
	char journal[MCM_JOURNAL_PATH_MAX];
	struct mcm_ha *ha = NULL;
	struct addresses w;
	struct mcm *m;
	int r;

	r = open_log(conf);
	if (r == 0)
		mc_options_report(options);
	if (r == 0)
		r = listen_of(conf, &w);
	if (r == 0)
		r = mcm_conf_check(conf);
	if (r == 0)
		r = check_listen(&w);
	if (r < 0)
		return main_fail(r);
	mc_env_report_inert();
	if (!strcmp(conf->memory_allocator, "cachelib"))
		mc_warn(LOG, "--memory_allocator=cachelib is another name of offset here");
	fit_descriptors(conf);
	mcm_journal_auto(conf, journal);
	if (conf->enable_ha) {
		r = mcm_ha_new(&(const struct mcm_ha_conf){ conf, &w.listen, end_term, argv }, &ha);
		if (r == 0)
			r = mcm_ha_await(ha, &w.listen);
		if (r <= 0) {
			mcm_ha_free(ha);
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
	wait_for_end(argc, argv);
	mcm_stop(m);
	if (ha)
		mcm_ha_stay(ha);
	mcm_ha_free(ha);
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
	if (mc_options_argc(options)) {
		fprintf(stderr, "mooncake_master: unexpected argument %s\n", mc_options_argv(options, 0));
		r = MC_OPTIONS_STATUS;
	} else if (*conf.check_journal) {
		r = check_journal(&conf);
	} else {
		r = main_serve(&conf, options, argc, argv);
	}
	mc_options_free(options);
	return r;
}
