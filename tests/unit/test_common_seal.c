/* SPDX-License-Identifier: Apache-2.0
 * test_common_seal.c - encryption of bytes at rest: known answers, and refusals. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/security/seal.h"

static size_t hex(const char *text, uint8_t *ret)
{
	size_t n = strlen(text) / 2;
	unsigned byte;

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
		ret[i] = (uint8_t)byte;
	}
	return n;
}

/* ---- pieces ------------------------------------------------------------------------------------ */

/* Test cases 13, 14 and 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega), which NIST refers to. */
static const struct {
	const char *key, *nonce, *aad, *plain, *sealed, *tag;
} gcm[] = {
	{
		"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", "", "",
		"", "530f8afbc74536b9a963b4f1c4cb738b",
	}, {
		"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", "",
		"00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
		"d0d1c8a799996bf0265b98b5d48ab919",
	}, {
		"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
		"feedfacedeadbeeffeedfacedeadbeefabaddad2",
		"d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
		"1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
		"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
		"8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
		"76fc6ece0f4e1768cddf8853bb2d551b",
	},
};

static void pieces_have_the_known_answers(void **state)
{
	for (size_t i = 0; i < sizeof(gcm) / sizeof(gcm[0]); i++) {
		uint8_t key[MC_KEY_LEN], aad[64], plain[64], want[64], tag[MC_SEAL_TAG], out[64] = { 0 };
		uint8_t got[MC_SEAL_TAG];
		struct mc_sealer *s;
		struct mc_piece p = { .aad = aad };
		size_t len;

		hex(gcm[i].key, key);
		hex(gcm[i].nonce, p.nonce);
		p.aad_len = hex(gcm[i].aad, aad);
		len = hex(gcm[i].plain, plain);
		assert_int_equal(hex(gcm[i].sealed, want), len);
		hex(gcm[i].tag, tag);
		assert_int_equal(mc_sealer_new(key, &s), 0);
		assert_int_equal(mc_seal(s, &p, plain, len, out, got), 0);
		assert_memory_equal(out, want, len);
		assert_memory_equal(got, tag, sizeof(tag));
		/* in place */
		assert_int_equal(mc_unseal(s, &p, out, len, got, out), 0);
		assert_memory_equal(out, plain, len);
		mc_sealer_free(s);
	}
}

#define LEN 100u

static void a_changed_piece_is_refused(void **state)
{
	uint8_t key[MC_KEY_LEN] = { 1 }, plain[LEN], sealed[LEN], out[LEN], tag[MC_SEAL_TAG], aad[3] = "ab";
	static const uint8_t zeros[LEN];
	struct mc_piece p = { .aad = aad, .aad_len = sizeof(aad) };
	struct mc_sealer *s, *other;

	memset(plain, 7, sizeof(plain));
	assert_int_equal(mc_sealer_new(key, &s), 0);
	key[31] ^= 1;
	assert_int_equal(mc_sealer_new(key, &other), 0);
	mc_piece_number(&p, 1, 7);
	assert_int_equal(mc_seal(s, &p, plain, LEN, sealed, tag), 0);
	for (unsigned bit = 0; bit < 8 * LEN; bit++) {
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), -EBADMSG);
		assert_memory_equal(out, zeros, LEN);
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (unsigned bit = 0; bit < 8 * MC_SEAL_TAG; bit++) {
		tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), -EBADMSG);
		tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(mc_unseal(other, &p, sealed, LEN, tag, out), -EBADMSG);
	assert_int_equal(mc_unseal(s, &p, sealed, LEN - 1, tag, out), -EBADMSG);
	aad[0]++;
	assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), -EBADMSG);
	aad[0]--;
	mc_piece_number(&p, 1, 8);
	assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), -EBADMSG);
	mc_piece_number(&p, 2, 7);
	assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), -EBADMSG);
	mc_piece_number(&p, 1, 7);
	/* Refusals leave no traces. */
	assert_int_equal(mc_unseal(s, &p, sealed, LEN, tag, out), 0);
	assert_memory_equal(out, plain, LEN);
	mc_sealer_free(other);
	mc_sealer_free(s);
}

/* ---- blocks ------------------------------------------------------------------------------------ */

/* Vector 10 of IEEE 1619-2007, appendix B: its data unit has 512 bytes, which are the first ones of ours. */
static void blocks_have_the_known_answers(void **state)
{
	static const char want_hex[] =
		"1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"
		"5d31e276f8fe4a8d66b317f9ac683f44680a86ac35adfc3345befecb4bb188fd";
	static uint8_t block[MC_XTS_BLOCK], out[MC_XTS_BLOCK];
	uint8_t key[MC_XTS_KEY], want[64];
	struct mc_xts *x;

	hex("2718281828459045235360287471352662497757247093699959574966967627"
	    "3141592653589793238462643383279502884197169399375105820974944592", key);
	hex(want_hex, want);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)i;
	assert_int_equal(mc_xts_new(key, &x), 0);
	assert_int_equal(mc_xts_encrypt(x, 0xff, block, out, sizeof(block)), 0);
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(mc_xts_decrypt(x, 0xff, out, out, sizeof(out)), 0);
	assert_memory_equal(out, block, sizeof(block));
	mc_xts_free(x);
}

static void a_block_is_bound_to_its_place_and_key(void **state)
{
	static uint8_t plain[4 * MC_XTS_BLOCK], sealed[4 * MC_XTS_BLOCK], out[4 * MC_XTS_BLOCK];
	uint8_t key[MC_XTS_KEY] = { 5 };
	struct mc_xts *x, *other;

	memset(plain, 9, sizeof(plain));
	assert_int_equal(mc_xts_new(key, &x), 0);
	key[0]++;
	assert_int_equal(mc_xts_new(key, &other), 0);
	assert_int_equal(mc_xts_encrypt(x, 10, plain, sealed, sizeof(plain)), 0);
	/* Equal blocks are not equal at other places. */
	assert_memory_not_equal(sealed, sealed + MC_XTS_BLOCK, MC_XTS_BLOCK);
	/* A part is read alone. */
	assert_int_equal(mc_xts_decrypt(x, 12, sealed + 2 * MC_XTS_BLOCK, out, MC_XTS_BLOCK), 0);
	assert_memory_equal(out, plain, MC_XTS_BLOCK);
	assert_int_equal(mc_xts_decrypt(x, 11, sealed + 2 * MC_XTS_BLOCK, out, MC_XTS_BLOCK), 0);
	for (size_t i = 0; i < MC_XTS_BLOCK; i += 16)
		assert_memory_not_equal(out + i, plain, 16);
	assert_int_equal(mc_xts_decrypt(other, 10, sealed, out, sizeof(out)), 0);
	for (size_t i = 0; i < sizeof(out); i += 16)
		assert_memory_not_equal(out + i, plain, 16);
	mc_xts_free(other);
	mc_xts_free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_have_the_known_answers),
		cmocka_unit_test(a_changed_piece_is_refused),
		cmocka_unit_test(blocks_have_the_known_answers),
		cmocka_unit_test(a_block_is_bound_to_its_place_and_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
