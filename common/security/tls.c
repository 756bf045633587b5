/* SPDX-License-Identifier: Apache-2.0
 * tls.c - streams of TLS over streams.
 *
 * OpenSSL makes the handshake, in calls of the receiver or of the thread that connects.  It reads and writes the stream
 * below by a BIO, so it needs no descriptor, and a peer that has closed raises no signal.  tls_record.c makes the
 * records that follow, and the receiver needs no lock for them. */
#include <config.h>

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/security/tls_i.h"

/* Connections that one call of accept refuses, before other work has its turn. */
#define REFUSALS 64u

/* ---- operations -------------------------------------------------------------------------------- */

static void tls_unlock(struct tls_stream **t)
{
	mc_mutex_unlock(&(*t)->lock);
}

static struct tls_stream *tls_lock(const struct mc_stream *s)
{
	struct tls_stream *t = s->state;

	mc_mutex_lock(&t->lock);
	return t;
}

#define TLS_LOCKED(t, s) struct tls_stream *t __attribute__((cleanup(tls_unlock))) = tls_lock(s)

static ssize_t tls_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	int r;
	TLS_LOCKED(t, s);

	if (!t->complete)
		return mc_fail(-EPIPE, "%s", mc_strerror(EPIPE));
	r = mc_tls_failed(t);
	if (r < 0)
		return r;
	if (t->ended)
		return mc_fail(-EPIPE, "%s", mc_strerror(EPIPE));
	return t->plain ? mc_stream_send(&t->inner, iov, n) : mc_tls_records_send(t, iov, n);
}

static size_t tls_repeat(const struct mc_stream *s)
{
	TLS_LOCKED(t, s);
	return t->complete && t->plain ? mc_stream_repeat(&t->inner) : t->out_plain;
}

static struct tls_stream *tls_of(const struct mc_stream *s)
{
	return s->state;
}

/* First the bytes that arrived with the end of the handshake. */
static ssize_t tls_recv_plain(struct tls_stream *t, const struct iovec *iov, int n)
{
	size_t got = 0, part;

	if (!t->in)
		return mc_stream_recv(&t->inner, iov, n);
	for (; n && t->in_at < t->in_len; iov++, n--, got += part) {
		part = t->in_len - t->in_at < iov->iov_len ? t->in_len - t->in_at : iov->iov_len;
		if (part)
			memcpy(iov->iov_base, t->in + t->in_at, part);
		t->in_at += part;
	}
	mc_tls_in_release(t);
	return got || !n ? (ssize_t)got : mc_stream_recv(&t->inner, iov, n);
}

static ssize_t tls_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct tls_stream *t = tls_of(s);
	int r = mc_tls_accept(t);

	if (r > 0)
		return t->plain ? tls_recv_plain(t, iov, n) : mc_tls_records_recv(t, iov, n);
	t->tail = false;
	mc_tls_in_release(t);
	return r;
}

static int tls_peek(struct mc_stream *s)
{
	struct tls_stream *t = tls_of(s);
	int r = mc_tls_accept(t);

	if (r > 0 && t->plain)
		return t->in_at < t->in_len ? 1 : mc_stream_peek(&t->inner);
	if (r > 0)
		return mc_tls_records_peek(t);
	t->tail = false;
	mc_tls_in_release(t);
	return r;
}

static size_t tls_pending(const struct mc_stream *s)
{
	const struct tls_stream *t = tls_of(s);

	if (t->complete && t->plain)
		return t->in_at < t->in_len ? t->in_len - t->in_at : mc_stream_pending(&t->inner);
	return t->complete ? mc_tls_records_pending(t) : 0;
}

static int tls_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	return mc_stream_wait(&tls_of(s)->inner, events, deadline);
}

static void tls_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	TLS_LOCKED(t, s);
	mc_stream_peer(&t->inner, ret);
	if (t->complete && t->principal.source == MC_PRINCIPAL_CREDENTIAL)
		ret->principal = &t->principal;
}

static void tls_tune(struct mc_stream *s, const struct mc_stream_tuning *tuning)
{
	mc_stream_tune(&tls_of(s)->inner, tuning);
}

/* Tell the peer that no more bytes follow, so that it can tell an end from a cut. */
static void tls_end_locked(struct tls_stream *t)
{
	if (t->complete && !t->plain)
		mc_tls_alert(t, MC_TLS_CLOSE_NOTIFY);
	t->ended = true;
}

static void tls_shutdown(struct mc_stream *s, int how)
{
	TLS_LOCKED(t, s);
	tls_end_locked(t);
	if (how != SHUT_WR)
		__atomic_store_n(&t->closed, true, __ATOMIC_RELEASE);
	mc_stream_shutdown(&t->inner, how);
}

