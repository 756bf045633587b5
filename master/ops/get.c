/* SPDX-License-Identifier: Apache-2.0
 * get.c - look-up of objects: get with its pins, exist with its promise leases. */
#include <config.h>

#include "master/ops/ops.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/ops/pin.h"
#include "master/ops/uses.h"
#include "master/session.h"
#include "proto/codec.h"

#define HOLDS (MCP_GET_LEASE | MCP_GET_HOLD)
#define EXIST_BLOCK 2048u	/* keys that are sorted together, on the stack */
#define EXIST_SORT_MIN 128u	/* with fewer keys, few have a shard in common */

MC_COUNTER(total_gets, "total_get_nums_", "", "Keys requested by get")
MC_COUNTER(valid_gets, "valid_get_nums_", "", "Keys requested by get and found")
MC_COUNTER(mem_hits, "mem_cache_hit_nums_", "", "Keys found in memory")
MC_COUNTER(mem_hit_bytes, "mem_cache_hit_bytes_total", "", "Bytes of the keys found in memory")
MC_COUNTER(disk_hits, "file_cache_hit_nums_", "", "Keys found on disks only")
MC_COUNTER(disk_hit_bytes, "file_cache_hit_bytes_total", "", "Bytes of the keys found on disks only")

/* The readable copies, or all.  A call would cost each get 8 instructions. */
static inline __attribute__((always_inline)) unsigned
get_replicas(const struct mcm *m, const struct mcm_object *o, bool all, struct mcp_replica ret[MCM_REPLICA_MAX])
{
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i, at, copies = 0;

	for (i = 0; i < n; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);
		uint8_t state = mcm_segment_state(s);

		/* Range and segment id do not change while the object has the range. */
		if (state != MCP_SEG_OK) {
			state = mcm_confirm_state(s, o, p[i].range);
			if (!all && state != MCP_SEG_OK)
				continue;
		}
		/* Those of the lowest rank first. */
		for (at = copies++; at && mcp_medium(s->medium)->rank < mcp_medium(ret[at - 1].medium)->rank; at--)
			ret[at] = ret[at - 1];
		mcp_replica_set(&ret[at], s->id, mcm_range_offset(&s->alloc, p[i].range), state, s->medium);
	}
	return copies;
}

static uint32_t promise_lease_left(const struct mcm *m, const struct mcm_object *o)
{
	uint64_t end = mcm_object_lease_end(o), now = mcm_now_ms(m);

	return end > now ? (uint32_t)(end - now) : 0;
}

static uint32_t soft_pin_left(const struct mcm *m, const struct mcm_object *o)
{
	uint32_t now = mcm_now_tick(m);

	return mcm_evict_soft(&m->index, o, now) ?
		(mcm_ext(&m->index, o->ext)->soft_until - now) << MCM_TICK_SHIFT : 0;
}

static void get_describe(const struct mcm *m, const struct mcm_object *o, struct mcp_object *ret)
{
	ret->size = mcm_object_size(o);
	ret->generation = o->generation;
	ret->mtime_ms = mcm_object_mtime(o);
	ret->crc = o->crc;
	ret->lease_ms = promise_lease_left(m, o);
	ret->kind = o->flags & MCM_OBJ_KIND;
	ret->data_type = mcm_object_type(o);
	ret->soft_pin_ms = soft_pin_left(m, o);
	ret->flags = (uint8_t)((o->flags & MCM_OBJ_HARD ? MCP_OBJ_HARD_PIN : 0) |
			       (mcm_evict_soft(&m->index, o, mcm_now_tick(m)) ? MCP_OBJ_SOFT_PIN : 0));
}

static int get_pin(struct mcm *m, struct mcm_session *s, uint32_t flags, struct mcm_object *o,
		   uint32_t slot, struct mcp_object *ret)
{
	uint64_t until = 0, bytes = mcm_pin_bytes(m, s, slot);
	int r;

	r = mcm_pin_reserve(m, s);
	if (r == 0)
		r = mcm_pin_check(m, s, slot, bytes);
	if (r == 0)
		r = mcm_object_pin(m, o);
	if (r < 0)
		return r;
	if (!(flags & MCP_GET_HOLD)) {
		until = mcm_now_ms(m) + mcm_read_lease_ms(m);
		ret->lease_ms = (uint32_t)mcm_read_lease_ms(m);
	}
	ret->pin = mcm_pin_add(s, slot, bytes, until);
	return 0;
}

/* Time at which promise leases granted now end; 0: none are granted. */
static struct mcm_lease promise_lease_end(struct mcm *m)
{
	struct mcm_lease lease;

