/* SPDX-License-Identifier: Apache-2.0
 * test_proto_durable.c - replies that wait until their changes are durable, while other sessions
 * are served. */
#include <config.h>

#include "test_proto_fixture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define THREADS 4
#define CALLS 400

static atomic_ullong mark;		/* mark of the next replies; 0: none */

static atomic_long mark_reads;	/* number of calls of pending_mark() */

static uint64_t pending_mark(void *arg)
{
	uint64_t now = atomic_load(&mark);

	atomic_fetch_add(&mark_reads, 1);
	return now;
}

static atomic_bool may_send;

static bool may_send_now(void *arg)
{
	return atomic_load(&may_send);
}

/* One loop for all sessions: a session that blocked it would delay the others. */
static void one_loop(struct mcp_server_conf *conf)
{
	conf->loops = 1;
	conf->pending_mark = pending_mark;
	conf->may_send = may_send_now;
}

static int start(void **state)
{
	atomic_store(&mark, 0);
	atomic_store(&may_send, true);
	fixture_start(&fx, one_loop);
	return 0;
}

static int stop(void **state)
{
	fixture_stop(&fx);
	return 0;
}

static void ask(struct mc_stream *raw, uint32_t id)
{
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_STATS, .id = id }, &mcp_desc_stats,
		       &(struct mcp_stats){ 0 });
}

static void expect(struct mc_stream *raw, uint32_t id)
{
	struct mcp_frame f;

	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(f.id, id);
	assert_int_equal(f.status, 0);
}

/* Send a request, and wait until it was handled and its mark was read: after that the mark may
 * change. */
static void ask_and_wait(struct mc_stream *raw, uint32_t id)
{
	uint64_t end = mc_deadline_ms(10000);
	long before = atomic_load(&mark_reads);

	ask(raw, id);
	while (atomic_load(&mark_reads) == before && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(atomic_load(&mark_reads), before + 1);
}

static bool has_reply(struct mc_stream *raw, int ms)
{
	return mc_stream_pending(raw) || mc_stream_wait(raw, POLLIN, mc_deadline_ms(ms)) > 0;
}

/* Another session of the loop gets its reply: then all earlier requests have been handled. */
static void others_are_answered(uint64_t then)
{
	struct mc_stream *raw;

	atomic_store(&mark, 0);
	raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	ask(raw, 77);
	expect(raw, 77);
	raw_close(raw);
	atomic_store(&mark, then);
}

static void replies_wait_and_others_do_not(void **state)
{
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);

	atomic_store(&mark, 5);
	ask_and_wait(raw, 1);
	ask_and_wait(raw, 2);
	assert_false(has_reply(raw, 100));
	others_are_answered(5);
	mcp_server_durable(fx.server, 4);
	others_are_answered(5);
	assert_false(has_reply(raw, 0));
	mcp_server_durable(fx.server, 5);
	expect(raw, 1);
	expect(raw, 2);
	/* A reply whose mark is already durable does not wait. */
	ask(raw, 3);
	expect(raw, 3);
	raw_close(raw);
}

/* A leader without its lease: a mark that was durable before the request lets no reply leave. */
static void replies_with_a_durable_mark_wait_for_permission(void **state)
{
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);

	mcp_server_durable(fx.server, 5);
	atomic_store(&may_send, false);
	atomic_store(&mark, 5);
	ask_and_wait(raw, 1);
	assert_false(has_reply(raw, 100));
	mcp_server_durable(fx.server, 6);
	others_are_answered(5);
	assert_false(has_reply(raw, 0));
	atomic_store(&may_send, true);
	mcp_server_durable(fx.server, 6);
	expect(raw, 1);
	raw_close(raw);
}

/* More requests of a peer do not delay its oldest replies, and replies stay in order. */
static void the_oldest_reply_is_sent_first(void **state)
{
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);

	for (uint32_t i = 1; i <= 4; i++) {
		/* The last reply has no mark, but waits behind the others. */
		atomic_store(&mark, i == 4 ? 0 : i);
		ask_and_wait(raw, i);
		assert_false(has_reply(raw, 100));
	}
	mcp_server_durable(fx.server, 1);
	expect(raw, 1);
	others_are_answered(0);
	assert_false(has_reply(raw, 0));
	mcp_server_durable(fx.server, 2);
	others_are_answered(0);
	assert_false(has_reply(raw, 0));
	mcp_server_durable(fx.server, 3);
	for (uint32_t i = 2; i <= 4; i++)
		expect(raw, i);
	ask(raw, 5);
	expect(raw, 5);
	raw_close(raw);
}

static void a_peer_that_goes_is_forgotten(void **state)
{
	struct mc_stream *raw[8];
	unsigned i;

	for (i = 0; i < 8; i++)
		raw[i] = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	atomic_store(&mark, 9);
	for (i = 0; i < 8; i++) {
		ask_and_wait(raw[i], 1);
		assert_false(has_reply(raw[i], 20));
	}
	for (i = 0; i < 8; i += 2)
		raw_close(raw[i]);
	fixture_wait(&fx.closed, 4);
	mcp_server_durable(fx.server, 9);
	for (i = 1; i < 8; i += 2) {
		expect(raw[i], 1);
		raw_close(raw[i]);
	}
	/* A reply still waits when the server stops. */
	atomic_store(&mark, 0);
	raw[0] = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
	atomic_store(&mark, 10);
	ask_and_wait(raw[0], 2);
	assert_false(has_reply(raw[0], 20));
	raw_close(raw[0]);
}

static void *pipeline(void *arg)
{
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);

	for (uint32_t i = 0; i < CALLS; i++) {
		ask(raw, i);
		atomic_fetch_add(&mark, 1);
		if (i >= 16)
			expect(raw, i - 16);
	}
	for (uint32_t i = CALLS - 16; i < CALLS; i++)
		expect(raw, i);
	raw_close(raw);
	return arg;
}

static atomic_bool done;

static void *make_durable_often(void *arg)
{
	const struct timespec tick = { .tv_nsec = 1000000 };

	while (!atomic_load(&done)) {
		mcp_server_durable(fx.server, atomic_load(&mark));
		nanosleep(&tick, NULL);
	}
	return arg;
}

static void many_at_once(void **state)
{
	pthread_t thread[THREADS], durable_thread;
	unsigned i;

	atomic_store(&done, false);
	atomic_store(&mark, 1);
	assert_int_equal(pthread_create(&durable_thread, NULL, make_durable_often, NULL), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, pipeline, NULL), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&done, true);
	pthread_join(durable_thread, NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(replies_wait_and_others_do_not),
		TEST(replies_with_a_durable_mark_wait_for_permission),
		TEST(the_oldest_reply_is_sent_first),
		TEST(a_peer_that_goes_is_forgotten),
		TEST(many_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
