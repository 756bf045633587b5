/* SPDX-License-Identifier: Apache-2.0
 * test_client_hostile.c - a master with invalid replies: calls return a clear error and no wrong
 * byte, and leave no put or pin. */
#include <config.h>

#include "tests/unit/test_client_fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mooncake/mcs.h>

#include "common/sys/clock.h"
#include "common/err.h"

/* Other threads are served meanwhile. */
#define SET(field, value) do { \
	mc_mutex_lock(&fake_lock); \
	fake.field = (value); \
	mc_mutex_unlock(&fake_lock); \
} while (0)
#define COUNT(field) fake_count(&fake.field)

static mcs_t *s;
static unsigned char data[200000], out[200000];

static int setup(void **state)
{
	struct mcs_conf conf;

	fake_start();
	mcs_conf_init(&conf);
	conf.master = FAKE_ADDR;
	conf.segment_size = (uint64_t)32 << 20;
	conf.segment_kind = "memfd";
	conf.timeout_ms = 3000;
	conf.setup_timeout_ms = 300;
	assert_int_equal(mcs_open(&conf, &s), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 13 + i / 300);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(s);
	fake_stop();
	return 0;
}

static struct mcs_key key(const char *k)
{
	return (struct mcs_key){ k, strlen(k) };
}

static int put(const char *k, size_t len, unsigned flags)
{
	const struct mcs_put_opts opts = { .flags = flags };
	struct iovec iov = { data, len };

	return mcs_put(s, key(k), &iov, 1, &opts, -1);
}

static int64_t get(const char *k, size_t len)
{
	struct iovec iov = { out, sizeof(out) };
	int64_t r;

	memset(out, 0, sizeof(out));
	r = mcs_get(s, key(k), &iov, 1, -1);
	if (r >= 0) {
		assert_int_equal(r, len);
		assert_memory_equal(out, data, len);
	}
	return r;
}

static int64_t range(const char *k, uint64_t off, size_t len)
{
	struct iovec iov = { out, len };
	int64_t r = mcs_get_range(s, key(k), off, &iov, 1, -1);

	if (r > 0)
		assert_memory_equal(out, data + off, (size_t)r);
	return r;
}

/* Wait until the keeper thread has released everything. */
static void expect_nothing_held(void)
{
	const struct timespec tick = { .tv_nsec = 5000000 };

	for (uint64_t end = mc_deadline_ms(20000); mc_now_ns() < end && (COUNT(pins) || COUNT(open_puts));)
		nanosleep(&tick, NULL);
	assert_int_equal(COUNT(pins), 0);
	assert_int_equal(COUNT(open_puts), 0);
}

static void a_master_that_behaves(void **state)
{
	assert_int_equal(put("a", 100000, 0), 0);
	assert_int_equal(get("a", 100000), 100000);
	assert_int_equal(range("a", 70000, 1000), 1000);
	assert_int_equal(put("e", 0, 0), 0);
	assert_int_equal(get("e", 0), 0);
	assert_int_equal(get("none", 0), -MCS_ENOOBJECT);
	expect_nothing_held();
}

static void lists_that_are_too_short(void **state)
{
	const struct mcs_key keys[] = { { "a", 1 }, { "b", 1 } };
	uint8_t present[2];

	SET(short_lists, 1);
	assert_int_equal(put("a", 100, 0), -MC_EPROTO);
	assert_int_equal(put("b", 100, 0), 0);
	SET(short_lists, 1);
	assert_int_equal(get("b", 100), -MC_EPROTO);
	SET(short_lists, 1);
	assert_int_equal(put("c", 100, 0), -MC_EPROTO);
	SET(short_lists, 1);
	assert_int_equal(mcs_exist(s, keys, 2, present, -1), -MC_EPROTO);
	assert_int_equal(get("b", 100), 100);
}

static void replicas_that_cannot_be(void **state)
{
	assert_int_equal(put("a", 100000, 0), 0);
	SET(add_offset, (uint64_t)1 << 40);
	assert_true(get("a", 100000) < 0);
	assert_true(put("b", 100, 0) < 0);
	SET(add_offset, (uint64_t)1 << 63);
	assert_true(get("a", 100000) < 0);
	assert_true(put("b", 100, 0) < 0);
	/* The last byte of the segment, then one byte beyond it. */
	SET(add_offset, ((uint64_t)32 << 20) - 100);
	assert_true(get("a", 100000) < 0);
	SET(add_offset, 0);
	SET(no_replicas, 1);
	assert_int_equal(get("a", 100000), -MCS_EREPLICA_GONE);
	assert_true(put("b", 100, 0) < 0);
	SET(no_replicas, 0);
	SET(unknown_segment, 1);
	assert_true(get("a", 100000) < 0);
	assert_true(put("b", 100, 0) < 0);
	SET(unknown_segment, 0);
	assert_int_equal(get("a", 100000), 100000);
	expect_nothing_held();
}

