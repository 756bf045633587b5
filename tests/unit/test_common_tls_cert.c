/* SPDX-License-Identifier: Apache-2.0
 * test_common_tls_cert.c - certificates as identities of TLS, beside keys. */
#include <config.h>

#include "common/security/tls.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/security/tls_map.h"
#include "common/sys/clock.h"

#define MASTER "URI:spiffe://p/master"
#define CLIENT "URI:spiffe://p/client/1"
#define BOTH "clientAuth,serverAuth"

static const char map_text[] =
	"# a map\n\n"
	"spiffe://p/master\tmaster * m1\n"
	"spiffe://p/client/1 client ml train\n"
	"spiffe://p/client/* reader all any\n"
	"spiffe://p/admin admin * boss\r\n";

static char dir[] = "/tmp/mc-tls-cert-XXXXXX";
static EVP_PKEY *ca_key, *other_key;
static const uint8_t key_of_all[MC_KEY_LEN] = "the key of each peer, for a test";

/* ---- files ---- */

static const char *in_dir(const char *name)
{
	static char path[16][64];
	static unsigned next;
	char *p = path[next++ % 16];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static FILE *create(const char *name, mode_t mode)
{
	FILE *f = fopen(in_dir(name), "w");

	assert_non_null(f);
	assert_int_equal(fchmod(fileno(f), mode), 0);
	return f;
}

static void write_text(const char *name, const char *text, mode_t mode)
{
	FILE *f = create(name, mode);

	fputs(text, f);
	fclose(f);
}

static void extend(X509 *x, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	assert_non_null(e);
	X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
}

/* Files NAME.crt and NAME.key; @issuer NULL: an authority that signs itself. */
static EVP_PKEY *certify(const char *name, const char *san, const char *purposes, EVP_PKEY *issuer,
			 const char *issuer_name, long valid_s)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	static long serial;
	X509 *x = X509_new();
	X509_NAME *n = X509_NAME_new();
	char file[32];
	FILE *f;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(x), -7200);
	X509_gmtime_adj(X509_getm_notAfter(x), valid_s);
	X509_set_pubkey(x, key);
	X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_subject_name(x, n);
	X509_NAME_free(n);
	n = X509_NAME_new();
	X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_ASC, (const unsigned char *)(issuer ? issuer_name : name), -1,
				   -1, 0);
	X509_set_issuer_name(x, n);
	X509_NAME_free(n);
	extend(x, NID_basic_constraints, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (san)
		extend(x, NID_subject_alt_name, san);
	if (purposes)
		extend(x, NID_ext_key_usage, purposes);
	assert_true(X509_sign(x, issuer ? issuer : key, EVP_sha256()) > 0);
	snprintf(file, sizeof(file), "%s.crt", name);
	f = create(file, 0644);
	PEM_write_X509(f, x);
	fclose(f);
	snprintf(file, sizeof(file), "%s.key", name);
	f = create(file, 0600);
	PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	X509_free(x);
	return key;
}

static void certify_peer(const char *name, const char *san, const char *purposes, long valid_s)
{
	EVP_PKEY_free(certify(name, san, purposes, ca_key, "ca", valid_s));
}

/* ---- connections ---- */

static int identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	if (r == 0) {
		memcpy(key, key_of_all, MC_KEY_LEN);
		mc_identity_principal(&id, ret);
	}
	return r;
}

static int present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	ret->id = (struct mc_identity){ .secret = 1, .role = MC_ROLE_ADMIN, .serial = 7, .expires_s = UINT64_MAX,
					.cluster = "p", .tenant = "*", .name = "key" };
	memcpy(ret->key, arg ? arg : key_of_all, MC_KEY_LEN);
	return mc_identity_format(&ret->id, ret->text) > 0 ? 0 : -EINVAL;
}

