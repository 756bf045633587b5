/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_upstream.c - two engines that treat each other as upstream's nodes, on fake NICs: the messages of
 * upstream's handshake connect them. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "engine/engine_i.h"
#include "engine/rdma/rdma_i.h"
#include "engine/upstream/setup.h"
#include "tests/lib/fake_verbs.h"

#define REGION (8u << 20)
#define NICS_MAX 2u

/* A node; its handshake service is at port PORT + its index. */
enum { A, B, NODES, PORT = 7000 };
static struct node {
	struct side side;
	struct mce_peer *other;
	char name[32];
	bool silent;		/* its handshake service does not answer */
	unsigned asked;		/* atomic: messages to it */
} node[NODES];

static int send_setup(const char *host, int port, const char *text, uint64_t deadline, char **ret_reply)
{
	struct node *n = &node[port - PORT];

	__atomic_fetch_add(&n->asked, 1, __ATOMIC_RELAXED);
	if (!n->side.e || n->silent || strcmp(host, "127.0.0.1") != 0)
		return -ECONNREFUSED;
	return mce_engine_upstream_setup(n->side.e, text, strlen(text), ret_reply);
}

static void node_open(unsigned i, const char *nics, uint64_t seed)
{
	struct mce_conf conf = { .rdma_devices = nics, .upstream_setup = send_setup };

	snprintf(node[i].name, sizeof(node[i].name), "127.0.0.1:%d", PORT + i);
	conf.upstream_name = node[i].name;
	side_open(&node[i].side, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, seed);
}

/* Node @i learns the descriptor of the other one. */
static void node_learn(unsigned i)
{
	struct node *to = &node[1 - i];
	struct mce_nic_desc nics[NICS_MAX];
	uint32_t rkeys[NICS_MAX], lkeys[NICS_MAX];
	struct mce_upstream_region region = { (uintptr_t)to->side.mem, REGION, rkeys };
	struct mce_upstream_node desc = {
		.name = to->name, .host = "127.0.0.1", .port = PORT + 1 - (int)i, .nics = nics, .regions = &region,
		.nregions = 1,
	};
	struct mce_peer *old = node[i].other;

	desc.nnics = mce_engine_nics(to->side.e, nics, NICS_MAX);
	mce_mr_nic_keys(to->side.mr, 0, rkeys, lkeys);
	assert_int_equal(mce_peer_get_upstream_rdma(node[i].side.e, &desc, &node[i].other), 0);
	mce_peer_put(old);
}

static void nodes_open(unsigned nics, const char *nics_a, const char *nics_b)
{
	memset(node, 0, sizeof(node));
	fake_reset(nics);
	mce_verbs_replace(fake_verbs());
	node_open(A, nics_a, 1);
	node_open(B, nics_b, 2);
	node_learn(A);
	node_learn(B);
}

static void nodes_close(void)
{
	for (unsigned i = 0; i < NODES; i++)
		mce_peer_put(node[i].other);
	for (unsigned i = 0; i < NODES; i++)
		side_close(&node[i].side);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
	mce_verbs_replace(NULL);
}

/* Node @i moves the first @len bytes of its memory to or from offset @off of the other's. */
static int move(unsigned i, enum mce_op op, uint64_t off, uint64_t len)
{
	struct node *n = &node[i];
	struct iovec iov = { n->side.mem, len };
	struct mce_req req = {
		.op = op, .peer = n->other, .addr = (uintptr_t)node[1 - i].side.mem + off,
		.rkey = (uintptr_t)node[1 - i].side.mem, .iov = &iov, .iovcnt = 1,
	};

	return mce_transfer(n->side.e, &req, mc_deadline_ms(20000));
}

static void round_trip(unsigned i, uint64_t len, uint64_t seed)
{
	uint64_t off = REGION - len;

	pattern_fill(node[i].side.mem, len, seed, 0);
	assert_int_equal(move(i, MCE_WRITE, off, len), 0);
	pattern_check(node[1 - i].side.mem + off, len, seed, 0);
	memset(node[i].side.mem, 0, len);
	assert_int_equal(move(i, MCE_READ, off, len), 0);
	pattern_check(node[i].side.mem, len, seed, 0);
}

static void count_run(void *arg)
{
	unsigned *i = arg;

	*i = mce_rdma_of(node[*i].side.e)->nstrangers;
}

static unsigned strangers_of(unsigned i)
{
	unsigned n = i;

	mce_io_call(&mce_rdma_of(node[i].side.e)->ctl, count_run, &n);
	return n;
}

