/* SPDX-License-Identifier: Apache-2.0
 * allocate.h - ranges for the copies of an object. */
#ifndef MCM_ALLOCATE_H
#define MCM_ALLOCATE_H

#include <stdint.h>

struct mcm;
struct mcm_put_request;
struct mcm_extent;

/* Allocate ranges for @len bytes on rq->copies segments of different names, evicting when free
 * space is not enough; an object that cannot fit evicts nothing.  Fewer copies than requested are a
 * success, but at least one.  -MC_ENOSPACE, -MC_ETOOBIG, -ENOMEM; MCP_AGAIN when the slice is over. */
int mcm_allocate(struct mcm *m, struct mcm_put_request *rq, uint64_t len,
		   struct mcm_extent *ret_extents, unsigned *ret_copies);
/* 0 if mcm_allocate() could succeed after evicting all evictable objects, else its error.  For callers that
 * evict for another reason before they allocate. */
int mcm_allocate_check(struct mcm *m, struct mcm_put_request *rq, uint64_t len);
void mcm_extent_free(struct mcm *m, const struct mcm_extent *p);
/* Free all but the first @len bytes. */
void mcm_extent_trim(struct mcm *m, const struct mcm_extent *p, uint64_t len);

#endif
