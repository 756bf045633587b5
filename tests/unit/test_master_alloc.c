/* SPDX-License-Identifier: Apache-2.0
 * The allocator against a map of bytes; its own consistency check runs after every step. */
#include <config.h>

#include "test_master_fixture.h"

#include <string.h>

#include "master/memory/alloc.h"

#define SLOTS 512

struct held {
	uint32_t range;
	uint64_t at, len;
};

static void assert_books(const struct mcm_alloc *a)
{
	if (mcm_alloc_check(a) < 0)
		fail_msg("%s", mc_err_detail(-MC_EINTERNAL));
}

/* Two ranges never share a granule, in any order of operations. */
static void mark(uint8_t *map, const struct held *h, bool on)
{
	uint64_t g;

	for (g = h->at / MCM_GRANULE; g < (h->at + h->len + MCM_GRANULE - 1) / MCM_GRANULE; g++) {
		assert_int_equal(map[g], !on);
		map[g] = on;
	}
}

static uint64_t random_len(unsigned seed)
{
	switch (seed % 5) {
	case 0:
		return 1 + rnd() % 200;
	case 4:
		return 4096 + rnd() % 70000;
	case 1:
		return 1 + rnd() % 5000;
	case 2:
		return 4096 * (1 + rnd() % 16);
	default:
		return 1 + rnd() % 300000;
	}
}

static void test_random(void **state)
{
	uint64_t size = (8u << 20) + 100, i;
	uint8_t *map = calloc(size / MCM_GRANULE + 1, 1);
	struct held held[SLOTS] = { 0 };
	struct mcm_alloc a;

	(void)state;
	assert_non_null(map);
	assert_int_equal(mcm_alloc_init(&a, size), 0);
	for (i = 0; i < 60000; i++) {
		struct held *h = &held[rnd() % SLOTS];

		if (h->range && rnd() % 3 == 0) {
			uint64_t before = a.used;

			mark(map, h, false);
			h->len = 1 + rnd() % h->len;
			assert_int_equal(mcm_alloc_trim(&a, h->range, mcm_alloc_round(h->len)), 0);
			assert_int_equal(mcm_range_granules(&a, mcm_range(&a, h->range)),
					 mcm_alloc_round(h->len));
			assert_true(a.used <= before);
			mark(map, h, true);
		} else if (h->range) {
			mark(map, h, false);
			mcm_alloc_free(&a, h->range);
			h->range = 0;
		} else {
			int r;

			h->len = random_len((unsigned)rnd());
			r = mcm_alloc_take(&a, h->len, &h->range);
			if (r < 0) {
				assert_int_equal(r, -MC_ENOSPACE);
				h->range = 0;
				continue;
			}
			h->at = mcm_range_offset(&a, h->range);
			assert_true(h->at + h->len <= size);
			assert_int_equal(h->at % MCM_GRANULE, 0);
			/* Whole pages can be mapped, and so can large ranges. */
			if (h->len % 4096 == 0 || h->len >= 65536 || mcm_alloc_aligns(mcm_alloc_round(h->len)))
				assert_int_equal(h->at % 4096, 0);
			mark(map, h, true);
		}
		if (i % 500 == 0)
			assert_books(&a);
	}
	for (i = 0; i < SLOTS; i++)
		if (held[i].range)
			mcm_alloc_free(&a, held[i].range);
	assert_books(&a);
	/* All free ranges were merged. */
	assert_int_equal(a.used, 0);
	assert_int_equal(mcm_alloc_largest_free(&a), size / MCM_GRANULE * MCM_GRANULE);
	mcm_alloc_done(&a);
	free(map);
}

/* A segment full of equal objects stays full when objects are freed and allocated in any order. */
static void recycle(uint64_t len, uint64_t size)
{
	uint64_t takes = mcm_alloc_round(len) * MCM_GRANULE, step, n, i;
	struct mcm_alloc a;
	uint32_t *range, id;

	step = mcm_alloc_aligns(takes / MCM_GRANULE) ? (takes + 4095) / 4096 * 4096 : takes;
	n = (size - takes) / step + 1;
	/* Alignment costs less than 1/16. */
	assert_true(takes < MCM_GRANULE * 16 || n * takes > size / 16 * 15);
	range = calloc(n, sizeof(*range));
	assert_non_null(range);
	assert_int_equal(mcm_alloc_init(&a, size), 0);
	for (i = 0; i < n; i++)
		assert_int_equal(mcm_alloc_take(&a, len, &range[i]), 0);
	assert_int_equal(mcm_alloc_take(&a, len, &id), -MC_ENOSPACE);
	for (i = 0; i < 4 * n; i++) {
		uint64_t j = rnd() % n, k = rnd() % n;

		if (j == k)
			continue;
		mcm_alloc_free(&a, range[j]);
		mcm_alloc_free(&a, range[k]);
		assert_int_equal(mcm_alloc_take(&a, len, &range[k]), 0);
		assert_int_equal(mcm_alloc_take(&a, len, &range[j]), 0);
	}
	assert_books(&a);
	assert_int_equal(a.ranges, n);
	mcm_alloc_done(&a);
	free(range);
}

