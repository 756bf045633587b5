/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_memlimit.c - amount of available memory. */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tiers/dram/memlimit.h"

static void stat_values(void **state)
{
	static const char text[] = "MemTotal:       24000 kB\nMemAvailable:   17 kB\nactive_file 12\n"
				   "inactive_file 345\nlast 9";

	assert_int_equal(mct_stat_value(text, "MemAvailable"), 17);
	assert_int_equal(mct_stat_value(text, "inactive_file"), 345);
	assert_int_equal(mct_stat_value(text, "active_file"), 12);
	assert_int_equal(mct_stat_value(text, "last"), 9);
	assert_int_equal(mct_stat_value(text, "Mem"), 0);
	assert_int_equal(mct_stat_value(text, "nothing"), 0);
	assert_int_equal(mct_stat_value("", "nothing"), 0);
}

static void this_machine(void **state)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), have;
	const char *by = NULL;

	have = mct_mem_available(&by);
	assert_non_null(by);
	assert_true(have > 0);
	/* Without /proc the result is UINT64_MAX. */
	if (access("/proc/meminfo", R_OK) == 0)
		assert_true(have <= all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat_values),
		cmocka_unit_test(this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
