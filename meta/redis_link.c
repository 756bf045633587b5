/* SPDX-License-Identifier: Apache-2.0
 * redis_link.c - connections to redis: a socket, and over it TLS if the address wants that. */
#include <config.h>

#include "meta/redis_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "meta/credentials.h"
#include "meta/meta_i.h"

/* Interval of the checks whether the call was cancelled. */
#define SLICE_MS 200
#define CONNECT_SLICE_MS 1000
#define RECORD 16384u

struct mcd_link {
	int fd;
	const char *addr;
	SSL *ssl;		/* NULL: no TLS; its BIOs are memory */
	const struct mcd_credentials *tls;
};

/* ---- bytes ------------------------------------------------------------------------------------- */

static int raw_wait(struct mcd_link *l, short events, const struct mcd_wait *w)
{
	struct pollfd p = { .fd = l->fd, .events = events };
	int ms, n, r;

	for (;;) {
		r = mcd_wait_check(w, l->addr);
		if (r < 0)
			return r;
		ms = mc_deadline_left_ms(w->deadline);
		n = poll(&p, 1, w->cancel && ms > SLICE_MS ? SLICE_MS : ms);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int raw_error(struct mcd_link *l, int err)
{
	return mc_fail(err, "redis at %s: %s", l->addr,
		       err == -ECONNRESET ? "connection closed" : mc_strerror(err));
}

static int raw_send(struct mcd_link *l, const char *p, size_t len, const struct mcd_wait *w)
{
	ssize_t n;
	int r;

	while (len) {
		n = mc_socket_send(l->fd, p, len);
		r = n == -EAGAIN ? raw_wait(l, POLLOUT, w) : n < 0 ? raw_error(l, (int)n) : 0;
		if (r < 0)
			return r;
		if (n < 0)
			continue;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static ssize_t raw_recv(struct mcd_link *l, char *buf, size_t size, const struct mcd_wait *w)
{
	ssize_t n;
	int r;

	for (;;) {
		n = mc_socket_recv(l->fd, buf, size);
		if (n > 0)
			return n;
		r = n == -EAGAIN ? raw_wait(l, POLLIN, w) : raw_error(l, n ? (int)n : -ECONNRESET);
		if (r < 0)
			return r;
	}
}

/* ---- TLS --------------------------------------------------------------------------------------- */

static int tls_error(struct mcd_link *l)
{
	unsigned long code = ERR_peek_last_error();
	long verified = SSL_get_verify_result(l->ssl);
	const char *why = code ? ERR_reason_error_string(code) : NULL;
	int r;

	if (verified != X509_V_OK)
		why = X509_verify_cert_error_string(verified);
	r = mc_fail(-EIO, "redis at %s: TLS: %s", l->addr, why ? why : "unknown error");
	return mcd_tls_advise(r, l->tls, true, "redis://", "rediss://");
}

/* After a call of OpenSSL that returned @r: send the bytes that it has produced, and receive more if it wants them.
 * 0: call it again. */
static int tls_step(struct mcd_link *l, int r, const struct mcd_wait *w)
{
	int err = SSL_get_error(l->ssl, r), n;
	char buf[RECORD];
	ssize_t got;

	while ((n = BIO_read(SSL_get_wbio(l->ssl), buf, sizeof(buf))) > 0) {
		int sent = raw_send(l, buf, (size_t)n, w);

		if (sent < 0)
			return sent;
	}
	if (r > 0)
		return 0;
	if (err == SSL_ERROR_ZERO_RETURN)
		return raw_error(l, -ECONNRESET);
	if (err != SSL_ERROR_WANT_READ)
		return tls_error(l);
	got = raw_recv(l, buf, sizeof(buf), w);
	if (got < 0)
		return (int)got;
	return BIO_write(SSL_get_rbio(l->ssl), buf, (int)got) == got ? 0 : mc_fail(-ENOMEM, "no memory for TLS");
}

static int tls_shake(struct mcd_link *l, const struct mcd_wait *w)
{
	int done, r;

	do {
		ERR_clear_error();
		done = SSL_connect(l->ssl);
		r = tls_step(l, done, w);
	} while (r == 0 && done != 1);
	/* Without TLS, redis waits for the end of the line. */
	if (r == -ECONNRESET || r == -ETIMEDOUT)
		return mc_fail(r, "redis at %s: TLS handshake: %s: does the server speak TLS? Without it, write "
			       "redis://", l->addr, r == -ETIMEDOUT ? "no answer in time" : "connection closed");
	return r;
}

static int tls_files_error(struct mcd_link *l, const char *what, const char *path)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	return mc_fail(-EINVAL, "redis at %s: cannot use %s %s: %s", l->addr, what, path, why ? why : "unknown error");
}

/* Else OpenSSL asks at the terminal for the passphrase of an encrypted key. */
static int tls_no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	return 0;
}

static int tls_use_files(struct mcd_link *l, SSL_CTX *ctx)
{
	const struct mcd_credentials *c = l->tls;

	ERR_clear_error();
	SSL_CTX_set_default_passwd_cb(ctx, tls_no_passphrase);
	if (c->ca ? SSL_CTX_load_verify_file(ctx, c->ca) != 1 : SSL_CTX_set_default_verify_paths(ctx) != 1)
		return tls_files_error(l, "ca", c->ca ? c->ca : "of the system");
	if (c->cert && SSL_CTX_use_certificate_chain_file(ctx, c->cert) != 1)
		return tls_files_error(l, "cert", c->cert);
	if (c->key && SSL_CTX_use_PrivateKey_file(ctx, c->key, SSL_FILETYPE_PEM) != 1)
		return tls_files_error(l, "key", c->key);
	return 0;
}

/* The certificate must be for the host of the address. */
static int tls_name(struct mcd_link *l)
{
	char host[MC_ADDR_MAX];
	struct in6_addr ip;
	int port, r = mc_addr_split(l->addr, host, sizeof(host), -1, &port);

	if (r < 0)
		return r;
	if (inet_pton(AF_INET, host, &ip) == 1 || inet_pton(AF_INET6, host, &ip) == 1)
		r = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(l->ssl), host);
	else
		r = SSL_set1_host(l->ssl, host) == 1 && SSL_set_tlsext_host_name(l->ssl, host) == 1;
	return r == 1 ? 0 : mc_fail(-EINVAL, "redis at %s: no certificate can have this name", l->addr);
}

static int tls_open(struct mcd_link *l)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	int r = ctx ? tls_use_files(l, ctx) : 0;

	if (r == 0 && ctx) {
		SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
		l->ssl = SSL_new(ctx);
	}
	SSL_CTX_free(ctx);
	if (!l->ssl || !in || !out) {
		BIO_free(in);
		BIO_free(out);
		return r < 0 ? r : mc_fail(-ENOMEM, "no memory for TLS");
	}
	SSL_set_bio(l->ssl, in, out);
	return tls_name(l);
}

