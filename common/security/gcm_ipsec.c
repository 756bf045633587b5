/* SPDX-License-Identifier: Apache-2.0
 * gcm_ipsec.c - AES-128-GCM of ipsec-mb, loaded at run time.
 *
 * Its functions are reached through a table whose layout belongs to the header's version, so another version of the
 * library is not used.  The functions of GCM have no state beside the one they are given. */
#include <config.h>

#include "common/security/gcm.h"

#ifdef HAVE_INTEL_IPSEC_MB_H

#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

#define LIBRARY "libIPSec_MB.so.1"

struct ipsec_gcm {
	struct mc_gcm g;
	bool encrypts;
	struct gcm_context_data ctx;
	/* The library loads and stores its parts as vectors. */
	struct gcm_key_data key __attribute__((aligned(64)));
};

static const IMB_MGR *mgr;	/* NULL: there is no library; constant after ipsec_load() */

static struct ipsec_gcm *gcm_of(struct mc_gcm *g)
{
	return (struct ipsec_gcm *)g;
}

static bool ipsec_key(struct mc_gcm *g, const uint8_t key[MC_GCM_KEY])
{
	IMB_AES128_GCM_PRE(mgr, key, &gcm_of(g)->key);
	return true;
}

static bool ipsec_begin(struct mc_gcm *g, const uint8_t nonce[MC_GCM_NONCE], const uint8_t *aad, size_t len)
{
	struct ipsec_gcm *i = gcm_of(g);

	IMB_AES128_GCM_INIT(mgr, &i->key, &i->ctx, nonce, aad, len);
	return true;
}

static bool ipsec_crypt(struct mc_gcm *g, uint8_t *to, const uint8_t *from, size_t len)
{
	struct ipsec_gcm *i = gcm_of(g);

	if (!len)
		return true;
	if (i->encrypts)
		IMB_AES128_GCM_ENC_UPDATE(mgr, &i->key, &i->ctx, to, from, len);
	else
		IMB_AES128_GCM_DEC_UPDATE(mgr, &i->key, &i->ctx, to, from, len);
	return true;
}

static bool ipsec_seal(struct mc_gcm *g, uint8_t ret_tag[MC_GCM_TAG])
{
	struct ipsec_gcm *i = gcm_of(g);

	IMB_AES128_GCM_ENC_FINALIZE(mgr, &i->key, &i->ctx, ret_tag, MC_GCM_TAG);
	return true;
}

static bool ipsec_verify(struct mc_gcm *g, const uint8_t tag[MC_GCM_TAG])
{
	struct ipsec_gcm *i = gcm_of(g);
	uint8_t real[MC_GCM_TAG];

	IMB_AES128_GCM_DEC_FINALIZE(mgr, &i->key, &i->ctx, real, MC_GCM_TAG);
	return CRYPTO_memcmp(real, tag, MC_GCM_TAG) == 0;
}

static void ipsec_free(struct mc_gcm *g)
{
	if (g)
		OPENSSL_cleanse(g, sizeof(struct ipsec_gcm));
	free(g);
}

static struct mc_gcm *ipsec_make(bool encrypts);

static const struct mc_gcm_ops ipsec_ops = {
	.name = "ipsec-mb", .make = ipsec_make, .key = ipsec_key, .begin = ipsec_begin, .crypt = ipsec_crypt,
	.seal = ipsec_seal, .verify = ipsec_verify, .free = ipsec_free,
};

static struct mc_gcm *ipsec_make(bool encrypts)
{
	struct ipsec_gcm *i = aligned_alloc(_Alignof(struct ipsec_gcm), sizeof(*i));

	if (!i)
		return NULL;
	memset(i, 0, sizeof(*i));
	i->g.ops = &ipsec_ops;
	i->encrypts = encrypts;
	return &i->g;
}

/* Encrypt a message in parts of several sizes. */
static bool check_message(const struct mc_gcm_ops *ops, uint8_t ret[300], uint8_t ret_tag[MC_GCM_TAG])
{
	static const uint8_t key[MC_GCM_KEY] = "key of the check";
	static const size_t parts[] = { 1, 16, 100, 183 };
	struct mc_gcm *g = ops->make(true);
	size_t at = 0;
	bool good = g && ops->key(g, key) && ops->begin(g, key, key, 5);

	for (unsigned i = 0; i < 300; i++)
		ret[i] = (uint8_t)(i * 7);
	for (unsigned i = 0; good && i < sizeof(parts) / sizeof(*parts); at += parts[i++])
		good = ops->crypt(g, ret + at, ret + at, parts[i]);
	good = good && ops->seal(g, ret_tag);
	if (g)
		ops->free(g);
	return good;
}

/* A wrong table of functions must not make records that no peer can read. */
static bool agrees_with_openssl(void)
{
	uint8_t data[2][300], tag[2][MC_GCM_TAG];

	return check_message(mc_gcm_openssl(), data[0], tag[0]) && check_message(&ipsec_ops, data[1], tag[1]) &&
	       !memcmp(data[0], data[1], sizeof(data[0])) && !memcmp(tag[0], tag[1], sizeof(tag[0]));
}

static void ipsec_load(void)
{
	__typeof__(imb_get_version) *version;
	__typeof__(alloc_mb_mgr) *alloc;
	__typeof__(init_mb_mgr_auto) *init;
	void *so;
	IMB_MGR *m;

	if (EVP_default_properties_is_fips_enabled(NULL))
		return;
	so = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!so)
		return;
	*(void **)&version = dlsym(so, "imb_get_version");
	*(void **)&alloc = dlsym(so, "alloc_mb_mgr");
	*(void **)&init = dlsym(so, "init_mb_mgr_auto");
	if (!version || !alloc || !init || version() != IMB_VERSION_NUM) {
		mc_info("tls", "%s is of another version than its header at build time, and is not used", LIBRARY);
		dlclose(so);
		return;
	}
	m = alloc(0);
	if (!m)
		return;
	init(m, NULL);
	mgr = m;
	if (m->gcm128_pre && m->gcm128_init && agrees_with_openssl())
		return;
	mgr = NULL;
	mc_warn("tls", "%s computes other results than OpenSSL, and is not used", LIBRARY);
}

const struct mc_gcm_ops *mc_gcm_ipsec(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, ipsec_load);
	return mgr ? &ipsec_ops : NULL;
}

#else

const struct mc_gcm_ops *mc_gcm_ipsec(void)
{
	return NULL;
}

#endif
