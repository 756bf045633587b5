/* SPDX-License-Identifier: Apache-2.0
 * index.c - shards, their tables and their slots. */
#include <config.h>

#include "master/index/index.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/sys/random.h"
#include "master/index/attrs.h"
#include "master/lock_hold.h"

#define EXTS_SHIFT 14
#define FRESH_SLOTS 32		/* allocated from the slab at a time */
#define CHAIN_PREFETCH 4		/* objects of a chain that are prefetched */
#define COLD_BITS 4		/* smaller tables and their objects are in the CPU caches */

static const struct mcm_table_type by_key = {
	.link = offsetof(struct mcm_object, next),
	.hash = offsetof(struct mcm_object, hash),
	.shift = MCM_SHARD_BITS,
	.load = 8,
};

void mcm_index_init(struct mcm_index *ix, uint64_t max_objects)
{
	unsigned i;

	memset(ix, 0, sizeof(*ix));
	ix->seed = mc_random_u64();
	ix->max = max_objects;
	mcm_slab_init(&ix->objects, sizeof(struct mcm_object), MCM_OBJECTS_SHIFT);
	mcm_table_mem_init(&ix->buckets, MCM_SHARDS);
	mcm_key_pool_init(&ix->keys);
	mcm_slab_init(&ix->exts, sizeof(struct mcm_object_ext), EXTS_SHIFT);
	mc_mutex_init(&ix->ext_lock);
	mcm_attrs_init(ix);
	for (i = 0; i < MCM_SHARDS; i++) {
		mc_mutex_init(&ix->shard[i].lock);
		mcm_table_init_in(&ix->shard[i].table, &ix->buckets, i);
		mcm_keys_init_in(&ix->shard[i].keys, &ix->keys);
	}
}

void mcm_index_limit_memory(struct mcm_index *ix, uint64_t bytes)
{
	ix->max = bytes / MCM_OBJECT_BYTES + 1;
	ix->by_memory = true;
}

void mcm_index_done(struct mcm_index *ix)
{
	unsigned i;

	for (i = 0; i < MCM_SHARDS; i++) {
		mcm_table_done(&ix->shard[i].table);
		mcm_keys_done(&ix->shard[i].keys);
		mc_mutex_destroy(&ix->shard[i].lock);
	}
	mcm_attrs_done(ix);
	mcm_table_mem_done(&ix->buckets);
	mc_mutex_destroy(&ix->ext_lock);
	mcm_key_pool_done(&ix->keys);
	mcm_slab_done(&ix->exts);
	mcm_slab_done(&ix->objects);
}

uint32_t mcm_index_hash(const struct mcm_index *ix, const void *key, uint32_t len)
{
	return (uint32_t)(mc_hash(key, len, ix->seed) >> 32);
}

struct mcm_shard *mcm_index_lock_slot(struct mcm_index *ix, uint32_t slot)
{
	struct mcm_object *o = mcm_object(ix, slot);

	for (;;) {
		unsigned i = mcm_object_shard(o);
		struct mcm_shard *sh = &ix->shard[i];

		mc_mutex_lock(&sh->lock);
		if (mcm_object_shard(o) == i)
			return sh;
		mc_mutex_unlock(&sh->lock);
	}
}

void mcm_index_lock_two(struct mcm_shard *a, struct mcm_shard *b)
{
	if (a > b) {
		struct mcm_shard *tmp = a;

		a = b;
		b = tmp;
	}
	mc_mutex_lock(&a->lock);
	if (b != a)
		mc_mutex_lock(&b->lock);
}

void mcm_index_unlock_two(struct mcm_shard *a, struct mcm_shard *b)
{
	mc_mutex_unlock(&a->lock);
	if (b != a)
		mc_mutex_unlock(&b->lock);
}

void mcm_index_lock_all(struct mcm_index *ix)
{
	for (unsigned i = 0; i < MCM_SHARDS; i++)
		mc_mutex_lock(&ix->shard[i].lock);
}

void mcm_index_unlock_all(struct mcm_index *ix)
{
	for (unsigned i = MCM_SHARDS; i--;)
		mc_mutex_unlock(&ix->shard[i].lock);
}

