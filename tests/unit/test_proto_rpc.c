/* SPDX-License-Identifier: Apache-2.0
 * test_proto_rpc.c - client and server together, over TCP, unix sockets and in one process. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/metrics.h"

#define THREADS 8

static const char *address(int transport)
{
	return transport == 0 ? fx.tcp : transport == 1 ? fx.path : "local:test";
}

#define FOR_EACH_TRANSPORT(t) for (int t = 0; t < 3; t++)

static int exist(struct mcp_client *c, const char *const *names, unsigned n, char *ret, int64_t ms)
{
	struct mcp_key *keys = calloc(n, sizeof(*keys));
	struct mcp_reply mem = { 0 };
	struct mcp_exist_reply reply;
	struct mcp_exist rq;
	int r;

	for (unsigned i = 0; i < n; i++)
		keys[i].key = mcp_bytes(names[i], strlen(names[i]));
	rq = (struct mcp_exist){ .keys = mcp_seq(keys, n) };
	r = mcp_call(c, MCP_EXIST, &rq, &reply, &mem, mc_deadline_ms(ms));
	if (r == 0) {
		assert_int_equal(reply.present.len, n);
		memcpy(ret, reply.present.data, n);
	}
	mcp_reply_done(&mem);
	free(keys);
	return r;
}

static void calls_are_answered(void **state)
{
	const char *names[] = { "yes", "no", "", "yy" };

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		char present[4];

		assert_false(mcp_client_up(c));
		assert_int_equal(exist(c, names, 4, present, 60000), 0);
		assert_memory_equal(present, "\1\0\0\1", 4);
		assert_true(mcp_client_up(c));
		for (int i = 1; i <= 100; i++)
			assert_int_equal(fixture_rename(c, "a", 60000), i);
		assert_int_equal(exist(c, names, 0, present, 60000), 0);
		mcp_client_close(c);
	}
	fixture_wait(&fx.closed, fx.opened);
	assert_int_equal(fx.opened, 3);
}

static void large_batches_pass(void **state)
{
	const char **names = calloc(MCP_BATCH_MAX + 1, sizeof(*names));
	char *present = calloc(1, MCP_BATCH_MAX);

	for (unsigned i = 0; i <= MCP_BATCH_MAX; i++)
		names[i] = i % 3 ? "no, this key is here only to be long and to fill up a socket" : "yes";
	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));

		assert_int_equal(exist(c, names, MCP_BATCH_MAX, present, 20000), 0);
		for (unsigned i = 0; i < MCP_BATCH_MAX; i++)
			assert_int_equal(present[i], i % 3 == 0);
		assert_int_equal(exist(c, names, MCP_BATCH_MAX + 1, present, 20000), -MC_EPARAM);
		assert_int_equal(exist(c, names, 1, present, 60000), 0);
		mcp_client_close(c);
	}
	free(names);
	free(present);
}

static void errors_travel(void **state)
{
	struct mcp_remove_match match = { 0 };
	struct mcp_unmount unmount = { 0 };
	struct mcp_register registration = { 0 };
	struct mcp_list list = { .limit = 70u << 20 };
	struct mcp_hello hello = { 0 };

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		uint64_t deadline = mc_deadline_ms(60000);

		assert_int_equal(mcp_call(c, MCP_REMOVE_MATCH, &match, NULL, NULL, deadline),
				 -MC_ENOOBJECT);
		assert_non_null(strstr(mc_err_detail(-MC_ENOOBJECT), "remove_match"));
		assert_int_equal(mcp_call(c, MCP_UNMOUNT, &unmount, NULL, NULL, deadline),
				 -MC_EINTERNAL);
		/* no handler; a second hello; a reply that is larger than a frame */
		assert_int_equal(mcp_call(c, MCP_REGISTER, &registration, NULL, NULL, deadline),
				 -MC_ENOTSUP);
		assert_int_equal(mcp_call(c, MCP_HELLO, &hello, NULL, NULL, deadline), -MC_ENOTSUP);
		assert_int_equal(mcp_call(c, MCP_LIST, &list, NULL, NULL, deadline),
				 -MC_EBUFFER_OVERFLOW);
		/* requests that cannot be sent */
		assert_int_equal(mcp_call(c, MCP_RELEASE, &list, NULL, NULL, deadline), -MC_EPARAM);
		assert_int_equal(mcp_call(c, 999, &list, NULL, NULL, deadline), -MC_EPARAM);
		assert_int_equal(fixture_rename(c, "a", 0), -MC_ETIMEDOUT);
		assert_int_equal(fixture_rename(c, "a", 60000), 1);
		mcp_client_close(c);
	}
}

