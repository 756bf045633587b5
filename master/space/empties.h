/* SPDX-License-Identifier: Apache-2.0
 * empties.h - objects without bytes.  They have no range, so no segment can evict them; the limit of the number of
 * objects can (evict_count.c). */
#ifndef MCM_EMPTIES_H
#define MCM_EMPTIES_H

#include "master/space/object_lists.h"

struct mcm_empties {
	uint64_t objects;	/* that may be evicted; atomic */
	struct mcm_object_lists lists;
};

/* ---- the object's shard locked; objects with bytes are ignored ---- */

/* Allocate the list links of an object that is to be committed.  -ENOMEM. */
int mcm_empties_cover(struct mcm *m, uint32_t slot);
void mcm_empties_join(struct mcm *m, uint32_t slot);
/* The object leaves the index. */
void mcm_empties_leave(struct mcm *m, uint32_t slot);
/* A live object that was a victim stays: it may become one again. */
void mcm_empties_relist(struct mcm *m, uint32_t slot);

#endif
