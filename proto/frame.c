/* SPDX-License-Identifier: Apache-2.0
 * frame.c - encoding and decoding of frame headers. */
#include <config.h>

#include "proto/codec.h"

#include "common/err.h"
#include "proto/codec_i.h"

void mcp_frame_pack(const struct mcp_frame *f, uint8_t out[MCP_FRAME_HEADER])
{
	mcp_put_u32(out, f->length);
	mcp_put_u16(out + 4, f->type);
	mcp_put_u16(out + 6, f->flags);
	mcp_put_u32(out + 8, f->id);
	mcp_put_u32(out + 12, (uint32_t)f->status);
}

int mcp_frame_unpack(const uint8_t in[MCP_FRAME_HEADER], uint32_t max_frame, struct mcp_frame *ret)
{
	struct mcp_frame f = {
		.length = mcp_get_u32(in),
		.type = mcp_get_u16(in + 4),
		.flags = mcp_get_u16(in + 6),
		.id = mcp_get_u32(in + 8),
		.status = (int32_t)mcp_get_u32(in + 12),
	};

	if (f.flags & ~(MCP_FRAME_REPLY | MCP_FRAME_ONEWAY))
		return mc_fail(-MC_EPROTO, "malformed frame: unknown flags %#x", f.flags);
	if (f.length > max_frame)
		return mc_fail(-MC_EPROTO, "malformed frame: %u bytes, %u allowed", f.length, max_frame);
	*ret = f;
	return 0;
}

int mcp_frame_append(struct mcp_buf *b, struct mcp_frame f, const struct mcp_desc *d, const void *msg)
{
	size_t at = b->len;
	int r;

	r = mcp_buf_reserve(b, MCP_FRAME_HEADER);
	if (r < 0)
		return r;
	b->len += MCP_FRAME_HEADER;
	if (d) {
		r = mcp_encode(d, msg, b);
		if (r < 0) {
			b->len = at;
			return r;
		}
	}
	f.length = (uint32_t)(b->len - at - MCP_FRAME_HEADER);
	mcp_frame_pack(&f, b->data + at);
	return 0;
}