static void tls_reset(struct mc_stream *s)
{
	TLS_LOCKED(t, s);
	t->ended = true;
	__atomic_store_n(&t->closed, true, __ATOMIC_RELEASE);
	mc_stream_reset(&t->inner);
}

static void tls_close(struct mc_stream *s)
{
	struct tls_stream *t = s->state;

	tls_end_locked(t);
	if (t->tls->gate)
		mc_tls_gate_leave(t->tls->gate, &t->unproven, false);
	SSL_free(t->ssl);
	mc_tls_records_free(t);
	mc_stream_close(&t->inner);
	mc_mutex_destroy(&t->lock);
	free(t);
}

static const struct mc_stream_ops tls_ops = {
	.send = tls_send, .repeat = tls_repeat, .recv = tls_recv, .peek = tls_peek, .pending = tls_pending,
	.wait = tls_wait, .peer = tls_peer, .tune = tls_tune, .shutdown = tls_shutdown, .reset = tls_reset,
	.close = tls_close,
};

/* Wrap the stream that *@s is; on failure it is closed. */
static int tls_wrap(const struct mc_tls *tls, bool server, struct mc_stream *s)
{
	struct tls_stream *t = calloc(1, sizeof(*t));
	BIO *bio = NULL;

	if (t)
		t->ssl = tls->certs ? mc_tls_certs_ssl(tls->certs) : SSL_new(tls->ctx);
	if (t && t->ssl)
		bio = BIO_new(tls->bio);
	if (!bio) {
		if (t)
			SSL_free(t->ssl);
		free(t);
		mc_stream_close(s);
		return mc_fail(-ENOMEM, "no memory for a TLS connection");
	}
	t->tls = tls;
	t->server = server;
	t->inner = *s;
	(void)mc_mutex_init(&t->lock);
	BIO_set_data(bio, t);
	SSL_set_bio(t->ssl, bio, bio);
	SSL_set_app_data(t->ssl, t);
	*s = (struct mc_stream){ .ops = &tls_ops, .fd = t->inner.fd, .state = t };
	return 0;
}

/* ---- the net ----------------------------------------------------------------------------------- */

static bool addr_is_local(const char *addr)
{
	return !strncmp(addr, "unix:", 5);
}

struct tls_listener {
	struct mc_listener inner;
	const struct mc_tls *tls;
};

static int tls_listener_accept(struct mc_listener *l, struct mc_stream *ret)
{
	struct tls_listener *t = l->state;
	struct tls_stream *new;
	struct mc_stream s;
	uint16_t slot;
	int r;

	for (unsigned i = 0; i < REFUSALS; i++) {
		r = mc_listener_accept(&t->inner, &s);
		if (r < 0)
			return r;
		if (!mc_tls_gate_admit(t->tls->gate, &s, &slot)) {
			mc_stream_reset(&s);
			mc_stream_close(&s);
			continue;
		}
		r = tls_wrap(t->tls, true, &s);
		if (r < 0)
			return r;
		new = s.state;
		mc_tls_gate_enter(t->tls->gate, &new->unproven, slot, &new->inner);
		*ret = s;
		return 0;
	}
	/* Pollers report those that still wait. */
	return -EAGAIN;
}

static int tls_listener_wait(struct mc_listener *l, uint64_t deadline)
{
	return mc_listener_wait(&((struct tls_listener *)l->state)->inner, deadline);
}

static void tls_listener_close(struct mc_listener *l)
{
	struct tls_listener *t = l->state;

	mc_listener_close(&t->inner);
	free(t);
}

static int tls_net_listen(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret)
{
	static const struct mc_listener_ops ops = {
		.accept = tls_listener_accept, .wait = tls_listener_wait, .close = tls_listener_close,
	};
	const struct mc_tls *tls = n->state;
	struct tls_listener *t;
	int r;

	if (addr_is_local(addr))
		return mc_net_listen(tls->conf.inner, addr, backlog, ret);
	if (!tls->conf.identify)
		return mc_fail(-EINVAL, "cannot listen on %s: there are no keys for peers", addr);
	t = calloc(1, sizeof(*t));
	if (!t)
		return mc_fail(-ENOMEM, "no memory to listen on %s", addr);
	t->tls = tls;
	r = mc_net_listen(tls->conf.inner, addr, backlog, &t->inner);
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = (struct mc_listener){ .ops = &ops, .fd = t->inner.fd, .state = t };
	strcpy(ret->addr, t->inner.addr);
	return 0;
}

