/* SPDX-License-Identifier: Apache-2.0
 * object.h - the life of an object: the only place that changes the state of one.
 *
 *	reserved	an unfinished put has the ranges (ops/put.h)
 *	live		committed: in the index; its ranges are on eviction lists unless it is hard-pinned or of another
 *			kind than MCP_KIND_OBJECT (files and directories of a mount)
 *	zombie		gone from the index while readers pin it; the last one frees it
 *
 * The other parts of the master that follow an object are in the list master/observers.h, which has their order. */
#ifndef MCM_OBJECT_LIFE_H
#define MCM_OBJECT_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "master/index/object.h"
#include "proto/msg.h"

struct mcm;
struct mcm_attrs_value;
struct mcm_index;
struct mcm_journal_batch;
struct mcm_segment;
struct mcm_shard;

/* A version to be published. */
struct mcm_commit {
	const char *key;
	uint32_t len, hash;
	uint32_t crc;
	uint64_t size, generation;
	uint32_t soft_ms;
	uint32_t soft_until;		/* tick; used instead of soft_ms when not 0 */
	uint32_t group;			/* 0: none */
	uint8_t data_type;
	uint8_t flags;			/* MCM_OBJ_KIND, _HARD, _SOFT */
	uint64_t now_ms, wall_ms;	/* now, on the master's clock and the wall clock */
	uint32_t dir;			/* the key's directory, opened (names.h); 0: look it up */
	const struct mcm_attrs_value *attrs;	/* NULL: none */
	uint64_t charged;		/* bytes already charged to the tenant */
	bool adopted;			/* sets mcm_object_ext.adopted */
	bool counted;			/* mcm_count_admit() counted it; a commit passes that on to the object */
	unsigned copies;
	struct mcm_extent extent[MCM_REPLICA_MAX];
};

/* ---- the object's shard is locked ---- */

/* Publish a version, replacing @old (0: none; then the key must be free).  The object takes over
 * the ranges and the charge; on failure they are released.  -MC_EREPLICA_GONE when all its segments
 * were unmounted, -MC_ELIMIT, -ENOMEM. */
int mcm_object_commit(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t old);

/* Why a live object is its key's version no longer. */
enum mcm_gone_why {
	MCM_GONE_REPLACED,	/* another object has the key; the record of that one is also the end of this one */
	MCM_GONE_REMOVED,
	MCM_GONE_EVICTED,	/* or its last copy was lost */
	MCM_GONE_UNDONE,	/* its commit failed after the record was written */
	MCM_GONE_RENAMED,	/* the object stays, under another key */
};
/* Remove a live object from the index; its memory is freed now or by its last reader. */
void mcm_object_remove(struct mcm *m, struct mcm_shard *sh, uint32_t slot, enum mcm_gone_why why);
/* The same for an object that was removed from its directory. */
void mcm_object_unindex(struct mcm *m, struct mcm_shard *sh, uint32_t slot, enum mcm_gone_why why);

/* A rename: call the first one before the key changes, the second one with the new key, hash and generation, before
 * the memory of a version that it replaces can be reused.  @batch: for the record (journal.h); NULL: one of its own. */
void mcm_object_renaming(struct mcm *m, uint32_t slot);
void mcm_object_renamed(struct mcm *m, uint32_t slot, struct mcp_bytes from, struct mcm_journal_batch *batch);

/* A name of another object (index/links.h), an object without bytes, whose record belongs to a batch.  add: make it, in
 * no table and directory; errors as mcm_object_commit().  drop: free it again.  publish: the caller has given it its
 * directory, and has counted it (mcm_count_admit()). */
int mcm_object_add_name(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c, uint32_t *ret_slot);
void mcm_object_drop_name(struct mcm *m, struct mcm_shard *sh, uint32_t slot);
void mcm_object_publish_name(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_journal_batch *batch);

