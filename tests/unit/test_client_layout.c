/* SPDX-License-Identifier: Apache-2.0
 * test_client_layout.c - chunks, trailers and scattered memory. */
#include <config.h>

#include "client/layout.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

static void trailer_lies_behind_the_bytes(void **state)
{
	assert_int_equal(mcs_stored_size(0), 0);
	assert_int_equal(mcs_stored_size(1), 1);
	assert_int_equal(mcs_stored_size(65536), 65536);
	assert_int_equal(mcs_stored_size(65537), 65540 + 8);
	assert_int_equal(mcs_stored_size(3 * 65536), 3 * 65536 + 12);
	assert_int_equal(mcs_trailer_offset(65537), 65540);
	assert_int_equal(mcs_trailer_offset(65540), 65540);
	assert_int_equal(mcs_trailer_size(65536), 0);
	assert_int_equal(mcs_trailer_size(65537), 8);
}

static void chunks_combine_to_the_whole(void **state)
{
	const size_t sizes[] = { 0, 1, 65535, 65536, 65537, 131072, 200000, 1000001 };
	unsigned char *p = malloc(1000001);
	uint32_t crc[16];

	for (size_t i = 0; i < 1000001; i++)
		p[i] = (unsigned char)(i * 7 + i / 251);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		size_t size = sizes[k], n = mc_crc_chunks(size);

		for (size_t i = 0; i < n; i++) {
			size_t left = size - i * MC_CRC_CHUNK;

			crc[i] = mc_crc32c(p + i * MC_CRC_CHUNK,
					   left < MC_CRC_CHUNK ? left : MC_CRC_CHUNK);
		}
		assert_int_equal(mcs_crc_of_chunks(crc, size), mc_crc32c(p, size));
	}
	free(p);
}

static void lengths_are_summed_and_checked(void **state)
{
	char c[10];
	struct iovec iov[] = { { c, 3 }, { NULL, 0 }, { c + 3, 4 } };
	struct iovec bad = { NULL, 1 }, huge[] = { { c, MCS_SIZE_MAX }, { c, 1 } };

	assert_int_equal(mcs_iov_len(iov, 3), 7);
	assert_int_equal(mcs_iov_len(NULL, 0), 0);
	assert_int_equal(mcs_iov_len(NULL, 1), -EINVAL);
	assert_int_equal(mcs_iov_len(iov, -1), -EINVAL);
	assert_int_equal(mcs_iov_len(&bad, 1), -EINVAL);
	assert_int_equal(mcs_iov_len(huge, 2), -EINVAL);
	assert_int_equal(mcs_iov_len(huge, 1), MCS_SIZE_MAX);
}

static void head_of_a_list_is_cut(void **state)
{
	char c[10];
	struct iovec iov[] = { { c, 3 }, { c, 0 }, { c + 3, 4 }, { c + 7, 3 } }, out[4];

	assert_int_equal(mcs_iov_head(out, iov, 4, 5), 2);
	assert_ptr_equal(out[1].iov_base, c + 3);
	assert_int_equal(out[1].iov_len, 2);
	assert_int_equal(mcs_iov_head(out, iov, 4, 3), 1);
	assert_int_equal(mcs_iov_head(out, iov, 4, 0), 0);
	assert_int_equal(mcs_iov_head(out, iov, 4, 10), 3);
	assert_int_equal(out[2].iov_len, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trailer_lies_behind_the_bytes),
		cmocka_unit_test(chunks_combine_to_the_whole),
		cmocka_unit_test(lengths_are_summed_and_checked),
		cmocka_unit_test(head_of_a_list_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
