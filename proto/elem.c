/* SPDX-License-Identifier: Apache-2.0
 * elem.c - straight-line code for the elements of lists, from four passes over msg.def.
 *
 * Most of a large message is the elements of its lists.  The interpreters of codec.c need some twenty instructions per
 * field; these functions need three.  They do the same for valid input.  For other input measure() and check() only
 * return false: then the interpreter names the wrong field.  Messages and replies open functions here too, which the
 * compiler drops. */
#include <config.h>

#include "proto/codec.h"

#include "proto/codec_i.h"

#define DROPPED __attribute__((unused)) static
/* Is the field that follows an MCP_OPTIONAL sent? */
#define mcp_optional(f)	_Generic((f), struct mcp_bytes: mcp_optional_bytes, default: mcp_optional_int)(f)

static inline bool mcp_optional_bytes(struct mcp_bytes b)
{
	return b.len;
}

static inline bool mcp_optional_int(uint64_t v)
{
	return v;
}

/* ---- measure ---- */

#define BEGIN(name) bool measure_##name(const void *msg, uint64_t *size) \
	{ const struct mcp_##name *m = msg; uint64_t n = 0; (void)m;
#define MCP_STRUCT(name)		static BEGIN(name)
#define MCP_MESSAGE(NAME, name, num, roles)	DROPPED BEGIN(name)
#define MCP_REPLY(NAME, name)		DROPPED BEGIN(name##_reply)
#define MCP_U8(s, f)			n += 1;
#define MCP_U16(s, f)			n += 2;
#define MCP_U32(s, f)			n += 4;
#define MCP_U64(s, f)			n += 8;
#define MCP_I32(s, f)			n += 4;
#define MCP_ID(s, f)			n += 16;
#define MCP_BYTES(s, f)			if (m->f.len && !m->f.data) return false; n += 4ull + m->f.len;
#define MCP_LIST(s, f, e)		n += 8; \
	if (m->f.count && !mcp_list_measure(&mcp_desc_##e, &m->f, &n)) return false;
#define MCP_OPTIONAL(s, f)		if (!mcp_optional(m->f)) { *size += n; return true; }
#define MCP_END(s)			*size += n; return true; }
#include "proto/msg_each.h"
#undef BEGIN

/* ---- write ---- */

#define BEGIN(name) uint8_t *write_##name(const void *msg, uint8_t *p) { const struct mcp_##name *m = msg; (void)m;
#define MCP_STRUCT(name)		static BEGIN(name)
#define MCP_MESSAGE(NAME, name, num, roles)	DROPPED BEGIN(name)
#define MCP_REPLY(NAME, name)		DROPPED BEGIN(name##_reply)
#define MCP_U8(s, f)			*p++ = m->f;
#define MCP_U16(s, f)			mcp_put_u16(p, m->f); p += 2;
#define MCP_U32(s, f)			mcp_put_u32(p, m->f); p += 4;
#define MCP_U64(s, f)			mcp_put_u64(p, m->f); p += 8;
#define MCP_I32(s, f)			mcp_put_u32(p, (uint32_t)m->f); p += 4;
#define MCP_ID(s, f)			mcp_put_u64(p, m->f.hi); mcp_put_u64(p + 8, m->f.lo); p += 16;
#define MCP_BYTES(s, f)			mcp_put_u32(p, m->f.len); p += 4; \
	if (m->f.len) memcpy(p, m->f.data, m->f.len); \
	p += m->f.len;
#define MCP_LIST(s, f, e)		if (m->f.count) p = mcp_list_write(&mcp_desc_##e, &m->f, p); \
	else { mcp_put_u64(p, 0); p += 8; }
#define MCP_OPTIONAL(s, f)		if (!mcp_optional(m->f)) return p;
#define MCP_END(s)			return p; }
#include "proto/msg_each.h"
#undef BEGIN

/* ---- check ---- */

#define SKIP(bytes)			if (end - p < (bytes)) return false; p += (bytes);
#define BEGIN(name) bool check_##name(const uint8_t *p, const uint8_t *end) {
#define MCP_STRUCT(name)		static BEGIN(name)
#define MCP_MESSAGE(NAME, name, num, roles)	DROPPED BEGIN(name)
#define MCP_REPLY(NAME, name)		DROPPED BEGIN(name##_reply)
#define MCP_U8(s, f)			SKIP(1)
#define MCP_U16(s, f)			SKIP(2)
#define MCP_U32(s, f)			SKIP(4)
#define MCP_U64(s, f)			SKIP(8)
#define MCP_I32(s, f)			SKIP(4)
#define MCP_ID(s, f)			SKIP(16)
#define MCP_BYTES(s, f)			SKIP(4) SKIP(mcp_get_u32(p - 4))
#define MCP_LIST(s, f, e)		SKIP(8) \
	if (mcp_get_u64(p - 8) && !mcp_list_check(&mcp_desc_##e, &p, end)) return false;
#define MCP_SINCE(s, v)			if (p == end) return true;
#define MCP_OPTIONAL(s, f)		MCP_SINCE(s, 0)
#define MCP_END(s)			return true; }
#include "proto/msg_each.h"
#undef BEGIN
#undef SKIP

/* ---- load ---- */

#define BEGIN(name) void load_##name(const uint8_t *p, const uint8_t *end, void *out) \
	{ struct mcp_##name *m = out; (void)p; (void)end; *m = (struct mcp_##name){ 0 };
#define MCP_STRUCT(name)		static BEGIN(name)
#define MCP_MESSAGE(NAME, name, num, roles)	DROPPED BEGIN(name)
#define MCP_REPLY(NAME, name)		DROPPED BEGIN(name##_reply)
#define MCP_U8(s, f)			m->f = *p++;
#define MCP_U16(s, f)			m->f = mcp_get_u16(p); p += 2;
#define MCP_U32(s, f)			m->f = mcp_get_u32(p); p += 4;
#define MCP_U64(s, f)			m->f = mcp_get_u64(p); p += 8;
#define MCP_I32(s, f)			m->f = (int32_t)mcp_get_u32(p); p += 4;
#define MCP_ID(s, f)			m->f = (struct mcp_id){ mcp_get_u64(p), mcp_get_u64(p + 8) }; p += 16;
#define MCP_BYTES(s, f)			m->f.len = mcp_get_u32(p); m->f.data = p + 4; p += 4 + m->f.len;
#define MCP_LIST(s, f, e)		m->f.count = mcp_get_u32(p); m->f.raw_len = mcp_get_u32(p + 4); \
	m->f.raw = p + 8; p += 8 + m->f.raw_len;
#define MCP_SINCE(s, v)			if (p == end) return;
#define MCP_OPTIONAL(s, f)		MCP_SINCE(s, 0)
#define MCP_END(s)			}
#include "proto/msg_each.h"
#undef BEGIN

#define MCP_STRUCT(name) \
	const struct mcp_elem mcp_elem_##name = { measure_##name, write_##name, check_##name, load_##name };
#include "proto/msg_each.h"
