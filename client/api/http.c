/* SPDX-License-Identifier: Apache-2.0
 * http.c - the HTTP server of a handle: /health and /metrics, for orchestrators and Prometheus. */
#include <config.h>

#include "client/store_i.h"
#include "common/log.h"
#include "common/net/httpd.h"

static void http_health(struct mc_http_request *rq, void *arg)
{
	static const char *const names[] = { "healthy", "not_initialized", "master_unreachable" };
	int code = mcs_health(arg);

	code = code < 0 || code > 2 ? 2 : code;
	rq->status = code ? 503 : 200;
	rq->content_type = "application/json; charset=utf-8";
	fprintf(rq->out, "{\"status\":\"%s\",\"code\":%d}\n", names[code], code);
}

static const struct mc_http_route http_routes[] = {
	{ "GET", "/health", http_health, NULL, MC_MAY_WATCH },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

void mcs_http_start(struct mcs *s)
{
	int port, r;

	if (!s->conf.http_addr || !*s->conf.http_addr)
		return;
	r = mc_httpd_start(s->conf.http_addr, 1, 0, http_routes, s, &port, &s->httpd);
	if (r < 0)
		mc_warn("client", "continuing without HTTP server: %s addr=%s", mc_err_detail(r), s->conf.http_addr);
	else
		mc_info("client", "Client HTTP server started on port %d", port);
}
