/* SPDX-License-Identifier: Apache-2.0
 * grace.h - the grace period after a restart: restored objects keep their memory until clients have had time to find
 * the new master and to repeat their pins. */
#ifndef MCM_GRACE_H
#define MCM_GRACE_H

#include <stdbool.h>
#include <stdint.h>

struct mcm;

/* Give a restored object its grace pin; after the last one begin the grace period, unless neither an object nor a
 * segment was restored. */
void mcm_grace_pin(struct mcm *m, uint32_t slot);
void mcm_grace_begin(struct mcm *m, uint64_t objects);

/* Before the monitor runs: clients may notice the restart @ms later than usually. */
void mcm_grace_extend(struct mcm *m, uint64_t ms);
/* For the monitor, which decides when the grace period is over. */
void mcm_grace_tick(struct mcm *m);
bool mcm_grace_active(const struct mcm *m);
/* For the evictor: release some grace pins after the end of the grace period.  True: there are more to release. */
bool mcm_grace_release(struct mcm *m);
/* Any thread: may there still be objects with a grace pin? */
bool mcm_grace_pins_left(const struct mcm *m);

#endif
