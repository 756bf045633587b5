/* SPDX-License-Identifier: Apache-2.0
 * attrs.h - attributes of files that mounts show: mode, owner, times, extended attributes.
 *
 * Few objects have some, so they are not in struct mcm_object: a mark says that the object's shard has a record of 48
 * bytes, found by the slot.  Attributes that fewer objects have (device, xattrs) are in the shard's arena
 * of keys.  The shard's lock guards all of it. */
#ifndef MCM_ATTRS_H
#define MCM_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

#include "master/index/index.h"
#include "proto/msg.h"

#define MCM_ATTRS_MODE_CARRIED 0171777u	/* a new version loses set-user-ID and set-group-ID */
/* Beside MCP_ATTR_* in a set: the object is a name of the one with the shared key of its ino (links.h). */
#define MCM_ATTR_NAME 0x8000u
#define MCM_ATTRS_OF_LINKS (MCM_ATTR_NAME | MCP_ATTR_LINKED)

struct mcm_attrs {
	uint32_t next, hash;		/* in the shard's table; free list */
	uint16_t set;			/* MCP_ATTR_* */
	uint16_t mode;
	uint32_t uid, gid;
	uint32_t extra;			/* in the arena of keys, 0: none */
	uint64_t mtime_ns, ctime_ns;
	uint64_t ino;			/* with MCP_ATTR_INO */
};
_Static_assert(sizeof(struct mcm_attrs) == 48, "memory of an object with attributes");

/* All attributes of an object.  xattrs: pairs of u8 length of name, u16 length of value, name, value. */
struct mcm_attrs_value {
	uint16_t set, mode;
	uint32_t uid, gid, rdev;
	uint64_t mtime_ns, ctime_ns, ino;
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
/* The object's identity in links.h, with inode number @ino. */
struct mcm_link_id mcm_attrs_link(const struct mcm_index *ix, uint32_t slot, uint64_t ino);
/* Shard locked.  Is the object a name of another one?  *ret: of which; may be NULL. */
bool mcm_attrs_name_of(const struct mcm_index *ix, uint32_t slot, struct mcm_link_id *ret);
static inline bool mcm_attrs_is_name(const struct mcm_index *ix, uint32_t slot, struct mcm_link_id *ret)
{
	return (mcm_object(ix, slot)->flags & MCM_OBJ_KIND) == MCP_KIND_SPECIAL && mcm_attrs_name_of(ix, slot, ret);
}
/* Shard locked.  Is it the shared object of @id? */
bool mcm_attrs_is_shared(const struct mcm_index *ix, uint32_t slot, struct mcm_link_id id);
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