static void bytes_of_another_place(void **state)
{
	assert_int_equal(put("a", 100000, 0), 0);
	assert_int_equal(put("b", 100000, 0), 0);
	SET(add_offset, 4096);
	assert_int_equal(get("a", 100000), -MCS_ECHECKSUM);
	assert_int_equal(range("a", 10, 10), -MCS_ECHECKSUM);
	SET(add_offset, 0);
	SET(flip_crc, 1);
	assert_int_equal(get("a", 100000), -MCS_ECHECKSUM);
	assert_int_equal(range("a", 10, 10), -MCS_ECHECKSUM);
	SET(flip_crc, 0);
	SET(add_size, 1);
	assert_int_equal(get("a", 100001), -MCS_ECHECKSUM);
	assert_int_equal(range("a", 10, 10), -MCS_ECHECKSUM);
	SET(add_size, UINT64_MAX - 200000);
	assert_true(get("a", 0) < 0);
	SET(add_size, (uint64_t)1 << 50);
	assert_true(range("a", 0, 10) < 0);
	SET(add_size, 0);
	assert_int_equal(get("a", 100000), 100000);
	expect_nothing_held();
}

static void segments_that_cannot_be(void **state)
{
	SET(endpoint_bytes, 1000);
	assert_true(put("a", 100, 0) < 0);
	SET(endpoint_bytes, 20);	/* "xxxx": no address */
	assert_true(put("a", 100, 0) < 0);
	SET(endpoint_bytes, 0);
	SET(fail_type, MCP_SEGMENTS);
	SET(fail_err, -MC_ELIMIT);
	SET(fail_times, 100);
	assert_true(put("a", 100, 0) < 0);
	expect_nothing_held();
}

/* One segment with an invalid endpoint must not make the other segments unreachable. */
static void one_segment_that_cannot_be(void **state)
{
	SET(odd_segment, 1);
	assert_int_equal(put("a", 100000, 0), 0);
	assert_int_equal(get("a", 100000), 100000);
	expect_nothing_held();
}

static void a_version_that_always_changes(void **state)
{
	uint64_t began = mc_now_ns();

	assert_int_equal(put("a", 100000, 0), 0);
	SET(flip_crc, 1);
	SET(new_generation, 1000000);
	assert_true(get("a", 100000) < 0);
	assert_true(COUNT(calls[MCP_GET]) < 100);
	assert_true(mc_now_ns() - began < 3 * MC_NS_PER_SEC);
	expect_nothing_held();
}

static void a_version_that_changed_once(void **state)
{
	assert_int_equal(put("a", 100000, 0), 0);
	SET(new_generation, 1);
	assert_int_equal(get("a", 100000), 100000);
}

static void a_quota_of_held_objects_is_waited_for(void **state)
{
	uint64_t began;

	SET(evictable, 0);
	SET(grant_err, -MC_EUNAVAILABLE);
	SET(grant_times, 20);
	assert_int_equal(put("a", 100, 0), 0);
	/* A put without the flag does not wait. */
	SET(grant_err, -MC_EQUOTA);
	SET(grant_times, 1);
	assert_int_equal(put("b", 100, 0), -MCS_EQUOTA);
	assert_int_equal(fake_count(&fake.grant_times), 0);
	/* The put waits until the deadline; then the quota error is returned. */
	SET(grant_err, -MC_EUNAVAILABLE);
	SET(grant_times, 1000000);
	began = mc_now_ns();
	assert_int_equal(put("b", 100, 0), -MCS_EQUOTA);
	assert_true(mc_now_ns() - began > 2 * MC_NS_PER_SEC);
}

/* It ends before the deadline of 3 s, even on a busy machine. */
#define AT_ONCE_NS (5 * MC_NS_PER_SEC / 2)

