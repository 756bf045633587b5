/* SPDX-License-Identifier: Apache-2.0
 * fuzz_proto_codec.c - the decoder of every message.  Input: message type, 1 for its reply, the
 * body.  A decoded message must be readable to its end, and be the same after encoding and decoding
 * it again. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>

#include "proto/codec.h"
#include "tests/unit/test_proto_dump.h"
#include "tests/unit/test_proto_fill.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger than every message struct, aligned for each. */
union message {
	char bytes[1024];
	uint64_t aligned;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *null;
	const struct mcp_desc *d;
	struct mcp_buf b = { 0 };
	union message msg, back;

	if (!null && !(null = fopen("/dev/null", "w")))
		abort();
	d = size >= 2 ? mcp_desc_of(data[0], data[1] & 1) : NULL;
	if (!d || mcp_decode(d, data + 2, size - 2, &msg) < 0)
		return 0;
	mcp_dump(d, &msg, UINT32_MAX, null);
	if (mcp_encode(d, &msg, &b) < 0 || mcp_decode(d, b.data, b.len, &back) < 0 ||
	    !fill_same(d, &msg, &back))
		abort();
	mcp_buf_free(&b);
	return 0;
}
