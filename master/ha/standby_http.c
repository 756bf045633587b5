/* SPDX-License-Identifier: Apache-2.0
 * standby_http.c - the HTTP server of a standby. */
#include <config.h>

#include "master/ha/standby_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/net/httpd.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"

#define ROUTES_MAX 128

/* A process has one such server; these arguments stay until the program ends. */
static struct {
	void (*view)(void *arg, struct mcm_standby_view *ret);
	void *arg;
	struct mc_http_route routes[ROUTES_MAX];
} server;

static void serve_status(struct mc_http_request *rq, void *arg)
{
	struct mcm_standby_view v;
	struct mcm_status st;

	server.view(arg, &v);
	st = (struct mcm_status){
		.role = "standby", .state = v.ready ? "standby" : *v.leader ? "catching_up" : "starting",
		.ready = v.ready, .leader = *v.leader ? v.leader : NULL, .term = v.term,
	};
	mcm_answer_status(rq, &st);
}

static void serve_metrics(struct mc_http_request *rq, void *arg)
{
	(void)arg;
	mc_http_metrics(rq, NULL);
}

/* A route of the leader. */
static void serve_refusal(struct mc_http_request *rq, void *arg)
{
	struct mcm_standby_view v;
	char text[MCD_SEAT_NAME_MAX + 64];

	server.view(arg, &v);
	snprintf(text, sizeof(text), "this master is a standby; the leader is %s", *v.leader ? v.leader : "not known");
	mcm_answer_json(rq, 503, json_pack("{s:b, s:s}", "success", 0, "error_message", text));
}

static const struct mc_http_route own[] = {
	{ "GET", "/health", serve_status, NULL, MC_MAY_ANYONE },
	{ "GET", "/role", serve_status, NULL, MC_MAY_WATCH },
	{ "GET", "/ha_status", serve_status, NULL, MC_MAY_WATCH },
	{ "GET", "/leader", serve_status, NULL, MC_MAY_WATCH },
	{ "GET", "/metrics", serve_metrics, NULL, MC_MAY_WATCH },
};

/* The first row that matches is used, so the leader's rows come last. */
static int routes_make(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		server.routes[n++] = own[i];
	for (const struct mc_http_route *r = mcm_http_routes; r->path; r++) {
		if (n == ROUTES_MAX - 1)
			return mc_fail(-E2BIG, "too many HTTP routes");
		server.routes[n++] = (struct mc_http_route){ r->method, r->path, serve_refusal, r->bytes, r->roles };
	}
	server.routes[n] = (struct mc_http_route){ NULL, NULL, NULL, NULL, 0 };
	return 0;
}

int mcm_standby_http_start(const char *addr, void (*view)(void *arg, struct mcm_standby_view *ret), void *arg,
			   const struct mc_httpd_security *security, struct mc_httpd **ret)
{
	int port, r = routes_make();

	server.view = view;
	server.arg = arg;
	return r < 0 ? r : mc_httpd_start(addr, 1, MCM_HTTP_BODY_MAX, server.routes, arg, security, &port,
					ret);
}
