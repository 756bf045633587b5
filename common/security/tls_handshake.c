/* SPDX-License-Identifier: Apache-2.0
 * tls_handshake.c - handshakes of TLS with keys of identities, and the errors of OpenSSL. */
#include <config.h>

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/security/tls_i.h"
#include "common/sys/clock.h"

MC_COUNTER(handshakes, "mooncake_tls_handshakes_total", "", "TLS handshakes that were completed, of both sides")
MC_COUNTER(refused, "mooncake_tls_refused_total", "", "TLS handshakes that failed, of both sides")

/* ---- keys -------------------------------------------------------------------------------------- */

/* See each message: refuse a second ClientHello, whose length nothing limits.  Both sides have the same group. */
void mc_tls_see_message(int written, int version, int type, const void *data, size_t len, SSL *ssl, void *arg)
{
	/* The random number of a HelloRetryRequest begins so (RFC 8446, 4.1.3). */
	static const uint8_t retry[4] = { 0xcf, 0x21, 0xad, 0x74 };
	struct tls_stream *t = SSL_get_app_data(ssl);
	const uint8_t *message = data;

	if (type != SSL3_RT_HANDSHAKE || !t)
		return;
	if (written && len > 10 && message[0] == SSL3_MT_SERVER_HELLO && !memcmp(message + 6, retry, sizeof(retry)))
		t->stop = "the peer has no key share of our group";
}

/* Keep the secrets of the records after the handshake.  OpenSSL tells them as lines of text, in the format of
 * SSLKEYLOGFILE: label, random number of the client, secret. */
void mc_tls_see_secret(const SSL *ssl, const char *line)
{
	static const char *const labels[2] = { "SERVER_TRAFFIC_SECRET_0 ", "CLIENT_TRAFFIC_SECRET_0 " };
	struct tls_stream *t = SSL_get_app_data(ssl);
	const char *hex = strrchr(line, ' ');
	unsigned client = !strncmp(line, labels[1], strlen(labels[1]));
	struct tls_direction *d;
	size_t len;

	if (!t || !hex || (!client && strncmp(line, labels[0], strlen(labels[0]))))
		return;
	d = client == t->server ? &t->rx : &t->tx;
	if (OPENSSL_hexstr2buf_ex(d->secret, sizeof(d->secret), &len, hex + 1, '\0') && len == sizeof(d->secret))
		t->secrets |= 1u << client;
}

/* Accepting side: plain bytes, if both sides want them.  A peer that offers nothing gets records. */
int mc_tls_choose(SSL *ssl, const unsigned char **ret, unsigned char *ret_len, const unsigned char *offered, unsigned n,
		  void *arg)
{
	static const unsigned char protected[] = MC_TLS_ALPN;
	const struct mc_tls *tls = arg;
	const unsigned char *wanted = tls->conf.plain_data ? protected : protected + sizeof(MC_TLS_PLAIN) - 1;
	unsigned len = (unsigned)(protected + sizeof(protected) - 1 - wanted);
	unsigned char *out;

	if (SSL_select_next_proto(&out, ret_len, wanted, len, offered, n) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	*ret = out;
	return SSL_TLSEXT_ERR_OK;
}

static bool tls_chose_plain(const struct tls_stream *t)
{
	const unsigned char *name;
	unsigned len;

	SSL_get0_alpn_selected(t->ssl, &name, &len);
	return t->tls->conf.plain_data && len == sizeof(MC_TLS_PLAIN) - 2 &&
	       !memcmp(name, &MC_TLS_PLAIN[1], len);
}

static SSL_SESSION *tls_session(SSL *ssl, const uint8_t key[MC_KEY_LEN])
{
	static const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && cipher && SSL_SESSION_set1_master_key(s, key, MC_KEY_LEN) && SSL_SESSION_set_cipher(s, cipher) &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) &&
	    SSL_SESSION_set1_id_context(s, (const unsigned char *)MC_TLS_CONTEXT, sizeof(MC_TLS_CONTEXT)))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

/* Connecting side: the identity and its key. */
int mc_tls_use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **ret)
{
	struct tls_stream *t = SSL_get_app_data(ssl);

	*ret = NULL;
	if (!t->credential)
		return t->tls->certs && !t->tls->conf.present;
	/* A server that insists on another hash has no key for it. */
	if (md && EVP_MD_get_type(md) != NID_sha256)
		return 1;
	*id = (const unsigned char *)t->credential->text;
	*id_len = strlen(t->credential->text);
	*ret = tls_session(ssl, t->credential->key);
	return *ret != NULL;
}

