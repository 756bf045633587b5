/* SPDX-License-Identifier: Apache-2.0
 * tls.h - a net (net/stream.h) whose streams are TLS 1.3 connections of peers that prove their identity.
 *
 * Peers have external pre-shared keys (RFC 8446, psk_dhe_ke): the connecting side presents a credential, the accepting
 * side derives its key from the identity, and the handshake fails unless both have the same key.  So both sides are
 * authenticated.  There is no early data, no resumption and no older version, and one group for the exchange of keys.
 * Certificates are another way to an identity, where they are configured.  Unix sockets are plain: the kernel tells the
 * peer's user.
 *
 * The handshake of the accepting side is a part of recv and peek, as stream.h says; until it is complete the peer has
 * no principal (mc_stream_peer()).  The user of the stream limits its time, the net their number and rate
 * (tls_gate.h): one that has to give way is shut down, and its recv returns -ECONNRESET.  A stream in its handshake has
 * about 75 KiB of memory, an idle one 3 KiB, or 7 KiB with ipsec-mb.
 *
 * The end of a direction is authenticated too, except with plain_data.  If our end cannot be sent, because the stream
 * below is full or repeat() counts a part of a record, the peer's recv returns -ECONNRESET after the bytes that were
 * taken. */
#ifndef MC_TLS_H
#define MC_TLS_H

#include "common/net/stream.h"
#include "common/security/secret.h"

#define MC_TLS_PLAIN_MAX 64u

struct mc_tls_conf {
	const struct mc_net *inner;	/* makes the connections below; NULL: mc_net_default() */
	/* Accepting side: the key and the rights that belong to the identity @text of @len bytes (any bytes).
	 * Negative: it is refused, with a detail for the log; the peer gets an alert only.  Any thread.  NULL: this
	 * net makes no listeners for TCP. */
	int (*identify)(void *arg, const char *text, size_t len, uint8_t ret_key[MC_KEY_LEN], struct mc_principal *ret);
	/* Connecting side: fill *@ret, which is from mc_credential_new(), for a connection to @addr by @deadline.
	 * Any thread.  NULL: connections show the certificate below; without one this net makes none over TCP. */
	int (*present)(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret);
	/* The handshake that showed @c to @addr has failed.  Returns whether @present has another one now: if time is
	 * left, it is asked once more, and the second result counts.  Any thread.  NULL: false. */
	bool (*failed)(void *arg, const char *addr, const struct mc_credential *c);
	void *arg;
	/* PEM files of a certificate with its chain, its key (secret_file.h) and the authorities of peers; the map of
	 * peers' certificates to identities (tls_map.h); all or none, copied.  The accepting side then admits a
	 * certificate instead of a key: a principal with secret 0, and as serial the first 8 bytes of the certificate's
	 * SHA-256.  The connecting side without @present wants one that the map gives the role master.  The files are
	 * read again for new connections when they change. */
	const char *cert, *key, *ca, *map;
	/* Make the answer to a peer that begins with other bytes than a TLS handshake, the first of which are @first:
	 * up to MC_TLS_PLAIN_MAX bytes.  Returns their number, 0: only TLS's alert.  NULL: 0. */
	size_t (*answer_plain)(const uint8_t *first, size_t len, uint8_t ret[MC_TLS_PLAIN_MAX]);
	/* Accepting side: the handshake with @peer has failed because of @why.  Any thread.  NULL: nothing. */
	void (*refused)(void *arg, const char *peer, const char *why);
	/* After the handshake bytes are sent as they are, if both sides have this.  The peers are authenticated, and a
	 * host on the path can read and change the bytes. */
	bool plain_data;
	const char *service;		/* names the listener in the log ("master's RPC port"); borrowed */
};

struct mc_tls;

int mc_tls_new(const struct mc_tls_conf *conf, struct mc_tls **ret);
const struct mc_net *mc_tls_net(const struct mc_tls *t);
/* All its listeners and streams must be closed.  NULL is fine. */
void mc_tls_free(struct mc_tls *t);

#endif
