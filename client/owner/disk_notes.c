/* SPDX-License-Identifier: Apache-2.0
 * disk_notes.c - the notes of void records on a disk. */
#include <config.h>

#include "client/owner/disk_notes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"

/* An unreadable block counts as an empty one: the disk's objects are worth more than its notes. */
static int notes_block_read(struct mct_medium *m, unsigned nth, void *block, unsigned *bad)
{
	int r = m->ops->note(m, nth, block, false);

	if (r != -EIO)
		return r;
	memset(block, 0, MCT_BLOCK);
	++*bad;
	return 0;
}

static void notes_warn_bad(unsigned bad)
{
	if (bad)
		mc_warn("client", "notes on our disk cannot be read, so removed objects may come back if the master's "
			"journal is lost blocks=%u", bad);
}

int mcs_disk_notes_open(struct mct_medium *m, const uint64_t secret[2], struct mcs_disk_notes **ret)
{
	struct mcs_disk_notes *n = calloc(1, sizeof(*n));
	unsigned bad = 0;
	uint64_t sequence;
	int r = n ? -posix_memalign(&n->block, MCT_BLOCK, MCT_BLOCK) : -ENOMEM;

	for (unsigned i = 0; i < MCT_NOTE_BLOCKS && r == 0; i++) {
		r = notes_block_read(m, i, n->block, &bad);
		if (r < 0)
			break;
		(void)mct_notes_open(n->block, secret, &sequence, n->note);
		if (sequence > n->sequence) {
			n->sequence = sequence;
			n->at = (i + 1) % MCT_NOTE_BLOCKS;
		}
	}
	if (r < 0) {
		mcs_disk_notes_close(n);
		return r;
	}
	notes_warn_bad(bad);
	n->medium = m;
	n->sequence++;
	*ret = n;
	return 0;
}

void mcs_disk_notes_close(struct mcs_disk_notes *n)
{
	if (!n)
		return;
	free(n->block);
	free(n);
}

int mcs_disk_notes_add(struct mcs_disk_notes *n, const struct mct_note *note, size_t count, const uint64_t secret[2])
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		if (n->n == MCT_NOTES) {
			n->at = (n->at + 1) % MCT_NOTE_BLOCKS;
			n->sequence++;
			n->n = 0;
		}
		n->note[n->n++] = note[i];
		if (i + 1 < count && n->n < MCT_NOTES)
			continue;
		mct_notes_seal(n->block, n->sequence, n->note, n->n, secret);
		r = n->medium->ops->note(n->medium, n->at, n->block, true);
	}
	return r;
}

int mcs_disk_notes_read(struct mct_medium *m, const uint64_t secret[2], struct mct_note **ret, size_t *ret_n)
{
	auto_free struct mct_note *all = calloc(MCT_NOTE_BLOCKS * MCT_NOTES, sizeof(*all));
	auto_free void *block = NULL;
	unsigned bad = 0;
	uint64_t sequence;
	size_t n = 0;
	int r = all ? -posix_memalign(&block, MCT_BLOCK, MCT_BLOCK) : -ENOMEM;

	for (unsigned i = 0; i < MCT_NOTE_BLOCKS && r == 0; i++) {
		r = notes_block_read(m, i, block, &bad);
		if (r == 0)
			n += mct_notes_open(block, secret, &sequence, all + n);
	}
	if (r < 0)
		return r;
	notes_warn_bad(bad);
	*ret = TAKE_PTR(all);
	*ret_n = n;
	return 0;
}
