/* SPDX-License-Identifier: Apache-2.0
 * The admin service, asked by the holders of credentials for one tenant. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "master/admin/admin.h"

#define MIB (1ull << 20)

static struct fixture fx;
static struct mc_httpd *server;
static char addr[64];

/* A token is "ROLE:TENANT". */
static int identify(void *arg, const char *token, struct mc_principal *ret)
{
	char role[16];
	size_t n = strcspn(token, ":");

	assert_true(n < sizeof(role));
	memcpy(role, token, n);
	role[n] = '\0';
	ret->roles = mc_role_parse(role);
	if (token[n])
		snprintf(ret->tenant, sizeof(ret->tenant), "%s", token + n + 1);
	return ret->roles ? 0 : mc_fail(-EACCES, "no such role");
}

static void serve(void (*tune)(struct mcm_conf *conf))
{
	const struct mc_httpd_security sec = { .tokens = true, .identify = identify };
	int port;

	fx_up(&fx, 1, 64 * MIB, tune);
	fx.m->ready = true;
	assert_int_equal(mc_httpd_start("127.0.0.1:0", 1, MCM_HTTP_BODY_MAX, mcm_http_routes, fx.m, &sec, &port,
					&server), 0);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
}

static int serve_tenants(void **state)
{
	serve(tx_tune);
	tx_quota(&fx, "blue", 16 * MIB);
	tx_quota(&fx, "red", 16 * MIB);
	assert_int_equal(tx_put(&fx, "blue", "mine", 4096, 0), 0);
	assert_int_equal(tx_put(&fx, "red", "theirs", 4096, 0), 0);
	return 0;
}

static int serve_no_tenants(void **state)
{
	serve(NULL);
	assert_int_equal(fx_put(&fx, "key", 4096, 0), 0);
	return 0;
}

static int stop(void **state)
{
	mc_httpd_stop(server);
	fx.m->ready = false;
	fx_down(&fx);
	return 0;
}

/* Ask with the token @as and return the status; *body gets the answer's. */
static int ask(const char *as, const char *method, const char *path, const char *json, const char **body)
{
	static char answer[65536];
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000)), status = 0;
	char text[2048];
	size_t at = 0;
	ssize_t n = 1;

	assert_true(fd >= 0);
	n = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
		     "Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		     method, path, as, strlen(json), json);
	assert_int_equal(send(fd, text, (size_t)n, 0), n);
	do {
		n = recv(fd, answer + at, sizeof(answer) - 1 - at, MSG_DONTWAIT);
		at += n > 0 ? (size_t)n : 0;
		if (n < 0 && errno == EAGAIN)
			mc_sleep_ms(1);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	close(fd);
	answer[at] = '\0';
	assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
	*body = strstr(answer, "\r\n\r\n");
	assert_non_null(*body);
	*body += 4;
	return status;
}

static void expect(const char *as, const char *method, const char *path, const char *json, int status, const char *part)
{
	const char *body;
	int got = ask(as, method, path, json, &body);

	if (got != status || !strstr(body, part))
		fail_msg("%s %s as %s: wanted %d and %s, got %d and %.300s", method, path, as, status, part, got, body);
}

static bool is_by_tenant(const char *path)
{
	static const char *const paths[] = {
		"/health", "/role", "/ha_status", "/leader", "/version", "/get_all_keys", "/query_key",
		"/batch_query_keys", "/api/v1/remove_all", "/api/v1/tenant_quotas", "/api/v1/soft_pin",
		"/api/v1/soft_unpin",
	};

	for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (!strcmp(path, paths[i]))
			return true;
	return false;
}

/* All other routes are about the pool, also those that are added later. */
static void routes_about_the_pool_are_refused(void **state)
{
	for (const struct mc_http_route *r = mcm_http_routes; r->path; r++)
		if (r->method && !is_by_tenant(r->path))
			expect("admin:blue", r->method, r->path, "", 403, "this is about the whole pool");
	expect("metrics:blue", "GET", "/metrics", "", 403, "this is about the whole pool");
	expect("metrics:", "GET", "/metrics", "", 200, "mooncake");
	expect("metrics:blue", "GET", "/role", "", 200, "leader");
	expect("reader:blue", "POST", "/api/v1/remove_all?tenant_id=blue", "", 403, "the role of the peer");
}