/* The values may change concurrently, but a prefetch of a wrong address is harmless. */
static void prefetch_head(struct mcm_index *ix, uint32_t hash)
{
	const uint32_t *head = mcm_table_peek(&mcm_index_shard(ix, hash)->table, mcm_table_pos(&by_key, hash));

	if (head)
		__builtin_prefetch(head);
}

uint32_t mcm_shard_next(struct mcm_index *ix, uint32_t hash)
{
	struct mcm_shard *sh = mcm_index_shard(ix, hash);
	uint32_t slot = mcm_load_relaxed(&sh->free);

	return slot ? slot : mcm_load_relaxed(&sh->fresh);
}

/* shard locked */
static void prefetch_new(struct mcm_index *ix, const struct mcm_shard *sh, uint32_t len)
{
	if (sh->free)
		__builtin_prefetch(mcm_object(ix, sh->free), 1);
	else if (sh->fresh != sh->fresh_end)
		__builtin_prefetch(mcm_object(ix, sh->fresh), 1);
	mcm_keys_prefetch(&sh->keys, len);
}

/* Prefetch the memory to which a new object and its key of @len bytes will be written. */
static void prefetch_new_of(struct mcm_index *ix, uint32_t hash, uint32_t len)
{
	struct mcm_shard *sh = mcm_index_shard(ix, hash);

	mc_mutex_lock(&sh->lock);
	prefetch_new(ix, sh, len);
	mc_mutex_unlock(&sh->lock);
}

/* Prefetch and return the first object of the key's chain; NULL: there is none.  Slots stay mapped, so it is harmless
 * if the object was freed meanwhile. */
static const struct mcm_object *prefetch_object(struct mcm_index *ix, uint32_t hash)
{
	const uint32_t *head = mcm_table_peek(&mcm_index_shard(ix, hash)->table, mcm_table_pos(&by_key, hash));
	uint32_t slot = head ? mcm_load_relaxed(head) : 0;
	const struct mcm_object *o;

	if (!slot)
		return NULL;
	o = mcm_object(ix, slot);
	__builtin_prefetch(o, 1);
	return o;
}

/* Prefetch the key if @o has the hash; else prefetch and return the next object of the chain. */
static const struct mcm_object *prefetch_key(struct mcm_index *ix, uint32_t hash, const struct mcm_object *o)
{
	const char *key;
	uint32_t next;

	if (mcm_load_relaxed(&o->hash) != hash) {
		next = mcm_load_relaxed(&o->next);
		if (!next)
			return NULL;
		o = mcm_object(ix, next);
		__builtin_prefetch(o, 1);
		return o;
	}
	key = mcm_keys_at(&mcm_index_shard(ix, hash)->keys, mcm_load_relaxed(&o->key));
	__builtin_prefetch(key);
	__builtin_prefetch(key + 63);
	return NULL;
}

void mcm_index_prefetch(struct mcm_index *ix, const uint32_t *hash, unsigned n, const uint32_t *new_len)
{
	const struct mcm_object *o[MCM_PREFETCH_MAX];
	unsigned i, round, left;

	if (!new_len && n && mcm_load_relaxed(&mcm_index_shard(ix, hash[0])->table.bits) < COLD_BITS)
		return;
	for (i = 0; i < n; i++)
		prefetch_head(ix, hash[i]);
	for (i = 0; i < n; i++) {
		o[i] = prefetch_object(ix, hash[i]);
		if (new_len)
			prefetch_new_of(ix, hash[i], new_len[i]);
	}
	for (round = 0, left = n; left && round < CHAIN_PREFETCH; round++) {
		for (i = left = 0; i < n; i++) {
			if (!o[i])
				continue;
			o[i] = prefetch_key(ix, hash[i], o[i]);
			left += o[i] != NULL;
		}
	}
}

uint32_t mcm_shard_find(const struct mcm_index *ix, struct mcm_shard *sh, uint32_t hash,
			const void *key, uint32_t len)
{
	uint32_t slot = *mcm_table_head(&sh->table, mcm_table_pos(&by_key, hash));

	while (slot) {
		const struct mcm_object *o = mcm_object(ix, slot);

		if (o->hash == hash && o->key_len == len &&
		    !memcmp(mcm_keys_at(&sh->keys, o->key), key, len))
			return slot;
		slot = o->next;
	}
	return 0;
}

