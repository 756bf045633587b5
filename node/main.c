/* SPDX-License-Identifier: Apache-2.0
 * main.c - mooncake_client: the node's daemon without a mount. */
#include <config.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/env.h"
#include "common/err.h"
#include "common/net/httpd.h"
#include "common/log.h"
#include "common/net/net.h"
#include "common/options/options.h"
#include "common/process/stdfds.h"
#include "common/security/secret.h"
#include "common/sys/thread.h"
#include "node/host.h"
#include "node/node.h"
#include "node/upstream/upstream.h"

/* limit of the end of a daemon that has never reached its master */
#define LOOKING_END_MS 500

#define OPT MC_OPT_FIELD
struct conf {
#include "node/options.def"
};
#undef OPT

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct conf, __VA_ARGS__)
#include "node/options.def"
#undef OPT
	{ 0 },
};

/* The guides' name of device_names. */
static const struct mc_opt_alias aliases[] = {
	{ "device_name", "device_names" },
	{ NULL, NULL },
};

static const struct mc_program program = {
	.name = "mooncake_client",
	.synopsis = "[OPTION]...",
	.summary = "contribute memory to the pool, and serve the programs of this node",
	.rows = rows,
	.aliases = aliases,
};

/* The parts of the daemon in the order in which they start. */
struct running {
	struct conf conf;
	bool host_given;	/* the user has set the option */
	mcs_t *store;
	struct mcn *node;
	struct mcn_up *upstream;
	struct mc_httpd *httpd;
};

static int main_fail(int err)
{
	mc_log_fatal("mooncake_client", "node", "%s%s", mc_err_detail(err),
		     err == -MC_ERPC ? "; is mooncake_master running there?" : "");
	return 1;
}

static int open_log(const struct conf *c)
{
	struct mc_log_conf log = {
		.program = "mooncake_client",
		.dir = c->logtostderr ? NULL : c->log_dir,
		.max_file_size = (uint64_t)c->max_log_size << 20,
		.max_files = (unsigned)c->max_log_files,
		.to_stderr = mc_log_to_stderr(c->alsologtostderr, c->stderrthreshold),
		.levels = mc_log_levels(c->minloglevel, c->v, c->log),
	};

	return mc_log_open(&log);
}

/* ---- HTTP ---- */

static void main_health(struct mc_http_request *rq, void *arg)
{
	static const char *const names[] = { "healthy", "not_initialized", "master_unreachable" };
	struct running *run = arg;
	int code = mcs_health(run->store);

	code = code < 0 || code > 2 ? 2 : code;
	rq->status = code ? 503 : 200;
	rq->content_type = "application/json; charset=utf-8";
	fprintf(rq->out, "{\"status\":\"%s\",\"code\":%d}\n", names[code], code);
}

