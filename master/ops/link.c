/* SPDX-License-Identifier: Apache-2.0
 * link.c - gives an object a second name (docs/MOUNT.md).
 *
 * The object gets a key of its own, which all of its names share, and each name becomes an object without bytes that
 * has the inode number.  This happens under the locks of all shards, so that no request sees a part of it, and its
 * records are a batch.  As in rename.c, everything that can fail is done before the first change. */
#include <config.h>

#include <errno.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "master/ha/feeder.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/ops/pin.h"
#include "proto/codec.h"

#define TICK_MAX 1000u	/* objects removed in one tick of the monitor */
#define NAMES_MAX 65000u	/* names of one object: a removal searches them under a lock, for some 20 us */

MC_COUNTER(links, "mooncake_master_links_total", "", "Second and further names given to objects")

struct linking {
	struct mcm *m;
	struct mcp_bytes from, to;
	uint32_t from_hash, to_hash;
	struct mcm_shard *from_shard, *to_shard;
	uint32_t to_dir, shared_dir;	/* with references; 0: none */
	struct mcm_link_id id;
	uint64_t ino;			/* inode number that the object has, or gets; 0: any */
	uint64_t generation;
	uint32_t target;		/* object of @to that clients do not see any more; 0: none */
	/* the object, and its shared key */
	uint32_t slot;
	char text[MCM_LINK_KEY_MAX];
	struct mcp_bytes shared;
	uint32_t shared_hash, shared_key;
	struct mcm_shard *shared_shard;
	bool first;			/* it has one name so far, which is its key */
	uint32_t from_name, to_name;	/* new names; 0: none */
	struct mcm_journal_batch batch;
};

static int link_check(const struct mcp_link_name *rq)
{
	if (!mcm_key_ok(rq->from) || !mcm_key_ok(rq->to))
		return mc_fail(-MC_EKEY, "the keys have %u and %u bytes, must have 1 to %u", rq->from.len, rq->to.len,
			       MCP_KEY_MAX);
	if (((const char *)rq->from.data)[rq->from.len - 1] == '/' ||
	    ((const char *)rq->to.data)[rq->to.len - 1] == '/')
		return mc_fail(-MC_EPARAM, "a directory has one name");
	if (mcm_link_reserved(rq->to))
		return mc_fail(-MC_EPARAM, "\"" MCM_LINKS_DIR "*\" are the keys of files with several names");
	return 0;
}

/* ---- all shards locked ---- */

static void link_set_id(struct linking *ln, struct mcm_link_id id)
{
	struct mcm_index *ix = &ln->m->index;

	ln->id = id;
	ln->shared = mcm_link_key(id, ln->text);
	ln->shared_hash = mcm_index_hash(ix, ln->shared.data, ln->shared.len);
	ln->shared_shard = mcm_index_shard(ix, ln->shared_hash);
}

static uint32_t link_find_shared(const struct linking *ln)
{
	return mcm_shard_find(&ln->m->index, ln->shared_shard, ln->shared_hash, ln->shared.data, ln->shared.len);
}

/* An inode number whose shared key is free. */
static void link_choose(struct linking *ln, uint64_t ino)
{
	struct mcm_link_id id = { ino, mcm_key_tenant(ln->from.data, ln->from.len) };

	link_set_id(ln, id);
	while (!id.ino || link_find_shared(ln) || mcm_links_shared(&ln->m->index.links, id) ||
	       mcm_links_names(&ln->m->index.links, id)) {
		/* a bijection of numbers that no other object gets */
		id.ino = mcm_generation_next(ln->m, 0) * 0x9e3779b97f4a7c15ull;
		link_set_id(ln, id);
	}
}

/* Find the object of @from. */
static int link_source(struct linking *ln, struct mcm_attrs_value *ret)
{
	struct mcm_index *ix = &ln->m->index;
	struct mcm_link_id id;
	uint32_t slot = mcm_shard_find(ix, ln->from_shard, ln->from_hash, ln->from.data, ln->from.len);

	if (slot && mcm_attrs_is_name(ix, slot, &id)) {
		link_set_id(ln, id);
		slot = link_find_shared(ln);
		if (slot && !mcm_attrs_is_shared(ix, slot, id))
			slot = 0;
	}
	if (!slot)
		return -MC_ENOOBJECT;
	if (!mcm_object_readable(ln->m, mcm_object(ix, slot)))
		return mcm_object_missing(ln->m, mcm_object(ix, slot));
	if ((mcm_object(ix, slot)->flags & MCM_OBJ_KIND) == MCP_KIND_DIR)
		return mc_fail(-MC_EPARAM, "a directory has one name");
	ln->slot = slot;
	(void)mcm_attrs_get(ix, slot, ret);
	if (ln->ino && ret->set & MCP_ATTR_INO && ret->ino != ln->ino)
		return mc_fail(-ESTALE, "the key has another file now");
	ln->first = !(ret->set & MCP_ATTR_LINKED);
	/* An object that a client has put there must not become a name. */
	if (mcm_link_reserved(ln->from) &&
	    (ln->first || !mcm_attrs_is_shared(ix, slot, mcm_attrs_link(ix, slot, ret->ino))))
		return mc_fail(-MC_EPARAM, "the object is not a file with several names");
	if (ln->first)
		link_choose(ln, ret->set & MCP_ATTR_INO ? ret->ino : ln->ino);
	else
		link_set_id(ln, mcm_attrs_link(ix, slot, ret->ino));
	return mcm_links_names(&ix->links, ln->id) < NAMES_MAX ? 0 :
		mc_fail(-EMLINK, "an object has at most %u names", NAMES_MAX);
}