/* ---- bytes ---- */

static void both_directions_use_one_connection(void **state)
{
	long objects;

	nodes_open(2, "fake0", "fake1");
	round_trip(A, 1, 1);
	round_trip(A, 4 << 20, 2);
	objects = fake_live_objects();
	assert_int_equal(strangers_of(B), 1);
	round_trip(B, 4 << 20, 3);
	round_trip(A, 65537, 4);
	assert_int_equal(strangers_of(B), 0);
	assert_int_equal(fake_live_objects(), objects);
	/* the message, and that its sender is ready */
	assert_int_equal(node[A].asked + node[B].asked, 2);
	nodes_close();
}

static void *round_trips(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	/* Different parts of the memory: each writes the upper half of the other's, from its own lower half. */
	for (unsigned k = 0; k < 20; k++)
		round_trip(i, 1 << 20, 10 * k + i);
	return NULL;
}

static void both_connect_at_one_time(void **state)
{
	pthread_t thread;

	for (unsigned i = 0; i < 5; i++) {
		nodes_open(2, "", "");
		assert_int_equal(pthread_create(&thread, NULL, round_trips, (void *)A), 0);
		round_trips((void *)B);
		pthread_join(thread, NULL);
		nodes_close();
	}
}

/* ---- failures ---- */

/* The pair connects again, or a second passes, before the other write is sent. */
static void a_late_write_changes_nothing(void **state)
{
	nodes_open(2, "fake0", "fake1");
	round_trip(A, 65536, 1);
	fake_late_writes(0, true);
	for (unsigned i = 0; i < 4; i++) {
		memset(node[A].side.mem, 'a' + (int)i, 65536);
		fake_wc_error(0, IBV_WC_RETRY_EXC_ERR, 1);
		/* After a loss the descriptor has to be fetched again. */
		assert_int_equal(move(A, MCE_WRITE, 0, 65536), -ESTALE);
		fake_wc_error(0, IBV_WC_SUCCESS, 0);
		node_learn(A);
		memset(node[A].side.mem, 'z', 65536);
		assert_int_equal(move(A, MCE_WRITE, 0, 65536), 0);
		usleep(120000);
		for (unsigned k = 0; k < 65536; k++)
			assert_int_equal(node[B].side.mem[k], 'z');
	}
	nodes_close();
}

static void a_nic_that_goes_down_loses_nothing(void **state)
{
	nodes_open(2, "", "");
	round_trip(A, 1 << 20, 1);
	fake_delay(0, 200);
	fake_delay(1, 200);
	fake_port(1, false);
	for (unsigned i = 0; i < 4; i++)
		round_trip(A, 4 << 20, 2 + i);
	fake_port(1, true);
	for (unsigned i = 0; i < 4; i++)
		round_trip(A, 4 << 20, 9 + i);
	nodes_close();
}

/* Read from B, correct bytes each time, until NIC 1 has moved some. */
static void read_until_nic_1_is_used(void)
{
	uint64_t before = fake_bytes(1), until = mc_deadline_ms(10000);

	while (fake_bytes(1) == before) {
		memset(node[A].side.mem, 0, 4 << 20);
		assert_int_equal(move(A, MCE_READ, 0, 4 << 20), 0);
		pattern_check(node[A].side.mem, 4 << 20, 7, 0);
		assert_true(mc_now_ns() < until);
	}
}

/* Slices fail before the event of the port says why, or the port is active again when the event arrives. */
static void a_nic_whose_event_is_late_loses_nothing(void **state)
{
	nodes_open(2, "", "");
	pattern_fill(node[B].side.mem, 4 << 20, 7, 0);
	for (int back = 0; back < 2; back++) {
		read_until_nic_1_is_used();
		fake_port_late(1, false);
		for (unsigned i = 0; i < 4; i++) {
			memset(node[A].side.mem, 0, 4 << 20);
			assert_int_equal(move(A, MCE_READ, 0, 4 << 20), 0);
			pattern_check(node[A].side.mem, 4 << 20, 7, 0);
		}
		if (!back)
			fake_port(1, false);
		fake_port(1, true);
		read_until_nic_1_is_used();
	}
	nodes_close();
}

