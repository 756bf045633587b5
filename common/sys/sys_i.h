/* SPDX-License-Identifier: Apache-2.0
 * sys_i.h - parts of the clock and the locks that only common/sys/ uses. */
#ifndef MC_SYS_I_H
#define MC_SYS_I_H

#include <stdbool.h>
#include <time.h>

#include "common/sys/clock.h"

/* Is there a fake clock, or a simulated process?  Written while no other thread runs. */
extern bool mc_clock_replaced __attribute__((visibility("hidden")));

/* Let the locks wait in simulated processes, or in the kernel. */
void mc_lock_simulate(bool on);

/* The instant on the kernel's @clock until which to wait for @deadline (mc_now_ns() scale).  Early while a test
 * replaces the clock, and for deadlines that are years away: callers compare the deadline with mc_now_ns() then. */
struct timespec mc_clock_due(clockid_t clock, uint64_t deadline);

#endif
