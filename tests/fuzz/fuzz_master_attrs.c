/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_attrs.c - a sequence of attributes of files.  Input: operations of a byte, of which the low 3 bits count,
 * and their arguments; a key is one of four.
 *	0-1 change: u8 bits 0-1 key, bits 2-7 flags (MCP_SET_NOW ...); u8 set (MCP_ATTR_*); u16 mode; u8 uid; u8 gid;
 *	    u32 mtime; u8 bits 0-2 name of an extended attribute, bit 7: there is none; u16 length of its value, modulo
 *	    4096; u8 its bytes
 *	2 put: u8 bits 0-1 key, bits 2-3 kind; u8 set; u16 mode; u8 uid; u8 bit 0: with these attributes
 *	3 rename: u8 bits 0-1 from, bits 2-3 to, bits 4-7 flags		4 remove: u8 key
 *	5 u8 length and the bytes of a SET_ATTRS message		6 u8 length and the bytes of a put_item
 *	7 the master is killed and started again
 *
 * A change sets the attributes that it names and no others; a refused one changes nothing.  A new version keeps the
 * extended attributes.  The restarted master has the same attributes.  No memory is left when all keys were removed. */
#include <config.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../unit/test_master_fixture.h"
#include "master/index/attrs.h"
#include "tests/fuzz/memory_dir.h"
#include "tests/fuzz/small_master.h"

#define KEYS 4u
#define RESTARTS 2u		/* of one input: they take most of the time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p, *end;
};

/* A key as a mount sees it. */
struct seen {
	int status;
	uint8_t kind;
	struct mcp_attrs attrs;
	struct mcm_xattrs_memory xattrs;
};

static struct fixture fx;
static const char *const key[KEYS] = { "f", "g", "dir/", "dir/f" };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static uint32_t number(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes--)
		v = v << 8 | (in->p < in->end ? *in->p++ : 0);
	return v;
}

/* ---- look-ups ---- */

static void look(unsigned k, struct seen *ret)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcm_attrs_memory mem = { &ret->attrs, &ret->xattrs };
	struct mcp_object o;
	unsigned n;

	memset(&ret->attrs, 0, sizeof(ret->attrs));
	ret->status = mcm_get_attrs(fx.m, NULL, 0, fx_bytes(key[k]), &o, replica, &n, &mem);
	ret->kind = ret->status == 0 ? o.kind : 0;
}

static const struct mcp_xattr *xattr(const struct seen *s, struct mcp_bytes name)
{
	const struct mcp_xattr *all = s->attrs.xattrs.items;

	for (unsigned i = 0; i < s->attrs.xattrs.count; i++)
		if (all[i].name.len == name.len && !memcmp(all[i].name.data, name.data, name.len))
			return &all[i];
	return NULL;
}

