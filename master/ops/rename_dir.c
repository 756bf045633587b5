/* SPDX-License-Identifier: Apache-2.0
 * rename_dir.c - gives a directory, with everything below it, another name.
 *
 * Every object below gets another key, all under the locks of all shards and with the names' move_lock: no request sees
 * a part of the directory under one name and a part under the other.  The number of objects is limited, because other
 * requests wait.  As in rename.c, everything that can fail is done before the first change.
 *
 * Objects keep their generation: it stands for bytes, and clients that have opened one need no new one. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/metrics.h"
#include "master/lock_hold.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"

#define TRIES 4		/* while objects are being put into the directory */
#define JOURNAL_WAIT_MS 10000u	/* while renames fill the journal's buffer faster than its disk empties it */

MC_COUNTER(renames, "mooncake_master_directory_renames_total", "", "Directories renamed with everything below them")
MC_COUNTER(moved, "mooncake_master_directory_rename_objects_total", "", "Objects that got another key by that")

/* An object's new key, stored in its new shard. */
struct new_key {
	uint32_t key, hash;
	uint16_t len;
	bool attrs;		/* the new shard has a copy of the attributes */
};

struct rename_dir {
	struct mcm *m;
	struct mcp_bytes from, to;
	struct mcm_names_tree tree;
	struct new_key *key;	/* new keys, by the objects' places in the tree */
	uint32_t key_cap, keys;
	uint32_t replaced;	/* marker of @to, 0: none */
	struct mcm_journal_batch batch;
	bool journal_full;
};

static bool is_dir_path(struct mcp_bytes path)
{
	return ((const char *)path.data)[path.len - 1] == '/';
}

static bool begins_with(struct mcp_bytes path, struct mcp_bytes dir)
{
	return path.len >= dir.len && !memcmp(path.data, dir.data, dir.len);
}

static unsigned depth_of(struct mcp_bytes path)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < path.len; i++)
		n += ((const char *)path.data)[i] == '/';
	return n;
}

static int rename_dir_check(const struct rename_dir *rn)
{
	if (!mcm_key_ok(rn->from) || !mcm_key_ok(rn->to))
		return mc_fail(-MC_EKEY, "the names have %u and %u bytes, must have 1 to %u", rn->from.len, rn->to.len,
			       MCP_KEY_MAX);
	if (!is_dir_path(rn->from) || !is_dir_path(rn->to))
		return mc_fail(-MC_EPARAM, "the name of a directory ends in '/'");
	if (begins_with(rn->to, rn->from) && rn->to.len > rn->from.len)
		return mc_fail(-MC_EPARAM, "a directory cannot move into itself");
	if (mcm_link_reserved(rn->from) || mcm_link_reserved(rn->to))
		return mc_fail(-MC_EPARAM, "\"" MCM_LINKS_DIR "*\" cannot be renamed, nor be new names");
	/* Levels below are not split (names.h). */
	if (depth_of(rn->from) >= MCM_NAMES_DEPTH || depth_of(rn->to) >= MCM_NAMES_DEPTH)
		return mc_fail(-MC_ELIMIT, "the directory has more than %u levels", MCM_NAMES_DEPTH - 1);
	return 0;
}

/* ---- all shards locked ---- */

static struct mcm_shard *shard_of(struct rename_dir *rn, uint32_t hash)
{
	return mcm_index_shard(&rn->m->index, hash);
}

static bool has_attrs(const struct mcm_object *o)
{
	return mcm_load_relaxed(&o->marks) & MCM_MARK_ATTRS;
}

static int prepare_attrs(struct rename_dir *rn, uint32_t slot, struct new_key *k)
{
	struct mcm_object *o = mcm_object(&rn->m->index, slot);
	struct mcm_shard *to = shard_of(rn, k->hash);
	struct mcm_attrs_value v;
	int r;

	if (to == shard_of(rn, o->hash) || !mcm_attrs_get(&rn->m->index, slot, &v))
		return 0;
	r = mcm_attrs_set(&rn->m->index, to, slot, &v);
	k->attrs = r == 0;
	return r;
}

/* The renamed directory itself gets a time of change, as by rename(2); the names below it do not. */
static int prepare_top(struct rename_dir *rn)
{
	struct mcm_attrs_value v;

	if (!rn->tree.branch[0].marker || !mcm_attrs_get(&rn->m->index, rn->tree.slot[0], &v))
		return 0;
	(void)mcm_attrs_changing(rn->m, rn->tree.slot[0], mc_wall_ns(), &v);
	return mcm_attrs_set(&rn->m->index, shard_of(rn, rn->key[0].hash), rn->tree.slot[0], &v);
}

