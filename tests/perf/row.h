/* SPDX-License-Identifier: Apache-2.0
 * row.h - a row of the table that "make bench" shows: the case, the figure, its value and unit.  A
 * figure with a budget is followed by a row with its comparison from the same run ("x memcpy", "x
 * socket").
 *
 * With PERF_QUICK=1 a program runs all of its cases in about a second; the figures mean nothing then.
 * tests/integ/perf_programs.sh runs all programs so. */
#ifndef PERF_ROW_H
#define PERF_ROW_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A number of rounds, objects or bytes: @full, or @quick with PERF_QUICK=1. */
static inline uint64_t perf_n(uint64_t full, uint64_t quick)
{
	const char *set = getenv("PERF_QUICK");

	return set && *set == '1' ? quick : full;
}

static inline void perf_row(const char *what, const char *figure, double value, const char *unit)
{
	printf("%-46s %-12s %12.2f  %s\n", what, figure, value, unit);
	fflush(stdout);
}

#endif
