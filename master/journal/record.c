/* SPDX-License-Identifier: Apache-2.0
 * record.c - encoding and decoding of the journal's records. */
#include <config.h>

#include "master/journal/record.h"

#include <string.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "master/index/links.h"
#include "proto/codec.h"

#define MAGIC 0x4a4du
#define CRC_AT 4u
#define TYPE_AT 8u

/* ---- writing ---- */

/* Inlined with a constant width, the loops of these functions compile to one store or load. */
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS void put_int(struct mcm_packer *p, uint64_t v, unsigned bytes)
{
	if (p->cap - p->len < bytes) {
		p->overflow = true;
		return;
	}
	for (unsigned i = 0; i < bytes; i++)
		p->bytes[p->len + i] = (uint8_t)(v >> 8 * i);
	p->len += bytes;
}

static void put_raw(struct mcm_packer *p, const void *bytes, size_t len)
{
	if (p->cap - p->len < len) {
		p->overflow = true;
		return;
	}
	if (len)
		memcpy(p->bytes + p->len, bytes, len);
	p->len += len;
}

static void put_bytes(struct mcm_packer *p, struct mcp_bytes b)
{
	put_int(p, b.len, 2);
	put_raw(p, b.data, b.len);
}

static void put_id(struct mcm_packer *p, struct mcp_id id)
{
	put_int(p, id.hi, 8);
	put_int(p, id.lo, 8);
}

static void frame_begin(struct mcm_packer *p)
{
	p->len = 0;
	p->overflow = p->cap < MCM_RECORD_HEAD;
	if (!p->overflow)
		p->len = MCM_RECORD_HEAD;
}