static int prepare_key(struct rename_dir *rn, uint32_t slot)
{
	struct mcm_index *ix = &rn->m->index;
	const struct mcm_object *o = mcm_object(ix, slot);
	struct new_key *k = &rn->key[rn->keys];
	uint32_t rest = o->key_len - rn->from.len;
	char buf[MCM_KEY_MAX];
	int r;

	*k = (struct new_key){ .len = (uint16_t)(rn->to.len + rest) };
	memcpy(buf, rn->to.data, rn->to.len);
	memcpy(buf + rn->to.len, mcm_shard_key(ix, slot) + rn->from.len, rest);
	k->hash = mcm_index_hash(ix, buf, k->len);
	r = mcm_keys_add(&shard_of(rn, k->hash)->keys, buf, k->len, &k->key);
	if (r < 0)
		return r;
	rn->keys++;
	return prepare_attrs(rn, slot, k);
}

/* Check the lengths of all keys, and count the journal's bytes. */
static int rename_measure(struct rename_dir *rn, size_t *ret_bytes)
{
	const struct mcm_index *ix = &rn->m->index;
	uint32_t max = MCP_KEY_MAX + (((const char *)rn->to.data)[0] ? 0 : MCM_PREFIX_MAX), i;
	struct mcm_attrs_value v;
	size_t bytes = 0;

	for (i = 0; i < rn->tree.slots; i++) {
		const struct mcm_object *o = mcm_object(ix, rn->tree.slot[i]);
		uint32_t len = rn->to.len + o->key_len - rn->from.len;

		if (len > max)
			return mc_fail(-ENAMETOOLONG, "a key in the directory would have %u bytes", len);
		bytes += MCM_JOURNAL_BATCH_EACH + o->key_len + len + (o->ext ? MCM_GROUP_NAME_MAX : 0);
		if (has_attrs(o) && mcm_attrs_get(ix, rn->tree.slot[i], &v))
			bytes += v.xattrs.len;
	}
	*ret_bytes = bytes + MCM_JOURNAL_BATCH_EACH + rn->to.len;
	return 0;
}

static int rename_prepare(struct rename_dir *rn)
{
	size_t bytes = 0;
	int r;

	if (rn->tree.slots > rn->key_cap)
		return -MC_EUNAVAILABLE;
	r = rename_measure(rn, &bytes);
	if (r == 0)
		r = mcm_journal_batch_begin(rn->m, bytes, &rn->batch);
	rn->journal_full = r == -MC_EUNAVAILABLE;
	if (r == 0)
		r = mcm_names_tree_make(&rn->m->names, &rn->tree, rn->to.data, rn->to.len);
	for (uint32_t i = 0; i < rn->tree.slots && r == 0; i++)
		r = prepare_key(rn, rn->tree.slot[i]);
	return r < 0 ? r : prepare_top(rn);
}

static void prepare_undo(struct rename_dir *rn)
{
	struct mcm_index *ix = &rn->m->index;

	while (rn->keys) {
		const struct new_key *k = &rn->key[--rn->keys];

		if (k->attrs)
			mcm_attrs_drop(ix, shard_of(rn, k->hash), rn->tree.slot[rn->keys]);
		mcm_keys_del(&shard_of(rn, k->hash)->keys, k->key, k->len);
	}
	mcm_names_tree_settle(&rn->m->names, &rn->tree, false);
}

static void move_object(struct rename_dir *rn, const struct mcm_names_branch *b, uint32_t i)
{
	uint32_t slot = rn->tree.slot[i];
	const struct new_key *k = &rn->key[i];
	struct mcm_index *ix = &rn->m->index;
	struct mcm_object *o = mcm_object(ix, slot);
	struct mcm_shard *from = shard_of(rn, o->hash), *to = shard_of(rn, k->hash);
	struct mcp_bytes was = { mcm_shard_key(ix, slot), o->key_len };
	uint32_t was_key = o->key;

	mcm_object_renaming(rn->m, slot);
	mcm_names_remove(&rn->m->names, slot);
	mcm_shard_unlink(ix, from, slot);
	mcm_store_relaxed(&o->key, k->key);
	o->key_len = k->len;
	mcm_store_relaxed(&o->hash, k->hash);
	if (from != to)
		mcm_attrs_drop(ix, from, slot);
	mcm_names_tree_link(&rn->m->names, b, slot, b->marker && i == b->first);
	mcm_shard_link(ix, to, slot);
	mcm_object_renamed(rn->m, slot, was, &rn->batch);
	mcm_keys_del(&from->keys, was_key, was.len);
}

