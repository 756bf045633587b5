/* SPDX-License-Identifier: Apache-2.0
 * attrs.c - attributes of files. */
#include <config.h>

#include "master/index/attrs.h"

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "proto/codec.h"

#define ATTRS_SHIFT 14
#define PAIR_HEAD 3u		/* bytes before a pair's name */
#define EXTRA_HEAD 2u
#define EXTRA_MAX (EXTRA_HEAD + sizeof(uint32_t) + MCP_XATTRS_MAX)
_Static_assert(EXTRA_MAX <= MCM_KEYS_MAX, "the arena of keys takes the longest");

static const struct mcm_table_type by_slot = {
	.link = offsetof(struct mcm_attrs, next), .hash = offsetof(struct mcm_attrs, hash), .shift = 0, .load = 8,
};

/* A bijection, so the hash alone names the slot. */
static uint32_t hash_of(uint32_t slot)
{
	return slot * 0x9e3779b1u;
}

void mcm_attrs_init(struct mcm_index *ix)
{
	mcm_slab_init(&ix->attrs, sizeof(struct mcm_attrs), ATTRS_SHIFT);
	mcm_links_init(&ix->links);
}

void mcm_attrs_done(struct mcm_index *ix)
{
	for (unsigned i = 0; i < MCM_SHARDS; i++)
		mcm_table_done(&ix->shard[i].attrs);
	mcm_slab_done(&ix->attrs);
	mcm_links_done(&ix->links);
}

static struct mcm_attrs *attrs_at(const struct mcm_index *ix, uint32_t id)
{
	return mcm_slab_get(&ix->attrs, id, sizeof(struct mcm_attrs), ATTRS_SHIFT);
}

static uint32_t attrs_find(const struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	uint32_t hash = hash_of(slot), id = *mcm_table_head(&sh->attrs, mcm_table_pos(&by_slot, hash));

	while (id && attrs_at(ix, id)->hash != hash)
		id = attrs_at(ix, id)->next;
	return id;
}

static int attrs_new(struct mcm_index *ix, uint32_t *ret)
{
	MC_LOCKED(&ix->ext_lock);
	if (!ix->attrs_free)
		return mcm_slab_take(&ix->attrs, 1, ret);
	*ret = ix->attrs_free;
	ix->attrs_free = attrs_at(ix, *ret)->next;
	return 0;
}

static void attrs_free(struct mcm_index *ix, uint32_t id)
{
	MC_LOCKED(&ix->ext_lock);
	attrs_at(ix, id)->next = ix->attrs_free;
	ix->attrs_free = id;
}

/* ---- the fields that few have ---- */

static uint32_t extra_len(uint16_t set, uint32_t xattrs)
{
	return EXTRA_HEAD + (set & MCP_ATTR_RDEV ? (uint32_t)sizeof(uint32_t) : 0) + xattrs;
}

/* Long ones count as more objects, as long keys do: clients must not fill the master's memory with them. */
static uint64_t extra_weight(const struct mcm_index *ix, uint32_t len)
{
	return ix->max && ix->by_memory ? len / MCM_KEY_WEIGHT : 0;
}

static int extra_add(struct mcm_index *ix, struct mcm_shard *sh, const struct mcm_attrs_value *v, uint32_t *ret)
{
	uint32_t len = extra_len(v->set, v->xattrs.len), at = EXTRA_HEAD;
	uint16_t xattrs = (uint16_t)v->xattrs.len;
	uint8_t buf[EXTRA_MAX];
	int r;

	*ret = 0;
	if (len == EXTRA_HEAD)
		return 0;
	memcpy(buf, &xattrs, EXTRA_HEAD);
	if (v->set & MCP_ATTR_RDEV) {
		memcpy(buf + at, &v->rdev, sizeof(v->rdev));
		at += (uint32_t)sizeof(v->rdev);
	}
	if (xattrs)
		memcpy(buf + at, v->xattrs.data, xattrs);
	r = mcm_keys_add(&sh->keys, buf, len, ret);
	if (r == 0)
		__atomic_fetch_add(&ix->count, extra_weight(ix, len), __ATOMIC_RELAXED);
	return r;
}

static void extra_get(const struct mcm_shard *sh, const struct mcm_attrs *a, struct mcm_attrs_value *v)
{
	const char *p = mcm_keys_at(&sh->keys, a->extra);
	uint16_t xattrs;

	memcpy(&xattrs, p, EXTRA_HEAD);
	p += EXTRA_HEAD;
	if (a->set & MCP_ATTR_RDEV) {
		memcpy(&v->rdev, p, sizeof(v->rdev));
		p += sizeof(v->rdev);
	}
	v->xattrs = (struct mcp_bytes){ p, xattrs };
}

static void extra_del(struct mcm_index *ix, struct mcm_shard *sh, uint32_t extra, uint32_t len)
{
	mcm_keys_del(&sh->keys, extra, len);
	__atomic_fetch_sub(&ix->count, extra_weight(ix, len), __ATOMIC_RELAXED);
}