static bool same_bytes(struct mcp_bytes a, struct mcp_bytes b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

/* Have all extended attributes of @a, except @except, the same value in @b? */
static void check_xattrs_in(const struct seen *a, const struct seen *b, struct mcp_bytes except)
{
	const struct mcp_xattr *all = a->attrs.xattrs.items, *other;

	for (unsigned i = 0; i < a->attrs.xattrs.count; i++) {
		if (same_bytes(all[i].name, except))
			continue;
		other = xattr(b, all[i].name);
		check(other && same_bytes(other->value, all[i].value));
	}
}

static void check_same(const struct seen *a, const struct seen *b)
{
	static const struct mcp_bytes none = { NULL, 0 };

	check(a->status == b->status && a->kind == b->kind && a->attrs.set == b->attrs.set &&
	      a->attrs.mode == b->attrs.mode && a->attrs.uid == b->attrs.uid && a->attrs.gid == b->attrs.gid &&
	      a->attrs.mtime_ns == b->attrs.mtime_ns && a->attrs.ctime_ns == b->attrs.ctime_ns &&
	      a->attrs.rdev == b->attrs.rdev);
	check_xattrs_in(a, b, none);
	check_xattrs_in(b, a, none);
}

/* ---- operations ---- */

static int set(const struct mcp_set_attrs *msg)
{
	struct mcp_set_attrs rq;
	struct mcp_buf b = { 0 };
	int r;

	check(mcp_encode(&mcp_desc_set_attrs, msg, &b) == 0 &&
	      mcp_decode(&mcp_desc_set_attrs, b.data, b.len, &rq) == 0);
	r = mcm_set_attrs(fx.m, &rq);
	mcp_buf_free(&b);
	return r;
}

/* The named attributes are set, and no others. */
static void check_changed(const struct seen *was, const struct seen *is, const struct mcp_set_attrs *rq,
			  const struct mcp_attrs *a, const struct mcp_xattr *x)
{
	static const struct mcp_bytes none = { NULL, 0 };
	const struct mcp_xattr *now = x ? xattr(is, x->name) : NULL;

	check(is->kind == was->kind && is->attrs.rdev == was->attrs.rdev && is->attrs.set & MCP_ATTR_CTIME);
	check(is->attrs.uid == (a->set & MCP_ATTR_UID ? a->uid : was->attrs.uid));
	check(is->attrs.gid == (a->set & MCP_ATTR_GID ? a->gid : was->attrs.gid));
	if (a->set & MCP_ATTR_MODE)
		check((is->attrs.mode & 07777) == (a->mode & 07777));
	if (a->set & MCP_ATTR_MTIME && !(rq->flags & MCP_SET_NOW))
		check(is->attrs.mtime_ns == a->mtime_ns);
	check_xattrs_in(was, is, x ? x->name : none);
	check_xattrs_in(is, was, x ? x->name : none);
	if (x && rq->flags & MCP_XATTR_REMOVE)
		check(!now && xattr(was, x->name));
	else if (x)
		check(now && same_bytes(now->value, x->value));
	if (x && rq->flags & MCP_XATTR_CREATE)
		check(!xattr(was, x->name));
}

static void op_set(struct input *in)
{
	static char longest[MCP_XATTR_NAME_MAX + 1];
	static uint8_t value[MCP_XATTRS_MAX + 24];
	const struct mcp_bytes names[8] = {
		fx_bytes("user.a"), fx_bytes("user.b"), fx_bytes("user.c"), fx_bytes("mooncake.x"),
		mcp_bytes("user.\0z", 7), mcp_bytes(longest, MCP_XATTR_NAME_MAX),
		mcp_bytes(longest, MCP_XATTR_NAME_MAX + 1), mcp_bytes("", 0),
	};
	static struct seen was, is;
	unsigned first = number(in, 1), k = first % KEYS, name;
	struct mcp_attrs a = { .set = (uint16_t)number(in, 1) };
	struct mcp_set_attrs rq = { .key = fx_bytes(key[k]), .flags = first >> 2 };
	struct mcp_xattr x;
	int r;

	a.mode = number(in, 2);
	a.uid = rq.owner = number(in, 1);
	a.gid = number(in, 1);
	a.mtime_ns = number(in, 4);
	name = number(in, 1);
	memset(longest, 'n', sizeof(longest));
	x = (struct mcp_xattr){ names[name % 8], mcp_bytes(value, number(in, 2) % sizeof(value)) };
	memset(value, (int)number(in, 1), x.value.len);
	rq.attrs = mcp_seq(&a, 1);
	rq.xattrs = mcp_seq(&x, name & 0x80 ? 0 : 1);
	look(k, &was);
	r = set(&rq);
	look(k, &is);
	if (r < 0)
		check_same(&was, &is);
	else
		check_changed(&was, &is, &rq, &a, name & 0x80 ? NULL : &x);
}

static int put_item(const void *bytes, size_t len)
{
	struct mcm_put_request rq = { .flags = MCP_PUT_UPSERT | MCP_PUT_COMMIT, .copies = 1 };
	struct mcm_put_granted granted;
	struct mcp_put_item item;

	if (mcp_decode(&mcp_desc_put_item, bytes, len, &item) < 0)
		return -1;
	/* There is no memory for bytes. */
	item.size = 0;
	return mcm_put_start(fx.m, fx.s, &rq, &item, &granted);
}

static void op_put(struct input *in)
{
	static const struct mcp_bytes none = { NULL, 0 };
	static struct seen was, is;
	unsigned first = number(in, 1), k = first % KEYS;
	struct mcp_put_item item = { .key = fx_bytes(key[k]), .kind = first / 4 % 4 };
	struct mcp_attrs a = { .set = (uint16_t)number(in, 1) };
	struct mcp_buf b = { 0 };
	int r;

	a.mode = number(in, 2);
	a.uid = a.owner = number(in, 1);
	item.attrs = mcp_seq(&a, number(in, 1) & 1);
	look(k, &was);
	check(mcp_encode(&mcp_desc_put_item, &item, &b) == 0);
	r = put_item(b.data, b.len);
	mcp_buf_free(&b);
	look(k, &is);
	if (r < 0) {
		check_same(&was, &is);
		return;
	}
	check(is.status == 0 && is.kind == item.kind);
	if (was.status == 0 && was.kind == item.kind)
		check_xattrs_in(&was, &is, none);
	check_xattrs_in(&is, &was, none);
	if (item.attrs.count && a.set & MCP_ATTR_UID)
		check(is.attrs.uid == a.uid);
}

static void op_message(struct input *in, bool change)
{
	size_t len = number(in, 1), left = (size_t)(in->end - in->p);
	struct mcp_set_attrs rq;

	if (len > left)
		len = left;
	if (!change)
		(void)put_item(in->p, len);
	else if (mcp_decode(&mcp_desc_set_attrs, in->p, len, &rq) == 0)
		(void)mcm_set_attrs(fx.m, &rq);
	in->p += len;
}

static void op_rename(struct input *in)
{
	unsigned first = number(in, 1);
	struct mcp_rename rq = {
		.from = fx_bytes(key[first % 4]), .to = fx_bytes(key[first / 4 % 4]), .flags = first >> 4,
	};
	uint64_t out;

	(void)mcm_rename(fx.m, &rq, &out, &out);
}

static void sessions_end(void)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &fx.m->sessions)
		fx_session_end(&fx, mc_container_of(pos, struct mcm_session, link));
}