ALWAYS void store_int(uint8_t *at, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

static void frame_end(struct mcm_packer *p, enum mcm_record_type type)
{
	size_t body = p->len - MCM_RECORD_HEAD, whole = (p->len + 7) & ~(size_t)7;

	if (p->overflow || body > MCM_RECORD_BODY_MAX || whole > p->cap) {
		p->overflow = true;
		p->len = 0;
		return;
	}
	store_int(p->bytes, MAGIC, 4);
	store_int(p->bytes + TYPE_AT, type | body << 8, 4);
	store_int(p->bytes + CRC_AT, mc_crc32c(p->bytes + TYPE_AT, p->len - TYPE_AT), 4);
	memset(p->bytes + p->len, 0, whole - p->len);
	p->len = whole;
}

static void put_extents(struct mcm_packer *p, const struct mcm_extent_record *e, unsigned n)
{
	unsigned i;

	put_int(p, n, 1);
	for (i = 0; i < n; i++) {
		put_int(p, e[i].segment, 2);
		put_int(p, e[i].at, 5);
		put_int(p, e[i].len, 5);
	}
}

void mcm_pack_header(struct mcm_packer *p, const struct mcm_header_record *r)
{
	frame_begin(p);
	put_int(p, MCM_RECORD_VERSION, 4);
	put_int(p, r->sequence, 8);
	put_int(p, r->generation, 8);
	put_int(p, r->wall_ms, 8);
	put_int(p, r->checkpoint, 1);
	put_int(p, r->synced, 1);
	put_raw(p, r->boot, MCM_BOOT_ID);
	put_bytes(p, r->cluster);
	put_int(p, r->seed, 8);
	frame_end(p, MCM_REC_HEADER);
}

/* Its own length first: later versions add fields at its end. */
#define ATTRS_FIXED (2u + 2u + 4u + 4u + 4u + 8u + 8u)
#define ATTRS_INO 8u		/* behind them, since inode numbers are stored */

static void put_attrs(struct mcm_packer *p, const struct mcm_attrs_value *v)
{
	put_int(p, ATTRS_FIXED + ATTRS_INO, 1);
	put_int(p, v->set, 2);
	put_int(p, v->mode, 2);
	put_int(p, v->uid, 4);
	put_int(p, v->gid, 4);
	put_int(p, v->rdev, 4);
	put_int(p, v->mtime_ns, 8);
	put_int(p, v->ctime_ns, 8);
	put_int(p, v->ino, 8);
	put_bytes(p, v->xattrs);
}

/* An earlier master would take a name for an empty file: a flag that it does not know makes it refuse the record.
 * Called behind the fields, so that the record of another object needs no instruction more. */
static __attribute__((noinline)) void put_name(struct mcm_packer *p, const struct mcm_object_record *r)
{
	size_t behind = 1 + 12u * r->copies + 2 + r->key_len + 8 + 2 + r->group.len + 1 + 1 + 2 + 4;

	if (!p->overflow)
		p->bytes[p->len - behind - 1] |= MCM_RECORD_NAME;
}

static void put_object(struct mcm_packer *p, const struct mcm_object_record *r)
{
	bool attrs;

	put_int(p, r->generation, 8);
	put_int(p, r->size, 8);
	put_int(p, r->mtime_ms, 8);
	put_int(p, r->crc, 4);
	put_int(p, r->flags, 1);
	put_extents(p, r->extent, r->copies);
	put_int(p, r->key_len, 2);
	put_raw(p, r->key, r->key_len);
	/* fields that few objects have, or that later versions added */
	put_int(p, r->soft_until_ms, 8);
	put_bytes(p, r->group);
	put_int(p, r->data_type, 1);
	attrs = r->attrs.set || r->attrs.xattrs.len;
	if (r->reads || r->traits || attrs)
		put_int(p, r->reads, 1);
	if (r->traits || attrs) {
		put_int(p, r->traits, 2);
		put_int(p, r->age, 4);
	}
	if (attrs && r->attrs.set & MCM_ATTR_NAME)
		put_name(p, r);
	if (attrs)
		put_attrs(p, &r->attrs);
}

void mcm_pack_object(struct mcm_packer *p, const struct mcm_object_record *r)
{
	frame_begin(p);
	put_object(p, r);
	frame_end(p, MCM_REC_OBJECT);
}

void mcm_pack_renamed(struct mcm_packer *p, struct mcp_bytes from, const struct mcm_object_record *r)
{
	frame_begin(p);
	put_bytes(p, from);
	put_object(p, r);
	frame_end(p, MCM_REC_RENAMED);
}

void mcm_pack_object_gone(struct mcm_packer *p, struct mcp_bytes key)
{
	frame_begin(p);
	put_bytes(p, key);
	frame_end(p, MCM_REC_OBJECT_GONE);
}

void mcm_pack_put(struct mcm_packer *p, const struct mcm_put_record *r)
{
	frame_begin(p);
	put_int(p, r->generation, 8);
	put_extents(p, r->extent, r->copies);
	frame_end(p, MCM_REC_PUT);
}

void mcm_pack_number(struct mcm_packer *p, enum mcm_record_type type, uint64_t v)
{
	frame_begin(p);
	put_int(p, v, 8);
	frame_end(p, type);
}

void mcm_pack_segment(struct mcm_packer *p, const struct mcm_segment_record *r)
{
	frame_begin(p);
	put_int(p, r->index, 2);
	put_id(p, r->id);
	put_id(p, r->client);
	put_int(p, r->epoch, 8);
	put_int(p, r->base, 8);
	put_int(p, r->rkey, 8);
	put_int(p, r->size, 8);
	put_bytes(p, r->name);
	put_bytes(p, r->endpoint);
	put_bytes(p, r->protocol);
	put_int(p, r->medium, 1);
	put_int(p, r->high, 1);
	put_int(p, r->low, 1);
	put_int(p, r->policy, 1);
	put_int(p, r->unproven, 1);
	put_int(p, r->tenant, 2);
	frame_end(p, MCM_REC_SEGMENT);
}

void mcm_pack_durable(struct mcm_packer *p, const struct mcm_durable_record *r)
{
	frame_begin(p);
	put_int(p, r->kind, 2);
	put_bytes(p, r->name);
	put_bytes(p, r->value);
	frame_end(p, MCM_REC_DURABLE);
}

void mcm_pack_durable_gone(struct mcm_packer *p, uint16_t kind, struct mcp_bytes name)
{
	frame_begin(p);
	put_int(p, kind, 2);
	put_bytes(p, name);
	frame_end(p, MCM_REC_DURABLE_GONE);
}

/* ---- reading ---- */

ALWAYS uint64_t load_int(const uint8_t *at, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)at[i] << 8 * i;
	return v;
}

