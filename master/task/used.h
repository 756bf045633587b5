/* SPDX-License-Identifier: Apache-2.0
 * used.h - which places of a segment are in use: owners of ranges with names (tiers/tier.h) delete the others. */
#ifndef MCM_USED_H
#define MCM_USED_H

#include "master/mcm_i.h"

/* @place: @n ascending offsets; @ret: 1 for each at which a range begins, of an object or of a copy that is being made,
 * else 0.  A range that was allocated during the call may be missing.  Walks over all ranges of the segment, and
 * releases its lock again and again meanwhile.  -MC_ENOSEGMENT: @client does not own a segment of this epoch;
 * -MC_ENOTREADY: not all of its objects are known yet. */
int mcm_used(struct mcm *m, struct mcp_id client, struct mcp_id segment, uint64_t epoch, const uint64_t *place,
	     unsigned n, uint8_t *ret);

#endif
