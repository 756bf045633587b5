/* SPDX-License-Identifier: Apache-2.0
 * adopt.h - descriptions of objects that are stored beside them on disks, and objects of a lost index that are added to
 * this master's by them.
 *
 * The owner of a disk stores a description in a record (tiers/ssd/record.h) and returns it unchanged:
 *
 *	u8 length of the tenant's name | name | record of the object (journal/record.h)
 *
 * with the key and the group without the tenant's prefix, and an extent without meaning.
 *
 * While the journal lives, it decides: a segment adopts objects only if its owner mounts it in another pool than
 * before, with the same cluster_id (struct mcp_mount.offers), or if a master that restored a snapshot knows no object
 * there (mount_adopts() in mount.c).  Until the owner has offered all of them the disk gets no
 * copies, so that ranges are allocated from front to back. */
#ifndef MCM_ADOPT_H
#define MCM_ADOPT_H

#include <stdint.h>

#include "master/mcm_i.h"

struct mcm_session;
struct mcm_attrs_memory;

/* A longer description does not fit into one block of a disk with the record's head. */
#define MCM_ADOPT_MAX (MCM_DISK_BLOCK - MCP_DISK_RECORD_HEAD)

/* The object's shard is locked: write its description to @buf of MCM_ADOPT_MAX bytes.  *ret_name: hash of tenant and
 * key.  Its length; 0: it is too long, so the object is lost with the journal. */
uint32_t mcm_adopt_describe(const struct mcm *m, uint32_t slot, void *buf, uint64_t *ret_name);

/* The object's shard is locked.  Its key's version ends, but not because of an eviction: the owners of its disks are to
 * note that the records there are void.  A note may get lost: then the object may come back after a loss of the
 * journal. */
void mcm_adopt_note_gone(struct mcm *m, uint32_t slot);
static inline void mcm_adopt_gone(struct mcm *m, uint32_t slot)
{
	if (mcm_object_is_below(mcm_object(&m->index, slot)))
		mcm_adopt_note_gone(m, slot);
}
/* The same for a copy at @to that was written and is not used, or one of several copies of a version.  The note also
 * voids the record of a later copy of the same version at the same place. */
void mcm_adopt_note(struct mcm *m, struct mcm_extent to, uint64_t generation);
/* Notes for the disks of the client of @s; at most @max. */
unsigned mcm_adopt_fetch_gone(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_gone *ret);

/* Hash of this master's cluster_id; not 0. */
uint64_t mcm_adopt_cluster(const struct mcm *m);

/* Decode a description for a client that imports the object.  @ret borrows from @record and @mem.  -MC_EPROTO. */
int mcm_adopt_read(const struct mcm *m, struct mcp_bytes record, struct mcm_attrs_memory *mem,
		   struct mcp_describe_reply *ret);

/* Add an object on the disk rq->segment of the client of @s.  The key's tenant needs a policy; the object evicts
 * nothing.  -MC_ENOSEGMENT, -MC_ENOTREADY (its owner is silent), -MC_EEXISTS, -MC_EPROTO, -MC_ENOTENANT, -EACCES (the
 * peer's identity belongs to another tenant), -MC_ENOSPACE, ... */
int mcm_adopt(struct mcm *m, const struct mcm_session *s, const struct mcp_adopt *rq,
	      const struct mcp_adopt_item *item);
/* The owner has offered all. */
int mcm_adopt_end(struct mcm *m, struct mcp_id client, const struct mcp_adopt *rq);

#endif
