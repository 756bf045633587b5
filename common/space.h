/* SPDX-License-Identifier: Apache-2.0
 * space.h - which parts of a piece of memory are in use: first fit over a sorted list of free extents, for
 * hundreds of them.  No locking; the memory itself is not touched. */
#ifndef MC_SPACE_H
#define MC_SPACE_H

#include <stdint.h>

struct mc_extent {
	uint64_t at, len;
};

struct mc_space {
	uint64_t grain;		/* places and lengths are multiples of it */
	uint64_t size, used;
	struct mc_extent *free;	/* in order, never touching each other */
	unsigned n, cap;
	unsigned taken;		/* pieces in use */
};

/* @grain is a power of two.  -ENOMEM. */
int mc_space_init(struct mc_space *s, uint64_t size, uint64_t grain);
void mc_space_done(struct mc_space *s);
/* Take @len bytes (0 counts as 1): 0, -ENOBUFS without a free extent that is large enough, -ENOMEM. */
int mc_space_take(struct mc_space *s, uint64_t len, uint64_t *ret_at);
/* Give back what mc_space_take() gave for the same @len. */
void mc_space_give(struct mc_space *s, uint64_t at, uint64_t len);

#endif