/* ---- links ------------------------------------------------------------------------------------- */

int mcd_link_open(const char *addr, const struct mcd_credentials *tls, const struct mcd_wait *w, struct mcd_link **ret)
{
	struct mcd_link *l = calloc(1, sizeof(*l));
	uint64_t latest = mc_deadline_ms(CONNECT_SLICE_MS), deadline = w->deadline;
	int r;

	if (!l)
		return mc_fail(-ENOMEM, "no memory for a redis connection");
	/* A connect cannot be cancelled, so limit its time. */
	if (w->cancel && latest < deadline)
		deadline = latest;
	l->addr = addr;
	l->tls = tls;
	r = l->fd = mc_socket_connect(addr, deadline);
	if (r >= 0)
		r = tls ? tls_open(l) : 0;
	if (r == 0 && tls)
		r = tls_shake(l, w);
	if (r < 0) {
		mcd_link_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

void mcd_link_close(struct mcd_link *l)
{
	if (!l)
		return;
	SSL_free(l->ssl);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

int mcd_link_send(struct mcd_link *l, const char *p, size_t len, const struct mcd_wait *w)
{
	int n, r = 0;

	if (!l->ssl)
		return raw_send(l, p, len, w);
	while (r == 0 && len) {
		ERR_clear_error();
		n = SSL_write(l->ssl, p, len < RECORD ? (int)len : (int)RECORD);
		r = tls_step(l, n, w);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return r;
}

ssize_t mcd_link_recv(struct mcd_link *l, char *buf, size_t size, const struct mcd_wait *w)
{
	int n, r;

	if (!l->ssl)
		return raw_recv(l, buf, size, w);
	do {
		ERR_clear_error();
		n = SSL_read(l->ssl, buf, size < INT_MAX ? (int)size : INT_MAX);
		r = n > 0 ? 0 : tls_step(l, n, w);
	} while (r == 0 && n <= 0);
	return r < 0 ? r : n;
}
