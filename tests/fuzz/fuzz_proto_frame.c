/* SPDX-License-Identifier: Apache-2.0
 * fuzz_proto_frame.c - a stream of frames, as a receiver splits it. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"

#define LIMIT 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[MCP_FRAME_HEADER];
	uint64_t msg[128];
	struct mcp_frame f;
	size_t at = 0;

	while (size - at >= MCP_FRAME_HEADER) {
		const struct mcp_desc *d;

		if (mcp_frame_unpack(data + at, LIMIT, &f) < 0)
			break;
		if (f.length > LIMIT || f.flags & ~(MCP_FRAME_REPLY | MCP_FRAME_ONEWAY))
			abort();
		mcp_frame_pack(&f, again);
		if (memcmp(again, data + at, sizeof(again)))
			abort();
		at += MCP_FRAME_HEADER;
		if (size - at < f.length)
			break;
		d = mcp_desc_of(f.type, f.flags & MCP_FRAME_REPLY);
		if (d)
			(void)mcp_decode(d, data + at, f.length, msg);
		at += f.length;
	}
	return 0;
}
