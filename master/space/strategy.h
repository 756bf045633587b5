/* SPDX-License-Identifier: Apache-2.0
 * strategy.h - placement strategies: the order in which segments are asked for space.  A const
 * table of functions each. */
#ifndef MCM_STRATEGY_H
#define MCM_STRATEGY_H

#include <stdint.h>

#include "master/space/segment.h"

#define MCM_PICK_SAMPLE 48

/* One walk over the mounted segments; the table's lock is held for reading all the time. */
struct mcm_pick {
	const struct mcm_segments *ss;
	uint64_t random;
	unsigned copies;			/* copies requested */
	unsigned first;				/* private: where the walk begins in mcm_segments.live */
	unsigned at;				/* candidates returned so far */
	uint16_t sample[MCM_PICK_SAMPLE];	/* private to the strategy */
	unsigned n_sample;
	struct mcp_bytes host;			/* the writer's host, "": unknown */
	/* the strategy's next() */
	uint32_t (*next)(struct mcm_pick *p);
};

struct mcm_strategy {
	const char *name;
	/* Begin a walk.  All fields but the private ones are set. */
	void (*begin)(struct mcm_pick *p);
	/* The number of the next candidate: every mounted segment at least once, then MCM_NO_SEGMENT. */
	uint32_t (*next)(struct mcm_pick *p);
};

extern const struct mcm_strategy mcm_strategy_random;
extern const struct mcm_strategy mcm_strategy_free_ratio, mcm_strategy_ssd_free_ratio;
extern const struct mcm_strategy mcm_strategy_local;
extern const struct mcm_strategy mcm_strategy_cxl;

/* Maintain the order by host (strategy_local.c); the table's lock is held for writing. */
void mcm_local_insert(struct mcm_segments *ss, const struct mcm_segment *s);
void mcm_local_remove(struct mcm_segments *ss, const struct mcm_segment *s);

/* The strategy with a name; NULL: there is none. */
const struct mcm_strategy *mcm_strategy_find(const char *name);

#endif
