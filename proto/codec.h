/* SPDX-License-Identifier: Apache-2.0
 * codec.h - frames; encoder, decoder and dumper of messages, which walk the field tables made from msg.def.
 *
 * A frame on the wire, little-endian:
 *	u32 length	of the body that follows the 16-byte header
 *	u16 type	enum mcp_type; the reply carries the request's
 *	u16 flags	MCP_FRAME_*
 *	u32 id		chosen by the requester, echoed by the reply; 0 for one-way frames
 *	i32 status	replies: mc_err_to_wire(), only 0 has a body; requests: 0 */
#ifndef MCP_CODEC_H
#define MCP_CODEC_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/msg.h"

#define MCP_FRAME_HEADER 16
#define MCP_FRAME_REPLY 0x1u
#define MCP_FRAME_ONEWAY 0x2u
#define MCP_FRAME_MAX (64u << 20)	/* default limit of a body */

struct mcp_desc;			/* field table of one struct */

/* Tables by struct name: mcp_desc_get, mcp_desc_get_reply, mcp_desc_key... */
#define MCP_STRUCT(name)		extern const struct mcp_desc mcp_desc_##name;
#define MCP_MESSAGE(NAME, name, num, roles)	extern const struct mcp_desc mcp_desc_##name;
#define MCP_REPLY(NAME, name)		extern const struct mcp_desc mcp_desc_##name##_reply;
#include "proto/msg_each.h"

/* Table of a request's or reply's body; NULL for an unknown type (or a one-way message's reply). */
const struct mcp_desc *mcp_desc_of(uint16_t type, bool reply);
/* The MC_ROLE_* that may send requests of the type (column of msg.def); 0: there is no such type. */
uint32_t mcp_roles_of(uint16_t type);
const char *mcp_desc_str(const struct mcp_desc *d);

/* A growing output buffer.  { 0 } is empty; the memory is kept for reuse by mcp_buf_reset(). */
struct mcp_buf {
	uint8_t *data;
	size_t len, cap;
};
int mcp_buf_reserve(struct mcp_buf *b, size_t more);	/* -ENOMEM */
void mcp_buf_reset(struct mcp_buf *b);
void mcp_buf_free(struct mcp_buf *b);

/* Append the encoding of @msg (a struct of table @d).  Lists may be arrays or as returned by the
 * decoder.  -ENOMEM, or -MC_EPARAM when a list is longer than MCP_BATCH_MAX; @b is unchanged then. */
int mcp_encode(const struct mcp_desc *d, const void *msg, struct mcp_buf *b);

/* Decode @len bytes into @ret (a struct of table @d), which borrows from @data.  Everything is
 * checked first, including lists and their elements; otherwise -MC_EPROTO with a detail that names
 * the field, and @ret is untouched.  Bytes behind the last known field are skipped.  A body may end
 * at an MCP_SINCE; the fields behind it are then 0 or empty. */
int mcp_decode(const struct mcp_desc *d, const void *data, size_t len, void *ret);

/* Iterator over the elements of a decoded list. */
struct mcp_iter {
	const struct mcp_desc *d;
	const uint8_t *p, *end;
};
/* @d is the element's table. */
void mcp_iter_init(struct mcp_iter *it, const struct mcp_seq *list, const struct mcp_desc *d);
bool mcp_iter_next(struct mcp_iter *it, void *ret_elem);
/* The same, for elements that have one byte string: struct mcp_key. */
static inline bool mcp_iter_next_bytes(struct mcp_iter *it, struct mcp_bytes *ret)
{
	uint32_t elem, len;

	if (it->p == it->end)
		return false;
	memcpy(&elem, it->p, sizeof(elem));
	memcpy(&len, it->p + 4, sizeof(len));
	ret->data = it->p + 8;
	ret->len = le32toh(len);
	it->p += 4 + (size_t)le32toh(elem);
	return true;
}

/* ---- frames ---- */

struct mcp_frame {
	uint32_t length;
	uint16_t type;
	uint16_t flags;
	uint32_t id;
	int32_t status;
};

void mcp_frame_pack(const struct mcp_frame *f, uint8_t out[MCP_FRAME_HEADER]);
/* -MC_EPROTO for unknown flags or a length over @max_frame. */
int mcp_frame_unpack(const uint8_t in[MCP_FRAME_HEADER], uint32_t max_frame, struct mcp_frame *ret);
/* Append a whole frame: header and encoded body (@d NULL: no body). */
int mcp_frame_append(struct mcp_buf *b, struct mcp_frame f, const struct mcp_desc *d, const void *msg);

/* A replica without a capability; its mac counts only with expires_s, and stays undefined. */
static inline void mcp_replica_set(struct mcp_replica *r, struct mcp_id segment, uint64_t offset, uint8_t state,
				   uint8_t medium)
{
	r->segment = segment;
	r->offset = offset;
	r->state = state;
	r->medium = medium;
	r->expires_s = 0;
}
/* The mac of a replica, as the 16 bytes of the signature. */
static inline void mcp_mac_get(struct mcp_id mac, uint8_t ret[16])
{
	const uint64_t words[2] = { htole64(mac.hi), htole64(mac.lo) };

	memcpy(ret, words, sizeof(words));
}
static inline struct mcp_id mcp_mac(const uint8_t mac[16])
{
	uint64_t words[2];

	memcpy(words, mac, sizeof(words));
	return (struct mcp_id){ le64toh(words[0]), le64toh(words[1]) };
}
static inline struct mcp_bytes mcp_bytes(const void *data, size_t len)
{
	return (struct mcp_bytes){ data, (uint32_t)len };
}
static inline struct mcp_seq mcp_seq(const void *items, size_t count)
{
	return (struct mcp_seq){ (uint32_t)count, 0, items, NULL };
}
static inline bool mcp_id_eq(struct mcp_id a, struct mcp_id b)
{
	return a.hi == b.hi && a.lo == b.lo;
}
static inline bool mcp_id_zero(struct mcp_id a)
{
	return !a.hi && !a.lo;
}

#endif
