/* SPDX-License-Identifier: Apache-2.0
 * test_common_env.c - variables and protocols that have no effect are reported once in the log; variables with secrets
 * are not inherited. */
#include <config.h>

#include "common/env.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/net/protocol.h"

#define OUTPUT 16384u

/* Run @fn in a child, because a process reports once; returns the text that the child wrote to stderr. */
static char *output_of(void (*fn)(void))
{
	int fd = memfd_create("stderr", MFD_CLOEXEC), status;
	static char text[OUTPUT];
	ssize_t n;
	pid_t pid;

	assert_true(fd >= 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fd, STDERR_FILENO);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	close(fd);
	return text;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static void read_sizes(void)
{
	static const struct {
		const char *text;
		uint64_t want;
	} cases[] = {
		{ "64MB", 64 << 20 }, { "67108864", 64 << 20 }, { "1.5 KiB", 1536 }, { "", 7 },
		{ "-1", 7 }, { "64 cats", 7 }, { "2GB", 7 },
	};
	int wrong = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("MC_SIZE", cases[i].text, 1);
		wrong += mc_env_size("MC_SIZE", 7, 1, 1 << 30) != cases[i].want;
	}
	_exit(wrong);
}

static void sizes_have_units(void **state)
{
	/* one line per second for one place */
	assert_int_equal(count(output_of(read_sizes), "not a size from 1 B to 1 GiB, such as 1048576 or 64MB, "
			       "using 7 B: MC_SIZE=-1"), 1);
}

static void report_some(void)
{
	clearenv();
	setenv("MC_STORE_REPLICA_SCORING", "1", 1);
	setenv("MC_STORE_CLUSTER_ID", "", 1);
	setenv("MOONCAKE_OFFLOAD_FSDIR", "x", 1);
	setenv("MC_RETRY_CNT", "4", 1);
	setenv("MC_RETRY_CNT_OTHER", "4", 1);
	setenv("MC_RETRY", "4", 1);
	setenv("MC_FORCE_TCP", "1", 1);
	setenv("MOONCAKE_MASTER", "a:1", 1);
	mc_env_report_inert();
	setenv("MC_SLICE_TIMEOUT", "3", 1);
	mc_env_report_inert();
}

static void variables_without_effect_are_named_in_one_line(void **state)
{
	const char *text = output_of(report_some);

	assert_int_equal(count(text, "\n"), 1);
	assert_int_equal(count(text, " warn env: "), 1);
	assert_int_equal(count(text, "version: MC_STORE_REPLICA_SCORING MOONCAKE_OFFLOAD_FSDIR MC_RETRY_CNT\n"), 1);
}

static void report_none(void)
{
	clearenv();
	setenv("MC_FORCE_TCP", "1", 1);
	setenv("MC_STORE_REPLICA_SCORING", "", 1);
	mc_env_report_inert();
}

static void nothing_is_reported_without_such_variables(void **state)
{
	assert_string_equal(output_of(report_none), "");
}

static void report_many(void)
{
	char name[64];

	clearenv();
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "MC_STORE_VARIABLE_WITH_A_LONG_NAME_%03d", i);
		setenv(name, "1", 1);
	}
	mc_env_report_inert();
}

/* The log cuts long lines off; the line says how many names it leaves out. */
static void a_long_list_ends_with_a_number(void **state)
{
	const char *text = output_of(report_many), *list = strstr(text, "version:"), *more;
	unsigned names = count(text, "MC_STORE_VARIABLE"), left = 0;

	assert_non_null(list);
	more = strstr(list, " and ");
	assert_non_null(more);
	assert_int_equal(sscanf(more, " and %u more\n", &left), 1);
	assert_int_equal(names + left, 100);
	assert_int_equal(count(text, "\n"), 1);
}

static void parse_protocols(void)
{
	static const char *const names[] = { "tcp", "ub", "ub", "efa", "cxl", "ub" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (mc_protocol_parse(names[i]) != MC_PROTOCOL_TCP)
			_exit(1);
	if (mc_protocol_parse("rpc_only") != MC_PROTOCOL_RPC_ONLY || mc_protocol_parse("rdma") != MC_PROTOCOL_RDMA ||
	    mc_protocol_parse("rmda") != -MC_EPARAM ||
	    mc_protocol_parse("") != -MC_EPARAM || mc_protocol_parse("TCP") != -MC_EPARAM)
		_exit(2);
}

static void an_unavailable_protocol_is_reported_once(void **state)
{
	const char *text = output_of(parse_protocols);

	assert_int_equal(count(text, "\"ub\" is not available, continuing with tcp"), 1);
	assert_int_equal(count(text, "\"efa\" is not available"), 1);
	assert_int_equal(count(text, "\"cxl\" is not available"), 1);
	assert_int_equal(count(text, "\n"), 3);
}

static void hide_and_print(void)
{
	char **env, *there;

	setenv("MC_REDIS_PASSWORD", "hushhush", 1);
	setenv("MOONCAKE_S3_SECRET_ACCESS_KEY", "", 1);
	setenv("MC_REDIS_USERNAME", "me", 1);
	there = getenv("MC_REDIS_PASSWORD");

	mc_env_hide();
	fprintf(stderr, "known %s, %s, %s\n", mc_env_str("MC_REDIS_PASSWORD"), mc_env_str("MC_REDIS_USERNAME"),
		mc_env_str("MOONCAKE_S3_SECRET_ACCESS_KEY") ? "set" : "unset");
	fprintf(stderr, "left %s %s \"%s\"\n", getenv("MC_REDIS_PASSWORD") ? "yes" : "no", getenv("MC_REDIS_USERNAME"),
		there);
	env = mc_env_revealed();
	for (; *env; env++)
		if (!strncmp(*env, "MC_REDIS", 8))
			fprintf(stderr, "again %s\n", *env);
}

static void scrub_and_print(void)
{
	char **env, *there;

	setenv("MC_REDIS_PASSWORD", "hushhush", 1);
	setenv("MC_REDIS_USERNAME", "me", 1);
	there = getenv("MC_REDIS_PASSWORD");
	mc_env_scrub();
	fprintf(stderr, "known %s, before \"%s\"\n", getenv("MC_REDIS_PASSWORD"), there);
	env = mc_env_public();
	for (; *env; env++)
		if (!strncmp(*env, "MC_REDIS", 8))
			fprintf(stderr, "public %s\n", *env);
}

static void secrets_stay_in_the_process_alone(void **state)
{
	const char *text = output_of(scrub_and_print);

	assert_int_equal(count(text, "known hushhush, before \"\"\n"), 1);
	assert_int_equal(count(text, "public"), 1);
	assert_int_equal(count(text, "public MC_REDIS_USERNAME=me\n"), 1);
}

static void secrets_leave_the_environment(void **state)
{
	const char *text = output_of(hide_and_print);

	assert_int_equal(count(text, "known hushhush, me, unset\n"), 1);
	assert_int_equal(count(text, "left no me \"\"\n"), 1);
	assert_int_equal(count(text, "again MC_REDIS_PASSWORD=hushhush\n"), 1);
	assert_int_equal(count(text, "again MC_REDIS_USERNAME=me\n"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_have_units),
		cmocka_unit_test(variables_without_effect_are_named_in_one_line),
		cmocka_unit_test(nothing_is_reported_without_such_variables),
		cmocka_unit_test(a_long_list_ends_with_a_number),
		cmocka_unit_test(an_unavailable_protocol_is_reported_once),
		cmocka_unit_test(secrets_leave_the_environment),
		cmocka_unit_test(secrets_stay_in_the_process_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
