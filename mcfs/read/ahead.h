/* SPDX-License-Identifier: Apache-2.0
 * ahead.h - asynchronous reads of a committed version, with read-ahead.
 *
 * A read is passed to the store and answered when its bytes have arrived; bytes in this host's
 * memory arrive at once. While a reader of remote bytes is sequential, the window prefetches the
 * next chunks of 1 MiB: first two, then up to eight. Chunks contain verified bytes of one version,
 * which never change, so a chunk never becomes stale. */
#ifndef MCFS_AHEAD_H
#define MCFS_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/read/object.h"
#include "mcfs/reply.h"
#include "mcfs/write/slot.h"

/* Slots of all windows of a mount together. */
#define MCFS_AHEAD_SLOTS 64u

struct mcfs_ahead;

/* Create the window of one descriptor, which references @o. NULL: no memory. */
struct mcfs_ahead *mcfs_ahead_new(struct mcfs_pool *pool, struct mcfs_object *o, uint64_t timeout_ms);
/* Running reads continue; no new ones are started. NULL is fine. */
void mcfs_ahead_free(struct mcfs_ahead *a);

/* One READ, from its beginning to its answer. Allocated with malloc(), freed with the answer. */
struct mcfs_read {
	struct mcfs_op op;
	uint64_t offset;
	size_t len;
	/* while the read is running */
	void *slot;
	struct mcfs_pool *pool;
	struct mc_list link;
};

/* Answer @rd, whose offset and length are set, now or later. False: no memory; read in the caller's
 * thread instead. */
bool mcfs_ahead_read(struct mcfs_ahead *a, struct mcfs_read *rd);

#endif
