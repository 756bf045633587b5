/* SPDX-License-Identifier: Apache-2.0
 * Tokens and TLS of the HTTP server. */
#include <config.h>

#include "common/net/httpd.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/net/socket.h"
#include "common/security/secret.h"
#include "common/sys/clock.h"

#define MAX_BODY 5000u
#define NOW 1000u		/* Unix time at which tokens are checked */

static struct mc_secrets *secrets, *other_secrets;
static struct mc_httpd *server;
static char addr[64], dir[64], cert[96], key[96], cert2[96], key2[96];
static atomic_int calls;

/* ---- server ---- */

static void on_echo(struct mc_http_request *rq, void *arg)
{
	calls++;
	fprintf(rq->out, "roles=%02x tenant=%s name=%s len=%zu", rq->principal.roles, rq->principal.tenant,
		rq->principal.name, rq->body_len);
}

static const struct mc_http_route routes[] = {
	{ "GET", "/read", on_echo, NULL, MC_MAY_READ },
	{ "GET", "/write", on_echo, NULL, MC_MAY_WRITE },
	{ "POST", "/write", on_echo, NULL, MC_MAY_WRITE },
	{ "GET", "/own", on_echo, NULL, MC_MAY_OWN },
	{ "GET", "/administer", on_echo, NULL, MC_MAY_ADMINISTER },
	{ "GET", "/replicate", on_echo, NULL, MC_MAY_REPLICATE },
	{ "GET", "/watch", on_echo, NULL, MC_MAY_WATCH },
	{ "GET", "/health", on_echo, NULL, MC_MAY_ANYONE },
	{ NULL, NULL, NULL, NULL, 0 },
};

static int identify(void *arg, const char *token, struct mc_principal *ret)
{
	struct mc_identity id;
	int r = mc_bearer_check(arg, token, NOW, &id);

	if (r == 0)
		mc_identity_principal(&id, ret);
	return r;
}

/* The last refusal that the hook was told. */
static char told[512];

static void on_refused(void *arg, const struct mc_http_request *rq, const char *why)
{
	assert_ptr_equal(arg, secrets);
	assert_int_equal(strncmp(rq->peer, "127.0.0.1:", 10), 0);
	snprintf(told, sizeof(told), "%d %s %s %s: %s", rq->status, rq->method, rq->path, rq->principal.name, why);
}

static void serve_at(const char *where, const struct mc_httpd_security *sec)
{
	int port, r = mc_httpd_start(where, 2, MAX_BODY, routes, NULL, sec, &port, &server);

	if (r < 0)
		fail_msg("%s", mc_err_detail(r));
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	calls = 0;
}

static void serve(const struct mc_httpd_security *sec)
{
	serve_at("127.0.0.1:0", sec);
}

static int serve_tokens(void **state)
{
	told[0] = '\0';
	serve(&(struct mc_httpd_security){
		.tokens = true, .identify = identify, .arg = secrets, .refused = on_refused,
	});
	return 0;
}

static int stop(void **state)
{
	mc_httpd_stop(server);
	server = NULL;
	return 0;
}

/* ---- clients ---- */

static void blocking(int fd)
{
	const struct timeval limit = { .tv_sec = 10 };

	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
}

static int connect_server(void)
{
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000));

	if (fd < 0)
		fail_msg("%s", mc_err_detail(fd));
	blocking(fd);
	return fd;
}

/* All bytes that the server sends for @text until it closes, malloc'ed. */
static char *ask_raw(const char *text, size_t len)
{
	int fd = connect_server();
	char *buf = calloc(1, 65536);
	size_t at = 0;
	ssize_t n;

	assert_non_null(buf);
	assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
	while ((n = recv(fd, buf + at, 65535 - at, 0)) > 0)
		at += (size_t)n;
	close(fd);
	return buf;
}

/* @head: more header lines, each with its end. */
static char *ask(const char *method, const char *path, const char *head, const char *body)
{
	char *text, *answer;
	int len = asprintf(&text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n%s", method, path, head,
			   body);

	assert_true(len > 0);
	answer = ask_raw(text, (size_t)len);
	free(text);
	return answer;
}

static void expect(char *answer, int status, const char *part)
{
	char line[32];

	snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
	if (strncmp(answer, line, strlen(line)) || !strstr(answer, part))
		fail_msg("wanted %d and \"%s\" in: %.400s", status, part, answer);
	free(answer);
}

static void expect_refused(char *answer)
{
	assert_non_null(strstr(answer, "WWW-Authenticate: Bearer\r\n"));
	expect(answer, 401, "this needs a valid token");
	assert_int_equal(calls, 0);
}

/* ---- tokens ---- */

