/* SPDX-License-Identifier: Apache-2.0
 * nof.h - copies of objects on NoF disks of other owners, for puts that ask for them (mcp_put_end.nof).
 *
 * A NoF disk is a disk that its owner reaches over a network (MCP_TRAIT_NOF).  After the commit of such a put, disks
 * are chosen: of owners that neither sent the put nor have a copy, one disk of each; preferred ones first, in their
 * order, then the emptiest.  Disks that are paused, leave, or cannot take the size are left out.  The put has ended
 * by then, so with fewer disks there are fewer copies; mooncake_master_nof_missing_total counts the others.
 *
 * The object enters the queue of each chosen segment, whose owner fetches copies as it does for its own objects
 * (offload.h), reads the object from another owner and writes it to its disk.  The copy is a replica as any on a disk:
 * it is in the journal, readers use it when no nearer one is readable, and the disk evicts it when it is full.  A copy
 * that fails is tried again on the same disk, MCM_NOF_TRIES times in all.  The queues end with the master's process.
 *
 * Each entry ends as ok, failed or cancelled, and is counted so.  Cancelled: the object was removed, replaced or
 * renamed before its copy was made, or the disk's segment was removed.
 *
 * Locks: a queue belongs to its segment's lock, the task to tasks.lock. */
#ifndef MCM_NOF_H
#define MCM_NOF_H

#include <stdbool.h>
#include <stdint.h>

#include "master/task/task.h"

struct mcm_plan;

/* Type of the task, which is on no list and never ends. */
#define MCM_TASK_NOF (MCP_TASK_TYPES + 2)
#define MCM_NOF_TRIES 4u

struct mcm_nof {
	bool told;		/* the log says that there were too few disks; atomic */
	/* guarded by tasks.lock */
	struct mcm_task task;
};

/* Common values of the puts of one request. */
struct mcm_nof_request {
	unsigned n;			/* copies of each */
	const uint64_t *preferred;	/* hashes of segment names, in order */
	unsigned n_preferred;
	struct mcp_id client;		/* that sent the puts */
};

void mcm_nof_init(struct mcm *m);
/* No lock held.  The version of @key with this generation was committed: choose disks for its copies.  Their number;
 * 0 also for an object without bytes, or one that is gone already. */
unsigned mcm_nof_want(struct mcm *m, const struct mcm_nof_request *rq, struct mcp_bytes key, uint64_t generation);
/* A segment is gone, for which @n copies were wanted. */
void mcm_nof_dropped(unsigned n);

/* ---- tasks.lock held ---- */

/* Add the copies to the disks of the client that fetches. */
void mcm_nof_plan(struct mcm_plan *p);
/* A copy has ended. */
void mcm_nof_ended(struct mcm *m, const struct mcm_unit *u, int result);

#endif
