/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "mcfs/read/open_pins.h"
#include "tests/lib/fake_mcs.h"

static mcs_t *store;
static struct mcfs_open_pins pins;

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

/* Does the lookup expect an open? It is no retry. */
static bool expects(const char *key, pid_t tid)
{
	bool retry, pin = mcfs_open_pins_lookup(&pins, key_of(key), tid, &retry);

	assert_false(retry);
	return pin;
}

/* Does the lookup belong to a retry? */
static bool retries(const char *key, pid_t tid)
{
	bool retry, pin = mcfs_open_pins_lookup(&pins, key_of(key), tid, &retry);

	assert_true(pin || !retry);
	return retry;
}

static bool keep(const char *key, pid_t tid, struct mcfs_object *o)
{
	return mcfs_open_pins_keep(&pins, key_of(key), tid, o);
}

/* The pinned version that an open gets, which is no retry. */
static struct mcfs_object *opens(const char *key, pid_t tid, uint64_t generation)
{
	struct mcfs_object *o;

	assert_false(mcfs_open_pins_open(&pins, key_of(key), tid, generation, true, &o));
	return o;
}

/* The same of a retried open. */
static struct mcfs_object *reopens(const char *key, pid_t tid, uint64_t generation)
{
	struct mcfs_object *o;

	assert_true(mcfs_open_pins_open(&pins, key_of(key), tid, generation, true, &o));
	return o;
}

/* The thread opens the files that it looks up, often enough to be known for it. */
static void learn(pid_t tid)
{
	for (int i = 0; i < 3; i++) {
		(void)expects("x", tid);
		assert_null(opens("x", tid, 1));
	}
}

static int begin(void **state)
{
	mc_clock_fake(MC_NS_PER_SEC);
	store = fake_mcs_new();
	mcfs_open_pins_init(&pins);
	return 0;
}

static int end(void **state)
{
	mcfs_open_pins_done(&pins);
	fake_mcs_free(store);		/* fails if an object is still open */
	mc_clock_real();
	return 0;
}

static void only_threads_that_open_are_expected_to(void **state)
{
	struct mcfs_object *o;

	assert_false(expects("a", 5));
	assert_null(opens("a", 5, 1));
	assert_false(expects("a", 5));
	assert_null(opens("a", 5, 1));
	assert_true(expects("a", 5));
	/* another thread is not known */
	assert_false(expects("a", 6));
	learn(5);
	/* one lookup without an open is tolerated */
	assert_true(expects("a", 5));
	assert_true(expects("a", 5));
	assert_false(expects("a", 5));
	learn(5);
	/* a lookup of a directory does not count, a missing name ends the expectation */
	assert_true(expects("a", 5));
	mcfs_open_pins_no_file(&pins, 5, false);
	assert_true(expects("a", 5));
	mcfs_open_pins_no_file(&pins, 5, true);
	assert_false(expects("a", 5));
	/* an open that needs no version counts as none */
	learn(5);
	for (int i = 0; i < 3; i++) {
		(void)expects("a", 5);
		assert_false(mcfs_open_pins_open(&pins, key_of("a"), 5, 1, false, &o));
		assert_null(o);
	}
	assert_false(expects("a", 5));
	/* a table full of other threads forgets this one */
	learn(5);
	for (pid_t tid = 1000; tid < 1000 + (pid_t)MCFS_PIN_THREADS; tid++) {
		mc_clock_advance(MC_NS_PER_MS);
		(void)expects("a", tid);
	}
	assert_false(expects("a", 5));
}

static void a_pinned_version_is_for_the_next_open(void **state)
{
	struct mcfs_object *o = object("a"), *got;
	uint64_t g = generation(o);

	learn(5);
	assert_true(expects("a", 5));
	assert_true(keep("a", 5, o));
	got = opens("a", 5, g);
	assert_ptr_equal(got, o);
	assert_null(opens("a", 5, g));
	/* another version, or an open that needs none: it is dropped */
	(void)keep("a", 5, o);
	assert_null(opens("a", 5, g + 1));
	(void)keep("a", 5, object("b"));
	assert_false(mcfs_open_pins_open(&pins, key_of("b"), 5, g + 1, false, &got));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* another thread does not get it */
	o = object("b");
	g = generation(o);
	(void)keep("b", 5, o);
	assert_null(opens("b", 6, g));
	got = opens("b", 5, g);
	assert_ptr_equal(got, o);
	mcfs_object_unref(got);
	/* a later lookup is newer */
	learn(5);
	o = object("c");
	g = generation(o);
	(void)keep("c", 5, o);
	(void)expects("c", 5);
	assert_null(opens("c", 5, g));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* for a thread that is not in the table */
	(void)keep("d", 9, object("d"));
	assert_int_equal(fake_mcs_open_objects(store), 0);
}

static void an_unused_pin_is_dropped(void **state)
{
	const uint64_t late = (MCFS_PIN_MS + 10) * MC_NS_PER_MS;
	struct mcfs_object *o = object("a");
	uint64_t g = generation(o);

	learn(5);
	/* asks for the sweep once */
	assert_true(keep("a", 5, o));
	assert_false(keep("b", 5, object("b")));
	mc_clock_advance(late);
	assert_null(opens("b", 5, g + 1));
	(void)keep("c", 5, object("c"));
	assert_true(mcfs_open_pins_sweep(&pins));
	mc_clock_advance(late);
	assert_false(mcfs_open_pins_sweep(&pins));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	assert_true(keep("d", 5, object("d")));
}