size_t mcm_record_next(const uint8_t *p, size_t len, struct mcm_record *ret)
{
	uint32_t word, body;
	size_t whole;

	if (len < MCM_RECORD_HEAD || load_int(p, 4) != MAGIC)
		return 0;
	word = (uint32_t)load_int(p + TYPE_AT, 4);
	body = word >> 8;
	whole = (MCM_RECORD_HEAD + (size_t)body + 7) & ~(size_t)7;
	if (body > MCM_RECORD_BODY_MAX || whole > len ||
	    load_int(p + CRC_AT, 4) != mc_crc32c(p + TYPE_AT, MCM_RECORD_HEAD - TYPE_AT + body))
		return 0;
	*ret = (struct mcm_record){ (enum mcm_record_type)(word & 0xff), p + MCM_RECORD_HEAD, body };
	return whole;
}

size_t mcm_record_resync(const uint8_t *p, size_t len, size_t from)
{
	struct mcm_record r;

	for (from = (from + 7) & ~(size_t)7; from < len; from += 8)
		if (mcm_record_next(p + from, len - from, &r))
			return from;
	return len;
}

/* Reading position in a body. */
struct cursor {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static struct cursor cursor_of(const struct mcm_record *r)
{
	return (struct cursor){ r->body, r->len, false };
}

ALWAYS uint64_t get_int(struct cursor *c, unsigned bytes)
{
	uint64_t v;

	if (c->left < bytes) {
		c->bad = true;
		return 0;
	}
	v = load_int(c->p, bytes);
	c->p += bytes;
	c->left -= bytes;
	return v;
}

/* Read a field that older versions did not write. */
static uint64_t get_late(struct cursor *c, unsigned bytes)
{
	return c->left ? get_int(c, bytes) : 0;
}

static struct mcp_bytes get_bytes(struct cursor *c)
{
	uint32_t len = (uint32_t)get_int(c, 2);
	struct mcp_bytes b;

	if (c->left < len) {
		c->bad = true;
		len = 0;
	}
	b = mcp_bytes(c->p, len);
	c->p += len;
	c->left -= len;
	return b;
}

static struct mcp_id get_id(struct cursor *c)
{
	struct mcp_id id;

