/* SPDX-License-Identifier: Apache-2.0
 * object.h - one committed version of a key: 64 bytes, one cache line, plus its key in the shard's arena.
 *
 * Objects are slab elements; their number ("slot") names them everywhere.  A slot belongs to the shard
 * that its hash selects and is guarded by that shard's lock.  Fields marked "relaxed" are also read
 * without it, by the evictor under its segment's lock, and are written atomically.  Size, CRC, key and
 * extents of a committed object never change; a new value of a key is a new object. */
#ifndef MCM_OBJECT_H
#define MCM_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crc32c.h"
#include "proto/msg.h"

/* ThreadSanitizer's lock-order check allows a thread 64 locks, and mcm_index_lock_all() takes all shards'. */
#ifdef __SANITIZE_THREAD__
#define MCM_SHARD_BITS 5u
#else
#define MCM_SHARD_BITS 8u
#endif
#define MCM_REPLICA_MAX 8	/* copies of an object, at most */
#define MCM_SIZE_MAX ((1ull << 44) - 1)
#define MCM_TYPE_SHIFT 12	/* position of the data type in size_hi */
/* Keys inside the master may begin with a tenant's prefix (tenant.h). */
#define MCM_PREFIX_MAX 4
#define MCM_KEY_MAX (MCP_KEY_MAX + MCM_PREFIX_MAX)
#define MCM_GROUP_NAME_MAX (MCP_GROUP_MAX + MCM_PREFIX_MAX)


static inline bool mcm_key_ok(struct mcp_bytes key)
{
	return key.len && (key.len <= MCP_KEY_MAX ||
			   (key.len <= MCM_KEY_MAX && !((const char *)key.data)[0]));
}

#define MCM_PINS_FEW UINT16_MAX	/* pins that the object itself can count */

#define MCM_OBJ_KIND 0x03u	/* enum mcp_kind */
#define MCM_OBJ_HARD 0x04u
#define MCM_OBJ_SOFT 0x08u
#define MCM_OBJ_LIVE 0x10u	/* it is in the index */
#define MCM_OBJ_ZOMBIE 0x20u	/* removed from the index, kept for its readers */
#define MCM_OBJ_BELOW 0x40u	/* it has a copy on a medium without MCP_TRAIT_PUTS, as a disk */
#define MCM_OBJ_MEMORY 0x80u	/* it has a copy on one with it, as memory */
#define MCM_OBJ_COPIES (MCM_OBJ_BELOW | MCM_OBJ_MEMORY)

#define MCM_MARK_TOUCHED 0x01u	/* read, or asked for, since the evictor last checked */
#define MCM_MARK_READ 0x40u	/* read since then */
#define MCM_MARK_AGAIN 0x80u	/* read more than once since then */
#define MCM_MARKS_OF_READS (MCM_MARK_TOUCHED | MCM_MARK_READ | MCM_MARK_AGAIN)
#define MCM_MARK_PARKED 0x02u	/* taken off the eviction lists because of its pins */
#define MCM_MARK_RETIRING 0x04u	/* the copy ext.retiring is freed when no pin is left */
#define MCM_MARK_ATTRS 0x10u	/* it has attributes (attrs.h) */
#define MCM_MARK_UNCONFIRMED 0x20u	/* the object is from a snapshot; its copies count as snapshot/confirm.h says */
#define MCM_MARK_RESTORED 0x08u	/* one pin stands for possible readers of an earlier master */

struct mcm_extent {
	uint32_t range;		/* number of the range in the segment's allocator */
	uint16_t segment;	/* number of the segment */
};

struct mcm_object {
	uint32_t next;			/* hash chain; free list; relaxed */
	uint32_t hash;			/* relaxed; the shard's number is in the top bits (index.h) */
	uint32_t key;			/* in the shard's arena; relaxed */
	uint32_t crc;
	uint32_t size_lo;
	uint16_t size_hi;		/* data type above MCM_TYPE_SHIFT */
	uint16_t key_len;
	uint64_t generation;		/* relaxed */
	uint32_t mtime_lo;		/* time of the commit, ms since the epoch; relaxed */
	uint16_t mtime_hi;		/* above MCM_LEASE_SHIFT: ms of the promise lease's end in its tick; relaxed */
	uint8_t flags;			/* MCM_OBJ_*, relaxed */
	uint8_t marks;			/* MCM_MARK_*, set and cleared by atomic or/and */
	uint32_t lease;			/* tick after the end of the promise lease, 0: none; relaxed */
	uint16_t pins;			/* readers; those beyond MCM_PINS_FEW in ext.more_pins; relaxed */
	uint16_t segment;		/* first copy, valid when range is not 0; relaxed */
	uint32_t range;			/* relaxed */
	uint32_t ext;			/* struct mcm_object_ext, 0: none; relaxed */
	uint32_t dir_next;		/* chain in its directory; under the names stripe's lock */
	uint32_t dir;			/* its directory; set once */
};
_Static_assert(sizeof(struct mcm_object) == 64, "an object is one cache line");

