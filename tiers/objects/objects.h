/* SPDX-License-Identifier: Apache-2.0
 * objects.h - the tier "s3": the ranges of a segment as objects in a bucket of S3, or as files in a directory.
 *
 * The tier is named (tiers/tier.h).  The path of a medium is s3://BUCKET/PREFIX, or /DIRECTORY, which is created.  Its
 * names are
 *
 *	PREFIX/identity		8 bytes "mc-blob1", the owner's identity words, a checksum; little-endian
 *	PREFIX/FOLDER/OFFSET-LENGTH-GENERATION-ORDER.PART
 *				PART of a range, of MCT_OBJECTS_PART bytes but for the last one; numbers in hexadecimal
 *
 * With mct_conf.seal the parts are encrypted (seal.c), and PREFIX/FOLDER/key is their key, wrapped (tiers/wrap.h).
 *
 * FOLDER is a hash of the secret among the identity words: objects of an earlier secret do not count any more.  ORDER
 * is the number of the copy, which no master assigns twice, so no name is used twice: a put that ends late, or that is
 * repeated, writes the same bytes again, and a late delete removes no other bytes.  The size limits the segment in
 * which the master allocates ranges, and so the bytes in the bucket.
 *
 * An index in memory has the newest range at each place.  It is built from the names when the medium is opened. */
#ifndef MCT_OBJECTS_H
#define MCT_OBJECTS_H

#include "tiers/tier.h"

#define MCT_OBJECTS_PART (16u << 20)

/* In libmckeyed.la, and therefore not in mct_tiers. */
extern const struct mct_tier_ops mct_objects_tier;

#endif
