/* SPDX-License-Identifier: Apache-2.0
 * names.c - tree of directories over "/"-separated keys.
 *
 * A directory's record has only its last path component; a path is compared from its end upwards.
 * Parents outlive their children, and a directory is removed from its stripe's table before it is
 * removed from its parent, so a directory that is found in a table has all its ancestors. */
#include <config.h>

#include "master/index/names.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/sys/clock.h"
#include "master/index/attrs.h"

#define DIRS_SHIFT 12
#define CHAIN_PREFETCH 6		/* objects of a chain that are prefetched */
#define COLD 4096u		/* fewer objects are in the CPU caches */

static const struct mcm_table_type by_path = {
	.link = offsetof(struct mcm_dir, next), .hash = offsetof(struct mcm_dir, hash),
	.shift = 6, .load = 4,
};
const struct mcm_table_type mcm_names_by_sibling = {
	.link = offsetof(struct mcm_dir, sibling), .hash = offsetof(struct mcm_dir, hash),
	.shift = 0, .load = 16,
};
const struct mcm_table_type mcm_names_by_child = {
	.link = offsetof(struct mcm_object, dir_next), .hash = offsetof(struct mcm_object, hash),
	.shift = 0, .load = 16,
};

static struct mcm_names_stripe *stripe_of(struct mcm_names *nm, uint32_t hash)
{
	return &nm->stripe[hash >> 26];
}

static uint32_t path_hash(const struct mcm_names *nm, const char *path, uint32_t len)
{
	return (uint32_t)(mc_hash(path, len, ~nm->ix->seed) >> 32);
}

/* Length of the path of @key's directory. */
static uint32_t parent_len(const char *key, uint32_t len)
{
	const char *slash = memrchr(key, '/', len), *p = key;
	unsigned depth;

	if (!slash)
		return 0;
	if (slash - key < (long)MCM_NAMES_DEPTH)
		return (uint32_t)(slash - key) + 1;
	for (depth = 0; depth < MCM_NAMES_DEPTH; depth++) {
		p = memchr(p, '/', (size_t)(key + len - p));
		if (!p)
			return (uint32_t)(slash - key) + 1;
		p++;
	}
	return (uint32_t)(p - key);
}

static bool path_is(const struct mcm_names *nm, const struct mcm_dir *d, const char *path, uint32_t len)
{
	while (d->name_len) {
		if (d->name_len > len)
			return false;
		len -= d->name_len;
		if (memcmp(mcm_keys_at(&nm->arena, d->name), path + len, d->name_len) != 0)
			return false;
		d = mcm_dir(nm, d->parent);
	}
	return !len;
}

/* stripe locked: the directory of a path; 0: none */
static uint32_t dir_find(struct mcm_names *nm, uint32_t hash, const char *path, uint32_t len)
{
	struct mcm_names_stripe *st = stripe_of(nm, hash);
	uint32_t id = *mcm_table_head(&st->table, mcm_table_pos(&by_path, hash));

	while (id) {
		const struct mcm_dir *d = mcm_dir(nm, id);

		if (d->hash == hash && path_is(nm, d, path, len))
			return id;
		id = d->next;
	}
	return 0;
}

static bool dir_empty(const struct mcm_dir *d)
{
	return !d->objects.count && !d->dirs.count && !d->marker && !d->refs;
}