static void small_frames(struct mcp_server_conf *conf)
{
	conf->max_frame = 100000;
}

static void too_large_requests_are_not_sent(void **state)
{
	char *name = calloc(1, 200001);

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));

		memset(name, 'x', 200000);
		assert_int_equal(fixture_rename(c, name, 60000), -MC_EPARAM);
		name[90000] = '\0';
		assert_int_equal(fixture_rename(c, name, 60000), 1);
		mcp_client_close(c);
	}
	free(name);
}

static void one_way(void **state)
{
	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		struct mcp_pin pins[] = { { 3 }, { 4 } };
		struct mcp_release release = { .pins = mcp_seq(pins, 2) };
		struct mcp_stats_reply stats;
		long before = fx.pins;

		assert_int_equal(mcp_send(c, MCP_RELEASE, &release), -MC_ERPC);
		assert_int_equal(fixture_rename(c, "a", 60000), 1);
		assert_int_equal(mcp_send(c, MCP_RELEASE, &release), 0);
		/* in order: the next call sees the effect of the one-way message */
		assert_int_equal(mcp_call(c, MCP_STATS, &(struct mcp_stats){ 0 }, &stats, NULL,
					  mc_deadline_ms(60000)), 0);
		assert_int_equal(stats.objects, before + 7);
		mcp_client_close(c);
	}
}

static void append_release(struct mcp_buf *b, void *arg)
{
	struct mcp_pin pin = { 10 };
	struct mcp_release release = { .pins = mcp_seq(&pin, 1) };
	int *left = arg;

	if ((*left)-- > 0)
		assert_int_equal(mcp_frame_append(b, (struct mcp_frame){
			.type = MCP_RELEASE, .flags = MCP_FRAME_ONEWAY }, &mcp_desc_release, &release), 0);
}

static void piggyback_goes_ahead(void **state)
{
	FOR_EACH_TRANSPORT(t) {
		int left = 2;
		struct mcp_client_conf conf = {
			.net = test_net(), .addrs = address(t), .piggyback = append_release, .arg = &left
		};
		struct mcp_stats_reply stats;
		long before = fx.pins;
		struct mcp_client *c;

		assert_int_equal(mcp_client_open(&conf, &c), 0);
		for (long i = 1; i <= 3; i++) {
			assert_int_equal(mcp_call(c, MCP_STATS, &(struct mcp_stats){ 0 }, &stats, NULL,
						  mc_deadline_ms(60000)), 0);
			assert_int_equal(stats.objects, before + 10 * (i < 2 ? i : 2));
		}
		mcp_client_close(c);
	}
}

/* ---- several calls at once ---- */

static int start_rename(struct mcp_client *c, const char *from, struct mcp_ticket *t, int64_t ms)
{
	struct mcp_rename rq = { .from = mcp_bytes(from, strlen(from)) };

	return mcp_call_start(c, MCP_RENAME, &rq, t, mc_deadline_ms(ms));
}

static int64_t wait_rename(struct mcp_client *c, struct mcp_ticket t, int64_t ms)
{
	struct mcp_reply mem = { 0 };
	struct mcp_rename_reply reply;
	int r = mcp_call_wait(c, t, &reply, &mem, mc_deadline_ms(ms));

	mcp_reply_done(&mem);
	return r < 0 ? r : (int64_t)reply.generation;
}

