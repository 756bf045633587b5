/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/security/capability.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"

#define SERIAL 0x1122334455667788ull
#define NOW_MS 1700000000000ull

static const uint8_t key[MC_CAPABILITY_KEY] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

/* The authors' test vectors: the key above, messages 00 01 02 ... */
static void the_hash_is_siphash_2_4_128(void **state)
{
	static const struct {
		size_t len;
		uint8_t want[16];
	} vector[] = {
		{ 0, { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
			0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 } },
		{ 1, { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
			0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45 } },
		{ 2, { 0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7,
			0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff, 0xe4 } },
		{ 15, { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11,
			0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9 } },
	};
	uint8_t text[64], mac[16];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(vector) / sizeof(vector[0]); i++) {
		mc_siphash128(key, text, vector[i].len, mac);
		assert_memory_equal(mac, vector[i].want, sizeof(mac));
	}
}

static struct mc_capability signed_capability(uint8_t rights)
{
	struct mc_capability c = {
		.offset = 4096, .len = 1000, .generation = 77, .expires_s = NOW_MS / 1000 + 10, .rights = rights,
	};

	mc_capability_sign(key, SERIAL, &c);
	return c;
}

static int check(const struct mc_capability *c, uint8_t right, uint64_t offset, uint64_t len)
{
	return mc_capability_check(key, SERIAL, c, right, offset, len, NOW_MS);
}

/* The signature is a part of the protocol between masters, clients and owners of different versions. */
static void a_signature_has_these_bytes(void **state)
{
	uint8_t text[40] = { 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x10, 0, 0, 0, 0, 0, 0, 0xe8, 3 };
	struct mc_capability c = signed_capability(MC_CAPABILITY_WRITE);
	uint8_t mac[16];

	text[24] = 77;
	for (unsigned i = 0; i < 4; i++)
		text[32 + i] = (uint8_t)(c.expires_s >> 8 * i);
	text[36] = 2;
	mc_siphash128(key, text, sizeof(text), mac);
	assert_memory_equal(mac, c.mac, sizeof(mac));
}

static void it_opens_its_range_only(void **state)
{
	struct mc_capability c = signed_capability(MC_CAPABILITY_READ);

	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4096, 1000), 0);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4096, 1), 0);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 5095, 1), 0);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4095, 1), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4095, 1001), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4096, 1001), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4097, 1000), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 5096, 1), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, UINT64_MAX, 4098), -EACCES);
	assert_int_equal(check(&c, MC_CAPABILITY_READ, 4097, UINT64_MAX), -EACCES);
}

static void it_opens_one_direction(void **state)
{
	struct mc_capability r = signed_capability(MC_CAPABILITY_READ), w = signed_capability(MC_CAPABILITY_WRITE);

	assert_int_equal(check(&r, MC_CAPABILITY_WRITE, 4096, 1), -EACCES);
	assert_int_equal(check(&w, MC_CAPABILITY_READ, 4096, 1), -EACCES);
	assert_int_equal(check(&w, MC_CAPABILITY_WRITE, 4096, 1), 0);
	r.rights |= MC_CAPABILITY_WRITE;
	assert_int_equal(check(&r, MC_CAPABILITY_WRITE, 4096, 1), -EACCES);
	assert_int_equal(check(&r, MC_CAPABILITY_READ, 4096, 1), -EACCES);
}

static void it_expires(void **state)
{
	struct mc_capability c = signed_capability(MC_CAPABILITY_READ);
	uint64_t end_ms = c.expires_s * 1000ull;

	assert_int_equal(mc_capability_check(key, SERIAL, &c, MC_CAPABILITY_READ, 4096, 1, end_ms - 1), 0);
	assert_int_equal(mc_capability_check(key, SERIAL, &c, MC_CAPABILITY_READ, 4096, 1, end_ms),
			 -MC_ELEASE_EXPIRED);
	c.expires_s++;
	assert_int_equal(mc_capability_check(key, SERIAL, &c, MC_CAPABILITY_READ, 4096, 1, end_ms), -EACCES);
}

static void a_change_of_any_field_voids_it(void **state)
{
	struct mc_capability c = signed_capability(MC_CAPABILITY_READ), other = c;
	uint8_t key2[MC_CAPABILITY_KEY];

	other.generation++;
	assert_int_equal(check(&other, MC_CAPABILITY_READ, 4096, 1), -EACCES);
	other = c;
	other.len++;
	assert_int_equal(check(&other, MC_CAPABILITY_READ, 4096, 1), -EACCES);
	other = c;
	other.offset--;
	assert_int_equal(check(&other, MC_CAPABILITY_READ, 4096, 1), -EACCES);
	for (unsigned i = 0; i < MC_CAPABILITY_MAC; i++) {
		other = c;
		other.mac[i] ^= 1;
		assert_int_equal(check(&other, MC_CAPABILITY_READ, 4096, 1), -EACCES);
	}
	assert_int_equal(mc_capability_check(key, SERIAL + 1, &c, MC_CAPABILITY_READ, 4096, 1, NOW_MS), -EACCES);
	for (unsigned i = 0; i < MC_CAPABILITY_KEY; i++) {
		memcpy(key2, key, sizeof(key2));
		key2[i] ^= 0x80;
		assert_int_equal(mc_capability_check(key2, SERIAL, &c, MC_CAPABILITY_READ, 4096, 1, NOW_MS), -EACCES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_hash_is_siphash_2_4_128),
		cmocka_unit_test(a_signature_has_these_bytes),
		cmocka_unit_test(it_opens_its_range_only),
		cmocka_unit_test(it_opens_one_direction),
		cmocka_unit_test(it_expires),
		cmocka_unit_test(a_change_of_any_field_voids_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
