/* SPDX-License-Identifier: Apache-2.0
 * test_client_scratch.c - scratch memory of operations. */
#include <config.h>

#include "client/scratch.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static void pieces_are_aligned_zeroed_and_apart(void **state)
{
	struct mcs_scratch_pool pool;
	struct mcs_scratch *s;
	unsigned char *piece[200];

	mcs_scratch_pool_init(&pool);
	for (int round = 0; round < 3; round++) {
		s = mcs_scratch_get(&pool);
		assert_non_null(s);
		for (size_t i = 0; i < 200; i++) {
			size_t len = i * 37 % 3000 + 1;

			piece[i] = mcs_scratch_alloc(s, len, 1);
			assert_non_null(piece[i]);
			assert_int_equal((uintptr_t)piece[i] % 64, 0);
			for (size_t k = 0; k < len; k++)
				assert_int_equal(piece[i][k], 0);
			memset(piece[i], (int)i + 1, len);
		}
		for (size_t i = 0; i < 200; i++)
			for (size_t k = 0; k < i * 37 % 3000 + 1; k++)
				assert_int_equal(piece[i][k], (unsigned char)(i + 1));
		mcs_scratch_put(&pool, s);
	}
	mcs_scratch_pool_done(&pool);
}

static void one_block_replaces_several(void **state)
{
	struct mcs_scratch_pool pool;
	struct mcs_scratch *s;
	unsigned char *a, *b;

	mcs_scratch_pool_init(&pool);
	s = mcs_scratch_get(&pool);
	for (int i = 0; i < 50; i++)
		assert_non_null(mcs_scratch_raw(s, 1, 10000));
	mcs_scratch_put(&pool, s);

	/* The same scratch is returned again; now all allocations are in one block. */
	assert_ptr_equal(mcs_scratch_get(&pool), s);
	a = mcs_scratch_raw(s, 1, 10000);
	for (int i = 0; i < 48; i++)
		assert_non_null(mcs_scratch_raw(s, 1, 10000));
	b = mcs_scratch_raw(s, 1, 10000);
	assert_int_equal(b - a, 49 * 10048);
	mcs_scratch_put(&pool, s);
	mcs_scratch_pool_done(&pool);
}

static void sizes_that_overflow_are_refused(void **state)
{
	struct mcs_scratch_pool pool;
	struct mcs_scratch *s;

	mcs_scratch_pool_init(&pool);
	s = mcs_scratch_get(&pool);
	assert_null(mcs_scratch_raw(s, SIZE_MAX / 2, 3));
	assert_null(mcs_scratch_raw(s, SIZE_MAX - 10, 1));
	assert_non_null(mcs_scratch_raw(s, 0, 8));
	mcs_scratch_put(&pool, s);
	mcs_scratch_pool_done(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_aligned_zeroed_and_apart),
		cmocka_unit_test(one_block_replaces_several),
		cmocka_unit_test(sizes_that_overflow_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
