/* SPDX-License-Identifier: Apache-2.0
 * mapped.h - cache of objects that local programs map or mapped recently.
 *
 * An entry is one version of one key in memory that can be mapped: in the node's own segment, pinned there
 * by an open object; or a copy in the segment of copies.  Entries with references stay.  Unreferenced entries of the
 * own segment are released after conf.hot_ms, because their pin keeps the pool from evicting the object, and
 * within the master's lease time, because others can remove the object then.
 * Unreferenced copies stay until their memory is needed; they are reused while the master still has the version. */
#ifndef MCN_MAPPED_H
#define MCN_MAPPED_H

#include "node/node.h"

struct mcn_mapped;
struct mcn_entry;

int mcn_mapped_new(mcs_t *store, uint64_t size, unsigned ms, struct mcn_mapped **ret);
void mcn_mapped_free(struct mcn_mapped *m);		/* no entry may have references; NULL is allowed */

/* As mcn_pin(); the caller releases the entry with mcn_mapped_put().  @copied: not in the own segment. */
int mcn_mapped_get(struct mcn_mapped *m, struct mcs_key key, bool copied, bool hot, int64_t timeout_ms,
		struct mcn_entry **ret, struct mcn_extent *ret_extent);
void mcn_mapped_ref(struct mcn_mapped *m, struct mcn_entry *e);	/* the caller already has a reference */
void mcn_mapped_put(struct mcn_mapped *m, struct mcn_entry *e);
/* As mcs_object_held(): may wait for a master that has been silent. */
int mcn_mapped_held(const struct mcn_entry *e);
/* Before a removal of the key by a client: release the entry's pin if no client uses it. */
void mcn_mapped_release(struct mcn_mapped *m, struct mcs_key key);
/* The key was replaced or removed: do not serve its entry any more. */
void mcn_mapped_forget(struct mcn_mapped *m, struct mcs_key key);
/* Release expired entries; call it again after the time returned, ms. */
unsigned mcn_mapped_sweep(struct mcn_mapped *m);
int mcn_mapped_fd(const struct mcn_mapped *m);	/* the segment of copies, read-only */
uint64_t mcn_mapped_size(const struct mcn_mapped *m);

#endif