/* The marker of an empty directory that is replaced. */
static void remove_replaced(struct rename_dir *rn)
{
	struct mcm_shard *sh = shard_of(rn, mcm_object(&rn->m->index, rn->replaced)->hash);

	mcm_journal_batch_object_gone(rn->m, &rn->batch, rn->replaced);
	mcm_names_remove(&rn->m->names, rn->replaced);
	mcm_object_unindex(rn->m, sh, rn->replaced, MCM_GONE_REPLACED);
}

static void move_all(struct rename_dir *rn)
{
	const struct mcm_names_branch *b = rn->tree.branch;

	if (rn->replaced)
		remove_replaced(rn);
	for (; b < rn->tree.branch + rn->tree.branches; b++)
		for (uint32_t i = b->first; i < b->first + b->count; i++)
			move_object(rn, b, i);
	mcm_names_tree_settle(&rn->m->names, &rn->tree, true);
	mcm_journal_batch_end(rn->m, &rn->batch);
}

/* move_lock is held for writing too. */
static int rename_dir_locked(struct rename_dir *rn, uint32_t flags)
{
	bool busy = false;
	int r;

	r = mcm_names_tree_find(&rn->m->names, rn->from.data, rn->from.len, MCM_RENAME_DIR_MAX, &rn->tree);
	if (r < 0)
		return r;
	if (!rn->tree.slots)
		return -MC_ENOOBJECT;
	if (rn->from.len == rn->to.len && begins_with(rn->to, rn->from))
		return flags & MCP_RENAME_NOREPLACE ? -MC_EEXISTS : 0;
	rn->replaced = mcm_names_marker(&rn->m->names, rn->to.data, rn->to.len, &busy);
	if ((rn->replaced || busy) && flags & MCP_RENAME_NOREPLACE)
		return -MC_EEXISTS;
	if (busy)
		return -MC_ENOTEMPTY;
	r = rename_prepare(rn);
	if (r < 0)
		prepare_undo(rn);
	else
		move_all(rn);
	return r;
}

/* ---- */

/* -MC_EUNAVAILABLE: more objects came after they were counted, or rn->journal_full. */
static int rename_dir_try(struct rename_dir *rn, uint32_t flags)
{
	struct mcm *m = rn->m;
	uint32_t n;
	int r;

	r = mcm_names_tree_count(&m->names, rn->from.data, rn->from.len, MCM_RENAME_DIR_MAX, &rn->tree, &n);
	if (r < 0)
		return r;
	rn->key_cap = rn->tree.slot_cap;
	rn->journal_full = false;
	free(rn->key);
	rn->key = malloc((rn->key_cap + 1) * sizeof(*rn->key));
	if (!rn->key)
		return -ENOMEM;
	mcm_journal_batch_room(m);
	mcm_index_lock_all(&m->index);
	mc_rwlock_wrlock(&m->names.move_lock);
	r = rename_dir_locked(rn, flags);
	mc_rwlock_unlock(&m->names.move_lock);
	/* Without a rename too, the answer depends on changes by others, which have to be durable. */
	mcm_journal_depend(m);
	mcm_index_unlock_all(&m->index);
	mcm_lock_held(MCM_HOLD_SHARD, rn->tree.slots);
	mcm_journal_batch_free(&rn->batch);
	return r;
}

int mcm_rename_dir(struct mcm *m, const struct mcp_rename_dir *rq, uint64_t *ret_moved)
{
	struct rename_dir rn = { .m = m, .from = rq->from, .to = rq->to };
	uint64_t until = mc_now_ns() + JOURNAL_WAIT_MS * MC_NS_PER_MS;
	unsigned tries = TRIES;
	int r;

	r = rename_dir_check(&rn);
	if (r < 0)
		return r;
	/* With a full journal, the next try waits for the disk first. */
	do
		r = rename_dir_try(&rn, rq->flags);
	while (r == -MC_EUNAVAILABLE && (rn.journal_full ? mc_now_ns() < until : --tries));
	if (r == 0) {
		*ret_moved = rn.keys;
		mc_metric_add(&renames, 1);
		mc_metric_add(&moved, rn.keys);
	}
	free(rn.key);
	mcm_names_tree_free(&rn.tree);
	return r;
}