	if (!m->conf.default_kv_lease_ttl)
		return (struct mcm_lease){ 0 };
	lease = mcm_lease_until(mcm_now_ms(m) + m->conf.default_kv_lease_ttl);
	if (mcm_load_relaxed(&m->promise_lease_end) != lease.tick)
		mcm_store_relaxed(&m->promise_lease_end, lease.tick);
	return lease;
}

/* Extend the promise lease of the object and its group; the object counts as asked for, also without a lease. */
static void promise_lease(struct mcm *m, struct mcm_object *o, const struct mcm_lease *lease)
{
	mcm_object_lease(o, lease);
	mcm_object_touch(o);
	if (o->ext)
		mcm_group_lease(m, o, lease->ms);
}

/* A directory that exists because it has children. */
static int get_dir(struct mcm *m, struct mcp_bytes key, struct mcp_object *ret, unsigned *ret_copies,
		   struct mcm_attrs_memory *mem)
{
	struct mcm_names_stat st;

	if (((const char *)key.data)[key.len - 1] != '/' || !mcm_names_stat(&m->names, key.data, key.len, &st))
		return -MC_ENOOBJECT;
	memset(ret, 0, sizeof(*ret));
	ret->kind = MCP_KIND_DIR;
	*ret_copies = 0;
	if (mem)
		mcm_attrs_describe(m, 0, &st, mem, ret);
	return 0;
}

static void get_describe_attrs(struct mcm *m, uint32_t flags, struct mcp_bytes key, uint32_t slot,
			       struct mcm_attrs_memory *mem, struct mcp_object *ret)
{
	bool dir = flags & MCP_GET_DIRS && ((const char *)key.data)[key.len - 1] == '/';
	struct mcm_names_stat st = { 0 };

	if (dir)
		(void)mcm_names_stat(&m->names, key.data, key.len, &st);
	mcm_attrs_describe(m, slot, dir ? &st : NULL, mem, ret);
}

int mcm_get(struct mcm *m, struct mcm_session *s, uint32_t flags, struct mcp_bytes key,
	    struct mcp_object *ret, struct mcp_replica ret_replica[MCM_REPLICA_MAX],
	    unsigned *ret_copies)
{
	return mcm_get_attrs(m, s, flags, key, ret, ret_replica, ret_copies, NULL);
}

/* Shard locked, but not while the object of a name is looked up.  1: @slot is no name.  A separate function, so that an
 * object with bytes needs no instruction more. */
static __attribute__((noinline)) int get_empty(struct mcm *m, struct mcm_session *s, uint32_t flags,
					       struct mcp_bytes key, uint32_t slot, struct mcp_object *ret,
					       struct mcp_replica *ret_replica, unsigned *ret_copies,
					       struct mcm_attrs_memory *mem)
{
	uint32_t hash = mcm_object(&m->index, slot)->hash;
	struct mcm_link_name name = { key, hash, slot, mcm_index_shard(&m->index, hash), { 0, 0 } };
	int r;

	if (!mcm_attrs_is_name(&m->index, slot, &name.id))
		return 1;
	mc_metric_add(&total_gets, -1);
	r = mcm_link_get(m, s, flags, &name, ret, ret_replica, ret_copies, mem);
	if (r != 1)
		return r;
	mc_metric_add(&total_gets, -1);
	mc_mutex_unlock(&name.shard->lock);
	r = mcm_get_attrs(m, s, flags, key, ret, ret_replica, ret_copies, mem);
	mc_mutex_lock(&name.shard->lock);
	return r;
}

int mcm_get_pinned(struct mcm *m, struct mcm_session *s, uint64_t pin, struct mcp_object *ret,
		   struct mcp_replica ret_replica[MCM_REPLICA_MAX], unsigned *ret_copies)
{
	uint32_t slot = mcm_pin_slot(s, pin);
	const struct mcm_object *o;
	struct mcm_shard *sh;

	if (!slot)
		return mc_fail(-MC_ENOOBJECT, "no such pin");
	sh = mcm_index_lock_slot(&m->index, slot);
	o = mcm_object(&m->index, slot);
	memset(ret, 0, sizeof(*ret));
	ret->pin = pin;
	ret->size = mcm_object_size(o);
	ret->generation = o->generation;
	*ret_copies = get_replicas(m, o, false, ret_replica);
	mc_mutex_unlock(&sh->lock);
	return 0;
}

