/* SPDX-License-Identifier: Apache-2.0
 * seal.h - encryption of bytes at rest: pieces by AES-256-GCM, blocks of disks by AES-256-XTS.
 *
 * A piece that was changed in any bit, or has another key, nonce or additional data, is refused.  A block has no room
 * for that: changed bits, and another key or place, give other bytes, which the checksums of objects find.  Keys are
 * derived by mc_key_derive(). */
#ifndef MC_SEAL_H
#define MC_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/security/identity.h"

#define MC_SEAL_TAG 16u
#define MC_SEAL_NONCE 12u

/* ---- pieces; one thread at a time ---- */

struct mc_sealer;

/* One piece: where it is in the thing that the key belongs to.  With one key, two pieces of different bytes must never
 * have the same nonce: it would show both, and let others make pieces. */
struct mc_piece {
	uint8_t nonce[MC_SEAL_NONCE];
	const void *aad;		/* additional data: not stored, but compared */
	size_t aad_len;
};

/* -ENOMEM. */
int mc_sealer_new(const uint8_t key[MC_KEY_LEN], struct mc_sealer **ret);
void mc_sealer_free(struct mc_sealer *s);		/* NULL is fine */
/* The nonce of piece @number. */
void mc_piece_number(struct mc_piece *p, uint32_t kind, uint64_t number);
/* Encrypt @len bytes, which may be 0, from @from to @to (may be the same).  -ENOMEM. */
int mc_seal(struct mc_sealer *s, const struct mc_piece *p, const void *from, size_t len, void *to,
	    uint8_t ret_tag[MC_SEAL_TAG]);
/* Decrypt.  -EBADMSG: the piece was changed, or is not this one; then @to has zeros. */
int mc_unseal(struct mc_sealer *s, const struct mc_piece *p, const void *from, size_t len,
	      const uint8_t tag[MC_SEAL_TAG], void *to);

/* ---- blocks; any thread ---- */

#define MC_XTS_KEY (2u * MC_KEY_LEN)
#define MC_XTS_BLOCK 4096u

struct mc_xts;

/* -ENOMEM. */
int mc_xts_new(const uint8_t key[MC_XTS_KEY], struct mc_xts **ret);
void mc_xts_free(struct mc_xts *x);			/* NULL is fine */
/* @len bytes from @from to @to (may be the same), a multiple of MC_XTS_BLOCK; @first: number of the first block.
 * -ENOMEM. */
int mc_xts_encrypt(const struct mc_xts *x, uint64_t first, const void *from, void *to, size_t len);
int mc_xts_decrypt(const struct mc_xts *x, uint64_t first, const void *from, void *to, size_t len);

#endif
