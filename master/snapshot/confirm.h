/* SPDX-License-Identifier: Apache-2.0
 * confirm.h - the objects of a restored snapshot, which their owners compare with their memory.
 *
 * A snapshot is older than the memory that it describes: later puts may have reused ranges, and nothing tells which
 * ones.  So a restored segment is unproven.  When its owner mounts it again, either mount.seen proves that no master
 * has served since the snapshot was written, and all objects count at once; or the segment is CONFIRMING: the owner
 * gets all of its objects in batches (CONFIRM), in the order of their positions, compares bytes and trailers with the
 * checksums, and the master drops each copy whose bytes are others.
 *
 * Until its copy is confirmed, an object cannot be read: requests are answered as for an owner that has not returned
 * (object/grace.h).  A CONFIRMING segment accepts no new objects, so no range is reused before its turn, and puts that
 * find no other memory are asked to try again.  Writers of earlier masters were fenced before the owner mounted the
 * segment (mount.unfenced), so nothing changes the bytes after the comparison.
 *
 * An owner that answers no batch for client_forget_ttl, and for the time that a slow disk needs to read the batch, is
 * not awaited any more: the copies that it has not compared are dropped.  An answer for one of its segments counts for
 * all of them, because it compares them one after the other.
 *
 * The journal's record of the segment says that it is unproven, so a later start, or a standby that takes over, begins
 * the comparison again. */
#ifndef MCM_CONFIRM_H
#define MCM_CONFIRM_H

#include <stdbool.h>
#include <stdint.h>

#include "master/space/unproven.h"
#include "proto/msg.h"

struct mcm;
struct mcm_client;
struct mcm_segment;

#define MCM_CONFIRM_ITEMS 1024u			/* objects of a batch, at most */
#define MCM_CONFIRM_BYTES (64u << 20)		/* bytes that fill a batch; one object may have more */

/* Before threads run, after the restore: set m->unproven. */
void mcm_confirm_begin(struct mcm *m);

/* CONFIRM of the client @sender.  The items of *@ret are in the thread's scratch memory.  -MC_ENOSEGMENT, -MC_EOWNER,
 * -MC_EPROTO, -ENOMEM. */
int mcm_confirm(struct mcm *m, struct mcp_id sender, const struct mcp_confirm *rq, struct mcp_confirm_reply *ret);
/* After a batch: the segment is an ordinary one if it has this id and state, and all of its objects are compared. */
void mcm_confirm_finish(struct mcm *m, struct mcm_segment *s, struct mcp_id id);
/* The clients' lock held: the time for the owner's next answer, for objects of @bytes, begins now. */
void mcm_confirm_allow(const struct mcm *m, struct mcm_client *c, uint64_t bytes);
/* Both tables locked: the rest of the segment's objects get this result. */
void mcm_confirm_rest(struct mcm *m, struct mcm_segment *s, enum mcm_confirm_result result);

/* For the monitor: drop the objects that were not compared in time; when no segment is unproven any more, the state is
 * an ordinary one. */
void mcm_confirm_tick(struct mcm *m);

#endif