	id.hi = get_int(c, 8);
	id.lo = get_int(c, 8);
	return id;
}

static int cursor_result(const struct cursor *c, const char *what)
{
	return c->bad ? mc_fail(-MC_EPROTO, "malformed record: %s", what) : 0;
}

static uint8_t get_extents(struct cursor *c, struct mcm_extent_record ret[MCM_REPLICA_MAX])
{
	unsigned n = (unsigned)get_int(c, 1), i;

	if (n > MCM_REPLICA_MAX) {
		c->bad = true;
		return 0;
	}
	for (i = 0; i < n; i++) {
		ret[i].segment = (uint16_t)get_int(c, 2);
		ret[i].at = get_int(c, 5);
		ret[i].len = get_int(c, 5);
		if (!ret[i].len)
			c->bad = true;
	}
	return (uint8_t)n;
}

int mcm_unpack_header(const struct mcm_record *r, struct mcm_header_record *ret)
{
	struct cursor c = cursor_of(r);
	uint64_t version = get_int(&c, 4);
	unsigned i;

	if (r->type != MCM_REC_HEADER)
		return mc_fail(-MC_EPROTO, "first record that is not a header");
	if (!c.bad && (!version || version > MCM_RECORD_VERSION))
		return mc_fail(-MC_EVERSION, "format version %u, but this master reads versions up to %u",
			       (unsigned)version, MCM_RECORD_VERSION);
	memset(ret, 0, sizeof(*ret));
	ret->sequence = get_int(&c, 8);
	ret->generation = get_int(&c, 8);
	ret->wall_ms = get_int(&c, 8);
	ret->checkpoint = (uint8_t)get_int(&c, 1);
	ret->synced = (uint8_t)get_int(&c, 1);
	for (i = 0; i < MCM_BOOT_ID; i++)
		ret->boot[i] = (uint8_t)get_int(&c, 1);
	ret->cluster = get_bytes(&c);
	/* Files from before version 1 have no seed, and object records in another format. */
	if (!c.bad && !c.left)
		return mc_fail(-MC_EVERSION, "format older than version 1, which this master cannot read");
	ret->seed = get_int(&c, 8);
	return cursor_result(&c, "header");
}

static void get_attrs(struct cursor *c, struct mcm_attrs_value *ret)
{
	unsigned fixed = (unsigned)get_int(c, 1);

	if (fixed < ATTRS_FIXED || fixed > c->left) {
		c->bad = true;
		return;
	}
	ret->set = (uint16_t)get_int(c, 2);
	ret->mode = (uint16_t)get_int(c, 2);
	ret->uid = (uint32_t)get_int(c, 4);
	ret->gid = (uint32_t)get_int(c, 4);
	ret->rdev = (uint32_t)get_int(c, 4);
	ret->mtime_ns = get_int(c, 8);
	ret->ctime_ns = get_int(c, 8);
	fixed -= ATTRS_FIXED;
	if (fixed >= ATTRS_INO) {
		ret->ino = get_int(c, 8);
		fixed -= ATTRS_INO;
	}
	/* An earlier master copies the bit, but not the number. */
	if (!ret->ino)
		ret->set &= (uint16_t)~MCP_ATTR_INO;
	c->p += fixed;
	c->left -= fixed;
	ret->xattrs = get_bytes(c);
	if (!mcm_xattrs_ok(ret->xattrs))
		c->bad = true;
}

static bool is_shared_object(const struct mcm_object_record *r)
{
	const struct mcm_link_id id = { r->attrs.ino, mcm_key_tenant(r->key, r->key_len) };

	return id.ino && mcm_link_is_key(id, mcp_bytes(r->key, r->key_len));
}

static void get_object(struct cursor *c, struct mcm_object_record *ret)
{
	memset(ret, 0, offsetof(struct mcm_object_record, extent));
	ret->generation = get_int(c, 8);
	ret->size = get_int(c, 8);
	ret->mtime_ms = get_int(c, 8);
	ret->crc = (uint32_t)get_int(c, 4);
	ret->flags = (uint8_t)get_int(c, 1);
	ret->copies = get_extents(c, ret->extent);
	ret->key_len = (uint32_t)get_int(c, 2);
	if (ret->key_len > c->left || !mcm_key_ok(mcp_bytes(c->p, ret->key_len))) {
		c->bad = true;
		return;
	}
	ret->key = (const char *)c->p;
	c->p += ret->key_len;
	c->left -= ret->key_len;
	ret->soft_until_ms = get_late(c, 8);
	if (c->left)
		ret->group = get_bytes(c);
	ret->data_type = (uint8_t)get_late(c, 1);
	ret->reads = get_late(c, 1) & (MCM_MARKS_OF_READS | MCM_RECORD_ADOPTED);
	ret->traits = (uint16_t)get_late(c, 2);
	ret->age = (uint32_t)get_late(c, 4);
	if (c->left)
		get_attrs(c, &ret->attrs);
	/* An earlier master copies the bit too, without the number or to another key: that ended the sharing. */
	if (ret->attrs.set & MCP_ATTR_LINKED && !is_shared_object(ret))
		ret->attrs.set &= (uint16_t)~MCP_ATTR_LINKED;
	if (!(ret->flags & MCM_RECORD_NAME) != !(ret->attrs.set & MCM_ATTR_NAME) ||
	    (ret->attrs.set & MCM_ATTR_NAME && !ret->attrs.ino))
		c->bad = true;
	ret->flags &= (uint8_t)~MCM_RECORD_NAME;
	if (ret->flags & ~(MCM_OBJ_KIND | MCM_OBJ_HARD | MCM_OBJ_SOFT) ||
	    ret->size > MCM_SIZE_MAX || (ret->size && !ret->copies) ||
	    ret->group.len > MCM_GROUP_NAME_MAX || ret->data_type >= MCP_DATA_TYPES)
		c->bad = true;
}

int mcm_unpack_object(const struct mcm_record *r, struct mcm_object_record *ret)
{
	struct cursor c = cursor_of(r);

	get_object(&c, ret);
	return cursor_result(&c, "object");
}

static void check_key(struct cursor *c, struct mcp_bytes key)
{
	if (!mcm_key_ok(key))
		c->bad = true;
}

int mcm_unpack_renamed(const struct mcm_record *r, struct mcp_bytes *ret_from,
		       struct mcm_object_record *ret)
{
	struct cursor c = cursor_of(r);

