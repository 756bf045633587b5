/* SPDX-License-Identifier: Apache-2.0
 * offload.h - copies between the memory of a node and its disks.
 *
 * Offload: a committed object of a segment whose owner has a disk enters the segment's backlog.  The owner fetches
 * copies to make (MCP_TASK_FETCH with disk 1), as for a task; a copy that ended well is one more replica of the object.
 * Meanwhile the object's range is on no eviction list, so eviction takes objects that have their copy already, and
 * never waits for a disk.  When a put finds no memory otherwise, the oldest objects of the backlog are listed, and are
 * lost when they are evicted.
 *
 * Promotion: an object without a replica in memory that is read often, or asked for in advance, enters the backlog of
 * the disk's segment, and the owner makes a copy in memory.
 *
 * Each entry of a backlog ends as completed, failed or cancelled, and is counted so.
 *
 * Locks: a backlog belongs to its segment's lock, the tasks below to tasks.lock. */
#ifndef MCM_OFFLOAD_H
#define MCM_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "master/task/task.h"

struct mcm_client;

/* Types of the two tasks, which are on no list and never end. */
#define MCM_TASK_OFFLOAD MCP_TASK_TYPES
#define MCM_TASK_PROMOTE (MCP_TASK_TYPES + 1)

struct mcm_offload {
	/* constant */
	bool on;
	uint8_t *sketch;	/* counters of reads; NULL: no promotion.  Relaxed atomics */
	/* atomic */
	uint32_t reads;		/* since the counters were halved */
	/* guarded by tasks.lock */
	struct mcm_task offload, promote;
};

int mcm_offload_init(struct mcm *m);	/* -ENOMEM */
void mcm_offload_done(struct mcm_offload *f);

/* The lock of @s is held: the range of a new object was committed.  True: do not list it for eviction. */
bool mcm_offload_put_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range);
/* List the oldest objects of the backlog that have @bytes together.  False: there is none.  Takes the lock of @s. */
bool mcm_offload_give_up(struct mcm *m, struct mcm_segment *s, uint64_t bytes);
/* A segment with @n entries in its backlog is gone. */
void mcm_offload_dropped(unsigned n, uint8_t medium);
/* Both tables locked: the client has other disks than before. */
void mcm_offload_disks_changed(struct mcm *m, const struct mcm_client *c);

/* As mcm_task_fetch(), for copies from and to disks.  @records: memory for the descriptions of copies to disks,
 * MCM_ADOPT_MAX bytes for each copy, valid as long as @ret; NULL: the owner stores none. */
unsigned mcm_offload_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			   struct mcp_replica *ret_from, struct mcp_replica *ret_to, uint8_t *records);
/* tasks.lock held: a copy has ended. */
void mcm_offload_ended(struct mcm *m, const struct mcm_unit *u, int result);
/* A copy from memory segment @segment has to be made once more: a walk will find the object.  Takes its lock. */
void mcm_offload_again(struct mcm *m, uint16_t segment);
/* The object's shard is locked, and it still has the source: its range may be listed. */
void mcm_offload_unmark(struct mcm *m, const struct mcm_unit *u, const struct mcm_object *o);

/* Shard locked.  A read of an object; @memory: it has a replica in memory. */
void mcm_offload_read(struct mcm *m, uint32_t slot, bool memory);
/* No lock held.  Copy the object to @medium soon, before others that go to a disk; see MCP_TIER. */
int mcm_offload_tier(struct mcm *m, struct mcp_bytes key, uint8_t medium);

#endif
