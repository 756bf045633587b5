/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "mcfs/tree.h"

#define THREADS 6
#define ROUNDS 2000

static struct mcfs_tree tree;

static int setup(void **state)
{
	(void)state;
	mcfs_tree_init(&tree);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_false(tree.alone || tree.sharers || tree.waiting || tree.queued || tree.admitted);
	mcfs_tree_done(&tree);
	return 0;
}

static void test_shared_or_alone(void **state)
{
	(void)state;
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(5000)), 0);
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(5000)), 0);
	assert_int_equal(mcfs_tree_take(&tree, mc_deadline_ms(20)), -ETIMEDOUT);
	/* That wait has ended, so nothing waits for it. */
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(5000)), 0);
	for (int i = 0; i < 3; i++)
		mcfs_tree_leave(&tree, MCFS_TREE_SHARED);
	assert_int_equal(mcfs_tree_take(&tree, mc_deadline_ms(5000)), 0);
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(20)), -ETIMEDOUT);
	assert_int_equal(mcfs_tree_take(&tree, mc_deadline_ms(20)), -ETIMEDOUT);
	mcfs_tree_leave(&tree, MCFS_TREE_ALONE);
}

static void *take_once(void *arg)
{
	*(int *)arg = mcfs_tree_take(&tree, mc_deadline_ms(10000));
	return NULL;
}

static void *share_once(void *arg)
{
	*(int *)arg = mcfs_tree_share(&tree, mc_deadline_ms(10000));
	return NULL;
}

/* Wait until one of the numbers of the tree is @n. */
static void await(const unsigned *number, unsigned n)
{
	bool is = false;

	while (!is) {
		mc_mutex_lock(&tree.lock);
		is = *number == n;
		mc_mutex_unlock(&tree.lock);
		sched_yield();
	}
}

static void test_waiting_threads_take_turns(void **state)
{
	pthread_t taker, next, sharer;
	int took = 1, took_next = 1, shared = 1;

	(void)state;
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(5000)), 0);
	assert_int_equal(pthread_create(&taker, NULL, take_once, &took), 0);
	await(&tree.waiting, 1);
	/* A stream of sharers does not starve the taker. */
	assert_int_equal(mcfs_tree_share(&tree, mc_deadline_ms(20)), -ETIMEDOUT);
	assert_int_equal(pthread_create(&sharer, NULL, share_once, &shared), 0);
	await(&tree.queued, 1);
	assert_int_equal(pthread_create(&next, NULL, take_once, &took_next), 0);
	await(&tree.waiting, 2);
	mcfs_tree_leave(&tree, MCFS_TREE_SHARED);
	await(&tree.waiting, 1);
	/* One of the takers has it; its end admits the sharer before the other. */
	mcfs_tree_leave(&tree, MCFS_TREE_ALONE);
	assert_int_equal(pthread_join(sharer, NULL), 0);
	assert_int_equal(shared, 0);
	await(&tree.waiting, 1);
	mcfs_tree_leave(&tree, MCFS_TREE_SHARED);
	assert_int_equal(pthread_join(taker, NULL) + pthread_join(next, NULL), 0);
	assert_int_equal(took + took_next, 0);
	mcfs_tree_leave(&tree, MCFS_TREE_ALONE);
}

static unsigned sum;

static void *many(void *arg)
{
	bool alone = *(const unsigned *)arg % 3 == 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(alone ? mcfs_tree_take(&tree, mc_deadline_ms(30000)) :
				 mcfs_tree_share(&tree, mc_deadline_ms(30000)), 0);
		if (alone)
			sum++;
		else
			(void)*(volatile unsigned *)&sum;
		mcfs_tree_leave(&tree, alone ? MCFS_TREE_ALONE : MCFS_TREE_SHARED);
	}
	return NULL;
}

static void test_many(void **state)
{
	unsigned number[THREADS];
	pthread_t thread[THREADS];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++) {
		number[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, many, &number[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(sum, THREADS / 3 * ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_shared_or_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waiting_threads_take_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