static void a_full_pool_is_waited_for(void **state)
{
	uint64_t began = mc_now_ns();

	SET(grant_err, -MC_ENOSPACE);
	SET(grant_times, 20);
	SET(evictable, 100);
	assert_int_equal(put("a", 100, 0), 0);
	/* Nothing will ever be evictable: the put fails at once. */
	SET(grant_times, 1000000);
	SET(evictable, 0);
	began = mc_now_ns();
	assert_int_equal(put("b", 100, 0), -MCS_ENOSPACE);
	assert_true(mc_now_ns() - began < AT_ONCE_NS);
	/* Fewer bytes are evictable than the put needs: it fails at once, too. */
	SET(evictable, 99);
	began = mc_now_ns();
	assert_int_equal(put("b", 100, 0), -MCS_ENOSPACE);
	assert_true(mc_now_ns() - began < AT_ONCE_NS);
	/* Enough bytes are evictable, but stay: the put waits until the deadline. */
	SET(evictable, 100);
	began = mc_now_ns();
	assert_int_equal(put("b", 100, 0), -MCS_ENOSPACE);
	assert_true(mc_now_ns() - began < 60 * MC_NS_PER_SEC);
	assert_true(mc_now_ns() - began > 2 * MC_NS_PER_SEC);
}

static void puts_that_lose(void **state)
{
	SET(end_err, -MC_EEXISTS);
	SET(end_times, 1);
	assert_int_equal(put("a", 100, 0), 0);
	SET(end_times, 1);
	assert_int_equal(put("b", 100, MCS_PUT_EXCL), -MCS_EEXISTS);
	SET(end_err, -MC_ESTALE_PUT);
	SET(end_times, 1);
	assert_int_equal(put("c", 100, 0), 0);
	assert_int_equal(get("c", 100), 100);
	SET(end_times, 1000);
	assert_int_equal(put("d", 100, 0), -MC_ESTALE_PUT);
	SET(end_err, -MC_EINTERNAL);
	SET(end_times, 1);
	assert_int_equal(put("e", 100, 0), -MC_EINTERNAL);
	SET(end_times, 0);
	assert_int_equal(put("f", 0, MCS_PUT_EXCL), 0);
	assert_int_equal(put("f", 0, MCS_PUT_EXCL), -MCS_EEXISTS);
	expect_nothing_held();
}

/* The status -MC_ERPC stands for a reply that was lost. */
static void answers_that_are_lost(void **state)
{
	SET(fail_err, -MC_ERPC);
	SET(fail_type, MCP_PUT_START);
	SET(fail_times, 3);
	assert_int_equal(put("a", 100, 0), 0);
	SET(fail_type, MCP_PUT_END);
	SET(fail_times, 1);
	assert_int_equal(put("b", 100, 0), 0);
	assert_int_equal(get("b", 100), 100);
	SET(fail_type, MCP_GET);
	SET(fail_times, 3);
	assert_int_equal(get("b", 100), 100);
	SET(fail_times, 1000000);
	assert_int_equal(get("b", 100), -MCS_ERPC);
	SET(fail_times, 0);
	assert_int_equal(get("b", 100), 100);
}

static void a_listing_that_goes_round(void **state)
{
	struct mcs_entry e;
	mcs_list_t *l;

	assert_int_equal(mcs_list_open(s, key(""), 1, &l), 0);
	assert_int_equal(mcs_list_next(l, &e, -1), 1);
	assert_int_equal(mcs_list_next(l, &e, -1), -MC_EPROTO);
	mcs_list_close(l);
}

static void a_master_that_wants_the_segment_again(void **state)
{
	const struct timespec tick = { .tv_nsec = 5000000 };
	unsigned before = COUNT(calls[MCP_MOUNT]);

	SET(reattach, 1);
	for (int i = 0; i < 400 && COUNT(calls[MCP_MOUNT]) == before; i++)
		nanosleep(&tick, NULL);
	assert_int_equal(COUNT(calls[MCP_MOUNT]), before + 1);
	/* The master refuses at first: the client repeats the request. */
	SET(fail_type, MCP_MOUNT);
	SET(fail_err, -MC_ELIMIT);
	SET(fail_times, 1);
	SET(reattach, 1);
	for (int i = 0; i < 400 && COUNT(calls[MCP_MOUNT]) < before + 3; i++)
		nanosleep(&tick, NULL);
	assert_true(COUNT(calls[MCP_MOUNT]) >= before + 3);
}

