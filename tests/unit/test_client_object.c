/* SPDX-License-Identifier: Apache-2.0
 * test_client_object.c - open objects, and memory that was damaged. */
#include <config.h>

#include "tests/lib/transfer.h"
#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/sys/clock.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "engine/mce.h"
#include "proto/rpc_client.h"

static mcs_t *a, *b, *peer;	/* two owners and one without memory */

static void short_leases(struct mcm_conf *conf)
{
	conf->default_kv_lease_ttl = 200;
}

static int setup(void **state)
{
	fixture_master(short_leases);
	a = fixture_store(32 * MIB);
	b = NULL;
	peer = fixture_store(0);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(peer);
	mcs_close(b);
	mcs_close(a);
	fixture_master_stop();
	return 0;
}

static int64_t read_at(mcs_object_t *o, uint64_t off, void *buf, size_t len)
{
	struct iovec iov = { buf, len };

	return mcs_object_read(o, off, &iov, 1, -1);
}

static void expect_parts(mcs_object_t *o, size_t size, uint64_t seed)
{
	unsigned char *buf = malloc(size + 1);

	for (size_t off = 0; off <= size; off += size / 9 + 1) {
		size_t len = size / 5 + 3, want = size - off < len ? size - off : len;

		assert_int_equal(read_at(o, off, buf, len < size ? len : size), want < size ? want : size);
		assert_true(fixture_same(buf, want < size ? want : size, seed, off));
	}
	free(buf);
}

static void versions_stay_while_open(void **state)
{
	const size_t size = 400000;
	mcs_object_t *o1, *o2, *o3;
	const void *map;

	fixture_put_ok(a, "k", size, 1);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o1, -1), 0);
	assert_int_equal(mcs_object_info(o1)->size, size);
	assert_int_equal(fixture_put(a, "k", size, 2, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o2, -1), 0);
	assert_int_equal(mcs_rename(a, fixture_key("k"), fixture_key("j"), 0, -1), 0);
	assert_int_equal(mcs_object_open(a, fixture_key("j"), &o3, -1), 0);
	assert_int_equal(mcs_remove(a, fixture_key("j"), 0, -1), -MCS_ELEASED);
	assert_int_equal(mcs_remove(a, fixture_key("j"), MCS_REMOVE_FORCE, -1), 0);
	/* Other puts fill the pool twice. */
	for (int i = 0; i < 64; i++) {
		char key[16];

		snprintf(key, sizeof(key), "fill-%d", i);
		fixture_put_ok(a, key, MIB, 7);
	}
	expect_parts(o1, size, 1);
	expect_parts(o2, size, 2);
	expect_parts(o3, size, 2);
	assert_int_equal(mcs_object_map(o1, &map, -1), 0);
	assert_true(fixture_same(map, size, 1, 0));
	assert_int_equal(mcs_object_verify(o1), 0);
	assert_int_equal(mcs_object_verify(o2), 0);
	assert_int_equal(mcs_object_map(o3, &map, -1), 0);
	assert_true(fixture_same(map, size, 2, 0));
	mcs_object_close(o1);
	mcs_object_close(o2);
	mcs_object_close(o3);
	mcs_object_close(NULL);
	/* A pinned version is freed when its pin is released. */
	assert_true(mcs_remove_match(a, (struct mcs_key){ NULL, 0 }, NULL, 0, -1) > 0);
	assert_int_equal(fixture_wait_used(a, 0), 0);
}

