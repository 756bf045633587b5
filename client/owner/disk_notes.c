/* SPDX-License-Identifier: Apache-2.0
 * disk_notes.c - the notes of void records on a disk. */
#include <config.h>

#include "client/owner/disk_notes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"

#define WAIT_MAX ((size_t)MCT_NOTE_BLOCKS * MCT_NOTES)

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
	free(n->wait);
	free(n->block);
	free(n);
}

static void notes_next_block(struct mcs_disk_notes *n)
{
	n->at = (n->at + 1) % MCT_NOTE_BLOCKS;
	n->sequence++;
	n->n = 0;
}

/* The ring has no room for more than @WAIT_MAX, so the oldest of them need not wait. */
static int notes_wait(struct mcs_disk_notes *n, const struct mct_note *note, size_t count)
{
	size_t all, skip;
	struct mct_note *more;

	if (count > WAIT_MAX) {
		note += count - WAIT_MAX;
		count = WAIT_MAX;
	}
	all = n->n_wait + count;
	skip = all > WAIT_MAX ? all - WAIT_MAX : 0;
	if (skip)
		memmove(n->wait, n->wait + skip, (n->n_wait - skip) * sizeof(*note));
	n->n_wait -= skip;
	more = realloc(n->wait, (n->n_wait + count) * sizeof(*more));
	if (!more)
		return mc_fail(-ENOMEM, "no memory for %zu notes", count);
	n->wait = more;
	memcpy(n->wait + n->n_wait, note, count * sizeof(*note));
	n->n_wait += count;
	return 0;
}

int mcs_disk_notes_add(struct mcs_disk_notes *n, const struct mct_note *note, size_t count, const uint64_t secret[2])
{
	int r = count ? notes_wait(n, note, count) : 0;
	size_t done = 0, take;

	while (r == 0 && done < n->n_wait) {
		take = n->n_wait - done < MCT_NOTES - n->n ? n->n_wait - done : MCT_NOTES - n->n;
		memcpy(n->note + n->n, n->wait + done, take * sizeof(*note));
		mct_notes_seal(n->block, n->sequence, n->note, n->n + take, secret);
		r = n->medium->ops->note(n->medium, n->at, n->block, true);
		if (r < 0)
			break;
		n->n += take;
		done += take;
		if (n->n == MCT_NOTES)
			notes_next_block(n);
	}
	if (done) {
		n->n_wait -= done;
		memmove(n->wait, n->wait + done, n->n_wait * sizeof(*note));
	}
	/* The block may be bad: its notes move to the next one. */
	if (r < 0 && r != -MC_EUNAVAILABLE && r != -ENOMEM && notes_wait(n, n->note, n->n) == 0)
		notes_next_block(n);
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
