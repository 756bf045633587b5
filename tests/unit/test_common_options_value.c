/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/options/options_i.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BAD UINT64_MAX

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0 }, { "1048576", 1 << 20 }, { "4gb", 4ull << 30 }, { "512MiB", 512 << 20 },
		{ "4 GB", 4ull << 30 }, { " 7 ", 7 }, { "1k", 1024 }, { "1K", 1024 },
		{ "1KiB", 1024 }, { "3b", 3 }, { "2TB", 2ull << 40 }, { "1p", 1ull << 50 },
		{ "1.5gb", 3ull << 29 }, { "0.5k", 512 }, { "0.0001k", 1 }, { "1.0k", 1024 },
		{ "18446744073709551614", BAD - 1 }, { "16383p", 16383ull << 50 },
		{ "", BAD }, { " ", BAD }, { "gb", BAD }, { "-1", BAD }, { "+1", BAD },
		{ "1x", BAD }, { "1gbb", BAD }, { "1 g b", BAD }, { "1gb x", BAD }, { "1.5", BAD },
		{ "1.k", BAD }, { ".5k", BAD }, { "1..5k", BAD }, { "0x10", BAD }, { "1e3", BAD },
		{ "1,5k", BAD }, { "80%", BAD }, { "18446744073709551616", BAD },
		{ "16384p", BAD }, { "99999999999999999999gb", BAD },
		{ "1.1234567890123456789k", BAD }, { "18446744073709551615.5b", BAD },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 4711;
		int r = mc_parse_size(cases[i].text, &v);

		if (r != (cases[i].bytes == BAD ? -EINVAL : 0) ||
		    v != (cases[i].bytes == BAD ? 4711 : cases[i].bytes))
			fail_msg("\"%s\": %d %llu", cases[i].text, r, (unsigned long long)v);
	}
}

static void durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t bare, ms;
	} cases[] = {
		{ "10s", 1, 10000 }, { "500ms", 1, 500 }, { "2m", 1, 120000 }, { "1h", 1, 3600000 },
		{ "1d", 1, 86400000 }, { "10", 1, 10 }, { "10", 1000, 10000 }, { "0", 1000, 0 },
		{ "1.5s", 1, 1500 }, { "1.5", 1000, 1500 }, { "0.5ms", 1, 1 },
		{ "3 min", 1, 180000 }, { "3SEC", 1, 3000 },
		{ "1.5", 1, BAD }, { "10 y", 1, BAD }, { "s", 1, BAD },
		{ "-5s", 1, BAD }, { "5s5", 1, BAD }, { "1m30s", 1, BAD },
		{ "18446744073709551615", 1000, BAD }, { "1000000000000000d", 1, BAD },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 4711;
		int r = mc_parse_duration(cases[i].text, cases[i].bare, &v);

		if (r != (cases[i].ms == BAD ? -EINVAL : 0) ||
		    v != (cases[i].ms == BAD ? 4711 : cases[i].ms))
			fail_msg("\"%s\": %d %llu", cases[i].text, r, (unsigned long long)v);
	}
}

static void switches(void **state)
{
	static const char *const on[] = { "true", "1", "YES", "on", "t", "y", " True " };
	static const char *const off[] = { "false", "0", "No", "OFF", "f", "n" };
	static const char *const bad[] = { "", "2", "tru", "truee", "-1", "yes no", "00" };
	bool v;

	for (size_t i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		v = false;
		assert_int_equal(mc_parse_bool(on[i], &v), 0);
		assert_true(v);
	}
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		v = true;
		assert_int_equal(mc_parse_bool(off[i], &v), 0);
		assert_false(v);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mc_parse_bool(bad[i], &v), -EINVAL);
}

static void sizes_for_people(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" }, { 1023, "1023 B" }, { 1024, "1 KiB" }, { 1536, "1.5 KiB" },
		{ 3ull << 29, "1.5 GiB" }, { 1ull << 40, "1 TiB" }, { 1025, "1.0 KiB" },
		{ (1ull << 30) - 1, "1.0 GiB" }, { (1ull << 20) - 1, "1.0 MiB" },
		{ UINT64_MAX, "16.0 EiB" },
	};
	char buf[32], small[4];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(mc_format_size(cases[i].bytes, buf, sizeof(buf)),
				    cases[i].text);
	assert_string_equal(mc_format_size(1ull << 30, small, sizeof(small)), "1 G");
}

/* Values that --print_config prints can be parsed again. */
static void formatted_values_parse_to_themselves(void **state)
{
	static const uint64_t values[] = {
		0, 1, 999, 1000, 1024, 1025, 60000, 61000, 3600000, 86400000, 1ull << 30,
		5ull << 40, UINT64_MAX, UINT64_MAX - 1,
	};
	static const struct mc_opt_row types[] = {
		{ .name = "size", .type = MC_OPT_SIZE },
		{ .name = "ms", .type = MC_OPT_MS },
		{ .name = "sec", .type = MC_OPT_SEC },
	};
	char buf[64];

	for (size_t t = 0; t < 3; t++)
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			uint64_t v = 4711;
			const char *text = mc_opt_format(&types[t], &values[i], buf, sizeof(buf));

			assert_int_equal(mc_opt_set(&types[t], text, &v, NULL), 0);
			assert_true(v == values[i]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(durations),
		cmocka_unit_test(switches),
		cmocka_unit_test(sizes_for_people),
		cmocka_unit_test(formatted_values_parse_to_themselves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
