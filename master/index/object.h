/* SPDX-License-Identifier: Apache-2.0
 * object.h - one committed version of a key: 64 bytes, one cache line, plus its key in the shard's
 * arena.  Objects are slab elements known by their number ("slot") everywhere.
 *
 * A slot belongs to the shard that its hash names and is guarded by that shard's lock; fields marked
 * "peek" are also read without it, by the evictor under its segment's lock, and are written atomically.
 * What was committed (size, crc, key, place) never changes; a new value of a key is a new object. */
#ifndef MCM_OBJECT_H
#define MCM_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crc32c.h"
#include "proto/msg.h"

#define MCM_REPLICA_MAX 8	/* copies of an object */
#define MCM_SIZE_MAX ((1ull << 44) - 1)
#define MCM_TYPE_SHIFT 12	/* of the data type in size_hi */
/* Keys inside the master may begin with a tenant's prefix (tenant.h). */
#define MCM_PREFIX_MAX 4
#define MCM_KEY_MAX (MCP_KEY_MAX + MCM_PREFIX_MAX)
#define MCM_GROUP_NAME_MAX (MCP_GROUP_MAX + MCM_PREFIX_MAX)


static inline bool mcm_key_ok(struct mcp_bytes key)
{
	return key.len && (key.len <= MCP_KEY_MAX ||
			   (key.len <= MCM_KEY_MAX && !((const char *)key.data)[0]));
}

#define MCM_PINS_FEW UINT16_MAX	/* readers that an object counts itself */

#define MCM_OBJ_KIND 0x03u	/* enum mcp_kind */
#define MCM_OBJ_HARD 0x04u
#define MCM_OBJ_SOFT 0x08u
#define MCM_OBJ_LIVE 0x10u	/* in the index */
#define MCM_OBJ_ZOMBIE 0x20u	/* out of it, kept for its readers */

#define MCM_MARK_TOUCHED 0x01u	/* read, or asked for, since the evictor came by */
#define MCM_MARK_READ 0x40u	/* read since */
#define MCM_MARK_AGAIN 0x80u	/* read more than once since */
#define MCM_MARK_PARKED 0x02u	/* taken off the eviction lists because of its pins */
#define MCM_MARK_RETIRING 0x04u	/* a copy goes when the last reader has gone: ext.leaving */
#define MCM_MARK_RESTORED 0x08u	/* one pin is nobody's: restore_held.c */

struct mcm_extent {
	uint32_t range;		/* range in the segment's allocator */
	uint16_t segment;	/* index of the segment */
};

struct mcm_object {
	uint32_t next;			/* hash chain; free list; peek */
	uint32_t hash;			/* peek; the shard's number in the top byte */
	uint32_t key;			/* in the shard's arena; peek */
	uint32_t crc;
	uint32_t size_lo;
	uint16_t size_hi;		/* the data type above MCM_TYPE_SHIFT */
	uint16_t key_len;
	uint64_t generation;		/* peek */
	uint32_t mtime_lo;		/* commit, ms since the epoch; peek */
	uint16_t mtime_hi;
	uint8_t flags;			/* MCM_OBJ_*, peek */
	uint8_t marks;			/* MCM_MARK_*, set and cleared by atomic or/and */
	uint32_t lease;			/* promise: tick it lasts to, 0: none; peek */
	uint16_t pins;			/* readers, those beyond MCM_PINS_FEW in ext.more_pins; peek */
	uint16_t segment;		/* first copy: meaningful when node is not 0 */
	uint32_t range;
	uint32_t ext;			/* struct mcm_object_ext, 0: none; peek */
	uint32_t dir_next;		/* chain in its directory; the names' stripe lock */
	uint32_t dir;			/* the directory; set once */
};
_Static_assert(sizeof(struct mcm_object) == 64, "an object is one cache line");

/* What few objects have. */
struct mcm_object_ext {
	uint32_t next;			/* free list */
	uint32_t soft_until;		/* tick; peek */
	uint32_t range[MCM_REPLICA_MAX - 1];
	uint16_t segment[MCM_REPLICA_MAX - 1];
	uint8_t copies;			/* further ones, in node[] and segment[] */
	uint32_t more_pins;
	struct mcm_extent retiring;	/* the copy that MCM_MARK_RETIRING is about */
	/* guarded by the groups' lock; group by the shard's too */
	uint32_t group;			/* 0: none */
	uint32_t group_prev, group_next;	/* its other members */
};

/* Promise leases and soft pins are kept in ticks of 64 ms since the master's start. */
#define MCM_TICK_SHIFT 6

static inline uint32_t mcm_tick(uint64_t ms)
{
	return (uint32_t)(ms >> MCM_TICK_SHIFT);
}

static inline uint32_t mcm_tick_after(uint64_t ms)
{
	return (uint32_t)((ms >> MCM_TICK_SHIFT) + 1);
}

#define mcm_load_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define mcm_store_relaxed(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

static inline uint64_t mcm_object_size(const struct mcm_object *o)
{
	return (uint64_t)(o->size_hi & ((1u << MCM_TYPE_SHIFT) - 1)) << 32 | o->size_lo;
}

static inline uint8_t mcm_object_type(const struct mcm_object *o)
{
	return (uint8_t)(o->size_hi >> MCM_TYPE_SHIFT);
}

/* Once, after mcm_object_set(). */
static inline void mcm_object_set_type(struct mcm_object *o, uint8_t type)
{
	o->size_hi = (uint16_t)(o->size_hi | type << MCM_TYPE_SHIFT);
}

