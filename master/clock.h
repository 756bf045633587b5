/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the master's clock (mcm_now_ms() in mcm_i.h), which the monitor thread drives. */
#ifndef MCM_CLOCK_H
#define MCM_CLOCK_H

#include <stdint.h>

struct mcm;

/* As mcm_now_ms(), but also exact while the monitor is late by a time that does not count as a stall: for a client that
 * waited for the end of a lease and removes the object. */
uint64_t mcm_now_exact_ms(const struct mcm *m);

/* ---- the monitor thread ---- */

/* Call before the first tick: the time before it is not counted against clients. */
void mcm_clock_start(struct mcm *m);
/* Detect time in which the master itself did not run.  Call with a period of mcm_tick_ms(). */
void mcm_clock_tick(struct mcm *m);
uint64_t mcm_tick_ms(const struct mcm *m);

#endif
