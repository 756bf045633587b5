/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "proto/codec.h"

static const struct mcp_frame frame = {
	.length = 0x04030201, .type = 0x0605, .flags = MCP_FRAME_REPLY, .id = 0x0c0b0a09,
	.status = -2,
};
static const uint8_t packed[MCP_FRAME_HEADER] = {
	1, 2, 3, 4, 5, 6, 1, 0, 9, 10, 11, 12, 0xfe, 0xff, 0xff, 0xff
};

static void header_is_16_bytes_little_endian(void **state)
{
	uint8_t out[MCP_FRAME_HEADER];
	struct mcp_frame back;

	mcp_frame_pack(&frame, out);
	assert_memory_equal(out, packed, sizeof(packed));
	assert_int_equal(mcp_frame_unpack(out, UINT32_MAX, &back), 0);
	assert_int_equal(back.length, frame.length);
	assert_int_equal(back.type, frame.type);
	assert_int_equal(back.flags, frame.flags);
	assert_int_equal(back.id, frame.id);
	assert_int_equal(back.status, frame.status);
}

static void bad_headers_are_refused(void **state)
{
	struct mcp_frame back = { .id = 77 };
	uint8_t in[MCP_FRAME_HEADER];

	memcpy(in, packed, sizeof(in));
	assert_int_equal(mcp_frame_unpack(in, frame.length, &back), 0);
	back.id = 77;
	assert_int_equal(mcp_frame_unpack(in, frame.length - 1, &back), -MC_EPROTO);
	assert_non_null(strstr(mc_err_detail(-MC_EPROTO), "67305985"));
	for (unsigned bit = 2; bit < 16; bit++) {
		in[6] = (uint8_t)(1u << bit);
		in[7] = (uint8_t)(1u << bit >> 8);
		assert_int_equal(mcp_frame_unpack(in, UINT32_MAX, &back), -MC_EPROTO);
	}
	assert_int_equal(back.id, 77);
	in[6] = MCP_FRAME_REPLY | MCP_FRAME_ONEWAY;
	in[7] = 0;
	assert_int_equal(mcp_frame_unpack(in, UINT32_MAX, &back), 0);
}

static void frames_are_appended_whole_or_not(void **state)
{
	struct mcp_exist bad = { .keys = mcp_seq(NULL, 1) };
	struct mcp_pin pin = { 0x0807060504030201 };
	struct mcp_release release = { .pins = mcp_seq(&pin, 1) };
	static const uint8_t want[] = {
		20, 0, 0, 0, 24, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		1, 0, 0, 0, 12, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
		0, 0, 0, 0, 13, 0, 1, 0, 5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
	};
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_RELEASE,
		.flags = MCP_FRAME_ONEWAY }, &mcp_desc_release, &release), 0);
	assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_EXIST },
					  &mcp_desc_exist, &bad), -MC_EPARAM);
	assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_STATS,
		.flags = MCP_FRAME_REPLY, .id = 5, .status = -1 }, NULL, NULL), 0);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	mcp_buf_reset(&b);
	assert_int_equal(b.len, 0);
	assert_non_null(b.data);
	mcp_buf_free(&b);
}

static void buffers_grow_and_know_their_limit(void **state)
{
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_buf_reserve(&b, 1), 0);
	b.len = 1;
	assert_int_equal(mcp_buf_reserve(&b, 100000), 0);
	assert_true(b.cap >= 100001);
	assert_true(mcp_buf_reserve(&b, SIZE_MAX) < 0);
	assert_true(mcp_buf_reserve(&b, SIZE_MAX / 2 + 1) < 0);
	assert_int_equal(b.len, 1);
	mcp_buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_is_16_bytes_little_endian),
		cmocka_unit_test(bad_headers_are_refused),
		cmocka_unit_test(frames_are_appended_whole_or_not),
		cmocka_unit_test(buffers_grow_and_know_their_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