int mcm_get_attrs(struct mcm *m, struct mcm_session *s, uint32_t flags, struct mcp_bytes key, struct mcp_object *ret,
		  struct mcp_replica ret_replica[MCM_REPLICA_MAX], unsigned *ret_copies, struct mcm_attrs_memory *mem)
{
	struct mcm_shard *sh;
	struct mcm_object *o;
	uint32_t hash, slot;
	struct mcm_lease lease;
	bool memory;
	int r;

	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes", key.len);
	mc_metric_add(&total_gets, 1);
	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (!slot)
		return flags & MCP_GET_DIRS ? get_dir(m, key, ret, ret_copies, mem) : -MC_ENOOBJECT;
	o = mcm_object(&m->index, slot);
	*ret_copies = get_replicas(m, o, flags & MCP_GET_DESCRIBE, ret_replica);
	if (!o->range) {
		r = get_empty(m, s, flags, key, slot, ret, ret_replica, ret_copies, mem);
		if (r <= 0)
			return r;
	} else if (!*ret_copies || (flags & HOLDS && !mcm_object_readable(m, o))) {
		return mcm_object_missing(m, o);
	}
	memset(ret, 0, sizeof(*ret));
	if (flags & MCP_GET_PROMISE) {
		lease = promise_lease_end(m);
		promise_lease(m, o, &lease);
	}
	get_describe(m, o, ret);
	if (mem)
		get_describe_attrs(m, flags, key, slot, mem, ret);
	if (flags & HOLDS) {
		mcm_object_read(o);
		mcm_group_touch(m, o);
		if (o->range) {
			mcm_uses_read(m, slot);
			r = get_pin(m, s, flags, o, slot, ret);
			if (r < 0)
				return r;
			if (mcm_hot_on(&m->hot))
				mcm_hot_read(m, sh, slot);
		}
		memory = !o->range || mcm_object_in_memory(o);
		mcm_offload_read(m, slot, memory);
		mc_metric_add(memory ? &mem_hits : &disk_hits, 1);
		mc_metric_add(memory ? &mem_hit_bytes : &disk_hit_bytes, (int64_t)ret->size);
	}
	mc_metric_add(&valid_gets, 1);
	return 0;
}

static uint32_t get_group(struct mcm *m, uint32_t slot, char ret_name[MCP_GROUP_MAX])
{
	uint32_t ext = slot ? mcm_object(&m->index, slot)->ext : 0;
	uint32_t group = ext ? mcm_ext(&m->index, ext)->group : 0;

	return group ? mcm_group_name(m, group, ret_name) : 0;
}

uint32_t mcm_get_group(struct mcm *m, struct mcp_bytes key, char ret_name[MCP_GROUP_MAX])
{
	struct mcm_link_locked l;
	struct mcm_link_id id;
	struct mcm_shard *sh;
	uint32_t hash, slot, len;

	if (!mcm_key_ok(key))
		return 0;
	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (!slot || !mcm_attrs_is_name(&m->index, slot, &id))
		return get_group(m, slot, ret_name);
	mcm_link_lock(m, sh, id, &l);
	len = get_group(m, l.slot, ret_name);
	mcm_link_unlock(&l);
	return len;
}

/* Answer of exist for one key; the first two are sent to clients. */
enum { ABSENT, PRESENT, NOT_READY };

static uint8_t exist_hidden(const struct mcm *m, const struct mcm_object *o)
{
	return mcm_object_missing(m, o) == -MC_ENOTREADY ? NOT_READY : ABSENT;
}

/* Shard locked, but not meanwhile: a name is as its shared object, which the lease protects (NULL: none). */
static __attribute__((noinline)) uint8_t exist_empty(struct mcm *m, uint32_t slot, const struct mcm_lease *lease)
{
	uint8_t present = ABSENT;
	struct mcm_link_locked l;
	struct mcm_link_id id;

	if (!mcm_attrs_is_name(&m->index, slot, &id))
		return PRESENT;
	mcm_link_lock(m, mcm_index_shard(&m->index, mcm_object(&m->index, slot)->hash), id, &l);
	if (l.slot) {
		struct mcm_object *o = mcm_object(&m->index, l.slot);

		present = mcm_object_readable(m, o) ? PRESENT : exist_hidden(m, o);
		if (present == PRESENT && lease)
			promise_lease(m, o, lease);
	}
	mcm_link_unlock(&l);
	return present;
}

