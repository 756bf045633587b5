/* SPDX-License-Identifier: Apache-2.0
 * stage.h - bytes of a version that is being written: slots, holes, and the version that the
 * writer started from, whose bytes are copied when needed and never changed.
 *
 * Not locked: the writer's lock protects it. A function that returns an error has changed no byte. */
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
	size_t nslot, nheld;	/* number of entries, and of those that are not NULL */
	uint64_t size;
	struct mcfs_object *base;	/* one reference, or NULL */
	uint64_t base_len;	/* bytes of the base that are still valid */
};

void mcfs_stage_init(struct mcfs_stage *s, struct mcfs_pool *pool);
/* Free all bytes and the base; size 0. */
void mcfs_stage_clear(struct mcfs_stage *s);
/* Start with the bytes of @base; takes its reference. @s must be clear. */
void mcfs_stage_begin(struct mcfs_stage *s, struct mcfs_object *base);

/* -ENOSPC, -ENOMEM, or the error of reading the base. */
int mcfs_stage_write(struct mcfs_stage *s, uint64_t offset, const void *data, size_t len,
		     uint64_t deadline);
/* Can a write avoid the copy? True if it starts at a slot boundary and replaces all valid bytes of
 * the slot: it fills the slot, or ends at or behind the file's end. */
bool mcfs_stage_adopts(const struct mcfs_stage *s, uint64_t offset, size_t len);
/* Such a write: *slot is moved into the stage, and the caller gets another slot in exchange. */
int mcfs_stage_adopt(struct mcfs_stage *s, uint64_t offset, size_t len, void **slot, uint64_t deadline);
int mcfs_stage_truncate(struct mcfs_stage *s, uint64_t size);
/* Number of bytes read, short only at the end. */
int64_t mcfs_stage_read(struct mcfs_stage *s, uint64_t offset, void *buf, size_t len, uint64_t deadline);

/* All bytes as vectors for a put; loads the remaining bytes of the base. free() *ret. */
int mcfs_stage_vectors(struct mcfs_stage *s, uint64_t deadline, struct iovec **ret, int *ret_n);

#endif
