/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/sys/thread.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/late.h"

struct seen {
	char name[16];
	sigset_t mask;
};

static void *look(void *arg)
{
	struct seen *s = arg;

	pthread_getname_np(pthread_self(), s->name, sizeof(s->name));
	pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
	return s;
}

static void thread_has_name_and_mask(void **state)
{
	struct seen s;
	sigset_t mine;
	struct mc_thread t;
	void *ret;

	assert_int_equal(mc_thread_start(&t, "a-name-that-is-too-long", look, &s), 0);
	pthread_join(t.id, &ret);
	assert_ptr_equal(ret, &s);
	assert_string_equal(s.name, "a-name-that-is-");
	assert_true(sigismember(&s.mask, SIGTERM) == 1);
	assert_true(sigismember(&s.mask, SIGALRM) == 1);
	assert_true(sigismember(&s.mask, SIGBUS) == 0);
	assert_true(sigismember(&s.mask, SIGSEGV) == 0);
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_true(sigismember(&mine, SIGALRM) == 0);
}

static void wait_ends_with_its_time(void **state)
{
	uint64_t begin = mc_now_ns();
	struct mc_stop s;

	assert_int_equal(mc_stop_init(&s), 0);
	assert_false(mc_stop_wait(&s, 20));
	assert_true(mc_now_ns() - begin >= 20 * MC_NS_PER_MS);
	assert_false(mc_stop_wait(&s, 0));
	mc_stop_done(&s);
}

static void *wait_long(void *arg)
{
	return mc_stop_wait(arg, UINT64_MAX) ? arg : NULL;
}

static void stop_ends_every_wait(void **state)
{
	struct mc_stop s;
	struct mc_thread t[3];
	void *ret;

	assert_int_equal(mc_stop_init(&s), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(mc_thread_start(&t[i], "waiter", wait_long, &s), 0);
	mc_stop_set(&s);
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i].id, &ret);
		assert_ptr_equal(ret, &s);
	}
	assert_true(mc_stop_wait(&s, 1000000));
	mc_stop_done(&s);
}

struct turns {
	struct mc_stop stop;
	unsigned n;
};

static void *count_turns(void *arg)
{
	struct turns *a = arg;

	while (!mc_stop_wait(&a->stop, 1))
		__atomic_add_fetch(&a->n, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void a_started_thread_runs_until_it_is_joined(void **state)
{
	struct turns a = { .n = 0 };
	struct mc_thread t;

	assert_int_equal(mc_stop_start(&a.stop, &t, "turns", count_turns, &a), 0);
	while (__atomic_load_n(&a.n, __ATOMIC_RELAXED) < 3)
		usleep(1000);
	mc_stop_join(&a.stop, t);
}

static void kick_ends_one_wait_early(void **state)
{
	struct mc_stop s;
	uint64_t begin;
	struct mc_thread t;
	void *ret;

	assert_int_equal(mc_stop_init(&s), 0);
	assert_int_equal(mc_thread_start(&t, "waiter", wait_long, &s), 0);
	mc_stop_kick(&s);
	pthread_join(t.id, &ret);
	assert_null(ret);
	/* A kick before the wait ends that wait, and no other. */
	mc_stop_kick(&s);
	assert_false(mc_stop_wait(&s, 1000000));
	begin = mc_now_ns();
	assert_false(mc_stop_wait(&s, 10));
	assert_true(mc_now_ns() - begin >= 10 * MC_NS_PER_MS);
	mc_stop_done(&s);
}

static void signals_arrive_in_one_place(void **state)
{
	static const int sigs[] = { SIGUSR1, SIGTERM, SIGHUP, SIGINT };
	int pipefd[2];

	mc_signals_block();
	for (int i = 0; i < 4; i++) {
		kill(getpid(), sigs[i]);
		assert_int_equal(mc_signals_wait(), sigs[i]);
	}
	/* Writing to a pipe without a reader returns an error and does not kill the process. */
	assert_int_equal(pipe(pipefd), 0);
	close(pipefd[0]);
	assert_int_equal(write(pipefd[1], "x", 1), -1);
	close(pipefd[1]);
}

struct slow {
	struct mc_late late;
	struct mc_stop *until;
	unsigned *dropped;
	int result;
};

static int slow_run(struct mc_late *l)
{
	struct slow *s = (struct slow *)l;

	while (!mc_stop_wait(s->until, 1000))
		;
	return s->result < 0 ? mc_fail(s->result, "the reason") : s->result;
}

static void slow_drop(struct mc_late *l)
{
	__atomic_add_fetch(((struct slow *)l)->dropped, 1, __ATOMIC_RELEASE);
	free(l);
}

static struct slow *slow_start(struct mc_stop *until, unsigned *dropped, int result)
{
	struct slow *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	*s = (struct slow){ { .name = "slow", .run = slow_run, .drop = slow_drop }, until, dropped, result };
	assert_int_equal(mc_late_start(&s->late), 0);
	return s;
}

static void a_call_that_is_late_can_be_waited_for_or_left(void **state)
{
	struct slow *s, *left[MC_LATE_MAX];
	unsigned dropped = 0;
	struct mc_stop until;

	assert_int_equal(mc_stop_init(&until), 0);
	s = slow_start(&until, &dropped, -ENOENT);
	assert_int_equal(mc_late_wait(&s->late, 0), -EINPROGRESS);
	assert_int_equal(mc_late_wait(&s->late, mc_deadline_ms(5)), -EINPROGRESS);
	for (unsigned i = 1; i < MC_LATE_MAX; i++) {
		left[i] = slow_start(&until, &dropped, 0);
		assert_int_equal(mc_late_wait(&left[i]->late, 0), -EINPROGRESS);
		mc_late_leave(&left[i]->late);
	}
	/* All of them hang: no more threads. */
	assert_int_equal(mc_late_start(&(struct mc_late){ .name = "slow", .run = slow_run }), -MC_EUNAVAILABLE);
	assert_int_equal(dropped, 0);
	mc_stop_set(&until);
	assert_int_equal(mc_late_wait(&s->late, mc_deadline_ms(10000)), -ENOENT);
	assert_string_equal(mc_err_detail(-ENOENT), "the reason");
	free(s);
	while (__atomic_load_n(&dropped, __ATOMIC_ACQUIRE) < MC_LATE_MAX - 1)
		mc_thread_yield();
	/* One that has ended before it is left is dropped by the caller. */
	s = slow_start(&until, &dropped, 3);
	assert_int_equal(mc_late_wait(&s->late, mc_deadline_ms(10000)), 3);
	free(s);
	mc_stop_done(&until);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread_has_name_and_mask),
		cmocka_unit_test(wait_ends_with_its_time),
		cmocka_unit_test(stop_ends_every_wait),
		cmocka_unit_test(a_started_thread_runs_until_it_is_joined),
		cmocka_unit_test(kick_ends_one_wait_early),
		cmocka_unit_test(signals_arrive_in_one_place),
		cmocka_unit_test(a_call_that_is_late_can_be_waited_for_or_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
