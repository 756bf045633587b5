/* SPDX-License-Identifier: Apache-2.0
 * pinned.h - the objects that a session has pinned, each once, and their bytes.
 *
 * A hash table with linear probing; its user's lock guards it. */
#ifndef MCM_PINNED_H
#define MCM_PINNED_H

#include <stdbool.h>
#include <stdint.h>

struct mcm_pinned_object {
	uint32_t slot;			/* 0: free */
	uint32_t pins;
	uint64_t bytes;			/* that it counts for */
};

/* Zeroed: empty. */
struct mcm_pinned {
	struct mcm_pinned_object *at;
	uint32_t cap, count;		/* cap: a power of 2, at least twice count; or 0 */
	uint64_t bytes;			/* bytes of all objects */
};

void mcm_pinned_done(struct mcm_pinned *p);
/* Make room for one object, so that mcm_pinned_add() cannot fail.  -ENOMEM. */
int mcm_pinned_reserve(struct mcm_pinned *p);
bool mcm_pinned_has(const struct mcm_pinned *p, uint32_t slot);
/* One more pin; @bytes count if it is the first one of the object. */
void mcm_pinned_add(struct mcm_pinned *p, uint32_t slot, uint64_t bytes);
/* One pin less of an object that has one. */
void mcm_pinned_drop(struct mcm_pinned *p, uint32_t slot);

#endif
