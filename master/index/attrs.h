/* SPDX-License-Identifier: Apache-2.0
 * attrs.h - attributes of files that mounts show: mode, owner, times, extended attributes.
 *
 * Few objects have some, so they are not in struct mcm_object: a mark says that the object's shard has a record of 40
 * bytes, found by the slot.  Attributes that fewer objects have (device, xattrs) are in the shard's arena
 * of keys.  The shard's lock guards all of it. */
#ifndef MCM_ATTRS_H
#define MCM_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "master/index/index.h"
#include "proto/msg.h"

#define MCM_ATTRS_MODE_CARRIED 0171777u	/* a new version loses set-user-ID and set-group-ID */

struct mcm_attrs {
	uint32_t next, hash;		/* in the shard's table; free list */
	uint16_t set;			/* MCP_ATTR_* */
	uint16_t mode;
	uint32_t uid, gid;
	uint32_t extra;			/* in the arena of keys, 0: none */
	uint64_t mtime_ns, ctime_ns;
};
_Static_assert(sizeof(struct mcm_attrs) == 40, "memory of an object with attributes");

/* All attributes of an object.  xattrs: pairs of u8 length of name, u16 length of value, name, value. */
struct mcm_attrs_value {
	uint16_t set, mode;
	uint32_t uid, gid, rdev;
	uint64_t mtime_ns, ctime_ns;
	struct mcp_bytes xattrs;	/* borrowed */
};

void mcm_attrs_init(struct mcm_index *ix);
void mcm_attrs_done(struct mcm_index *ix);

/* False: the object has none; *ret is zero then.  ret->xattrs points into the shard's memory. */
bool mcm_attrs_get(const struct mcm_index *ix, uint32_t slot, struct mcm_attrs_value *ret);
/* Replace all attributes of an object in shard @sh (its own, or the one to which it moves).  -ENOMEM, -MC_ELIMIT:
 * nothing changed. */
int mcm_attrs_set(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot, const struct mcm_attrs_value *v);
/* Free the attributes that @sh has for this slot, if any. */
void mcm_attrs_drop(struct mcm_index *ix, struct mcm_shard *sh, uint32_t slot);
/* Whether extended attributes of this many bytes fit into the limit of the master's memory. */
bool mcm_attrs_room(const struct mcm_index *ix, uint32_t xattrs);
/* The attributes of a new version that replaces one with @v: without times, set-user-ID and set-group-ID. */
void mcm_attrs_carry(struct mcm_attrs_value *v);

/* ---- extended attributes ---- */

/* Take the next pair off @rest.  False: there is none (or the bytes are malformed). */
bool mcm_xattrs_next(struct mcp_bytes *rest, struct mcp_xattr *ret);
/* Are these bytes well-formed pairs? */
bool mcm_xattrs_ok(struct mcp_bytes all);
/* Apply MCP_XATTR_* @flags for @x to @all.  The result is in @buf.  -EEXIST, -ENODATA, -ENOSPC, -ERANGE;
 * -MC_EPARAM with a detail: the name is reserved or contains NUL. */
int mcm_xattrs_change(struct mcp_bytes all, uint32_t flags, const struct mcp_xattr *x, uint8_t buf[MCP_XATTRS_MAX],
		      struct mcp_bytes *ret);

#endif