/* Record a change of a live object: a new version, other copies, another soft pin, other attributes. */
enum mcm_changed_what { MCM_CHANGED_VERSION, MCM_CHANGED_COPIES, MCM_CHANGED_PIN, MCM_CHANGED_ATTRS };
void mcm_object_changed(struct mcm *m, uint32_t slot, enum mcm_changed_what what);

/* A live object was a victim that stays, or its last reader has released it: put its ranges back on the lists.
 * @kept: it stays until it is on a disk; its ranges are listed or queued already. */
void mcm_object_relist(struct mcm *m, uint32_t slot, bool kept);

/* Remove one copy; the object is removed with its last one.  False: the object has no such copy. */
bool mcm_object_remove_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent);

/* Add a written and verified copy to a live object, which takes over the range; on failure the
 * range is freed.  -MC_ELIMIT, -MC_EREPLICA_GONE when the segment was unmounted, -ENOMEM. */
int mcm_object_add_copy(struct mcm *m, uint32_t slot, struct mcm_extent extent);
/* Remove a copy of a live object as soon as the object has no pin, unless it is then the only copy.
 * A copy that the object no longer has is ignored. */
void mcm_object_retire_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent);
/* Give a live object a soft pin of @ttl_ms from now, instead of the one that it has; 0: none.  -ENOMEM, -MC_ELIMIT. */
int mcm_object_soft_pin(struct mcm *m, uint32_t slot, uint64_t ttl_ms);
/* Whether this copy waits for its removal and another copy exists. */
bool mcm_object_copy_retiring(const struct mcm_index *ix, const struct mcm_object *o,
			      struct mcm_extent extent);

unsigned mcm_object_extents(const struct mcm_index *ix, const struct mcm_object *o,
			   struct mcm_extent ret[MCM_REPLICA_MAX]);
bool mcm_object_has(const struct mcm_index *ix, const struct mcm_object *o, struct mcm_extent extent);
/* How many of these copies are in memory; tenants are charged for those only. */
unsigned mcm_extents_in_memory(const struct mcm *m, const struct mcm_extent *p, unsigned n);
/* Has the object, which has a copy in @s, another one on a medium of a higher rank?  Without the shard's lock, the
 * answer may be out of date. */
bool mcm_object_below(const struct mcm *m, const struct mcm_object *o, const struct mcm_segment *s);
/* Shard locked.  The media of its copies, bits by enum mcp_medium. */
uint8_t mcm_object_media(const struct mcm *m, const struct mcm_object *o);
/* Whether a copy can be read, or the object has no bytes. */
bool mcm_object_readable(const struct mcm *m, const struct mcm_object *o);
/* Why an object cannot be read that is not readable: -MC_ENOTREADY while a restarted master awaits the owner of
 * a copy (grace.h), else -MC_ENOOBJECT. */
int mcm_object_missing(const struct mcm *m, const struct mcm_object *o);
/* Pin the object and its group; mcm_object_unpin() undoes both.  -MC_ELIMIT, -ENOMEM; it cannot
 * fail for the first MCM_PINS_FEW pins. */
int mcm_object_pin(struct mcm *m, struct mcm_object *o);
/* Number of pins. */
uint32_t mcm_object_pins(const struct mcm *m, const struct mcm_object *o);
/* Set the fields of a new object other than its key, extents and extension. */
void mcm_object_set(struct mcm_object *o, uint64_t size, uint32_t crc, uint64_t generation,
		    uint64_t mtime_ms, uint8_t flags);
/* Make @slot the owner of its range in the segment's allocator.  False: the segment was unmounted,
 * and the range was freed. */
bool mcm_object_attach(struct mcm *m, uint32_t slot, struct mcm_extent p);

/* ---- a segment's or a tenant's lock held ---- */

/* Mark a pinned object, so that its last reader puts its ranges back on the eviction lists
 * (mcm_object_unpin()).  True: it is still pinned, take its range off the list.  False: the last
 * reader was faster. */
bool mcm_object_park(struct mcm_object *o);

/* No lock held: drop the caller's pin of @slot. */
void mcm_object_unpin(struct mcm *m, uint32_t slot);

#endif
