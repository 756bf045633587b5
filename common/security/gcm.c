/* SPDX-License-Identifier: Apache-2.0
 * gcm.c - AES-128-GCM of OpenSSL, and the choice of a library. */
#include <config.h>

#include "common/security/gcm.h"

#include <openssl/evp.h>
#include <stdlib.h>


struct openssl_gcm {
	struct mc_gcm g;
	bool encrypts;
	EVP_CIPHER *cipher;
	EVP_CIPHER_CTX *ctx;	/* has the key */
};

static struct openssl_gcm *gcm_of(struct mc_gcm *g)
{
	return (struct openssl_gcm *)g;
}

static void openssl_free(struct mc_gcm *g)
{
	struct openssl_gcm *o = gcm_of(g);

	if (!o)
		return;
	EVP_CIPHER_CTX_free(o->ctx);
	EVP_CIPHER_free(o->cipher);
	free(o);
}

static struct mc_gcm *openssl_make(bool encrypts)
{
	struct openssl_gcm *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->g.ops = mc_gcm_openssl();
	o->encrypts = encrypts;
	o->cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
	o->ctx = EVP_CIPHER_CTX_new();
	if (o->cipher && o->ctx)
		return &o->g;
	openssl_free(&o->g);
	return NULL;
}

static bool openssl_key(struct mc_gcm *g, const uint8_t key[MC_GCM_KEY])
{
	struct openssl_gcm *o = gcm_of(g);

	return EVP_CipherInit_ex2(o->ctx, o->cipher, key, NULL, o->encrypts, NULL);
}

static bool openssl_begin(struct mc_gcm *g, const uint8_t nonce[MC_GCM_NONCE], const uint8_t *aad, size_t len)
{
	struct openssl_gcm *o = gcm_of(g);
	int n;

	return EVP_CipherInit_ex2(o->ctx, NULL, NULL, nonce, -1, NULL) &&
	       (!len || EVP_CipherUpdate(o->ctx, NULL, &n, aad, (int)len));
}

static bool openssl_crypt(struct mc_gcm *g, uint8_t *to, const uint8_t *from, size_t len)
{
	int n;

	return !len || EVP_CipherUpdate(gcm_of(g)->ctx, to, &n, from, (int)len);
}

static bool openssl_seal(struct mc_gcm *g, uint8_t ret_tag[MC_GCM_TAG])
{
	struct openssl_gcm *o = gcm_of(g);
	uint8_t none[MC_GCM_TAG];
	int n;

	return EVP_CipherFinal_ex(o->ctx, none, &n) &&
	       EVP_CIPHER_CTX_ctrl(o->ctx, EVP_CTRL_AEAD_GET_TAG, MC_GCM_TAG, ret_tag);
}

static bool openssl_verify(struct mc_gcm *g, const uint8_t tag[MC_GCM_TAG])
{
	struct openssl_gcm *o = gcm_of(g);
	uint8_t none[MC_GCM_TAG];
	int n;

	return EVP_CIPHER_CTX_ctrl(o->ctx, EVP_CTRL_AEAD_SET_TAG, MC_GCM_TAG, (void *)(uintptr_t)tag) &&
	       EVP_CipherFinal_ex(o->ctx, none, &n);
}

const struct mc_gcm_ops *mc_gcm_openssl(void)
{
	static const struct mc_gcm_ops ops = {
		.name = "OpenSSL", .make = openssl_make, .key = openssl_key, .begin = openssl_begin,
		.crypt = openssl_crypt, .seal = openssl_seal, .verify = openssl_verify, .free = openssl_free,
	};

	return &ops;
}

const struct mc_gcm_ops *mc_gcm_best(void)
{
	const struct mc_gcm_ops *ops = mc_gcm_ipsec();

	return ops ? ops : mc_gcm_openssl();
}
