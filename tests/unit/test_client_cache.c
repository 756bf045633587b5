/* SPDX-License-Identifier: Apache-2.0
 * test_client_cache.c - the hot cache of a client: MC_STORE_LOCAL_HOT_*, with objects of another store over TCP. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fault.h"
#include "common/metrics.h"

#define LIMIT (2 * MIB)
#define OBJECT_MAX (MIB / 2)

static mcs_t *owner;		/* has the memory */
static mcs_t *reader;		/* has the cache */

static int64_t value(const char *name)
{
	int64_t v = -1;

	assert_int_equal(mc_metrics_lookup(name, "", &v), 0);
	return v;
}

static int64_t hits(void)
{
	return value("mooncake_client_hot_cache_hits_total");
}

static int64_t objects(void)
{
	return value("mooncake_client_hot_cache_objects");
}

static void open_both(const char *size, const char *threshold, int force_tcp)
{
	char text[32];

	fixture_master(NULL);
	owner = fixture_store_with(64 * MIB, 1, FIXTURE_LOCAL);
	if (size) {
		setenv("MC_STORE_LOCAL_HOT_CACHE_SIZE", size, 1);
		snprintf(text, sizeof(text), "%zu", OBJECT_MAX);
		setenv("MC_STORE_LOCAL_HOT_BLOCK_SIZE", text, 1);
	}
	if (threshold)
		setenv("MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD", threshold, 1);
	reader = fixture_store_with(0, force_tcp, fixture_master_addr());
	unsetenv("MC_STORE_LOCAL_HOT_CACHE_SIZE");
	unsetenv("MC_STORE_LOCAL_HOT_BLOCK_SIZE");
	unsetenv("MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD");
}

static int setup(void **state)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu", LIMIT);
	open_both(text, NULL, 1);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(reader);
	mcs_close(owner);
	fixture_master_stop();
	assert_int_equal(objects(), 0);
	assert_int_equal(value("mooncake_client_hot_cache_bytes"), 0);
	return 0;
}

static void read_times(const char *key, size_t len, uint64_t seed, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		fixture_expect(reader, key, len, seed);
}

static void the_third_read_is_a_hit(void **state)
{
	static const size_t sizes[] = { 1, 65535, 65536, 65537, 200001, OBJECT_MAX };
	char key[32];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int64_t before = hits();

		snprintf(key, sizeof(key), "size-%zu", sizes[i]);
		fixture_put_ok(owner, key, sizes[i], i);
		read_times(key, sizes[i], i, 2);
		assert_int_equal(hits(), before);
		read_times(key, sizes[i], i, 1);
		assert_int_equal(hits(), before + 1);
	}
	assert_int_equal(objects(), 6);
}

static void range_is(const char *key, size_t offset, size_t len, uint64_t seed)
{
	unsigned char *buf = malloc(len);
	struct iovec iov[] = { { buf, len / 3 }, { buf + len / 3, 0 }, { buf + len / 3, len - len / 3 } };

	memset(buf, 0xee, len);
	assert_int_equal(mcs_get_range(reader, fixture_key(key), offset, iov, 3, -1), len);
	assert_true(fixture_same(buf, len, seed, offset));
	free(buf);
}

static void ranges_are_hits_and_do_not_fill(void **state)
{
	int64_t before = hits();

	fixture_put_ok(owner, "r", 300000, 4);
	for (int i = 0; i < 4; i++)
		range_is("r", 10, 299000, 4);
	assert_int_equal(objects(), 0);
	read_times("r", 300000, 4, 2);
	assert_int_equal(objects(), 1);
	range_is("r", 0, 300000, 4);
	range_is("r", 65535, 2, 4);
	range_is("r", 65536, 65536, 4);
	range_is("r", 299999, 1, 4);
	assert_int_equal(hits(), before + 4);
}

static void another_version_is_never_old(void **state)
{
	struct mcs_put_opts upsert = { .flags = MCS_PUT_UPSERT };
	unsigned char buf[70000];
	struct iovec iov = { buf, sizeof(buf) };
	void *data;

	fixture_put_ok(owner, "v", sizeof(buf), 1);
	read_times("v", sizeof(buf), 1, 3);
	for (unsigned seed = 2; seed < 6; seed++) {
		if (seed % 2) {
			assert_int_equal(mcs_remove(owner, fixture_key("v"), MCS_REMOVE_FORCE, -1), 0);
			assert_int_equal(mcs_get_alloc(reader, fixture_key("v"), &data, -1), -MCS_ENOOBJECT);
			fixture_put_ok(owner, "v", sizeof(buf), seed);
		} else {
			fixture_fill(buf, sizeof(buf), seed, 0);
			assert_int_equal(mcs_put(owner, fixture_key("v"), &iov, 1, &upsert, -1), 0);
		}
		read_times("v", sizeof(buf), seed, 3);
		assert_int_equal(objects(), 1);
	}
	fixture_put_ok(owner, "w", sizeof(buf), 9);
	read_times("w", sizeof(buf), 9, 3);
	read_times("v", sizeof(buf), 5, 1);
}

