/* SPDX-License-Identifier: Apache-2.0
 * attrs.c - attributes of files: conversion, and the requests that change and read them. */
#include <config.h>

#include "client/attrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/read.h"
#include "client/store_i.h"

_Static_assert(MCS_ATTR_MODE == MCP_ATTR_MODE && MCS_ATTR_UID == MCP_ATTR_UID && MCS_ATTR_GID == MCP_ATTR_GID &&
	       MCS_ATTR_MTIME == MCP_ATTR_MTIME && MCS_ATTR_CTIME == MCP_ATTR_CTIME &&
	       MCS_ATTR_RDEV == MCP_ATTR_RDEV && MCS_ATTR_IF_OWNER == MCP_ATTR_IF_OWNER &&
	       MCS_ATTR_IF_NO_OWNER == MCP_ATTR_IF_NO_OWNER && MCS_ATTR_INO == MCP_ATTR_INO &&
	       MCS_ATTR_LINKED == MCP_ATTR_LINKED, "sent unchanged");
_Static_assert(MCS_SET_NOW == MCP_SET_NOW && MCS_XATTR_CREATE == MCP_XATTR_CREATE &&
	       MCS_XATTR_REPLACE == MCP_XATTR_REPLACE && MCS_XATTR_REMOVE == MCP_XATTR_REMOVE, "sent unchanged");
_Static_assert(MCS_XATTR_NAME_MAX == MCP_XATTR_NAME_MAX && MCS_XATTRS_MAX == MCP_XATTRS_MAX, "the limits are equal");

#define SET_FLAGS (MCS_SET_NOW | MCS_XATTR_CREATE | MCS_XATTR_REPLACE | MCS_XATTR_REMOVE)

struct mcp_attrs mcs_attrs_wire(const struct mcs_attrs *a)
{
	if (!a)
		return (struct mcp_attrs){ 0 };
	return (struct mcp_attrs){
		.set = (uint16_t)(a->set & ~MCS_ATTR_CTIME),
		.mode = a->mode, .uid = a->uid, .gid = a->gid, .mtime_ns = a->mtime_ns, .rdev = a->rdev,
		.owner = a->owner, .ino = a->ino,
	};
}

static struct mcs_attrs attrs_of(const struct mcp_attrs *a)
{
	return (struct mcs_attrs){
		.set = a->set, .mode = a->mode, .uid = a->uid, .gid = a->gid, .mtime_ns = a->mtime_ns,
		.ctime_ns = a->ctime_ns, .rdev = a->rdev, .nlink = a->nlink,
		.ino = a->ino,
	};
}

struct mcs_attrs mcs_attrs_decode(const struct mcp_seq *list)
{
	struct mcp_attrs a;
	struct mcp_iter it;

	if (!list->count)
		return (struct mcs_attrs){ 0 };
	mcp_iter_init(&it, list, &mcp_desc_attrs);
	return mcp_iter_next(&it, &a) ? attrs_of(&a) : (struct mcs_attrs){ 0 };
}

/* The only object of a reply. */
static int attrs_object(const struct mcp_seq *objects, struct mcp_object *ret, struct mcs_info *ret_info)
{
	struct mcs_version v;
	struct mcp_iter it;
	int r;

	mcp_iter_init(&it, objects, &mcp_desc_object);
	if (!mcp_iter_next(&it, ret))
		return mc_fail(-MC_EPROTO, "protocol error: reply without a result");
	r = mcs_version_decode(ret, 0, 0, &v);
	if (r == 0 && ret_info)
		*ret_info = v.info;
	return r;
}

static int attrs_check_xattr(const struct mcs_xattr *x)
{
	if (!x->name.len || x->name.len > MCS_XATTR_NAME_MAX)
		return mc_fail(-ERANGE, "the name of an extended attribute has %zu bytes, must have 1 to %u",
			       x->name.len, MCS_XATTR_NAME_MAX);
	if (memchr(x->name.data, 0, x->name.len))
		return mc_fail(-MC_EPARAM, "the name of an extended attribute contains a NUL");
	if (x->name.len >= strlen(MCP_XATTR_RESERVED) &&
	    !memcmp(x->name.data, MCP_XATTR_RESERVED, strlen(MCP_XATTR_RESERVED)))
		return mc_fail(-MC_EPARAM, "extended attributes \"" MCP_XATTR_RESERVED "*\" are reserved for mounts");
	if (x->value.len > MCS_XATTRS_MAX)
		return mc_fail(-ENOSPC, "an extended attribute of %zu bytes, an object has room for %u", x->value.len,
			       MCS_XATTRS_MAX);
	return 0;
}

