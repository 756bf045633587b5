/* SPDX-License-Identifier: Apache-2.0
 * tls_cert.c - the certificate of this side, its authorities, and the identities of peers with certificates. */
#include <config.h>

#include "common/security/tls_cert.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/security/secret_file.h"
#include "common/security/tls_map.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/lock.h"

#define FILE_SIZE 262144u	/* longest file, with its NUL */
#define RELOAD_MS 1000u		/* the files are looked at this often */
#define URI_MAX 2048		/* bytes, as SPIFFE has it */
#define CHAIN_BYTES 32768	/* longest chain of a peer; OpenSSL allocates it before anything is proved */

enum { CERT, KEY, CA, MAP, FILES };

struct mc_tls_certs {
	char *path[FILES];
	SSL_CTX *(*make)(void);
	struct mc_mutex lock;
	/* guarded by lock */
	SSL_CTX *ctx;
	struct mc_tls_map *map;
	struct stat seen[FILES];	/* the files when they were read */
	uint64_t look_ms;
};

/* ---- files ------------------------------------------------------------------------------------- */

/* A key that is encrypted cannot be used; OpenSSL would ask at the terminal. */
static int no_password(char *buf, int size, int rw, void *arg)
{
	return -1;
}

static int use_chain(SSL_CTX *ctx, BIO *b, const char *path)
{
	X509 *x = PEM_read_bio_X509(b, NULL, no_password, NULL);
	bool good = x && SSL_CTX_use_certificate(ctx, x);

	X509_free(x);
	while (good && (x = PEM_read_bio_X509(b, NULL, no_password, NULL))) {
		good = SSL_CTX_add0_chain_cert(ctx, x);
		if (!good)
			X509_free(x);
	}
	return good ? 0 : mc_fail(-EINVAL, "%s has no certificate in PEM that can be used", path);
}

static int use_key(SSL_CTX *ctx, BIO *b, const char *path)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_password, NULL);
	bool good = key && SSL_CTX_use_PrivateKey(ctx, key) && SSL_CTX_check_private_key(ctx);

	EVP_PKEY_free(key);
	return good ? 0 : mc_fail(-EINVAL, "%s is not the unencrypted PEM key of the certificate", path);
}

static int use_authorities(SSL_CTX *ctx, BIO *b, const char *path)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	bool good = true;
	unsigned n = 0;
	X509 *x;

	while (good && (x = PEM_read_bio_X509(b, NULL, no_password, NULL))) {
		good = X509_STORE_add_cert(store, x);
		X509_free(x);
		n++;
	}
	return good && n ? 0 : mc_fail(-EINVAL, "%s has no certificate of an authority in PEM", path);
}

static int use_file(struct mc_tls_certs *c, unsigned i, char *text, SSL_CTX *ctx, struct mc_tls_map **map)
{
	int r = i == KEY ? mc_secret_file_read(c->path[i], text, FILE_SIZE) :
		mc_trusted_file_read(c->path[i], text, FILE_SIZE);
	BIO *b;

	if (r < 0)
		return r;
	if (i == MAP)
		return mc_tls_map_parse(text, c->path[i], map);
	b = BIO_new_mem_buf(text, r);
	if (!b)
		return mc_fail(-ENOMEM, "no memory for %s", c->path[i]);
	r = i == CERT ? use_chain(ctx, b, c->path[i]) : i == KEY ? use_key(ctx, b, c->path[i]) :
		use_authorities(ctx, b, c->path[i]);
	BIO_free(b);
	ERR_clear_error();
	return r;
}

static int certs_stat(const struct mc_tls_certs *c, struct stat ret[FILES])
{
	for (unsigned i = 0; i < FILES; i++)
		if (mc_file_stat(c->path[i], &ret[i]) < 0)
			return mc_fail(-errno, "cannot read %s: %s", c->path[i], mc_strerror(errno));
	return 0;
}

