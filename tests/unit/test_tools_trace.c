/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/bench/mcbench_trace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"

static char path[64];

static int load(const char *text, uint64_t limit, struct mcbench_trace *t)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	return mcbench_trace_load(path, limit, t);
}

static const char good[] =
	"{\"timestamp\": 1000, \"input_length\": 900, \"output_length\": 5, \"hash_ids\": [0, 7]}\n"
	"\n"
	"{\"timestamp\": 1000, \"hash_ids\": []}\r\n"
	"{\"hash_ids\": [0, 9007199254740993, 7], \"timestamp\": 1250.5, \"more\": {\"a\": 1}}";

static void reads_valid_traces(void **state)
{
	struct mcbench_trace t;

	assert_int_equal(load(good, 0, &t), 0);
	assert_int_equal(t.n_requests, 3);
	assert_int_equal(t.n_ids, 5);
	assert_int_equal(t.distinct, 3);
	assert_int_equal(t.max_blocks, 3);
	assert_int_equal(t.requests[0].time_ms, 0);
	assert_int_equal(t.requests[0].n, 2);
	assert_int_equal(t.requests[1].n, 0);
	assert_int_equal(t.requests[2].time_ms, 250);
	assert_int_equal(t.requests[2].first, 2);
	/* more than a double can hold */
	assert_true(t.ids[3] == 9007199254740993ull);
	mcbench_trace_free(&t);
}

static void limit_is_kept(void **state)
{
	struct mcbench_trace t;

	assert_int_equal(load(good, 1, &t), 0);
	assert_int_equal(t.n_requests, 1);
	assert_int_equal(t.distinct, 2);
	mcbench_trace_free(&t);
}

static void large_trace_is_read_whole(void **state)
{
	struct mcbench_trace t;
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (unsigned i = 0; i < 3000; i++)
		fprintf(f, "{\"timestamp\": %u, \"hash_ids\": [%u, %u]}\n", i, i, i + 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(mcbench_trace_load(path, 0, &t), 0);
	assert_int_equal(t.n_requests, 3000);
	assert_int_equal(t.distinct, 3001);
	for (unsigned i = 0; i < 3000; i++) {
		assert_int_equal(t.ids[t.requests[i].first], i);
		assert_int_equal(t.ids[t.requests[i].first + 1], i + 1);
	}
	mcbench_trace_free(&t);
}

static void bad_lines_are_named(void **state)
{
	static const struct {
		const char *line, *says;
	} bad[] = {
		{ "{\"timestamp\": 2000, \"hash_ids\": [1, 2}", "']' expected" },
		{ "not json", ":2: " },
		{ "[1]", "not a JSON object" },
		{ "{\"hash_ids\": [1]}", "timestamp" },
		{ "{\"timestamp\": \"7\", \"hash_ids\": [1]}", "timestamp" },
		{ "{\"timestamp\": -1, \"hash_ids\": [1]}", "timestamp" },
		{ "{\"timestamp\": 1e300, \"hash_ids\": [1]}", "timestamp" },
		{ "{\"timestamp\": 999, \"hash_ids\": [1]}", "before" },
		{ "{\"timestamp\": 2000}", "hash_ids" },
		{ "{\"timestamp\": 2000, \"hash_ids\": 3}", "hash_ids" },
		{ "{\"timestamp\": 2000, \"hash_ids\": [4, -1]}", "hash_ids[1]" },
		{ "{\"timestamp\": 2000, \"hash_ids\": [4, 1.5]}", "hash_ids[1]" },
		{ "{\"timestamp\": 2000, \"hash_ids\": [99999999999999999999]}", "" },
		{ "{\"timestamp\": 2000, \"hash_ids\": [1], \"hash_ids\": [2]}", "" },
		{ "{\"timestamp\": 2000, \"hash_ids\": [1]} x", "" },
	};
	struct mcbench_trace t;
	char text[256], place[80];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *detail;

		snprintf(text, sizeof(text), "{\"timestamp\": 1000, \"hash_ids\": [1]}\n%s\n",
			 bad[i].line);
		assert_int_equal(load(text, 0, &t), -EINVAL);
		assert_null(t.requests);
		assert_null(t.ids);
		snprintf(place, sizeof(place), "%s:2: ", path);
		detail = mc_err_detail(-EINVAL);
		if (strncmp(detail, place, strlen(place)) || !strstr(detail, bad[i].says))
			fail_msg("%s: %s", bad[i].line, detail);
	}
}

static void nothing_to_replay_is_an_error(void **state)
{
	struct mcbench_trace t;

	assert_int_equal(load("", 0, &t), -EINVAL);
	assert_int_equal(load("\n  \n", 0, &t), -EINVAL);
	assert_int_equal(load("{\"timestamp\": 1, \"hash_ids\": []}\n", 0, &t), -EINVAL);
	assert_int_equal(mcbench_trace_load("/nonexistent/trace", 0, &t), -ENOENT);
	assert_non_null(strstr(mc_err_detail(-ENOENT), "/nonexistent/trace"));
	assert_true(mcbench_trace_load("/", 0, &t) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_valid_traces),
		cmocka_unit_test(limit_is_kept),
		cmocka_unit_test(large_trace_is_read_whole),
		cmocka_unit_test(bad_lines_are_named),
		cmocka_unit_test(nothing_to_replay_is_an_error),
	};
	int fd, r;

	snprintf(path, sizeof(path), "/tmp/test_tools_trace.XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return r;
}
