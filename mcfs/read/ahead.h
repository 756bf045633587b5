/* SPDX-License-Identifier: Apache-2.0
 * ahead.h - reading a committed version without a thread that waits, and ahead of the reader.
 *
 * A read is handed to the store and answered when its bytes are there; what is in memory of this host is
 * there at once.  While a reader of bytes from elsewhere goes forward, the next chunks of 1 MiB are on their
 * way before it asks, first two of them, then up to eight: the window.  Chunks hold checked bytes of one
 * version, which never change, so nothing is ever thrown away for being old. */
#ifndef MCFS_AHEAD_H
#define MCFS_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "mcfs/read/object.h"
#include "mcfs/reply.h"
#include "mcfs/write/slot.h"

/* Slots that all windows of a mount have together. */
#define MCFS_AHEAD_SLOTS 64u

struct mcfs_ahead;

/* The window of one descriptor; it takes a reference to @o.  NULL without memory. */
struct mcfs_ahead *mcfs_ahead_new(struct mcfs_pool *pool, struct mcfs_object *o,
				  uint64_t timeout_ms);
/* Reads that are under way go on; nothing is begun any more.  NULL is fine. */
void mcfs_ahead_free(struct mcfs_ahead *a);

/* One READ, from its beginning to its answer.  On the heap; it frees itself with the answer. */
struct mcfs_read {
	struct mcfs_op op;
	uint64_t offset;
	size_t len;
	/* while it is under way */
	void *slot;
	struct mcfs_pool *pool;
	struct mc_list link;
};

/* Answer @rd, whose offset and length are set, now or later.  False: it has to be read in the caller's
 * thread, because memory lacks. */
bool mcfs_ahead_read(struct mcfs_ahead *a, struct mcfs_read *rd);

#endif
