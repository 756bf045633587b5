/* SPDX-License-Identifier: Apache-2.0
 * local.h - the allocator of a client's local memory, and the buffers in it that the client has not released.
 *
 * It belongs to the file, not to the client: a client that is dropped while it lives shares the same file again, and
 * still uses its buffers.  The caller's lock guards all of this. */
#ifndef MCN_UP_LOCAL_H
#define MCN_UP_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"

#define MCN_UP_LOCAL_BUFFERS 65536u	/* that a client has not released */
#define MCN_UP_LOCAL_IDLE 64u		/* allocators of a user that are kept without a client; the oldest goes first */

struct mcn_up_local;

/* All of them; zeroed, then @list initialised. */
struct mcn_up_locals {
	struct mc_list list;
	uint64_t tickets;
};

/* The allocator of a file, with a reference.  -MCS_EPARAM: the file has one of another size; -ENOMEM. */
int mcn_up_local_get(struct mcn_up_locals *all, dev_t dev, ino_t ino, uid_t uid, uint64_t size,
		     struct mcn_up_local **ret);
/* Give the reference back.  @over: nothing uses the buffers any more. */
void mcn_up_local_put(struct mcn_up_locals *all, struct mcn_up_local *l, bool over);
void mcn_up_locals_done(struct mcn_up_locals *all);	/* without references */

/* A buffer at the offset *ret_at; *ret_ticket is never used again.  -MCS_ENOSPACE, -ENOMEM. */
int mcn_up_local_alloc(struct mcn_up_locals *all, struct mcn_up_local *l, uint64_t len, uint64_t *ret_at,
		       uint64_t *ret_ticket);
/* Free the buffer at the offset; there may be none. */
void mcn_up_local_free(struct mcn_up_local *l, uint64_t at);
/* Free the buffer with the ticket in whichever file it is; there may be none. */
void mcn_up_local_cancel(struct mcn_up_locals *all, uint64_t ticket);

#endif