static const char *token_of(const struct mc_secrets *s, uint32_t role, const char *tenant, uint64_t expires_s)
{
	struct mc_credential *c = mc_credential_new();
	static char token[MC_BEARER_MAX];

	assert_non_null(c);
	c->id = (struct mc_identity){ .secret = 1, .role = role, .serial = 7, .expires_s = expires_s };
	strcpy(c->id.cluster, mc_secrets_cluster(s));
	strcpy(c->id.tenant, tenant);
	strcpy(c->id.name, "me");
	assert_true(mc_identity_format(&c->id, c->text) > 0);
	assert_int_equal(mc_secrets_key(s, &c->id, c->text, c->key), 0);
	mc_bearer_make(c, token);
	mc_credential_free(c);
	return token;
}

static const char *with_token(const char *scheme, const char *token)
{
	static char head[MC_BEARER_MAX + 64];

	snprintf(head, sizeof(head), "Authorization: %s%s\r\n", scheme, token);
	return head;
}

static const char *as_role(uint32_t role)
{
	return with_token("Bearer ", token_of(secrets, role, "*", NOW + 1));
}

static void requests_need_a_valid_token(void **state)
{
	const char *foreign = token_of(other_secrets, MC_ROLE_ADMIN, "*", NOW + 1);
	char wrong[MC_BEARER_MAX];
	char *last;

	expect_refused(ask("GET", "/read", with_token("Bearer ", foreign), ""));
	expect_refused(ask("GET", "/read", "", ""));
	expect_refused(ask("GET", "/read", "Authorization:\r\n", ""));
	expect_refused(ask("GET", "/read", with_token("Bearer", ""), ""));
	expect_refused(ask("GET", "/read", with_token("Bearer ", ""), ""));
	expect_refused(ask("GET", "/read", with_token("Bearer ", "abc.def"), ""));
	expect_refused(ask("GET", "/read", with_token("Basic ", token_of(secrets, MC_ROLE_ADMIN, "*", NOW + 1)), ""));
	strcpy(wrong, token_of(secrets, MC_ROLE_ADMIN, "*", NOW + 1));
	last = wrong + strlen(wrong) - 1;
	*last = *last == '0' ? '1' : '0';
	expect_refused(ask("GET", "/read", with_token("Bearer ", wrong), ""));
	expect_refused(ask("GET", "/read", with_token("Bearer ", token_of(secrets, MC_ROLE_ADMIN, "*", NOW)), ""));
	expect(ask("GET", "/read", as_role(MC_ROLE_READER), ""), 200, "roles=01 tenant= name=me");
	expect(ask("GET", "/read", with_token("bearer  ", token_of(secrets, MC_ROLE_CLIENT, "blue", NOW + 1)), ""),
	       200, "roles=02 tenant=blue name=me");
}

/* A role may call the routes whose rows name it. */
static void each_role_has_its_routes(void **state)
{
	for (uint32_t role = 1; role & MC_ROLES_ALL; role <<= 1)
		for (const struct mc_http_route *r = routes; r->path; r++) {
			bool may = r->roles & role || r->roles & MC_OPEN;

			if (!strcmp(r->method, "GET"))
				expect(ask("GET", r->path, as_role(role), ""), may ? 200 : 403,
				       may ? "tenant=" : "the role of the peer does not allow this");
		}
}

static void health_is_open(void **state)
{
	expect(ask("GET", "/health", "", ""), 200, "roles=00 tenant= name= ");
	expect(ask("GET", "/health", with_token("Bearer ", "abc"), ""), 200, "roles=00");
	expect(ask("HEAD", "/health", "", ""), 200, "\r\n\r\n");
	expect(ask("HEAD", "/read", "", ""), 401, "WWW-Authenticate: Bearer");
	expect(ask("HEAD", "/read", as_role(MC_ROLE_READER), ""), 200, "\r\n\r\n");
}

/* Without a token all paths and methods look the same. */
static void a_peer_without_a_token_learns_no_paths(void **state)
{
	expect_refused(ask("GET", "/no/such/path", "", ""));
	expect_refused(ask("DELETE", "/read", "", ""));
	expect_refused(ask("DELETE", "/health", "", ""));
	expect(ask("GET", "/no/such/path", as_role(MC_ROLE_METRICS), ""), 404, "not found");
	expect(ask("DELETE", "/read", as_role(MC_ROLE_READER), ""), 405, "method not allowed");
}