static void tickets_in_any_order(void **state)
{
	enum { N = 300 };

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		struct mcp_ticket ticket[N];

		for (int i = 0; i < N; i++)
			assert_int_equal(start_rename(c, "a", &ticket[i], 60000), 0);
		for (int i = N - 1; i >= 0; i--)
			assert_int_equal(wait_rename(c, ticket[i], 60000), i + 1);
		/* a ticket can be used for one wait */
		assert_int_equal(wait_rename(c, ticket[5], 60000), -MC_EPARAM);
		assert_int_equal(wait_rename(c, (struct mcp_ticket){ 5, 70000 }, 60000), -MC_EPARAM);
		mcp_client_close(c);
	}
}

static void outstanding_calls_are_limited(void **state)
{
	enum { MAX = 1024 };

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		struct mcp_ticket ticket[MAX], more;

		for (int i = 0; i < MAX; i++)
			assert_int_equal(start_rename(c, "a", &ticket[i], 60000), 0);
		assert_int_equal(start_rename(c, "a", &more, 60000), -MC_ELIMIT);
		assert_int_equal(wait_rename(c, ticket[MAX / 2], 60000), MAX / 2 + 1);
		assert_int_equal(start_rename(c, "a", &more, 60000), 0);
		assert_int_equal(wait_rename(c, more, 60000), MAX + 1);
		mcp_client_close(c);	/* tickets are left without a wait */
	}
}

struct caller {
	pthread_t thread;
	struct mcp_client *c;
	unsigned n, calls;
	int64_t result;
};

static void *pipeline(void *arg)
{
	struct caller *me = arg;
	char name[64], present[3];

	for (unsigned i = 0; i < me->calls; i++) {
		const char *names[3] = { name, i & 1 ? "yes" : "no", me->n & 1 ? "yes" : "no" };
		struct mcp_ticket ahead;
		int64_t last = 0;

		snprintf(name, sizeof(name), "%c-%u-%u", i & 2 ? 'y' : 'n', me->n, i);
		if (start_rename(me->c, "a", &ahead, 20000) < 0 ||
		    exist(me->c, names, 3, present, 20000) < 0 ||
		    (last = wait_rename(me->c, ahead, 20000)) <= 0)
			return NULL;
		if (!present[0] != !(i & 2) || !present[1] != !(i & 1) || !present[2] != !(me->n & 1) ||
		    last <= me->result)
			return NULL;
		me->result = last;
	}
	me->n = 1000;
	return NULL;
}