/* Connect and show @c, which is filled here.  *ret_shown: the peer has seen it. */
static int connect_with(const struct mc_tls *tls, const char *addr, uint64_t deadline, struct mc_credential *c,
			struct mc_stream *ret, bool *ret_shown)
{
	struct tls_stream *t;
	struct mc_stream s;
	int r = tls->conf.present ? tls->conf.present(tls->conf.arg, addr, deadline, c) : 0;

	*ret_shown = false;
	if (r == 0)
		r = mc_net_connect(tls->conf.inner, addr, deadline, &s);
	if (r == 0)
		r = tls_wrap(tls, false, &s);
	if (r < 0)
		return r;
	*ret_shown = tls->conf.present;
	t = s.state;
	t->credential = tls->conf.present ? c : NULL;
	r = mc_tls_connect(t, addr, deadline);
	t->credential = NULL;
	if (r == 0)
		*ret = s;
	else
		mc_stream_close(&s);
	return r;
}

static int tls_net_connect(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	const struct mc_tls *tls = n->state;
	struct mc_credential *c;
	bool shown;
	int r;

	if (addr_is_local(addr))
		return mc_net_connect(tls->conf.inner, addr, deadline, ret);
	if (!tls->conf.present && !tls->certs)
		return mc_fail(-EACCES, "cannot connect to %s: there is no credential", addr);
	c = mc_credential_new();
	if (!c)
		return -ENOMEM;
	r = connect_with(tls, addr, deadline, c, ret, &shown);
	if (r < 0 && shown && tls->conf.failed && tls->conf.failed(tls->conf.arg, addr, c) && r != -ETIMEDOUT)
		r = connect_with(tls, addr, deadline, c, ret, &shown);
	mc_credential_free(c);
	return r;
}

/* Plain bytes after the handshake are agreed in it. */
static bool use_alpn(struct mc_tls *t)
{
	SSL_CTX_set_alpn_select_cb(t->ctx, mc_tls_choose, t);
	/* 0: success */
	return !t->conf.plain_data ||
	       !SSL_CTX_set_alpn_protos(t->ctx, (const unsigned char *)MC_TLS_ALPN, sizeof(MC_TLS_ALPN) - 1);
}

static SSL_CTX *tls_ctx(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_method());

	if (!ctx)
		return NULL;
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_msg_callback(ctx, mc_tls_see_message);
	SSL_CTX_set_keylog_callback(ctx, mc_tls_see_secret);
	SSL_CTX_set_psk_use_session_callback(ctx, mc_tls_use_psk);
	SSL_CTX_set_psk_find_session_callback(ctx, mc_tls_find_psk);
	/* P-256 where a policy forbids X25519 on all hosts. */
	if ((SSL_CTX_set1_groups_list(ctx, "X25519") || SSL_CTX_set1_groups_list(ctx, "P-256")) &&
	    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) && SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) &&
	    SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") && SSL_CTX_set_num_tickets(ctx, 0) &&
	    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)MC_TLS_CONTEXT, sizeof(MC_TLS_CONTEXT)) &&
	    SSL_CTX_set_max_early_data(ctx, 0))
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

int mc_tls_new(const struct mc_tls_conf *conf, struct mc_tls **ret)
{
	static const struct mc_net_ops ops = { .connect = tls_net_connect, .listen = tls_net_listen };
	struct mc_tls *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return mc_fail(-ENOMEM, "no memory for TLS");
	t->conf = *conf;
	if (!t->conf.inner)
		t->conf.inner = mc_net_default();
	t->net = (struct mc_net){ .ops = &ops, .state = t };
	t->bio = mc_tls_bio_method();
	t->ctx = tls_ctx();
	t->gcm = mc_gcm_best();
	if (!t->bio || !t->ctx || !use_alpn(t)) {
		ERR_clear_error();
		mc_tls_free(t);
		return mc_fail(-ENOMEM, "cannot set up TLS 1.3 of OpenSSL");
	}
	if (conf->identify)
		r = mc_tls_gate_new(conf->service, 0, &t->gate);
	if (r == 0 && (conf->cert || conf->key || conf->ca || conf->map))
		r = mc_tls_certs_new(conf, tls_ctx, &t->certs);
	/* The strings are the caller's, and are not needed any more. */
	t->conf.cert = t->conf.key = t->conf.ca = t->conf.map = NULL;
	if (r < 0) {
		mc_tls_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

const struct mc_net *mc_tls_net(const struct mc_tls *t)
{
	return &t->net;
}

void mc_tls_free(struct mc_tls *t)
{
	if (!t)
		return;
	mc_tls_certs_free(t->certs);
	mc_tls_gate_free(t->gate);
	SSL_CTX_free(t->ctx);
	BIO_meth_free(t->bio);
	free(t);
}
