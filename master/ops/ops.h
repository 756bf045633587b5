/* SPDX-License-Identifier: Apache-2.0
 * ops.h - operations on committed objects, one file each: get (and exist), remove, soft pin, attributes, rename,
 * list. */
#ifndef MCM_OPS_H
#define MCM_OPS_H

#include <stdint.h>

#include "master/index/attrs.h"
#include "master/index/names.h"
#include "proto/msg.h"

struct mcm;
struct mcm_session;

/* ---- get.c ---- */

/* Fill *ret, except for its list of replicas, which is returned as an array, and the group
 * (mcm_get_group()).  A pin, if requested, belongs to @s, whose lock is held.  -MC_ENOOBJECT,
 * -MC_ENOTREADY (after a restart, mcm_object_missing()), -MC_EKEY, -MC_ELIMIT, -ENOMEM. */
int mcm_get(struct mcm *m, struct mcm_session *s, uint32_t flags, struct mcp_bytes key,
	    struct mcp_object *ret, struct mcp_replica ret_replica[MCM_REPLICA_MAX],
	    unsigned *ret_copies);

/* Memory for attributes in an answer: of the next object that has some. */
struct mcm_xattrs_memory {
	struct mcp_xattr item[MCP_XATTRS_MAX / 4];
	char text[MCP_XATTRS_MAX];
};
struct mcm_attrs_memory {
	struct mcp_attrs *attrs;
	struct mcm_xattrs_memory *xattrs;	/* NULL: not requested */
};
/* The same, with the attributes of the object, or of a directory with MCP_GET_DIRS; they are in @mem. */
int mcm_get_attrs(struct mcm *m, struct mcm_session *s, uint32_t flags, struct mcp_bytes key, struct mcp_object *ret,
		  struct mcp_replica ret_replica[MCM_REPLICA_MAX], unsigned *ret_copies, struct mcm_attrs_memory *mem);
/* The size, generation and readable copies of an object that the session has pinned; its lock is held.
 * -MC_ENOOBJECT: there is no such pin. */
int mcm_get_pinned(struct mcm *m, struct mcm_session *s, uint64_t pin, struct mcp_object *ret,
		   struct mcp_replica ret_replica[MCM_REPLICA_MAX], unsigned *ret_copies);

/* Copy the name of the group of @key's object; returns its length, 0: no group. */
uint32_t mcm_get_group(struct mcm *m, struct mcp_bytes key, char ret_name[MCP_GROUP_MAX]);

/* ret_present[i] is 1 if keys[i] can be read, else 0; grants promise leases unless MCP_EXIST_PEEK.  An
 * invalid key is not present.  -MC_ENOTREADY if it is not known of a key yet (mcm_object_missing()). */
int mcm_exist(struct mcm *m, uint32_t flags, const struct mcp_bytes *keys, unsigned n,
	      uint8_t *ret_present);

/* ---- remove.c ---- */

/* Shard locked.  Is it protected by a lease or a pin of its own or of its group? */
bool mcm_remove_leased(const struct mcm *m, const struct mcm_object *o);
/* -MC_ENOOBJECT, -MC_ELEASED, -MC_ENOTEMPTY, -MC_EKEY. */
int mcm_remove(struct mcm *m, uint32_t flags, struct mcp_bytes key);
/* Free the copies of @key's object in the segments named @segment ("": all), as a CLEAR request.  As mcm_remove(), and
 * -MC_EREPLICA. */
int mcm_clear(struct mcm *m, struct mcp_bytes segment, struct mcp_bytes key);
/* rq->tenant is confined already (mcm_tenant_confine()).  Leased objects are skipped unless MCP_REMOVE_FORCE.
 * -MC_EPARAM with a detail for a bad pattern; -ENOMEM. */
int mcm_remove_match(struct mcm *m, const struct mcp_remove_match *rq, uint64_t *ret_removed);
/* The same; with rq->sliced it stops after about half a millisecond, and ret->at says where to continue. */
int mcm_remove_part(struct mcm *m, const struct mcp_remove_match *rq, struct mcp_remove_match_reply *ret);

/* ---- soft_pin.c ---- */

/* Give @key's object a soft pin of @ttl_ms from now, instead of the one that it has; 0: none.  -MC_EPARAM with a detail
 * for a duration above max_kv_soft_pin_ttl; -MC_ENOOBJECT, -MC_EKEY, -MC_ELIMIT, -ENOMEM. */
int mcm_soft_pin(struct mcm *m, struct mcp_bytes key, uint64_t ttl_ms);

/* ---- set_attrs.c ---- */

/* As a SET_ATTRS request.  -MC_ENOOBJECT, -MC_ENOTREADY, -ESTALE, -EEXIST, -ENODATA, -ENOSPC, -ERANGE, -MC_EPARAM,
 * -MC_EKEY, -MC_ELIMIT, -ENOMEM. */
int mcm_set_attrs(struct mcm *m, const struct mcp_set_attrs *rq);
/* Shard locked.  The attributes of a version that is put with @put (a list of none or one), and replaces @old (0: it
 * replaces none).  Extended attributes are borrowed from @old.  -MC_EPARAM with a detail: @put of a special file has no
 * mode, or another type than fifo, socket and device. */
int mcm_attrs_of_put(const struct mcm *m, const struct mcp_seq *put, uint8_t kind, uint32_t old,
		     struct mcm_attrs_value *ret);