static void its_memory_is_bounded(void **state)
{
	int64_t before = hits();
	char key[32];

	for (unsigned i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "b%u", i);
		fixture_put_ok(owner, key, 300000, i);
		read_times(key, 300000, i, 2);
		assert_true(value("mooncake_client_hot_cache_bytes") <= (int64_t)LIMIT);
	}
	/* Six of them fit in: those that were read last. */
	assert_int_equal(objects(), 6);
	read_times("b19", 300000, 19, 1);
	read_times("b14", 300000, 14, 1);
	assert_int_equal(hits(), before + 2);
	read_times("b13", 300000, 13, 1);
	assert_int_equal(hits(), before + 2);
	fixture_put_ok(owner, "large", OBJECT_MAX + 1, 7);
	read_times("large", OBJECT_MAX + 1, 7, 4);
	assert_int_equal(hits(), before + 2);
}

static void without_memory_nothing_is_stored(void **state)
{
	fixture_put_ok(owner, "k", 5000, 1);
	(void)mc_fault_set("client.cache.alloc=error:ENOMEM");
	read_times("k", 5000, 1, 4);
	assert_int_equal(objects(), 0);
	assert_int_equal(value("mooncake_client_hot_cache_bytes"), 0);
	(void)mc_fault_set(NULL);
	read_times("k", 5000, 1, 1);
	assert_int_equal(objects(), 1);
}

static void the_threshold_can_be_set(void **state)
{
	int64_t before = hits();

	open_both("1000000", "4", 1);
	fixture_put_ok(owner, "k", 5000, 1);
	read_times("k", 5000, 1, 4);
	assert_int_equal(hits(), before);
	read_times("k", 5000, 1, 1);
	assert_int_equal(hits(), before + 1);
	teardown(state);
}

static void only_the_variable_and_the_network_switch_it_on(void **state)
{
	for (int tcp = 0; tcp < 2; tcp++) {
		open_both(tcp ? NULL : "1000000", "1", tcp);
		fixture_put_ok(owner, "k", 5000, 1);
		read_times("k", 5000, 1, 3);
		assert_int_equal(objects(), 0);
		teardown(state);
	}
}

/* ---- threads ---- */

#define VERSIONS 60
#define LEN 150000

static unsigned stored;		/* atomic: the newest version that is committed */

static void *read_all_the_time(void *arg)
{
	unsigned char *buf = malloc(LEN);
	struct iovec iov = { buf, LEN };
	unsigned last = 0;

	while (last < VERSIONS) {
		unsigned from = __atomic_load_n(&stored, __ATOMIC_ACQUIRE), at;

		if (mcs_get(reader, fixture_key("t"), &iov, 1, -1) != LEN)
			break;
		/* One of the versions since then, plus the one that is being stored. */
		for (at = from; at <= from + VERSIONS; at++)
			if (fixture_same(buf, LEN, at, 0))
				break;
		if (at > from + VERSIONS || at < last)
			break;
		last = at;
	}
	free(buf);
	return last == VERSIONS ? arg : NULL;
}

static void threads_read_while_it_is_replaced(void **state)
{
	struct mcs_put_opts upsert = { .flags = MCS_PUT_UPSERT };
	unsigned char *buf = malloc(LEN);
	struct iovec iov = { buf, LEN };
	int64_t before = hits();
	pthread_t thread[3];
	void *ok;

	fixture_put_ok(owner, "t", LEN, 0);
	read_times("t", LEN, 0, 3);
	__atomic_store_n(&stored, 0, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_all_the_time, buf), 0);
	for (unsigned seed = 1; seed <= VERSIONS; seed++) {
		fixture_fill(buf, LEN, seed, 0);
		assert_int_equal(mcs_put(owner, fixture_key("t"), &iov, 1, &upsert, -1), 0);
		__atomic_store_n(&stored, seed, __ATOMIC_RELEASE);
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(thread[i], &ok), 0);
		assert_ptr_equal(ok, buf);
	}
	assert_true(hits() > before);
	free(buf);
}

#define CACHED(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CACHED(the_third_read_is_a_hit),
		CACHED(ranges_are_hits_and_do_not_fill),
		CACHED(another_version_is_never_old),
		CACHED(its_memory_is_bounded),
		CACHED(without_memory_nothing_is_stored),
		CACHED(threads_read_while_it_is_replaced),
		cmocka_unit_test(the_threshold_can_be_set),
		cmocka_unit_test(only_the_variable_and_the_network_switch_it_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
