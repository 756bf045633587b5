/* SPDX-License-Identifier: Apache-2.0
 * space.h - allocator of ranges of a memory area: first fit over a sorted array of free extents,
 * for hundreds of them.  No locking; the memory itself is not accessed. */
#ifndef MC_SPACE_H
#define MC_SPACE_H

#include <stdint.h>

struct mc_extent {
	uint64_t at, len;
};

struct mc_space {
	uint64_t grain;		/* offsets and lengths are multiples of it */
	uint64_t size, used;
	struct mc_extent *free;	/* in order, never adjacent */
	unsigned n, cap;
	unsigned taken;		/* allocations */
};

/* @grain is a power of two.  -ENOMEM. */
int mc_space_init(struct mc_space *s, uint64_t size, uint64_t grain);
void mc_space_done(struct mc_space *s);
/* Allocate @len bytes (0 counts as 1).  -ENOBUFS when no free extent is large enough, -ENOMEM. */
int mc_space_take(struct mc_space *s, uint64_t len, uint64_t *ret_at);
/* Free a range that mc_space_take() returned for the same @len. */
void mc_space_give(struct mc_space *s, uint64_t at, uint64_t len);

#endif