/* Shard locked.  @v becomes the new attributes of @slot: set its time of change and, of a directory with children that
 * changed later than @v, its mtime.  Returns mcm_names_changed(), which the caller may reset once @v is stored. */
uint64_t mcm_attrs_changing(const struct mcm *m, uint32_t slot, uint64_t now_ns, struct mcm_attrs_value *v);
/* These attributes, in @mem. */
void mcm_attrs_to_wire(const struct mcm_attrs_value *v, struct mcm_attrs_memory *mem);
/* Shard locked.  Set ret->attrs: those of the object @slot (0: none), and of the directory @dir (NULL: it is none).
 * Memory is @mem.  The other fields of @ret are set already. */
void mcm_attrs_describe(const struct mcm *m, uint32_t slot, const struct mcm_names_stat *dir,
			struct mcm_attrs_memory *mem, struct mcp_object *ret);

/* ---- rename.c ---- */

/* -MC_ENOOBJECT, -MC_ENOTREADY, -MC_EEXISTS, -MC_EKEY, -ENOMEM. */
int mcm_rename(struct mcm *m, const struct mcp_rename *rq, uint64_t *ret_generation, uint64_t *ret_was);

/* ---- rename_dir.c ---- */

/* Objects and directories below a directory, at most, that a rename moves: other requests wait for it, 6 ms with a
 * journal, 20 ms with names of 250 bytes (measured on a busy machine of two cores). */
#define MCM_RENAME_DIR_MAX 12000u
/* Rename the directory rq->from with everything below it; both names end in '/'.  *ret_moved: objects.  -MC_ENOOBJECT;
 * -MC_ENOTEMPTY: @to has children; -MC_EEXISTS with MCP_RENAME_NOREPLACE; -MC_EPARAM: into itself; -ENAMETOOLONG;
 * -MC_ELIMIT: too many objects, levels, or bytes of keys; -MC_EUNAVAILABLE; -MC_EKEY; -ENOMEM.  A failure changes
 * nothing. */
int mcm_rename_dir(struct mcm *m, const struct mcp_rename_dir *rq, uint64_t *ret_moved);

/* ---- link.c ---- */

/* As a LINK request.  -ESTALE: it has another inode number; -MC_ENOTSUP: see mcm_feeders_link_begin(); -EMLINK: it has
 * too many names; -MC_ENOOBJECT, -MC_ENOTREADY, -MC_EEXISTS, -MC_EPARAM for a
 * directory, -MC_EUNAVAILABLE, -MC_EKEY, -MC_ELIMIT, -MC_ENOSPACE, -ENOMEM.  A failure changes nothing. */
int mcm_link(struct mcm *m, const struct mcp_link_name *rq, uint64_t *ret_ino, uint64_t *ret_generation);
/* @name, the shard of a name, is locked.  Lock that of the shared object instead, and find the object; unlock is the
 * reverse.  The name may end meanwhile, or move to another shard, and another object may get its slot. */
struct mcm_link_locked {
	struct mcm_shard *name, *shared;
	uint32_t slot;			/* 0: there is no shared object */
};
void mcm_link_lock(struct mcm *m, struct mcm_shard *name, struct mcm_link_id id, struct mcm_link_locked *ret);
void mcm_link_unlock(const struct mcm_link_locked *l);
/* A key that was found to be a name. */
struct mcm_link_name {
	struct mcp_bytes key;
	uint32_t hash, slot;
	struct mcm_shard *shard;	/* locked */
	struct mcm_link_id id;
};
/* As mcm_get_attrs() of the shared object, with its name's shard locked in the same way.  1: the key or its object
 * changed meanwhile; the caller looks the key up again. */
int mcm_link_get(struct mcm *m, struct mcm_session *s, uint32_t flags, const struct mcm_link_name *name,
		 struct mcp_object *ret, struct mcp_replica *ret_replica, unsigned *ret_copies,
		 struct mcm_attrs_memory *mem);
/* The shared key, in @buf, if @key is a name; otherwise @key.  For requests about copies and pins of an object. */
struct mcp_bytes mcm_link_resolve(struct mcm *m, struct mcp_bytes key, char buf[MCM_LINK_KEY_MAX]);
/* Remove shared objects that have lost their last name, and names whose object was evicted or removed.  For the
 * monitor, after a restart is complete. */
void mcm_links_tick(struct mcm *m);

/* ---- list.c ---- */

struct mcm_list_page {
	struct mcm_names_page names;
	uint8_t cursor[16];
	uint32_t cursor_len;		/* 0: end of the listing */
};

/* The thread's page.  NULL: no memory. */
struct mcm_list_page *mcm_list_page(void);
/* Fill @pg, whose memory is reused.  rq->tenant is confined already (mcm_tenant_confine()).  -MC_EPARAM for a bad
 * cursor or prefix; -MC_ENOTREADY if it is not known of an entry yet whether it can be read (mcm_object_missing()). */
int mcm_list(struct mcm *m, const struct mcp_list *rq, struct mcm_list_page *pg);
/* Make the entries of the answer to @rq from its page, with their attributes.  Both arrays have room for all entries of
 * the page.  An entry with attributes is that of the object that has its key now, and absent if no object has.  Returns
 * the number of entries; errors as mcm_scope_begin(). */
int mcm_list_entries(struct mcm *m, const struct mcp_list *rq, struct mcm_list_page *pg, struct mcp_attrs *attrs,
		     struct mcp_entry *ret);

#endif
