/* SPDX-License-Identifier: Apache-2.0
 * msg.c - field tables from passes over msg.def: fields, descriptors, and descriptors by number. */
#include <config.h>

#include "proto/codec.h"

#include "common/principal.h"
#include "proto/codec_i.h"

#define ROW(s, f, kind, elem)		{ #f, elem, offsetof(struct mcp_##s, f), kind },

#define MCP_STRUCT(name)		static const struct mcp_field fields_##name[] = {
#define MCP_MESSAGE(NAME, name, num, roles)	static const struct mcp_field fields_##name[] = {
#define MCP_REPLY(NAME, name)		static const struct mcp_field fields_##name##_reply[] = {
#define MCP_U8(s, f)			ROW(s, f, MCP_F_U8, NULL)
#define MCP_U16(s, f)			ROW(s, f, MCP_F_U16, NULL)
#define MCP_U32(s, f)			ROW(s, f, MCP_F_U32, NULL)
#define MCP_U64(s, f)			ROW(s, f, MCP_F_U64, NULL)
#define MCP_I32(s, f)			ROW(s, f, MCP_F_I32, NULL)
#define MCP_ID(s, f)			ROW(s, f, MCP_F_ID, NULL)
#define MCP_BYTES(s, f)			ROW(s, f, MCP_F_BYTES, NULL)
#define MCP_LIST(s, f, e)		ROW(s, f, MCP_F_LIST, &mcp_desc_##e)
#define MCP_SINCE(s, v)			{ NULL, NULL, v, MCP_F_SINCE },
#define MCP_OPTIONAL(s, f)		MCP_SINCE(s, 3) ROW(s, f, MCP_F_OPTIONAL, NULL)
#define MCP_END(s)			{ NULL, NULL, 0, MCP_F_END } };
#include "proto/msg_each.h"

#define MCP_STRUCT(name)		extern const struct mcp_elem mcp_elem_##name;
#include "proto/msg_each.h"

#define DESC(name, elem) \
	const struct mcp_desc mcp_desc_##name = { #name, fields_##name, sizeof(struct mcp_##name), elem };
#define MCP_STRUCT(name)		DESC(name, &mcp_elem_##name)
#define MCP_MESSAGE(NAME, name, num, roles)	DESC(name, NULL)
#define MCP_REPLY(NAME, name)		DESC(name##_reply, NULL)
#include "proto/msg_each.h"

static const struct {
	const struct mcp_desc *request, *reply;
	uint32_t roles;
} by_type[] = {
#define MCP_MESSAGE(NAME, name, num, may)	[num].request = &mcp_desc_##name, [num].roles = (may),
#define MCP_REPLY(NAME, name)		[MCP_##NAME].reply = &mcp_desc_##name##_reply,
#include "proto/msg_each.h"
};

const struct mcp_desc *mcp_desc_of(uint16_t type, bool reply)
{
	if (type >= sizeof(by_type) / sizeof(by_type[0]))
		return NULL;
	return reply ? by_type[type].reply : by_type[type].request;
}

uint32_t mcp_roles_of(uint16_t type)
{
	return type < sizeof(by_type) / sizeof(by_type[0]) ? by_type[type].roles : 0;
}
