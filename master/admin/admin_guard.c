/* SPDX-License-Identifier: Apache-2.0
 * admin_guard.c - refusal of requests that a page of another site can make a browser send (CSRF, DNS rebinding).
 *
 * A page can send a request to any address, but with Content-Type application/json only after a query that the master
 * does not permit, and the browser adds the page's origin.  A page whose own name was made to resolve to the master's
 * address counts as the same site; its requests have that name in the Host header. */
#include <config.h>

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/net/net.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"

static bool guard_is_address(const char *host)
{
	struct in6_addr v6;
	struct in_addr v4;

	return inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1;
}

/* Such names do not exist in the public DNS, so no foreign page can have one: those without a dot, and those of
 * Kubernetes and of private networks. */
static bool guard_is_private(const char *host)
{
	static const char *const ends[] = { ".local", ".svc", ".internal" };
	size_t len = strlen(host), n;

	if (!strchr(host, '.'))
		return true;
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		n = strlen(ends[i]);
		if (len > n && !strcasecmp(host + len - n, ends[i]))
			return true;
	}
	return false;
}

/* Is @host in the comma-separated @list? */
static bool guard_is_listed(const char *host, const char *list)
{
	size_t len = strlen(host), n;

	for (const char *p = list; *p; p += n + (p[n] == ',')) {
		n = strcspn(p, ",");
		if (n == len && !strncasecmp(p, host, n))
			return true;
	}
	return false;
}

static bool guard_knows_host(const struct mcm *m, const char *value)
{
	char host[MC_ADDR_MAX], own[256] = "";
	int port;

	if (mc_addr_split(value, host, sizeof(host), 80, &port) < 0 || !*host)
		return false;
	(void)gethostname(own, sizeof(own) - 1);
	return guard_is_address(host) || guard_is_private(host) || !strcasecmp(host, own) ||
		guard_is_listed(host, m->conf.admin_names);
}

static bool guard_same_site(const char *origin, const char *host)
{
	const char *at = strstr(origin, "://");

	return at && host && !strcasecmp(at + 3, host);
}

static bool guard_is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t n = sizeof(json) - 1;

	return type && !strncasecmp(type, json, n) && (!type[n] || strchr("; \t", type[n]));
}

static bool guard_refuse(struct mc_http_request *rq, int status, const char *why)
{
	mcm_answer_json(rq, status, json_pack("{s:b, s:i, s:s}", "success", 0, "error_code", -600,
					      "error_message", why));
	return true;
}

bool mcm_admin_refused(struct mc_http_request *rq, const struct mcm *m, bool any_host)
{
	const char *host = mc_http_header(rq, "Host"), *origin = mc_http_header(rq, "Origin");

	if (origin && !guard_same_site(origin, host))
		return guard_refuse(rq, 403, "the request comes from a page of another site (header Origin)");
	if (host && !any_host && !guard_knows_host(m, host))
		return guard_refuse(rq, 403, "the header Host has an unknown name: use an address, or add the "
				    "name to the master's option --admin_names");
	if (rq->body_len && !guard_is_json(mc_http_header(rq, "Content-Type")))
		return guard_refuse(rq, 415, "a request with a body needs the header "
				    "Content-Type: application/json");
	return false;
}
