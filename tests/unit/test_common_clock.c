/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/sys/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

static void real_clocks_move_together(void **state)
{
	uint64_t a = mc_now_ns(), ms = mc_now_ms(), b = mc_now_ns();

	assert_true(a > 0 && b >= a);
	/* The coarse clock lags by a tick of the kernel. */
	assert_true(ms <= b / MC_NS_PER_MS && ms + 50 >= a / MC_NS_PER_MS);
	assert_true(mc_wall_ns() / MC_NS_PER_SEC >= (uint64_t)time(NULL) - 1);
}

static void fake_clock_stands_until_advanced(void **state)
{
	mc_clock_fake(5 * MC_NS_PER_SEC);
	assert_int_equal(mc_now_ns(), 5 * MC_NS_PER_SEC);
	assert_int_equal(mc_wall_ns(), 5 * MC_NS_PER_SEC);
	assert_int_equal(mc_now_ms(), 5000);
	mc_clock_advance(1500 * MC_NS_PER_MS);
	assert_int_equal(mc_now_ms(), 6500);
	mc_clock_real();
	assert_true(mc_wall_ns() > 1000000 * MC_NS_PER_SEC);
}

static void deadlines(void **state)
{
	uint64_t d;

	mc_clock_fake(MC_NS_PER_SEC);
	d = mc_deadline_ms(100);
	assert_int_equal(d, 1100 * MC_NS_PER_MS);
	assert_int_equal(mc_deadline_left_ms(d), 100);
	mc_clock_advance(1);
	assert_int_equal(mc_deadline_left_ms(d), 100);
	mc_clock_advance(99 * MC_NS_PER_MS);
	assert_int_equal(mc_deadline_left_ms(d), 1);
	mc_clock_advance(MC_NS_PER_MS - 1);
	assert_int_equal(mc_deadline_left_ms(d), 0);
	mc_clock_advance(MC_NS_PER_SEC);
	assert_int_equal(mc_deadline_left_ms(d), 0);
	assert_int_equal(mc_deadline_left_ms(mc_deadline_ms(0)), 0);
	mc_clock_real();
}

static void deadlines_do_not_wrap(void **state)
{
	assert_true(mc_deadline_ms(-1) == MC_NEVER);
	assert_true(mc_deadline_ms(INT64_MAX) == MC_NEVER);
	assert_true(mc_deadline_ms((int64_t)(UINT64_MAX / MC_NS_PER_MS)) == MC_NEVER);
	assert_int_equal(mc_deadline_left_ms(MC_NEVER), INT32_MAX);
	assert_int_equal(mc_deadline_left_ms(MC_NEVER - 1), INT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_clocks_move_together),
		cmocka_unit_test(fake_clock_stands_until_advanced),
		cmocka_unit_test(deadlines),
		cmocka_unit_test(deadlines_do_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