/* More releases than one message can carry, collected while no message is sent. */
static void pins_of_many_are_given_back(void **state)
{
	enum { MANY = 40000 };
	mcs_object_t **o = calloc(MANY, sizeof(*o));

	fixture_put_ok(a, "k", 100000, 1);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o[i], -1), 0);
	assert_int_equal(mcs_remove(a, fixture_key("k"), MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(mc_fault_set("client.send=error:EIO"), 0);
	for (int i = 0; i < MANY; i++)
		mcs_object_close(o[i]);
	while (mc_fault_hits("client.send") < 2)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(fixture_wait_used(a, 0), 0);
	free(o);
}

static void empty_and_small_objects(void **state)
{
	char buf[16];
	mcs_object_t *o;
	const void *map;

	fixture_put_ok(a, "e", 0, 1);
	assert_int_equal(mcs_object_open(peer, fixture_key("e"), &o, -1), 0);
	assert_int_equal(read_at(o, 0, buf, 16), 0);
	assert_int_equal(mcs_object_map(o, &map, -1), 0);
	assert_non_null(map);
	assert_int_equal(mcs_object_verify(o), 0);
	mcs_object_close(o);
	fixture_put_ok(a, "s", 10, 1);
	assert_int_equal(mcs_object_open(peer, fixture_key("s"), &o, -1), 0);
	assert_int_equal(read_at(o, 4, buf, 16), 6);
	assert_true(fixture_same(buf, 6, 1, 4));
	assert_int_equal(read_at(o, 10, buf, 16), 0);
	assert_int_equal(read_at(o, UINT64_MAX, buf, 16), 0);
	mcs_object_close(o);
	assert_int_equal(mcs_object_open(peer, fixture_key("nope"), &o, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_object_open(peer, fixture_key(""), &o, -1), -MCS_EKEY);
}

static void no_map_over_tcp_only(void **state)
{
	mcs_t *far = fixture_store_with(0, 1, fixture_master_addr());
	mcs_object_t *o;
	const void *map;

	fixture_put_ok(a, "k", 300000, 1);
	assert_int_equal(mcs_object_open(far, fixture_key("k"), &o, -1), 0);
	assert_int_equal(mcs_object_map(o, &map, -1), -MCS_ENOTSUP);
	assert_int_equal(mcs_object_verify(o), 0);
	expect_parts(o, 300000, 1);
	mcs_object_close(o);
	mcs_close(far);
}

static void sleep_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* The keeper thread releases pins a moment later. */
static int remove_soon(const char *key)
{
	uint64_t end = mc_deadline_ms(20000);
	int r;

	while ((r = mcs_remove(a, fixture_key(key), 0, -1)) == -MCS_ELEASED && mc_now_ns() < end)
		sleep_ms(5);
	return r;
}

static void pins_outlive_leases(void **state)
{
	mcs_object_t *o;

	fixture_put_ok(a, "k", 100000, 1);
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	sleep_ms(500);		/* the lease time is 200 */
	assert_int_equal(mcs_remove(a, fixture_key("k"), 0, -1), -MCS_ELEASED);
	expect_parts(o, 100000, 1);
	mcs_object_close(o);
	assert_int_equal(remove_soon("k"), 0);
	assert_int_equal(fixture_wait_used(a, 0), 0);
}

static void *slow_get(void *arg)
{
	fixture_expect(peer, "slow", 100000, 3);
	return NULL;
}

static void leases_of_long_reads_are_renewed(void **state)
{
	pthread_t t;

	fixture_put_ok(a, "slow", 100000, 3);
	assert_int_equal(mc_fault_set("client.get.before_read=delay:4000@1"), 0);
	assert_int_equal(pthread_create(&t, NULL, slow_get, NULL), 0);
	while (mc_fault_hits("client.get.before_read") < 1)
		sleep_ms(1);
	sleep_ms(700);		/* the lease time is 200 */
	assert_int_equal(mcs_remove(a, fixture_key("slow"), 0, -1), -MCS_ELEASED);
	pthread_join(t, NULL);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(remove_soon("slow"), 0);
}

/* ---- damaged memory: the test writes into it directly ---- */

/* The address of replica @i of an object. */
static void find(const char *key, unsigned i, struct mcp_segment *seg, char endpoint[64],
		 struct mcp_replica *rep)
{
	struct mcp_client_conf conf = { .addrs = FIXTURE_LOCAL, .client = { 1, 2 }, .software = "test" };
	struct mcp_key one = { mcp_bytes(key, strlen(key)) };
	struct mcp_get get = { .keys = mcp_seq(&one, 1) };
	struct mcp_segments_reply sr;
	struct mcp_segments segs;
	struct mcp_get_reply gr;
	struct mcp_reply mem = { 0 };
	struct mcp_object obj;
	struct mcp_client *c;
	struct mcp_iter it;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	assert_int_equal(mcp_call(c, MCP_GET, &get, &gr, &mem, mc_deadline_ms(5000)), 0);
	mcp_iter_init(&it, &gr.objects, &mcp_desc_object);
	assert_true(mcp_iter_next(&it, &obj));
	assert_int_equal(obj.status, 0);
	mcp_iter_init(&it, &obj.replicas, &mcp_desc_replica);
	do
		assert_true(mcp_iter_next(&it, rep));
	while (i--);
	mcp_reply_done(&mem);
	segs.segment = rep->segment;
	assert_int_equal(mcp_call(c, MCP_SEGMENTS, &segs, &sr, &mem, mc_deadline_ms(5000)), 0);
	mcp_iter_init(&it, &sr.segments, &mcp_desc_segment);
	assert_true(mcp_iter_next(&it, seg));
	snprintf(endpoint, 64, "%.*s", (int)seg->endpoint.len, (const char *)seg->endpoint.data);
	mcp_reply_done(&mem);
	mcp_client_close(c);
}

/* Invert one byte at @offset of replica @i's range. */
static void damage(const char *key, unsigned i, uint64_t offset)
{
	struct mcp_segment seg;
	struct mcp_replica rep;
	struct mce_engine *e;
	struct mce_peer *p;
	struct mce_conf conf = { 0 };
	unsigned char byte;
	struct iovec iov = { &byte, 1 };
	struct mce_req req;
	char endpoint[64];

	find(key, i, &seg, endpoint, &rep);
	assert_int_equal(mce_engine_open(&conf, &e), 0);
	assert_int_equal(mce_peer_get(e, endpoint, &p), 0);
	for (int write = 0; write < 2; write++) {
		req = (struct mce_req){
			.op = write ? MCE_WRITE : MCE_READ, .peer = p, .rkey = seg.rkey,
			.addr = seg.base + rep.offset + offset, .iov = &iov, .iovcnt = 1,
		};
		assert_int_equal(mce_transfer(e, &req, mc_deadline_ms(5000)), 0);
		byte = (unsigned char)~byte;
	}
	mce_peer_put(p);
	mce_engine_close(e);
}

static int64_t checksum_errors(void)
{
	int64_t n = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_checksum_errors_total", "", &n), 0);
	return n;
}

static void bad_bytes_are_never_data(void **state)
{
	const size_t size = 5 * 65536;
	unsigned char *buf = malloc(size);
	struct iovec iov = { buf, size }, part = { buf, 1000 };
	int64_t before = checksum_errors();
	mcs_object_t *o;
	const void *map;

	fixture_put_ok(a, "k", size, 1);
	damage("k", 0, 2 * 65536 + 5);
	assert_int_equal(mcs_get(peer, fixture_key("k"), &iov, 1, -1), -MCS_ECHECKSUM);
	assert_true(checksum_errors() > before);
	/* The whole chunk is damaged, whichever of its bytes are requested; the other chunks are
	 * good. */
	assert_int_equal(mcs_get_range(peer, fixture_key("k"), 3 * 65536 - 1000, &part, 1, -1),
			 -MCS_ECHECKSUM);
	assert_int_equal(mcs_get_range(peer, fixture_key("k"), 3 * 65536, &part, 1, -1), 1000);
	assert_true(fixture_same(buf, 1000, 1, 3 * 65536));
	assert_int_equal(mcs_object_open(peer, fixture_key("k"), &o, -1), 0);
	assert_int_equal(mcs_object_read(o, 2 * 65536, &part, 1, -1), -MCS_ECHECKSUM);
	assert_int_equal(mcs_object_read(o, 65536, &part, 1, -1), 1000);
	assert_int_equal(mcs_object_verify(o), -MCS_ECHECKSUM);
	assert_int_equal(mcs_object_map(o, &map, -1), 0);
	assert_int_equal(mcs_object_verify(o), -MCS_ECHECKSUM);
	mcs_object_close(o);
	free(buf);
}

static void a_bad_trailer_spoils_ranges_only(void **state)
{
	const size_t size = 3 * 65536 + 1;
	unsigned char buf[100];
	struct iovec part = { buf, sizeof(buf) };

	fixture_put_ok(a, "k", size, 1);
	damage("k", 0, size + 3 + 5);
	fixture_expect(peer, "k", size, 1);
	assert_int_equal(mcs_get_range(peer, fixture_key("k"), 0, &part, 1, -1), -MCS_ECHECKSUM);
}

static void small_objects_are_checked_too(void **state)
{
	unsigned char buf[100];
	struct iovec part = { buf, sizeof(buf) };

	fixture_put_ok(a, "k", 4096, 1);
	damage("k", 0, 4000);
	assert_int_equal(mcs_get_range(peer, fixture_key("k"), 0, &part, 1, -1), -MCS_ECHECKSUM);
}

/* A reader that disables checks gets unchecked bytes only while the memory was certainly not
 * reused. */
static void unchecked_reads_are_checked_when_late(void **state)
{
	unsigned char buf[5000];
	struct iovec iov = { buf, sizeof(buf) };
	struct mcs_conf conf;
	mcs_t *blind;

	mcs_conf_init(&conf);
	conf.master = FIXTURE_LOCAL;
	conf.verify = 0;
	assert_int_equal(mcs_open(&conf, &blind), 0);
	fixture_put_ok(a, "k", sizeof(buf), 1);
	assert_int_equal(mcs_get(blind, fixture_key("k"), &iov, 1, -1), sizeof(buf));
	assert_true(fixture_same(buf, sizeof(buf), 1, 0));
	damage("k", 0, 77);
	assert_int_equal(mcs_get(blind, fixture_key("k"), &iov, 1, -1), sizeof(buf));
	assert_false(fixture_same(buf, sizeof(buf), 1, 0));
	assert_int_equal(mc_fault_set("client.get.after_read=delay:400@1"), 0);
	assert_int_equal(mcs_get(blind, fixture_key("k"), &iov, 1, -1), -MCS_ECHECKSUM);
	assert_int_equal(mc_fault_set(NULL), 0);
	mcs_close(blind);
}

static void another_replica_helps(void **state)
{
	const struct mcs_put_opts two = { .replicas = 2 };
	const size_t size = 300000;
	unsigned char *buf = malloc(size);
	struct iovec iov = { buf, size };

	b = fixture_store(32 * MIB);
	fixture_fill(buf, size, 4, 0);
	assert_int_equal(mcs_put(a, fixture_key("k"), &iov, 1, &two, -1), 0);
	damage("k", 0, 100);
	fixture_expect(peer, "k", size, 4);
	fixture_expect(a, "k", size, 4);
	fixture_expect(b, "k", size, 4);
	damage("k", 1, 200000);
	memset(buf, 0, size);
	assert_int_equal(mcs_get(peer, fixture_key("k"), &iov, 1, -1), -MCS_ECHECKSUM);
	free(buf);
}

static void an_owner_that_leaves_takes_its_objects(void **state)
{
	const struct mcs_put_opts two = { .replicas = 2 };
	char buf[1000];
	struct iovec iov = { buf, sizeof(buf) };
	mcs_object_t *o;
	int64_t r;

	b = fixture_store(32 * MIB);
	fixture_fill(buf, sizeof(buf), 4, 0);
	assert_int_equal(mcs_put(b, fixture_key("both"), &iov, 1, &two, -1), 0);
	assert_int_equal(mcs_put(b, fixture_key("b"), &iov, 1, NULL, -1), 0);
	assert_int_equal(mcs_object_open(peer, fixture_key("b"), &o, -1), 0);
	mcs_close(b);
	b = NULL;
	assert_int_equal(mcs_get(peer, fixture_key("b"), &iov, 1, -1), -MCS_ENOOBJECT);
	r = mcs_object_read(o, 0, &iov, 1, -1);
	/* Mapped memory outlives its owner; the read returns the right bytes or an error. */
	assert_true(r == -MCS_EREPLICA_GONE || (r == 1000 && fixture_same(buf, 1000, 4, 0)));
	mcs_object_close(o);
	fixture_expect(peer, "both", 1000, 4);
	assert_int_equal(mcs_remove(peer, fixture_key("both"), 0, -1), 0);
	assert_int_equal(fixture_wait_used(a, 0), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(versions_stay_while_open), T(pins_of_many_are_given_back), T(empty_and_small_objects),
		T(no_map_over_tcp_only),
		T(pins_outlive_leases), T(leases_of_long_reads_are_renewed),
		T(unchecked_reads_are_checked_when_late), T(bad_bytes_are_never_data),
		T(a_bad_trailer_spoils_ranges_only), T(small_objects_are_checked_too),
		T(another_replica_helps), T(an_owner_that_leaves_takes_its_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
