/* SPDX-License-Identifier: Apache-2.0
 * sweeper.h - the thread that deletes ranges with names (tiers/tier.h) that are not in use: those of removed objects
 * soon, those of evicted objects and of writes that were given up every few minutes. */
#ifndef MCS_SWEEPER_H
#define MCS_SWEEPER_H

#include "client/direct/direct.h"

struct mcs_sweeper;

int mcs_sweeper_start(struct mcs_direct *s, struct mcs_sweeper **ret);
/* NULL is fine. */
void mcs_sweeper_stop(struct mcs_sweeper *w);

#endif
