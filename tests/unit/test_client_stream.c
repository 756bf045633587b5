/* SPDX-License-Identifier: Apache-2.0
 * test_client_stream.c - puts whose bytes are written in parts: invisible until their commit,
 * complete after it, and as large as the bytes that were written; unused memory is freed. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/fault.h"

#define CHUNK ((size_t)64 << 10)

static mcs_t *owner, *peer;

static int setup(void **state)
{
	fixture_master(NULL);
	owner = fixture_store(64 * MIB);
	peer = fixture_store_with(0, 1, FIXTURE_LOCAL);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(peer);
	mcs_close(owner);
	fixture_master_stop();
	return 0;
}

static uint64_t used(void)
{
	struct mcs_pool pool;

	assert_int_equal(mcs_pool_stat(owner, &pool, -1), 0);
	return pool.used;
}

static mcs_stream_t *begun(mcs_t *s, const char *key, uint64_t room, unsigned flags)
{
	struct mcs_put_opts opts = { .flags = flags };
	mcs_stream_t *st = NULL;

	assert_int_equal(mcs_stream_open(s, fixture_key(key), room, &opts, &st, -1), 0);
	assert_int_equal(mcs_stream_room(st), room);
	return st;
}

/* Write bytes [@from, @to) of the value with @seed, in two vectors. */
static void part(mcs_stream_t *st, uint64_t seed, size_t from, size_t to)
{
	char *data = malloc(to - from + 1);
	size_t half = (to - from) / 2;
	struct iovec iov[2] = { { data, half }, { data + half, to - from - half } };

	fixture_fill(data, to - from, seed, from);
	assert_int_equal(mcs_stream_write(st, from, iov, 2, -1), 0);
	free(data);
}

static void all_sizes(mcs_t *s)
{
	static const size_t sizes[] = {
		1, 4095, 65535, 65536, 65537, 2 * 65536, MIB, MIB + 1, 3 * MIB + 12345, 8 * MIB,
	};
	uint64_t before = used(), put, streamed;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		mcs_stream_t *st = begun(s, "k", 8 * MIB, MCS_PUT_UPSERT);
		size_t middle = sizes[i] / 2 / CHUNK * CHUNK;

		/* The second half first, and the first half twice. */
		part(st, i, middle, sizes[i]);
		if (middle) {
			part(st, i + 100, 0, middle);
			part(st, i, 0, middle);
		}
		assert_int_equal(mcs_stream_commit(st, sizes[i], -1), 0);
		fixture_expect(owner, "k", sizes[i], i);
		fixture_expect(peer, "k", sizes[i], i);
		streamed = used();
		/* It uses as much memory as an object that was put in one call. */
		assert_int_equal(mcs_remove(owner, fixture_key("k"), MCS_REMOVE_FORCE, -1), 0);
		assert_int_equal(fixture_wait_used(owner, before), before);
		fixture_put_ok(owner, "k", sizes[i], i);
		put = used();
		assert_int_equal(put, streamed);
		assert_int_equal(mcs_remove(owner, fixture_key("k"), MCS_REMOVE_FORCE, -1), 0);
		assert_int_equal(fixture_wait_used(owner, before), before);
	}
}

static void a_committed_stream_is_a_value(void **state)
{
	all_sizes(owner);
}

static void also_over_a_network(void **state)
{
	all_sizes(peer);
}

static void ranges_are_checked(void **state)
{
	mcs_stream_t *st = begun(owner, "k", 4 * MIB, 0);
	struct iovec iov;
	char *got = malloc(MIB);

	part(st, 7, 0, MIB + 100);
	assert_int_equal(mcs_stream_commit(st, MIB + 100, -1), 0);
	iov = (struct iovec){ got, MIB };
	assert_int_equal(mcs_get_range(owner, fixture_key("k"), 12345, &iov, 1, -1), MIB + 100 - 12345);
	assert_true(fixture_same(got, MIB + 100 - 12345, 7, 12345));
	free(got);
}

