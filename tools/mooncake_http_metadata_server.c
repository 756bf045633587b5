/* SPDX-License-Identifier: Apache-2.0
 * mooncake_http_metadata_server.c - the metadata server of transfer engines as a program. */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/guard.h"
#include "common/net/httpd.h"
#include "common/net/net.h"
#include "common/options/options.h"
#include "common/process/stdfds.h"
#include "common/sys/thread.h"
#include "meta/server_http.h"

#define NAME "mooncake_http_metadata_server"
#define LOG "main"

struct conf {
#define OPT MC_OPT_FIELD
#include "tools/mooncake_http_metadata_server.def"
#undef OPT
};

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct conf, __VA_ARGS__)
#include "tools/mooncake_http_metadata_server.def"
#undef OPT
	{ .name = NULL },
};

static const struct mc_program program = {
	.name = NAME,
	.synopsis = "[OPTION]...",
	.summary = "store the metadata of transfer engines and serve it over HTTP",
	.rows = rows,
};

static int server_fail(int err)
{
	mc_log_fatal(NAME, LOG, "%s", mc_err_detail(err));
	return 1;
}

static int open_log(const struct conf *conf)
{
	int level = mc_log_parse_level(conf->log_level);
	struct mc_log_conf log = { .program = NAME, .levels = conf->log_level };

	/* Python's name for the highest level. */
	if (level < 0 && !strcasecmp(conf->log_level, "critical"))
		log.levels = "err";
	else if (level < 0)
		return mc_fail(-EINVAL, "log_level=%s: must be DEBUG, INFO, WARNING or ERROR",
			       conf->log_level);
	return mc_log_open(&log);
}

/* Other hosts may reach a server without a token only if the operator wants that.  The guides start it without options:
 * then it serves this host only. */
static int check_access(struct conf *conf, const char *token, bool host_given)
{
	const struct mc_guard g = {
		.harm = "read and change the metadata",
		.secure = "set MC_METADATA_HTTP_TOKEN or MC_METADATA_HTTP_TOKEN_FILE here and for all engines",
		.secured = token != NULL,
		.allowed = conf->allow_insecure || mc_env_on("MC_METADATA_HTTP_ALLOW_INSECURE"),
	};
	static char loopback[] = MC_GUARD_LOOPBACK;

	if (host_given)
		return mc_guard_listen(&g, "host", conf->host);
	if (mc_guard_default(&g, "host", conf->host) != conf->host)
		conf->host = loopback;
	return 0;
}

static int server_start(struct conf *conf, bool host_given, int *ret_port, struct mcd_server **ret)
{
	const struct mc_httpd_security security = { .cert = conf->http_tls_cert, .key = conf->http_tls_key };
	auto_free char *token = NULL;
	char addr[MC_ADDR_MAX];
	struct mcd_server_conf mc = {
		.addr = addr,
		.threads = (unsigned)conf->threads,
		.persist = *conf->persist ? conf->persist : NULL,
		.max_bytes = conf->max_size,
		.max_keys = (uint64_t)conf->max_keys,
		.max_body = conf->max_body,
		.security = &security,
	};
	int r = mcd_server_token(&token);

	mc.token = token;
	if (r == 0)
		r = check_access(conf, token, host_given);
	if (r == 0)
		r = mc_addr_join(conf->host, (int)conf->port, addr);
	return r < 0 ? r : mcd_server_start(&mc, ret_port, ret);
}

static int server_run(struct conf *conf, const struct mc_options *options)
{
	struct mcd_server *m;
	int r, port, sig;

	r = open_log(conf);
	if (r < 0)
		return server_fail(r);
	mc_options_report(options);
	mc_env_report_inert();
	r = server_start(conf, mc_options_origin(options, "host") != MC_ORIGIN_DEFAULT, &port, &m);
	if (r < 0)
		return server_fail(r);
	mc_info(LOG, NAME " " PACKAGE_VERSION " is up host=%s port=%d persist=%s", conf->host, port,
		*conf->persist ? conf->persist : "no");
	do {
		sig = mc_signals_wait();
	} while (sig != SIGINT && sig != SIGTERM);
	mc_info(LOG, "ending signal=%d", sig);
	mcd_server_stop(m);
	mc_log_close();
	return 0;
}

int main(int argc, char **argv)
{
	struct mc_options *options = NULL;
	struct conf conf;
	int r;

	mc_stdfds_open();
	mc_signals_block();
	r = mc_options_parse(&program, argc, argv, &conf, &options);
	if (r < 0) {
		server_fail(r);
		return MC_OPTIONS_STATUS;
	}
	if (r > 0)
		return 0;
	mc_env_hide();
	if (mc_options_argc(options)) {
		fprintf(stderr, NAME ": unexpected argument %s\n", mc_options_argv(options, 0));
		r = MC_OPTIONS_STATUS;
	} else {
		r = server_run(&conf, options);
	}
	mc_options_free(options);
	return r;
}