static int link_target(struct linking *ln)
{
	const struct mcm_object *o;

	ln->target = mcm_shard_find(&ln->m->index, ln->to_shard, ln->to_hash, ln->to.data, ln->to.len);
	if (!ln->target)
		return 0;
	o = mcm_object(&ln->m->index, ln->target);
	if (mcm_object_readable(ln->m, o))
		return -MC_EEXISTS;
	return mcm_object_missing(ln->m, o) == -MC_ENOTREADY ? -MC_ENOTREADY : 0;
}

static int link_make_name(struct linking *ln, struct mcp_bytes key, uint32_t hash, struct mcm_shard *sh, uint32_t *ret)
{
	const struct mcm_attrs_value v = { .set = MCP_ATTR_INO | MCM_ATTR_NAME, .ino = ln->id.ino };
	const struct mcm_commit c = {
		.key = key.data, .len = key.len, .hash = hash, .generation = mcm_generation_next(ln->m, 0),
		.flags = MCP_KIND_SPECIAL, .now_ms = mcm_now_ms(ln->m), .wall_ms = mc_wall_ms(), .attrs = &v,
	};

	return mcm_object_add_name(ln->m, sh, &c, ret);
}

static void link_undo(struct linking *ln)
{
	if (ln->to_name)
		mcm_object_drop_name(ln->m, ln->to_shard, ln->to_name);
	if (ln->from_name)
		mcm_object_drop_name(ln->m, ln->from_shard, ln->from_name);
	if (ln->shared_key)
		mcm_keys_del(&ln->shared_shard->keys, ln->shared_key, ln->shared.len);
}

static int link_prepare(struct linking *ln, struct mcm_attrs_value *v)
{
	size_t bytes = 4 * (MCM_JOURNAL_BATCH_EACH + MCM_LINK_KEY_MAX) + 2 * ((size_t)ln->from.len + ln->to.len) +
		MCM_GROUP_NAME_MAX + v->xattrs.len;
	int r = mcm_journal_batch_begin(ln->m, bytes, &ln->batch);

	if (r == 0 && ln->first)
		r = mcm_keys_add(&ln->shared_shard->keys, ln->shared.data, ln->shared.len, &ln->shared_key);
	if (r == 0 && ln->first)
		r = link_make_name(ln, ln->from, ln->from_hash, ln->from_shard, &ln->from_name);
	if (r == 0)
		r = link_make_name(ln, ln->to, ln->to_hash, ln->to_shard, &ln->to_name);
	/* The last step, because it may replace the attributes. */
	(void)mcm_attrs_changing(ln->m, ln->slot, mc_wall_ns(), v);
	v->set |= MCP_ATTR_INO | MCP_ATTR_LINKED;
	v->ino = ln->id.ino;
	if (r == 0)
		r = mcm_attrs_set(&ln->m->index, ln->shared_shard, ln->slot, v);
	if (r < 0)
		link_undo(ln);
	return r;
}

/* The object's key becomes the shared one; nothing can fail any more. */
static void link_share(struct linking *ln)
{
	struct mcm *m = ln->m;
	struct mcm_object *o = mcm_object(&m->index, ln->slot);

	mcm_object_renaming(m, ln->slot);
	mcm_names_replace(&m->names, ln->slot, ln->from_name);
	mcm_shard_unlink(&m->index, ln->from_shard, ln->slot);
	mcm_keys_del(&ln->from_shard->keys, o->key, o->key_len);
	mcm_store_relaxed(&o->key, ln->shared_key);
	o->key_len = (uint16_t)ln->shared.len;
	mcm_store_relaxed(&o->hash, ln->shared_hash);
	if (ln->from_shard != ln->shared_shard)
		mcm_attrs_drop(&m->index, ln->from_shard, ln->slot);
	mcm_object_renamed(m, ln->slot, ln->from, &ln->batch);
	mcm_names_link(&m->names, ln->slot, ln->shared_dir);
	ln->shared_dir = 0;
	mcm_shard_link(&m->index, ln->shared_shard, ln->slot);
	mcm_object_publish_name(m, ln->from_shard, ln->from_name, &ln->batch);
}

