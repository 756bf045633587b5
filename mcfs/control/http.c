/* SPDX-License-Identifier: Apache-2.0
 * http.c - a node's health and metrics over HTTP, as mooncake_client serves them. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "common/net/httpd.h"
#include "common/net/net.h"
#include "mcfs/control/control.h"
#include "mcfs/mcfs.h"

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
	{ "GET", "/health", http_health, NULL, MC_MAY_WATCH },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

int mcfs_http_start(struct mcfs *fs, struct mc_httpd **ret)
{
	char host[MC_ADDR_MAX], addr[MC_ADDR_MAX + 16];
	int port, r;

	r = mc_addr_split(fs->conf.host, host, sizeof(host), 0, &port);
	if (r < 0)
		return r;
	(void)snprintf(addr, sizeof(addr), strchr(host, ':') ? "[%s]:%d" : "%s:%d", host,
		       (int)fs->conf.http_port);
	return mc_httpd_start(addr, 2, 4096, routes, fs, &port, ret);
}
