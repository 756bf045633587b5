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
 * record of an object that was evicted or removed stays until the block is written again. */
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

/* Remove records of ranges that were written again later, and all but the newest version of each name; the others are
 * sorted by offset.  Their number; @found is scratch behind it. */
size_t mct_records_live(struct mct_found *found, size_t n);

#endif
