/* SPDX-License-Identifier: Apache-2.0
 * clock.h - clocks, deadlines and sleep.  Durations are measured on a monotonic clock.  Processes send
 * each other only durations, never instants, except for expiries.  Tests replace the clocks. */
#ifndef MC_CLOCK_H
#define MC_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MC_NS_PER_MS 1000000ull
#define MC_NS_PER_SEC 1000000000ull
/* A deadline that is never reached. */
#define MC_NEVER UINT64_MAX

/* Monotonic time in nanoseconds. */
uint64_t mc_now_ns(void);

/* The same in milliseconds; cheap (coarse clock, a few ms of error). */
uint64_t mc_now_ms(void);

/* Wall-clock time in nanoseconds since the Unix epoch: only for timestamps shown to people. */
uint64_t mc_wall_ns(void);

/* The same in milliseconds; cheap (coarse clock, a few ms late). */
uint64_t mc_wall_ms(void);

/* Absolute deadline @ms from now on the mc_now_ns() scale; @ms < 0 is MC_NEVER. */
uint64_t mc_deadline_ms(int64_t ms);

/* Nanoseconds left until @deadline: 0 when it has passed. */
uint64_t mc_deadline_left_ns(uint64_t deadline);
/* Milliseconds left until @deadline for poll(): rounded up, 0 when it has passed, at most INT32_MAX. */
int mc_deadline_left_ms(uint64_t deadline);

/* CPU time of the calling thread in nanoseconds. */
uint64_t mc_thread_cpu_ns(void);

/* Sleep until @deadline or for a time.  A signal does not end the sleep. */
void mc_sleep_until(uint64_t deadline);
void mc_sleep_ns(uint64_t ns);
void mc_sleep_ms(uint64_t ms);

static inline struct timespec mc_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / MC_NS_PER_SEC), .tv_nsec = (long)(ns % MC_NS_PER_SEC) };
}

/* Tests: replace all three clocks by one that shows @ns and moves only by mc_clock_advance();
 * mc_clock_real() ends that.  Waits with a deadline end when this clock passes it, and
 * after as much real time at the latest.  Not thread-safe against running timers. */
void mc_clock_fake(uint64_t ns);
void mc_clock_advance(uint64_t ns);
void mc_clock_real(void);

#endif