/* Accepting side: the key of an identity. */
int mc_tls_find_psk(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **ret)
{
	struct tls_stream *t = SSL_get_app_data(ssl);
	uint8_t key[MC_KEY_LEN];
	int r;

	*ret = NULL;
	/* Only the first identity counts: a list of them must not make us derive many keys. */
	if (t->principal.source == MC_PRINCIPAL_CREDENTIAL)
		return 0;
	r = t->tls->conf.identify(t->tls->conf.arg, (const char *)id, len, key, &t->principal);
	if (r < 0) {
		t->inner_err = r;
		return 0;
	}
	*ret = tls_session(ssl, key);
	OPENSSL_cleanse(key, sizeof(key));
	return *ret != NULL;
}

/* ---- results ----------------------------------------------------------------------------------- */

static void tls_begin(struct tls_stream *t)
{
	ERR_clear_error();
	t->inner_err = 0;
}

int mc_tls_failed(const struct tls_stream *t)
{
	int r = __atomic_load_n(&t->failed, __ATOMIC_ACQUIRE);

	return r ? mc_fail(r, "TLS: an earlier error has ended the connection") : 0;
}

int mc_tls_fail(struct tls_stream *t, int err)
{
	__atomic_store_n(&t->failed, err, __ATOMIC_RELEASE);
	return err;
}

/* The error of the last call, which returned @r; 0: the peer has ended its direction. */
static ssize_t tls_error(struct tls_stream *t, int r)
{
	int why = SSL_get_error(t->ssl, r);
	unsigned long e;

	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	if (why == SSL_ERROR_ZERO_RETURN)
		return 0;
	e = ERR_get_error();
	ERR_clear_error();
	t->reason = ERR_GET_REASON(e);
	if (why == SSL_ERROR_SSL || t->stop)
		mc_tls_fail(t, t->inner_err ? t->inner_err : -EPROTO);
	if (t->inner_err)
		return mc_fail(t->inner_err, "%s", strdupa(mc_err_detail(t->inner_err)));
	if (why != SSL_ERROR_SSL)
		return __atomic_load_n(&t->closed, __ATOMIC_ACQUIRE) ? 0 :
		       mc_fail(-ECONNRESET, "the peer has closed the connection");
	if (ERR_GET_REASON(e) == SSL_R_CERTIFICATE_VERIFY_FAILED)
		return mc_fail(-EPROTO, "TLS: the peer's certificate is refused: %s",
			       X509_verify_cert_error_string(SSL_get_verify_result(t->ssl)));
	return mc_fail(-EPROTO, "TLS: %s", ERR_reason_error_string(e) ? ERR_reason_error_string(e) : "unknown error");
}

/* ---- the handshake ----------------------------------------------------------------------------- */

/* The peer without a key must have shown a certificate. */
static int tls_confirm_certificate(struct tls_stream *t)
{
	struct mc_principal p;
	int r;

	/* An identity whose key OpenSSL did not use is not proved. */
	t->principal = (struct mc_principal){ .source = MC_PRINCIPAL_ANYONE };
	if (!t->tls->certs || (!t->server && t->tls->conf.present))
		return mc_fail(-EACCES, "the peer has shown no credential");
	r = mc_tls_certs_principal(t->tls->certs, t->ssl, &p);
	if (r < 0)
		return r;
	if (t->server)
		t->principal = p;
	else if (!(p.roles & MC_ROLE_MASTER))
		return mc_fail(-EACCES, "its certificate is of role %s, not master", mc_role_name(p.roles));
	return 0;
}

/* The peer is authenticated by a key or a certificate: a handshake that OpenSSL completed without proves nothing. */
static int tls_confirm(struct tls_stream *t)
{
	int r = SSL_session_reused(t->ssl) ? 0 : tls_confirm_certificate(t);

	if (r == 0 && SSL_has_pending(t->ssl))
		r = mc_fail(-EPROTO, "TLS: OpenSSL has kept bytes behind the handshake");
	if (r < 0)
		return r;
	mc_mutex_lock(&t->lock);
	t->plain = tls_chose_plain(t);
	r = t->plain ? 0 : mc_tls_records_start(t);
	t->complete = r == 0;
	mc_mutex_unlock(&t->lock);
	SSL_free(t->ssl);
	t->ssl = NULL;
	if (r < 0)
		return r;
	if (t->tls->gate)
		mc_tls_gate_leave(t->tls->gate, &t->unproven, true);
	mc_metric_add(&handshakes, 1);
	return 0;
}

