/* SPDX-License-Identifier: Apache-2.0
 * test_proto_dump.c - implementation of test_proto_dump.h. */
#include <config.h>

#include "tests/unit/test_proto_dump.h"

#include <inttypes.h>

#include "proto/codec_i.h"

static void dump_bytes(const struct mcp_bytes *bytes, FILE *to)
{
	const unsigned char *p = bytes->data;
	uint32_t shown = bytes->len < MCP_DUMP_BYTES ? bytes->len : MCP_DUMP_BYTES;

	fputc('"', to);
	for (uint32_t i = 0; i < shown; i++) {
		if (p[i] == '"' || p[i] == '\\')
			fprintf(to, "\\%c", p[i]);
		else if (p[i] < 0x20 || p[i] >= 0x7f)
			fprintf(to, "\\x%02x", p[i]);
		else
			fputc(p[i], to);
	}
	fputc('"', to);
	if (shown < bytes->len)
		fprintf(to, "+%" PRIu32, bytes->len - shown);
}

static void dump_fields(const struct mcp_desc *d, const void *msg, unsigned max_items, FILE *to);

/* Memory for one decoded element of any list. */
union element {
#define MCP_STRUCT(name)		struct mcp_##name name;
#include "proto/msg_each.h"
};

static void dump_list(const struct mcp_desc *elem, const struct mcp_seq *list, unsigned max_items, FILE *to)
{
	uint32_t shown = list->count < max_items ? list->count : max_items;
	const char *item = list->items;
	struct mcp_iter it;
	union element e;

	mcp_iter_init(&it, list, elem);
	fputc('[', to);
	for (uint32_t i = 0; i < shown; i++) {
		const void *at = item ? item + i * elem->size : (void *)&e;

		if (!item && (elem->size > sizeof(e) || !mcp_iter_next(&it, &e)))
			break;
		fputs(i ? " {" : "{", to);
		dump_fields(elem, at, max_items, to);
		fputc('}', to);
	}
	fputc(']', to);
	if (shown < list->count)
		fprintf(to, "+%" PRIu32, list->count - shown);
}

static void dump_fields(const struct mcp_desc *d, const void *msg, unsigned max_items, FILE *to)
{
	const char *space = "";

	for (const struct mcp_field *f = d->fields; f->kind != MCP_F_END; f++) {
		const void *at = (const char *)msg + f->offset;
		const struct mcp_id *id = at;

		if (f->kind == MCP_F_SINCE || f->kind == MCP_F_OPTIONAL)
			continue;
		fprintf(to, "%s%s=", space, f->name);
		space = " ";
		switch ((enum mcp_field_kind)f->kind) {
		case MCP_F_U8:
			fprintf(to, "%u", *(const uint8_t *)at);
			break;
		case MCP_F_U16:
			fprintf(to, "%u", *(const uint16_t *)at);
			break;
		case MCP_F_U32:
			fprintf(to, "%" PRIu32, *(const uint32_t *)at);
			break;
		case MCP_F_U64:
			fprintf(to, "%" PRIu64, *(const uint64_t *)at);
			break;
		case MCP_F_I32:
			fprintf(to, "%" PRId32, *(const int32_t *)at);
			break;
		case MCP_F_ID:
			fprintf(to, "%016" PRIx64 "%016" PRIx64, id->hi, id->lo);
			break;
		case MCP_F_BYTES:
			dump_bytes(at, to);
			break;
		case MCP_F_LIST:
			dump_list(f->elem, at, max_items, to);
			break;
		case MCP_F_SINCE:
		case MCP_F_OPTIONAL:
		case MCP_F_END:
			break;
		}
	}
}

void mcp_dump(const struct mcp_desc *d, const void *msg, unsigned max_items, FILE *to)
{
	fprintf(to, "%s { ", d->name);
	dump_fields(d, msg, max_items, to);
	fputs(" }", to);
}