static void extra_free(struct mcm_index *ix, struct mcm_shard *sh, const struct mcm_attrs *a)
{
	uint16_t xattrs;

	if (!a->extra)
		return;
	memcpy(&xattrs, mcm_keys_at(&sh->keys, a->extra), EXTRA_HEAD);
	extra_del(ix, sh, a->extra, extra_len(a->set, xattrs));
}

/* ---- objects with several names ---- */

struct mcm_link_id mcm_attrs_link(const struct mcm_index *ix, uint32_t slot, uint64_t ino)
{
	return (struct mcm_link_id){ ino, mcm_key_tenant(mcm_shard_key(ix, slot), mcm_object(ix, slot)->key_len) };
}

static int linked_add(struct mcm_index *ix, uint32_t slot, const struct mcm_attrs_value *v)
{
	return v->set & MCM_ATTRS_OF_LINKS ?
		mcm_links_add(&ix->links, mcm_attrs_link(ix, slot, v->ino), slot, v->set & MCM_ATTR_NAME,
			      v->set & MCP_ATTR_UID ? &v->uid : NULL) : 0;
}

static void linked_del(struct mcm_index *ix, uint32_t slot, uint16_t set, uint64_t ino)
{
	if (set & MCM_ATTRS_OF_LINKS)
		mcm_links_del(&ix->links, mcm_attrs_link(ix, slot, ino), slot, set & MCM_ATTR_NAME);
}

/* ---- objects ---- */

bool mcm_attrs_get(const struct mcm_index *ix, uint32_t slot, struct mcm_attrs_value *ret)
{
	struct mcm_object *o = mcm_object(ix, slot);
	const struct mcm_attrs *a;
	struct mcm_shard *sh;
	uint32_t id;

	*ret = (struct mcm_attrs_value){ 0 };
	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_ATTRS))
		return false;
	sh = (struct mcm_shard *)&ix->shard[mcm_object_shard(o)];
	id = attrs_find(ix, sh, slot);
	if (!id)
		return false;
	a = attrs_at(ix, id);
	*ret = (struct mcm_attrs_value){
		.set = a->set, .mode = a->mode, .uid = a->uid, .gid = a->gid, .mtime_ns = a->mtime_ns,
		.ctime_ns = a->ctime_ns, .ino = a->ino,
	};
	if (a->extra)
		extra_get(sh, a, ret);
	return true;
}

bool mcm_attrs_name_of(const struct mcm_index *ix, uint32_t slot, struct mcm_link_id *ret)
{
	struct mcm_attrs_value v;

	if (!mcm_attrs_get(ix, slot, &v) || !(v.set & MCM_ATTR_NAME))
		return false;
	if (ret)
		*ret = mcm_attrs_link(ix, slot, v.ino);
	return true;
}

bool mcm_attrs_is_shared(const struct mcm_index *ix, uint32_t slot, struct mcm_link_id id)
{
	struct mcm_attrs_value v;

	return mcm_attrs_get(ix, slot, &v) && v.set & MCP_ATTR_LINKED && v.ino == id.ino &&
		mcm_link_is_key(id, mcp_bytes(mcm_shard_key(ix, slot), mcm_object(ix, slot)->key_len));
}

int mcm_attrs_set(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot, const struct mcm_attrs_value *v)
{
	struct mcm_object *o = mcm_object(ix, slot);
	uint32_t id, extra;
	struct mcm_attrs *a;
	int r;

	if (!v->set && !v->xattrs.len) {
		mcm_attrs_drop(ix, sh, slot);
		return 0;
	}
	r = linked_add(ix, slot, v);
	if (r < 0)
		return r;
	r = extra_add(ix, sh, v, &extra);
	if (r < 0)
		goto fail;
	id = attrs_find(ix, sh, slot);
	if (!id) {
		r = attrs_new(ix, &id);
		if (r < 0) {
			if (extra)
				extra_del(ix, sh, extra, extra_len(v->set, v->xattrs.len));
			goto fail;
		}
		a = attrs_at(ix, id);
		a->hash = hash_of(slot);
		mcm_table_insert(&sh->attrs, &by_slot, &ix->attrs, id);
	} else {
		a = attrs_at(ix, id);
		extra_free(ix, sh, a);
		linked_del(ix, slot, a->set, a->ino);
	}
	a->set = v->set;
	a->mode = v->mode;
	a->uid = v->uid;
	a->gid = v->gid;
	a->mtime_ns = v->mtime_ns;
	a->ctime_ns = v->ctime_ns;
	a->ino = v->ino;
	a->extra = extra;
	__atomic_fetch_or(&o->marks, MCM_MARK_ATTRS, __ATOMIC_RELAXED);
	return 0;
fail:
	linked_del(ix, slot, v->set, v->ino);
	return r;
}

