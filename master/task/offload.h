/* SPDX-License-Identifier: Apache-2.0
 * offload.h - copies between the memory of a node and its disks.
 *
 * Memory and disk stand for ranks here (proto/medium.h): an object is copied to the next rank in which its owner has a
 * segment, from there to the one after it, and back to memory.
 *
 * Offload: a committed object of a segment whose owner has a disk enters the segment's backlog.  The owner fetches
 * copies to make (MCP_TASK_FETCH with disk 1), as for a task; a copy that ended well is one more replica of the object.
 * Meanwhile the object's range is on no eviction list, so eviction takes objects that have their copy already.
 *
 * With --offload_force_evict=false, memory keeps an object until it is on a disk: a victim that is on no disk enters
 * the backlog instead, whatever selected it.  A put that finds no other memory is refused (-MC_ENOSPACE), and its
 * client tries again until its deadline.  An object is not kept when no disk can take it: the owner has no disk in
 * service; the object is larger than the disks can free, or found no piece there eight times; all disks refuse copies
 * (the last ones failed, or found no space); for 30 s the owner has not asked for copies, or could get none because too
 * many run that do not end.  So a put does not fail for long because of a broken disk.
 *
 * With --offload_force_evict=true, and for objects that are not kept, a put that finds no memory otherwise lists the
 * oldest objects of the backlog.  They are lost when they are evicted: counted, and named once per reason in the log.
 *
 * Promotion: an object without a replica in memory that is read often, or asked for in advance, enters the list of
 * promotions of the disk's segment, and the owner makes a copy in memory.
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
	const char *root_fs_dir;	/* shared directory for owners of memory that have no other one; "": none */
	bool keep;		/* on, without --offload_force_evict: objects stay in memory until they are on a disk */
	uint8_t *sketch;	/* counters of reads; NULL: no promotion.  Relaxed atomics */
	/* atomic */
	uint32_t reads;		/* since the counters were halved */
	unsigned told;		/* reasons of losses that the log has, a bit each */
	bool told_wait;		/* the log says that puts wait */
	/* guarded by tasks.lock */
	struct mcm_task offload, promote;
};

int mcm_offload_init(struct mcm *m);	/* -ENOMEM */
void mcm_offload_done(struct mcm_offload *f);

/* The lock of @s is held: the range of a new object was committed.  True: do not list it for eviction. */
bool mcm_offload_put_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range);
/* The lock of @s is held, and the shard of the live object in @slot.  Its range, which is on no list, waits for a
 * copy. */
void mcm_offload_await_locked(struct mcm *m, struct mcm_segment *s, uint32_t slot, uint32_t range);
/* The lock of @s is held.  Objects wait for copies; a put needs their memory (@wanted: it may not have it yet). */
bool mcm_offload_waiting_locked(struct mcm_segment *s, bool wanted);
/* List objects that wait for a copy, the oldest first, with @bytes together.  Those that are kept are not listed for
 * eviction, but queued if the backlog has space again.  False: there is none.  No lock held. */
bool mcm_offload_give_up(struct mcm *m, struct mcm_segment *s, uint64_t bytes);
/* If objects of @s need not stay any more: list all that wait, so that the policy chooses among all.  No lock held. */
void mcm_offload_release(struct mcm *m, struct mcm_segment *s);
/* A segment is gone: @down of its entries waited for a copy to a higher rank, @up for one to memory. */
void mcm_offload_dropped(unsigned down, unsigned up);
/* Both tables locked: the client has other segments than before. */
void mcm_offload_disks_changed(struct mcm *m, const struct mcm_client *c);

/* As mcm_task_fetch(), for copies from and to disks.  @records: memory for the descriptions of copies to disks,
 * MCM_ADOPT_MAX bytes for each copy, valid as long as @ret; NULL: the owner stores none. */
unsigned mcm_offload_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			   struct mcp_replica *ret_from, struct mcp_replica *ret_to, uint8_t *records);
/* A copy to the disk has ended well (@result 0), or has failed: after many failures it gets none for a while. */
void mcm_offload_disk_ended(const struct mcm *m, struct mcm_segment *disk, int result);
/* tasks.lock held: a copy has ended. */
void mcm_offload_ended(struct mcm *m, const struct mcm_unit *u, int result);
/* A copy from memory segment @segment has to be made once more: a walk will find the object.  Takes its lock. */
void mcm_offload_again(struct mcm *m, uint16_t segment);
/* The object's shard is locked, and it still has the source: its range may be listed. */
void mcm_offload_unmark(struct mcm *m, const struct mcm_unit *u, const struct mcm_object *o);

/* ---- reads ---- */

/* Shard locked.  A read of an object; @memory: it has a replica in memory. */
void mcm_offload_read(struct mcm *m, uint32_t slot, bool memory);
/* No lock held.  Copy the object to @medium soon, before others that go to a disk; see MCP_TIER. */
int mcm_offload_tier(struct mcm *m, struct mcp_bytes key, uint8_t medium);

#endif