/* Read all files; on failure nothing has changed. */
static int certs_read_locked(struct mc_tls_certs *c)
{
	char *text = malloc(FILE_SIZE);
	struct mc_tls_map *map = NULL;
	SSL_CTX *ctx = c->make();
	struct stat seen[FILES];
	int r = text && ctx ? certs_stat(c, seen) : mc_fail(-ENOMEM, "no memory for certificates");

	for (unsigned i = 0; r == 0 && i < FILES; i++) {
		r = use_file(c, i, text, ctx, &map);
		OPENSSL_cleanse(text, FILE_SIZE);
	}
	free(text);
	if (r < 0) {
		SSL_CTX_free(ctx);
		mc_tls_map_free(map);
		return r;
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	/* The chain is that of the file; OpenSSL would add certificates of authorities. */
	SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
	SSL_CTX_set_max_cert_list(ctx, CHAIN_BYTES);
	SSL_CTX_free(c->ctx);
	mc_tls_map_free(c->map);
	c->ctx = ctx;
	c->map = map;
	memcpy(c->seen, seen, sizeof(seen));
	return 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_size == b->st_size;
}

/* A certificate and its key may be replaced one after the other: files that do not fit are tried again. */
static void certs_refresh_locked(struct mc_tls_certs *c)
{
	uint64_t now = mc_now_ms();
	struct stat seen[FILES];
	unsigned same = 0;
	int r;

	if (now < c->look_ms)
		return;
	c->look_ms = now + RELOAD_MS;
	r = certs_stat(c, seen);
	for (unsigned i = 0; r == 0 && i < FILES; i++)
		same += same_file(&seen[i], &c->seen[i]);
	if (r == 0 && same == FILES)
		return;
	if (r == 0)
		r = certs_read_locked(c);
	if (r < 0)
		mc_warn("tls", "the certificates were not read again, the old ones stay: %s", mc_err_detail(r));
	else
		mc_info("tls", "the certificates were read again cert=%s", c->path[CERT]);
}

int mc_tls_certs_new(const struct mc_tls_conf *conf, SSL_CTX *(*make)(void), struct mc_tls_certs **ret)
{
	const char *const path[FILES] = { conf->cert, conf->key, conf->ca, conf->map };
	struct mc_tls_certs *c;
	bool good = true;
	int r;

	for (unsigned i = 0; i < FILES; i++)
		if (!path[i] || !*path[i])
			return mc_fail(-EINVAL, "certificates need four files: certificate, key, authorities and map");
	c = calloc(1, sizeof(*c));
	if (!c)
		return mc_fail(-ENOMEM, "no memory for certificates");
	mc_mutex_init(&c->lock);
	c->make = make;
	for (unsigned i = 0; i < FILES; i++) {
		c->path[i] = strdup(path[i]);
		good &= c->path[i] != NULL;
	}
	mc_mutex_lock(&c->lock);
	r = good ? certs_read_locked(c) : mc_fail(-ENOMEM, "no memory for certificates");
	mc_mutex_unlock(&c->lock);
	if (r < 0) {
		mc_tls_certs_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void mc_tls_certs_free(struct mc_tls_certs *c)
{
	if (!c)
		return;
	SSL_CTX_free(c->ctx);
	mc_tls_map_free(c->map);
	for (unsigned i = 0; i < FILES; i++)
		free(c->path[i]);
	mc_mutex_destroy(&c->lock);
	free(c);
}

SSL *mc_tls_certs_ssl(struct mc_tls_certs *c)
{
	MC_LOCKED(&c->lock);
	certs_refresh_locked(c);
	return SSL_new(c->ctx);
}

/* ---- identities -------------------------------------------------------------------------------- */

/* The only URI of the certificate.  With two, the map would decide between them, and the authority meant one. */
static int cert_uri(X509 *x, char ret[URI_MAX + 1])
{
	GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	unsigned n = 0;
	bool good = true;

	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
		const char *text;
		int len;

		if (g->type != GEN_URI)
			continue;
		n++;
		text = (const char *)ASN1_STRING_get0_data(g->d.uniformResourceIdentifier);
		len = ASN1_STRING_length(g->d.uniformResourceIdentifier);
		good &= len > 0 && len <= URI_MAX;
		for (int j = 0; good && j < len; j++)
			good = text[j] > ' ' && text[j] < 0x7f;
		if (good) {
			memcpy(ret, text, (size_t)len);
			ret[len] = '\0';
		}
	}
	GENERAL_NAMES_free(names);
	if (n == 1 && good)
		return 0;
	return mc_fail(-EACCES, "the peer's certificate has %u URIs as alternative names, not one of up to %u bytes",
		       n, URI_MAX);
}

static int cert_serial(const X509 *x, uint64_t *ret)
{
	uint8_t hash[SHA256_DIGEST_LENGTH];
	unsigned len = sizeof(hash);

	if (!X509_digest(x, EVP_sha256(), hash, &len))
		return mc_fail(-ENOMEM, "no memory for the peer's certificate");
	*ret = 0;
	for (unsigned i = 0; i < 8; i++)
		*ret = *ret << 8 | hash[i];
	*ret += !*ret;	/* 0 is none */
	return 0;
}

int mc_tls_certs_principal(struct mc_tls_certs *c, const SSL *ssl, struct mc_principal *ret)
{
	X509 *x = SSL_get0_peer_certificate(ssl);
	struct mc_principal p;
	char uri[URI_MAX + 1];
	struct tm tm;
	int r;

	if (!x || SSL_get_verify_result(ssl) != X509_V_OK)
		return mc_fail(-EACCES, "the peer has shown neither a credential nor a certificate");
	r = cert_uri(x, uri);
	if (r == 0) {
		MC_LOCKED(&c->lock);
		r = mc_tls_map_find(c->map, uri, &p);
	}
	if (r == 0)
		r = cert_serial(x, &p.serial);
	if (r == 0 && !ASN1_TIME_to_tm(X509_get0_notAfter(x), &tm))
		r = mc_fail(-EACCES, "the peer's certificate has no end of validity");
	if (r < 0)
		return r;
	p.expires_s = (uint64_t)timegm(&tm);
	*ret = p;
	return 0;
}
