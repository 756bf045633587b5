/* SPDX-License-Identifier: Apache-2.0
 * msg_each.h - one pass over msg.def, msg_events.def, msg_masters.def and msg_security.def.  The includer defines the
 * macros that it needs; the others expand to nothing.  All are undefined afterwards (no guard: included once per
 * pass). */
#ifndef MCP_STRUCT
#define MCP_STRUCT(name)
#endif
#ifndef MCP_MESSAGE
#define MCP_MESSAGE(NAME, name, num, roles)
#endif
#ifndef MCP_REPLY
#define MCP_REPLY(NAME, name)
#endif
#ifndef MCP_U8
#define MCP_U8(s, f)
#endif
#ifndef MCP_U16
#define MCP_U16(s, f)
#endif
#ifndef MCP_U32
#define MCP_U32(s, f)
#endif
#ifndef MCP_U64
#define MCP_U64(s, f)
#endif
#ifndef MCP_I32
#define MCP_I32(s, f)
#endif
#ifndef MCP_ID
#define MCP_ID(s, f)
#endif
#ifndef MCP_BYTES
#define MCP_BYTES(s, f)
#endif
#ifndef MCP_LIST
#define MCP_LIST(s, f, e)
#endif
#ifndef MCP_SINCE
#define MCP_SINCE(s, v)
#endif
#ifndef MCP_OPTIONAL
#define MCP_OPTIONAL(s, f)
#endif
#ifndef MCP_END
#define MCP_END(s)
#endif

#include "proto/msg.def"
#include "proto/msg_events.def"
#include "proto/msg_masters.def"
#include "proto/msg_security.def"

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
#undef MCP_OPTIONAL
#undef MCP_END
