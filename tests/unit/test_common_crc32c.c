/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/crc32c.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The reference, bit by bit, straight from the definition. */
static uint32_t reference(const uint8_t *p, size_t len)
{
	uint32_t reg = 0xffffffff;

	for (size_t i = 0; i < len; i++) {
		reg ^= p[i];
		for (int b = 0; b < 8; b++)
			reg = reg & 1 ? (reg >> 1) ^ 0x82f63b78u : reg >> 1;
	}
	return ~reg;
}

static uint32_t seed = 1;

static uint32_t rnd(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static uint8_t *random_bytes(size_t len)
{
	uint8_t *p = malloc(len + 1);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)rnd();
	return p;
}

static void vectors_of_rfc3720(void **state)
{
	uint8_t buf[32];

	assert_int_equal(mc_crc32c("123456789", 9), 0xe3069283);
	assert_int_equal(mc_crc32c("", 0), 0);
	memset(buf, 0, sizeof(buf));
	assert_int_equal(mc_crc32c(buf, sizeof(buf)), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(mc_crc32c(buf, sizeof(buf)), 0x62a8ab43);
	for (unsigned i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)i;
	assert_int_equal(mc_crc32c(buf, sizeof(buf)), 0x46dd794e);
}

static void all_lengths_and_alignments(void **state)
{
	uint8_t *p = random_bytes(4096);

	for (size_t at = 0; at < 16; at++)
		for (size_t len = 0; len < 300; len += 1 + at)
			assert_int_equal(mc_crc32c(p + at, len), reference(p + at, len));
	free(p);
}

static void continued_in_pieces(void **state)
{
	size_t len = 200000;
	uint8_t *p = random_bytes(len);
	uint32_t whole = reference(p, len), crc = 0;

	for (size_t at = 0, n; at < len; at += n) {
		n = rnd() % 9000;
		if (n > len - at)
			n = len - at;
		crc = mc_crc32c_add(crc, p + at, n);
	}
	assert_int_equal(crc, whole);
	assert_int_equal(mc_crc32c(p, len), whole);
	free(p);
}

/* Lengths around the block of the fused copy (16320), of the plain copy (16384), and of a chunk. */
static void copy_sums_the_bytes_it_writes(void **state)
{
	static const size_t lens[] = {
		0, 1, 7, 8, 9, 4096, 16319, 16320, 16321, 16384, 32640, 32641, 65280, 65536,
		65537, 130000,
	};
	uint8_t *src = random_bytes(140000), *dst = malloc(140000);

	assert_non_null(dst);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (size_t shift = 0; shift < 3; shift++) {
			size_t n = lens[i], d = 1 + shift * 5;

			memset(dst, 0x5a, 140000);
			assert_int_equal(mc_crc32c_copy(0, dst + d, src + shift, n),
					 reference(src + shift, n));
			assert_memory_equal(dst + d, src + shift, n);
			assert_int_equal(dst[d - 1], 0x5a);
			assert_int_equal(dst[d + n], 0x5a);
		}
	assert_int_equal(mc_crc32c_copy(mc_crc32c(src, 999), dst, src + 999, 100000),
			 reference(src, 100999));
	free(src);
	free(dst);
}

static void combine_equals_concatenation(void **state)
{
	size_t len = 300000;
	uint8_t *p = random_bytes(len);

	for (int i = 0; i < 200; i++) {
		size_t a = rnd() % 1000, b = i < 2 ? (size_t)i : rnd() % (len - 1000);
		uint32_t crc_b = mc_crc32c(p + a, b);

		assert_int_equal(mc_crc32c_combine(mc_crc32c(p, a), crc_b, b),
				 mc_crc32c(p, a + b));
	}
	free(p);
}

static void combine_chunks_of_an_object(void **state)
{
	size_t len = 5 * MC_CRC_CHUNK + 123;
	uint8_t *p = random_bytes(len);
	uint32_t crc = 0;

	assert_int_equal(mc_crc_chunks(len), 6);
	assert_int_equal(mc_crc_chunks(0), 0);
	assert_int_equal(mc_crc_chunks(MC_CRC_CHUNK), 1);
	for (size_t at = 0; at < len; at += MC_CRC_CHUNK) {
		size_t n = len - at < MC_CRC_CHUNK ? len - at : MC_CRC_CHUNK;

		crc = mc_crc32c_combine(crc, mc_crc32c(p + at, n), n);
	}
	assert_int_equal(crc, mc_crc32c(p, len));
	free(p);
}

/* Lengths for which no buffer is large enough: appending 2^40 zeros twice equals appending 2^41. */
static void combine_large_lengths(void **state)
{
	uint32_t a = 0x12345678;
	uint64_t n = 1ull << 40;

	assert_int_equal(mc_crc32c_combine(mc_crc32c_combine(a, 0, n), 0, n),
			 mc_crc32c_combine(a, 0, 2 * n));
	assert_int_equal(mc_crc32c_combine(mc_crc32c_combine(a, 0, MC_CRC_CHUNK), 0, 1),
			 mc_crc32c_combine(a, 0, MC_CRC_CHUNK + 1));
	assert_int_equal(mc_crc32c_combine(mc_crc32c_combine(a, 0, n), 0, ~n),
			 mc_crc32c_combine(a, 0, UINT64_MAX));
}

#ifndef __SANITIZE_THREAD__
/* The test depends on a data race, so it does not run under ThreadSanitizer. */
#define RACED 100000

static atomic_bool stop;
static uint8_t raced[RACED];

static void *scribble(void *arg)
{
	for (unsigned i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i += 61)
		__atomic_store_n(&raced[i % RACED], (uint8_t)i, __ATOMIC_RELAXED);
	return NULL;
}

static void source_may_change_meanwhile(void **state)
{
	uint8_t *dst = malloc(RACED);
	pthread_t t;

	assert_non_null(dst);
	assert_int_equal(pthread_create(&t, NULL, scribble, NULL), 0);
	for (int i = 0; i < 2000; i++) {
		uint32_t crc = mc_crc32c_copy(0, dst, raced, RACED);

		assert_int_equal(crc, mc_crc32c(dst, RACED));
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	free(dst);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_of_rfc3720),
		cmocka_unit_test(all_lengths_and_alignments),
		cmocka_unit_test(continued_in_pieces),
		cmocka_unit_test(copy_sums_the_bytes_it_writes),
		cmocka_unit_test(combine_equals_concatenation),
		cmocka_unit_test(combine_chunks_of_an_object),
		cmocka_unit_test(combine_large_lengths),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(source_may_change_meanwhile),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
