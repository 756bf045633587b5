/* SPDX-License-Identifier: Apache-2.0
 * capability.c - signatures of capabilities.  SipHash: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input
 * PRF", 2012, with the variant of 128 bits that its authors added later. */
#include <config.h>

#include "common/security/capability.h"

#include <endian.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#include "common/err.h"

#define SIGNED_BYTES 40u

struct sip {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t sip_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static inline uint64_t sip_load(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline void sip_store(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static inline void sip_rounds(struct sip *s, unsigned n)
{
	while (n--) {
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = sip_rotate(s->v1, 13) ^ s->v0;
		s->v3 = sip_rotate(s->v3, 16) ^ s->v2;
		s->v0 = sip_rotate(s->v0, 32);
		s->v2 += s->v1;
		s->v0 += s->v3;
		s->v1 = sip_rotate(s->v1, 17) ^ s->v2;
		s->v3 = sip_rotate(s->v3, 21) ^ s->v0;
		s->v2 = sip_rotate(s->v2, 32);
	}
}

static inline void sip_word(struct sip *s, uint64_t m)
{
	s->v3 ^= m;
	sip_rounds(s, 2);
	s->v0 ^= m;
}

static inline uint64_t sip_sum(const struct sip *s)
{
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void mc_siphash128(const uint8_t key[16], const void *data, size_t len, uint8_t ret[16])
{
	const uint64_t k0 = sip_load(key), k1 = sip_load(key + 8);
	const uint8_t *p = data;
	uint8_t last[8] = { 0 };
	struct sip s = {
		k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull ^ 0xee,
		k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull,
	};

	for (size_t left = len; left >= 8; left -= 8, p += 8)
		sip_word(&s, sip_load(p));
	if (len % 8)
		memcpy(last, p, len % 8);
	last[7] = (uint8_t)len;
	sip_word(&s, sip_load(last));
	s.v2 ^= 0xee;
	sip_rounds(&s, 4);
	sip_store(ret, sip_sum(&s));
	s.v1 ^= 0xdd;
	sip_rounds(&s, 4);
	sip_store(ret + 8, sip_sum(&s));
}

static void capability_mac(const uint8_t key[MC_CAPABILITY_KEY], uint64_t serial, const struct mc_capability *c,
			   uint8_t ret[MC_CAPABILITY_MAC])
{
	uint8_t text[SIGNED_BYTES];

	sip_store(text, serial);
	sip_store(text + 8, c->offset);
	sip_store(text + 16, c->len);
	sip_store(text + 24, c->generation);
	sip_store(text + 32, (uint64_t)c->rights << 32 | c->expires_s);
	mc_siphash128(key, text, sizeof(text), ret);
}

void mc_capability_sign(const uint8_t key[MC_CAPABILITY_KEY], uint64_t serial, struct mc_capability *c)
{
	capability_mac(key, serial, c, c->mac);
}

int mc_capability_check(const uint8_t key[MC_CAPABILITY_KEY], uint64_t serial, const struct mc_capability *c,
			uint8_t right, uint64_t offset, uint64_t len, uint64_t now_ms)
{
	uint8_t mac[MC_CAPABILITY_MAC];

	capability_mac(key, serial, c, mac);
	if (CRYPTO_memcmp(mac, c->mac, sizeof(mac)))
		return -EACCES;
	if (!(c->rights & right) || offset < c->offset || offset - c->offset > c->len ||
	    len > c->len - (offset - c->offset))
		return -EACCES;
	return now_ms / 1000 < c->expires_s ? 0 : -MC_ELEASE_EXPIRED;
}
