/* SPDX-License-Identifier: Apache-2.0
 * record.h - the record of an object on a disk: which object the bytes before it are.
 *
 * A record is at the end of the last block of the object's range, so it is written with the object's last bytes, and
 * usually in a block that the range has anyway.  Nothing else lists the objects of a disk: after the loss of the
 * master's journal its owner reads all blocks and finds them by their records.
 *
 *	block	... bytes of the object | zeros | body | head of 64 bytes
 *	head	 0 "mcobject"
 *		 8 u16 version 1	10 u16 length of the body	12 u32 0
 *		16 u64 offset of the range in the medium
 *		24 u64 length of the range, this block included
 *		32 u64 order: of two records for the same blocks, the one with the larger order was written later
 *		40 u64 generation of the object: of two versions of a name, the larger one is newer
 *		48 u64 hash of the object's tenant and key
 *		56 u64 checksum of the head before and the body, with the medium's secret
 *
 * little-endian.  The body belongs to the master (master/task/adopt.h).  The secret (random, in the medium's header)
 * keeps bytes that a client has put from being taken for a record, and voids all records when it is replaced.  The
 * record of an object that was evicted stays until the block is written again.
 *
 * Records of objects that were removed, replaced or renamed are named by notes, in a ring of blocks (mct_tier_ops.note)
 * that has the latest 64,000:
 *
 *	block	 0 "mc-gone1"
 *		 8 u64 sequence: the larger, the later in the ring; not 0
 *		16 u64 number of notes
 *		24 u64 checksum of the block up to the last note, without itself, with the secret
 *		32 {u64 offset of the range, u64 generation of the object}[] */
#ifndef MCT_RECORD_H
#define MCT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tiers/tier.h"

#define MCT_RECORD_HEAD 64u
#define MCT_RECORD_BODY_MAX (MCT_BLOCK - MCT_RECORD_HEAD)

struct mct_record {
	uint64_t off, len;
	uint64_t order, generation, name;
	const void *body;	/* borrowed */
	uint32_t body_len;	/* at most MCT_RECORD_BODY_MAX */
};

/* Bytes of a record. */
static inline uint64_t mct_record_size(uint32_t body_len)
{
	return MCT_RECORD_HEAD + (uint64_t)body_len;
}

/* Write the record to the end of @block, the last one of the range. */
void mct_record_seal(void *block, const struct mct_record *r, const uint64_t secret[2]);
/* The record in @block, which ends at @end in the medium.  False: there is none, it is damaged, or it has another
 * secret or place.  The body is borrowed from @block. */
bool mct_record_open(const void *block, uint64_t end, const uint64_t secret[2], struct mct_record *ret);

/* ---- the records of a medium ---- */

struct mct_found {
	uint64_t off, len, order, generation, name;
};

/* The record at this offset, of this generation, is void. */
struct mct_note {
	uint64_t off, generation;
};
#define MCT_NOTES ((MCT_BLOCK - 32u) / sizeof(struct mct_note))	/* in one block */

/* @n: up to MCT_NOTES. */
void mct_notes_seal(void *block, uint64_t sequence, const struct mct_note *note, size_t n, const uint64_t secret[2]);
/* Number of notes in @ret; 0: the block has none, is damaged, or has another secret; then *ret_sequence is 0. */
size_t mct_notes_open(const void *block, const uint64_t secret[2], uint64_t *ret_sequence,
		      struct mct_note ret[MCT_NOTES]);

/* Remove records of ranges that were written again later, all but the newest version of each name, and then those that
 * a note names: also no older version of a removed object is left.  The others are sorted by offset, as are the notes.
 * Their number; @found is scratch behind it. */
size_t mct_records_live(struct mct_found *found, size_t n, struct mct_note *note, size_t notes);

#endif