static void a_retry_is_taken_once(void **state)
{
	struct mcfs_object *o, *got;
	uint64_t shown;

	assert_false(retries("a", 1));
	assert_null(opens("a", 1, 1));
	assert_true(mcfs_open_pins_retry(&pins, key_of("a"), 1));
	/* another thread, another key: not theirs */
	assert_false(retries("a", 2));
	assert_false(retries("b", 1));
	assert_null(opens("a", 2, 1));
	(void)keep("a", 3, object("a"));
	(void)keep("b", 1, object("b"));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* the last of its lookups counts, whatever else it looks up */
	assert_true(retries("a", 1));
	(void)keep("a", 1, object("a"));
	assert_true(retries("a", 1));
	o = object("a");
	shown = generation(o);
	(void)keep("a", 1, o);
	assert_int_equal(fake_mcs_open_objects(store), 1);
	assert_false(retries("b", 1));
	assert_null(opens("b", 1, shown));
	/* a newer version has replaced it by now, and it is still this one; also later than an expected open */
	mcfs_object_unref(object("a"));
	mc_clock_advance((MCFS_PIN_MS + 10) * MC_NS_PER_MS);
	assert_true(mcfs_open_pins_sweep(&pins));
	got = reopens("a", 1, shown);
	assert_ptr_equal(got, o);
	mcfs_object_unref(got);
	assert_false(retries("a", 1));
	assert_null(opens("a", 1, shown));
	assert_int_equal(fake_mcs_open_objects(store), 0);
}

/* The last lookup showed another version than the one that is opened, or there was no lookup. */
static void a_retry_without_its_version_gets_none(void **state)
{
	struct mcfs_object *o;

	(void)mcfs_open_pins_retry(&pins, key_of("a"), 1);
	o = object("a");
	(void)keep("a", 1, o);
	assert_null(reopens("a", 1, generation(o) + 1));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* /proc/self/fd */
	(void)mcfs_open_pins_retry(&pins, key_of("a"), 1);
	assert_null(reopens("a", 1, 1));
	/* the name is missing at the last lookup */
	(void)mcfs_open_pins_retry(&pins, key_of("a"), 1);
	(void)keep("a", 1, object("a"));
	(void)keep("a", 1, NULL);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* too late once more: the first pin is outdated */
	(void)keep("a", 1, object("a"));
	(void)mcfs_open_pins_retry(&pins, key_of("a"), 1);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* an unknown thread */
	assert_false(mcfs_open_pins_retry(&pins, key_of("b"), 0));
	assert_false(retries("b", 0));
}

/* A thread that was killed in between pins a version only for a while, and the number of pins is limited. */
static void retries_are_limited(void **state)
{
	char key[16];
	int i;

	for (i = 1; i < 2 * (int)MCFS_PIN_THREADS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		(void)mcfs_open_pins_retry(&pins, key_of(key), i);
		(void)keep(key, i, object(key));
		mc_clock_advance(MC_NS_PER_MS);
	}
	assert_int_equal(fake_mcs_open_objects(store), MCFS_PIN_THREADS);
	/* the oldest ones were replaced */
	assert_false(retries("k1", 1));
	assert_true(retries(key, i - 1));
	/* a thread that only looks up replaces no retry if it can replace another such thread */
	assert_false(retries("k2", 2));
	assert_int_equal(fake_mcs_open_objects(store), MCFS_PIN_THREADS - 1);
	mc_clock_advance((MCFS_RETRY_MS + 1) * MC_NS_PER_MS);
	assert_false(mcfs_open_pins_sweep(&pins));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	assert_null(opens(key, i - 1, 1));
	/* a thread that only repeats its lookup does not open */
	assert_true(mcfs_open_pins_retry(&pins, key_of("a"), 1));
	(void)keep("a", 1, object("a"));
	for (i = 0; i < (int)MCFS_RETRY_LOOKUPS; i++)
		assert_true(retries("a", 1));
	assert_false(retries("a", 1));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	(void)mcfs_open_pins_retry(&pins, key_of("last"), 7);
	(void)keep("last", 7, object("last"));
}

struct racer {
	pid_t tid;
	unsigned lost;
};

static void *race(void *arg)
{
	struct mcfs_object *got;
	struct racer *me = arg;
	bool retry;

	for (unsigned i = 0; i < 20000; i++) {
		(void)mcfs_open_pins_retry(&pins, key_of("a"), me->tid);
		(void)mcfs_open_pins_lookup(&pins, key_of("a"), me->tid, &retry);
		me->lost += !retry;
		me->lost += !mcfs_open_pins_open(&pins, key_of("a"), me->tid, 1, true, &got);
	}
	return NULL;
}

static void concurrent_threads_lose_no_retry(void **state)
{
	struct racer racer[4];
	pthread_t t[4];

	for (int i = 0; i < 4; i++) {
		racer[i] = (struct racer){ i + 1, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, race, &racer[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(racer[i].lost, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_threads_that_open_are_expected_to, begin, end),
		cmocka_unit_test_setup_teardown(a_pinned_version_is_for_the_next_open, begin, end),
		cmocka_unit_test_setup_teardown(an_unused_pin_is_dropped, begin, end),
		cmocka_unit_test_setup_teardown(a_retry_is_taken_once, begin, end),
		cmocka_unit_test_setup_teardown(a_retry_without_its_version_gets_none, begin, end),
		cmocka_unit_test_setup_teardown(retries_are_limited, begin, end),
		cmocka_unit_test_setup_teardown(concurrent_threads_lose_no_retry, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
