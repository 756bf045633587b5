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
/* The fake clock's time plus 1; 0: there is no fake clock. */
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
	uint64_t fake;

	if (__builtin_expect(!mc_clock_replaced, 1))
		return kernel_ns(id);
	fake = atomic_load_explicit(&fake_ns, memory_order_relaxed);
	return fake ? fake - 1 : simulated_ns(id);
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

void mc_wait_begin(struct mc_wait *w, clockid_t clock, uint64_t deadline)
{
	uint64_t ns = mc_deadline_left_ns(deadline);

	*w = (struct mc_wait){ clock, deadline, kernel_ns(clock) + (ns < WAIT_MAX_NS ? ns : WAIT_MAX_NS) };
}

bool mc_wait_step(const struct mc_wait *w, struct timespec *ret)
{
	uint64_t now = kernel_ns(w->clock), until = w->due;

	if (now >= w->due || mc_now_ns() >= w->deadline)
		return false;
	if (atomic_load(&fake_ns) && until - now > FAKE_STEP_NS)
		until = now + FAKE_STEP_NS;
	*ret = mc_timespec(until);
	return true;
}

void mc_sleep_until(uint64_t deadline)
{
	struct mc_world *w = mc_world();
	struct timespec until;
	struct mc_wait wait;

	while (w && mc_now_ns() < deadline)
		w->ops->block(w, &wait, deadline);
	if (w)
		return;
	mc_wait_begin(&wait, CLOCK_MONOTONIC, deadline);
	while (mc_wait_step(&wait, &until))
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
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
	atomic_store(&fake_ns, ns + 1);
	mc_clock_replaced = true;
}

void mc_clock_advance(uint64_t ns)
{
	atomic_fetch_add(&fake_ns, ns);
}

void mc_clock_real(void)
{
	atomic_store(&fake_ns, 0);
}