/* Fields that few objects need. */
struct mcm_object_ext {
	uint32_t next;			/* free list */
	uint32_t soft_until;		/* tick at which the soft pin ends; relaxed */
	uint32_t range[MCM_REPLICA_MAX - 1];
	uint16_t segment[MCM_REPLICA_MAX - 1];	/* relaxed */
	uint8_t copies;			/* number of further copies, in range[] and segment[]; relaxed */
	bool adopted;			/* the object is from a disk of another pool (task/adopt.h) */
	uint32_t more_pins;
	struct mcm_extent retiring;	/* the copy to free, with MCM_MARK_RETIRING */
	/* guarded by the groups' lock; group by the shard's lock too */
	uint32_t group;			/* 0: none */
	uint32_t group_prev, group_next;	/* neighbours in the group's list */
};

/* Soft pins and, for the evictor, promise leases are in ticks of 64 ms since the master's start. */
#define MCM_TICK_SHIFT 6
/* 42 bits of a time of commit reach to the year 2109; the other 6 bits are the lease's. */
#define MCM_LEASE_SHIFT (16 - MCM_TICK_SHIFT)

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

/* Call it once, after mcm_object_set(). */
static inline void mcm_object_set_type(struct mcm_object *o, uint8_t type)
{
	o->size_hi = (uint16_t)(o->size_hi | type << MCM_TYPE_SHIFT);
}

static inline uint64_t mcm_object_mtime(const struct mcm_object *o)
{
	return (uint64_t)(mcm_load_relaxed(&o->mtime_hi) & ((1u << MCM_LEASE_SHIFT) - 1)) << 32 | o->mtime_lo;
}

/* shard locked: end of the promise lease, ms on the master's clock; 0: none */
static inline uint64_t mcm_object_lease_end(const struct mcm_object *o)
{
	if (!o->lease)
		return 0;
	return (uint64_t)(o->lease - 1) << MCM_TICK_SHIFT | mcm_load_relaxed(&o->mtime_hi) >> MCM_LEASE_SHIFT;
}

/* An end of promise leases, as objects store it; all 0: none. */
struct mcm_lease {
	uint64_t ms;		/* on the master's clock */
	uint32_t tick;		/* the next one */
	uint16_t rest;		/* ms since the tick began, shifted to their place in mtime_hi */
};
static inline struct mcm_lease mcm_lease_until(uint64_t ms)
{
	return (struct mcm_lease){
		ms, ms ? mcm_tick_after(ms) : 0,
		(uint16_t)((ms & ((1u << MCM_TICK_SHIFT) - 1)) << MCM_LEASE_SHIFT)
	};
}

/* shard locked: the lease ends at @until, unless it ends later already.  For the evictor it ends with the tick:
 * it never evicts too early, and a remove may succeed at that time exactly. */
static inline void mcm_object_lease(struct mcm_object *o, const struct mcm_lease *until)
{
	const uint16_t mtime = (1u << MCM_LEASE_SHIFT) - 1;

	if (o->lease > until->tick || (o->lease == until->tick && (o->mtime_hi & ~mtime) >= until->rest))
		return;
	mcm_store_relaxed(&o->lease, until->tick);
	mcm_store_relaxed(&o->mtime_hi, (uint16_t)((o->mtime_hi & mtime) | until->rest));
}

static inline unsigned mcm_object_shard(const struct mcm_object *o)
{
	return mcm_load_relaxed(&o->hash) >> (32 - MCM_SHARD_BITS);
}

static inline void mcm_object_touch(struct mcm_object *o)
{
	/* Most objects are marked already: do not write the cache line again. */
	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_TOUCHED))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED, __ATOMIC_RELAXED);
}

/* Marks for a read; an existence query sets MCM_MARK_TOUCHED only. */
static inline void mcm_object_read(struct mcm_object *o)
{
	uint8_t marks = mcm_load_relaxed(&o->marks);

	if (!(marks & MCM_MARK_READ))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED | MCM_MARK_READ, __ATOMIC_RELAXED);
	else if (!(marks & MCM_MARK_AGAIN))
		__atomic_fetch_or(&o->marks, MCM_MARK_TOUCHED | MCM_MARK_AGAIN, __ATOMIC_RELAXED);
}

/* Bytes that an object of @size needs in a segment: its own and, when it has more than one 64 KiB
 * chunk, the CRC of each chunk behind them, aligned to 4.  The writer stores the CRCs. */
static inline uint64_t mcm_object_reserve(uint64_t size)
{
	if (size <= MC_CRC_CHUNK)
		return size;
	return ((size + 3) & ~3ull) + 4 * mc_crc_chunks(size);
}

static inline bool mcm_object_in_memory(const struct mcm_object *o)
{
	return (mcm_load_relaxed(&o->flags) & MCM_OBJ_MEMORY) != 0;
}
/* The flag of a copy on a medium with (@puts) or without MCP_TRAIT_PUTS. */
static inline uint8_t mcm_object_copy_flag(bool puts)
{
	return puts ? MCM_OBJ_MEMORY : MCM_OBJ_BELOW;
}

/* Has it a copy on a medium on which objects are not put? */
static inline bool mcm_object_is_below(const struct mcm_object *o)
{
	return (mcm_load_relaxed(&o->flags) & MCM_OBJ_BELOW) != 0;
}
/* @now_ms: on the master's clock. */
static inline bool mcm_object_leased(const struct mcm_object *o, uint64_t now_ms)
{
	unsigned nobodys = !!(mcm_load_relaxed(&o->marks) & MCM_MARK_RESTORED);

	return o->pins > nobodys || mcm_object_lease_end(o) > now_ms;
}

#endif
