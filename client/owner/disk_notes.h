/* SPDX-License-Identifier: Apache-2.0
 * disk_notes.h - the notes of void records on a disk (tiers/ssd/record.h): a ring of blocks.
 *
 * The block that is being filled is written again for each addition, so the latest notes are lost if that write is
 * torn.  A start begins a new block. */
#ifndef MCS_DISK_NOTES_H
#define MCS_DISK_NOTES_H

#include "tiers/ssd/record.h"
#include "tiers/tier.h"

struct mcs_disk_notes {
	struct mct_medium *medium;
	void *block;			/* MCT_BLOCK bytes, aligned */
	unsigned at;			/* number of the block that is being filled */
	uint64_t sequence;		/* its sequence */
	size_t n;
	struct mct_note note[MCT_NOTES];	/* in it */
	struct mct_note *wait;		/* notes that could not be written */
	size_t n_wait;
};

/* Find the end of the ring.  Unreadable blocks count as empty.  -ENOMEM, ... */
int mcs_disk_notes_open(struct mct_medium *m, const uint64_t secret[2], struct mcs_disk_notes **ret);
void mcs_disk_notes_close(struct mcs_disk_notes *n);	/* NULL is fine */
/* Add notes, and write them; also those that earlier calls could not write.  One thread at a time.  After an error they
 * wait for the next call, which may have no new ones (@count 0).  -MC_EUNAVAILABLE: the disk is paused.  -ENOMEM: the
 * new ones are lost. */
int mcs_disk_notes_add(struct mcs_disk_notes *n, const struct mct_note *note, size_t count, const uint64_t secret[2]);
/* All notes of the disk that can be read; the caller frees *ret.  -ENOMEM, ... */
int mcs_disk_notes_read(struct mct_medium *m, const uint64_t secret[2], struct mct_note **ret, size_t *ret_n);

#endif
