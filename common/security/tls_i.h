/* SPDX-License-Identifier: Apache-2.0
 * tls_i.h - the parts of tls.c: its streams, their handshakes (tls_handshake.c) and records (tls_record.c), and the way
 * of OpenSSL to the streams below (tls_bio.c). */
#ifndef MC_TLS_I_H
#define MC_TLS_I_H

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "common/security/gcm.h"
#include "common/security/tls.h"
#include "common/security/tls_cert.h"
#include "common/security/tls_gate.h"
#include "common/sys/lock.h"

#define MC_TLS_HANDSHAKE 22u	/* type of the first record */
/* OpenSSL accepts sessions, and so keys, only of the same context. */
#define MC_TLS_CONTEXT "mooncake"
/* Names of the protocol inside (ALPN), after their lengths: a peer that wants plain bytes offers both. */
#define MC_TLS_PLAIN "\010mc-plain"
#define MC_TLS_ALPN MC_TLS_PLAIN "\002mc"
#define MC_TLS_CLOSE_NOTIFY 0u	/* alert: no more bytes follow */
#define MC_TLS_SECRET_LEN 32u	/* a hash of SHA-256 */

struct mc_tls {
	struct mc_tls_conf conf;
	struct mc_net net;
	BIO_METHOD *bio;
	SSL_CTX *ctx;
	const struct mc_gcm_ops *gcm;	/* for records */
	struct mc_tls_certs *certs;	/* NULL: keys only */
	struct mc_tls_gate *gate;	/* NULL: it makes no listeners for TCP */
};

/* The protection of the records of one direction. */
struct tls_direction {
	struct mc_gcm *gcm;
	uint8_t secret[MC_TLS_SECRET_LEN], iv[MC_GCM_NONCE];
	uint64_t seq;		/* number of the next record with this key */
};

struct tls_stream {
	struct mc_stream inner;
	const struct mc_tls *tls;
	bool server;		/* this is the accepting side */
	bool complete;		/* the handshake is; set once, by the receiver with the lock held */
	bool plain;		/* the bytes are not protected; constant once complete */
	bool closed;		/* both directions are, by this side; atomic */
	bool update_wanted;	/* the peer wants our next record to have a new key; atomic */
	int failed;		/* the error that has ended the stream; atomic */
	struct mc_tls_unproven unproven;	/* accepting side; guarded by the gate's lock */

	/* the receiver's, and the connecting thread's before it returns the stream */
	SSL *ssl;		/* NULL after the handshake */
	const struct mc_credential *credential;	/* connecting side, during the handshake only */
	struct tls_direction rx;
	/* Received bytes: plaintext that recv has not returned yet, and then records from in_at to in_len. */
	uint8_t *in;		/* NULL: none */
	size_t in_size, in_at, in_len, plain_at, plain_len;
	bool drained;		/* the last read of the stream below got less than it asked for */
	bool rx_ended;		/* the peer has ended its direction */
	bool tail;		/* the last recv returned bytes, and the next one returns the end or an error */
	unsigned messages;	/* records without data that were received since the last one with data */
	const char *stop;	/* reads of the stream below fail from now on, for this reason */
	int inner_err;		/* first error outside of OpenSSL in the current call, with a detail */
	int reason;		/* OpenSSL's number of the last error: SSL_R_... */
	unsigned secrets;	/* bits of the directions whose secret OpenSSL has told */
	uint8_t first[MC_TLS_PLAIN_MAX];	/* accepting side: the first bytes of the peer */
	size_t first_len;

	struct mc_mutex lock;
	/* guarded by lock */
	struct tls_direction tx;
	uint8_t *out;		/* records that the stream below has not taken: of @out_plain bytes with data */
	size_t out_at, out_len, out_plain;
	size_t out_record;	/* bytes of the first of these records that are left */
	uint64_t rekey_at;	/* the key changes before the record with this number */
	bool ended;		/* our direction is: the end was sent */
	struct mc_principal principal;	/* accepting side; constant once complete */
};

BIO_METHOD *mc_tls_bio_method(void);

/* The error that has ended the stream before, or 0. */
int mc_tls_failed(const struct tls_stream *t);
/* End the stream with @err; returns it.  Any thread. */
int mc_tls_fail(struct tls_stream *t, int err);

/* ---- records (tls_record.c), after the handshake ---- */

/* Begin with the secrets that mc_tls_see_secret() has seen.  Lock held. */
int mc_tls_records_start(struct tls_stream *t);
void mc_tls_records_free(struct tls_stream *t);
/* As the operations of the stream; the receiver's. */
ssize_t mc_tls_records_recv(struct tls_stream *t, const struct iovec *iov, int n);
int mc_tls_records_peek(struct tls_stream *t);
size_t mc_tls_records_pending(const struct tls_stream *t);
/* Read the stream below into t->in: 1; 0: the end; -EAGAIN, -errno. */
ssize_t mc_tls_in_fill(struct tls_stream *t);
/* Free t->in if it has no bytes. */
void mc_tls_in_release(struct tls_stream *t);
/* Lock held: as the operation. */
ssize_t mc_tls_records_send(struct tls_stream *t, const struct iovec *iov, int n);
/* Lock held, t->out is NULL: change our key, and with @ask tell the peer to change its own.  0, or -errno.  If the
 * stream below is full, the next send sends the rest of the record first. */
int mc_tls_update(struct tls_stream *t, bool ask);
/* Lock held: send an alert, if nothing waits to be sent.  It ends our direction. */
void mc_tls_alert(struct tls_stream *t, uint8_t description);

/* ---- the handshake ---- */

/* Continue the handshake of the accepting side.  1: it is complete; 0: the peer has closed; -EAGAIN; -errno. */
int mc_tls_accept(struct tls_stream *t);
/* The handshake of the connecting side. */
int mc_tls_connect(struct tls_stream *t, const char *addr, uint64_t deadline);

/* Callbacks of OpenSSL. */
int mc_tls_choose(SSL *ssl, const unsigned char **ret, unsigned char *ret_len, const unsigned char *offered, unsigned n,
		  void *tls);
int mc_tls_use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **ret);
int mc_tls_find_psk(SSL *ssl, const unsigned char *id, size_t len, SSL_SESSION **ret);
void mc_tls_see_message(int written, int version, int type, const void *data, size_t len, SSL *ssl, void *arg);
void mc_tls_see_secret(const SSL *ssl, const char *line);

#endif