static inline uint64_t mcm_object_mtime(const struct mcm_object *o)
{
	return (uint64_t)o->mtime_hi << 32 | o->mtime_lo;
}

static inline unsigned mcm_object_shard(const struct mcm_object *o)
{
	return mcm_load_relaxed(&o->hash) >> 24;
}

static inline void mcm_object_touch(struct mcm_object *o)
{
	/* Most are touched already: do not dirty the line again. */
	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
}

/* The same for a read, which is more than a question. */
static inline void mcm_object_read(struct mcm_object *o)
{
	uint8_t marks = mcm_load_relaxed(&o->marks);

	if (!(marks & MCM_MARK_READ))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED | MCM_MARK_READ, __ATOMIC_RELAXED);
	else if (!(marks & MCM_MARK_AGAIN))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED | MCM_MARK_AGAIN, __ATOMIC_RELAXED);
}

/* Bytes that an object of @size takes in a segment: its own, and behind them, aligned to 4, the CRC of
 * each 64 KiB chunk when there is more than one.  The writer puts them there. */
static inline uint64_t mcm_object_reserve(uint64_t size)
{
	if (size <= MC_CRC_CHUNK)
		return size;
	return ((size + 3) & ~3ull) + 4 * mc_crc_chunks(size);
}

/* ---- what happens to objects (object.c) ---- */

struct mcm;
struct mcm_index;
struct mcm_shard;

/* A version about to be published. */
struct mcm_commit {
	const char *key;
	uint32_t len, hash;
	uint32_t crc;
	uint64_t size, generation;
	uint32_t soft_ms;
	uint32_t soft_until;		/* tick; instead of soft_ms when not 0 */
	uint32_t group;			/* 0: none */
	uint8_t data_type;
	uint8_t flags;			/* MCM_OBJ_KIND, _HARD, _SOFT */
	uint64_t now_ms, wall_ms;	/* the time, on the master's clock and of the day */
	uint32_t dir;			/* the key's, open (names.h); 0: to be found */
	uint64_t charged;		/* to its tenant already */
	unsigned copies;
	struct mcm_extent extent[MCM_REPLICA_MAX];
};

/* Shard's lock held for these: */

/* Publish, in the place of @old (0: none; then the key must be free).  The ranges and what was charged are the
 * object's or, on failure, given back.  -MC_EREPLICA_GONE when all its segments have gone, -MC_ELIMIT, -ENOMEM. */
int mcm_object_commit(struct mcm *m, struct mcm_shard *sh, const struct mcm_commit *c,
		      uint32_t old);
/* Take a live object out of the index; its memory is free now or when its last reader has gone. */
void mcm_object_remove(struct mcm *m, struct mcm_shard *sh, uint32_t slot);
/* The same for an object that is in no directory any more, and whose removal the journal knows. */
void mcm_object_unindex(struct mcm *m, struct mcm_shard *sh, uint32_t slot);
/* For an object that is in no table and no directory any more. */
void mcm_object_retire(struct mcm *m, struct mcm_shard *sh, uint32_t slot);
/* One copy is gone; with the last one goes the object.  False when it has no such copy. */
bool mcm_object_remove_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent);

/* Another copy of a live object, written and checked.  The range is the object's or, on failure, given
 * back.  -MC_ELIMIT, -MC_EREPLICA_GONE when its segment has gone, -ENOMEM. */
int mcm_object_add_copy(struct mcm *m, uint32_t slot, struct mcm_extent extent);
/* A copy of a live object is to go, now or with its last reader, unless it is the only one then, or lost already. */
void mcm_object_retire_copy(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcm_extent extent);
/* Is this copy on its way out, and another one there? */
bool mcm_object_copy_retiring(const struct mcm_index *ix, const struct mcm_object *o,
			      struct mcm_extent extent);

unsigned mcm_object_extents(const struct mcm_index *ix, const struct mcm_object *o,
			   struct mcm_extent ret[MCM_REPLICA_MAX]);
bool mcm_object_has(const struct mcm_index *ix, const struct mcm_object *o, struct mcm_extent extent);
/* Is there a copy that can be read, or nothing to read? */
bool mcm_object_readable(const struct mcm *m, const struct mcm_object *o);
/* One reader more, of its group too; mcm_object_unpin() takes both back.  -MC_ELIMIT, -ENOMEM; never for the first
 * MCM_PINS_FEW. */
int mcm_object_pin(struct mcm *m, struct mcm_object *o);
/* How many readers it has. */
uint32_t mcm_object_pins(const struct mcm *m, const struct mcm_object *o);
static inline bool mcm_object_leased(const struct mcm_object *o, uint32_t now_tick)
{
	unsigned nobodys = !!(mcm_load_relaxed(&o->marks) & MCM_MARK_RESTORED);

	return o->pins > nobodys || o->lease > now_tick;
}

/* What a fresh object has beside its key, its places and its extension. */
void mcm_object_set(struct mcm_object *o, uint64_t size, uint32_t crc, uint64_t generation,
		    uint64_t mtime_ms, uint8_t flags);
/* Make @slot, which has the place, its owner on the segment's side too.  False when the segment has gone:
 * the range is given back. */
bool mcm_object_attach(struct mcm *m, uint32_t slot, struct mcm_extent p);

/* A segment's or a tenant's lock held. */

/* Take a pinned object's range off the lists until its last reader puts it back
 * (mcm_object_unpin()).  False when that reader has just gone. */
bool mcm_object_park(struct mcm_object *o);

/* No lock held: one reader less.  @slot is pinned by the caller. */
void mcm_object_unpin(struct mcm *m, uint32_t slot);

#endif