static int tls_of(const char *name, const char *ca, struct mc_tls **ret)
{
	char cert[32], key[32];
	struct mc_tls_conf conf = { .inner = mc_net_plain(), .identify = identify, .service = "test" };

	snprintf(cert, sizeof(cert), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	conf.cert = in_dir(cert);
	conf.key = in_dir(key);
	conf.ca = in_dir(ca);
	conf.map = in_dir("map");
	return mc_tls_new(&conf, ret);
}

struct accepting {
	struct mc_listener l;
	struct mc_principal principal;
	int r;
	char why[256];		/* detail of @r */
};

/* Accept one peer and wait for its byte. */
static void *accept_one(void *arg)
{
	struct accepting *a = arg;
	struct mc_stream_peer peer = { .principal = NULL };
	struct mc_stream s;

	assert_int_equal(mc_listener_wait(&a->l, mc_deadline_ms(5000)), 1);
	assert_int_equal(mc_listener_accept(&a->l, &s), 0);
	while ((a->r = mc_stream_peek(&s)) == -EAGAIN)
		(void)mc_stream_wait(&s, POLLIN, mc_deadline_ms(5000));
	if (a->r < 0)
		snprintf(a->why, sizeof(a->why), "%s", mc_err_detail(a->r));
	mc_stream_peer(&s, &peer);
	if (peer.principal)
		a->principal = *peer.principal;
	mc_stream_close(&s);
	return NULL;
}

/* Connect @client to @server and send a byte.  Results of both sides: the connection's, and peek's. */
static int meet(struct mc_tls *client, struct mc_tls *server, struct accepting *a)
{
	const struct iovec iov = { (void *)(uintptr_t)"x", 1 };
	struct mc_stream s;
	pthread_t t;
	int r;

	memset(a, 0, sizeof(*a));
	assert_int_equal(mc_net_listen(mc_tls_net(server), "127.0.0.1:0", 1, &a->l), 0);
	assert_int_equal(pthread_create(&t, NULL, accept_one, a), 0);
	r = mc_net_connect(mc_tls_net(client), a->l.addr, mc_deadline_ms(5000), &s);
	if (r == 0) {
		(void)mc_stream_send(&s, &iov, 1);
		pthread_join(t, NULL);
		mc_stream_close(&s);
	} else {
		pthread_join(t, NULL);
	}
	mc_listener_close(&a->l);
	return r;
}

/* Client @name with authorities @ca against server "master". */
static int meet_as(const char *name, const char *ca, const char *server_name, struct accepting *a)
{
	struct mc_tls *client, *server;
	int r;

	assert_int_equal(tls_of(name, ca, &client), 0);
	assert_int_equal(tls_of(server_name, "ca.crt", &server), 0);
	r = meet(client, server, a);
	mc_tls_free(client);
	mc_tls_free(server);
	return r;
}

static void refused_by_server(const char *name, const char *why)
{
	struct accepting a;

	(void)meet_as(name, "ca.crt", "master", &a);
	assert_true(a.r < 0);
	if (!strstr(a.why, why))
		fail_msg("%s: %s", name, a.why);
	assert_int_equal(a.principal.source, MC_PRINCIPAL_ANYONE);
	assert_int_equal(a.principal.roles, 0);
}

static void refused_by_client(const char *server, const char *ca, const char *why)
{
	struct accepting a;
	int r = meet_as("client", ca, server, &a);

	assert_int_equal(r, -EACCES);
	if (!strstr(mc_err_detail(r), why))
		fail_msg("%s", mc_err_detail(r));
	assert_true(a.r <= 0);
}

/* ---- tests ---- */

static void test_identity(void **state)
{
	struct accepting a;

	assert_int_equal(meet_as("client", "ca.crt", "master", &a), 0);
	assert_int_equal(a.r, 1);
	assert_int_equal(a.principal.source, MC_PRINCIPAL_CREDENTIAL);
	assert_int_equal(a.principal.roles, MC_ROLE_CLIENT);
	assert_string_equal(a.principal.tenant, "ml");
	assert_string_equal(a.principal.name, "train");
	assert_int_equal(a.principal.secret, 0);
	assert_true(a.principal.serial != 0);
	assert_in_range(a.principal.expires_s, mc_wall_ms() / 1000 + 3500, mc_wall_ms() / 1000 + 3700);

	assert_int_equal(meet_as("wild", "ca.crt", "master", &a), 0);
	assert_int_equal(a.principal.roles, MC_ROLE_READER);
}

static void test_refused(void **state)
{
	refused_by_server("expired", "expired");
	refused_by_server("stranger", "issuer");
	refused_by_server("no_san", "0 URIs");
	refused_by_server("no_uri", "0 URIs");
	refused_by_server("unmapped", "no line of the map");
	refused_by_server("two_uris", "2 URIs");
	refused_by_server("server_only", "purpose");
}

static void test_server_refused(void **state)
{
	refused_by_client("client_only", "ca.crt", "purpose");
	refused_by_client("admin", "ca.crt", "not master");
	refused_by_client("expired_master", "ca.crt", "expired");
	refused_by_client("master", "other.crt", "issuer");
}

/* A key works beside certificates, and a wrong one is not saved by them; without certificates none is accepted. */
static void test_keys(void **state)
{
	struct mc_tls_conf conf = { .inner = mc_net_plain(), .identify = identify, .present = present };
	struct mc_tls *with_key, *wrong_key, *keys_only, *server, *client;
	uint8_t wrong[MC_KEY_LEN] = "another";
	struct accepting a;

	assert_int_equal(mc_tls_new(&conf, &with_key), 0);
	conf.arg = wrong;
	assert_int_equal(mc_tls_new(&conf, &wrong_key), 0);
	conf.arg = NULL;
	assert_int_equal(mc_tls_new(&conf, &keys_only), 0);
	assert_int_equal(tls_of("master", "ca.crt", &server), 0);
	assert_int_equal(tls_of("client", "ca.crt", &client), 0);
	assert_int_equal(meet(with_key, server, &a), 0);
	assert_int_equal(a.principal.secret, 1);
	assert_string_equal(a.principal.name, "key");
	assert_true(meet(wrong_key, server, &a) < 0);
	assert_true(a.r < 0);
	assert_int_equal(a.principal.roles, 0);
	assert_true(meet(client, keys_only, &a) < 0);
	assert_true(a.r < 0);
	assert_int_equal(a.principal.roles, 0);
	mc_tls_free(with_key);
	mc_tls_free(wrong_key);
	mc_tls_free(keys_only);
	mc_tls_free(server);
	mc_tls_free(client);
}

/* New files are used by new connections; ones that are broken are not. */
static void test_rotation(void **state)
{
	struct mc_tls *client, *server;
	struct accepting a;
	uint64_t serial;

	certify_peer("turning", CLIENT, BOTH, 3600);
	assert_int_equal(tls_of("turning", "ca.crt", &client), 0);
	assert_int_equal(tls_of("master", "ca.crt", &server), 0);
	assert_int_equal(meet(client, server, &a), 0);
	serial = a.principal.serial;
	write_text("map", "spiffe://p/master master * m1\nspiffe://p/client/1 admin * boss\n", 0644);
	write_text("turning.crt", "nothing\n", 0644);
	mc_clock_fake(mc_now_ns() + 1100 * MC_NS_PER_MS);
	assert_int_equal(meet(client, server, &a), 0);
	assert_int_equal(a.principal.serial, serial);
	assert_int_equal(a.principal.roles, MC_ROLE_ADMIN);
	certify_peer("turning", CLIENT, BOTH, 3600);
	write_text("map", map_text, 0644);
	mc_clock_fake(mc_now_ns() + 1100 * MC_NS_PER_MS);
	assert_int_equal(meet(client, server, &a), 0);
	assert_true(a.principal.serial != serial);
	assert_int_equal(a.principal.roles, MC_ROLE_CLIENT);
	mc_clock_real();
	mc_tls_free(client);
	mc_tls_free(server);
}

static void refused_files(const char *name, const char *ca, const char *why)
{
	struct mc_tls *t;
	int r = tls_of(name, ca, &t);

	assert_true(r < 0);
	if (!strstr(mc_err_detail(r), why))
		fail_msg("%s", mc_err_detail(r));
}

static void test_files(void **state)
{
	refused_files("absent", "ca.crt", "absent.crt");
	refused_files("client", "map", "no certificate of an authority");
	chmod(in_dir("client.key"), 0640);
	refused_files("client", "ca.crt", "only its owner can read");
	chmod(in_dir("client.key"), 0600);
	chmod(in_dir("map"), 0664);
	refused_files("client", "ca.crt", "only its owner can write");
	chmod(in_dir("map"), 0644);
	chmod(in_dir("ca.crt"), 0646);
	refused_files("client", "ca.crt", "only its owner can write");
	chmod(in_dir("ca.crt"), 0644);
	assert_int_equal(rename(in_dir("admin.key"), in_dir("kept.key")), 0);
	assert_int_equal(link(in_dir("client.key"), in_dir("admin.key")), 0);
	refused_files("admin", "ca.crt", "key of the certificate");
	assert_int_equal(rename(in_dir("kept.key"), in_dir("admin.key")), 0);
}

static int parse(const char *text)
{
	char copy[256];
	struct mc_tls_map *m;
	int r;

	snprintf(copy, sizeof(copy), "%s", text);
	r = mc_tls_map_parse(copy, "map", &m);
	if (r == 0)
		mc_tls_map_free(m);
	return r;
}

static void test_map(void **state)
{
	static const char *const bad[] = {
		"a://b client t", "a://b client t n x", "a client t n", "a://*b client t n", "a://b** client t n",
		"* admin * n", "a://b node t n", "a://b root t n", "a://b client t/ n", "a://b client t *", "a://b",
		"a://b client t n\nx",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (parse(bad[i]) != -EINVAL)
			fail_msg("%s", bad[i]);
	assert_int_equal(parse(""), 0);
	assert_int_equal(parse("#\n \t\na://* metrics * n"), 0);
}

static int set_up(void **state)
{
	assert_non_null(mkdtemp(dir));
	ca_key = certify("ca", NULL, NULL, NULL, NULL, 3600);
	other_key = certify("other", NULL, NULL, NULL, NULL, 3600);
	certify_peer("master", MASTER, BOTH, 3600);
	certify_peer("expired_master", MASTER, BOTH, -60);
	certify_peer("client", CLIENT, BOTH, 3600);
	certify_peer("wild", "URI:spiffe://p/client/12", BOTH, 3600);
	certify_peer("admin", "URI:spiffe://p/admin", BOTH, 3600);
	certify_peer("expired", CLIENT, BOTH, -60);
	EVP_PKEY_free(certify("stranger", CLIENT, BOTH, other_key, "other", 3600));
	certify_peer("no_san", NULL, BOTH, 3600);
	certify_peer("no_uri", "DNS:spiffe.p", BOTH, 3600);
	certify_peer("unmapped", "URI:spiffe://p/clients", BOTH, 3600);
	certify_peer("two_uris", CLIENT ",URI:spiffe://p/admin", BOTH, 3600);
	certify_peer("server_only", CLIENT, "serverAuth", 3600);
	certify_peer("client_only", MASTER, "clientAuth", 3600);
	write_text("map", map_text, 0644);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(other_key);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_server_refused),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_rotation),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_map),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
