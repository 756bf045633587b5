/* SPDX-License-Identifier: Apache-2.0
 * test_node_late.c - a daemon that is late, or ends, while it uses a program's memory: the daemon
 * no longer uses it when the call has returned. */
#include <config.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/sys/clock.h"
#include "common/fault.h"
#include "common/net/packet.h"
#include "tests/unit/node_fixture.h"

#define SIZE 100000u

static mcs_t *c;
static unsigned char *mem;		/* visible to the daemon */
static int mem_fd;

static int setup(void **state)
{
	(void)state;
	fixture_master(NULL);
	node_start(NODE_SEGMENT);
	c = node_client(MIB, 0);
	mem_fd = hand_memfd(MIB, &mem);
	assert_int_equal(mcs_register_memfd(c, mem, MIB, mem_fd, 0), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)mc_fault_set(NULL);
	mcs_close(c);
	if (node_daemon())
		node_wait_counts(0, 0);
	node_stop();
	fixture_master_stop();
	munmap(mem, MIB);
	close(mem_fd);
	return 0;
}

/* A batch of puts, which the daemon executes one by one, exceeds its timeout: each object is stored
 * as a whole or not at all, whatever the memory contains afterwards. */
static void test_window(void **state)
{
	enum { N = 6 };
	const char *const preferred[] = { mcs_hostname(c), NULL };
	const struct mcs_put_opts opts = { .preferred = preferred };
	struct mcs_put_item put[N];
	struct iovec iov[N];
	char key[N][8];
	int stored = 0;

	(void)state;
	fixture_fill(mem, N * SIZE, 1, 0);
	for (unsigned i = 0; i < N; i++) {
		snprintf(key[i], sizeof(key[i]), "w%u", i);
		iov[i] = (struct iovec){ mem + i * SIZE, SIZE };
		put[i] = (struct mcs_put_item){
			.key = fixture_key(key[i]), .iov = &iov[i], .iovcnt = 1,
		};
	}
	assert_int_equal(mc_fault_set("client.put.after_start=delay:900"), 0);
	assert_true(mcs_put_batch(c, put, N, &opts, 1000) < N);
	memset(mem, 0xee, MIB);
	(void)mc_fault_set(NULL);
	/* wait for the puts that are still in flight */
	mcs_close(c);
	c = NULL;
	node_wait_counts(0, 0);
	for (unsigned i = 0; i < N; i++) {
		unsigned char out[SIZE];
		struct iovec to = { out, SIZE };
		int64_t n = mcs_get(node_store(), fixture_key(key[i]), &to, 1, -1);

		if (n == -MCS_ENOOBJECT)
			continue;
		assert_int_equal(n, SIZE);
		assert_true(fixture_same(out, SIZE, 1, i * SIZE));
		stored++;
	}
	assert_true(stored < N);
	c = node_client(MIB, 0);
}

static void *put_one(void *arg)
{
	struct iovec iov = { mem, SIZE };

	(void)arg;
	return (void *)(intptr_t)mcs_put(c, fixture_key("one"), &iov, 1, NULL, 20000);
}

/* A daemon that ends completes its running operations first, and their calls return after that. */
static void test_end(void **state)
{
	pthread_t thread;
	void *result;

	(void)state;
	fixture_fill(mem, SIZE, 1, 0);
	assert_int_equal(mc_fault_set("client.put.after_start=delay:2000"), 0);
	assert_int_equal(pthread_create(&thread, NULL, put_one, NULL), 0);
	while (mc_fault_hits("client.put.after_start") < 1)
		usleep(1000);
	node_down();
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	(void)mc_fault_set(NULL);
	node_up(NODE_SEGMENT);
}

/* Shared memory of a call that timed out on a lost connection is not reused before the daemon has
 * closed the connection; until then other calls map memory of their own. In all other cases the
 * memory is free at once. */
static void test_left(void **state)
{
	struct mcs_daemon_conn *conn, *next;
	struct mcs_daemon_bounce a, b, d;

	(void)state;
	assert_int_equal(mcs_daemon_conn_get(mcs_daemon_of(c->backend), MC_NEVER, &conn), 0);
	assert_int_equal(mcs_daemon_bounce_take(conn, MIB, false, &a), 0);
	mcs_daemon_bounce_give(conn, &a, -MC_ERPC);
	assert_int_equal(mcs_daemon_bounce_take(conn, MIB, false, &a), 0);
	assert_null(a.own);
	mcs_daemon_bounce_give(conn, &a, -MC_ETIMEDOUT);
	assert_int_equal(mcs_daemon_bounce_take(conn, MIB, false, &a), 0);
	assert_null(a.own);
	/* the connection is lost, but the daemon does not know yet */
	conn->lost = true;
	mcs_daemon_bounce_give(conn, &a, -MC_ETIMEDOUT);
	assert_int_equal(mcs_daemon_conn_get(mcs_daemon_of(c->backend), MC_NEVER, &next), 0);
	assert_ptr_not_equal(next, conn);
	assert_int_equal(mcs_daemon_bounce_take(next, MIB, false, &b), 0);
	assert_non_null(b.own);
	mcs_daemon_bounce_give(next, &b, 0);
	/* the client keeps working, with other memory */
	fixture_put_ok(c, "k", SIZE, 3);
	fixture_expect(c, "k", SIZE, 3);
	assert_false(mcs_daemon_conn_over(conn));
	assert_int_equal(shutdown(conn->sock, SHUT_WR), 0);
	while (!mcs_daemon_conn_over(conn))
		usleep(1000);
	assert_int_equal(mcs_daemon_bounce_take(next, MIB, false, &d), 0);
	assert_null(d.own);
	mcs_daemon_bounce_give(next, &d, 0);
	mcs_daemon_conn_put(conn);
	mcs_daemon_conn_put(next);
	fixture_put_ok(c, "k2", SIZE, 4);
	fixture_expect(c, "k2", SIZE, 4);
}

/* ---- a daemon that does not answer ---- */

enum { CALLERS = 6 };

static void *ask_one(void *arg)
{
	uint64_t began = mc_now_ns();
	uint8_t present;
	struct mcs_key key = fixture_key("k");
	int r = mcs_exist(c, &key, 1, &present, 500);

	*(int *)arg = r;
	return (void *)(uintptr_t)((mc_now_ns() - began) / MC_NS_PER_MS);
}

/* All callers start at once, while the daemon's address accepts connections but sends nothing: no
 * caller waits for another caller's timeout, and each call ends at most 8 s after its own, as mcs.h
 * says. */
static void callers_end(void)
{
	pthread_t thread[CALLERS];
	int result[CALLERS];
	void *ms;

	for (unsigned i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ask_one, &result[i]), 0);
	for (unsigned i = 0; i < CALLERS; i++) {
		assert_int_equal(pthread_join(thread[i], &ms), 0);
		assert_true(result[i] == -MCS_ETIMEDOUT || result[i] == -MCS_ERPC);
		assert_in_range((uintptr_t)ms, 0, 8500 + 4000);
	}
}

static void test_silent(void **state)
{
	int deaf;

	(void)state;
	fixture_put_ok(c, "k", SIZE, 3);
	node_down();
	deaf = mc_packet_listen(node_address(), 64);
	assert_true(deaf >= 0);
	callers_end();
	close(deaf);
	node_up(NODE_SEGMENT);
	fixture_put_ok(c, "k2", SIZE, 4);
	fixture_expect(c, "k2", SIZE, 4);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_window),
		TEST(test_end),
		TEST(test_silent),
		TEST(test_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
