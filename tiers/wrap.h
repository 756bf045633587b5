/* SPDX-License-Identifier: Apache-2.0
 * wrap.h - the key of the bytes of an encrypted medium, as the medium keeps it: encrypted itself, with a key that its
 * owner gets from the master.
 *
 * The key of the bytes is random.  A medium that forgets it has lost its bytes: that is the erase.  The master's key is
 *
 *	HKDF-SHA256(secret N, "mooncake-fs disk" | TENANT "/" id of the segment in 32 hex digits)
 *
 * so it stays the same when the master loses its journal, or the segment enters another pool of the same secret, and a
 * node of another tenant does not get it.  After a rotation of the secret the key is wrapped again with the newest one.
 *
 *	 0 u32 N; 0: the medium has no key yet	 4 nonce[12], random
 *	16 AES-256-GCM of the key[64]		80 tag[16]
 *
 * little-endian.  All functions are pure; any thread. */
#ifndef MCT_WRAP_H
#define MCT_WRAP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/security/seal.h"

#define MCT_WRAP_KEY 64u

struct mct_wrap {
	uint32_t secret;		/* little-endian */
	uint8_t nonce[MC_SEAL_NONCE];
	uint8_t key[MCT_WRAP_KEY];
	uint8_t tag[MC_SEAL_TAG];
};
_Static_assert(sizeof(struct mct_wrap) == 96, "as in the comment above");

/* Keys of the master for one segment. */
struct mct_keys {
	bool known;			/* the secret that was asked for is still accepted: */
	uint8_t key[MC_KEY_LEN];
	uint32_t newest;		/* number of the newest secret */
	uint8_t newest_key[MC_KEY_LEN];
};

/* Get the keys under the newest secret, and under secret @secret unless it is 0.  Negative, with a detail. */
typedef int (*mct_keys_fn)(void *arg, uint32_t secret, struct mct_keys *ret);

/* The number in it. */
uint32_t mct_wrap_secret(const struct mct_wrap *w);
/* -ENOMEM, or the error of the random numbers. */
int mct_wrap_make(uint32_t secret, const uint8_t with[MC_KEY_LEN], const uint8_t key[MCT_WRAP_KEY],
		  struct mct_wrap *ret);
/* Unwrap the key.  -EBADMSG: it is lost: there is none, or the secret is an older one, which was dropped.
 * -EKEYREJECTED: the keys are of another pool or tenant.  -ENOKEY: the secret is newer than the master's newest one, or
 * of another pool. */
int mct_wrap_open(const struct mct_wrap *w, const struct mct_keys *keys, uint8_t ret[MCT_WRAP_KEY]);

#endif
