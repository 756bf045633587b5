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

static const uint64_t secret[2] = { 5, 6 };
static uint8_t blocks[MCT_NOTE_BLOCKS][MCT_BLOCK];
static int unreadable;		/* number of a block, -1: none */

static int note(struct mct_medium *m, unsigned nth, void *buf, bool write)
{
	(void)m;
	assert_true(nth < MCT_NOTE_BLOCKS);
	if (!write && (int)nth == unreadable)
		return -EIO;
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(an_unreadable_block_counts_as_empty) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
