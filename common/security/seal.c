/* SPDX-License-Identifier: Apache-2.0
 * seal.c - AES-256-GCM and AES-256-XTS by OpenSSL. */
#include <config.h>

#include "common/security/seal.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/security/secret_memory.h"

#define PART (1u << 30)		/* OpenSSL counts bytes in an int */

/* ---- pieces ------------------------------------------------------------------------------------ */

/* The context has the expanded key, and OpenSSL erases it when it is freed. */
struct mc_sealer {
	EVP_CIPHER *cipher;
	EVP_CIPHER_CTX *ctx;
};

int mc_sealer_new(const uint8_t key[MC_KEY_LEN], struct mc_sealer **ret)
{
	struct mc_sealer *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	s->ctx = EVP_CIPHER_CTX_new();
	if (!s->cipher || !s->ctx || EVP_CipherInit_ex2(s->ctx, s->cipher, key, NULL, 1, NULL) != 1) {
		mc_sealer_free(s);
		return mc_fail(-ENOMEM, "OpenSSL cannot set up AES-256-GCM");
	}
	*ret = s;
	return 0;
}

void mc_sealer_free(struct mc_sealer *s)
{
	if (!s)
		return;
	EVP_CIPHER_CTX_free(s->ctx);
	EVP_CIPHER_free(s->cipher);
	free(s);
}

void mc_piece_number(struct mc_piece *p, uint32_t kind, uint64_t number)
{
	kind = htobe32(kind);
	number = htobe64(number);
	memcpy(p->nonce, &kind, sizeof(kind));
	memcpy(p->nonce + sizeof(kind), &number, sizeof(number));
}

/* @to NULL: additional data. */
static bool seal_update(EVP_CIPHER_CTX *ctx, const uint8_t *from, size_t len, uint8_t *to)
{
	int n;

	for (size_t at = 0; at < len; at += PART) {
		size_t part = len - at < PART ? len - at : PART;

		if (EVP_CipherUpdate(ctx, to ? to + at : NULL, &n, from + at, (int)part) != 1)
			return false;
	}
	return true;
}

int mc_seal(struct mc_sealer *s, const struct mc_piece *p, const void *from, size_t len, void *to,
	    uint8_t ret_tag[MC_SEAL_TAG])
{
	uint8_t none[MC_SEAL_TAG];
	int n;

	if (EVP_CipherInit_ex2(s->ctx, NULL, NULL, p->nonce, 1, NULL) == 1 &&
	    seal_update(s->ctx, p->aad, p->aad_len, NULL) && seal_update(s->ctx, from, len, to) &&
	    EVP_CipherFinal_ex(s->ctx, none, &n) == 1 &&
	    EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, MC_SEAL_TAG, ret_tag) == 1)
		return 0;
	return mc_fail(-ENOMEM, "OpenSSL cannot encrypt");
}

int mc_unseal(struct mc_sealer *s, const struct mc_piece *p, const void *from, size_t len,
	      const uint8_t tag[MC_SEAL_TAG], void *to)
{
	uint8_t none[MC_SEAL_TAG];
	int n;

	if (EVP_CipherInit_ex2(s->ctx, NULL, NULL, p->nonce, 0, NULL) != 1 ||
	    !seal_update(s->ctx, p->aad, p->aad_len, NULL) || !seal_update(s->ctx, from, len, to))
		return mc_fail(-ENOMEM, "OpenSSL cannot decrypt");
	if (EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_SET_TAG, MC_SEAL_TAG, (void *)(uintptr_t)tag) == 1 &&
	    EVP_CipherFinal_ex(s->ctx, none, &n) == 1)
		return 0;
	if (len)
		memset(to, 0, len);
	return -EBADMSG;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

struct mc_xts {
	EVP_CIPHER *cipher;
	uint8_t key[MC_XTS_KEY];
};

int mc_xts_new(const uint8_t key[MC_XTS_KEY], struct mc_xts **ret)
{
	struct mc_xts *x = mc_secret_alloc(sizeof(*x));

	if (!x)
		return -ENOMEM;
	memcpy(x->key, key, MC_XTS_KEY);
	x->cipher = EVP_CIPHER_fetch(NULL, "AES-256-XTS", NULL);
	if (!x->cipher) {
		mc_xts_free(x);
		return mc_fail(-ENOMEM, "OpenSSL cannot set up AES-256-XTS");
	}
	*ret = x;
	return 0;
}

void mc_xts_free(struct mc_xts *x)
{
	if (x)
		EVP_CIPHER_free(x->cipher);
	mc_secret_free(x, sizeof(*x));
}

/* A context belongs to one thread, and has the expanded key only during the call. */
static int xts_run(const struct mc_xts *x, uint64_t first, const uint8_t *from, uint8_t *to, size_t len, int encrypt)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	bool good = ctx && EVP_CipherInit_ex2(ctx, x->cipher, x->key, NULL, encrypt, NULL) == 1;
	uint64_t tweak[2] = { 0, 0 };
	int n;

	for (size_t at = 0; good && at < len; at += MC_XTS_BLOCK) {
		tweak[0] = htole64(first + at / MC_XTS_BLOCK);
		good = EVP_CipherInit_ex2(ctx, NULL, NULL, (const uint8_t *)tweak, encrypt, NULL) == 1 &&
		       EVP_CipherUpdate(ctx, to + at, &n, from + at, MC_XTS_BLOCK) == 1;
	}
	EVP_CIPHER_CTX_free(ctx);
	return good ? 0 : mc_fail(-ENOMEM, "OpenSSL cannot %s a block", encrypt ? "encrypt" : "decrypt");
}

int mc_xts_encrypt(const struct mc_xts *x, uint64_t first, const void *from, void *to, size_t len)
{
	return xts_run(x, first, from, to, len, 1);
}

int mc_xts_decrypt(const struct mc_xts *x, uint64_t first, const void *from, void *to, size_t len)
{
	return xts_run(x, first, from, to, len, 0);
}
