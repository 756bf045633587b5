/* SPDX-License-Identifier: Apache-2.0
 * index.h - the index: MCM_SHARDS shards, each a hash table of objects under a mutex that is held shortly.
 *
 * Functions mcm_shard_* need the shard's lock.  The slot of an object that the caller protects in
 * another way (a pin, ownership of a range) is locked with mcm_index_lock_slot(). */
#ifndef MCM_INDEX_H
#define MCM_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/index/links.h"
#include "master/index/object.h"
#include "master/memory/keys.h"
#include "master/memory/slab.h"
#include "master/memory/table.h"

#define MCM_SHARDS (1u << MCM_SHARD_BITS)
/* Memory of an object with a key of ordinary length: its cache line, hash bucket, directory entry and key. */
#define MCM_OBJECT_BYTES 300u
#define MCM_KEY_WEIGHT 256u	/* bytes of a key that count as one more object, if memory is limited */

struct mcm_shard {
	struct mc_mutex lock;
	struct mcm_table table;
	uint32_t free;			/* free list of slots, linked by next; relaxed */
	uint32_t fresh, fresh_end;	/* slots that were never used; relaxed */
	struct mcm_keys keys;
	struct mcm_table attrs;		/* attributes of the few objects that have some (attrs.h) */
} __attribute__((aligned(64)));

struct mcm_index {
	uint64_t seed;			/* seed of the hash: clients cannot choose keys that collide */
	uint64_t max;			/* limit of count; 0: none */
	bool by_memory;			/* the limit is one of memory: a long key counts more than once */
	/* atomic: weights of the objects in the tables, of admitted puts and of the directories (names.h); counted only
	 * when there is a limit */
	uint64_t count;
	struct mcm_slab objects;
	struct mcm_key_pool keys;	/* keys of all shards: at most 16 GiB */
	struct mcm_slab exts;
	struct mcm_table_mem buckets;	/* memory of the shards' tables */
	struct mc_mutex ext_lock;
	uint32_t ext_free;
	struct mcm_slab attrs;
	uint32_t attrs_free;		/* guarded by ext_lock */
	struct mcm_links links;		/* the objects with several names */
	struct mcm_shard shard[MCM_SHARDS];
};

/* @max_objects: 0 for no limit but that of slot numbers. */
void mcm_index_init(struct mcm_index *ix, uint64_t max_objects);
void mcm_index_done(struct mcm_index *ix);
/* Limit the objects to those that need about @bytes of the master's memory, with their keys.  Call it before the
 * first object. */
void mcm_index_limit_memory(struct mcm_index *ix, uint64_t bytes);
/* The number of objects that an object, or a put that has begun, counts as. */
static inline unsigned mcm_index_weight(const struct mcm_index *ix, uint32_t key_len)
{
	return ix->by_memory ? 1 + key_len / MCM_KEY_WEIGHT : 1;
}

uint32_t mcm_index_hash(const struct mcm_index *ix, const void *key, uint32_t len);
static inline unsigned mcm_index_shard_nr(uint32_t hash)
{
	return hash >> (32 - MCM_SHARD_BITS);
}

static inline struct mcm_shard *mcm_index_shard(struct mcm_index *ix, uint32_t hash)
{
	return &ix->shard[mcm_index_shard_nr(hash)];
}
#define MCM_OBJECTS_SHIFT 16	/* 4 MiB */
static inline struct mcm_object *mcm_object(const struct mcm_index *ix, uint32_t slot)
{
	return mcm_slab_get(&ix->objects, slot, sizeof(struct mcm_object), MCM_OBJECTS_SHIFT);
}

/* Prefetch the memory that look-ups of these hashes read, so that the cache misses overlap.  @n: at
 * most MCM_PREFETCH_MAX.  @new_len: lengths of the keys if new objects will be made, whose memory
 * is then prefetched too; NULL: none. */
#define MCM_PREFETCH_MAX 32u
void mcm_index_prefetch(struct mcm_index *ix, const uint32_t *hash, unsigned n, const uint32_t *new_len);
/* The slot of the next new object in the shard of this hash, for prefetches: another thread may take it. */
uint32_t mcm_shard_next(struct mcm_index *ix, uint32_t hash);

/* Lock the shard of an object that cannot be freed, but may be renamed, meanwhile. */
struct mcm_shard *mcm_index_lock_slot(struct mcm_index *ix, uint32_t slot);
/* Lock two shards in the order of their addresses; they may be the same. */
void mcm_index_lock_two(struct mcm_shard *a, struct mcm_shard *b);
void mcm_index_unlock_two(struct mcm_shard *a, struct mcm_shard *b);
/* Lock every shard, in the order of their addresses: for a change that readers must see as a whole. */
void mcm_index_lock_all(struct mcm_index *ix);
void mcm_index_unlock_all(struct mcm_index *ix);

/* The live object of a key; 0: none. */
uint32_t mcm_shard_find(const struct mcm_index *ix, struct mcm_shard *sh, uint32_t hash,
			const void *key, uint32_t len);
/* An object with key and hash set and everything else zero, not in the table yet.  -ENOMEM,
 * -MC_ELIMIT when all slot numbers are in use. */
int mcm_shard_new(struct mcm_index *ix, struct mcm_shard *sh, uint32_t hash, const void *key,
		  uint32_t len, uint32_t *ret_slot);
void mcm_shard_link(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot);
/* The same for an object that takes over the weight of its put. */
void mcm_shard_link_counted(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot);
void mcm_shard_unlink(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot);
/* Free slot and key of an object that is in no table, directory or list. */
void mcm_shard_free(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot);

/* The object's key, not NUL-terminated. */
const char *mcm_shard_key(const struct mcm_index *ix, uint32_t slot);

/* Extensions.  -ENOMEM. */
int mcm_ext_new(struct mcm_index *ix, uint32_t *ret_ext);
void mcm_ext_free(struct mcm_index *ix, uint32_t ext);
static inline struct mcm_object_ext *mcm_ext(const struct mcm_index *ix, uint32_t ext)
{
	return mcm_slab_at(&ix->exts, ext);
}

/* Continue at *pos (0 to begin, MCM_TABLE_END at the end) and call @fn for at most @max objects
 * (more only when their hashes are equal), each under its shard's lock.  Objects that are in the
 * index from the first call to the last are met exactly once.  Returns the number of calls. */
unsigned mcm_index_scan(struct mcm_index *ix, uint64_t *pos, unsigned max,
			void (*fn)(void *arg, uint32_t slot), void *arg);

uint64_t mcm_index_count(struct mcm_index *ix);
/* Bytes of memory that objects, keys, attributes and tables have taken; memory of removed objects is not returned, but
 * used for later ones. */
uint64_t mcm_index_bytes(struct mcm_index *ix);

#endif
