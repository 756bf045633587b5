/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mcfs/caller.h"

struct thread {
	int fds[2];
};

static void *report(void *arg)
{
	struct thread *t = arg;
	pid_t tid = (pid_t)syscall(SYS_gettid);
	char c;

	assert_int_equal(write(t->fds[1], &tid, sizeof(tid)), sizeof(tid));
	assert_int_equal(read(t->fds[1], &c, 1), 0);
	return NULL;
}

static void threads_belong_to_their_process(void **state)
{
	struct thread t;
	pthread_t thread;
	pid_t tid;

	assert_int_equal(mcfs_caller_process(getpid()), getpid());
	assert_int_equal(mcfs_caller_process(0), 0);
	assert_true(mcfs_caller_is(0, 0));
	assert_false(mcfs_caller_is(0, getpid()));
	assert_true(mcfs_caller_is(getpid(), getpid()));
	assert_false(mcfs_caller_is(getpid(), getppid()));
	assert_int_equal(pipe(t.fds), 0);
	close(t.fds[0]);
	close(t.fds[1]);
	assert_int_equal(syscall(SYS_socketpair, 1, 1, 0, t.fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, report, &t), 0);
	assert_int_equal(read(t.fds[0], &tid, sizeof(tid)), sizeof(tid));
	assert_int_not_equal(tid, getpid());
	assert_int_equal(mcfs_caller_process(tid), getpid());
	assert_true(mcfs_caller_is(getpid(), tid));
	close(t.fds[0]);
	pthread_join(thread, NULL);
	close(t.fds[1]);
}

/* A process that has ended but is not reaped: its exit status can still be read. */
static pid_t zombie(int how)
{
	siginfo_t info;
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_NAME, "odd) name (", 0, 0, 0);
		if (how < 0)
			kill(getpid(), -how);
		_exit(how);
	}
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	return pid;
}

static void endings_are_told_apart(void **state)
{
	static const struct {
		int how;
		enum mcfs_fate fate;
	} cases[] = {
		{ 0, MCFS_EXITED }, { 1, MCFS_DIED }, { 255, MCFS_DIED }, { -SIGKILL, MCFS_DIED },
		{ -SIGTERM, MCFS_DIED },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pid_t pid = zombie(cases[i].how);

		assert_int_equal(mcfs_caller_fate(pid), cases[i].fate);
		waitpid(pid, NULL, 0);
		assert_int_equal(mcfs_caller_fate(pid), MCFS_GONE);
	}
	assert_int_equal(mcfs_caller_fate(getpid()), MCFS_ALIVE);
	assert_int_equal(mcfs_caller_fate(0), MCFS_ALIVE);
}

/* The fate that another user without privileges sees. */
static enum mcfs_fate fate_for_others(pid_t pid)
{
	const uid_t nobody = 65534;
	pid_t asks = fork();
	int status;

	if (asks == 0) {
		if (setresuid(nobody, nobody, nobody) || !mcfs_caller_hides_end(pid))
			_exit(99);
		_exit((int)mcfs_caller_fate(pid));
	}
	assert_int_equal(waitpid(asks, &status, 0), asks);
	assert_true(WIFEXITED(status));
	return (enum mcfs_fate)WEXITSTATUS(status);
}

static void a_hidden_end_is_no_good_one(void **state)
{
	static const int ends[] = { 0, 1, -SIGKILL };

	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		pid_t pid = zombie(ends[i]);

		assert_false(mcfs_caller_hides_end(pid));
		assert_int_equal(fate_for_others(pid), MCFS_DIED);
		waitpid(pid, NULL, 0);
		assert_false(mcfs_caller_hides_end(pid));
	}
}

static void a_pending_kill_is_seen(void **state)
{
	sigset_t set, old;

	assert_false(mcfs_caller_killed(getpid()));
	assert_false(mcfs_caller_killed(0));
	/* A blocked signal does not end a process. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	kill(getpid(), SIGTERM);
	assert_false(mcfs_caller_killed(getpid()));
	signal(SIGTERM, SIG_IGN);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGTERM, SIG_DFL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_belong_to_their_process),
		cmocka_unit_test(endings_are_told_apart),
		cmocka_unit_test(a_hidden_end_is_no_good_one),
		cmocka_unit_test(a_pending_kill_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
