/* SPDX-License-Identifier: Apache-2.0
 * http.c - the HTTP server of a handle: /health and /metrics, for orchestrators and Prometheus. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "client/session/security.h"
#include "client/store_i.h"
#include "common/env.h"
#include "common/log.h"
#include "common/net/guard.h"
#include "common/net/httpd.h"
#include "common/net/net.h"
#include "common/security/secret.h"

#define IDENTIFY_MS 2000	/* time limit for the master's answer about a token */

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
	{ "GET", "/health", http_health, NULL, MC_MAY_ANYONE },
	{ "GET", "/metrics", mc_http_metrics, NULL, MC_MAY_WATCH },
	{ NULL, NULL, NULL, NULL, 0 },
};

static int http_identify(void *arg, const char *token, struct mc_principal *ret)
{
	struct mcs *s = arg;
	struct mc_identity id;
	int r = s->security ? mcs_security_token(s->security, s->session, token, mc_deadline_ms(IDENTIFY_MS), &id) :
		mc_fail(-EACCES, "this process has no credential");

	if (r == 0)
		mc_identity_principal(&id, ret);
	return r;
}

/* With a credential requests need tokens; a library has no certificate, so it receives them on the loopback only. */
static int http_secure(struct mcs *s, char ret_addr[MC_ADDR_MAX], struct mc_httpd_security *ret)
{
	char host[MC_ADDR_MAX];
	int port, r = mc_addr_split(s->conf.http_addr, host, sizeof(host), 0, &port);

	*ret = (struct mc_httpd_security){
		.tokens = mc_credential_path() != NULL, .identify = http_identify, .arg = s,
	};
	if (r < 0)
		return r;
	if (!ret->tokens) {
		mc_guard_library("read health and metrics", s->conf.http_addr, mc_env_on(MC_GUARD_ENV));
	} else if (!mc_host_is_loopback(host)) {
		mc_warn("client", "a handle with a credential serves HTTP on " MC_GUARD_LOOPBACK " only, because it "
			"has no certificate; mooncake_client can have one asked=%s", s->conf.http_addr);
		strcpy(host, MC_GUARD_LOOPBACK);
	}
	return mc_addr_join(host, port, ret_addr);
}

void mcs_http_start(struct mcs *s)
{
	struct mc_httpd_security security;
	char addr[MC_ADDR_MAX];
	int port, r;

	if (!s->conf.http_addr || !*s->conf.http_addr)
		return;
	r = http_secure(s, addr, &security);
	if (r == 0)
		r = mc_httpd_start(addr, 1, 0, http_routes, s, &security, &port, &s->httpd);
	if (r < 0)
		mc_warn("client", "continuing without HTTP server: %s addr=%s", mc_err_detail(r), s->conf.http_addr);
	else
		mc_info("client", "Client HTTP server started on port %d", port);
}
