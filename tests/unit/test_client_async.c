/* SPDX-License-Identifier: Apache-2.0
 * test_client_async.c - asynchronous reads: each is completed once, with the right bytes or an
 * error, by its deadline; also over a network, with damaged bytes, and when the object is closed
 * meanwhile. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/sys/clock.h"
#include "common/metrics.h"

#define SIZE ((size_t)5 * MIB + 12345)
#define READS 64u

static mcs_t *owner, *peer;

struct answer {
	uint64_t offset;
	size_t len;
	unsigned char *buf;
	int64_t result;
	unsigned calls;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned answered, by_others;
static pthread_t tester;

static void on_read(void *arg, int64_t result)
{
	struct answer *w = arg;

	pthread_mutex_lock(&lock);
	w->result = result;
	w->calls++;
	by_others += !pthread_equal(tester, pthread_self());
	answered++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_for(unsigned n)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&lock);
	while (answered < n)
		assert_int_equal(pthread_cond_timedwait(&changed, &lock, &until), 0);
	pthread_mutex_unlock(&lock);
}

static int setup(void **state)
{
	fixture_master(NULL);
	owner = fixture_store(64 * MIB);
	peer = fixture_store_with(0, 1, FIXTURE_LOCAL);
	answered = by_others = 0;
	tester = pthread_self();
	return 0;
}

static int teardown(void **state)
{
	mcs_close(peer);
	mcs_close(owner);
	fixture_master_stop();
	return 0;
}

static void read_many(mcs_t *s)
{
	struct answer w[READS];
	mcs_object_t *o;

	assert_int_equal(mcs_object_open(s, fixture_key("k"), &o, -1), 0);
	for (unsigned i = 0; i < READS; i++) {
		w[i] = (struct answer){
			.offset = i * (SIZE / READS) + i % 3, .len = 1 + i * 17011 % (2 * MIB),
		};
		w[i].buf = malloc(w[i].len);
		assert_int_equal(mcs_object_read_start(o, w[i].offset, w[i].buf, w[i].len, -1, on_read,
						       &w[i]), 0);
	}
	/* Reads in flight keep the resources that they need. */
	mcs_object_close(o);
	wait_for(READS);
	for (unsigned i = 0; i < READS; i++) {
		size_t want = SIZE - w[i].offset < w[i].len ? SIZE - w[i].offset : w[i].len;

		assert_int_equal(w[i].calls, 1);
		assert_int_equal(w[i].result, want);
		assert_true(fixture_same(w[i].buf, want, 7, w[i].offset));
		free(w[i].buf);
	}
}

static void over_the_network(void **state)
{
	fixture_put_ok(owner, "k", SIZE, 7);
	read_many(peer);
	/* Some reads may be complete before their call returns, but not all of them. */
	assert_int_not_equal(by_others, 0);
}

static void in_own_memory(void **state)
{
	fixture_put_ok(owner, "k", SIZE, 7);
	read_many(owner);
	/* The bytes are local: the read waits for no thread. */
	assert_int_equal(by_others, 0);
}

static void behind_the_end_there_is_nothing(void **state)
{
	struct answer w = { .buf = NULL };
	mcs_object_t *o;

	fixture_put_ok(owner, "k", 1000, 7);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	assert_int_equal(mcs_object_read_start(o, 1000, &w, 10, -1, on_read, &w), 0);
	assert_int_equal(w.calls, 1);
	assert_int_equal(w.result, 0);
	mcs_object_close(o);
}

static void flip_byte(mcs_object_t *o, size_t at)
{
	const void *map;

	assert_int_equal(mcs_object_map(o, &map, -1), 0);
	((unsigned char *)(uintptr_t)map)[at] ^= 1;
}

static void bad_bytes_are_never_data(void **state)
{
	unsigned char buf[4096];
	struct answer w = { .buf = buf };
	mcs_object_t *mine, *o;

	fixture_put_ok(owner, "k", SIZE, 7);
	assert_int_equal(mcs_object_open(owner, fixture_key("k"), &mine, -1), 0);
	flip_byte(mine, 2 * MIB);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	assert_int_equal(mcs_object_read_start(o, 2 * MIB - 100, buf, sizeof(buf), -1, on_read, &w), 0);
	wait_for(1);
	assert_int_equal(w.result, -MCS_ECHECKSUM);
	/* The other objects are not affected. */
	assert_int_equal(mcs_object_read_start(o, MIB, buf, sizeof(buf), -1, on_read, &w), 0);
	wait_for(2);
	assert_int_equal(w.result, sizeof(buf));
	assert_true(fixture_same(buf, sizeof(buf), 7, MIB));
	mcs_object_close(o);
	mcs_object_close(mine);
}

static void an_owner_that_left_is_an_error_in_time(void **state)
{
	static unsigned char buf[READS][4096];
	struct answer w[READS] = { { .buf = NULL } };
	mcs_object_t *o;
	uint64_t t;

	fixture_put_ok(owner, "k", SIZE, 7);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	mcs_close(owner);
	owner = NULL;
	t = mc_now_ms();
	for (unsigned i = 0; i < READS; i++)
		assert_int_equal(mcs_object_read_start(o, i * 4096, buf[i], 4096, 1000, on_read, &w[i]), 0);
	wait_for(READS);
	assert_in_range(mc_now_ms() - t, 0, 10000);
	for (unsigned i = 0; i < READS; i++) {
		assert_int_equal(w[i].calls, 1);
		assert_true(w[i].result < 0);
	}
	mcs_object_close(o);
}

static void closing_the_store_waits_for_them(void **state)
{
	static unsigned char buf[READS][65536];
	struct answer w[READS] = { { .buf = NULL } };
	mcs_object_t *o;

	fixture_put_ok(owner, "k", SIZE, 7);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	for (unsigned i = 0; i < READS; i++)
		assert_int_equal(mcs_object_read_start(o, i * 65536, buf[i], 65536, -1, on_read, &w[i]), 0);
	mcs_object_close(o);
	mcs_close(peer);
	peer = NULL;
	assert_int_equal(answered, READS);
	for (unsigned i = 0; i < READS; i++)
		assert_int_equal(w[i].result, 65536);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(over_the_network), T(in_own_memory), T(behind_the_end_there_is_nothing),
		T(bad_bytes_are_never_data), T(an_owner_that_left_is_an_error_in_time),
		T(closing_the_store_waits_for_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