static void run_callers(struct mcp_client *c, unsigned calls)
{
	struct caller callers[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		callers[i] = (struct caller){ .c = c, .n = i, .calls = calls };
		assert_int_equal(pthread_create(&callers[i].thread, NULL, pipeline, &callers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(callers[i].thread, NULL);
		assert_int_equal(callers[i].n, 1000);
	}
}

static void threads_share_a_connection(void **state)
{
	long opened = fx.opened;

	FOR_EACH_TRANSPORT(t) {
		struct mcp_client_conf conf = { .net = test_net(), .addrs = address(t), .spin_us = t == 1 ? 20 : 0 };
		struct mcp_client *c;

		assert_int_equal(mcp_client_open(&conf, &c), 0);
		run_callers(c, 500);
		assert_int_equal(fixture_rename(c, "a", 60000), THREADS * 500 + 1);
		mcp_client_close(c);
	}
	assert_int_equal(fx.opened, opened + 3);
}

/* ---- metrics ---- */

static int64_t metric(const char *name, const char *labels)
{
	int64_t value;

	assert_int_equal(mc_metrics_lookup(name, labels, &value), 0);
	return value;
}

static void requests_are_counted(void **state)
{
	int64_t renames = metric("mooncake_rpc_requests_total", "type=\"rename\"");
	int64_t in = metric("mooncake_rpc_received_bytes_total", "");
	int64_t out = metric("mooncake_rpc_sent_bytes_total", "");
	int64_t unknown = metric("mooncake_rpc_protocol_errors_total", "kind=\"type\"");
	struct mcp_client *c = fixture_client(NULL);

	assert_int_equal(fixture_rename(c, "a", 60000), 1);
	assert_int_equal(fixture_rename(c, "a", 60000), 2);
	assert_int_equal(mcp_call(c, MCP_REGISTER, &(struct mcp_register){ 0 }, NULL, NULL,
				  mc_deadline_ms(60000)), -MC_ENOTSUP);
	assert_int_equal(metric("mooncake_rpc_requests_total", "type=\"rename\""), renames + 2);
	assert_int_equal(metric("mooncake_rpc_protocol_errors_total", "kind=\"type\""), unknown + 1);
	assert_int_equal(metric("mooncake_rpc_connections", ""), 1);
	assert_true(metric("mooncake_rpc_received_bytes_total", "") >= in + 4 * MCP_FRAME_HEADER);
	assert_true(metric("mooncake_rpc_sent_bytes_total", "") >= out + 4 * MCP_FRAME_HEADER);
	mcp_client_close(c);
	fixture_wait(&fx.closed, fx.opened);
	for (int i = 0; i < 5000 && metric("mooncake_rpc_connections", ""); i++)
		usleep(1000);
	assert_int_equal(metric("mooncake_rpc_connections", ""), 0);
}

/* ---- identity of a session ---- */

static int look_at_session(struct mcp_session *s, void *arg)
{
	struct mcp_id id = mcp_session_client(s);

	assert_int_equal(id.hi, 77);
	assert_int_equal(id.lo, 78);
	fx.opened++;
	return 0;
}

static void watch_sessions(struct mcp_server_conf *conf)
{
	conf->opened = look_at_session;
	conf->server_id = (struct mcp_id){ 5, 6 };
}

static int connected(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg)
{
	int *result = arg;

	assert_int_equal(hello->version, MCP_VERSION);
	assert_int_equal(hello->server.hi, 5);
	assert_int_equal(hello->server.lo, 6);
	assert_int_equal(hello->software.len, strlen("fixture"));
	assert_int_equal(fixture_rename(c, "a", 60000), 1);
	assert_int_equal(mcp_send(c, MCP_RELEASE, &(struct mcp_release){ 0 }), 0);
	return *result;
}

static void session_and_hello_tell(void **state)
{
	FOR_EACH_TRANSPORT(t) {
		int result = -MC_ENOCLIENT;
		struct mcp_client_conf conf = {
			.net = test_net(), .addrs = address(t), .client = { 77, 78 }, .channel = MCP_CHANNEL_HEARTBEAT,
			.connected = connected, .arg = &result,
		};
		struct mcp_client *c;

		assert_int_equal(mcp_client_open(&conf, &c), 0);
		/* connected() refuses the server */
		assert_int_equal(fixture_rename(c, "a", 60000), -MC_ENOCLIENT);
		assert_false(mcp_client_up(c));
		result = 0;
		assert_int_equal(fixture_rename(c, "a", 60000), 2);
		mcp_client_close(c);
	}
	assert_int_equal(fx.opened, 6);
	fixture_wait(&fx.closed, 6);
}

static void application_may_refuse(void **state)
{
	fx.opened_result = -MC_EUNAVAILABLE;
	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));

		assert_int_equal(fixture_rename(c, "a", 60000), -MC_EUNAVAILABLE);
		mcp_client_close(c);
	}
	fx.opened_result = 0;
	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));

		assert_int_equal(fixture_rename(c, "a", 60000), 1);
		mcp_client_close(c);
	}
	fixture_wait(&fx.closed, 3);
}

