/* SPDX-License-Identifier: Apache-2.0
 * test_engine_copy.c - copies and their checksums, at every alignment. */
#include <config.h>

#include "test_engine_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "engine/nt_copy.h"

#define ROOM (MC_CRC_CHUNK + 256)

static void a_chunk_is_copied_with_its_checksum(void **state)
{
	char *src = aligned_alloc(64, ROOM), *dst = aligned_alloc(64, ROOM);

	pattern_fill(src, ROOM, 1, 0);
	for (unsigned s = 0; s < 40; s++)
		for (unsigned d = 0; d < 64; d += d < 17 ? 1 : 16)
			for (int nt = 0; nt < 2; nt++) {
				memset(dst, 0x5c, ROOM);
				assert_int_equal(mce_nt_copy_chunk(dst + d, src + s, nt),
						 mc_crc32c(src + s, MC_CRC_CHUNK));
				assert_memory_equal(dst + d, src + s, MC_CRC_CHUNK);
				for (unsigned i = 0; i < d; i++)
					assert_int_equal(dst[i], 0x5c);
				for (unsigned i = d + MC_CRC_CHUNK; i < ROOM; i++)
					assert_int_equal(dst[i], 0x5c);
			}
	free(src);
	free(dst);
}

/* Every bit matters, in each of the strands and behind them. */
static void every_bit_changes_the_checksum(void **state)
{
	char *src = aligned_alloc(64, MC_CRC_CHUNK), *dst = aligned_alloc(64, MC_CRC_CHUNK);

	memset(src, 0, MC_CRC_CHUNK);
	for (uint32_t bit = 0; bit < 8 * MC_CRC_CHUNK; bit += 4093) {
		src[bit / 8] = (char)(1 << bit % 8);
		assert_int_equal(mce_nt_copy_chunk(dst, src, true), mc_crc32c(src, MC_CRC_CHUNK));
		src[bit / 8] = 0;
	}
	free(src);
	free(dst);
}

static void a_non_temporal_copy_touches_only_its_range(void **state)
{
	static const size_t sizes[] = { 0, 1, 15, 16, 63, 64, 65, 127, 128, 1000, 4096, 65536 + 3 };
	char *src = aligned_alloc(64, ROOM), *dst = aligned_alloc(64, ROOM);

	pattern_fill(src, ROOM, 2, 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned s = 0; s < 20; s++)
			for (unsigned d = 0; d < 70; d++) {
				memset(dst, 0x5c, ROOM);
				mce_nt_copy(dst + d, src + s, sizes[i], true);
				assert_memory_equal(dst + d, src + s, sizes[i]);
				if (d)
					assert_int_equal(dst[d - 1], 0x5c);
				assert_int_equal(dst[d + sizes[i]], 0x5c);
			}
	free(src);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_is_copied_with_its_checksum),
		cmocka_unit_test(every_bit_changes_the_checksum),
		cmocka_unit_test(a_non_temporal_copy_touches_only_its_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