	*ret_from = get_bytes(&c);
	check_key(&c, *ret_from);
	get_object(&c, ret);
	return cursor_result(&c, "renamed object");
}

int mcm_unpack_key(const struct mcm_record *r, struct mcp_bytes *ret)
{
	struct cursor c = cursor_of(r);

	*ret = get_bytes(&c);
	check_key(&c, *ret);
	return cursor_result(&c, "key");
}

int mcm_unpack_put(const struct mcm_record *r, struct mcm_put_record *ret)
{
	struct cursor c = cursor_of(r);

	ret->generation = get_int(&c, 8);
	ret->copies = get_extents(&c, ret->extent);
	return cursor_result(&c, "put");
}

int mcm_unpack_number(const struct mcm_record *r, uint64_t *ret)
{
	struct cursor c = cursor_of(r);

	*ret = get_int(&c, 8);
	return cursor_result(&c, "number");
}

int mcm_unpack_segment(const struct mcm_record *r, struct mcm_segment_record *ret)
{
	struct cursor c = cursor_of(r);

	ret->index = (uint16_t)get_int(&c, 2);
	ret->id = get_id(&c);
	ret->client = get_id(&c);
	ret->epoch = get_int(&c, 8);
	ret->base = get_int(&c, 8);
	ret->rkey = get_int(&c, 8);
	ret->size = get_int(&c, 8);
	ret->name = get_bytes(&c);
	ret->endpoint = get_bytes(&c);
	ret->protocol = get_bytes(&c);
	ret->medium = (uint8_t)get_late(&c, 1);
	ret->high = (uint8_t)get_late(&c, 1);
	ret->low = (uint8_t)get_late(&c, 1);
	ret->policy = (uint8_t)get_late(&c, 1);
	ret->unproven = (uint8_t)get_late(&c, 1);
	ret->tenant = (uint16_t)get_late(&c, 2);
	return cursor_result(&c, "segment");
}

int mcm_unpack_durable(const struct mcm_record *r, struct mcm_durable_record *ret)
{
	struct cursor c = cursor_of(r);

	ret->kind = (uint16_t)get_int(&c, 2);
	ret->name = get_bytes(&c);
	ret->value = mcp_bytes(c.p, 0);
	if (r->type == MCM_REC_DURABLE)
		ret->value = get_bytes(&c);
	return cursor_result(&c, "durable value");
}
