/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "mcfs/read/expect.h"
#include "tests/lib/fake_mcs.h"

static mcs_t *store;
static struct mcfs_expect x;

static struct mcfs_object *object(const char *key)
{
	struct iovec iov = { (void *)(uintptr_t)key, strlen(key) };
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT };
	struct mcfs_object *o;

	assert_int_equal(mcs_put(store, (struct mcs_key){ key, strlen(key) }, &iov, 1, &opts, 1000), 0);
	assert_int_equal(mcfs_object_open(store, (struct mcs_key){ key, strlen(key) },
					  mc_deadline_ms(1000), &o), 0);
	return o;
}

static uint64_t generation(const struct mcfs_object *o)
{
	return mcfs_object_info(o)->generation;
}

/* The thread opens what it looks up, often enough to be known for it. */
static void learn(pid_t tid)
{
	for (int i = 0; i < 3; i++) {
		(void)mcfs_expect_lookup(&x, tid);
		assert_null(mcfs_expect_take(&x, tid, 1));
	}
}

static int begin(void **state)
{
	mc_clock_fake(mc_now_ns());
	store = fake_mcs_new();
	mcfs_expect_init(&x);
	return 0;
}

static int end(void **state)
{
	mcfs_expect_done(&x);
	fake_mcs_free(store);		/* nothing is open any more, or it fails */
	mc_clock_real();
	return 0;
}

static void only_threads_that_open_are_expected_to(void **state)
{
	assert_false(mcfs_expect_lookup(&x, 5));
	assert_null(mcfs_expect_take(&x, 5, 1));
	assert_false(mcfs_expect_lookup(&x, 5));
	assert_null(mcfs_expect_take(&x, 5, 1));
	assert_true(mcfs_expect_lookup(&x, 5));
	/* another thread, also of the same place, is not known */
	assert_false(mcfs_expect_lookup(&x, 6));
	assert_false(mcfs_expect_lookup(&x, 5 + MCFS_EXPECT_PLACES));
	assert_false(mcfs_expect_lookup(&x, 5));
	learn(5);
	/* looking without opening is forgiven once */
	assert_true(mcfs_expect_lookup(&x, 5));
	assert_true(mcfs_expect_lookup(&x, 5));
	assert_false(mcfs_expect_lookup(&x, 5));
	learn(5);
	/* a directory says nothing, what is missing everything */
	assert_true(mcfs_expect_lookup(&x, 5));
	mcfs_expect_nothing(&x, 5, false);
	assert_true(mcfs_expect_lookup(&x, 5));
	mcfs_expect_nothing(&x, 5, true);
	assert_false(mcfs_expect_lookup(&x, 5));
}

static void what_is_kept_is_the_next_open_s(void **state)
{
	struct mcfs_object *o = object("a"), *got;
	uint64_t g = generation(o);

	learn(5);
	assert_true(mcfs_expect_lookup(&x, 5));
	assert_true(mcfs_expect_keep(&x, 5, o));
	got = mcfs_expect_take(&x, 5, g);
	assert_ptr_equal(got, o);
	assert_null(mcfs_expect_take(&x, 5, g));
	/* another version, another thread: it is dropped */
	(void)mcfs_expect_keep(&x, 5, o);
	assert_null(mcfs_expect_take(&x, 5, g + 1));
	(void)mcfs_expect_keep(&x, 5, object("b"));
	assert_null(mcfs_expect_take(&x, 5 + MCFS_EXPECT_PLACES, g + 1));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* a later lookup knows better */
	learn(5);
	o = object("c");
	g = generation(o);
	(void)mcfs_expect_keep(&x, 5, o);
	(void)mcfs_expect_lookup(&x, 5);
	assert_null(mcfs_expect_take(&x, 5, g));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* for a thread that has lost its place */
	(void)mcfs_expect_keep(&x, 9, object("d"));
	assert_int_equal(fake_mcs_open_objects(store), 0);
}

static void what_nobody_comes_for_is_dropped(void **state)
{
	const uint64_t late = (MCFS_EXPECT_MS + 10) * MC_NS_PER_MS;
	struct mcfs_object *o = object("a");
	uint64_t g = generation(o);

	learn(5);
	/* once: then it is swept */
	assert_true(mcfs_expect_keep(&x, 5, o));
	assert_false(mcfs_expect_keep(&x, 5, object("b")));
	mc_clock_advance(late);
	assert_null(mcfs_expect_take(&x, 5, g));
	(void)mcfs_expect_keep(&x, 5, object("c"));
	assert_true(mcfs_expect_sweep(&x));
	mc_clock_advance(late);
	assert_false(mcfs_expect_sweep(&x));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	assert_true(mcfs_expect_keep(&x, 5, object("d")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_threads_that_open_are_expected_to, begin, end),
		cmocka_unit_test_setup_teardown(what_is_kept_is_the_next_open_s, begin, end),
		cmocka_unit_test_setup_teardown(what_nobody_comes_for_is_dropped, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
