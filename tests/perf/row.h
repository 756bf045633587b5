/* SPDX-License-Identifier: Apache-2.0
 * row.h - a row of the table that "make bench" shows: the case, the figure, its value and unit.  A
 * figure with a budget is followed by a row with its comparison from the same run ("x memcpy", "x
 * socket"). */
#ifndef PERF_ROW_H
#define PERF_ROW_H

#include <stdio.h>

static inline void perf_row(const char *what, const char *figure, double value, const char *unit)
{
	printf("%-46s %-12s %12.2f  %s\n", what, figure, value, unit);
	fflush(stdout);
}

#endif
