/* SPDX-License-Identifier: Apache-2.0
 * test_common_fork.c - a forked child finds locks free that other threads of its parent held
 * during the fork, and detects that it is another process. */
#include <config.h>

#include "common/process/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"

#define CHILD_S 20	/* a child that stands still ends by this alarm */
#define FORKS 100

/* Exit status of a child that runs @fn, or -signal. */
static int in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(CHILD_S);
		_exit(fn());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- another process ---- */

static unsigned mine;

static int refused(void)
{
	return mc_fork_check(mine) == -MC_EUNAVAILABLE && strstr(mc_err_detail(-MC_EUNAVAILABLE), "fork") &&
		mc_fork_check(mc_fork_depth) == 0 ? 0 : 1;
}

static int refused_below(void)
{
	int status;
	pid_t pid;

	mine = mc_fork_depth;
	pid = fork();
	if (pid == 0)
		_exit(refused());
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

static void a_child_is_told_from_its_parent(void **state)
{
	mine = mc_fork_depth;
	assert_int_equal(in_child(refused), 0);
	assert_int_equal(in_child(refused_below), 0);
	assert_int_equal(mc_fork_check(mine), 0);
}

/* ---- locks ---- */

static bool stop;
static uint64_t rounds;

static bool stopping(void)
{
	__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

/* Fork while a thread runs @busy; each child runs @fn. */
static void fork_beside(void *(*busy)(void *), int (*fn)(void))
{
	pthread_t t;

	stop = false;
	rounds = 0;
	assert_int_equal(pthread_create(&t, NULL, busy, NULL), 0);
	while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < 10)
		sched_yield();
	for (unsigned i = 0; i < FORKS; i++)
		assert_int_equal(in_child(fn), 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
}

static void *hit_faults(void *arg)
{
	while (!stopping())
		(void)mc_fault("fork.test");
	return NULL;
}

static int hit_one(void)
{
	return mc_fault("fork.test") == -EIO ? 0 : 1;
}

static void fault_points(void **state)
{
	assert_int_equal(mc_fault_set("fork.test=error:EIO"), 0);
	fork_beside(hit_faults, hit_one);
	mc_fault_set(NULL);
}

/* With a level for the component, its lines are filtered under the log's lock. */
static void *weigh_lines(void *arg)
{
	while (!stopping())
		(void)mc_log_on("fork", MC_LOG_DEBUG);
	return NULL;
}

static int weigh_one(void)
{
	return mc_log_on("fork", MC_LOG_DEBUG) ? 0 : 1;
}

static void log_levels(void **state)
{
	const struct mc_log_conf conf = { .levels = "warn,fork=debug" };

	assert_int_equal(mc_log_open(&conf), 0);
	fork_beside(weigh_lines, weigh_one);
	mc_log_close();
}

static void gauge(void *arg)
{
	const struct timespec t = { .tv_nsec = 2000000 };

	nanosleep(&t, NULL);
}

/* A waiting thread gets the lock only if it stays free for a while. */
static void pause_a_little(void)
{
	const struct timespec t = { .tv_nsec = 500000 };

	nanosleep(&t, NULL);
}

static void *print_metrics(void *arg)
{
	FILE *to = fopen("/dev/null", "w");

	while (!stopping()) {
		(void)mc_metrics_print(to);
		pause_a_little();
	}
	fclose(to);
	return NULL;
}

static int print_one(void)
{
	return mc_metrics_print(stdout) < 0 ? 1 : 0;
}

/* Nearly always one of them is running. */
static void collectors(void **state)
{
#ifdef __SANITIZE_ADDRESS__
	/* The allocator's own locks may be locked in a child of a process whose threads
	 * allocate. */
	skip();
#endif
	assert_int_equal(mc_metrics_collector(gauge, NULL), 0);
	fork_beside(print_metrics, print_one);
	mc_metrics_collector_remove(gauge, NULL);
}

/* ---- the thread that holds a lock waits for something else ---- */

static int saved_stderr, full[2];
static pid_t writer;

static void *write_line(void *arg)
{
	__atomic_store_n(&writer, gettid(), __ATOMIC_RELEASE);
	mc_err("fork", "a line that nobody reads");
	return NULL;
}

static bool writer_sleeps(void)
{
	char path[64], state = 0;
	pid_t tid = __atomic_load_n(&writer, __ATOMIC_ACQUIRE);
	FILE *f;

	if (!tid)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (fscanf(f, "%*d %*s %c", &state) != 1)
		state = 0;
	fclose(f);
	return state == 'S';
}

static int write_elsewhere(void)
{
	int null = open("/dev/null", O_WRONLY);

	if (dup2(null, STDERR_FILENO) < 0)
		return 1;
	mc_err("fork", "a line of the child");
	return 0;
}

/* The log's lock is held during a write into a full pipe. */
static void a_log_without_a_reader(void **state)
{
	static char junk[4096];
	uint64_t began;
	pthread_t t;

	assert_int_equal(pipe2(full, O_NONBLOCK), 0);
	while (write(full[1], junk, sizeof(junk)) > 0 || write(full[1], junk, 1) > 0)
		;
	assert_int_equal(fcntl(full[1], F_SETFL, 0), 0);
	saved_stderr = dup(STDERR_FILENO);
	assert_true(dup2(full[1], STDERR_FILENO) >= 0);
	assert_int_equal(pthread_create(&t, NULL, write_line, NULL), 0);
	while (!writer_sleeps())
		sched_yield();
	began = mc_now_ns();
	assert_int_equal(in_child(write_elsewhere), 0);
	assert_true(mc_now_ns() - began < 10 * MC_NS_PER_SEC);
	for (unsigned i = 0; i < 2; i++)
		assert_true(read(full[0], junk, sizeof(junk)) > 0);
	pthread_join(t, NULL);
	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	close(saved_stderr);
	close(full[0]);
	close(full[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_is_told_from_its_parent),
		cmocka_unit_test(fault_points),
		cmocka_unit_test(log_levels),
		cmocka_unit_test(collectors),
		cmocka_unit_test(a_log_without_a_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