static void a_request_of_another_role_is_refused(void **state)
{
	fx.peer_roles = MC_ROLE_READER;
	FOR_EACH_TRANSPORT(t) {
		struct mcp_client *c = fixture_client(address(t));
		struct mcp_stats_reply stats;
		int r = mcp_call(c, MCP_UNMOUNT, &(struct mcp_unmount){ .keep = 0 }, NULL, NULL, mc_deadline_ms(5000));

		/* Code of the server's process has all roles. */
		assert_true(strncmp(address(t), "local:", 6) ? r == -EACCES : r != -EACCES);
		/* The connection stays. */
		assert_int_equal(mcp_call(c, MCP_STATS, &(struct mcp_stats){ 0 }, &stats, NULL, mc_deadline_ms(5000)),
				 0);
		mcp_client_close(c);
	}
	fx.peer_roles = 0;
}

/* ---- bad configurations ---- */

static int no_handler(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		      void *arg)
{
	return 0;
}

static void bad_configurations_are_refused(void **state)
{
	static const struct mcp_handler hello[] = { { MCP_HELLO, no_handler }, { 0, NULL } };
	static const struct mcp_handler unknown[] = { { 9999, no_handler }, { 0, NULL } };
	static const struct mcp_handler none[] = { { 0, NULL } };
	static const uint16_t unserved[] = { MCP_STATS, 0 };
	const char *nonsense[] = { "127.0.0.1:0", "no port here", NULL };
	const char *taken[] = { fx.tcp, NULL };
	struct mcp_client_conf client = { .net = test_net(), .addrs = "" };
	struct mcp_server_conf conf = { .net = test_net(), .handlers = hello };
	struct mcp_server *s = NULL;
	struct mcp_client *c;

	assert_int_equal(mcp_server_start(&conf, &s), -EINVAL);
	conf.handlers = unknown;
	assert_int_equal(mcp_server_start(&conf, &s), -EINVAL);
	conf.handlers = none;
	conf.any_channel = unserved;
	assert_int_equal(mcp_server_start(&conf, &s), -EINVAL);
	conf.any_channel = NULL;
	conf.addrs = nonsense;
	assert_true(mcp_server_start(&conf, &s) < 0);
	conf.addrs = taken;
	assert_int_equal(mcp_server_start(&conf, &s), -EADDRINUSE);
	assert_non_null(strstr(mc_err_detail(-EADDRINUSE), fx.tcp));
	conf.addrs = NULL;
	conf.local_name = "test";
	assert_int_equal(mcp_server_start(&conf, &s), -EEXIST);
	assert_null(s);
	conf.local_name = "other";
	assert_int_equal(mcp_server_start(&conf, &s), 0);
	assert_null(mcp_server_addr(s, 0));
	mcp_server_stop(s);
	mcp_server_stop(NULL);
	assert_int_equal(mcp_client_open(&client, &c), -EINVAL);
	client.addrs = ",,";
	assert_int_equal(mcp_client_open(&client, &c), -EINVAL);
	mcp_client_close(NULL);
}

static int start(void **state)
{
	fixture_start(&fx, NULL);
	return 0;
}

static int start_small(void **state)
{
	fixture_start(&fx, small_frames);
	return 0;
}

static int start_watching(void **state)
{
	fixture_start(&fx, watch_sessions);
	return 0;
}

static int stop(void **state)
{
	fixture_stop(&fx);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(calls_are_answered),
		TEST(large_batches_pass),
		TEST(errors_travel),
		cmocka_unit_test_setup_teardown(too_large_requests_are_not_sent, start_small, stop),
		TEST(one_way),
		TEST(piggyback_goes_ahead),
		TEST(tickets_in_any_order),
		TEST(outstanding_calls_are_limited),
		TEST(threads_share_a_connection),
		TEST(requests_are_counted),
		cmocka_unit_test_setup_teardown(session_and_hello_tell, start_watching, stop),
		TEST(application_may_refuse),
		TEST(a_request_of_another_role_is_refused),
		TEST(bad_configurations_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
