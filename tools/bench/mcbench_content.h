/* SPDX-License-Identifier: Apache-2.0
 * mcbench_content.h - contents that can be verified without a copy.
 *
 * A block is a sequence of 64-byte lines: the block's id, the line's number, and six words that depend
 * on id, number and seed.  So every byte is checked, and wrong bytes show their origin. */
#ifndef MCBENCH_CONTENT_H
#define MCBENCH_CONTENT_H

#include <stddef.h>
#include <stdint.h>

void mcbench_content_fill(void *buf, size_t len, uint64_t id, uint64_t seed);

struct mcbench_wrong {
	uint64_t bytes;			/* number of wrong bytes */
	uint64_t first;			/* offset of the first wrong byte */
	uint64_t id, line;		/* id and line number found there */
};
/* Number of wrong bytes; 0: all correct, *ret untouched. */
uint64_t mcbench_content_check(const void *buf, size_t len, uint64_t id, uint64_t seed,
			       struct mcbench_wrong *ret);

#endif
