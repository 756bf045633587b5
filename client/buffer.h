/* SPDX-License-Identifier: Apache-2.0
 * buffer.h - list of memory that the program registered or allocated. */
#ifndef MCS_BUFFER_H
#define MCS_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "engine/mce.h"

struct mcs_buffers {
	struct mc_mutex lock;	/* leaf */
	struct mc_list list;	/* with the lock held */
};

void mcs_buffers_init(struct mcs_buffers *b);
/* Unregister and free all buffers that are still in the list. */
void mcs_buffers_done(struct mcs_buffers *b);
/* @mr: its region, NULL: none; becomes the list's.  @pool: mapped by mcs_buffers_alloc().
 * -ENOMEM. */
int mcs_buffers_add(struct mcs_buffers *b, void *base, size_t len, struct mce_mr *mr, bool pool);
/* Remove the one that begins at @base, unregister its region and unmap its memory if it is of
 * the pool.  False: there is none. */
bool mcs_buffers_remove(struct mcs_buffers *b, const void *base, bool pool);
/* Does a registered buffer overlap this one? */
bool mcs_buffers_overlap(struct mcs_buffers *b, const void *base, size_t len);
/* New memory of the pool; NULL: there is none. */
void *mcs_buffers_alloc(struct mcs_buffers *b, size_t len);

#endif
