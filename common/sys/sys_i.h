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

/* A wait for @deadline (mc_now_ns() scale) in the kernel's time: its caller waits until mc_wait_step(), again and again
 * while that returns true.  With a fake clock the steps are short, because that clock may pass the deadline. */
struct mc_wait {
	clockid_t clock;	/* clock of the call that waits */
	uint64_t deadline;	/* mc_now_ns() scale */
	uint64_t due;		/* @clock's scale: also with a fake clock no wait is longer than its real time */
};

void mc_wait_begin(struct mc_wait *w, clockid_t clock, uint64_t deadline);
/* False: the deadline has passed.  True: wait until *ret. */
bool mc_wait_step(const struct mc_wait *w, struct timespec *ret);

#endif