/* The time only grows, except when mcm_names_swap_changed() sets it. */
static void dir_changed(struct mcm_dir *d, uint64_t ms)
{
	uint64_t was = mcm_load_relaxed(&d->changed_ms);

	while (was < ms && !__atomic_compare_exchange_n(&d->changed_ms, &was, ms, false, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
		;
}

struct mc_mutex *mcm_names_lock_of(struct mcm_names *nm, const struct mcm_dir *d)
{
	return &stripe_of(nm, d->hash)->lock;
}

void mcm_names_dir_changed(struct mcm_names *nm, uint32_t dir, uint64_t ms)
{
	dir_changed(mcm_dir(nm, dir), ms);
}

/* Not of the root, which has no marker. */
static struct mcm_dir *dir_above(const struct mcm_names *nm, const struct mcm_dir *d)
{
	return mcm_dir(nm, d->parent);
}

/* tree_lock held.  A directory counts like an object whose key is its name: long paths must not fill the master's
 * memory. */
static void dir_count(struct mcm_names *nm, uint32_t name_len, int64_t by)
{
	int64_t weight = by * (int64_t)mcm_index_weight(nm->ix, name_len);

	if (!nm->ix->max || !name_len)
		return;
	if (nm->moves)
		nm->moved_weight += weight;
	else
		__atomic_fetch_add(&nm->ix->count, (uint64_t)weight, __ATOMIC_RELAXED);
}

void mcm_names_count_later(struct mcm_names *nm, bool later)
{
	MC_LOCKED(&nm->tree_lock);
	nm->moves = later;
	if (!nm->moved_weight)
		return;
	__atomic_fetch_add(&nm->ix->count, (uint64_t)nm->moved_weight, __ATOMIC_RELAXED);
	nm->moved_weight = 0;
}

/* tree_lock held: a new record in no table.  @name has @len bytes, '/' included. */
static int dir_new(struct mcm_names *nm, uint32_t parent, uint32_t hash, const char *name,
		   uint32_t len, uint32_t *ret)
{
	struct mcm_dir *d;
	uint32_t id, ref = 0;
	int r;

	if (len) {
		r = mcm_keys_add(&nm->arena, name, len, &ref);
		if (r < 0)
			return r;
	}
	if (nm->free) {
		id = nm->free;
		nm->free = mcm_dir(nm, id)->next;
	} else {
		r = mcm_slab_take(&nm->dirs, 1, &id);
		if (r < 0) {
			if (len)
				mcm_keys_del(&nm->arena, ref, len);
			return r;
		}
	}
	d = mcm_dir(nm, id);
	*d = (struct mcm_dir){ .hash = hash, .parent = parent, .name = ref,
			       .name_len = (uint16_t)len };
	nm->count++;
	dir_count(nm, len, 1);
	*ret = id;
	return 0;
}

/* tree_lock held: add a new directory to its parent's table and to its stripe's. */
static void dir_publish(struct mcm_names *nm, uint32_t id)
{
	struct mcm_dir *d = mcm_dir(nm, id);
	struct mcm_names_stripe *st;

	if (d->parent) {
		st = stripe_of(nm, mcm_dir(nm, d->parent)->hash);
		mc_mutex_lock(&st->lock);
		mcm_table_insert(&mcm_dir(nm, d->parent)->dirs, &mcm_names_by_sibling, &nm->dirs, id);
		mc_mutex_unlock(&st->lock);
	}
	st = stripe_of(nm, d->hash);
	mc_mutex_lock(&st->lock);
	mcm_table_insert(&st->table, &by_path, &nm->dirs, id);
	mc_mutex_unlock(&st->lock);
}

/* Destroy a directory, then its parents in turn, when they are empty.  The record may have been
 * destroyed already, and even be another directory now: @hash tells. */
static void dir_prune(struct mcm_names *nm, uint32_t id, uint32_t hash)
{
	MC_LOCKED(&nm->tree_lock);
	while (id && id != nm->root) {
		struct mcm_dir *d = mcm_dir(nm, id);
		struct mcm_names_stripe *st = stripe_of(nm, hash);
		uint32_t parent = d->parent;
		bool gone;

		mc_mutex_lock(&st->lock);
		gone = parent && d->hash == hash && dir_empty(d);
		if (gone) {
			mcm_table_remove(&st->table, &by_path, &nm->dirs, id);
			mcm_table_done(&d->objects);
			mcm_table_done(&d->dirs);
		}
		mc_mutex_unlock(&st->lock);
		if (!gone)
			return;
		hash = mcm_dir(nm, parent)->hash;
		st = stripe_of(nm, hash);
		mc_mutex_lock(&st->lock);
		mcm_table_remove(&mcm_dir(nm, parent)->dirs, &mcm_names_by_sibling, &nm->dirs, id);
		dir_changed(mcm_dir(nm, parent), mc_wall_ms());
		mc_mutex_unlock(&st->lock);
		mcm_keys_del(&nm->arena, d->name, d->name_len);
		dir_count(nm, d->name_len, -1);
		d->parent = 0;
		d->next = nm->free;
		nm->free = id;
		nm->count--;
		id = parent;
	}
}

/* A marker is a child of the directory above. */
static void child_link(struct mcm_names *nm, struct mcm_dir *d, uint32_t id, uint32_t slot, bool marker)
{
	uint64_t ms = mcm_object_mtime(mcm_object(nm->ix, slot));

	mcm_object(nm->ix, slot)->dir = id;
	if (marker) {
		mcm_store_relaxed(&d->marker, slot);
		dir_changed(dir_above(nm, d), ms);
	} else {
		mcm_table_insert(&d->objects, &mcm_names_by_child, &nm->ix->objects, slot);
		dir_changed(d, ms);
	}
}

/* Link @slot, or with 0 count a reference, in a directory that exists.  False: it does not exist. */
static bool dir_link_existing(struct mcm_names *nm, uint32_t hash, const char *path, uint32_t len,
			      uint32_t slot, bool marker, uint32_t *ret_dir)
{
	struct mcm_names_stripe *st = stripe_of(nm, hash);
	uint32_t id;

	MC_LOCKED(&st->lock);
	id = dir_find(nm, hash, path, len);
	if (!id)
		return false;
	if (slot)
		child_link(nm, mcm_dir(nm, id), id, slot, marker);
	else
		mcm_dir(nm, id)->refs++;
	*ret_dir = id;
	return true;
}

/* tree_lock held: find or create the directory of a path other than the root, and its ancestors, at the time @ms.  A
 * path is walked from the top, so an error leaves only empty ancestors, which the caller prunes through @ret_id. */
static int dir_make(struct mcm_names *nm, const char *path, uint32_t len, uint64_t ms, uint32_t *ret_id)
{
	uint32_t id = nm->root, at = 0;

	*ret_id = id;
	while (at < len) {
		const char *slash = memchr(path + at, '/', len - at);
		uint32_t end = (uint32_t)(slash - path) + 1, hash = path_hash(nm, path, end), sub;
		struct mcm_names_stripe *st = stripe_of(nm, hash);
		int r;

		mc_mutex_lock(&st->lock);
		sub = dir_find(nm, hash, path, end);
		mc_mutex_unlock(&st->lock);
		if (!sub) {
			r = dir_new(nm, id, hash, path + at, end - at, &sub);
			if (r < 0)
				return r;
			dir_publish(nm, sub);
			dir_changed(mcm_dir(nm, id), ms);
		}
		*ret_id = id = sub;
		at = end;
	}
	return 0;
}

/* Find or create the directory, then link @slot or, with 0, count a reference. */
static int dir_link_or_ref(struct mcm_names *nm, const char *key, uint32_t len, uint32_t slot,
			   uint32_t *ret_dir)
{
	uint32_t plen = parent_len(key, len), hash = path_hash(nm, key, plen), id, id_hash;
	bool marker = plen == len;
	int r;

	if (dir_link_existing(nm, hash, key, plen, slot, marker, ret_dir))
		return 0;
	mc_mutex_lock(&nm->tree_lock);
	r = dir_make(nm, key, plen, slot ? mcm_object_mtime(mcm_object(nm->ix, slot)) : mc_wall_ms(), &id);
	/* Directories are destroyed under tree_lock only. */
	if (r == 0 && !dir_link_existing(nm, hash, key, plen, slot, marker, ret_dir))
		r = -MC_EINTERNAL;
	id_hash = mcm_dir(nm, id)->hash;
	mc_mutex_unlock(&nm->tree_lock);
	if (r < 0)
		dir_prune(nm, id, id_hash);
	return r;
}

int mcm_names_add(struct mcm_names *nm, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(nm->ix, slot);
	uint32_t dir;

	return dir_link_or_ref(nm, mcm_shard_key(nm->ix, slot), o->key_len, slot, &dir);
}

int mcm_names_dir_ref(struct mcm_names *nm, const char *key, uint32_t len, uint32_t *ret_dir)
{
	return dir_link_or_ref(nm, key, len, 0, ret_dir);
}

static bool slot_is_marker(const struct mcm_names *nm, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(nm->ix, slot);

	return parent_len(mcm_shard_key(nm->ix, slot), o->key_len) == o->key_len;
}

void mcm_names_link(struct mcm_names *nm, uint32_t slot, uint32_t dir)
{
	struct mcm_dir *d = mcm_dir(nm, dir);
	bool marker = slot_is_marker(nm, slot);

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	child_link(nm, d, dir, slot, marker);
	/* A renamed object keeps its time. */
	dir_changed(marker ? dir_above(nm, d) : d, mc_wall_ms());
	d->refs--;
}

void mcm_names_dir_unref(struct mcm_names *nm, uint32_t dir)
{
	struct mcm_dir *d = mcm_dir(nm, dir);
	uint32_t hash = d->hash;
	bool empty;

	mc_mutex_lock(&stripe_of(nm, hash)->lock);
	d->refs--;
	empty = dir_empty(d);
	mc_mutex_unlock(&stripe_of(nm, hash)->lock);
	if (empty)
		dir_prune(nm, dir, hash);
}

void mcm_names_open(struct mcm_names *nm, const char *key, uint32_t len, struct mcm_names_dir *ret)
{
	*ret = (struct mcm_names_dir){ .path = key, .len = parent_len(key, len) };
	if (mcm_names_dir_ref(nm, key, len, &ret->dir) < 0)
		ret->dir = 0;
}

struct mcm_names_dir mcm_names_dir_of(struct mcm_names *nm, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(nm->ix, slot);
	const char *key = mcm_shard_key(nm->ix, slot);

	return (struct mcm_names_dir){ .dir = o->dir, .path = key, .len = parent_len(key, o->key_len) };
}

bool mcm_names_dir_contains(const struct mcm_names_dir *at, const char *key, uint32_t len)
{
	return at->dir && len > at->len && !memcmp(key, at->path, at->len) &&
	       parent_len(key, len) == at->len;
}

void mcm_names_prefetch(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n)
{
	struct mcm_dir *d = mcm_dir(nm, dir);
	unsigned i;

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	for (i = 0; i < n; i++)
		__builtin_prefetch(mcm_table_head(&d->objects,
						  mcm_table_pos(&mcm_names_by_child, hash[i])), 1);
}

/* stripe locked: prefetch the objects of the chains at these hashes, in rounds, so that the cache
 * misses of a round overlap. */
static void chains_prefetch(struct mcm_names *nm, struct mcm_dir *d, const uint32_t *hash, unsigned n)
{
	uint32_t slot[MCM_PREFETCH_MAX];
	unsigned i, round, left = n;

	for (i = 0; i < n; i++) {
		slot[i] = *mcm_table_head(&d->objects, mcm_table_pos(&mcm_names_by_child, hash[i]));
		if (slot[i])
			__builtin_prefetch(mcm_object(nm->ix, slot[i]), 1);
	}
	for (round = 0; left && round < CHAIN_PREFETCH; round++) {
		for (i = left = 0; i < n; i++) {
			if (slot[i] && mcm_load_relaxed(&mcm_object(nm->ix, slot[i])->hash) != hash[i])
				slot[i] = mcm_object(nm->ix, slot[i])->dir_next;
			else
				slot[i] = 0;
			if (!slot[i])
				continue;
			__builtin_prefetch(mcm_object(nm->ix, slot[i]), 1);
			left++;
		}
	}
}

void mcm_names_prefetch_remove(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n)
{
	struct mcm_dir *d = mcm_dir(nm, dir);
	unsigned i;

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	if (d->objects.count < COLD)
		return;
	for (i = 0; i < n; i++)
		__builtin_prefetch(mcm_table_head(&d->objects,
						  mcm_table_pos(&mcm_names_by_child, hash[i])), 1);
	chains_prefetch(nm, d, hash, n);
}

void mcm_names_link_open(struct mcm_names *nm, uint32_t slot, uint32_t dir)
{
	struct mcm_dir *d = mcm_dir(nm, dir);

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	child_link(nm, d, dir, slot, false);
}

void mcm_names_tree_link(struct mcm_names *nm, const struct mcm_names_branch *to, uint32_t slot, bool marker)
{
	struct mcm_dir *d = mcm_dir(nm, to->to);

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	child_link(nm, d, to->to, slot, marker);
}

void mcm_names_close(struct mcm_names *nm, const struct mcm_names_dir *at)
{
	if (at->dir)
		mcm_names_dir_unref(nm, at->dir);
}

void mcm_names_remove(struct mcm_names *nm, uint32_t slot)
{
	uint32_t dir = mcm_object(nm->ix, slot)->dir;
	struct mcm_dir *d = mcm_dir(nm, dir);
	uint64_t now_ms = mc_wall_ms();
	uint32_t hash = d->hash;
	bool empty;

	mc_mutex_lock(&stripe_of(nm, hash)->lock);
	if (d->marker == slot) {
		mcm_store_relaxed(&d->marker, 0);
		dir_changed(dir_above(nm, d), now_ms);
	} else {
		mcm_table_remove(&d->objects, &mcm_names_by_child, &nm->ix->objects, slot);
	}
	/* Without its marker too: it may have children that keep it in existence, and has no other time now. */
	dir_changed(d, now_ms);
	empty = dir_empty(d);
	mc_mutex_unlock(&stripe_of(nm, hash)->lock);
	if (empty)
		dir_prune(nm, dir, hash);
}

void mcm_names_replace(struct mcm_names *nm, uint32_t from, uint32_t to)
{
	uint32_t dir = mcm_object(nm->ix, from)->dir;
	struct mcm_dir *d = mcm_dir(nm, dir);

	MC_LOCKED(&stripe_of(nm, d->hash)->lock);
	mcm_object(nm->ix, to)->dir = dir;
	if (d->marker == from) {
		mcm_store_relaxed(&d->marker, to);
		return;
	}
	mcm_table_remove(&d->objects, &mcm_names_by_child, &nm->ix->objects, from);
	mcm_table_insert(&d->objects, &mcm_names_by_child, &nm->ix->objects, to);
}

int mcm_names_remove_marker(struct mcm_names *nm, uint32_t slot)
{
	uint32_t dir = mcm_object(nm->ix, slot)->dir;
	struct mcm_dir *d = mcm_dir(nm, dir);
	uint32_t hash = d->hash;
	bool is = false, busy = false, empty = false;

	mc_mutex_lock(&stripe_of(nm, hash)->lock);
	is = d->marker == slot;
	busy = is && (d->objects.count || d->dirs.count);
	if (is && !busy) {
		mcm_store_relaxed(&d->marker, 0);
		dir_changed(dir_above(nm, d), mc_wall_ms());
		empty = dir_empty(d);
	}
	mc_mutex_unlock(&stripe_of(nm, hash)->lock);
	if (busy)
		return -MC_ENOTEMPTY;
	if (!is)
		mcm_names_remove(nm, slot);
	else if (empty)
		dir_prune(nm, dir, hash);
	return 0;
}

uint32_t mcm_names_lock_dir(struct mcm_names *nm, const char *path, uint32_t len,
			    struct mc_mutex **ret_lock)
{
	uint32_t hash = path_hash(nm, path, len);

	*ret_lock = &stripe_of(nm, hash)->lock;
	mc_mutex_lock(*ret_lock);
	return dir_find(nm, hash, path, len);
}

bool mcm_names_busy(struct mcm_names *nm, const char *path, uint32_t len)
{
	struct mc_mutex *lock;
	uint32_t id;
	bool busy;

	mc_rwlock_rdlock(&nm->move_lock);
	id = mcm_names_lock_dir(nm, path, len, &lock);
	busy = id && (mcm_dir(nm, id)->objects.count || mcm_dir(nm, id)->dirs.count);
	mc_mutex_unlock(lock);
	mc_rwlock_unlock(&nm->move_lock);
	return busy;
}

bool mcm_names_stat(struct mcm_names *nm, const char *path, uint32_t len, struct mcm_names_stat *ret)
{
	const struct mcm_dir *d;
	struct mc_mutex *lock;
	uint32_t id;
	bool exists;

	mc_rwlock_rdlock(&nm->move_lock);
	id = mcm_names_lock_dir(nm, path, len, &lock);
	d = mcm_dir(nm, id);
	exists = id && (d->objects.count || d->dirs.count || d->marker);
	*ret = (struct mcm_names_stat){ 0 };
	if (exists)
		*ret = (struct mcm_names_stat){ mcm_load_relaxed(&d->changed_ms), d->dirs.count };
	mc_mutex_unlock(lock);
	mc_rwlock_unlock(&nm->move_lock);
	return exists;
}

/* Only operations on the marker change which object that is, and the caller's shard lock excludes these. */
uint64_t mcm_names_changed(const struct mcm_names *nm, uint32_t slot)
{
	const struct mcm_dir *d = mcm_dir(nm, mcm_object(nm->ix, slot)->dir);

	return mcm_load_relaxed(&d->marker) == slot ? mcm_load_relaxed(&d->changed_ms) : 0;
}

void mcm_names_swap_changed(struct mcm_names *nm, uint32_t slot, uint64_t was, uint64_t ms)
{
	struct mcm_dir *d = mcm_dir(nm, mcm_object(nm->ix, slot)->dir);

	if (mcm_load_relaxed(&d->marker) == slot)
		__atomic_compare_exchange_n(&d->changed_ms, &was, ms, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void mcm_names_touch(struct mcm_names *nm, uint32_t slot)
{
	struct mcm_dir *d = mcm_dir(nm, mcm_object(nm->ix, slot)->dir);

	dir_changed(slot_is_marker(nm, slot) ? dir_above(nm, d) : d, mc_wall_ms());
}

static void dirs_each(struct mcm_names *nm, void (*fn)(struct mcm_names *nm, struct mcm_dir *d))
{
	uint32_t id, next;

	for (unsigned i = 0; i < MCM_NAMES_STRIPES; i++) {
		struct mcm_table *t = &nm->stripe[i].table;
		uint64_t pos = 0;

		while (pos < MCM_TABLE_END) {
			for (id = *mcm_table_head(t, (uint32_t)pos); id; id = next) {
				next = mcm_dir(nm, id)->next;
				fn(nm, mcm_dir(nm, id));
			}
			pos = mcm_table_chain_end(t, (uint32_t)pos);
		}
	}
}

/* A directory without a marker was created with one of its children, but which was the first is not known. */
static void dir_change_above(struct mcm_names *nm, struct mcm_dir *d)
{
	uint64_t ms = d->changed_ms;

	for (; d->parent && !d->marker; d = dir_above(nm, d))
		dir_changed(dir_above(nm, d), ms);
}

/* Were the attributes set after the last change of the children? */
static void dir_compare_attrs(struct mcm_names *nm, struct mcm_dir *d)
{
	struct mcm_attrs_value v;
	uint64_t set_ms;

	if (!d->marker || !mcm_attrs_get(nm->ix, d->marker, &v) || !(v.set & MCP_ATTR_MTIME))
		return;
	set_ms = v.set & MCP_ATTR_CTIME ? v.ctime_ns / MC_NS_PER_MS :
		mcm_object_mtime(mcm_object(nm->ix, d->marker));
	if (d->changed_ms < set_ms)
		d->changed_ms = 0;
}

void mcm_names_restored(struct mcm_names *nm)
{
	dirs_each(nm, dir_change_above);
	dirs_each(nm, dir_compare_attrs);
}

int mcm_names_init(struct mcm_names *nm, struct mcm_index *ix)
{
	unsigned i;
	int r;

	memset(nm, 0, sizeof(*nm));
	nm->ix = ix;
	mcm_slab_init(&nm->dirs, sizeof(struct mcm_dir), DIRS_SHIFT);
	mcm_keys_init(&nm->arena);
	mc_mutex_init(&nm->tree_lock);
	/* The thread that moves a directory has locked all shards: listings must not make it wait for long. */
	mc_rwlock_init_writers(&nm->move_lock);
	for (i = 0; i < MCM_NAMES_STRIPES; i++)
		mc_mutex_init(&nm->stripe[i].lock);
	r = dir_new(nm, 0, path_hash(nm, "", 0), "", 0, &nm->root);
	if (r < 0) {
		mcm_names_done(nm);
		return r;
	}
	dir_publish(nm, nm->root);
	return 0;
}

uint64_t mcm_names_bytes(struct mcm_names *nm)
{
	return mcm_slab_bytes(&nm->dirs) + mcm_slab_bytes(&nm->arena.pool->units);
}

static void dir_done(struct mcm_names *nm, struct mcm_dir *d)
{
	(void)nm;
	mcm_table_done(&d->objects);
	mcm_table_done(&d->dirs);
}

void mcm_names_done(struct mcm_names *nm)
{
	unsigned i;

	if (!nm->ix)
		return;
	dirs_each(nm, dir_done);
	for (i = 0; i < MCM_NAMES_STRIPES; i++) {
		mcm_table_done(&nm->stripe[i].table);
		mc_mutex_destroy(&nm->stripe[i].lock);
	}
	mc_mutex_destroy(&nm->tree_lock);
	mc_rwlock_destroy(&nm->move_lock);
	mcm_keys_done(&nm->arena);
	mcm_slab_done(&nm->dirs);
	nm->ix = NULL;
}
