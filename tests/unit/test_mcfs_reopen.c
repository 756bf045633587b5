/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "mcfs/reopen.h"
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
	struct mcs_info info;

	(void)state;
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	assert_false(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	o = object("a");
	mcfs_reopen_keep(&r, key_of("a"), 1, o);
	/* Another thread's, another key: nothing of theirs. */
	assert_false(mcfs_reopen_peek(&r, key_of("a"), 2, &info));
	assert_false(mcfs_reopen_peek(&r, key_of("b"), 1, &info));
	assert_true(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	assert_int_equal(info.generation, generation(o));
	for (unsigned i = 1; i < MCFS_REOPEN_LOOKS; i++)
		assert_true(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	/* What it looks up next is another question. */
	assert_false(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	/* A newer one is in its place by now, and it is still this one. */
	mcfs_object_unref(object("a"));
	assert_null(mcfs_reopen_take(&r, key_of("a"), 1, generation(o) + 1));
	got = mcfs_reopen_take(&r, key_of("a"), 1, generation(o));
	assert_ptr_equal(got, o);
	assert_null(mcfs_reopen_take(&r, key_of("a"), 1, generation(o)));
	mcfs_object_unref(got);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	mcfs_reopen_done(&r);
	fake_mcs_free(store);
}

/* Opened twice without a lookup: there is nobody to show it to. */
static void test_without_lookups(void **state)
{
	struct mcfs_reopen r;
	struct mcs_info info;

	(void)state;
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	assert_false(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	assert_int_equal(fake_mcs_open_objects(store), 0);
	/* With one in between the newer one takes the place. */
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	assert_true(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	mcfs_reopen_keep(&r, key_of("a"), 1, object("a"));
	assert_int_equal(fake_mcs_open_objects(store), 1);
	assert_true(mcfs_reopen_peek(&r, key_of("a"), 1, &info));
	/* Nobody knows who that is. */
	mcfs_reopen_keep(&r, key_of("b"), 0, object("b"));
	assert_false(mcfs_reopen_peek(&r, key_of("b"), 0, &info));
	mcfs_reopen_done(&r);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	fake_mcs_free(store);
}

/* A thread that was killed in between pins nothing for long, and there are never many. */
static void test_bounds(void **state)
{
	struct mcfs_reopen r;
	struct mcs_info info;
	char key[16];

	(void)state;
	mc_clock_fake(MC_NS_PER_SEC);
	store = fake_mcs_new();
	mcfs_reopen_init(&r);
	for (int i = 1; i < 200; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		mcfs_reopen_keep(&r, key_of(key), i, object(key));
	}
	assert_int_equal(fake_mcs_open_objects(store), MCFS_REOPEN_MAX);
	assert_true(mcfs_reopen_peek(&r, key_of("k199"), 199, &info));
	mc_clock_advance((MCFS_REOPEN_MS + 1) * MC_NS_PER_MS);
	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++)
		mcfs_reopen_peek(&r, key_of("other"), 1, &info);
	assert_int_equal(fake_mcs_open_objects(store), 0);
	assert_false(mcfs_reopen_peek(&r, key_of("k199"), 199, &info));
	mcfs_reopen_keep(&r, key_of("last"), 7, object("last"));
	mcfs_reopen_done(&r);
	fake_mcs_free(store);
	mc_clock_real();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_once),
		cmocka_unit_test(test_without_lookups),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