static void tls_log_refusal(struct tls_stream *t, const char *why)
{
	struct mc_stream_peer peer;

	mc_stream_peer(&t->inner, &peer);
	mc_metric_add(&refused, 1);
	mc_warn("tls", "refused: %s service=%s peer=%s", why, t->tls->conf.service ? t->tls->conf.service : "-",
		peer.name);
	if (t->tls->conf.refused)
		t->tls->conf.refused(t->tls->conf.arg, peer.name, why);
}

/* Does the peer begin with another protocol?  It gets the answer that the configuration has for it. */
static bool tls_is_plain(struct tls_stream *t)
{
	uint8_t answer[MC_TLS_PLAIN_MAX];
	struct iovec iov = { answer, 0 };

	if (!t->first_len || t->first[0] == MC_TLS_HANDSHAKE)
		return false;
	if (t->tls->conf.answer_plain)
		iov.iov_len = t->tls->conf.answer_plain(t->first, t->first_len, answer);
	if (iov.iov_len)
		(void)mc_stream_send(&t->inner, &iov, 1);
	return true;
}

int mc_tls_accept(struct tls_stream *t)
{
	bool plain;
	ssize_t r;
	int n;

	if (t->complete)
		return 1;
	n = mc_tls_failed(t);
	if (n < 0)
		return n;
	tls_begin(t);
	n = SSL_accept(t->ssl);
	if (n == 1) {
		n = tls_confirm(t);
		if (n == 0)
			return 1;
		tls_log_refusal(t, mc_err_detail(n));
		return mc_tls_fail(t, n);
	}
	plain = SSL_get_error(t->ssl, n) == SSL_ERROR_SSL && tls_is_plain(t);
	r = tls_error(t, n);
	if (r == -EAGAIN) {
		/* Our part of the handshake fits into an empty socket: a peer that lets it not has no use for us. */
		if (SSL_want_write(t->ssl))
			return mc_tls_fail(t, mc_fail(-ECONNABORTED, "the peer does not read the handshake"));
		return -EAGAIN;
	}
	if (r < 0 && r != -ECONNRESET)
		tls_log_refusal(t, plain ? "the peer speaks no TLS: give it a credential, --credential=FILE" :
				mc_err_detail((int)r));
	return (int)r;
}

/* The error of a handshake of the connecting side that failed with @r. */
static int tls_connect_failed(struct tls_stream *t, const char *addr, int r)
{
	mc_metric_add(&refused, 1);
	if (r == 0 || r == -ECONNRESET || r == -EPIPE)
		return mc_fail(-ECONNREFUSED, "%s ended the TLS handshake: it may run without --security=on, or "
			       "limit the handshakes of this host", addr);
	/* The network failed, not the peer. */
	if (t->inner_err && !t->stop)
		return mc_fail(r, "TLS handshake with %s: %s", addr, strdupa(mc_err_detail(r)));
	if (t->reason == SSL_R_WRONG_VERSION_NUMBER || t->reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
		return mc_fail(-EACCES, "%s does not speak TLS 1.3: it has no security (start the master with "
			       "--security=on, or remove the credential: --credential, MC_CREDENTIAL), is another "
			       "program, or one between changes the handshake (%s)", addr,
			       strdupa(mc_err_detail(r)));
	if (!t->credential)
		return mc_fail(-EACCES, "TLS with certificates failed at %s: %s", addr, strdupa(mc_err_detail(r)));
	return mc_fail(-EACCES, "%s refused the credential of %s: it has expired, was revoked, or is of another pool; "
		       "the log of %s has the reason (%s)", addr, t->credential->id.name, addr,
		       strdupa(mc_err_detail(r)));
}

int mc_tls_connect(struct tls_stream *t, const char *addr, uint64_t deadline)
{
	for (;;) {
		ssize_t r;
		int n;

		tls_begin(t);
		n = SSL_connect(t->ssl);
		if (n == 1) {
			n = tls_confirm(t);
			return n < 0 ? mc_fail(n, "%s is not a master of the pool: %s", addr,
					       strdupa(mc_err_detail(n))) : 0;
		}
		r = tls_error(t, n);
		if (r != -EAGAIN)
			return tls_connect_failed(t, addr, (int)r);
		/* A peer that sends its bytes one by one always has an event. */
		if (mc_now_ns() >= deadline)
			return mc_fail(-ETIMEDOUT, "%s does not complete the TLS handshake", addr);
		n = mc_stream_wait(&t->inner, SSL_want_write(t->ssl) ? POLLOUT : POLLIN, deadline);
		if (n < 0)
			return n;
	}
}
