/* SPDX-License-Identifier: Apache-2.0
 * shared.h - files of other processes' segments that this process can open: it reads them itself, in place of their
 * owners, also while these do not run.
 *
 * The owner of such a segment gives its place as the protocol of the segment: "file:PATH#EPOCH".  Only a file whose
 * header has the segment's id, epoch and pool is read.  The bytes are compared with checksums as those of all copies,
 * so a file that is stale, torn or cut off gives errors.  A file that failed is not used for some seconds.
 *
 * Any thread.  A filesystem that does not answer delays a reader by a few seconds, once in ten. */
#ifndef MCS_SHARED_H
#define MCS_SHARED_H

#include <stdbool.h>

#include "client/session/session.h"
#include "engine/mce.h"

#define MCS_SHARED_PLACE_MAX 256u

struct mcs_shared;

/* A region of this process's engine. */
struct mcs_shared_file {
	struct mce_peer *peer;
	uint64_t base, rkey, size;
};

int mcs_shared_open(struct mce_engine *e, struct mcs_session *s, struct mcs_shared **ret);
void mcs_shared_close(struct mcs_shared *sh);		/* NULL is fine */

/* The place of a file; false: its path is too long. */
bool mcs_shared_place(const char *path, uint64_t epoch, char ret[MCS_SHARED_PLACE_MAX]);
/* Does the protocol of a segment name a place? */
bool mcs_shared_is_place(struct mcp_bytes protocol);
/* The path in a place; "": it is none. */
void mcs_shared_path(struct mcp_bytes protocol, char ret[MCS_SHARED_PLACE_MAX]);

/* The file of a segment at this place; *ret NULL: this process cannot read it, or another thread is still opening it
 * at the deadline.  @deadline 0: -EAGAIN if it must be opened first. */
int mcs_shared_get(struct mcs_shared *sh, struct mcp_id segment, const char *place, uint64_t deadline,
		   struct mcs_shared_file **ret);
void mcs_shared_put(struct mcs_shared *sh, struct mcs_shared_file *file);	/* NULL is fine */
/* A read of it failed because of @err, or gave other bytes: use it no more for some seconds. */
void mcs_shared_failed(struct mcs_shared *sh, struct mcs_shared_file *file, int err);

#endif
