/* SPDX-License-Identifier: Apache-2.0
 * clock_i.h - instants for the timed waits of the C library. */
#ifndef MC_SYS_CLOCK_I_H
#define MC_SYS_CLOCK_I_H

#include <time.h>

#include "common/sys/clock.h"

/* The instant on the kernel's @clock until which to wait for @deadline (mc_now_ns() scale).  Early while a test
 * replaces the clock, and for deadlines that are years away: callers compare the deadline with mc_now_ns() then. */
struct timespec mc_clock_due(clockid_t clock, uint64_t deadline);

#endif
