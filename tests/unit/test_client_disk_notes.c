/* SPDX-License-Identifier: Apache-2.0
 * test_client_disk_notes.c - the ring of notes on a disk with unreadable blocks; the test is the disk. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/owner/disk_notes.h"
#include "common/err.h"

static const uint64_t secret[2] = { 5, 6 };
static uint8_t blocks[MCT_NOTE_BLOCKS][MCT_BLOCK];
static int unreadable;		/* number of a block, -1: none */
static int refuses;		/* error of all writes, 0: none */
static int bad = -1;		/* number of a block that cannot be written, -1: none */

static int note(struct mct_medium *m, unsigned nth, void *buf, bool write)
{
	(void)m;
	assert_true(nth < MCT_NOTE_BLOCKS);
	if (!write && (int)nth == unreadable)
		return -EIO;
	if (write && (refuses || (int)nth == bad))
		return refuses ? refuses : -EIO;
	memcpy(write ? blocks[nth] : buf, write ? buf : blocks[nth], MCT_BLOCK);
	return 0;
}

static const struct mct_tier_ops ops = { .note = note };
static struct mct_medium medium = { &ops };

/* Notes of @count objects from @first on, by a process of its own. */
static void add(unsigned first, unsigned count)
{
	struct mct_note *n = calloc(count, sizeof(*n));
	struct mcs_disk_notes *notes;

	for (unsigned i = 0; i < count; i++)
		n[i] = (struct mct_note){ first + i, 1 };
	assert_int_equal(mcs_disk_notes_open(&medium, secret, &notes), 0);
	assert_int_equal(mcs_disk_notes_add(notes, n, count, secret), 0);
	mcs_disk_notes_close(notes);
	free(n);
}

static size_t count_all(void)
{
	struct mct_note *all;
	size_t n;

	assert_int_equal(mcs_disk_notes_read(&medium, secret, &all, &n), 0);
	free(all);
	return n;
}

static void an_unreadable_block_counts_as_empty(void **state)
{
	(void)state;
	unreadable = -1;
	add(0, 2 * MCT_NOTES);
	add(2 * MCT_NOTES, 3);
	assert_int_equal(count_all(), 2 * MCT_NOTES + 3);
	unreadable = 1;
	assert_int_equal(count_all(), MCT_NOTES + 3);
	add(2 * MCT_NOTES + 3, 4);
	assert_int_equal(count_all(), MCT_NOTES + 7);
	unreadable = -1;
	assert_int_equal(count_all(), 2 * MCT_NOTES + 7);
}

static void notes_wait_for_a_disk_that_is_paused(void **state)
{
	static struct mct_note n[3 * MCT_NOTES];
	struct mcs_disk_notes *notes;

	(void)state;
	memset(blocks, 0, sizeof(blocks));
	for (unsigned i = 0; i < 3 * MCT_NOTES; i++)
		n[i] = (struct mct_note){ i, 1 };
	assert_int_equal(mcs_disk_notes_open(&medium, secret, &notes), 0);
	assert_int_equal(mcs_disk_notes_add(notes, n, 10, secret), 0);
	refuses = -MC_EUNAVAILABLE;
	assert_int_equal(mcs_disk_notes_add(notes, n + 10, 2 * MCT_NOTES, secret), -MC_EUNAVAILABLE);
	assert_int_equal(mcs_disk_notes_add(notes, n + 10 + 2 * MCT_NOTES, 5, secret), -MC_EUNAVAILABLE);
	assert_int_equal(count_all(), 10);
	refuses = 0;
	assert_int_equal(mcs_disk_notes_add(notes, NULL, 0, secret), 0);
	assert_int_equal(count_all(), 15 + 2 * MCT_NOTES);
	/* Not more than the ring can have. */
	refuses = -MC_EUNAVAILABLE;
	for (unsigned i = 0; i < MCT_NOTE_BLOCKS; i++)
		assert_int_equal(mcs_disk_notes_add(notes, n, 3 * MCT_NOTES, secret), -MC_EUNAVAILABLE);
	assert_int_equal(notes->n_wait, MCT_NOTE_BLOCKS * MCT_NOTES);
	refuses = 0;
	mcs_disk_notes_close(notes);
}

static void a_bad_block_is_left_out(void **state)
{
	static struct mct_note n[MCT_NOTES];
	struct mcs_disk_notes *notes;

	(void)state;
	memset(blocks, 0, sizeof(blocks));
	for (unsigned i = 0; i < MCT_NOTES; i++)
		n[i] = (struct mct_note){ i, 1 };
	assert_int_equal(mcs_disk_notes_open(&medium, secret, &notes), 0);
	bad = 1;
	assert_int_equal(mcs_disk_notes_add(notes, n, MCT_NOTES, secret), 0);
	assert_int_equal(mcs_disk_notes_add(notes, n, 7, secret), -EIO);
	assert_int_equal(mcs_disk_notes_add(notes, NULL, 0, secret), 0);
	assert_int_equal(count_all(), MCT_NOTES + 7);
	mcs_disk_notes_close(notes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unreadable_block_counts_as_empty),
		cmocka_unit_test(notes_wait_for_a_disk_that_is_paused),
		cmocka_unit_test(a_bad_block_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
