/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/bench/mcbench_stats.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <mooncake/mcs.h>

static json_int_t latency(json_t *j, const char *quantile)
{
	json_t *v = json_object_get(json_object_get(j, "latency_ns"), quantile);

	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static void within(json_int_t got, json_int_t wanted)
{
	/* a bucket is an eighth of a power of two wide */
	if (got < wanted * 7 / 8 || got > wanted * 9 / 8)
		fail_msg("%lld, wanted about %lld", (long long)got, (long long)wanted);
}

static void quantiles_are_those_of_the_values(void **state)
{
	struct mcbench_stats *s = calloc(1, sizeof(*s));
	json_t *j;

	s->name = "get";
	for (unsigned i = 1; i <= 10000; i++)
		mcbench_stats_call(s, i * 100);
	j = mcbench_stats_json(s, 1);
	assert_non_null(j);
	within(latency(j, "p50"), 500000);
	within(latency(j, "p90"), 900000);
	within(latency(j, "p99"), 990000);
	within(latency(j, "p99.9"), 999000);
	assert_int_equal(latency(j, "max"), 1000000);
	assert_int_equal(json_integer_value(json_object_get(j, "calls")), 10000);
	json_decref(j);
	free(s);
}

static void rates_are_per_busy_time(void **state)
{
	struct mcbench_stats *s = calloc(1, sizeof(*s));

	assert_true(mcbench_stats_bytes_rate(s, 4) == 0);
	/* two threads, each half a second busy */
	mcbench_stats_call(s, 500000000);
	mcbench_stats_call(s, 500000000);
	mcbench_stats_items(s, 10, 1000);
	assert_true(mcbench_stats_items_rate(s, 2) == 20);
	assert_true(mcbench_stats_bytes_rate(s, 2) == 2000);
	free(s);
}

static void errors_are_counted_by_kind(void **state)
{
	struct mcbench_stats *s = calloc(1, sizeof(*s));
	json_t *j, *errors;
	char *text = NULL;
	size_t len;
	FILE *f;

	s->name = "put";
	for (unsigned i = 0; i < 3; i++)
		mcbench_stats_error(s, -MCS_ENOSPACE, 2);
	mcbench_stats_error(s, -EIO, 1);
	j = mcbench_stats_json(s, 1);
	errors = json_object_get(j, "errors");
	assert_int_equal(json_object_size(errors), 2);
	assert_int_equal(json_integer_value(json_object_get(errors, mcs_strerror(-MCS_ENOSPACE))),
			 6);
	assert_int_equal(json_integer_value(json_object_get(errors, mcs_strerror(-EIO))), 1);
	assert_int_equal(json_integer_value(json_object_get(j, "failed")), 7);
	json_decref(j);

	f = open_memstream(&text, &len);
	mcbench_stats_errors(s, f);
	fclose(f);
	assert_non_null(strstr(text, "put: 6 x no space in the pool\n"));
	free(text);
	free(s);
}

static void more_kinds_than_places_lose_no_count(void **state)
{
	struct mcbench_stats *s = calloc(1, sizeof(*s));
	uint64_t sum = 0;

	for (int i = 1; i <= 40; i++)
		mcbench_stats_error(s, -i, 1);
	for (unsigned i = 0; i < MCBENCH_ERRORS_MAX; i++)
		sum += s->count[i];
	assert_int_equal(sum, 40);
	assert_int_equal(s->failed, 40);
	free(s);
}

static void rows_stand_below_their_head(void **state)
{
	struct mcbench_stats *s = calloc(1, sizeof(*s));
	char *text = NULL, *row;
	size_t len;
	FILE *f;

	s->name = "lookup";
	mcbench_stats_call(s, 1500);
	mcbench_stats_items(s, 7, 0);
	f = open_memstream(&text, &len);
	mcbench_stats_head(f);
	mcbench_stats_row(s, 1, f);
	fclose(f);
	row = strchr(text, '\n') + 1;
	assert_int_equal(row - 1 - text, (long)strlen(row) - 1);
	assert_non_null(strstr(row, "1.5 us"));
	free(text);
	free(s);
}

static void times_have_their_unit(void **state)
{
	char buf[32];

	assert_string_equal(mcbench_time_text(0, buf, sizeof(buf)), "0 ns");
	assert_string_equal(mcbench_time_text(999, buf, sizeof(buf)), "999 ns");
	assert_string_equal(mcbench_time_text(12340, buf, sizeof(buf)), "12.3 us");
	assert_string_equal(mcbench_time_text(7800000, buf, sizeof(buf)), "7.8 ms");
	assert_string_equal(mcbench_time_text(61230000000ull, buf, sizeof(buf)), "61.23 s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_are_those_of_the_values),
		cmocka_unit_test(rates_are_per_busy_time),
		cmocka_unit_test(errors_are_counted_by_kind),
		cmocka_unit_test(more_kinds_than_places_lose_no_count),
		cmocka_unit_test(rows_stand_below_their_head),
		cmocka_unit_test(times_have_their_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
