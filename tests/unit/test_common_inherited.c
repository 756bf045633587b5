/* SPDX-License-Identifier: Apache-2.0
 * test_common_inherited.c - which inherited descriptors a daemon closes. */
#include <config.h>

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/process/inherited.h"

static char program[] = "mcfs", dir[] = "/mnt";

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* In a child, whose descriptors are its own: inherit @n descriptors from 3 on, call @fn, return its result. */
static int in_child(int n, int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);

		for (int fd = 3; fd < 3 + n; fd++)
			(void)dup2(null, fd);
		if (null >= 3 + n)
			close(null);
		unsetenv("LISTEN_PID");
		unsetenv("LISTEN_FDS");
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int close_plain(void)
{
	char *argv[] = { program, dir };
	int own;

	(void)dup2(0, 900);
	mc_inherited_note();
	own = open("/dev/null", O_RDONLY);
	mc_inherited_close(2, argv);
	/* one that the program has closed, and whose number is used again, is not closed a second time */
	mc_inherited_close(2, argv);
	return is_open(3) || is_open(7) || is_open(900) || !is_open(own) || !is_open(0) || !is_open(2);
}

static int close_nothing(void)
{
	char *argv[] = { program };
	int own;

	/* none of the test's harness either */
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	mc_inherited_note();
	own = open("/dev/null", O_RDONLY);
	mc_inherited_close(1, argv);
	return !is_open(own);
}

static void test_all_above_2_are_closed_and_own_ones_stay(void **state)
{
	(void)state;
	assert_int_equal(in_child(5, close_plain), 0);
	assert_int_equal(in_child(0, close_nothing), 0);
}

static int close_with_arguments(void)
{
	char arg[][40] = { "/dev/fd/3", "/dev/fd/4", "--config_path=/proc/self/fd/5", "/dev/fd/66", "/dev/fd/x" };
	char *argv[] = { arg[0], arg[1], arg[2], arg[3], arg[4] };

	mc_inherited_note();
	mc_inherited_close(5, argv);
	return is_open(3) || !is_open(4) || !is_open(5) || is_open(6);
}

static void test_descriptors_that_an_argument_names_stay(void **state)
{
	(void)state;
	assert_int_equal(in_child(4, close_with_arguments), 0);
}

static int close_with_systemd(void)
{
	char *argv[] = { program }, pid[24];

	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "2", 1);
	mc_inherited_note();
	mc_inherited_close(1, argv);
	return !is_open(3) || !is_open(4) || is_open(5);
}

static int close_with_anothers_systemd(void)
{
	char *argv[] = { program };

	setenv("LISTEN_PID", "1", 1);
	setenv("LISTEN_FDS", "2", 1);
	mc_inherited_note();
	mc_inherited_close(1, argv);
	return is_open(3) || is_open(4);
}

static void test_descriptors_of_systemd_stay(void **state)
{
	(void)state;
	assert_int_equal(in_child(4, close_with_systemd), 0);
	assert_int_equal(in_child(4, close_with_anothers_systemd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_above_2_are_closed_and_own_ones_stay),
		cmocka_unit_test(test_descriptors_that_an_argument_names_stay),
		cmocka_unit_test(test_descriptors_of_systemd_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