static void keys_are_those_of_the_tenant(void **state)
{
	const char *body;

	assert_int_equal(ask("reader:blue", "GET", "/get_all_keys", "", &body), 200);
	assert_non_null(strstr(body, "mine\n"));
	assert_null(strstr(body, "theirs"));
	assert_int_equal(ask("reader:", "GET", "/get_all_keys", "", &body), 200);
	assert_null(strstr(body, "mine"));
	expect("reader:blue", "GET", "/query_key?key=mine", "", 200, "\"size_\":4096");
	expect("reader:blue", "GET", "/query_key?key=theirs", "", 404, "OBJECT_NOT_FOUND");
	expect("reader:", "GET", "/query_key?key=mine", "", 404, "OBJECT_NOT_FOUND");
	expect("reader:blue", "GET", "/batch_query_keys?keys=mine", "", 200, "\"ok\":true");
	expect("reader:blue", "GET", "/batch_query_keys?keys=theirs", "", 200, "\"ok\":false");
	/* The prefix of a tenant's key in the index leads nowhere. */
	for (unsigned i = 1; i < 8; i++) {
		char path[96];

		snprintf(path, sizeof(path), "/query_key?key=%%00%%%02x%%00/theirs", i);
		expect("reader:blue", "GET", path, "", 404, "OBJECT_NOT_FOUND");
		snprintf(path, sizeof(path), "/query_key?key=%%00%%00%%%02x/theirs", i);
		expect("reader:blue", "GET", path, "", 404, "OBJECT_NOT_FOUND");
	}
}

static void changes_are_those_of_the_tenant(void **state)
{
	expect("client:blue", "POST", "/api/v1/soft_pin", "{\"keys\":[\"mine\"],\"ttl_ms\":1000}", 200,
	       "\"error_code\":0");
	expect("client:blue", "POST", "/api/v1/soft_pin", "{\"keys\":[\"theirs\"],\"ttl_ms\":1000}", 200,
	       "\"error_code\":-704");
	expect("client:blue", "POST", "/api/v1/soft_pin", "{\"keys\":[\"a\"],\"ttl_ms\":1,\"tenant_id\":\"red\"}", 403,
	       "may not name another");
	expect("admin:blue", "POST", "/api/v1/remove_all?tenant_id=red&force=1", "", 403, "may not name another");
	expect("admin:blue", "POST", "/api/v1/remove_all?force=1", "", 403, "give its name as tenant_id");
	assert_int_equal(tx_stat(&fx, "blue", "mine", NULL), 0);
	expect("admin:blue", "POST", "/api/v1/remove_all?tenant_id=blue&force=1", "", 200, "\"removed_count\":1");
	assert_int_equal(tx_stat(&fx, "red", "theirs", NULL), 0);
}

static void quotas_are_those_of_the_tenant(void **state)
{
	static const char quota[] = "{\"requested_quota_bytes\":8388608}";
	const char *body;

	assert_int_equal(ask("admin:blue", "GET", "/api/v1/tenant_quotas", "", &body), 200);
	assert_non_null(strstr(body, "\"blue\""));
	assert_null(strstr(body, "\"red\""));
	assert_int_equal(ask("admin:", "GET", "/api/v1/tenant_quotas", "", &body), 200);
	assert_non_null(strstr(body, "\"red\""));
	expect("admin:blue", "GET", "/api/v1/tenant_quotas?tenant_id=red", "", 403, "may not name another");
	expect("admin:blue", "PUT", "/api/v1/tenant_quotas?tenant_id=red", quota, 403, "may not name another");
	expect("admin:blue", "DELETE", "/api/v1/tenant_quotas?tenant_id=red", "", 403, "may not name another");
}

/* Without tenants a credential for one is of no use, except for the one that has all keys. */
static void a_master_without_tenants(void **state)
{
	expect("reader:blue", "GET", "/get_all_keys", "", 403, "this master has no tenants");
	expect("reader:default", "GET", "/get_all_keys", "", 200, "key\n");
	expect("reader:default", "GET", "/get_all_segments", "", 403, "this is about the whole pool");
	expect("reader:", "GET", "/get_all_segments", "", 200, "seg-");
}

#define WITH(up, f) cmocka_unit_test_setup_teardown(f, up, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(serve_tenants, routes_about_the_pool_are_refused),
		WITH(serve_tenants, keys_are_those_of_the_tenant),
		WITH(serve_tenants, changes_are_those_of_the_tenant),
		WITH(serve_tenants, quotas_are_those_of_the_tenant),
		WITH(serve_no_tenants, a_master_without_tenants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
