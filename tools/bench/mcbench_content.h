/* SPDX-License-Identifier: Apache-2.0
 * mcbench_content.h - contents that can be told right or wrong without a copy of them.
 *
 * A block is a sequence of 64-byte lines: the block's id, the line's number, and six words that depend
 * on id, number and seed.  So every byte is checked, and wrong ones tell where they are from. */
#ifndef MCBENCH_CONTENT_H
#define MCBENCH_CONTENT_H

#include <stddef.h>
#include <stdint.h>

void mcbench_content_fill(void *buf, size_t len, uint64_t id, uint64_t seed);

struct mcbench_wrong {
	uint64_t bytes;			/* how many differ */
	uint64_t first;			/* offset of the first of them */
	uint64_t id, line;		/* what the line there says that it is */
};
/* Number of bytes that are not as filled, 0: all right and *ret untouched. */
uint64_t mcbench_content_check(const void *buf, size_t len, uint64_t id, uint64_t seed,
			       struct mcbench_wrong *ret);

#endif