static void bodies_need_a_token_too(void **state)
{
	char head[MC_BEARER_MAX + 128];

	expect_refused(ask("POST", "/write", "Content-Length: 5\r\n", "hello"));
	expect_refused(ask("POST", "/write", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"));
	/* The answer comes before the body. */
	expect_refused(ask("POST", "/write", "Content-Length: 1000000000000\r\n", ""));
	expect_refused(ask("POST", "/write", "Content-Length: 5\r\nAuthorization: Bearer x\r\n", "hello"));
	snprintf(head, sizeof(head), "Content-Length: 5\r\n%s", as_role(MC_ROLE_CLIENT));
	expect(ask("POST", "/write", head, "hello"), 200, "len=5");
}

/* Each refusal of the server has a record with the peer and the reason; other requests have none. */
static void refusals_have_records(void **state)
{
	expect(ask("GET", "/health", "", ""), 200, "roles=00");
	expect(ask("GET", "/read", as_role(MC_ROLE_READER), ""), 200, "roles=01");
	expect(ask("GET", "/no/such/path", as_role(MC_ROLE_READER), ""), 404, "not found");
	assert_string_equal(told, "");
	calls = 0;
	expect_refused(ask("GET", "/no/such/path", "", ""));
	assert_string_equal(told, "401 GET /no/such/path : a request has no token");
	expect_refused(ask("POST", "/write", "Content-Length: 5\r\nAuthorization: Bearer x\r\n", "hello"));
	assert_string_equal(told, "401 POST /write : not a token of mcctl credential token");
	expect(ask("GET", "/write", as_role(MC_ROLE_READER), ""), 403, "the role of the peer does not allow this");
	assert_int_equal(strncmp(told, "403 GET /write me: ", 19), 0);
}

static void without_a_check_no_token_is_valid(void **state)
{
	serve(&(struct mc_httpd_security){ .tokens = true });
	expect_refused(ask("GET", "/watch", as_role(MC_ROLE_ADMIN), ""));
	expect(ask("GET", "/health", "", ""), 200, "roles=00");
}

static void without_security_all_is_open(void **state)
{
	serve(NULL);
	expect(ask("GET", "/administer", "", ""), 200, "roles=3f");
	expect(ask("GET", "/administer", with_token("Bearer ", "abc"), ""), 200, "roles=3f");
}

/* ---- TLS ---- */

/* A certificate that signs itself, for 127.0.0.1, and its key. */
static void make_pair(const char *cert_path, const char *key_path)
{
	EVP_PKEY *pkey = EVP_EC_gen("prime256v1");
	X509 *x = X509_new();
	X509_EXTENSION *alt = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
	FILE *f;

	assert_true(pkey && x && alt);
	X509_set_version(x, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -60);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, pkey);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
				   0);
	X509_set_issuer_name(x, X509_get_subject_name(x));
	X509_add_ext(x, alt, -1);
	assert_true(X509_sign(x, pkey, EVP_sha256()));
	f = fopen(cert_path, "w");
	assert_true(f && PEM_write_X509(f, x) && fclose(f) == 0);
	f = fopen(key_path, "w");
	assert_true(f && PEM_write_PrivateKey(f, pkey, NULL, NULL, 0, NULL, NULL) && fclose(f) == 0);
	assert_int_equal(chmod(key_path, 0600), 0);
	X509_EXTENSION_free(alt);
	X509_free(x);
	EVP_PKEY_free(pkey);
}

/* Ask for /read over TLS with the authority @ca and a protocol of at most @version; NULL: no handshake. */
static char *ask_tls(const char *ca, int version, const char *head)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	char text[MC_BEARER_MAX + 256], *answer = NULL;
	int fd = connect_server(), len, n, at = 0;
	SSL *ssl;

	assert_non_null(ctx);
	assert_int_equal(SSL_CTX_load_verify_locations(ctx, ca, NULL), 1);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_max_proto_version(ctx, version);
	SSL_CTX_set_security_level(ctx, 0);
	ssl = SSL_new(ctx);
	assert_true(ssl && SSL_set_fd(ssl, fd) && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), "127.0.0.1"));
	if (SSL_connect(ssl) == 1) {
		len = snprintf(text, sizeof(text), "GET /read HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n",
			       head);
		assert_int_equal(SSL_write(ssl, text, len), len);
		answer = calloc(1, 65536);
		assert_non_null(answer);
		while ((n = SSL_read(ssl, answer + at, 65535 - at)) > 0)
			at += n;
	}
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	close(fd);
	return answer;
}

