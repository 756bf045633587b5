/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_record.c - records of objects on a disk: which are valid, and which still describe their bytes. */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tiers/ssd/record.h"

static const uint64_t secret[2] = { 0x1234, 0x5678 };
static unsigned char block[MCT_BLOCK] __attribute__((aligned(4096)));

static struct mct_record sealed(uint32_t body_len)
{
	static const unsigned char body[MCT_RECORD_BODY_MAX] = { 'b', 'o', 'd', 'y' };
	struct mct_record r = {
		.off = 8192, .len = 3 * MCT_BLOCK, .order = 7, .generation = 5, .name = 99, .body = body,
		.body_len = body_len,
	};

	memset(block, 0xa5, sizeof(block));
	mct_record_seal(block, &r, secret);
	return r;
}

static void a_record_comes_back(void **state)
{
	const uint32_t lens[] = { 0, 1, 4, 200, MCT_RECORD_BODY_MAX };

	for (unsigned i = 0; i < 5; i++) {
		struct mct_record r = sealed(lens[i]), back;

		assert_true(mct_record_open(block, r.off + r.len, secret, &back));
		assert_int_equal(back.off, r.off);
		assert_int_equal(back.len, r.len);
		assert_int_equal(back.order, r.order);
		assert_int_equal(back.generation, r.generation);
		assert_int_equal(back.name, r.name);
		assert_int_equal(back.body_len, r.body_len);
		assert_memory_equal(back.body, r.body, r.body_len);
		/* The bytes before it stay. */
		for (unsigned k = 0; k < MCT_BLOCK - mct_record_size(r.body_len); k++)
			assert_int_equal(block[k], 0xa5);
	}
}

static void every_flipped_bit_and_each_other_place_voids_it(void **state)
{
	const uint64_t other[2] = { 0x1234, 0x5679 };
	struct mct_record r = sealed(100), back;

	for (unsigned i = MCT_BLOCK - 164; i < MCT_BLOCK; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			block[i] ^= 1u << bit;
			assert_false(mct_record_open(block, r.off + r.len, secret, &back));
			block[i] ^= 1u << bit;
		}
	assert_true(mct_record_open(block, r.off + r.len, secret, &back));
	assert_false(mct_record_open(block, r.off + r.len + MCT_BLOCK, secret, &back));
	assert_false(mct_record_open(block, r.len, secret, &back));
	assert_false(mct_record_open(block, r.off + r.len, other, &back));
	memset(block, 0, sizeof(block));
	assert_false(mct_record_open(block, r.off + r.len, secret, &back));
}

/* ---- */

#define B MCT_BLOCK
#define F(off, len, order, generation, name) { (off) * (uint64_t)B, (len) * (uint64_t)B, order, generation, name }

static void live_is(const struct mct_found *f, size_t n, const uint64_t *off, size_t kept)
{
	struct mct_found *copy = malloc(n * sizeof(*copy));

	memcpy(copy, f, n * sizeof(*copy));
	assert_int_equal(mct_records_live(copy, n, NULL, 0), kept);
	for (size_t i = 0; i < kept; i++)
		assert_int_equal(copy[i].off, off[i] * B);
	free(copy);
}

static void a_range_that_was_written_again_has_its_last_object(void **state)
{
	/* 100 was freed; 2 and 3 took its begin; the later write of 1 covers the end of 3 and is over itself. */
	const struct mct_found f[] = { F(0, 10, 100, 1, 1), F(0, 2, 200, 2, 2), F(2, 3, 150, 3, 3),
				       F(4, 2, 300, 4, 4) };
	const uint64_t live[] = { 0, 4 };

	live_is(f, 4, live, 2);
}