/* A master may request only one heartbeat per hour from clients without segments: an owner
 * nevertheless sends more, so that it is not considered dead. */
static void heartbeats_that_are_too_rare(void **state)
{
	const struct timespec tick = { .tv_nsec = 10000000 };
	struct mcs_conf conf;
	unsigned from, i;

	mcs_close(s);
	SET(ttl_ms, 500);
	SET(heartbeat_ms, 3600000);
	mcs_conf_init(&conf);
	conf.master = FAKE_ADDR;
	conf.segment_size = (uint64_t)16 << 20;
	conf.segment_kind = "memfd";
	assert_int_equal(mcs_open(&conf, &s), 0);
	from = COUNT(calls[MCP_HEARTBEAT]);
	for (i = 0; COUNT(calls[MCP_HEARTBEAT]) < from + 4 && i < 3000; i++)
		nanosleep(&tick, NULL);
	assert_true(COUNT(calls[MCP_HEARTBEAT]) >= from + 4);
}

static void open_is_refused(void **state)
{
	struct mcs_conf conf;
	uint64_t began;
	mcs_t *none;

	mcs_conf_init(&conf);
	conf.master = "local:nobody";
	conf.setup_timeout_ms = 100;
	assert_int_equal(mcs_open(&conf, &none), -MCS_ERPC);
	assert_non_null(strstr(mcs_error_detail(-MCS_ERPC), "local:nobody"));
	conf.master = "nonsense";
	assert_true(mcs_open(&conf, &none) < 0);
	conf.master = FAKE_ADDR;
	conf.hostname = "";
	assert_int_equal(mcs_open(&conf, &none), -MCS_EPARAM);
	conf.hostname = "127.0.0.1:99999";
	assert_true(mcs_open(&conf, &none) < 0);
	conf.hostname = "127.0.0.1";
	conf.protocol = "rmda";
	assert_int_equal(mcs_open(&conf, &none), -MCS_EPARAM);
	assert_non_null(strstr(mcs_error_detail(-MCS_EPARAM), "\"rmda\", use tcp"));
	conf.protocol = "rpc_only";
	conf.segment_size = (uint64_t)16 << 20;
	assert_int_equal(mcs_open(&conf, &none), -MCS_EPARAM);
	conf.segment_size = 0;
	conf.protocol = "tcp";
	conf.timeout_ms = -5;
	assert_int_equal(mcs_open(&conf, &none), -MCS_EPARAM);
	conf.timeout_ms = 1000;
	conf.segment_kind = "paper";
	conf.segment_size = (uint64_t)16 << 20;
	assert_true(mcs_open(&conf, &none) < 0);
	conf.segment_kind = "memfd";
	conf.segment_size = (uint64_t)1 << 60;
	assert_true(mcs_open(&conf, &none) < 0);
	conf.segment_size = (uint64_t)16 << 20;
	SET(fail_type, MCP_MOUNT);
	SET(fail_err, -MC_ESEGMENT_EXISTS);
	SET(fail_times, 1);
	assert_int_equal(mcs_open(&conf, &none), -MC_ESEGMENT_EXISTS);
	conf.struct_size = 3;
	assert_int_equal(mcs_open(&conf, &none), -MCS_EPARAM);

	/* A lazy open succeeds at once, and calls soon return the error. */
	mcs_conf_init(&conf);
	conf.master = "local:nobody";
	conf.lazy = 1;
	conf.setup_timeout_ms = 100;
	began = mc_now_ns();
	assert_int_equal(mcs_open(&conf, &none), 0);
	assert_int_equal(mcs_health(none), 1);
	assert_int_equal(mcs_get(none, key("k"), NULL, 0, -1), -MCS_ERPC);
	assert_true(mc_now_ns() - began < 3 * MC_NS_PER_SEC);
	mcs_close(none);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_master_that_behaves), T(lists_that_are_too_short), T(replicas_that_cannot_be),
		T(bytes_of_another_place), T(segments_that_cannot_be),
		T(one_segment_that_cannot_be),
		T(a_version_that_always_changes), T(a_version_that_changed_once),
		T(a_quota_of_held_objects_is_waited_for),
		T(a_full_pool_is_waited_for), T(puts_that_lose), T(answers_that_are_lost),
		T(a_listing_that_goes_round), T(a_master_that_wants_the_segment_again),
		T(heartbeats_that_are_too_rare), T(open_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