int mcs_set_attrs(struct mcs *s, struct mcs_key key, uint64_t generation, unsigned flags, const struct mcs_attrs *seen,
		  const struct mcs_attrs *attrs, const struct mcs_xattr *xattr, struct mcs_info *ret,
		  int64_t timeout_ms)
{
	const struct mcp_attrs wire = mcs_attrs_wire(attrs);
	struct mcp_set_attrs msg = {
		.tenant = s->tenant, .generation = generation, .flags = flags, .attrs = mcp_seq(&wire, wire.set != 0),
	};
	struct mcp_set_attrs_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_object obj;
	struct mcp_xattr x;
	int r = mcs_check_fork(s);

	if (r == 0)
		r = mcs_key_check(key);
	if (r == 0 && flags & ~SET_FLAGS)
		r = mc_fail(-MC_EPARAM, "unknown flags 0x%x", flags);
	if (r == 0 && xattr)
		r = attrs_check_xattr(xattr);
	if (r < 0)
		return r;
	msg.key = mcp_bytes(key.data, (uint32_t)key.len);
	if (seen) {
		msg.flags |= seen->set & MCS_ATTR_UID ? MCP_SET_IF_OWNER : MCP_SET_IF_NO_OWNER;
		msg.owner = seen->uid;
	}
	if (xattr) {
		x = (struct mcp_xattr){ mcp_bytes(xattr->name.data, (uint32_t)xattr->name.len),
					mcp_bytes(xattr->value.data, (uint32_t)xattr->value.len) };
		msg.xattrs = mcp_seq(&x, 1);
	}
	r = mcs_call(s->session, MCP_SET_ATTRS, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	r = attrs_object(&reply.objects, &obj, ret);
	mcp_reply_done(&mem);
	return r;
}

/* Copy the pairs of a reply into one allocation. */
static int xattrs_copy(const struct mcp_seq *list, struct mcs_xattr **ret, unsigned *ret_n)
{
	size_t bytes = list->count * sizeof(**ret) + 1;
	struct mcp_xattr x;
	struct mcp_iter it;
	unsigned n = 0;
	char *text;

	mcp_iter_init(&it, list, &mcp_desc_xattr);
	while (mcp_iter_next(&it, &x))
		bytes += (size_t)x.name.len + x.value.len;
	*ret = malloc(bytes);
	if (!*ret)
		return -ENOMEM;
	text = (char *)(*ret + list->count);
	mcp_iter_init(&it, list, &mcp_desc_xattr);
	for (; mcp_iter_next(&it, &x); n++) {
		(*ret)[n] = (struct mcs_xattr){ { text, x.name.len }, { text + x.name.len, x.value.len } };
		memcpy(text, x.name.data, x.name.len);
		if (x.value.len)
			memcpy(text + x.name.len, x.value.data, x.value.len);
		text += (size_t)x.name.len + x.value.len;
	}
	*ret_n = n;
	return 0;
}

int mcs_get_xattrs(struct mcs *s, struct mcs_key key, struct mcs_xattr **ret, unsigned *ret_n,
		   struct mcs_info *ret_info, int64_t timeout_ms)
{
	struct mcp_key one = { mcp_bytes(key.data, (uint32_t)key.len) };
	struct mcp_get msg = { .flags = MCP_GET_DIRS | MCP_GET_XATTRS, .keys = mcp_seq(&one, 1), .tenant = s->tenant };
	struct mcp_attrs attrs = { 0 };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_object obj;
	struct mcp_iter it;
	int r = mcs_check_fork(s);

	if (r == 0)
		r = mcs_key_check(key);
	if (r == 0)
		r = mcs_call(s->session, MCP_GET, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	r = attrs_object(&reply.objects, &obj, ret_info);
	if (r == 0) {
		mcp_iter_init(&it, &obj.attrs, &mcp_desc_attrs);
		(void)mcp_iter_next(&it, &attrs);
		r = xattrs_copy(&attrs.xattrs, ret, ret_n);
	}
	mcp_reply_done(&mem);
	return r;
}
