/* SPDX-License-Identifier: Apache-2.0
 * gcm.h - AES-128-GCM of messages that are given in parts, with the fastest library of this machine.
 *
 * A state has one key and one direction.  Per message: begin, any number of crypt, then seal or verify.  The caller
 * never uses a nonce twice with a key.  A state is for one thread at a time.  Results: false if the library failed, and
 * the state must not be used again. */
#ifndef MC_GCM_H
#define MC_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_GCM_KEY 16u
#define MC_GCM_NONCE 12u
#define MC_GCM_TAG 16u

struct mc_gcm;

struct mc_gcm_ops {
	const char *name;	/* the library's */
	/* A state without a key; NULL: no memory. */
	struct mc_gcm *(*make)(bool encrypts);
	bool (*key)(struct mc_gcm *g, const uint8_t key[MC_GCM_KEY]);
	bool (*begin)(struct mc_gcm *g, const uint8_t nonce[MC_GCM_NONCE], const uint8_t *aad, size_t len);
	/* @to may be @from. */
	bool (*crypt)(struct mc_gcm *g, uint8_t *to, const uint8_t *from, size_t len);
	bool (*seal)(struct mc_gcm *g, uint8_t ret_tag[MC_GCM_TAG]);
	/* False also if the message was changed. */
	bool (*verify)(struct mc_gcm *g, const uint8_t tag[MC_GCM_TAG]);
	/* Overwrites the key. */
	void (*free)(struct mc_gcm *g);
};

struct mc_gcm {
	const struct mc_gcm_ops *ops;
};

/* OpenSSL's, which exists everywhere. */
const struct mc_gcm_ops *mc_gcm_openssl(void);
/* ipsec-mb's, loaded at run time: 3 times as fast, and a tenth of the cost of a short message.  NULL: it is not
 * installed, of another version than its header, computes other results than OpenSSL, or OpenSSL is in FIPS mode, where
 * only its own ciphers are approved. */
const struct mc_gcm_ops *mc_gcm_ipsec(void);
/* The better one.  Any thread. */
const struct mc_gcm_ops *mc_gcm_best(void);

#endif
