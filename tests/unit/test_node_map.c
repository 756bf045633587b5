/* SPDX-License-Identifier: Apache-2.0
 * test_node_map.c - objects that are mapped or open through the node's daemon. */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session/session.h"
#include "client/store_i.h"
#include "common/sys/clock.h"
#include "common/fault.h"
#include "tests/unit/node_fixture.h"

static mcs_t *c;		/* through the daemon, with 1 MiB of shared memory and a pool of 4 MiB */

static int setup(void **state)
{
	(void)state;
	c = node_setup();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)mc_fault_set(NULL);
	node_teardown(c);
	return 0;
}

/* ---- mapped objects ---- */

static void test_map(void **state)
{
	struct mcs_map m, n;

	(void)state;
	fixture_put_ok(c, "m", 100000, 5);
	assert_int_equal(mcs_map(c, fixture_key("m"), 0, &m, -1), 0);
	assert_int_equal(m.size, 100000);
	assert_int_equal((uintptr_t)m.data % 64, 0);
	assert_true(fixture_same(m.data, m.size, 5, 0));
	assert_int_equal(mcs_map_held(c, &m), 0);
	node_wait_counts(1, 1);
	/* replaced: an existing mapping keeps the old version, a new one gets the new version */
	assert_int_equal(fixture_put(c, "m", 100000, 6, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_map(c, fixture_key("m"), 0, &n, -1), 0);
	assert_true(n.generation != m.generation);
	assert_true(fixture_same(n.data, n.size, 6, 0));
	assert_true(fixture_same(m.data, m.size, 5, 0));
	mcs_unmap(c, &m);
	mcs_unmap(c, &m);
	mcs_unmap(c, &n);
	node_wait_counts(0, 1);
	assert_int_equal(mcs_map(c, fixture_key("nothing"), 0, &m, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_map(c, fixture_key("m"), 0x10, &m, -1), -MCS_EPARAM);
	fixture_put_ok(c, "empty", 0, 0);
	assert_int_equal(mcs_map(c, fixture_key("empty"), 0, &m, -1), 0);
	assert_int_equal(m.size, 0);
	assert_non_null(m.data);
	mcs_unmap(c, &m);
}

/* Other puts overwrite the segment many times; the pinned version must not change. */
static void test_pinned_is_not_reused(void **state)
{
	char key[32];
	struct mcs_map m;

	(void)state;
	fixture_put_ok(c, "kept", 2 * MIB, 21);
	assert_int_equal(mcs_map(c, fixture_key("kept"), 0, &m, -1), 0);
	assert_int_equal(mcs_remove(c, fixture_key("kept"), MCS_REMOVE_FORCE, -1), 0);
	for (unsigned i = 0; i < 150; i++) {
		snprintf(key, sizeof(key), "w%u", i);
		fixture_put_ok(c, key, MIB, 100 + i);
	}
	assert_true(fixture_same(m.data, m.size, 21, 0));
	mcs_unmap(c, &m);
}

/* A hot map may return the version that the daemon knew; a plain map always asks the master. */
static void test_hot(void **state)
{
	struct mcs_map m;
	uint64_t first;

	(void)state;
	fixture_put_ok(c, "h", 1000, 1);
	assert_int_equal(mcs_map(c, fixture_key("h"), MCS_MAP_HOT, &m, -1), 0);
	first = m.generation;
	mcs_unmap(c, &m);
	/* by a store that does not use the daemon */
	assert_int_equal(fixture_put(node_store(), "h", 1000, 2, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_map(c, fixture_key("h"), MCS_MAP_HOT, &m, -1), 0);
	assert_int_equal(m.generation, first);
	assert_true(fixture_same(m.data, m.size, 1, 0));
	mcs_unmap(c, &m);
	assert_int_equal(mcs_map(c, fixture_key("h"), 0, &m, -1), 0);
	assert_true(m.generation != first);
	mcs_unmap(c, &m);
	/* the daemon knows the puts that pass through it */
	assert_int_equal(fixture_put(c, "h", 1000, 3, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_map(c, fixture_key("h"), MCS_MAP_HOT, &m, -1), 0);
	assert_true(fixture_same(m.data, m.size, 3, 0));
	mcs_unmap(c, &m);
	assert_int_equal(mcs_remove(c, fixture_key("h"), MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(mcs_map(c, fixture_key("h"), MCS_MAP_HOT, &m, -1), -MCS_ENOOBJECT);
}

/* The daemon copies objects of another node to this one, while there is space for all that are in
 * use. */
static void test_remote(void **state)
{
	mcs_t *other = fixture_store_with(NODE_SEGMENT, 1, FIXTURE_LOCAL);
	const char *there[] = { mcs_hostname(other), NULL };
	struct mcs_put_opts opts = { .preferred = there };
	struct mcs_map m[5];
	unsigned char *buf = malloc(12 * MIB);
	char key[16];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct iovec iov = { buf, i == 4 ? 12 * MIB : 3 * MIB };

		fixture_fill(buf, iov.iov_len, i, 0);
		snprintf(key, sizeof(key), "o%u", i);
		assert_int_equal(mcs_put(other, fixture_key(key), &iov, 1, &opts, -1), 0);
	}
	assert_int_equal(mcs_prefetch(c, fixture_key("o0"), -1), 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(key, sizeof(key), "o%u", i);
		assert_int_equal(mcs_map(c, fixture_key(key), 0, &m[i], -1), 0);
		assert_true(fixture_same(m[i].data, m[i].size, i, 0));
	}
	/* 8 MiB in all: the third object has no space until another one is unmapped */
	assert_int_equal(mcs_map(c, fixture_key("o2"), 0, &m[2], -1), -ENOBUFS);
	/* a get does not need that space */
	fixture_expect(c, "o2", 3 * MIB, 2);
	mcs_unmap(c, &m[0]);
	assert_int_equal(mcs_map(c, fixture_key("o2"), 0, &m[2], -1), 0);
	assert_true(fixture_same(m[2].data, m[2].size, 2, 0));
	assert_true(fixture_same(m[1].data, m[1].size, 1, 0));
	mcs_unmap(c, &m[1]);
	mcs_unmap(c, &m[2]);
	/* larger than all of the space */
	assert_int_equal(mcs_map(c, fixture_key("o4"), 0, &m[4], -1), -ENOBUFS);
	fixture_expect(c, "o4", 12 * MIB, 4);
	free(buf);
	mcs_close(other);
}

static void test_objects(void **state)
{
	unsigned char out[500];
	struct iovec iov = { out, sizeof(out) };
	mcs_object_t *o;
	const void *data;

	(void)state;
	fixture_put_ok(c, "o", 100000, 9);
	assert_int_equal(mcs_object_open(c, fixture_key("o"), &o, -1), 0);
	assert_int_equal(mcs_object_info(o)->size, 100000);
	assert_int_equal(mcs_remove(c, fixture_key("o"), MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(mcs_object_read(o, 70000, &iov, 1, -1), 500);
	assert_true(fixture_same(out, 500, 9, 70000));
	assert_int_equal(mcs_object_map(o, &data, -1), 0);
	assert_true(fixture_same(data, 100000, 9, 0));
	assert_int_equal(mcs_object_verify(o), 0);
	assert_int_equal(mcs_object_held(o), 0);
	mcs_object_close(o);
	node_wait_counts(0, 1);
}

/* After the daemon has ended, an object's memory proves nothing about the object, even if the bytes
 * look right. */
static void test_objects_lost(void **state)
{
	unsigned char out[500];
	struct iovec iov = { out, sizeof(out) };
	mcs_object_t *seen, *unseen;

	(void)state;
	fixture_put_ok(c, "o", 100000, 9);
	assert_int_equal(mcs_object_open(c, fixture_key("o"), &seen, -1), 0);
	assert_int_equal(mcs_object_open(c, fixture_key("o"), &unseen, -1), 0);
	assert_int_equal(mcs_object_read(seen, 0, &iov, 1, -1), 500);
	assert_int_equal(mcs_object_verify(seen), 0);
	node_down();
	node_up(NODE_SEGMENT);
	assert_int_equal(mcs_object_read(seen, 0, &iov, 1, -1), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_verify(seen), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_read(unseen, 0, &iov, 1, -1), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_verify(unseen), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_read(unseen, 100000, &iov, 1, -1), 0);
	mcs_object_close(seen);
	mcs_object_close(unseen);
}

/* ---- the daemon's connection to the master is replaced ---- */

static void task(enum mcs_task_kind kind, const char *key, const char *from, const char *to)
{
	const char *sources[] = { from, NULL }, *targets[] = { to, NULL };
	struct mcs_task_opts opts = {
		.kind = kind, .key = fixture_key(key), .sources = from ? sources : NULL,
		.targets = targets,
	};
	char id[MCS_TASK_ID];

	assert_int_equal(mcs_task_create(node_store(), &opts, id, -1), 0);
}

/* Break the daemon's connection, and perhaps others. */
static void reset_session(void)
{
	struct mcs_info info;

	assert_int_equal(mc_fault_set("rpc.send=error:EIO"), 0);
	while (mc_fault_hits("rpc.send") < 1)
		(void)mcs_stat(node_store(), fixture_key("x"), &info, 10);
	(void)mc_fault_set(NULL);
}

/* Has the key @n replicas, one of them in @segment? */
static bool at(const char *key, const char *segment, unsigned n)
{
	struct mcs_key k = fixture_key(key);
	struct mcs_replicas rep = { 0 };
	bool ok = false;

	if (mcs_replicas(node_store(), &k, 1, 0, &rep, -1) == 1) {
		for (unsigned i = 0; i < rep.n; i++)
			ok = ok || !strcmp(rep.replica[i].segment, segment);
		ok = ok && rep.n == n;
		mcs_replicas_free(&rep, 1);
	}
	return ok;
}

/* A new replica in another segment does not change the location of the mapped one. */
static void test_copied(void **state)
{
	mcs_t *other = fixture_store_with(NODE_SEGMENT, 1, FIXTURE_LOCAL);
	struct mcs_map m, n;

	(void)state;
	fixture_put_ok(node_store(), "copied", 100000, 1);
	assert_int_equal(mcs_map(c, fixture_key("copied"), 0, &m, -1), 0);
	task(MCS_TASK_COPY, "copied", NULL, mcs_hostname(other));
	while (!at("copied", mcs_hostname(other), 2))
		usleep(10000);
	reset_session();
	for (int i = 0; i < 1000 && mcs_map_held(c, &m); i++)
		usleep(10000);
	assert_int_equal(mcs_map_held(c, &m), 0);
	assert_int_equal(mcs_map(c, fixture_key("copied"), 0, &n, -1), 0);
	assert_int_equal(mcs_map_held(c, &n), 0);
	mcs_unmap(c, &m);
	mcs_unmap(c, &n);
	mcs_close(other);
}

static void *ask_held(void *arg)
{
	return (void *)(intptr_t)mcs_map_held(c, arg);
}

/* While a question about one object waits for the master, other objects of the program can be
 * unmapped and mapped. */
static void test_question_waits(void **state)
{
	struct mcs_map m, n;
	pthread_t thread;
	uint64_t began;
	void *result;

	(void)state;
	fixture_put_ok(c, "m", 1000, 1);
	fixture_put_ok(c, "n", 1000, 2);
	assert_int_equal(mcs_map(c, fixture_key("m"), 0, &m, -1), 0);
	assert_int_equal(mcs_map(c, fixture_key("n"), 0, &n, -1), 0);
	assert_int_equal(mc_fault_set("node.held=delay:4000@1,node.held=error:MC_EREPLICA_GONE@1"), 0);
	began = mc_now_ns();
	assert_int_equal(pthread_create(&thread, NULL, ask_held, &m), 0);
	while (mc_fault_hits("node.held") < 1)
		usleep(1000);
	mcs_unmap(c, &n);
	node_wait_counts(1, 1);
	assert_int_equal(mcs_map(c, fixture_key("n"), 0, &n, 2000), 0);
	assert_true(mc_now_ns() < began + 3 * MC_NS_PER_SEC);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_map_held(c, &m), 0);
	assert_int_equal(mcs_map_held(c, &n), 0);
	mcs_unmap(c, &m);
	mcs_unmap(c, &n);
}

/* Many questions at once to a master that does not answer take no longer than one. */
static void test_questions_at_once(void **state)
{
	struct node_hand h;
	uint64_t pin;

	(void)state;
	fixture_put_ok(c, "obj", 1000, 1);
	hand_open(&h);
	hand_ring(&h, 16, 4096);
	memcpy(h.arena, "obj", 3);
	hand_give(&h, &(struct mcfs_sqe){ .op = MCFS_RING_PIN, .key_len = 3, .put = ~0u });
	pin = hand_take(&h).pin;
	assert_true(pin != 0);
	assert_int_equal(mc_fault_set("node.held=delay:1000,node.held=error:MC_EREPLICA_GONE"), 0);
	for (unsigned i = 0; i < 16; i++)
		h.sq[(h.ring->sq_tail + i) & 15] = (struct mcfs_sqe){ .op = MCFS_RING_HELD, .pin = pin };
	h.ring->sq_tail += 15;
	hand_give(&h, &h.sq[h.ring->sq_tail & 15]);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(hand_take(&h).result, -MCS_EREPLICA_GONE);
	/* one, or two if the daemon saw the first entry alone */
	assert_in_range(mc_fault_hits("node.held"), 1, 2);
	(void)mc_fault_set(NULL);
	hand_close(&h);
	node_wait_counts(0, 1);
}

/* A client that maps an object after its pin was lost does not get the old location. */
static void test_moved(void **state)
{
	mcs_t *other = fixture_store_with(NODE_SEGMENT, 1, FIXTURE_LOCAL);
	struct mcs_map m, n;

	(void)state;
	fixture_put_ok(node_store(), "moved", 100000, 1);
	assert_int_equal(mcs_map(c, fixture_key("moved"), 0, &m, -1), 0);
	task(MCS_TASK_MOVE, "moved", mcs_hostname(node_store()), mcs_hostname(other));
	/* the move waits for the reader of the old location */
	while (!at("moved", mcs_hostname(other), 2))
		usleep(10000);
	reset_session();
	/* pinned again or moved, whichever is first */
	while (!at("moved", mcs_hostname(other), 1) && mcs_map_held(c, &m))
		usleep(10000);
	assert_int_equal(mcs_map(c, fixture_key("moved"), 0, &n, -1), 0);
	assert_int_equal(mcs_map_held(c, &n), 0);
	assert_true(fixture_same(n.data, n.size, 1, 0));
	mcs_unmap(c, &m);
	mcs_unmap(c, &n);
	mcs_close(other);
}

struct copy {
	mcs_t *s;
	struct mcs_get_item item;
};

static void *get_copy(void *arg)
{
	struct copy *g = arg;

	(void)mcs_get_batch(g->s, &g->item, 1, -1);
	return NULL;
}

/* Without a checksum, bytes that were copied after the pin was lost are not returned as data,
 * either. */
static void test_copied_late(void **state)
{
	struct mcs_conf conf;
	unsigned char *buf = malloc(300000);
	struct iovec iov = { buf, 300000 };
	struct copy g = { .item = { .key = fixture_key("late"), .whole = 1, .iov = &iov, .iovcnt = 1 } };
	uint64_t epoch = mcs_session_epoch(node_store()->session);
	pthread_t thread;
	char key[16];

	(void)state;
	mcs_conf_init(&conf);
	conf.daemon = node_address();
	conf.verify = 0;
	assert_int_equal(mcs_open(&conf, &g.s), 0);
	fixture_put_ok(node_store(), "late", 300000, 1);
	assert_int_equal(mc_fault_set("client.node.before_copy=delay:3000@1"), 0);
	assert_int_equal(pthread_create(&thread, NULL, get_copy, &g), 0);
	while (mc_fault_hits("client.node.before_copy") < 1)
		usleep(1000);
	assert_int_equal(mcs_remove(c, fixture_key("late"), MCS_REMOVE_FORCE, -1), 0);
	mcs_session_taint(node_store()->session, epoch);
	while (mcs_session_epoch(node_store()->session) == epoch)
		usleep(1000);
	for (int i = 0; i < 128; i++) {
		snprintf(key, sizeof(key), "fill-%d", i);
		fixture_put_ok(node_store(), key, MIB, 9);
	}
	pthread_join(thread, NULL);
	assert_int_equal(g.item.result, -MCS_ENOOBJECT);
	assert_int_equal(mc_fault_set(NULL), 0);
	mcs_close(g.s);
	free(buf);
}

static void puts_far(struct mcm_conf *conf)
{
	static char cxl[] = "cxl";

	conf->allocation_strategy = cxl;
}

/* The offset of an object in far memory is none in near memory, which the client maps. */
static void test_far_memory(void **state)
{
	unsigned char *buf = malloc(300000);
	struct iovec iov = { buf, 300000 };
	uint64_t offset;
	struct mcs_conf conf;
	mcs_object_t *o;
	struct mcs_map m;
	mcs_t *s;

	(void)state;
	fixture_master(puts_far);
	mcs_conf_init(&conf);
	conf.master = FIXTURE_LOCAL;
	conf.segment_size = 16 * MIB;
	conf.far_size = 16 * MIB;
	assert_int_equal(mcs_open(&conf, &s), 0);
	node_start_with(s);
	c = node_client(MIB, 4 * MIB);
	fixture_put_ok(s, "far", 300000, 7);
	assert_int_equal(mcs_object_open(s, fixture_key("far"), &o, -1), 0);
	assert_true(mcs_object_info(o)->flags & MCS_IN_FAR_MEMORY);
	assert_int_equal(mcs_object_offset(o, &offset), -MCS_ENOTSUP);
	mcs_object_close(o);
	assert_int_equal(mcs_map(c, fixture_key("far"), 0, &m, -1), 0);
	assert_true(fixture_same(m.data, m.size, 7, 0));
	mcs_unmap(c, &m);
	assert_int_equal(mcs_get(c, fixture_key("far"), &iov, 1, -1), 300000);
	assert_true(fixture_same(buf, 300000, 7, 0));
	free(buf);
	node_teardown(c);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_map),
		TEST(test_pinned_is_not_reused),
		TEST(test_hot),
		TEST(test_remote),
		TEST(test_objects),
		TEST(test_objects_lost),
		TEST(test_question_waits),
		TEST(test_questions_at_once),
		TEST(test_copied),
		TEST(test_moved),
		TEST(test_copied_late),
		cmocka_unit_test(test_far_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
