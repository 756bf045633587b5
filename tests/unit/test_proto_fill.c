/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/test_proto_fill.h"

#include <stdlib.h>
#include <string.h>

#include "proto/codec_i.h"

#define LIST_MAX 5
#define BYTES_MAX 40

static const struct mcp_desc *const tables[] = {
#define MCP_STRUCT(name)		&mcp_desc_##name,
#define MCP_MESSAGE(NAME, name, num, roles)	&mcp_desc_##name,
#define MCP_REPLY(NAME, name)		&mcp_desc_##name##_reply,
#include "proto/msg_each.h"
	NULL
};

const struct mcp_desc *fill_table(unsigned i)
{
	return i < sizeof(tables) / sizeof(tables[0]) ? tables[i] : NULL;
}

uint64_t fill_random(struct fill *f)
{
	uint64_t z = f->seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void *allocate(struct fill *f, size_t size)
{
	void **p = calloc(1, sizeof(void *) * 2 + size);

	if (!p)
		abort();
	*p = f->mem;
	f->mem = p;
	return p + 2;
}

void fill_free(struct fill *f)
{
	void **p;

	while ((p = f->mem)) {
		f->mem = *p;
		free(p);
	}
}

/* Plain: bytes 1, 2, 3... so that swapped bytes are detected. */
static uint64_t value(struct fill *f)
{
	static const uint64_t edges[] = { 0, 1, UINT64_MAX, INT64_MAX, 0x80808080 };
	uint64_t v = 0;

	if (f->plain) {
		for (int i = 0; i < 8; i++)
			v |= (++f->count & 0xff) << 8 * i;
		return v;
	}
	return fill_random(f) % 4 ? fill_random(f) : edges[fill_random(f) % 5];
}

static void fill_bytes(struct fill *f, const struct mcp_field *field, struct mcp_bytes *out)
{
	uint32_t len = f->plain ? (uint32_t)strlen(field->name) : (uint32_t)(fill_random(f) % BYTES_MAX);
	char *p = allocate(f, len);

	for (uint32_t i = 0; i < len; i++)
		p[i] = f->plain ? field->name[i] : (char)fill_random(f);
	*out = mcp_bytes(p, len);
}

static void fill_list(struct fill *f, const struct mcp_desc *elem, struct mcp_seq *out)
{
	uint32_t count = f->plain ? 2 : (uint32_t)(fill_random(f) % LIST_MAX);
	char *items = allocate(f, count * elem->size);

	for (uint32_t i = 0; i < count; i++)
		fill_struct(f, elem, items + i * elem->size);
	*out = mcp_seq(items, count);
}

/* Is the field 0 or empty, so that an encoding ends before it if it is optional? */
static bool is_absent(const struct mcp_field *field, const void *at)
{
	static const uint64_t zero;

	return field->kind == MCP_F_BYTES ? !((const struct mcp_bytes *)at)->len :
	       !memcmp(at, &zero, field->kind == MCP_F_U64 ? 8 : 4);
}

void fill_struct(struct fill *f, const struct mcp_desc *d, void *out)
{
	bool optional = false;

	memset(out, 0, d->size);
	for (const struct mcp_field *field = d->fields; field->kind != MCP_F_END; field++) {
		void *at = (char *)out + field->offset;

		if (field->kind == MCP_F_SINCE && f->version && field->offset > f->version)
			return;
		switch ((enum mcp_field_kind)field->kind) {
		case MCP_F_U8:
			*(uint8_t *)at = (uint8_t)value(f);
			break;
		case MCP_F_U16:
			*(uint16_t *)at = (uint16_t)value(f);
			break;
		case MCP_F_U32:
			*(uint32_t *)at = (uint32_t)value(f);
			break;
		case MCP_F_I32:
			*(int32_t *)at = (int32_t)value(f);
			break;
		case MCP_F_U64:
			*(uint64_t *)at = value(f);
			break;
		case MCP_F_ID:
			*(struct mcp_id *)at = (struct mcp_id){ value(f), value(f) };
			break;
		case MCP_F_BYTES:
			fill_bytes(f, field, at);
			break;
		case MCP_F_LIST:
			fill_list(f, field->elem, at);
			break;
		case MCP_F_SINCE:
		case MCP_F_OPTIONAL:
		case MCP_F_END:
			break;
		}
		if (optional && is_absent(field, at))
			return;
		optional = field->kind == MCP_F_OPTIONAL;
	}
}

static size_t width(const struct mcp_field *field)
{
	switch ((enum mcp_field_kind)field->kind) {
	case MCP_F_U8:
		return 1;
	case MCP_F_U16:
		return 2;
	case MCP_F_U32:
	case MCP_F_I32:
		return 4;
	case MCP_F_U64:
		return 8;
	default:
		return sizeof(struct mcp_id);
	}
}

static bool same_list(const struct mcp_desc *elem, const struct mcp_seq *a, const struct mcp_seq *b)
{
	char *x = calloc(1, elem->size), *y = calloc(1, elem->size);
	struct mcp_iter ia, ib;
	bool same = a->count == b->count;

	mcp_iter_init(&ia, a, elem);
	mcp_iter_init(&ib, b, elem);
	for (uint32_t i = 0; i < a->count && same; i++) {
		const char *pa = a->items, *pb = b->items;

		same = (pa || mcp_iter_next(&ia, x)) && (pb || mcp_iter_next(&ib, y)) &&
		       fill_same(elem, pa ? pa + i * elem->size : x, pb ? pb + i * elem->size : y);
	}
	/* A decoded list has no elements beyond its count. */
	same = same && (a->items || !mcp_iter_next(&ia, x)) && (b->items || !mcp_iter_next(&ib, y));
	free(x);
	free(y);
	return same;
}

bool fill_same(const struct mcp_desc *d, const void *a, const void *b)
{
	for (const struct mcp_field *field = d->fields; field->kind != MCP_F_END; field++) {
		const void *x = (const char *)a + field->offset, *y = (const char *)b + field->offset;
		const struct mcp_bytes *bx = x, *by = y;
		bool same = true;

		if (field->kind == MCP_F_BYTES)
			same = bx->len == by->len && (!bx->len || !memcmp(bx->data, by->data, bx->len));
		else if (field->kind == MCP_F_LIST)
			same = same_list(field->elem, x, y);
		else if (field->kind != MCP_F_SINCE && field->kind != MCP_F_OPTIONAL)
			same = !memcmp(x, y, width(field));
		if (!same)
			return false;
	}
	return true;
}
