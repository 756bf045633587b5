/* SPDX-License-Identifier: Apache-2.0
 * dram.h - memory that objects rest in: one shared file, mapped once, on huge pages where possible.
 *
 * Kinds, tried in this order by "auto": a file on a private tmpfs mounted huge=always that is never
 * attached to a path (needs CAP_SYS_ADMIN; vanishes with the last descriptor), then a memfd with
 * MADV_HUGEPAGE.  "hugetlb" (memfd of reserved huge pages) only when asked for.  A file of the caller's (a
 * path) is none of these: its blocks are allocated at once, what they hold is overwritten, and whoever
 * shortens it meanwhile crashes the process. */
#ifndef MCT_DRAM_H
#define MCT_DRAM_H

#include <stdint.h>

struct mct_dram;

struct mct_dram_conf {
	uint64_t size;		/* bytes; rounded up to 2 MiB */
	uint64_t reserve;	/* addresses for so much, to grow into; less than size: none.  Costs no
				 * memory, but for hugetlb, which takes all of it at once */
	const char *kind;	/* "auto", "tmpfs", "memfd", "hugetlb" */
	const char *path;	/* a regular file to use instead, NULL: none; @size is rounded down then */
	uint64_t path_offset;	/* where in it, page aligned; @size bytes from there must be in it */
	int adopt_fd;		/* the file of a segment whose process has died, taken as it is; @size
				 * bytes at the least.  0: none.  It stays the caller's */
	int numa_node;		/* bind to this node, -1: none */
	int prefault;		/* touch pages in the background, lowest address first */
};

/* -ENOMEM with a detail that says how much is available when @size cannot be had. */
int mct_dram_open(const struct mct_dram_conf *conf, struct mct_dram **ret);
void mct_dram_close(struct mct_dram *d);
/* Enlarge to @size bytes (rounded up), within what was reserved; the base stays.  -EINVAL when it would
 * shrink or exceed that, -ENOMEM with a detail.  Not from two threads at once. */
int mct_dram_grow(struct mct_dram *d, uint64_t size);
void *mct_dram_base(const struct mct_dram *d);
uint64_t mct_dram_size(const struct mct_dram *d);	/* now */
uint64_t mct_dram_reserved(const struct mct_dram *d);	/* of the mapping and the file */
int mct_dram_fd(const struct mct_dram *d);		/* stays the tier's */
uint64_t mct_dram_fd_offset(const struct mct_dram *d);	/* of the base in that file */
const char *mct_dram_kind(const struct mct_dram *d);	/* the one in use */
uint64_t mct_dram_prefaulted(const struct mct_dram *d);	/* bytes touched so far */

#endif
