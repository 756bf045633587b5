/* SPDX-License-Identifier: Apache-2.0
 * mcctl_health.c - health of the master, checked over HTTP, as a load balancer would, and as a client of
 * the store. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/net.h"

#define TIMEOUT_MS 5000
#define HTTP_PORT 9003	/* the masters' default */

enum health { HEALTHY, DEGRADED, UNREACHABLE };

struct answers {
	char host[MC_ADDR_MAX];
	int port;
	bool http, rpc;			/* answered as a working master */
	char http_text[512], rpc_text[512];
};

/* Where the HTTP server is of the master that serves, or of the first in the list.  Negative: the store of several
 * masters names none. */
static int find_http(const struct mcctl_conf *conf, int64_t timeout_ms, char ret[MC_ADDR_MAX], int *ret_port)
{
	bool several = strchr(conf->master, ',') || strstr(conf->master, "://");
	char addr[MC_ADDR_MAX];
	int port, named = 0, r = -ENOENT;

	if (several)
		r = mcs_find_master_http(conf->master, conf->credential, addr, sizeof(addr), &named, timeout_ms);
	if (r < 0 && strstr(conf->master, "://"))
		return mc_fail(r, "%s", strdupa(mcs_error_detail(r)));
	if (r < 0)
		snprintf(addr, sizeof(addr), "%.*s", (int)strcspn(conf->master, ","), conf->master);
	if (!strncmp(addr, "unix:", 5) || mc_addr_split(addr, ret, MC_ADDR_MAX, 50051, &port) < 0)
		strcpy(ret, "127.0.0.1");
	*ret_port = conf->metrics_port ? (int)conf->metrics_port : named ? named : HTTP_PORT;
	return 0;
}

int mcctl_ask_http(const struct mcctl *c, const char *path, long *ret_code, char **ret_body)
{
	return mcctl_tell_http(c, NULL, path, NULL, ret_code, ret_body);
}

int mcctl_tell_http(const struct mcctl *c, const char *method, const char *path, const char *body,
		    long *ret_code, char **ret_body)
{
	char host[MC_ADDR_MAX];
	int port, r;

	/* At the default port, the master of another pool may answer. */
	if (c->local)
		return mc_fail(-EOPNOTSUPP, "the master of a local pool has no HTTP server");
	r = find_http(c->conf, (int64_t)c->conf->timeout, host, &port);
	return r < 0 ? r : mcctl_http(host, port, method, path, body,
			  (int64_t)c->conf->timeout, ret_code, ret_body);
}

static void ask_http(struct answers *a, int64_t timeout_ms)
{
	auto_free char *body = NULL;
	const char *role = "?", *state = "?";
	json_t *j;
	int ready = 0, r;
	long code;

	r = mcctl_http_get(a->host, a->port, "/health", timeout_ms, &code, &body);
	if (r < 0) {
		snprintf(a->http_text, sizeof(a->http_text), "%s", mc_err_detail(r));
		return;
	}
	j = json_loads(body, 0, NULL);
	/* The status is 200 while the master is starting too, so check service_ready. */
	if (code == 200 && j && !json_unpack(j, "{s?s, s?s, s:b}", "role", &role, "ha_state",
					     &state, "service_ready", &ready)) {
		a->http = ready;
		snprintf(a->http_text, sizeof(a->http_text), "%s, role %s, %s",
			 ready ? "ready" : "not ready", role, state);
	} else {
		snprintf(a->http_text, sizeof(a->http_text),
			 "GET /health: status %ld, not the answer of a master", code);
	}
	json_decref(j);
}

static void ask_rpc(struct answers *a, const struct mcctl_conf *conf, int64_t timeout_ms)
{
	struct mcs_pool pool;
	mcs_t *s = NULL;
	int r;

	r = mcctl_open(conf, timeout_ms, &s);
	if (r >= 0)
		r = mcs_pool_stat(s, &pool, timeout_ms);
	if (r >= 0 && mcs_health(s) != 0) {
		snprintf(a->rpc_text, sizeof(a->rpc_text), "the connection was lost");
	} else if (r >= 0) {
		a->rpc = true;
		snprintf(a->rpc_text, sizeof(a->rpc_text), "connected, %u segments, %u clients",
			 pool.segments, pool.clients);
	} else {
		snprintf(a->rpc_text, sizeof(a->rpc_text), "%s", mcs_error_detail(r));
	}
	mcs_close(s);
}

static enum mcctl_status print_answers(const struct answers *a, const struct mcctl_conf *conf,
				       enum health health)
{
	static const char *const names[] = { "healthy", "degraded", "unreachable" };

	if (conf->json)
		return mcctl_json_print(json_pack("{s:s, s:i, s:{s:b, s:s}, s:{s:b, s:s}}",
			"status", names[health], "code", (int)health,
			"http", "ok", a->http, "text", a->http_text,
			"rpc", "ok", a->rpc, "text", a->rpc_text));
	printf("%s\n", names[health]);
	printf("  HTTP %s:%d: %s\n", a->host, a->port, a->http_text);
	printf("  store %s: %s\n", conf->master, a->rpc_text);
	return MCCTL_OK;
}

int mcctl_health(struct mcctl *c)
{
	int64_t timeout_ms = (int64_t)c->conf->timeout;
	struct answers a = { .http = false };
	enum health health;
	int r;

	if (timeout_ms > TIMEOUT_MS)
		timeout_ms = TIMEOUT_MS;
	r = find_http(c->conf, timeout_ms, a.host, &a.port);
	if (r < 0)
		snprintf(a.http_text, sizeof(a.http_text), "unknown: %s", mc_err_detail(r));
	ask_rpc(&a, c->conf, timeout_ms);
	if (c->local) {
		a.http = a.rpc;
		strcpy(a.http_text, "not served by a local pool");
	} else if (r < 0) {
		strcpy(a.host, "?");
	} else {
		ask_http(&a, timeout_ms);
	}
	health = a.rpc && a.http ? HEALTHY : a.rpc || a.http ? DEGRADED : UNREACHABLE;
	if (print_answers(&a, c->conf, health) != MCCTL_OK)
		return MCCTL_FAILED;
	return (int)health;
}