static void of_a_name_only_the_newest_version_is_live(void **state)
{
	const struct mct_found f[] = { F(9, 1, 1, 10, 7), F(3, 1, 2, 30, 7), F(6, 1, 3, 20, 7), F(1, 1, 9, 1, 8),
				       F(12, 1, 4, 30, 7) };
	const uint64_t live[] = { 1, 12 };

	live_is(f, 5, live, 2);
	/* The newest version that is left, if a later write took the newest. */
	const struct mct_found g[] = { F(0, 2, 5, 50, 7), F(8, 2, 4, 40, 7), F(0, 1, 6, 60, 9) };
	const uint64_t left[] = { 0, 8 };

	live_is(g, 3, left, 2);
	live_is(g, 0, NULL, 0);
}

static void a_note_voids_the_newest_version_and_brings_back_no_older_one(void **state)
{
	struct mct_found f[] = { F(0, 1, 1, 10, 7), F(1, 1, 2, 20, 7), F(2, 1, 3, 30, 8), F(3, 1, 4, 40, 9) };
	/* The third one's range has another generation now. */
	struct mct_note note[] = { { 2 * B, 29 }, { 1 * B, 20 }, { 9 * B, 40 } }, back[MCT_NOTES];
	const uint64_t other[2] = { 1, 2 };
	uint64_t sequence;

	assert_int_equal(mct_records_live(f, 4, note, 3), 2);
	assert_int_equal(f[0].name, 8);
	assert_int_equal(f[1].name, 9);
	mct_notes_seal(block, 5, note, 3, secret);
	assert_int_equal(mct_notes_open(block, secret, &sequence, back), 3);
	assert_int_equal(sequence, 5);
	assert_memory_equal(back, note, sizeof(note));
	assert_int_equal(mct_notes_open(block, other, &sequence, back), 0);
	assert_int_equal(sequence, 0);
	for (unsigned i = 0; i < 32 + sizeof(note); i++) {
		block[i] ^= 4;
		assert_int_equal(mct_notes_open(block, secret, &sequence, back), 0);
		block[i] ^= 4;
	}
	memset(block, 0, sizeof(block));
	assert_int_equal(mct_notes_open(block, secret, &sequence, back), 0);
}

/* Against the plain rule. */
static void any_set_agrees_with_the_rule(void **state)
{
	struct mct_found f[24], got[24];

	srand(1);
	for (unsigned round = 0; round < 20000; round++) {
		size_t n = (size_t)rand() % 24, want = 0, k = 0, kept;

		for (size_t i = 0; i < n; i++)
			f[i] = (struct mct_found){ (uint64_t)(rand() % 16) * B, (uint64_t)(1 + rand() % 5) * B, 100 + i,
						   1 + (uint64_t)(rand() % 20), (uint64_t)(rand() % 6) };
		memcpy(got, f, sizeof(f));
		kept = mct_records_live(got, n, NULL, 0);
		for (size_t i = 0; i < n; i++) {
			bool dead = false;

			for (size_t j = 0; j < n && !dead; j++)
				dead = j > i && f[j].off < f[i].off + f[i].len && f[i].off < f[j].off + f[j].len;
			if (dead)
				f[i].len |= 1;
		}
		for (size_t i = 0; i < n; i++) {
			bool best = !(f[i].len & 1);

			for (size_t j = 0; j < n && best; j++)
				best = f[j].len & 1 || f[j].name != f[i].name || f[j].generation < f[i].generation ||
				       (f[j].generation == f[i].generation && f[j].order <= f[i].order);
			for (k = 0; best && k < kept && got[k].order != f[i].order; k++)
				;
			if (best && k == kept)
				fail_msg("round %u: record %zu is missing", round, i);
			want += best;
		}
		assert_int_equal(kept, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_comes_back),
		cmocka_unit_test(every_flipped_bit_and_each_other_place_voids_it),
		cmocka_unit_test(a_range_that_was_written_again_has_its_last_object),
		cmocka_unit_test(of_a_name_only_the_newest_version_is_live),
		cmocka_unit_test(a_note_voids_the_newest_version_and_brings_back_no_older_one),
		cmocka_unit_test(any_set_agrees_with_the_rule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
