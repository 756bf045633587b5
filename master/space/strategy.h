/* SPDX-License-Identifier: Apache-2.0
 * strategy.h - in which order segments are asked for room: an ops table per strategy. */
#ifndef MCM_STRATEGY_H
#define MCM_STRATEGY_H

#include <stdint.h>

#include "master/space/segment.h"

#define MCM_PICK_SAMPLE 48

/* One walk over the mounted segments; the table's lock is held for reading throughout. */
struct mcm_pick {
	const struct mcm_segments *ss;
	uint64_t random;
	unsigned copies;			/* wanted */
	unsigned at;				/* candidates given so far */
	uint16_t sample[MCM_PICK_SAMPLE];	/* the strategy's */
	unsigned n_sample;
	struct mcp_bytes host;			/* of the writer, "": unknown */
	/* The strategy's: the next candidate; every mounted segment comes up at least once, then NULL. */
	struct mcm_segment *(*next)(struct mcm_pick *p);
};

struct mcm_strategy {
	const char *name;
	/* All fields but the strategy's own are set. */
	void (*begin)(struct mcm_pick *p);
	/* The next candidate; every mounted segment comes up at least once, then NULL. */
	struct mcm_segment *(*next)(struct mcm_pick *p);
};

extern const struct mcm_strategy mcm_strategy_random;
extern const struct mcm_strategy mcm_strategy_free_ratio;
extern const struct mcm_strategy mcm_strategy_local;

/* Keep the order by host; the table's lock is held for writing. */
void mcm_local_insert(struct mcm_segments *ss, const struct mcm_segment *s);
void mcm_local_remove(struct mcm_segments *ss, const struct mcm_segment *s);

/* NULL when there is none of that name. */
const struct mcm_strategy *mcm_strategy_find(const char *name);

#endif