static void tls_with_and_without_a_token(void **state)
{
	static const char plain[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	char *a;

	serve_at("0.0.0.0:0", &(struct mc_httpd_security){ true, identify, secrets, cert, key, NULL });
	expect_refused(ask_tls(cert, TLS1_3_VERSION, ""));
	expect(ask_tls(cert, TLS1_3_VERSION, as_role(MC_ROLE_READER)), 200, "roles=01");
	expect(ask_tls(cert, TLS1_2_VERSION, as_role(MC_ROLE_READER)), 200, "roles=01");
	assert_null(ask_tls(cert, TLS1_1_VERSION, ""));
	assert_null(ask_tls(cert2, TLS1_3_VERSION, ""));
	/* A request that is not encrypted gets no answer in HTTP. */
	a = ask_raw(plain, sizeof(plain) - 1);
	assert_int_not_equal(strncmp(a, "HTTP/", 5), 0);
	free(a);
	expect(ask_tls(cert, TLS1_3_VERSION, as_role(MC_ROLE_ADMIN)), 200, "roles=08");
}

static void tls_bytes_at_a_plain_port(void **state)
{
	assert_null(ask_tls(cert, TLS1_3_VERSION, ""));
	expect(ask("GET", "/health", "", ""), 200, "roles=00");
}

static void tls_without_tokens(void **state)
{
	serve(&(struct mc_httpd_security){ .cert = cert, .key = key });
	expect(ask_tls(cert, TLS1_3_VERSION, ""), 200, "roles=3f");
}

static void refuses(const char *where, const char *with_cert, const char *with_key, int err, const char *text)
{
	const struct mc_httpd_security sec = { true, identify, secrets, with_cert, with_key, NULL };
	int r = mc_httpd_start(where, 1, 0, routes, NULL, &sec, NULL, &server);

	assert_int_equal(r, err);
	assert_null(server);
	if (!strstr(mc_err_detail(r), text))
		fail_msg("wanted \"%s\" in: %s", text, mc_err_detail(r));
}

static void wrong_files_and_addresses_are_refused(void **state)
{
	char open_key[128], none[128];

	snprintf(none, sizeof(none), "%s/none", dir);
	snprintf(open_key, sizeof(open_key), "%s/open.key", dir);
	make_pair(none, open_key);
	assert_int_equal(unlink(none), 0);
	assert_int_equal(chmod(open_key, 0644), 0);
	refuses("0.0.0.0:0", NULL, NULL, -EACCES, "--http_tls_cert, --http_tls_key");
	refuses("0.0.0.0:0", "", "", -EACCES, "--http_tls_cert, --http_tls_key");
	refuses("[::]:0", NULL, NULL, -EACCES, "--http_tls_cert, --http_tls_key");
	refuses("127.0.0.1:0", cert, NULL, -EINVAL, "needed together");
	refuses("127.0.0.1:0", "", key, -EINVAL, "needed together");
	refuses("127.0.0.1:0", none, key, -ENOENT, "http_tls_cert: cannot read ");
	refuses("127.0.0.1:0", cert, none, -ENOENT, "http_tls_key: cannot read ");
	refuses("127.0.0.1:0", cert, open_key, -EACCES, "http_tls_key: ");
	refuses("127.0.0.1:0", cert, open_key, -EACCES, "chmod 600");
	refuses("127.0.0.1:0", dir, key, -EACCES, "is not a regular file");
	refuses("127.0.0.1:0", cert, key2, -EIO, "cannot start the HTTP server on 127.0.0.1:0: ");
	refuses("127.0.0.1:0", key, cert, -EACCES, "chmod 600");
	assert_int_equal(unlink(open_key), 0);
}

/* ---- files ---- */

static int make_files(void **state)
{
	char path[2][96];

	strcpy(dir, "/tmp/mc-httpd-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(cert, sizeof(cert), "%s/cert", dir);
	snprintf(key, sizeof(key), "%s/key", dir);
	snprintf(cert2, sizeof(cert2), "%s/cert2", dir);
	snprintf(key2, sizeof(key2), "%s/key2", dir);
	make_pair(cert, key);
	make_pair(cert2, key2);
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/secret%d", dir, i);
		if (mc_secrets_init(path[i], "pool") || mc_secrets_load(path[i], i ? &other_secrets : &secrets) ||
		    unlink(path[i]))
			return -1;
	}
	return 0;
}

static int remove_files(void **state)
{
	mc_secrets_free(secrets);
	mc_secrets_free(other_secrets);
	return unlink(cert) | unlink(key) | unlink(cert2) | unlink(key2) | rmdir(dir);
}

#define WITH_TOKENS(f) cmocka_unit_test_setup_teardown(f, serve_tokens, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TOKENS(requests_need_a_valid_token),
		WITH_TOKENS(each_role_has_its_routes),
		WITH_TOKENS(health_is_open),
		WITH_TOKENS(a_peer_without_a_token_learns_no_paths),
		WITH_TOKENS(bodies_need_a_token_too),
		WITH_TOKENS(refusals_have_records),
		WITH_TOKENS(tls_bytes_at_a_plain_port),
		cmocka_unit_test_teardown(without_a_check_no_token_is_valid, stop),
		cmocka_unit_test_teardown(without_security_all_is_open, stop),
		cmocka_unit_test_teardown(tls_with_and_without_a_token, stop),
		cmocka_unit_test_teardown(tls_without_tokens, stop),
		cmocka_unit_test(wrong_files_and_addresses_are_refused),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
