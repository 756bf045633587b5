/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/bench/mcbench_content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEN_MAX 300

static void right_bytes_pass(void **state)
{
	struct mcbench_wrong wrong = { .bytes = 42 };
	char buf[LEN_MAX + 2];

	for (size_t len = 0; len <= LEN_MAX; len++) {
		memset(buf, 0x55, sizeof(buf));
		mcbench_content_fill(buf + 1, len, 5, 6);
		assert_int_equal(buf[0], 0x55);
		assert_int_equal(buf[len + 1], 0x55);
		assert_int_equal(mcbench_content_check(buf + 1, len, 5, 6, &wrong), 0);
	}
	assert_int_equal(wrong.bytes, 42);
}

static void shorter_is_the_beginning_of_longer(void **state)
{
	char a[LEN_MAX], b[LEN_MAX];

	mcbench_content_fill(a, LEN_MAX, 77, 1);
	for (size_t len = 0; len < LEN_MAX; len++) {
		mcbench_content_fill(b, len, 77, 1);
		assert_memory_equal(a, b, len);
	}
}

static void every_bit_counts(void **state)
{
	struct mcbench_wrong wrong;
	char buf[LEN_MAX];

	mcbench_content_fill(buf, LEN_MAX, 123456789, 3);
	for (size_t bit = 0; bit < 8 * LEN_MAX; bit++) {
		buf[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(mcbench_content_check(buf, LEN_MAX, 123456789, 3, &wrong), 1);
		assert_int_equal(wrong.bytes, 1);
		assert_int_equal(wrong.first, bit / 8);
		buf[bit / 8] ^= (char)(1 << bit % 8);
	}
	assert_int_equal(mcbench_content_check(buf, LEN_MAX, 123456789, 3, &wrong), 0);
}

/* Bytes of another block, another position or another seed, and zeros, are all detected; the result
 * tells where misplaced bytes belong. */
static void mixed_up_bytes_are_told(void **state)
{
	struct mcbench_wrong wrong;
	char buf[4096], other[4096];

	mcbench_content_fill(buf, sizeof(buf), 1, 9);
	mcbench_content_fill(other, sizeof(other), 2, 9);
	memcpy(buf + 1024, other + 1024, 512);
	assert_true(mcbench_content_check(buf, sizeof(buf), 1, 9, &wrong) > 380);
	assert_int_equal(wrong.first, 1024);
	assert_int_equal(wrong.id, 2);
	assert_int_equal(wrong.line, 1024 / 64);

	mcbench_content_fill(buf, sizeof(buf), 1, 9);
	memcpy(buf + 1024, buf, 64);
	assert_true(mcbench_content_check(buf, sizeof(buf), 1, 9, &wrong) > 40);
	assert_int_equal(wrong.id, 1);
	assert_int_equal(wrong.line, 0);

	mcbench_content_fill(buf, sizeof(buf), 1, 9);
	assert_true(mcbench_content_check(buf, sizeof(buf), 1, 10, &wrong) > 2900);
	memset(buf, 0, sizeof(buf));
	assert_true(mcbench_content_check(buf, sizeof(buf), 1, 9, &wrong) > 3000);
}

static void ids_and_seeds_differ(void **state)
{
	char a[64], b[64];

	mcbench_content_fill(a, sizeof(a), 1, 0);
	for (uint64_t i = 0; i < 1000; i++) {
		mcbench_content_fill(b, sizeof(b), i, i == 1);
		assert_memory_not_equal(a + 16, b + 16, 48);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_bytes_pass),
		cmocka_unit_test(shorter_is_the_beginning_of_longer),
		cmocka_unit_test(every_bit_counts),
		cmocka_unit_test(mixed_up_bytes_are_told),
		cmocka_unit_test(ids_and_seeds_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
