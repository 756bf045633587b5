/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "mcfs/read/reopen.h"
#include "tests/lib/fake_mcs.h"

static mcs_t *store;

static struct mcs_key key_of(const char *text)
{
	return (struct mcs_key){ text, strlen(text) };
}

static struct mcfs_object *object(const char *key)
{
	struct iovec iov = { (void *)(uintptr_t)key, strlen(key) };
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT };
	struct mcfs_object *o;

	assert_int_equal(mcs_put(store, key_of(key), &iov, 1, &opts, 1000), 0);
	assert_int_equal(mcfs_object_open(store, key_of(key), mc_deadline_ms(1000), &o), 0);
	return o;
}

static uint64_t generation(const struct mcfs_object *o)
{
	return mcfs_object_info(o)->generation;
}

static void test_taken_once(void **state)
{
	struct mcfs_object *o, *got;
	struct mcfs_reopen r;
	uint64_t shown;

	(void)state;
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	assert_false(mcfs_reopen_look(&r, key_of("a"), 1));
	assert_false(mcfs_reopen_take(&r, key_of("a"), 1, 1, &got));
	mcfs_reopen_expect(&r, key_of("a"), 1);
	/* Another thread, another key: not theirs. */
	assert_false(mcfs_reopen_look(&r, key_of("a"), 2));
	assert_false(mcfs_reopen_look(&r, key_of("b"), 1));
	assert_false(mcfs_reopen_take(&r, key_of("a"), 2, 1, &got));
	mcfs_reopen_keep(&r, key_of("a"), 2, object("a"));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* The last of its lookups counts. */
	assert_true(mcfs_reopen_look(&r, key_of("a"), 1));
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	assert_true(mcfs_reopen_look(&r, key_of("a"), 1));
	o = object("a");
	shown = generation(o);
	mcfs_reopen_keep(&r, key_of("a"), 1, o);
	assert_int_equal(fake_mcs_open_objects(store), 1);
	/* A newer one is in its place by now, and it is still this one. */
	mcfs_object_unref(object("a"));
	assert_true(mcfs_reopen_take(&r, key_of("a"), 1, shown, &got));
	assert_ptr_equal(got, o);
	mcfs_object_unref(got);
	assert_false(mcfs_reopen_look(&r, key_of("a"), 1));
	assert_false(mcfs_reopen_take(&r, key_of("a"), 1, shown, &got));
	assert_null(got);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	mcfs_reopen_done(&r);
	fake_mcs_free(store);
}

/* What the open is about is not what the last lookup has shown, or nothing was looked up at all. */
static void test_nothing_to_take(void **state)
{
	struct mcfs_object *o, *got;
	struct mcfs_reopen r;

	(void)state;
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	mcfs_reopen_expect(&r, key_of("a"), 1);
	o = object("a");
	mcfs_reopen_keep(&r, key_of("a"), 1, o);
	assert_true(mcfs_reopen_take(&r, key_of("a"), 1, generation(o) + 1, &got));
	assert_null(got);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* /proc/self/fd */
	mcfs_reopen_expect(&r, key_of("a"), 1);
	assert_true(mcfs_reopen_take(&r, key_of("a"), 1, 1, &got));
	assert_null(got);
	/* A name that has gone by the last lookup. */
	mcfs_reopen_expect(&r, key_of("a"), 1);
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	mcfs_reopen_keep(&r, key_of("a"), 1, NULL);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* Late again: what was kept for the first time is of no use. */
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	mcfs_reopen_expect(&r, key_of("a"), 1);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* Nobody knows who that is. */
	mcfs_reopen_expect(&r, key_of("b"), 0);
	assert_false(mcfs_reopen_look(&r, key_of("b"), 0));
	mcfs_reopen_done(&r);
	fake_mcs_free(store);
}

/* A thread that was killed in between pins nothing for long, and there are never many. */
static void test_bounds(void **state)
{
	struct mcfs_object *got;
	struct mcfs_reopen r;
	char key[16];
	int i;

	(void)state;
	mc_clock_fake(MC_NS_PER_SEC);
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	for (i = 1; i < 2 * (int)MCFS_REOPEN_MAX; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		mcfs_reopen_expect(&r, key_of(key), i);
		mcfs_reopen_keep(&r, key_of(key), i, object(key));
		mc_clock_advance(MC_NS_PER_MS);
	}
	assert_int_equal(fake_mcs_open_objects(store), MCFS_REOPEN_MAX);
	/* The oldest have gone. */
	assert_false(mcfs_reopen_look(&r, key_of("k1"), 1));
	assert_true(mcfs_reopen_look(&r, key_of(key), i - 1));
	mc_clock_advance((MCFS_REOPEN_MS + 1) * MC_NS_PER_MS);
	for (i = 0; i < (int)MCFS_REOPEN_MAX; i++)
		assert_false(mcfs_reopen_look(&r, key_of("other"), 1));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	assert_false(mcfs_reopen_take(&r, key_of(key), 2 * (int)MCFS_REOPEN_MAX - 1, 1, &got));
	/* Who looks for ever does not open. */
	mcfs_reopen_expect(&r, key_of("a"), 1);
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	for (i = 0; i < (int)MCFS_REOPEN_LOOKS; i++)
		assert_true(mcfs_reopen_look(&r, key_of("a"), 1));
	assert_false(mcfs_reopen_look(&r, key_of("a"), 1));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	mcfs_reopen_expect(&r, key_of("last"), 7);
	mcfs_reopen_keep(&r, key_of("last"), 7, object("last"));
	mcfs_reopen_done(&r);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	fake_mcs_free(store);
	mc_clock_real();
}

struct racer {
	struct mcfs_reopen *r;
	pid_t tid;
	unsigned lost;
};

static void *race(void *arg)
{
	struct mcfs_object *got;
	struct racer *me = arg;

	for (unsigned i = 0; i < 20000; i++) {
		mcfs_reopen_expect(me->r, key_of("a"), me->tid);
		me->lost += !mcfs_reopen_look(me->r, key_of("a"), me->tid);
		me->lost += !mcfs_reopen_take(me->r, key_of("a"), me->tid, 1, &got);
	}
	return NULL;
}

/* None is forgotten because others come and go at the same moment. */
static void test_crowd(void **state)
{
	struct racer racer[4];
	struct mcfs_reopen r;
	pthread_t t[4];

	(void)state;
	mcfs_reopen_init(&r);
	for (int i = 0; i < 4; i++) {
		racer[i] = (struct racer){ &r, i + 1, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, race, &racer[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(racer[i].lost, 0);
	}
	mcfs_reopen_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_once),
		cmocka_unit_test(test_nothing_to_take),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