void mcm_attrs_drop(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot)
{
	struct mcm_object *o = mcm_object(ix, slot);
	uint32_t id;

	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_ATTRS))
		return;
	id = attrs_find(ix, sh, slot);
	if (id) {
		linked_del(ix, slot, attrs_at(ix, id)->set, attrs_at(ix, id)->ino);
		extra_free(ix, sh, attrs_at(ix, id));
		mcm_table_remove(&sh->attrs, &by_slot, &ix->attrs, id);
		attrs_free(ix, id);
	}
	/* A renamed object has its attributes in its new shard already. */
	if (sh == &ix->shard[mcm_object_shard(o)])
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_ATTRS, __ATOMIC_RELAXED);
}

void mcm_attrs_carry(struct mcm_attrs_value *v)
{
	v->set &= (uint16_t)~(MCP_ATTR_MTIME | MCP_ATTR_CTIME | MCM_ATTR_NAME);
	v->mode &= MCM_ATTRS_MODE_CARRIED;
	v->mtime_ns = v->ctime_ns = 0;
}

bool mcm_attrs_room(const struct mcm_index *ix, uint32_t xattrs)
{
	return !ix->max || mcm_load_relaxed(&ix->count) + extra_weight(ix, EXTRA_MAX) < ix->max ||
	       !extra_weight(ix, xattrs);
}

/* ---- extended attributes ---- */

bool mcm_xattrs_next(struct mcp_bytes *rest, struct mcp_xattr *ret)
{
	const uint8_t *p = rest->data;
	uint32_t name, value;

	if (rest->len < PAIR_HEAD)
		return false;
	name = p[0];
	value = (uint32_t)p[1] | (uint32_t)p[2] << 8;
	if (!name || rest->len - PAIR_HEAD < name + value)
		return false;
	ret->name = (struct mcp_bytes){ p + PAIR_HEAD, name };
	ret->value = (struct mcp_bytes){ p + PAIR_HEAD + name, value };
	*rest = (struct mcp_bytes){ p + PAIR_HEAD + name + value, rest->len - PAIR_HEAD - name - value };
	return true;
}

bool mcm_xattrs_ok(struct mcp_bytes all)
{
	struct mcp_xattr x;

	if (all.len > MCP_XATTRS_MAX)
		return false;
	while (mcm_xattrs_next(&all, &x))
		;
	return !all.len;
}

static int pair_add(uint8_t buf[MCP_XATTRS_MAX], uint32_t *len, const struct mcp_xattr *x)
{
	uint8_t *p = buf + *len;

	if ((uint64_t)x->name.len + x->value.len + PAIR_HEAD > MCP_XATTRS_MAX - *len)
		return mc_fail(-ENOSPC, "the extended attributes of an object have at most %u bytes", MCP_XATTRS_MAX);
	p[0] = (uint8_t)x->name.len;
	p[1] = (uint8_t)x->value.len;
	p[2] = (uint8_t)(x->value.len >> 8);
	memcpy(p + PAIR_HEAD, x->name.data, x->name.len);
	if (x->value.len)
		memcpy(p + PAIR_HEAD + x->name.len, x->value.data, x->value.len);
	*len += PAIR_HEAD + x->name.len + x->value.len;
	return 0;
}

static bool same_name(const struct mcp_xattr *a, const struct mcp_xattr *b)
{
	return a->name.len == b->name.len && !memcmp(a->name.data, b->name.data, a->name.len);
}

static int check_name(struct mcp_bytes name)
{
	static const char reserved[] = MCP_XATTR_RESERVED;
	const uint32_t len = sizeof(reserved) - 1;

	if (!name.len || name.len > MCP_XATTR_NAME_MAX)
		return mc_fail(-ERANGE, "the name of an extended attribute has %u bytes", name.len);
	if (memchr(name.data, 0, name.len))
		return mc_fail(-MC_EPARAM, "the name of an extended attribute contains a NUL");
	if (name.len >= len && !memcmp(name.data, reserved, len))
		return mc_fail(-MC_EPARAM, "extended attributes \"%s*\" are reserved for mounts", reserved);
	return 0;
}

int mcm_xattrs_change(struct mcp_bytes all, uint32_t flags, const struct mcp_xattr *x, uint8_t buf[MCP_XATTRS_MAX],
		      struct mcp_bytes *ret)
{
	struct mcp_xattr has;
	bool found = false;
	uint32_t len = 0;
	int r = check_name(x->name);

	if (r < 0)
		return r;
	while (r == 0 && mcm_xattrs_next(&all, &has)) {
		if (same_name(&has, x))
			found = true;
		else
			r = pair_add(buf, &len, &has);
	}
	if (r == 0 && found && flags & MCP_XATTR_CREATE)
		r = -EEXIST;
	if (r == 0 && !found && flags & (MCP_XATTR_REPLACE | MCP_XATTR_REMOVE))
		r = -ENODATA;
	if (r == 0 && !(flags & MCP_XATTR_REMOVE))
		r = pair_add(buf, &len, x);
	*ret = (struct mcp_bytes){ buf, len };
	return r;
}
