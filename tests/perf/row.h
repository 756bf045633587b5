/* SPDX-License-Identifier: Apache-2.0
 * row.h - a row of the table that "make bench" shows: what was measured, which figure of it, the value
 * and its unit.  A figure that a budget is about has its comparison of the same run in a row of its own
 * ("x memcpy", "x socket"). */
#ifndef PERF_ROW_H
#define PERF_ROW_H

#include <stdio.h>

static inline void perf_row(const char *what, const char *figure, double value, const char *unit)
{
	printf("%-46s %-12s %12.2f  %s\n", what, figure, value, unit);
	fflush(stdout);
}

#endif
