/* SPDX-License-Identifier: Apache-2.0
 * set_attrs.c - attributes of files: those of a put, changes, and the form in which clients get them. */
#include <config.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "proto/codec.h"

MC_COUNTER(changes, "mooncake_master_attribute_changes_total", "", "Changes of attributes of files")

/* Attributes that clients may set. */
#define SETTABLE (MCP_ATTR_MODE | MCP_ATTR_UID | MCP_ATTR_GID | MCP_ATTR_MTIME)
#define MODE_BITS 07777u

/* Set the fields of @a that are in @set. */
static void attrs_assign(struct mcm_attrs_value *v, const struct mcp_attrs *a, uint16_t set)
{
	v->set |= set;
	if (set & MCP_ATTR_MODE)
		v->mode = (uint16_t)a->mode;
	if (set & MCP_ATTR_UID)
		v->uid = a->uid;
	if (set & MCP_ATTR_GID)
		v->gid = a->gid;
	if (set & MCP_ATTR_MTIME)
		v->mtime_ns = a->mtime_ns;
	if (set & MCP_ATTR_RDEV)
		v->rdev = a->rdev;
	if (set & MCP_ATTR_INO)
		v->ino = a->ino;
}

static bool attrs_first(const struct mcp_seq *list, struct mcp_attrs *ret)
{
	struct mcp_iter it;

	if (!list->count)
		return false;
	mcp_iter_init(&it, list, &mcp_desc_attrs);
	return mcp_iter_next(&it, ret);
}

static int attrs_check_special(const struct mcp_attrs *a)
{
	uint32_t type = a->mode & S_IFMT;

	if (!(a->set & MCP_ATTR_MODE))
		return mc_fail(-MC_EPARAM, "a special file needs a mode");
	if (type != S_IFIFO && type != S_IFSOCK && type != S_IFCHR && type != S_IFBLK)
		return mc_fail(-MC_EPARAM, "a special file is a fifo, socket or device, not of type 0%o", type);
	return 0;
}

/* The writer's user was checked against the owner of the file that it opened, not of one that has its name now. */
static int attrs_check_replaced(const struct mcm *m, const struct mcp_attrs *a, uint32_t slot,
				const struct mcm_attrs_value *old)
{
	bool has = old->set & MCP_ATTR_UID;
	uint32_t uid = old->uid;

	if (old->set & MCM_ATTR_NAME)
		has = mcm_links_owner((struct mcm_links *)&m->index.links,
				      mcm_attrs_link(&m->index, slot, old->ino), &uid);
	if ((a->set & MCP_ATTR_IF_OWNER && !(has && uid == a->owner)) ||
	    (a->set & MCP_ATTR_IF_NO_OWNER && has))
		return mc_fail(-EPERM, "the key has an object of another owner");
	return 0;
}

int mcm_attrs_of_put(const struct mcm *m, const struct mcp_seq *put, uint8_t kind, uint32_t old,
		     struct mcm_attrs_value *ret)
{
	struct mcp_attrs a = { 0 };
	bool given = attrs_first(put, &a);
	int r = kind == MCP_KIND_SPECIAL ? attrs_check_special(&a) : 0;

	*ret = (struct mcm_attrs_value){ 0 };
	if (old)
		(void)mcm_attrs_get(&m->index, old, ret);
	if (r == 0 && old)
		r = attrs_check_replaced(m, &a, old, ret);
	if (r == 0 && a.set & MCP_ATTR_LINKED && !(ret->set & MCP_ATTR_LINKED))
		r = mc_fail(-MC_ENOOBJECT, "the file with several names was removed or evicted");
	if (r < 0)
		return r;
	if (old && (mcm_object(&m->index, old)->flags & MCM_OBJ_KIND) == kind && !(ret->set & MCM_ATTR_NAME))
		mcm_attrs_carry(ret);
	else
		*ret = (struct mcm_attrs_value){ 0 };
	if (!given)
		return 0;
	if (kind != MCP_KIND_SPECIAL)
		a.mode &= MODE_BITS;
	/* A file keeps its inode number when it is written again. */
	attrs_assign(ret, &a, a.set & (SETTABLE | (kind == MCP_KIND_SPECIAL ? MCP_ATTR_RDEV : 0) |
				       (a.ino && !(ret->set & MCP_ATTR_INO) ? MCP_ATTR_INO : 0)));
	return 0;
}

/* ---- answers ---- */

