/* SPDX-License-Identifier: Apache-2.0
 * kv_events_curve.h - keys of CURVE, ZeroMQ's encryption, for the socket of KV events.
 *
 * The socket has a secret key, and a list of the public keys of its subscribers; every other subscriber is refused.  A
 * subscriber needs a pair of its own, and the public key of the socket.  In files, a key is 40 characters of Z85 or 64
 * hex digits, one per line.  "# " begins a comment line (a key may begin with '#'), and text after a key is a
 * comment. */
#ifndef MCM_KV_EVENTS_CURVE_H
#define MCM_KV_EVENTS_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCM_KV_CURVE_KEY 32u	/* bytes of a key */
#define MCM_KV_CURVE_TEXT 41u	/* a key in Z85, with its NUL */

struct mcm_kv_curve {
	uint8_t secret[MCM_KV_CURVE_KEY];
	const char *clients;	/* file with the public keys of the subscribers; borrowed */
};

/* Read a key.  False: it is none. */
bool mcm_kv_curve_decode(const char *text, size_t len, uint8_t ret[MCM_KV_CURVE_KEY]);
/* Read the file with the secret key, which only its owner may read. */
int mcm_kv_curve_secret(const char *path, uint8_t ret[MCM_KV_CURVE_KEY]);
/* The subscribers' file: 1, 0: @key is in it, is not; negative with a detail: the file cannot be read, others may write
 * it, or a line has no key.  NULL: only check the file.  Any thread. */
int mcm_kv_curve_allows(const char *path, const uint8_t *key);
/* Make a pair: write the secret key to a new file of mode 0600, and return the public key.  -ENOENT: libzmq is missing;
 * -EEXIST; with a detail. */
int mcm_kv_curve_keygen(const char *path, char ret_public[MCM_KV_CURVE_TEXT]);

#endif