static void op_restart(void)
{
	static struct seen was[KEYS], is;

	for (unsigned k = 0; k < KEYS; k++)
		look(k, &was[k]);
	mcm_journal_wait(fx.m);
	sessions_end();
	mcm_core_free(fx.m);
	check(mcm_core_new(&fx.conf, &fx.m) == 0);
	fx.s = fx_session(&fx, 1);
	for (unsigned k = 0; k < KEYS; k++) {
		look(k, &is);
		check_same(&was[k], &is);
	}
}

static void one(struct input *in, unsigned *restarts)
{
	switch (number(in, 1) % 8) {
	case 0:
	case 1:
		op_set(in);
		break;
	case 2:
		op_put(in);
		break;
	case 3:
		op_rename(in);
		break;
	case 4:
		(void)fx_remove(&fx, key[number(in, 1) % KEYS], 0);
		break;
	case 5:
		op_message(in, true);
		break;
	case 6:
		op_message(in, false);
		break;
	default:
		if ((*restarts)++ < RESTARTS)
			op_restart();
		break;
	}
}

static void tune(struct mcm_conf *conf)
{
	const struct mcm_conf *small = small_master_conf();

	conf->journal_dir = small->journal_dir;
	conf->eviction_policy = small->eviction_policy;
	conf->client_ttl = 1000000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + (size < 2048 ? size : 2048) };
	struct mcp_remove_match all = { .flags = MCP_REMOVE_FORCE };
	unsigned restarts = 0;
	uint64_t removed, empty;

	fx_up(&fx, 0, 0, tune);
	empty = mcm_load_relaxed(&fx.m->index.count);
	while (in.p < in.end)
		one(&in, &restarts);
	fx_check(&fx);
	check(mcm_remove_match(fx.m, &all, &removed) == 0);
	check(!mcm_index_count(&fx.m->index) && mcm_load_relaxed(&fx.m->index.count) == empty);
	fx_down(&fx);
	memory_dir_clear();
	return 0;
}
