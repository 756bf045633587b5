/* SPDX-License-Identifier: Apache-2.0
 * test_proto_dump.h - printing of messages as text, to compare them. */
#ifndef TEST_PROTO_DUMP_H
#define TEST_PROTO_DUMP_H

#include <stdio.h>

#include "proto/codec.h"

/* One line of text: "get { flags=1 keys=[{key="a"}] }".  At most @max_items of a list and
 * MCP_DUMP_BYTES of a string are shown; "+N" is the number of those left out.  @msg as for the
 * encoder, or as returned by the decoder. */
#define MCP_DUMP_BYTES 256
void mcp_dump(const struct mcp_desc *d, const void *msg, unsigned max_items, FILE *to);

#endif
