/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/fault.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"

static int all_off(void **state)
{
	return mc_fault_set(NULL);
}

static void off_is_off(void **state)
{
	assert_int_equal(mc_fault("a.b"), 0);
	assert_int_equal(mc_fault_hits("a.b"), -ENOENT);
	assert_false(mc_faults_on);
}

static void errors_by_name_and_number(void **state)
{
	assert_int_equal(mc_fault_set("a=error:EIO,b=error:MC_ENOSPACE,c=error:5"), 0);
	assert_int_equal(mc_fault("a"), -EIO);
	assert_non_null(strstr(mc_err_detail(-EIO), "fault point a"));
	assert_int_equal(mc_fault("b"), -MC_ENOSPACE);
	assert_int_equal(mc_fault("c"), -5);
	assert_int_equal(mc_fault("d"), 0);
	assert_int_equal(mc_fault_hits("a"), 1);
	assert_int_equal(mc_fault_hits("d"), -ENOENT);
}

static void only_the_nth(void **state)
{
	assert_int_equal(mc_fault_set("a=error:EIO@3,a=error:EPIPE@2"), 0);
	assert_int_equal(mc_fault("a"), 0);
	assert_int_equal(mc_fault("a"), -EPIPE);
	assert_int_equal(mc_fault("a"), -EIO);
	assert_int_equal(mc_fault("a"), 0);
	assert_int_equal(mc_fault_hits("a"), 4);
}

static void some_percent(void **state)
{
	int struck = 0;

	assert_int_equal(mc_fault_set("a=error:EIO%50,b=error:EIO%100"), 0);
	for (int i = 0; i < 2000; i++) {
		struck += mc_fault("a") != 0;
		assert_int_equal(mc_fault("b"), -EIO);
	}
	/* 500 is beyond twenty standard deviations. */
	assert_true(struck > 500 && struck < 1500);
}

static void while_a_file_exists(void **state)
{
	char file[] = "/tmp/mc-fault.XXXXXX", spec[64];

	close(mkstemp(file));
	snprintf(spec, sizeof(spec), "a=error:EIO?%s", file);
	assert_int_equal(mc_fault_set(spec), 0);
	assert_int_equal(mc_fault("a"), -EIO);
	unlink(file);
	assert_int_equal(mc_fault("a"), 0);
	assert_int_equal(mc_fault_hits("a"), 2);
}

static void a_delay_delays(void **state)
{
	uint64_t begin = mc_now_ns();

	assert_int_equal(mc_fault_set("a=delay:15"), 0);
	MC_FAULT_POINT("a");
	assert_true(mc_now_ns() - begin >= 15 * MC_NS_PER_MS);
}

static void kill_and_stop_hit_the_process(void **state)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		mc_fault_set("a=stop@1,a=kill@2");
		MC_FAULT_POINT("a");
		MC_FAULT_POINT("a");
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void bad_sets_change_nothing(void **state)
{
	static const char *const bad[] = {
		"a", "=kill", "a=", "a=killl", "a=delay", "a=delay:", "a=delay:x", "a=delay:-1",
		"a=delay:99999999", "a=error:", "a=error:ENOSUCH", "a=error:0", "a=kill@0",
		"a=kill@", "a=kill@x", "a=kill%0", "a=kill%101", "a=kill@1@2", "a=kill?", "a=kill,",
		",a=kill", "b=kill,a", "a=error:5x", "a=error:+5",
		"a23456789012345678901234567890123456789012345678901234567890123456789=kill",
	};

	assert_int_equal(mc_fault_set("a=error:EIO"), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mc_fault_set(bad[i]), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "a2345"));
	assert_int_equal(mc_fault("a"), -EIO);
	assert_int_equal(mc_fault_set(""), 0);
	assert_int_equal(mc_fault("a"), 0);
}

static int run_self(const char *faults)
{
	char self[PATH_MAX];
	ssize_t len;
	int status;
	pid_t pid;

	/* Read the link: executing the link itself would run valgrind when that runs us. */
	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	assert_true(len > 0);
	self[len] = '\0';
	pid = fork();
	if (pid == 0) {
		setenv("MC_FAULTS", faults, 1);
		close(STDERR_FILENO);
		execl(self, "self", "child", (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void environment(void **state)
{
	assert_int_equal(run_self("env.point=error:EIO"), 42);
	assert_int_equal(run_self("env.point=error:EPIPE"), 0);
	assert_int_equal(run_self("env.point"), 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(off_is_off, all_off),
		cmocka_unit_test_teardown(errors_by_name_and_number, all_off),
		cmocka_unit_test_teardown(only_the_nth, all_off),
		cmocka_unit_test_teardown(some_percent, all_off),
		cmocka_unit_test_teardown(while_a_file_exists, all_off),
		cmocka_unit_test_teardown(a_delay_delays, all_off),
		cmocka_unit_test_teardown(kill_and_stop_hit_the_process, all_off),
		cmocka_unit_test_teardown(bad_sets_change_nothing, all_off),
		cmocka_unit_test_teardown(environment, all_off),
	};

	if (argc > 1)
		return mc_fault("env.point") == -EIO ? 42 : 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