static int slot_alloc(struct mcm_index *ix, struct mcm_shard *sh, uint32_t *ret)
{
	int r;

	if (sh->free) {
		*ret = sh->free;
		mcm_store_relaxed(&sh->free, mcm_object(ix, *ret)->next);
		return 0;
	}
	if (sh->fresh == sh->fresh_end) {
		r = mcm_slab_take(&ix->objects, FRESH_SLOTS, ret);
		if (r < 0)
			return r;
		mcm_store_relaxed(&sh->fresh, *ret);
		sh->fresh_end = *ret + FRESH_SLOTS;
	}
	*ret = sh->fresh;
	mcm_store_relaxed(&sh->fresh, *ret + 1);
	return 0;
}

static void slot_free(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	mcm_store_relaxed(&mcm_object(ix, slot)->next, sh->free);
	mcm_store_relaxed(&sh->free, slot);
}

int mcm_shard_new(struct mcm_index *ix, struct mcm_shard *sh, uint32_t hash, const void *key,
		  uint32_t len, uint32_t *ret_slot)
{
	struct mcm_object *o;
	uint32_t slot, ref;
	int r;

	r = slot_alloc(ix, sh, &slot);
	if (r < 0)
		return r;
	r = mcm_keys_add(&sh->keys, key, len, &ref);
	if (r < 0) {
		slot_free(ix, sh, slot);
		return r;
	}
	o = mcm_object(ix, slot);
	/* Not memset(): a thread with an old slot number may be reading. */
	mcm_store_relaxed(&o->hash, hash);
	mcm_store_relaxed(&o->flags, 0);
	mcm_store_relaxed(&o->marks, 0);
	mcm_store_relaxed(&o->lease, 0);
	mcm_store_relaxed(&o->pins, 0);
	mcm_store_relaxed(&o->generation, 0);
	mcm_store_relaxed(&o->next, 0);
	mcm_store_relaxed(&o->key, ref);
	mcm_store_relaxed(&o->mtime_lo, 0);
	o->crc = o->size_lo = o->ext = 0;
	mcm_store_relaxed(&o->range, 0);
	o->dir = o->dir_next = 0;
	mcm_store_relaxed(&o->mtime_hi, 0);
	o->size_hi = 0;
	mcm_store_relaxed(&o->segment, 0);
	o->key_len = (uint16_t)len;
	*ret_slot = slot;
	return 0;
}

void mcm_shard_link_counted(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(ix, slot);

	mcm_store_relaxed(&o->flags, o->flags | MCM_OBJ_LIVE);
	mcm_table_insert(&sh->table, &by_key, &ix->objects, slot);
}

void mcm_shard_link(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	mcm_shard_link_counted(ix, sh, slot);
	if (ix->max)
		__atomic_fetch_add(&ix->count, mcm_index_weight(ix, mcm_object(ix, slot)->key_len), __ATOMIC_RELAXED);
}

void mcm_shard_unlink(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(ix, slot);

	mcm_table_remove(&sh->table, &by_key, &ix->objects, slot);
	if (ix->max)
		__atomic_fetch_sub(&ix->count, mcm_index_weight(ix, o->key_len), __ATOMIC_RELAXED);
	mcm_store_relaxed(&o->flags, (uint8_t)(o->flags & ~MCM_OBJ_LIVE));
}

void mcm_shard_free(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(ix, slot);

	mcm_store_relaxed(&o->flags, 0);
	mcm_store_relaxed(&o->generation, 0);
	mcm_attrs_drop(ix, sh, slot);
	mcm_keys_del(&sh->keys, o->key, o->key_len);
	slot_free(ix, sh, slot);
}

const char *mcm_shard_key(const struct mcm_index *ix, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(ix, slot);

	return mcm_keys_at(&ix->shard[mcm_object_shard(o)].keys, o->key);
}