static void link_change(struct linking *ln)
{
	struct mcm *m = ln->m;

	if (ln->first)
		link_share(ln);
	else
		mcm_journal_batch_object(m, &ln->batch, ln->slot);
	if (ln->target) {
		mcm_names_replace(&m->names, ln->target, ln->to_name);
		mcm_names_touch(&m->names, ln->to_name);
		mcm_journal_batch_object_gone(m, &ln->batch, ln->target);
		mcm_object_unindex(m, ln->to_shard, ln->target, MCM_GONE_REPLACED);
	} else {
		mcm_names_link(&m->names, ln->to_name, ln->to_dir);
		ln->to_dir = 0;
	}
	mcm_object_publish_name(m, ln->to_shard, ln->to_name, &ln->batch);
	mcm_journal_batch_end(m, &ln->batch);
}

static int link_locked(struct linking *ln)
{
	struct mcm_attrs_value v;
	int r = link_source(ln, &v);

	if (r == 0)
		r = link_target(ln);
	if (r == 0)
		r = link_prepare(ln, &v);
	if (r == 0)
		link_change(ln);
	ln->generation = ln->slot ? mcm_object(&ln->m->index, ln->slot)->generation : 0;
	return r;
}

/* ---- */

static int link_run(struct linking *ln)
{
	struct mcm_index *ix = &ln->m->index;
	int r;

	ln->from_hash = mcm_index_hash(ix, ln->from.data, ln->from.len);
	ln->to_hash = mcm_index_hash(ix, ln->to.data, ln->to.len);
	ln->from_shard = mcm_index_shard(ix, ln->from_hash);
	ln->to_shard = mcm_index_shard(ix, ln->to_hash);
	mcm_journal_batch_room(ln->m);
	mcm_index_lock_all(ix);
	r = link_locked(ln);
	/* Without a link too, the answer depends on changes by others, which have to be durable. */
	mcm_journal_depend(ln->m);
	mcm_index_unlock_all(ix);
	mcm_journal_batch_free(&ln->batch);
	return r;
}

int mcm_link(struct mcm *m, const struct mcp_link_name *rq, uint64_t *ret_ino, uint64_t *ret_generation)
{
	struct linking ln = { .m = m, .from = rq->from, .to = rq->to, .ino = rq->ino };
	bool counted = false, first = false;
	struct mcp_bytes key;
	int r = link_check(rq);

	if (r < 0)
		return r;
	/* The directory of the shared key does not depend on the number. */
	key = mcm_link_key((struct mcm_link_id){ 0, mcm_key_tenant(rq->from.data, rq->from.len) }, ln.text);
	r = mcm_names_dir_ref(&m->names, key.data, key.len, &ln.shared_dir);
	if (r == 0)
		r = mcm_names_dir_ref(&m->names, rq->to.data, rq->to.len, &ln.to_dir);
	if (r == 0) {
		r = mcm_count_admit(m, rq->to.len);
		counted = r == 0;
	}
	if (r == 0) {
		r = mcm_count_admit(m, rq->from.len);
		first = r == 0;
	}
	if (r == 0)
		r = mcm_feeders_link_begin(m->feeders);
	if (r == 0) {
		r = link_run(&ln);
		mcm_feeders_link_end(m->feeders);
	}
	if (counted && r < 0)
		mcm_count_leave(m, rq->to.len);
	if (first && (r < 0 || !ln.first))
		mcm_count_leave(m, rq->from.len);
	if (ln.shared_dir)
		mcm_names_dir_unref(&m->names, ln.shared_dir);
	if (ln.to_dir)
		mcm_names_dir_unref(&m->names, ln.to_dir);
	if (r < 0)
		return r;
	*ret_ino = ln.id.ino;
	*ret_generation = ln.generation;
	mc_metric_add(&links, 1);
	return 0;
}

void mcm_link_lock(struct mcm *m, struct mcm_shard *name, struct mcm_link_id id, struct mcm_link_locked *ret)
{
	struct mcm_index *ix = &m->index;
	char buf[MCM_LINK_KEY_MAX];
	struct mcp_bytes key = mcm_link_key(id, buf);
	uint32_t hash = mcm_index_hash(ix, key.data, key.len);

	ret->name = name;
	ret->shared = mcm_index_shard(ix, hash);
	mc_mutex_unlock(&ret->name->lock);
	mc_mutex_lock(&ret->shared->lock);
	ret->slot = mcm_shard_find(ix, ret->shared, hash, key.data, key.len);
	if (ret->slot && !mcm_attrs_is_shared(ix, ret->slot, id))
		ret->slot = 0;
}