static uint64_t attrs_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A directory's time changes when it is set and with the children.  The later event wins, without a comparison of
 * clocks: setting attributes resets changed_ms. */
static void attrs_add_dir(struct mcp_attrs *a, const struct mcm_names_stat *st, uint64_t mtime_ms)
{
	uint64_t changed_ns = attrs_later(st->changed_ms, mtime_ms) * MC_NS_PER_MS;

	if (!(a->set & MCP_ATTR_MTIME) || st->changed_ms)
		a->mtime_ns = changed_ns;
	a->ctime_ns = attrs_later(a->ctime_ns, changed_ns);
	a->set |= MCP_ATTR_MTIME | MCP_ATTR_CTIME;
	a->nlink = 2 + st->dirs;
}

static void attrs_add_xattrs(struct mcp_bytes all, struct mcm_attrs_memory *mem)
{
	struct mcm_xattrs_memory *to = mem->xattrs;
	unsigned n = 0;

	if (!to || !all.len)
		return;
	memcpy(to->text, all.data, all.len);
	all.data = to->text;
	while (mcm_xattrs_next(&all, &to->item[n]))
		n++;
	mem->attrs->xattrs = mcp_seq(to->item, n);
}

void mcm_attrs_to_wire(const struct mcm_attrs_value *v, struct mcm_attrs_memory *mem)
{
	*mem->attrs = (struct mcp_attrs){
		.set = (uint16_t)(v->set & ~MCM_ATTR_NAME), .mode = v->mode, .uid = v->uid, .gid = v->gid,
		.mtime_ns = v->mtime_ns, .ctime_ns = v->ctime_ns, .rdev = v->rdev, .ino = v->ino,
	};
	attrs_add_xattrs(v->xattrs, mem);
}

static __attribute__((noinline)) void attrs_describe(const struct mcm *m, uint32_t slot,
						     const struct mcm_names_stat *dir,
						     struct mcm_attrs_memory *mem, struct mcp_object *ret)
{
	struct mcm_attrs_value v = { 0 };

	if (slot)
		(void)mcm_attrs_get(&m->index, slot, &v);
	mcm_attrs_to_wire(&v, mem);
	if (v.set & MCP_ATTR_LINKED)
		mem->attrs->nlink = mcm_links_names((struct mcm_links *)&m->index.links,
						    mcm_attrs_link(&m->index, slot, v.ino));
	if (dir)
		attrs_add_dir(mem->attrs, dir, ret->mtime_ms);
	ret->attrs = mcp_seq(mem->attrs, 1);
}

void mcm_attrs_describe(const struct mcm *m, uint32_t slot, const struct mcm_names_stat *dir,
			struct mcm_attrs_memory *mem, struct mcp_object *ret)
{
	/* Most objects have none. */
	if (dir || (slot && mcm_load_relaxed(&mcm_object(&m->index, slot)->marks) & MCM_MARK_ATTRS))
		attrs_describe(m, slot, dir, mem, ret);
}

/* ---- changes ---- */

static int attrs_change_xattr(const struct mcp_set_attrs *rq, struct mcm_attrs_value *v, uint8_t buf[MCP_XATTRS_MAX])
{
	struct mcp_xattr x;
	struct mcp_iter it;

	if (!rq->xattrs.count)
		return 0;
	mcp_iter_init(&it, &rq->xattrs, &mcp_desc_xattr);
	if (!mcp_iter_next(&it, &x))
		return -MC_EPROTO;
	return mcm_xattrs_change(v->xattrs, rq->flags, &x, buf, &v->xattrs);
}

/* Is the owner still the one for which the caller checked that the change is permitted? */
static int attrs_check_owner(const struct mcp_set_attrs *rq, const struct mcm_attrs_value *v)
{
	bool has = v->set & MCP_ATTR_UID;

	if ((rq->flags & MCP_SET_IF_OWNER && !(has && v->uid == rq->owner)) ||
	    (rq->flags & MCP_SET_IF_NO_OWNER && has))
		return mc_fail(-ESTALE, "the owner of the file has changed");
	return 0;
}