static void test_uniform(void **state)
{
	static const uint64_t len[] = { 1, 64, 100, 4095, 4096, 4097, 4096 + 17, 5000, 8192 + 17,
					36881, 61440, 65535, 65536, 65536 + 17, 131088, 100000,
					1 << 20, (1 << 20) + 64 };
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(len) / sizeof(len[0]); i++)
		recycle(len[i], 16u << 20);
}

static void test_bounds(void **state)
{
	struct mcm_alloc a;
	uint32_t range;

	(void)state;
	assert_int_equal(mcm_alloc_init(&a, 63), -MC_EPARAM);
	assert_int_equal(mcm_alloc_init(&a, MCM_ALLOC_MAX + 1), -MC_EPARAM);

	/* A segment of the largest size: its first and its last byte can be allocated. */
	assert_int_equal(mcm_alloc_init(&a, MCM_ALLOC_MAX), 0);
	assert_int_equal(mcm_alloc_largest_free(&a), MCM_ALLOC_MAX);
	assert_int_equal(mcm_alloc_take(&a, MCM_ALLOC_MAX, &range), 0);
	assert_int_equal(mcm_alloc_take(&a, 1, &range), -MC_ENOSPACE);
	mcm_alloc_done(&a);

	assert_int_equal(mcm_alloc_init(&a, 64), 0);
	assert_int_equal(mcm_alloc_take(&a, 65, &range), -MC_ENOSPACE);
	assert_int_equal(mcm_alloc_take(&a, 64, &range), 0);
	assert_books(&a);
	mcm_alloc_free(&a, range);
	assert_books(&a);
	mcm_alloc_done(&a);
}

/* Odd lengths leave the begin of free memory aligned, and a request of whole pages finds an aligned part among odd
 * free ranges of about its length. */
static void test_pages_among_odd(void **state)
{
	uint32_t odd[100], page[100], id, i;
	struct mcm_alloc a;

	(void)state;
	assert_int_equal(mcm_alloc_init(&a, 400 * 4096), 0);
	for (i = 0; i < 100; i++) {
		assert_int_equal(mcm_alloc_take(&a, 4096 + 17, &odd[i]), 0);
		assert_int_equal(mcm_alloc_take(&a, 4096, &page[i]), 0);
		assert_int_equal(mcm_range_offset(&a, page[i]), i * 4096);
	}
	/* Leave no page free, then one odd range in two, then also a page. */
	assert_int_equal(mcm_alloc_take(&a, mcm_alloc_largest_free(&a) / 4096 * 4096, &id), 0);
	for (i = 0; i < 100; i += 2)
		mcm_alloc_free(&a, odd[i]);
	assert_books(&a);
	assert_int_equal(mcm_alloc_largest_free(&a), 4096 + 64);
	for (i = 0; i < 100; i++)
		if (mcm_alloc_take(&a, 4096, &id) < 0)
			break;
	/* Two of 64 begins are so that a page fits. */
	assert_in_range(i, 0, 2);
	mcm_alloc_free(&a, page[7]);
	assert_int_equal(mcm_alloc_take(&a, 4096, &id), 0);
	assert_int_equal(mcm_range_offset(&a, id) % 4096, 0);
	assert_books(&a);
	mcm_alloc_done(&a);
}

/* A scan's cursor stays valid when its range is merged. */
static void test_cursor(void **state)
{
	uint32_t range[8], i;
	struct mcm_alloc a;

	(void)state;
	assert_int_equal(mcm_alloc_init(&a, 8 * 4096), 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(mcm_alloc_take(&a, 4096, &range[i]), 0);
	a.cursor = range[3];
	mcm_alloc_free(&a, range[2]);
	mcm_alloc_free(&a, range[3]);
	assert_int_equal(mcm_range_offset(&a, a.cursor), 2 * 4096);
	mcm_alloc_free(&a, range[1]);
	assert_int_equal(mcm_range_offset(&a, a.cursor), 4096);
	assert_books(&a);
	mcm_alloc_done(&a);
}

/* A range that only the cursor finds: long enough, behind many ranges of its bin that are too
 * short. */
static void test_crowded_bin(void **state)
{
	uint32_t range[64], id, i;
	struct mcm_alloc a;

	(void)state;
	assert_int_equal(mcm_alloc_init(&a, 32 * (100 * 4096 + 4096)), 0);
	/* free ranges of 100 pages and one of 101, separated by used ones */
	for (i = 0; i < 32; i++) {
		assert_int_equal(mcm_alloc_take(&a, (i == 0 ? 101 : 100) * 4096, &range[2 * i]), 0);
		if (i < 31)
			assert_int_equal(mcm_alloc_take(&a, 4096, &range[2 * i + 1]), 0);
	}
	for (i = 0; i < 32; i++)
		mcm_alloc_free(&a, range[2 * i]);
	a.cursor = a.first;
	assert_int_equal(mcm_alloc_take(&a, 101 * 4096, &id), 0);
	assert_int_equal(mcm_range_offset(&a, id), 0);
	assert_books(&a);
	mcm_alloc_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_pages_among_odd),
		cmocka_unit_test(test_cursor),
		cmocka_unit_test(test_crowded_bin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