/* Shard locked.  *@asked gets the slot of the object that is present, unless @flags has MCP_EXIST_PEEK. */
static uint8_t exist_one(struct mcm *m, struct mcm_shard *sh, const struct mcp_bytes *key, struct mcm_asked *asked,
		      uint32_t flags, const struct mcm_lease *lease)
{
	uint32_t slot = mcm_shard_find(&m->index, sh, asked->hash, key->data, key->len);
	struct mcm_object *o;

	if (!slot) {
		mcm_learn_prefetch(&m->learn, asked->hash);
		return ABSENT;
	}
	o = mcm_object(&m->index, slot);
	if (!mcm_object_readable(m, o))
		return exist_hidden(m, o);
	if (flags & MCP_EXIST_PEEK)
		return __builtin_expect(mcm_object_size(o) != 0, 1) ? PRESENT : exist_empty(m, slot, NULL);
	mcm_learn_prefetch_object(&m->learn, slot);
	promise_lease(m, o, lease);
	if (__builtin_expect(mcm_object_size(o) != 0, 1)) {
		asked->slot = slot;
		asked->generation = o->generation;
		if (mcm_learn_samples(&m->learn, asked->hash))
			mcm_uses_describe(m, slot, asked);
	} else {
		return exist_empty(m, slot, lease);
	}
	return PRESENT;
}

/* Sort the keys by shard, so that each shard is locked once. */
static void exist_by_shard(const struct mcm_asked *asked, unsigned n, uint16_t *ret_order)
{
	uint16_t at[MCM_SHARDS] = { 0 };
	unsigned i, sum = 0, count;

	for (i = 0; i < n; i++)
		at[mcm_index_shard_nr(asked[i].hash)]++;
	for (i = 0; i < MCM_SHARDS; i++) {
		count = at[i];
		at[i] = (uint16_t)sum;
		sum += count;
	}
	for (i = 0; i < n; i++)
		ret_order[at[mcm_index_shard_nr(asked[i].hash)]++] = (uint16_t)i;
}

/* At most MCM_PREFETCH_MAX keys, selected by @order; an invalid key is not present. */
static void exist_window(struct mcm *m, uint32_t flags, const struct mcm_lease *lease, const struct mcp_bytes *keys,
			 struct mcm_asked *asked, const uint16_t *order, unsigned n,
			 uint8_t *ret_present)
{
	struct mcm_shard *locked = NULL, *sh;
	uint32_t hash[MCM_PREFETCH_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		hash[i] = asked[order[i]].hash;
	if (n > 1)
		mcm_index_prefetch(&m->index, hash, n, NULL);
	for (i = 0; i < n; i++) {
		const struct mcp_bytes *key = &keys[order[i]];

		sh = mcm_index_shard(&m->index, hash[i]);
		if (sh != locked) {
			if (locked)
				mc_mutex_unlock(&locked->lock);
			mc_mutex_lock(&sh->lock);
			locked = sh;
		}
		ret_present[order[i]] = mcm_key_ok(*key) ?
			exist_one(m, sh, key, &asked[order[i]], flags, lease) : ABSENT;
	}
	if (locked)
		mc_mutex_unlock(&locked->lock);
}

static void exist_block(struct mcm *m, uint32_t flags, const struct mcm_lease *lease, const struct mcp_bytes *keys,
			unsigned n, uint8_t *ret_present)
{
	uint16_t order[EXIST_BLOCK];
	struct mcm_asked asked[EXIST_BLOCK];
	unsigned i, w;

	for (i = 0; i < n; i++) {
		asked[i].hash = mcm_index_hash(&m->index, keys[i].data, mcm_key_ok(keys[i]) ? keys[i].len : 0);
		asked[i].slot = 0;
		order[i] = (uint16_t)i;
	}
	if (n >= EXIST_SORT_MIN)
		exist_by_shard(asked, n, order);
	for (i = 0; i < n; i += w) {
		w = n - i < MCM_PREFETCH_MAX ? n - i : MCM_PREFETCH_MAX;
		exist_window(m, flags, lease, keys, asked, order + i, w, ret_present);
	}
	if (!(flags & MCP_EXIST_PEEK))
		mcm_uses_asked(m, asked, n);
}

int mcm_exist(struct mcm *m, uint32_t flags, const struct mcp_bytes *keys, unsigned n,
	      uint8_t *ret_present)
{
	bool hidden = __atomic_load_n(&m->segments.n_hidden, __ATOMIC_RELAXED) > 0;
	struct mcm_lease lease = { 0 };
	unsigned i, w;

	if (!(flags & MCP_EXIST_PEEK))
		lease = promise_lease_end(m);
	for (i = 0; i < n; i += w) {
		w = n - i < EXIST_BLOCK ? n - i : EXIST_BLOCK;
		exist_block(m, flags, &lease, keys + i, w, ret_present + i);
	}
	return hidden && memchr(ret_present, NOT_READY, n) ? -MC_ENOTREADY : 0;
}