uint64_t mcm_attrs_changing(const struct mcm *m, uint32_t slot, uint64_t now_ns, struct mcm_attrs_value *v)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	bool dir = mcm_shard_key(&m->index, slot)[o->key_len - 1] == '/';
	uint64_t changed_ms = mcm_names_changed(&m->names, slot), after_ns;

	/* The last change of the children is later than a time that was set. */
	if (changed_ms) {
		v->mtime_ns = attrs_later(changed_ms, mcm_object_mtime(o)) * MC_NS_PER_MS;
		v->set |= MCP_ATTR_MTIME;
	}
	/* That of a directory is after the millisecond of that change, so that a restarted master too knows the
	 * order; therefore it does not go back. */
	after_ns = changed_ms ? (changed_ms + 1) * MC_NS_PER_MS : 0;
	v->ctime_ns = dir ? attrs_later(attrs_later(v->ctime_ns, after_ns), now_ns) : now_ns;
	v->set |= MCP_ATTR_CTIME;
	return changed_ms;
}

/* A change of owner or group ends set-user-ID and set-group-ID, as chown(2). */
static void attrs_drop_privileges(const struct mcm_object *o, uint16_t set, struct mcm_attrs_value *v)
{
	if (set & MCP_ATTR_MODE || !(set & (MCP_ATTR_UID | MCP_ATTR_GID)) || !(v->set & MCP_ATTR_MODE) ||
	    (o->flags & MCM_OBJ_KIND) == MCP_KIND_DIR)
		return;
	v->mode &= (uint16_t)~(S_ISUID | (v->mode & S_IXGRP ? S_ISGID : 0));
}

/* Shard locked. */
static int attrs_change(struct mcm *m, struct mcm_shard *sh, uint32_t slot, const struct mcp_set_attrs *rq)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	uint64_t now_ns = mc_wall_ns(), changed_ms;
	uint8_t buf[MCP_XATTRS_MAX];
	struct mcm_attrs_value v;
	struct mcp_attrs a;
	uint32_t before;
	int r;

	if (!mcm_object_readable(m, o))
		return mcm_object_missing(m, o);
	if (rq->generation && rq->generation != o->generation)
		return mc_fail(-ESTALE, "the key has another version");
	mcm_attrs_get(&m->index, slot, &v);
	r = attrs_check_owner(rq, &v);
	if (r < 0)
		return r;
	changed_ms = mcm_attrs_changing(m, slot, now_ns, &v);
	if (attrs_first(&rq->attrs, &a)) {
		a.mode = (a.mode & MODE_BITS) | (v.mode & S_IFMT);
		if (rq->flags & MCP_SET_NOW)
			a.mtime_ns = now_ns;
		attrs_assign(&v, &a, a.set & SETTABLE);
		attrs_drop_privileges(o, a.set, &v);
	}
	before = v.xattrs.len;
	r = attrs_change_xattr(rq, &v, buf);
	if (r == 0 && v.xattrs.len > before && !mcm_attrs_room(&m->index, v.xattrs.len))
		r = mc_fail(-ENOSPC, "the master's memory for objects is full");
	if (r < 0)
		return r;
	r = mcm_attrs_set(&m->index, sh, slot, &v);
	if (r < 0)
		return r;
	mcm_names_swap_changed(&m->names, slot, changed_ms, 0);
	mcm_object_changed(m, slot, MCM_CHANGED_ATTRS);
	mc_metric_add(&changes, 1);
	return 0;
}

/* @shared: the key is that of the object of this name; NULL: it is the client's.  1: it is a name, of *ret_id. */
static int attrs_change_key(struct mcm *m, struct mcp_bytes key, const struct mcp_set_attrs *rq,
			    const struct mcm_link_id *shared, struct mcm_link_id *ret_id)
{
	uint32_t hash, slot;
	struct mcm_shard *sh;
	int r;

	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (shared && slot && !mcm_attrs_is_shared(&m->index, slot, *shared))
		slot = 0;
	if (!shared && slot && mcm_attrs_is_name(&m->index, slot, ret_id))
		return 1;
	r = slot ? attrs_change(m, sh, slot, rq) : -MC_ENOOBJECT;
	if (r < 0)
		mcm_journal_depend(m);
	return r;
}

int mcm_set_attrs(struct mcm *m, const struct mcp_set_attrs *rq)
{
	char buf[MCM_LINK_KEY_MAX];
	struct mcm_link_id id;
	int r;

	if (!mcm_key_ok(rq->key))
		return mc_fail(-MC_EKEY, "key has %u bytes", rq->key.len);
	r = attrs_change_key(m, rq->key, rq, NULL, &id);
	return r == 1 ? attrs_change_key(m, mcm_link_key(id, buf), rq, &id, NULL) : r;
}
