/* SPDX-License-Identifier: Apache-2.0
 * msg_undef.h - forget the macros of one pass over msg.def (no guard: included after each pass). */
#undef MCP_STRUCT
#undef MCP_MESSAGE
#undef MCP_REPLY
#undef MCP_U8
#undef MCP_U16
#undef MCP_U32
#undef MCP_U64
#undef MCP_I32
#undef MCP_ID
#undef MCP_BYTES
#undef MCP_LIST
#undef MCP_SINCE
#undef MCP_END
