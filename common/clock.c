/* SPDX-License-Identifier: Apache-2.0
 * clock.c - the three clocks and their replacement for tests. */
#include <config.h>

#include "common/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static atomic_bool fake;
static _Atomic uint64_t fake_ns;

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	if (__builtin_expect(atomic_load_explicit(&fake, memory_order_relaxed), 0))
		return atomic_load(&fake_ns);
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t mc_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
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

void mc_clock_fake(uint64_t ns)
{
	atomic_store(&fake_ns, ns);
	atomic_store(&fake, true);
}

void mc_clock_advance(uint64_t ns)
{
	atomic_fetch_add(&fake_ns, ns);
}

void mc_clock_real(void)
{
	atomic_store(&fake, false);
}