static void a_stream_is_invisible_before_its_commit(void **state)
{
	uint64_t before = used();
	mcs_stream_t *st = begun(owner, "k", 16 * MIB, MCS_PUT_UPSERT);
	struct mcs_info info;

	part(st, 1, 0, MIB);
	assert_int_equal(mcs_stat(peer, fixture_key("k"), &info, -1), -MCS_ENOOBJECT);
	fixture_put_ok(peer, "k", 1000, 2);
	part(st, 1, MIB, 2 * MIB);
	fixture_expect(peer, "k", 1000, 2);
	assert_int_equal(mcs_stream_commit(st, 2 * MIB, -1), 0);
	fixture_expect(peer, "k", 2 * MIB, 1);
	/* An aborted stream is not visible either, and its memory is freed. */
	st = begun(owner, "other", 16 * MIB, 0);
	part(st, 1, 0, MIB);
	mcs_stream_drop(st, -1);
	assert_int_equal(mcs_stat(peer, fixture_key("other"), &info, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_remove(owner, fixture_key("k"), MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(fixture_wait_used(owner, before), before);
}

static void keys_that_have_a_value(void **state)
{
	struct mcs_put_opts opts = { .flags = MCS_PUT_EXCL };
	mcs_stream_t *st;

	fixture_put_ok(owner, "k", 100, 1);
	assert_int_equal(mcs_stream_open(owner, fixture_key("k"), MIB, &opts, &st, -1), -MCS_EEXISTS);
	st = begun(owner, "late", MIB, MCS_PUT_EXCL);
	part(st, 1, 0, 5000);
	fixture_put_ok(owner, "late", 100, 3);
	assert_int_equal(mcs_stream_commit(st, 5000, -1), -MCS_EEXISTS);
	fixture_expect(owner, "late", 100, 3);
}

static void limits(void **state)
{
	static char data[2 * CHUNK];
	struct iovec iov = { data, sizeof(data) };
	mcs_stream_t *st, *other;

	assert_true(mcs_stream_open(owner, fixture_key("k"), 0, NULL, &st, -1) < 0);
	assert_true(mcs_stream_open(owner, fixture_key(""), MIB, NULL, &st, -1) < 0);
	assert_true(mcs_stream_open(owner, fixture_key("k"), 1ull << 40, NULL, &st, 1000) < 0);
	st = begun(owner, "k", 60 * MIB, 0);
	assert_int_equal(mcs_stream_open(owner, fixture_key("l"), 60 * MIB, NULL, &other, 1000),
			 -MCS_ENOSPACE);
	mcs_stream_drop(st, -1);
	st = begun(owner, "k", MIB, 0);
	assert_true(mcs_stream_write(st, 1, &iov, 1, -1) < 0);
	assert_true(mcs_stream_write(st, MIB, &iov, 1, -1) < 0);
	assert_true(mcs_stream_write(st, MIB - CHUNK, &iov, 1, -1) < 0);
	assert_true(mcs_stream_write(st, UINT64_MAX - CHUNK + 1, &iov, 1, -1) < 0);
	assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
	assert_true(mcs_stream_commit(st, MIB + 1, -1) < 0);
	mcs_stream_drop(NULL, -1);
}

/* Its unused memory is granted to another put at once, and that put does not touch the stream's
 * bytes. */
static void the_rest_of_its_room_is_free(void **state)
{
	mcs_stream_t *st = begun(owner, "k", 60 * MIB, 0);

	part(st, 1, 0, MIB);
	assert_int_equal(fixture_put(owner, "large", 40 * MIB, 2, 0), -MCS_ENOSPACE);
	assert_int_equal(mcs_stream_commit(st, MIB, -1), 0);
	fixture_put_ok(owner, "large", 40 * MIB, 2);
	fixture_expect(owner, "large", 40 * MIB, 2);
	fixture_expect(owner, "k", MIB, 1);
}

/* The master does not reply: the commit waits for its own time only, not once more to free the
 * memory; the keeper thread frees it. */
static void a_commit_ends_in_its_time(void **state)
{
	uint64_t before = used(), began;
	mcs_t *remote = fixture_store_with(0, 0, fixture_master_addr());
	mcs_stream_t *st = begun(remote, "k", 4 * MIB, MCS_PUT_UPSERT), *other = begun(remote, "l", 4 * MIB, 0);

	part(st, 1, 0, MIB);
	assert_int_equal(mc_fault_set("rpc.serve=delay:8000"), 0);
	began = mc_now_ns();
	assert_int_equal(mcs_errno(mcs_stream_commit(st, MIB, 3000)), ETIMEDOUT);
	assert_true(mc_now_ns() - began < 5 * MC_NS_PER_SEC);
	mcs_stream_drop(other, 0);
	assert_true(mc_now_ns() - began < 5 * MC_NS_PER_SEC);
	assert_int_equal(mc_fault_set(NULL), 0);
	/* The outcome is unknown: then the value either exists, or nothing is left of it. */
	for (int i = 0; i < 400 && used() != before; i++) {
		(void)mcs_remove(owner, fixture_key("k"), MCS_REMOVE_FORCE, -1);
		(void)poll(NULL, 0, 50);
	}
	assert_int_equal(used(), before);
	mcs_close(remote);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_committed_stream_is_a_value),
		TEST(also_over_a_network),
		TEST(ranges_are_checked),
		TEST(a_stream_is_invisible_before_its_commit),
		TEST(keys_that_have_a_value),
		TEST(limits),
		TEST(the_rest_of_its_room_is_free),
		TEST(a_commit_ends_in_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
