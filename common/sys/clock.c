/* SPDX-License-Identifier: Apache-2.0
 * clock.c - the three clocks and their replacement for tests. */
#include <config.h>

#include "common/sys/sys_i.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "common/sys/world.h"

/* Longer waits are cut to this: their callers loop, and sums of timespecs cannot overflow. */
#define WAIT_MAX_NS (365ull * 86400 * MC_NS_PER_SEC)
/* With a fake clock, how often a wait compares its deadline with that clock. */
#define FAKE_STEP_NS MC_NS_PER_MS

bool mc_clock_replaced;
static atomic_bool fake;
static _Atomic uint64_t fake_ns;

static uint64_t kernel_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t simulated_ns(clockid_t id)
{
	struct mc_world *w = mc_world();

	if (!w)
		return kernel_ns(id);
	return id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE ? w->ops->now_ns(w) : w->ops->wall_ns(w);
}

static inline uint64_t read_clock(clockid_t id)
{
	if (__builtin_expect(!mc_clock_replaced, 1))
		return kernel_ns(id);
	if (atomic_load_explicit(&fake, memory_order_relaxed))
		return atomic_load_explicit(&fake_ns, memory_order_relaxed);
	return simulated_ns(id);
}

uint64_t mc_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t mc_thread_cpu_ns(void)
{
	return kernel_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t mc_now_ms(void)
{
	return read_clock(CLOCK_MONOTONIC_COARSE) / MC_NS_PER_MS;
}

uint64_t mc_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

uint64_t mc_wall_ms(void)
{
	return read_clock(CLOCK_REALTIME_COARSE) / MC_NS_PER_MS;
}

uint64_t mc_deadline_ms(int64_t ms)
{
	uint64_t ns, due;

	if (ms < 0 || __builtin_mul_overflow((uint64_t)ms, MC_NS_PER_MS, &ns) ||
	    __builtin_add_overflow(mc_now_ns(), ns, &due))
		return MC_NEVER;
	return due;
}

uint64_t mc_deadline_left_ns(uint64_t deadline)
{
	uint64_t now = mc_now_ns();

	return deadline > now ? deadline - now : 0;
}

int mc_deadline_left_ms(uint64_t deadline)
{
	uint64_t left;

	if (deadline == MC_NEVER)
		return INT32_MAX;
	left = mc_deadline_left_ns(deadline);
	left = left / MC_NS_PER_MS + !!(left % MC_NS_PER_MS);
	return left < INT32_MAX ? (int)left : INT32_MAX;
}

struct timespec mc_clock_due(clockid_t clock, uint64_t deadline)
{
	uint64_t ns = mc_deadline_left_ns(deadline), max = atomic_load(&fake) ? FAKE_STEP_NS : WAIT_MAX_NS;

	return mc_timespec(kernel_ns(clock) + (ns < max ? ns : max));
}

void mc_sleep_until(uint64_t deadline)
{
	struct mc_world *w = mc_world();
	struct timespec due;

	while (mc_now_ns() < deadline) {
		if (w) {
			w->ops->block(w, &due, deadline);
			continue;
		}
		due = mc_clock_due(CLOCK_MONOTONIC, deadline);
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
}

void mc_sleep_ns(uint64_t ns)
{
	uint64_t due;

	mc_sleep_until(__builtin_add_overflow(mc_now_ns(), ns, &due) ? MC_NEVER : due);
}

void mc_sleep_ms(uint64_t ms)
{
	mc_sleep_until(mc_deadline_ms((int64_t)ms));
}

void mc_clock_fake(uint64_t ns)
{
	atomic_store(&fake_ns, ns);
	atomic_store(&fake, true);
	mc_clock_replaced = true;
}

void mc_clock_advance(uint64_t ns)
{
	atomic_fetch_add(&fake_ns, ns);
}

void mc_clock_real(void)
{
	atomic_store(&fake, false);
}
