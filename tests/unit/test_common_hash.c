/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/hash.h"
#include "common/sys/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Inode numbers and placement are the same on every node only if the hash is. */
static void it_is_xxh3(void **state)
{
	assert_true(mc_hash("", 0, 0) == 0x2d06800538d394c2ull);
	assert_true(mc_hash("key", 3, 0) == mc_hash("key", 3, 0));
	assert_true(mc_hash("key", 3, 0) != mc_hash("key", 3, 1));
	assert_true(mc_hash("key", 3, 0) != mc_hash("kez", 3, 0));
	assert_true(mc_hash("a\0b", 3, 0) != mc_hash("a\0c", 3, 0));
}

static void random_numbers_differ(void **state)
{
	uint64_t seen[64];

	for (int i = 0; i < 64; i++) {
		seen[i] = mc_random_u64();
		for (int j = 0; j < i; j++)
			assert_true(seen[i] != seen[j]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_xxh3),
		cmocka_unit_test(random_numbers_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
