/* SPDX-License-Identifier: Apache-2.0
 * rename.c - gives an object another key.
 *
 * The object keeps its slot, memory, position on the eviction lists and pins.  Everything that can
 * fail is done before the first change. */
#include <config.h>

#include "common/err.h"
#include "common/metrics.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"

MC_COUNTER(renames, "mooncake_master_renames_total", "", "Objects renamed")

struct rename {
	struct mcm *m;
	struct mcp_bytes from, to;
	uint32_t from_hash, to_hash;
	struct mcm_shard *from_shard, *to_shard;
	uint32_t dir;		/* with a reference; 0: none */
};

static int rename_check_key(struct mcp_bytes key)
{
	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes, must have 1 to %u", key.len, MCP_KEY_MAX);
	/* The names of a shared object would lose it. */
	if (mcm_link_reserved(key))
		return mc_fail(-MC_EPARAM, "\"" MCM_LINKS_DIR "*\" cannot be renamed, nor be new names");
	return 0;
}

/* Both shards locked: set the new key; nothing can fail any more. */
static uint64_t rename_move(struct rename *rn, uint32_t slot, uint32_t target, uint32_t key)
{
	struct mcm *m = rn->m;
	struct mcm_object *o = mcm_object(&m->index, slot);
	uint64_t changed_ms = mcm_names_changed(&m->names, slot);

	mcm_object_renaming(m, slot);
	mcm_names_remove(&m->names, slot);
	mcm_shard_unlink(&m->index, rn->from_shard, slot);
	mcm_keys_del(&rn->from_shard->keys, o->key, o->key_len);
	mcm_store_relaxed(&o->key, key);
	o->key_len = (uint16_t)rn->to.len;
	mcm_store_relaxed(&o->hash, rn->to_hash);
	mcm_store_relaxed(&o->generation, mcm_generation_next(m, 0));
	if (rn->from_shard != rn->to_shard)
		mcm_attrs_drop(&m->index, rn->from_shard, slot);
	mcm_object_renamed(m, slot, rn->from, NULL);
	if (target) {
		mcm_names_replace(&m->names, target, slot);
		mcm_names_touch(&m->names, slot);
		mcm_object_unindex(m, rn->to_shard, target, MCM_GONE_REPLACED);
		mcm_names_dir_unref(&m->names, rn->dir);
	} else {
		mcm_names_link(&m->names, slot, rn->dir);
	}
	rn->dir = 0;
	/* A directory keeps its time. */
	mcm_names_swap_changed(&m->names, slot, mcm_names_changed(&m->names, slot), changed_ms);
	mcm_shard_link(&m->index, rn->to_shard, slot);
	return o->generation;
}

/* Both shards locked: give the object's attributes, if it has some, to its new shard.  A rename changes ctime.  A
 * failure changes nothing. */
static int rename_attrs(struct rename *rn, uint32_t slot)
{
	struct mcm_attrs_value v;

	if (!mcm_attrs_get(&rn->m->index, slot, &v))
		return 0;
	(void)mcm_attrs_changing(rn->m, slot, mc_wall_ns(), &v);
	return mcm_attrs_set(&rn->m->index, rn->to_shard, slot, &v);
}

/* May an object replace @target, which clients must not see any more? */
static int rename_check_free(const struct mcm *m, const struct mcm_object *target)
{
	if (mcm_object_readable(m, target))
		return -MC_EEXISTS;
	return mcm_object_missing(m, target) == -MC_ENOTREADY ? -MC_ENOTREADY : 0;
}

static bool same_file(const struct mcm *m, uint32_t a, uint32_t b)
{
	struct mcm_link_id of_a, of_b;

	return mcm_attrs_is_name(&m->index, a, &of_a) && mcm_attrs_is_name(&m->index, b, &of_b) &&
		of_a.ino == of_b.ino && of_a.tenant == of_b.tenant;
}

static int rename_locked(struct rename *rn, uint32_t flags, uint64_t *ret_generation, uint64_t *ret_was)
{
	struct mcm *m = rn->m;
	uint32_t slot, target, key;
	int r;

	slot = mcm_shard_find(&m->index, rn->from_shard, rn->from_hash, rn->from.data, rn->from.len);
	if (!slot)
		return -MC_ENOOBJECT;
	if (!mcm_object_readable(m, mcm_object(&m->index, slot)))
		return mcm_object_missing(m, mcm_object(&m->index, slot));
	target = mcm_shard_find(&m->index, rn->to_shard, rn->to_hash, rn->to.data, rn->to.len);
	r = target && flags & MCP_RENAME_NOREPLACE ? rename_check_free(m, mcm_object(&m->index, target)) : 0;
	if (r < 0)
		return r;
	*ret_was = mcm_object(&m->index, slot)->generation;
	/* As rename(2): two names of one file stay. */
	if (target == slot || (target && same_file(m, slot, target))) {
		*ret_generation = *ret_was;
		return 0;
	}
	r = mcm_keys_add(&rn->to_shard->keys, rn->to.data, rn->to.len, &key);
	if (r < 0)
		return r;
	r = rename_attrs(rn, slot);
	if (r < 0) {
		mcm_keys_del(&rn->to_shard->keys, key, rn->to.len);
		return r;
	}
	*ret_generation = rename_move(rn, slot, target, key);
	mc_metric_add(&renames, 1);
	return 0;
}

int mcm_rename(struct mcm *m, const struct mcp_rename *rq, uint64_t *ret_generation, uint64_t *ret_was)
{
	struct rename rn = { .m = m, .from = rq->from, .to = rq->to };
	int r;

	r = rename_check_key(rq->from);
	if (r == 0)
		r = rename_check_key(rq->to);
	if (r == 0)
		r = mcm_names_dir_ref(&m->names, rq->to.data, rq->to.len, &rn.dir);
	if (r < 0)
		return r;
	rn.from_hash = mcm_index_hash(&m->index, rq->from.data, rq->from.len);
	rn.to_hash = mcm_index_hash(&m->index, rq->to.data, rq->to.len);
	rn.from_shard = mcm_index_shard(&m->index, rn.from_hash);
	rn.to_shard = mcm_index_shard(&m->index, rn.to_hash);
	mcm_index_lock_two(rn.from_shard, rn.to_shard);
	r = rename_locked(&rn, rq->flags, ret_generation, ret_was);
	/* Without a rename too, the answer depends on changes by others, which have to be durable. */
	mcm_journal_depend(m);
	mcm_index_unlock_two(rn.from_shard, rn.to_shard);
	if (rn.dir)
		mcm_names_dir_unref(&m->names, rn.dir);
	return r;
}
