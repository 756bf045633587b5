/* SPDX-License-Identifier: Apache-2.0
 * test_proto_stream.c - RPC over streams that behave as TLS does (tests/lib/xor_net.h). */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 4

static void little_unread(struct mcp_server_conf *conf)
{
	conf->max_outstanding = 16;
}

/* The unfinished requests of three connections use all of the memory. */
static void little_unfinished(struct mcp_server_conf *conf)
{
	conf->max_frame = 100000;
}

static int start(void **state)
{
	atomic_store(&xor_repeated, 0);
	atomic_store(&xor_delivered_late, 0);
	fixture_start(&fx, NULL);
	return 0;
}

static int start_little_unread(void **state)
{
	fixture_start(&fx, little_unread);
	return 0;
}

static int start_little_unfinished(void **state)
{
	fixture_start(&fx, little_unfinished);
	return 0;
}

static int stop(void **state)
{
	fixture_stop(&fx);
	return 0;
}

/* Start a request of more than @len bytes, with a reply of @reply bytes. */
static int long_list(struct mcp_client *c, uint32_t len, uint32_t reply, struct mcp_ticket *ticket)
{
	char *prefix = malloc(len);
	struct mcp_list rq = { .limit = reply, .prefix = mcp_bytes(prefix, len) };
	int r;

	memset(prefix, 'p', len);
	r = mcp_call_start(c, MCP_LIST, &rq, ticket, mc_deadline_ms(20000));
	free(prefix);
	return r;
}

static void list_ends(struct mcp_client *c, struct mcp_ticket ticket, uint32_t reply)
{
	struct mcp_reply mem = { 0 };
	struct mcp_list_reply msg;

	assert_int_equal(mcp_call_wait(c, ticket, &msg, &mem, mc_deadline_ms(20000)), 0);
	assert_int_equal(msg.cursor.len, reply);
	for (uint32_t i = 0; i < reply; i++)
		assert_int_equal(((const char *)msg.cursor.data)[i], 'c');
	mcp_reply_done(&mem);
}

/* Not NULL: a request could not be sent. */
static void *talk(void *arg)
{
	struct mcp_client *c = arg;
	struct mcp_ticket t[8];

	for (uint32_t round = 0; round < 20; round++) {
		uint32_t len = 1 + round * 997, reply = 30000 - round * 1009;

		for (unsigned i = 0; i < 8; i++)
			if (long_list(c, len + i, reply + i, &t[i]) < 0)
				return c;
		for (unsigned i = 8; i-- > 0;)
			list_ends(c, t[i], reply + i);
	}
	return NULL;
}

static void threads_share_a_connection(void **state)
{
	struct mcp_client *c = fixture_client(fx.tcp);
	pthread_t thread[THREADS];
	void *failed;

	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, talk, c), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
	mcp_client_close(c);
	assert_true(atomic_load(&xor_repeated) > 0);
	assert_true(atomic_load(&xor_delivered_late) > 0);
}

static void a_stalled_session_resumes(void **state)
{
	struct mcp_client *c = fixture_client(fx.path);
	struct mcp_ticket t[50];

	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(long_list(c, 3000, 40000, &t[i]), 0);
	for (unsigned i = 0; i < 50; i++)
		list_ends(c, t[i], 40000);
	mcp_client_close(c);
}

static void *one_long_request(void *arg)
{
	struct mcp_client *c = fixture_client(fx.path);
	struct mcp_ticket t;

	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(long_list(c, 90000, 100, &t), 0);
		list_ends(c, t, 100);
	}
	mcp_client_close(c);
	return arg;
}

static void requests_that_wait_for_memory_are_completed(void **state)
{
	pthread_t thread[8];

	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, one_long_request, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
}

/* @len: size of the requests. If they are short, the last one has a complete record, but the stream
 * has accepted no byte of it. */
static void time_out_while_sending(uint32_t len)
{
	struct mcp_client *c = fixture_client(fx.path);
	struct mcp_rename gate_rq = { .from = mcp_bytes("gate", 4) };
	struct mcp_ticket t, gate;
	char *prefix = calloc(1, len);
	struct mcp_list rq = { .prefix = mcp_bytes(prefix, len) };
	int r = 0;

	atomic_store(&fx.gate, false);
	assert_int_equal(fixture_rename(c, "first", 10000), 1);
	/* The server's loop waits in a handler until the gate opens. */
	assert_int_equal(mcp_call_start(c, MCP_RENAME, &gate_rq, &gate, mc_deadline_ms(20000)), 0);
	for (unsigned i = 0; i < 1000 && r == 0; i++)
		r = mcp_call_start(c, MCP_LIST, &rq, &t, mc_deadline_ms(100));
	assert_int_equal(r, -MC_ETIMEDOUT);
	rq.limit = 1;
	assert_int_equal(mcp_call_start(c, MCP_LIST, &rq, &t, mc_deadline_ms(50)), -MC_ETIMEDOUT);
	atomic_store(&fx.gate, true);
	assert_int_equal(mcp_call_wait(c, gate, NULL, NULL, mc_deadline_ms(20000)), 0);
	assert_int_equal(fixture_rename(c, "last", 20000), 3);
	free(prefix);
	mcp_client_close(c);
}

static void a_request_that_timed_out_half_sent_is_completed(void **state)
{
	time_out_while_sending(1000000);
	time_out_while_sending(500);
}

static void an_idle_client_notices_the_end(void **state)
{
	struct mcp_client *c = fixture_client(fx.path);

	assert_int_equal(fixture_rename(c, "a", 10000), 1);
	usleep(30000);
	assert_int_equal(fixture_rename(c, "b", 10000), 2);
	assert_true(mcp_client_up(c));
	fixture_stop(&fx);
	assert_false(mcp_client_up(c));
	assert_int_equal(fixture_rename(c, "c", 1000), -MC_ERPC);
	mcp_client_close(c);
	fixture_start(&fx, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(threads_share_a_connection, start, stop),
		cmocka_unit_test_setup_teardown(a_stalled_session_resumes, start_little_unread, stop),
		cmocka_unit_test_setup_teardown(requests_that_wait_for_memory_are_completed,
						start_little_unfinished, stop),
		cmocka_unit_test_setup_teardown(a_request_that_timed_out_half_sent_is_completed, start, stop),
		cmocka_unit_test_setup_teardown(an_idle_client_notices_the_end, start, stop),
	};

	xor_socket_buffer = 4096;
	assert_int_equal(setenv("TEST_NET", "xor", 1), 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
