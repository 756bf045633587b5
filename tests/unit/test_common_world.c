/* SPDX-License-Identifier: Apache-2.0
 * test_common_world.c - time, locks and threads of simulated processes. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "common/sys/process.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "common/sys/world.h"
#include "tests/sim/sim.h"

#define SECOND MC_NS_PER_SEC
#define TURNS 100

/* A table of bounded size between writers and readers. */
struct queue {
	struct mc_mutex lock;
	struct mc_cond changed;
	unsigned length, put, taken, together;
};

static void *queue_write(void *arg)
{
	struct queue *q = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		MC_LOCKED(&q->lock);
		while (q->length == 2)
			mc_cond_wait(&q->changed, &q->lock);
		q->length++;
		q->put++;
		mc_cond_broadcast(&q->changed);
	}
	return NULL;
}

static void *queue_read(void *arg)
{
	struct queue *q = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		MC_LOCKED(&q->lock);
		while (!q->length)
			mc_cond_wait(&q->changed, &q->lock);
		q->together++;
		assert_int_equal(q->together, 1);
		/* Other fibers run now, and must wait for the lock. */
		mc_sleep_ms(1);
		q->together--;
		q->length--;
		q->taken++;
		mc_cond_broadcast(&q->changed);
	}
	return NULL;
}

static void *queue_main(void *arg)
{
	struct queue q = { .length = 0 };
	struct mc_thread t[4];

	assert_int_equal(mc_mutex_init(&q.lock), 0);
	assert_int_equal(mc_cond_init(&q.changed), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(mc_thread_start(&t[i], "worker", i % 2 ? queue_read : queue_write, &q), 0);
	for (unsigned i = 0; i < 4; i++)
		mc_thread_join(t[i]);
	assert_int_equal(q.put, 2 * TURNS);
	assert_int_equal(q.taken, 2 * TURNS);
	mc_cond_destroy(&q.changed);
	mc_mutex_destroy(&q.lock);
	*(unsigned *)arg += 1;
	return NULL;
}

static uint64_t queue_trace(uint64_t seed)
{
	struct sim *s = sim_new(seed);
	uint64_t trace, began = mc_now_ns();
	unsigned done = 0;

	sim_thread(sim_process(s, "a", NULL), "main", queue_main, &done);
	sim_thread(sim_process(s, "b", NULL), "main", queue_main, &done);
	sim_run(s, MC_NEVER);
	assert_int_equal(done, 2);
	/* Each reader holds its lock for 200 ms of virtual time. */
	assert_true(sim_now(s) >= 200 * MC_NS_PER_MS);
	assert_true(mc_now_ns() - began < 5 * SECOND);
	trace = sim_trace(s);
	sim_free(s);
	return trace;
}

static void locks_and_conditions_exclude_fibers_that_wait_while_they_hold_them(void **state)
{
	assert_int_equal(queue_trace(1), queue_trace(1));
	assert_int_not_equal(queue_trace(1), queue_trace(2));
}

static void *deadline_main(void *arg)
{
	struct mc_mutex lock = MC_MUTEX_INIT;
	struct mc_cond never;
	uint64_t began = mc_now_ns();

	assert_int_equal(mc_cond_init(&never), 0);
	mc_mutex_lock(&lock);
	while (mc_cond_wait_until(&never, &lock, began + 3600 * SECOND) != -ETIMEDOUT)
		;
	assert_true(mc_now_ns() - began >= 3600 * SECOND);
	assert_true(mc_now_ns() - began < 3601 * SECOND);
	mc_mutex_unlock(&lock);
	mc_cond_destroy(&never);
	*(unsigned *)arg = 1;
	return NULL;
}

static void an_hour_of_virtual_time_passes_while_all_fibers_wait(void **state)
{
	struct sim *s = sim_new(3);
	uint64_t began = mc_now_ns();
	unsigned done = 0;

	sim_thread(sim_process(s, "a", NULL), "main", deadline_main, &done);
	sim_run(s, MC_NEVER);
	assert_int_equal(done, 1);
	assert_true(mc_now_ns() - began < 5 * SECOND);
	sim_free(s);
}

static void *detail_main(void *arg)
{
	const char *mine = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		assert_int_equal(mc_fail(-EINVAL, "the detail of %s", mine), -EINVAL);
		errno = mine[0];
		mc_thread_yield();
		assert_int_equal(errno, mine[0]);
		assert_string_equal(mc_err_detail(-EINVAL) + strlen("the detail of "), mine);
	}
	return NULL;
}

static void errors_of_a_fiber_survive_a_wait(void **state)
{
	char one[] = "one", two[] = "two";
	struct sim *s = sim_new(4);
	struct mc_world *w = sim_process(s, "a", NULL);

	sim_thread(w, "one", detail_main, one);
	sim_thread(w, "two", detail_main, two);
	sim_run(s, MC_NEVER);
	sim_free(s);
}

static void *ending_main(void *arg)
{
	*(unsigned *)arg += 1;
	mc_sleep_ms(10);
	mc_process_end(1);
}

static void *living_main(void *arg)
{
	mc_sleep_ms(20);
	*(unsigned *)arg += 1;
	return NULL;
}

static void a_process_that_ends_takes_its_threads_with_it(void **state)
{
	struct sim *s = sim_new(5);
	struct mc_world *a = sim_process(s, "a", NULL), *b = sim_process(s, "b", NULL);
	unsigned ran = 0;

	sim_thread(a, "ending", ending_main, &ran);
	sim_thread(a, "living", living_main, &ran);
	sim_thread(b, "living", living_main, &ran);
	sim_run(s, MC_NEVER);
	assert_true(sim_has_ended(a));
	assert_false(sim_has_ended(b));
	assert_int_equal(ran, 2);
	sim_free(s);
}

static void *random_main(void *arg)
{
	*(uint64_t *)arg = mc_random_u64();
	return NULL;
}

static void processes_have_random_numbers_of_the_seed(void **state)
{
	uint64_t v[2][2];

	for (unsigned run = 0; run < 2; run++) {
		struct sim *s = sim_new(6);

		for (unsigned i = 0; i < 2; i++)
			sim_thread(sim_process(s, "p", NULL), "main", random_main, &v[run][i]);
		sim_run(s, MC_NEVER);
		sim_free(s);
	}
	assert_memory_equal(v[0], v[1], sizeof(v[0]));
	assert_int_not_equal(v[0][0], v[0][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locks_and_conditions_exclude_fibers_that_wait_while_they_hold_them),
		cmocka_unit_test(an_hour_of_virtual_time_passes_while_all_fibers_wait),
		cmocka_unit_test(errors_of_a_fiber_survive_a_wait),
		cmocka_unit_test(a_process_that_ends_takes_its_threads_with_it),
		cmocka_unit_test(processes_have_random_numbers_of_the_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