void mcm_link_unlock(const struct mcm_link_locked *l)
{
	mc_mutex_unlock(&l->shared->lock);
	mc_mutex_lock(&l->name->lock);
}

static bool same_id(struct mcm_link_id a, struct mcm_link_id b)
{
	return a.ino == b.ino && a.tenant == b.tenant;
}

/* Its shard is locked again: is the key still that name? */
static bool is_still_name(const struct mcm *m, const struct mcm_link_name *name, uint64_t generation)
{
	const struct mcm_index *ix = &m->index;
	uint32_t slot = mcm_shard_find(ix, name->shard, name->hash, name->key.data, name->key.len);
	struct mcm_link_id id;

	return slot && mcm_object(ix, slot)->generation == generation && mcm_attrs_is_name(ix, slot, &id) &&
		same_id(id, name->id);
}

int mcm_link_get(struct mcm *m, struct mcm_session *s, uint32_t flags, const struct mcm_link_name *name,
		 struct mcp_object *ret, struct mcp_replica *ret_replica, unsigned *ret_copies,
		 struct mcm_attrs_memory *mem)
{
	uint64_t of_name = mcm_object(&m->index, name->slot)->generation, generation;
	char buf[MCM_LINK_KEY_MAX];
	struct mcp_bytes key = mcm_link_key(name->id, buf);
	struct mcm_link_locked l;
	int r;

	/* The version that the key has must be a shared object, not one that a client has put there. */
	mcm_link_lock(m, name->shard, name->id, &l);
	generation = l.slot ? mcm_object(&m->index, l.slot)->generation : 0;
	mc_mutex_unlock(&l.shared->lock);
	MC_FAULT_POINT("pause.link_get");
	r = generation ? mcm_get_attrs(m, s, flags, key, ret, ret_replica, ret_copies, mem) : -MC_ENOOBJECT;
	mc_mutex_lock(&l.name->lock);
	if (is_still_name(m, name, of_name) && (r < 0 || ret->generation == generation))
		return r;
	if (r == 0 && ret->pin) {
		/* It takes the lock of the object's shard, which may be this one. */
		mc_mutex_unlock(&l.name->lock);
		mcm_pin_release(m, s, ret->pin);
		mc_mutex_lock(&l.name->lock);
	}
	return 1;
}

struct mcp_bytes mcm_link_resolve(struct mcm *m, struct mcp_bytes key, char buf[MCM_LINK_KEY_MAX])
{
	uint32_t hash = mcm_index_hash(&m->index, key.data, mcm_key_ok(key) ? key.len : 0), slot;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	struct mcm_link_id id;

	if (!mcm_key_ok(key))
		return key;
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	return slot && mcm_attrs_is_name(&m->index, slot, &id) ? mcm_link_key(id, buf) : key;
}

/* ---- what is left ---- */

static void name_end(struct mcm *m, struct mcm_link_id id, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, slot);
	struct mcm_link_id of;

	if (mcm_object(&m->index, slot)->flags & MCM_OBJ_LIVE && mcm_attrs_is_name(&m->index, slot, &of) &&
	    same_id(of, id) && !mcm_links_shared(&m->index.links, id))
		mcm_object_remove(m, sh, slot, MCM_GONE_EVICTED);
	mc_mutex_unlock(&sh->lock);
}

/* False: later, because clients that rely on a lease read the object without a name. */
static bool shared_end(struct mcm *m, struct mcm_link_id id)
{
	char buf[MCM_LINK_KEY_MAX];
	struct mcp_bytes key = mcm_link_key(id, buf);
	uint32_t hash = mcm_index_hash(&m->index, key.data, key.len), slot;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);

	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (!slot || !mcm_attrs_is_shared(&m->index, slot, id) || mcm_links_names(&m->index.links, id))
		return true;
	if (mcm_remove_leased(m, mcm_object(&m->index, slot))) {
		mcm_links_later(&m->index.links, id);
		return false;
	}
	mcm_object_remove(m, sh, slot, MCM_GONE_REMOVED);
	return true;
}

void mcm_links_tick(struct mcm *m)
{
	struct mcm_links *l = &m->index.links;
	struct mcm_link_id id;
	unsigned later = 0;
	uint32_t slot;
	bool name;

	for (unsigned i = 0; i < TICK_MAX && mcm_links_take_due(l, &id, &slot, &name); i++) {
		if (name)
			name_end(m, id, slot);
		else if (!shared_end(m, id) && ++later > mcm_links_dues(l))
			break;
	}
}