static const struct mc_http_route routes[] = {
	{ "GET", "/health", main_health, NULL, MC_MAY_ANYONE },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

static int start_http(struct running *run)
{
	const struct conf *c = &run->conf;
	const struct mcn_http http = {
		.host = c->host, .port = (int)c->http_port, .given = run->host_given, .allowed = c->allow_insecure,
		.cert = c->http_tls_cert, .key = c->http_tls_key,
	};
	const struct mc_httpd_security security = mcn_http_security(&http, run->store);
	char addr[MC_ADDR_MAX];
	int port, r;

	if (!c->enable_http_server)
		return 0;
	r = mcn_http_addr(&http, addr);
	if (r == 0)
		r = mc_httpd_start(addr, 2, 4096, routes, run, &security, &port, &run->httpd);
	if (r == 0)
		mc_info("node", "Client HTTP server started on port %d", port);
	return r;
}

/* ---- start and end ---- */

static int open_store(struct running *run)
{
	const struct conf *c = &run->conf;
	char host[MC_ADDR_MAX];
	struct mcs_conf conf;
	int r;

	mcs_conf_init(&conf);
	mcn_host_of(c->host, c->master_server_address, host, sizeof(host));
	conf.master = c->master_server_address;
	conf.credential = mc_credential_path();
	conf.encrypt = c->encrypt;
	conf.hostname = host;
	conf.protocol = c->protocol;
	conf.rdma_devices = c->device_names;
	conf.segment_size = c->global_segment_size;
	conf.segment_kind = c->segment_kind;
	conf.far_size = c->far_segment_size;
	conf.far_path = c->far_segment_path;
	conf.far_node = (int)c->far_segment_numa_node;
	conf.root_fs_dir = c->root_fs_dir;
	conf.root_fs_cluster = c->cluster_id;
	conf.root_fs_size = c->global_file_segment_size;
	conf.s3_path = *c->s3_segment ? c->s3_segment : NULL;
	conf.s3_size = c->s3_segment_size;
	conf.s3_import = c->s3_segment_import;
	conf.timeout_ms = (int64_t)c->timeout;
	conf.setup_timeout_ms = (int64_t)c->setup_timeout;
	conf.spin_us = (unsigned)c->spin_us;
	conf.lazy = c->lazy;
	conf.tenant = c->tenant_id;
	conf.daemon = "off";
	conf.ssd_path = c->ssd_offload_path;
	conf.ssd_size = c->ssd_offload_size;
	conf.ssd_format = c->ssd_format ? 1 : -1;
	conf.ssd_nof = c->ssd_offload_nof;
	r = c->enable_offload ? mcs_conf_offload(&conf) : 0;
	if (r < 0)
		return r;
	if (!c->enable_offload)
		conf.ssd_path = NULL;
	/* The master may be missing for a long time. */
	mc_signals_end_at_once("mooncake_client");
	r = mcs_open(&conf, &run->store);
	mc_signals_block();
	return r;
}

static int start_node(struct running *run)
{
	const struct conf *c = &run->conf;
	struct mcn_conf conf = {
		.store = run->store,
		.master = c->master_server_address,
		.tenant = mcs_tenant(run->store),
		.port = (int)c->port,
		.path = c->socket,
		.uids = c->allow_uids,
		.hot_size = c->hot_cache_size > c->local_buffer_size ? c->hot_cache_size :
			c->local_buffer_size,
		.hot_ms = (unsigned)c->hot_ttl,
		.spin_us = (unsigned)c->ring_spin_us,
	};

	return mcn_start(&conf, &run->node);
}

static int start_upstream(struct running *run)
{
	struct mcn_up_conf conf = { .node = run->node, .port = (int)run->conf.port };
	char host[MC_ADDR_MAX];
	int port, r;

	if (!run->conf.port)
		return 0;
	r = mc_addr_split(run->conf.host, host, sizeof(host), 0, &port);
	if (r < 0)
		return r;
	conf.host = host;
	return mcn_up_start(&conf, &run->upstream);
}

static void main_stop(struct running *run)
{
	mc_httpd_stop(run->httpd);
	mcn_up_stop(run->upstream);
	mcn_stop(run->node);
	mcs_close(run->store);
}

static void wait_for_end(const struct conf *conf)
{
	for (;;) {
		int sig = mc_signals_wait();

		if (sig == SIGINT || sig == SIGTERM) {
			mc_info("node", "ending on signal %d", sig);
			return;
		}
		/* SIGHUP: reopen the log files after rotation. */
		if (sig == SIGHUP)
			(void)open_log(conf);
	}
}

static void raise_limits(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &lim);
	}
}

static int main_serve(struct running *run, const struct mc_options *options)
{
	int r;

	r = open_log(&run->conf);
	if (r == 0)
		mc_options_report(options);
	run->host_given = mc_options_origin(options, "host") != MC_ORIGIN_DEFAULT;
	if (r == 0)
		r = mcn_host_check(run->conf.host, run->conf.master_server_address, run->host_given,
				   *run->conf.credential, run->conf.allow_insecure);
	if (r == 0)
		r = open_store(run);
	if (r == 0)
		r = start_node(run);
	if (r == 0)
		r = start_upstream(run);
	if (r == 0)
		r = start_http(run);
	if (r == 0) {
		mc_info("node", "mooncake_client " PACKAGE_VERSION " is up node=%s socket=%s",
			mcs_hostname(run->store), mcn_address(run->node));
		/* The words of upstream's releases, for which scripts search. */
		mc_info("node", "Mooncake real client version: " PACKAGE_VERSION);
		mc_info("node", "Starting real client service on %s",
			run->upstream ? mcn_up_address(run->upstream) : mcn_address(run->node));
		wait_for_end(&run->conf);
		/* Without a master, running calls and attempts to connect have nothing to lose. */
		if (mcs_health(run->store) == 1)
			mc_signals_end_within(LOOKING_END_MS);
	}
	r = r < 0 ? main_fail(r) : 0;
	main_stop(run);
	mc_log_close();
	return r;
}

int main(int argc, char **argv)
{
	struct mc_options *options = NULL;
	static struct running run;
	int r;

	mc_stdfds_open();
	mc_signals_block();
	raise_limits();
	r = mc_options_parse(&program, argc, argv, &run.conf, &options);
	if (r < 0) {
		main_fail(r);
		return MC_OPTIONS_STATUS;
	}
	if (r > 0)
		return 0;
	if (mc_options_argc(options)) {
		fprintf(stderr, "mooncake_client: unexpected argument %s\n", mc_options_argv(options, 0));
		r = MC_OPTIONS_STATUS;
	} else {
		mc_credential_use(run.conf.credential);
		(void)setenv("MC_RDMA_WITH_SECURITY", run.conf.rdma_with_security, 1);
		mc_env_scrub();
		r = main_serve(&run, options);
	}
	mc_options_free(options);
	return r;
}
