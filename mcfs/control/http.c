/* SPDX-License-Identifier: Apache-2.0
 * http.c - a node's health and metrics over HTTP, as mooncake_client serves them. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "common/net/httpd.h"
#include "common/net/net.h"
#include "mcfs/control/control.h"
#include "mcfs/mcfs.h"
#include "node/host.h"

const char *mcfs_health(struct mcfs *fs, int *ret_code)
{
	static const char *const names[] = { "healthy", "not_initialized", "master_unreachable" };
	int code = mcs_health(fs->store);

	if (code < 0 || code > 2)
		code = 2;
	*ret_code = code;
	return names[code];
}

static void http_health(struct mc_http_request *rq, void *arg)
{
	int code;
	const char *status = mcfs_health(arg, &code);

	rq->status = code ? 503 : 200;
	rq->content_type = "application/json; charset=utf-8";
	fprintf(rq->out, "{\"status\":\"%s\",\"code\":%d}\n", status, code);
}

static const struct mc_http_route routes[] = {
	{ "GET", "/health", http_health, NULL, MC_MAY_ANYONE },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

int mcfs_http_start(struct mcfs *fs, struct mc_httpd **ret)
{
	const struct mcn_http http = {
		.host = fs->conf.host, .port = (int)fs->conf.http_port,
		.given = mc_options_origin(fs->options, "host") != MC_ORIGIN_DEFAULT,
		.allowed = fs->conf.allow_insecure, .cert = fs->conf.http_tls_cert, .key = fs->conf.http_tls_key,
	};
	const struct mc_httpd_security security = mcn_http_security(&http, fs->store);
	char addr[MC_ADDR_MAX];
	int port, r;

	r = mcn_http_addr(&http, addr);
	return r < 0 ? r : mc_httpd_start(addr, 2, 4096, routes, fs, &security, &port, ret);
}
