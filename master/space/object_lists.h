/* SPDX-License-Identifier: Apache-2.0
 * object_lists.h - lists of objects that may become evictable, for evictions that do not choose by segment.
 *
 * There are lists of plain objects and of soft-pinned objects, and a wheel of objects with a promise lease, by the end
 * of the lease.  An object that is being read is on no list until its last reader releases it; a hard-pinned object
 * never is.  An object moves between lists only after a read, a promise, a put or a release, so the cost of finding
 * victims does not depend on the number of protected objects.
 *
 * An object is on the lists of one owner at most: those of its tenant (tenant_evict.c), or those of the objects
 * without ranges (empties.c). */
#ifndef MCM_OBJECT_LISTS_H
#define MCM_OBJECT_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/memory/slab.h"
#include "master/space/evict_policy.h"

struct mcm;

/* An object's neighbours on its list, 0: it is on no list; guarded by the lists' lock. */
struct mcm_object_link {
	uint32_t prev, next;
};
#define MCM_OBJECT_LINKS_SHIFT 18
#define MCM_OBJECT_WHEEL 32u
#define MCM_OBJECT_LISTS (2 + MCM_OBJECT_WHEEL)

struct mcm_object_lists {
	struct mc_mutex lock;
	/* guarded by lock */
	struct mcm_object_link head[MCM_OBJECT_LISTS];	/* oldest objects first */
	uint32_t turn;			/* oldest slot of the wheel that may be non-empty */
};

void mcm_object_lists_init(struct mcm_object_lists *l);
void mcm_object_lists_done(struct mcm_object_lists *l);

/* ---- the object's shard locked ---- */

/* Allocate the object's links.  -ENOMEM. */
int mcm_object_lists_cover(struct mcm *m, uint32_t slot);
/* Add the object as the newest one, unless it is on a list already. */
void mcm_object_lists_add(struct mcm *m, struct mcm_object_lists *l, uint32_t slot);
/* The object may be on no list. */
void mcm_object_lists_remove(struct mcm *m, struct mcm_object_lists *l, uint32_t slot);
/* If the object is the newest plain one, make it the oldest. */
void mcm_object_lists_front(struct mcm *m, struct mcm_object_lists *l, uint32_t slot);

/* ---- no lock held ---- */

/* Choose at most @max victims of about @want bytes in total, and remove them from their list.  @level: MCM_EVICT_*;
 * @v: which objects are recent.  *ret_more: another search may find victims even if this one found none. */
unsigned mcm_object_lists_choose(struct mcm *m, struct mcm_object_lists *l, const struct mcm_evict_view *v,
				 unsigned level, uint64_t want, struct mcm_victim *ret, unsigned max, bool *ret_more);

#endif
