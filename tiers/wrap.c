/* SPDX-License-Identifier: Apache-2.0
 * wrap.c - the key of an encrypted medium, wrapped. */
#include <config.h>

#include "tiers/wrap.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "common/sys/random.h"

/* The number is additional data. */
static struct mc_piece wrap_piece(const struct mct_wrap *w)
{
	struct mc_piece p = { .aad = &w->secret, .aad_len = sizeof(w->secret) };

	memcpy(p.nonce, w->nonce, sizeof(p.nonce));
	return p;
}

uint32_t mct_wrap_secret(const struct mct_wrap *w)
{
	return le32toh(w->secret);
}

int mct_wrap_make(uint32_t secret, const uint8_t with[MC_KEY_LEN], const uint8_t key[MCT_WRAP_KEY],
		  struct mct_wrap *ret)
{
	struct mct_wrap w = { .secret = htole32(secret) };
	struct mc_sealer *s = NULL;
	struct mc_piece p;
	int r = mc_random_bytes(w.nonce, sizeof(w.nonce));

	if (r == 0)
		r = mc_sealer_new(with, &s);
	p = wrap_piece(&w);
	if (r == 0)
		r = mc_seal(s, &p, key, MCT_WRAP_KEY, w.key, w.tag);
	mc_sealer_free(s);
	if (r == 0)
		*ret = w;
	return r;
}

int mct_wrap_open(const struct mct_wrap *w, const struct mct_keys *keys, uint8_t ret[MCT_WRAP_KEY])
{
	const struct mc_piece p = wrap_piece(w);
	struct mc_sealer *s = NULL;
	int r;

	if (!w->secret || (!keys->known && mct_wrap_secret(w) < keys->newest))
		return -EBADMSG;
	if (!keys->known)
		return -ENOKEY;
	r = mc_sealer_new(keys->key, &s);
	if (r == 0)
		r = mc_unseal(s, &p, w->key, MCT_WRAP_KEY, w->tag, ret);
	mc_sealer_free(s);
	return r == -EBADMSG ? -EKEYREJECTED : r;
}