/* No endpoint is left that shows that the peer is the same process. */
static void the_last_nic_makes_the_descriptor_unknown(void **state)
{
	nodes_open(2, "fake0", "fake1");
	round_trip(A, 4096, 1);
	fake_port_late(0, false);
	assert_int_equal(move(A, MCE_READ, 0, 4096), -ESTALE);
	fake_port(0, true);
	node_learn(A);
	round_trip(A, 4096, 2);
	nodes_close();
}

static void a_restarted_node_needs_its_new_descriptor(void **state)
{
	int r;

	nodes_open(2, "fake0", "fake1");
	round_trip(A, 4096, 1);
	mce_peer_put(node[B].other);
	node[B].other = NULL;
	side_close(&node[B].side);
	memset(&node[B].side, 0, sizeof(node[B].side));
	r = move(A, MCE_READ, 0, 4096);
	assert_true(r == -ESTALE || r == -MC_ETRANSFER);
	node_open(B, "fake1", 5);
	r = move(A, MCE_READ, 0, 4096);
	assert_true(r == -ESTALE || r == -MC_ETRANSFER);
	node_learn(A);
	node_learn(B);
	/* This one may find the old connection. */
	if (move(A, MCE_READ, 0, 4096) < 0)
		node_learn(A);
	round_trip(A, 4096, 2);
	nodes_close();
}

static void a_silent_node_fails_and_recovers(void **state)
{
	uint64_t begin = mc_now_ns();

	nodes_open(2, "fake0", "fake1");
	node[B].silent = true;
	assert_int_equal(move(A, MCE_READ, 0, 4096), -MC_ETRANSFER);
	assert_true(mc_now_ns() - begin < 5 * MC_NS_PER_SEC);
	node[B].silent = false;
	node_learn(A);
	usleep(300000);
	round_trip(A, 4096, 1);
	nodes_close();
}

static void the_oldest_stranger_makes_room(void **state)
{
	unsigned done = 0;

	setenv("MC_MAX_EP_PER_CTX", "1", 1);
	nodes_open(2, "fake0,fake1", "fake1");
	unsetenv("MC_MAX_EP_PER_CTX");
	/* Two NICs of A connect to one of B, which keeps only one of them: the other is connected again. */
	for (unsigned i = 0; i < 20; i++) {
		int r = move(A, MCE_WRITE, 0, 4 << 20);

		done += r == 0;
		if (r < 0)
			node_learn(A);
		assert_true(strangers_of(B) <= 1);
	}
	assert_true(done > 0);
	nodes_close();
}

/* ---- messages ---- */

static char *answer(unsigned i, const char *text)
{
	char *reply = NULL;

	assert_int_equal(mce_engine_upstream_setup(node[i].side.e, text, strlen(text), &reply), 0);
	return reply;
}

static void messages_are_answered_as_upstream_does(void **state)
{
	static const char ask[] = "{\"local_gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:0b\",\"local_lid\":0,"
		"\"local_nic_path\":\"h:1@%s\",\"payload\":\"\",\"peer_nic_path\":\"%s\",\"qp_num\":[17,18],"
		"\"ready_ack\":%s,\"reply_msg\":\"\"}";
	char text[512], *reply;

	nodes_open(1, "fake0", "fake0");
	snprintf(text, sizeof(text), ask, "x0", "127.0.0.1:7000@fake0", "true");
	reply = answer(A, text);
	assert_string_equal(reply, "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\","
			    "\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}");
	free(reply);
	snprintf(text, sizeof(text), ask, "x0", "127.0.0.1:7000@nosuch", "false");
	reply = answer(A, text);
	assert_non_null(strstr(reply, "\"local_nic_path\":\"127.0.0.1:7000@nosuch\""));
	assert_non_null(strstr(reply, "no such NIC"));
	free(reply);
	assert_int_equal(mce_engine_upstream_setup(node[A].side.e, "{\"qp_num\":[-1]}", 15, &reply), -MC_EPROTO);
	nodes_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_directions_use_one_connection),
		cmocka_unit_test(both_connect_at_one_time),
		cmocka_unit_test(a_late_write_changes_nothing),
		cmocka_unit_test(a_nic_that_goes_down_loses_nothing),
		cmocka_unit_test(a_nic_whose_event_is_late_loses_nothing),
		cmocka_unit_test(the_last_nic_makes_the_descriptor_unknown),
		cmocka_unit_test(a_restarted_node_needs_its_new_descriptor),
		cmocka_unit_test(a_silent_node_fails_and_recovers),
		cmocka_unit_test(the_oldest_stranger_makes_room),
		cmocka_unit_test(messages_are_answered_as_upstream_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
