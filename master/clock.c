/* SPDX-License-Identifier: Apache-2.0
 * clock.c - the master's clock, and detection of time in which the master did not run.
 *
 * The monitor thread runs with a known period.  If much more time than that has passed between two
 * of its ticks, the whole process did not run (it was stopped, or its machine was).  That time is
 * removed from the master's clock, so that it does not count against any client or lease.  Until
 * the monitor has run, the clock stops for the other threads. */
#include <config.h>

#include "master/clock.h"

#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"

#define LOG "liveness"
#define TICK_MAX_MS 200
#define TICK_MIN_MS 20
/* Threads may be late for other reasons; a tick this late counts as a stall of the process. */
#define STALL_TICKS 4

MC_COUNTER(stalled, "mooncake_master_stalled_ms_total", "", "Time in which the master process did not run")

uint64_t mcm_tick_ms(const struct mcm *m)
{
	uint64_t ms = m->conf.client_ttl / 20;

	return ms > TICK_MAX_MS ? TICK_MAX_MS : ms < TICK_MIN_MS ? TICK_MIN_MS : ms;
}

/* The clock may advance by one tick period from now.  If the next tick is late, that may be a
 * stall: the clock waits for the tick, which decides.  After a stall it continues from the value at
 * which it waited, so it never goes back. */
static void clock_set(struct mcm *m, uint64_t now_ns, uint64_t lost_ms)
{
	uint64_t ran = now_ns / MC_NS_PER_MS - m->start_ms - m->stalled_ms - lost_ms;

	m->tick_ns = now_ns;
	__atomic_store_n(&m->stalled_ms, m->stalled_ms + lost_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&m->clock_max_ms, ran + mcm_tick_ms(m), __ATOMIC_RELEASE);
}

/* Time since the last tick, less the tick period. */
static uint64_t stall_ms(const struct mcm *m, uint64_t now_ns)
{
	uint64_t gap = (now_ns - m->tick_ns) / MC_NS_PER_MS, tick = mcm_tick_ms(m);

	return gap > tick ? gap - tick : 0;
}

uint64_t mcm_now_exact_ms(const struct mcm *m)
{
	uint64_t max = __atomic_load_n(&m->clock_max_ms, __ATOMIC_ACQUIRE);
	/* The coarse clock of mc_now_ms() may be some ms late, at the end of a lease more than at its begin. */
	uint64_t now = mc_now_ns() / MC_NS_PER_MS - m->start_ms - __atomic_load_n(&m->stalled_ms, __ATOMIC_RELAXED);

	return now <= max + (STALL_TICKS - 1) * mcm_tick_ms(m) ? now : max;
}

void mcm_clock_start(struct mcm *m)
{
	uint64_t now = mc_now_ns();

	clock_set(m, now, m->tick_ns ? stall_ms(m, now) : 0);
}

void mcm_clock_tick(struct mcm *m)
{
	uint64_t now = mc_now_ns(), lost = stall_ms(m, now);

	if (lost <= (STALL_TICKS - 1) * mcm_tick_ms(m)) {
		clock_set(m, now, 0);
		return;
	}
	clock_set(m, now, lost);
	mc_metric_add(&stalled, (int64_t)lost);
	mc_warn(LOG, "the master was stalled, not counting the time against clients ms=%llu",
		(unsigned long long)lost);
}