int mcm_ext_new(struct mcm_index *ix, uint32_t *ret_ext)
{
	int r = 0;

	MC_LOCKED(&ix->ext_lock);
	if (ix->ext_free) {
		*ret_ext = ix->ext_free;
		ix->ext_free = mcm_ext(ix, *ret_ext)->next;
	} else {
		r = mcm_slab_take(&ix->exts, 1, ret_ext);
	}
	if (r == 0) {
		struct mcm_object_ext *e = mcm_ext(ix, *ret_ext);

		mcm_store_relaxed(&e->soft_until, 0);
		mcm_store_relaxed(&e->copies, 0);
		e->adopted = false;
		e->more_pins = 0;
		e->group = 0;
	}
	return r;
}

void mcm_ext_free(struct mcm_index *ix, uint32_t ext)
{
	MC_LOCKED(&ix->ext_lock);
	mcm_ext(ix, ext)->next = ix->ext_free;
	ix->ext_free = ext;
}

#define SHARD_POSITIONS (1ull << (32 - MCM_SHARD_BITS))
#define CHAINS_PER_LOCK 64

struct scan {
	struct mcm_index *ix;
	unsigned left, steps;
	void (*fn)(void *arg, uint32_t slot);
	void *arg;
};

/* Call the function for the objects of a chain at positions [from, to), or with @ret_low only count
 * them and find the lowest position. */
static unsigned scan_chain(struct scan *sc, uint32_t slot, uint64_t from, uint64_t to, uint64_t *ret_low)
{
	unsigned n = 0;
	uint32_t next;

	for (; slot; slot = next) {
		uint64_t pos = mcm_object(sc->ix, slot)->hash & (SHARD_POSITIONS - 1);

		next = mcm_object(sc->ix, slot)->next;
		sc->steps++;
		if (pos < from || pos >= to)
			continue;
		n++;
		if (!ret_low)
			sc->fn(sc->arg, slot);
		else if (pos < *ret_low)
			*ret_low = pos;
	}
	return n;
}

/* shard locked: scan some chains from position @in of the shard on; returns where to continue */
static uint64_t scan_shard(struct scan *sc, struct mcm_shard *sh, uint64_t in)
{
	unsigned chains, n;
	uint64_t end, low;
	uint32_t head;

	for (chains = 0; chains < CHAINS_PER_LOCK && sc->left && in < SHARD_POSITIONS; chains++) {
		head = *mcm_table_head(&sh->table, (uint32_t)(in << MCM_SHARD_BITS));
		end = mcm_table_chain_end(&sh->table, (uint32_t)(in << MCM_SHARD_BITS)) >> MCM_SHARD_BITS;
		low = end;
		n = scan_chain(sc, head, in, end, &low);
		if (n > sc->left)
			end = low + 1;	/* only the objects with the lowest hash */
		if (n)
			n = scan_chain(sc, head, in, end, NULL);
		sc->left -= n < sc->left ? n : sc->left;
		in = end;
	}
	sc->steps += chains;
	return in;
}

unsigned mcm_index_scan(struct mcm_index *ix, uint64_t *pos, unsigned max,
			void (*fn)(void *arg, uint32_t slot), void *arg)
{
	struct scan sc = { ix, max, 0, fn, arg };

	while (*pos < MCM_TABLE_END && sc.left) {
		struct mcm_shard *sh = mcm_index_shard(ix, (uint32_t)*pos);
		uint64_t base = *pos & ~(SHARD_POSITIONS - 1);

		sc.steps = 0;
		mc_mutex_lock(&sh->lock);
		*pos = base + scan_shard(&sc, sh, *pos - base);
		mc_mutex_unlock(&sh->lock);
		mcm_lock_held(MCM_HOLD_SHARD, sc.steps);
	}
	return max - sc.left;
}

uint64_t mcm_index_count(struct mcm_index *ix)
{
	uint64_t n = 0;
	unsigned i;

	for (i = 0; i < MCM_SHARDS; i++) {
		mc_mutex_lock(&ix->shard[i].lock);
		n += ix->shard[i].table.count;
		mc_mutex_unlock(&ix->shard[i].lock);
	}
	return n;
}

uint64_t mcm_index_bytes(struct mcm_index *ix)
{
	return mcm_slab_bytes(&ix->objects) + mcm_slab_bytes(&ix->exts) + mcm_slab_bytes(&ix->attrs) +
		mcm_slab_bytes(&ix->keys.units) + mcm_table_mem_bytes(&ix->buckets);
}
