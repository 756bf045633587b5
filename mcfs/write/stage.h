/* SPDX-License-Identifier: Apache-2.0
 * stage.h - the bytes of a version that is being written: slots, holes, and what still stands in the
 * version that the writer began from (copied when it is needed, never changed).
 *
 * Not locked: the writer that owns it is.  Functions that return an error have changed no byte. */
#ifndef MCFS_STAGE_H
#define MCFS_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "mcfs/read/object.h"
#include "mcfs/write/slot.h"

struct mcfs_stage {
	struct mcfs_pool *pool;
	void **slot;		/* NULL: a hole, or bytes of the base */
	size_t nslot, nheld;	/* entries; those that are not NULL */
	uint64_t size;
	struct mcfs_object *base;	/* one reference, or NULL */
	uint64_t base_len;	/* how many of its bytes still count */
};

void mcfs_stage_init(struct mcfs_stage *s, struct mcfs_pool *pool);
/* Drop all bytes; size 0, no base. */
void mcfs_stage_clear(struct mcfs_stage *s);
/* Begin with the bytes of @base; takes over the reference.  @s must be clear. */
void mcfs_stage_begin(struct mcfs_stage *s, struct mcfs_object *base);

/* -ENOSPC, -ENOMEM, or why the base could not be read. */
int mcfs_stage_write(struct mcfs_stage *s, uint64_t offset, const void *data, size_t len,
		     uint64_t deadline);
/* Can a write do without copying?  It begins at a slot's boundary, and of what the slot holds nothing
 * stays: it is a whole one, or the last of the file. */
bool mcfs_stage_adopts(const struct mcfs_stage *s, uint64_t offset, size_t len);
/* Such a write: *slot goes into the stage, and another one is given in its place. */
int mcfs_stage_adopt(struct mcfs_stage *s, uint64_t offset, size_t len, void **slot,
		     uint64_t deadline);
int mcfs_stage_truncate(struct mcfs_stage *s, uint64_t size);
/* Bytes read, short only at the end. */
int64_t mcfs_stage_read(struct mcfs_stage *s, uint64_t offset, void *buf, size_t len,
			uint64_t deadline);

/* All bytes as vectors, for a put: loads what stands in the base only.  free() *ret. */
int mcfs_stage_vectors(struct mcfs_stage *s, uint64_t deadline, struct iovec **ret, int *ret_n);

#endif
