/* SPDX-License-Identifier: Apache-2.0
 * links.h - files with several names: which names share which object (docs/MOUNT.md).
 *
 * The shared object is known by its inode number: its key is MCM_LINKS_DIR and the number, in its tenant.  A name is
 * an object without bytes that has the number.  attrs.c reports each record of attributes that makes an object shared
 * (MCP_ATTR_LINKED) or a name (MCM_ATTR_NAME), when it is stored and when it is freed: an object that is neither costs
 * nothing, and a restart counts again. */
#ifndef MCM_LINKS_H
#define MCM_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"
#include "master/index/key.h"

#define MCM_LINKS_DIR ".mcfs-links/"
#define MCM_LINK_KEY_MAX (MCM_PREFIX_MAX + sizeof(MCM_LINKS_DIR) + 16)

/* Identity of a shared object. */
struct mcm_link_id {
	uint64_t ino;
	uint32_t tenant;
};

struct mcm_link;

struct mcm_links {
	struct mc_mutex lock;		/* a leaf */
	struct mcm_link **bucket;	/* chains */
	uint32_t buckets, count;
	struct mcm_link *due, *last_due;	/* those that may have lost their object or their last name */
	unsigned dues;
	bool any_due;			/* atomic */
};

void mcm_links_init(struct mcm_links *l);
void mcm_links_done(struct mcm_links *l);

/* The key of the shared object; in @buf. */
struct mcp_bytes mcm_link_key(struct mcm_link_id id, char buf[MCM_LINK_KEY_MAX]);

/* Is @key that key? */
bool mcm_link_is_key(struct mcm_link_id id, struct mcp_bytes key);
/* Is @key, with its tenant's prefix, one of those that only LINK gives to objects? */
bool mcm_link_reserved(struct mcp_bytes key);

/* Object @slot got a record that makes it the shared object or a name (@name); it lost one.  Both may be called twice
 * for one slot, which has two records for a moment when it changes its shard.  @uid: owner of a shared object, NULL:
 * none.  -ENOMEM. */
int mcm_links_add(struct mcm_links *l, struct mcm_link_id id, uint32_t slot, bool name, const uint32_t *uid);
void mcm_links_del(struct mcm_links *l, struct mcm_link_id id, uint32_t slot, bool name);

/* Are there shared objects, or names? */
bool mcm_links_any(struct mcm_links *l);
/* Is there a shared object?  The number of its names. */
bool mcm_links_shared(struct mcm_links *l, struct mcm_link_id id);
uint32_t mcm_links_names(struct mcm_links *l, struct mcm_link_id id);

/* The owner of the shared object; false: it has none. */
bool mcm_links_owner(struct mcm_links *l, struct mcm_link_id id, uint32_t *ret_uid);

/* Take one that has lost its object or its last name since it was taken before.  *ret_name: *ret_slot is one of its
 * names; the caller locks it, and compares it with @ret_id again.  Otherwise remove the object, which has the shared
 * key.  False: there is none. */
bool mcm_links_take_due(struct mcm_links *l, struct mcm_link_id *ret_id, uint32_t *ret_slot, bool *ret_name);
/* Take it again after all others that are due: their number. */
void mcm_links_later(struct mcm_links *l, struct mcm_link_id id);
unsigned mcm_links_dues(struct mcm_links *l);
static inline bool mcm_links_any_due(const struct mcm_links *l)
{
	return __atomic_load_n(&l->any_due, __ATOMIC_RELAXED);
}

#endif
