/* SPDX-License-Identifier: Apache-2.0
 * test_proto_session.c - the server against raw clients that send invalid frames, or slowly. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/metrics.h"

static bool is_closed(struct mc_stream *raw)
{
	struct mcp_frame f;

	return !raw_recv_frame(raw, &f, NULL);
}

static int64_t metric(const char *name, const char *labels)
{
	int64_t value;

	assert_int_equal(mc_metrics_lookup(name, labels, &value), 0);
	return value;
}

/* ---- hello ---- */

static void expect_refusal(const struct mcp_hello *hello, int err)
{
	struct mc_stream *raw = raw_connect(fx.tcp);
	struct mcp_frame f;

	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO, .id = 9 }, &mcp_desc_hello, hello);
	/* a request behind a refused hello is not answered, and does not lose the reply */
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_STATS, .id = 10 }, &mcp_desc_stats,
		       &(struct mcp_stats){ 0 });
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(f.type, MCP_HELLO);
	assert_int_equal(f.flags, MCP_FRAME_REPLY);
	assert_int_equal(f.id, 9);
	assert_int_equal(f.length, 0);
	assert_int_equal(mc_err_from_wire(f.status), err);
	assert_true(is_closed(raw));
	raw_close(raw);
}

static void wrong_hellos_are_refused(void **state)
{
	struct mcp_hello hello;

	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);
	hello.magic++;
	expect_refusal(&hello, -MC_EPROTO);
	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);
	hello.version = hello.min_version = MCP_VERSION + 1;
	expect_refusal(&hello, -MC_EVERSION);
	hello.version = hello.min_version = MCP_MIN_VERSION - 1;
	expect_refusal(&hello, -MC_EVERSION);
	hello.version = MCP_MIN_VERSION;
	hello.min_version = MCP_VERSION + 1;
	expect_refusal(&hello, -MC_EVERSION);
	raw_hello_fill(&hello, 7);
	expect_refusal(&hello, -MC_ENOTSUP);
	assert_int_equal(fx.opened, 0);
}

static void versions_are_negotiated(void **state)
{
	struct mcp_hello_reply reply;
	const uint8_t *body;
	struct mcp_hello hello;
	struct mcp_frame f;
	struct mc_stream *raw = raw_connect(fx.path);

	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);
	hello.version = 900;
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO }, &mcp_desc_hello, &hello);
	assert_true(raw_recv_frame(raw, &f, &body));
	assert_int_equal(f.status, 0);
	assert_int_equal(mcp_decode(&mcp_desc_hello_reply, body, f.length, &reply), 0);
	assert_int_equal(reply.version, MCP_VERSION);
	assert_int_equal(reply.max_frame, MCP_FRAME_MAX);
	assert_int_equal(reply.max_outstanding, 262144);
	assert_false(mcp_id_zero(reply.server));
	raw_close(raw);
}

static void first_frame_has_to_be_a_hello(void **state)
{
	struct mcp_frame f;
	struct mcp_hello hello;
	struct mc_stream *raw = raw_connect(fx.tcp);

	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_STATS, .id = 3 }, &mcp_desc_stats,
		       &(struct mcp_stats){ 0 });
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(mc_err_from_wire(f.status), -MC_EPROTO);
	assert_true(is_closed(raw));
	raw_close(raw);

	raw = raw_connect(fx.tcp);	/* an invalid body */
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO, .id = 3 }, &mcp_desc_stats,
		       &(struct mcp_stats){ 0 });
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(mc_err_from_wire(f.status), -MC_EPROTO);
	assert_true(is_closed(raw));
	raw_close(raw);

	raw = raw_connect(fx.tcp);	/* a one-way hello has no reply */
	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO, .flags = MCP_FRAME_ONEWAY },
		       &mcp_desc_hello, &hello);
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(mc_err_from_wire(f.status), -MC_EPROTO);
	assert_true(is_closed(raw));
	raw_close(raw);
}

/* ---- headers ---- */

static void bad_headers_close_the_connection(void **state)
{
	static const struct mcp_frame bad[] = {
		{ .type = MCP_STATS, .flags = 0x8000 },
		{ .type = MCP_STATS, .flags = MCP_FRAME_REPLY },
		{ .type = MCP_STATS, .status = 1 },
		{ .type = MCP_STATS, .length = MCP_FRAME_MAX + 1 },
		{ .type = MCP_STATS, .length = UINT32_MAX },
	};
	int64_t before = metric("mooncake_rpc_protocol_errors_total", "kind=\"header\"");
	uint8_t header[MCP_FRAME_HEADER];
	struct mcp_frame f;
	struct mc_stream *raw;

	for (unsigned i = 0; i < 5; i++) {
		raw = raw_hello(i & 1 ? fx.tcp : fx.path, MCP_CHANNEL_CONTROL);
		/* the request before it is still answered */
		raw_send_frame(raw, (struct mcp_frame){ .type = MCP_STATS, .id = 1 }, &mcp_desc_stats,
			       &(struct mcp_stats){ 0 });
		assert_true(raw_recv_frame(raw, &f, NULL));
		assert_int_equal(f.status, 0);
		mcp_frame_pack(&bad[i], header);
		raw_send(raw, header, sizeof(header));
		assert_true(is_closed(raw));
		raw_close(raw);
	}
	raw = raw_connect(fx.tcp);	/* before the hello the limit is lower */
	mcp_frame_pack(&(struct mcp_frame){ .type = MCP_HELLO, .length = 65537 }, header);
	raw_send(raw, header, sizeof(header));
	assert_true(is_closed(raw));
	raw_close(raw);
	raw = raw_connect(fx.tcp);
	raw_send(raw, "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", 36);
	assert_true(is_closed(raw));
	raw_close(raw);
	assert_int_equal(metric("mooncake_rpc_protocol_errors_total", "kind=\"header\""), before + 7);
}

/* ---- pieces ---- */

static void ask(struct mcp_buf *b, uint32_t id)
{
	struct mcp_rename rq = { .from = mcp_bytes("some name", 9) };

	assert_int_equal(mcp_frame_append(b, (struct mcp_frame){ .type = MCP_RENAME, .id = id },
					  &mcp_desc_rename, &rq), 0);
}

static void expect_answer(struct mc_stream *raw, uint32_t id, uint64_t number)
{
	struct mcp_rename_reply reply;
	const uint8_t *body;
	struct mcp_frame f;

	assert_true(raw_recv_frame(raw, &f, &body));
	assert_int_equal(f.id, id);
	assert_int_equal(f.status, 0);
	assert_int_equal(mcp_decode(&mcp_desc_rename_reply, body, f.length, &reply), 0);
	assert_int_equal(reply.generation, number);
}

static void frames_may_come_in_pieces(void **state)
{
	struct mcp_buf b = { 0 };
	struct mcp_hello hello;
	struct mcp_frame f;
	struct mc_stream *raw = raw_connect(fx.tcp);

	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);
	assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_HELLO },
					  &mcp_desc_hello, &hello), 0);
	for (size_t i = 0; i < b.len; i++)
		raw_send(raw, b.data + i, 1);
	assert_true(raw_recv_frame(raw, &f, NULL));
	mcp_buf_reset(&b);
	for (uint32_t id = 1; id <= 3; id++)
		ask(&b, id);
	/* two and a half, then byte by byte */
	raw_send(raw, b.data, b.len / 3 * 2 + 20);
	expect_answer(raw, 1, 1);
	expect_answer(raw, 2, 2);
	for (size_t i = b.len / 3 * 2 + 20; i < b.len; i++)
		raw_send(raw, b.data + i, 1);
	expect_answer(raw, 3, 3);
	mcp_buf_free(&b);
	raw_close(raw);
}

static void requests_may_follow_the_hello_at_once(void **state)
{
	for (int heartbeat = 0; heartbeat < 2; heartbeat++) {
		struct mcp_buf b = { 0 };
		struct mcp_hello hello;
		struct mcp_frame f;
		struct mc_stream *raw = raw_connect(heartbeat ? fx.tcp : fx.path);

		raw_hello_fill(&hello, heartbeat ? MCP_CHANNEL_HEARTBEAT : MCP_CHANNEL_CONTROL);
		assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_HELLO },
						  &mcp_desc_hello, &hello), 0);
		for (uint32_t id = 1; id <= 1000; id++)
			ask(&b, id);
		raw_send(raw, b.data, b.len);
		assert_true(raw_recv_frame(raw, &f, NULL));
		assert_int_equal(f.type, MCP_HELLO);
		for (uint32_t id = 1; id <= 1000; id++)
			expect_answer(raw, id, id);
		mcp_buf_free(&b);
		raw_close(raw);
	}
}

static void large_frames_pass_beside_small_ones(void **state)
{
	struct mcp_rename rq = { 0 };
	struct mcp_buf b = { 0 };
	char *name = calloc(1, 3 << 20);
	struct mc_stream *raw = raw_hello(fx.path, MCP_CHANNEL_CONTROL);

	for (uint32_t id = 1; id <= 20; id++) {
		rq.from = mcp_bytes(name, id % 2 ? id : id * 150000);
		assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_RENAME, .id = id },
						  &mcp_desc_rename, &rq), 0);
	}
	raw_send(raw, b.data, b.len);
	for (uint32_t id = 1; id <= 20; id++)
		expect_answer(raw, id, id);
	raw_close(raw);
	free(name);
	mcp_buf_free(&b);
}

static void requests_may_be_wrong_and_the_session_goes_on(void **state)
{
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	struct mcp_buf b = { 0 };
	struct mcp_frame f;

	raw_send_frame(raw, (struct mcp_frame){ .type = 999, .id = 1 }, NULL, NULL);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_RENAME, .id = 2 }, NULL, NULL);
	raw_send_frame(raw, (struct mcp_frame){ .type = 999, .flags = MCP_FRAME_ONEWAY }, NULL, NULL);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_RELEASE, .flags = MCP_FRAME_ONEWAY }, NULL,
		       NULL);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_RELEASE, .id = 3 }, NULL, NULL);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_RELEASE, .id = 4 }, &mcp_desc_release,
		       &(struct mcp_release){ 0 });
	ask(&b, 5);
	raw_send(raw, b.data, b.len);
	static const int want[] = { -MC_ENOTSUP, -MC_EPROTO, -MC_EPROTO, 0 };
	for (uint32_t id = 1; id <= 4; id++) {
		assert_true(raw_recv_frame(raw, &f, NULL));
		assert_int_equal(f.id, id);
		assert_int_equal(f.length, 0);
		assert_int_equal(f.status ? mc_err_from_wire(f.status) : 0, want[id - 1]);
	}
	expect_answer(raw, 5, 1);
	mcp_buf_free(&b);
	raw_close(raw);
}

/* ---- limits ---- */

static void stingy(struct mcp_server_conf *conf)
{
	conf->loops = 1;
	conf->max_outstanding = 64;
}

/* A peer requests 120 MB and reads nothing: it costs the server 64 KiB and the bytes that fit into
 * the socket, other clients of the same loop are served, and in the end every reply arrives. */
static void unread_replies_stop_the_reading(void **state)
{
	enum { N = 2000, SIZE = 60000 };
	struct mcp_client *other = fixture_client(NULL);
	int64_t before = metric("mooncake_rpc_requests_total", "type=\"list\""), seen = before;
	struct mc_stream *raw = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	struct mcp_list rq = { .limit = SIZE };
	struct mcp_list_reply reply;
	struct mcp_buf b = { 0 };
	const uint8_t *body;
	struct mcp_frame f;

	for (uint32_t id = 0; id < N; id++)
		assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_LIST, .id = id },
						  &mcp_desc_list, &rq), 0);
	raw_send(raw, b.data, b.len);
	/* The other client uses the loop until the loop has served no request of the first one many
	 * times in a row. */
	for (int same = 0; same < 100; same++) {
		int64_t now = metric("mooncake_rpc_requests_total", "type=\"list\"");

		assert_true(fixture_rename(other, "a", 10000) > 0);
		same = now == seen ? same : 0;
		seen = now;
	}
	assert_true(seen > before);
	assert_true(seen - before < N / 2);
	for (uint32_t id = 0; id < N; id++) {
		assert_true(raw_recv_frame(raw, &f, &body));
		assert_int_equal(f.id, id);
		assert_int_equal(mcp_decode(&mcp_desc_list_reply, body, f.length, &reply), 0);
		assert_int_equal(reply.cursor.len, SIZE);
		assert_int_equal(((const char *)reply.cursor.data)[SIZE - 1], 'c');
	}
	mcp_buf_reset(&b);
	ask(&b, 77);
	raw_send(raw, b.data, b.len);
	expect_answer(raw, 77, 1);
	mcp_buf_free(&b);
	raw_close(raw);
	mcp_client_close(other);
	fixture_wait(&fx.closed, fx.opened);
}

static void peer_that_never_reads_may_go(void **state)
{
	struct mcp_list rq = { .limit = 60000 };
	struct mc_stream *raw = raw_hello(fx.path, MCP_CHANNEL_CONTROL);

	for (uint32_t id = 0; id < 200; id++)
		raw_send_frame(raw, (struct mcp_frame){ .type = MCP_LIST, .id = id }, &mcp_desc_list, &rq);
	raw_close(raw);
	fixture_wait(&fx.closed, 1);
}

static void three_connections(struct mcp_server_conf *conf)
{
	conf->max_connections = 3;
}

static void connections_are_limited(void **state)
{
	int64_t refused = metric("mooncake_rpc_connections_refused_total", "");
	struct mcp_hello hello;
	struct mc_stream *raw[3];

	raw_hello_fill(&hello, MCP_CHANNEL_CONTROL);

	for (int i = 0; i < 3; i++)
		raw[i] = raw_hello(i & 1 ? fx.tcp : fx.path, MCP_CHANNEL_CONTROL);
	for (int i = 0; i < 5; i++)
		expect_refusal(&hello, -MC_ELIMIT);
	assert_int_equal(metric("mooncake_rpc_connections_refused_total", ""), refused + 5);
	raw_close(raw[1]);
	fixture_wait(&fx.closed, 1);
	/* The metric decreases after closed(). */
	for (int i = 0; i < 5000 && metric("mooncake_rpc_connections", "") > 2; i++)
		usleep(1000);
	raw[1] = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	for (int i = 0; i < 3; i++)
		raw_close(raw[i]);
	fixture_wait(&fx.closed, 4);
}

/* ---- many connections open and close at once ---- */

#define CROWD_THREADS 4
#define CROWD_ROUNDS 40
#define CROWD_FDS 25
#define CROWD_LIMIT 30u

static atomic_long in_now, in_most, in_ever;

static int count_in(struct mcp_session *s, void *arg)
{
	long n = atomic_fetch_add(&in_now, 1) + 1, most = atomic_load(&in_most);

	while (n > most && !atomic_compare_exchange_weak(&in_most, &most, n))
		;
	atomic_fetch_add(&in_ever, 1);
	return 0;
}

static void count_out(struct mcp_session *s, void *arg)
{
	atomic_fetch_sub(&in_now, 1);
}

static void crowded(struct mcp_server_conf *conf)
{
	conf->max_connections = CROWD_LIMIT;
	conf->loops = 3;
	conf->opened = count_in;
	conf->closed = count_out;
}

struct visitor {
	unsigned number, welcome, refused, other;
};

/* In each round: open all connections, wait for their answers, then close them. */
static void *visit(void *arg)
{
	struct visitor *v = arg;
	struct mcp_hello hello;
	struct mc_stream *raw[CROWD_FDS];
	struct mcp_frame f;
	unsigned i, round;

	for (round = 0; round < CROWD_ROUNDS; round++) {
		for (i = 0; i < CROWD_FDS; i++) {
			raw_hello_fill(&hello, (round + i) % 3 ? MCP_CHANNEL_CONTROL : MCP_CHANNEL_HEARTBEAT);
			raw[i] = raw_connect((v->number + i) % 2 ? fx.tcp : fx.path);
			raw_send_frame(raw[i], (struct mcp_frame){ .type = MCP_HELLO }, &mcp_desc_hello, &hello);
		}
		for (i = 0; i < CROWD_FDS; i++) {
			bool there = raw_recv_frame(raw[i], &f, NULL);

			v->welcome += there && !f.status;
			v->refused += there && mc_err_from_wire(f.status) == -MC_ELIMIT;
			v->other += !there || (f.status && mc_err_from_wire(f.status) != -MC_ELIMIT);
		}
		for (i = 0; i < CROWD_FDS; i++)
			raw_close(raw[i]);
	}
	return NULL;
}

/* Connections open and close at once on two listeners and four loops: there are never more sessions
 * than the limit, all other clients are told, and closed connections are not counted. */
static void the_limit_holds_in_a_crowd(void **state)
{
	struct visitor v[CROWD_THREADS] = { { 0 } };
	unsigned welcome = 0, refused = 0, i;
	pthread_t thread[CROWD_THREADS];
	struct mc_stream *raw[CROWD_LIMIT];

	for (i = 0; i < CROWD_THREADS; i++) {
		v[i].number = i;
		assert_int_equal(pthread_create(&thread[i], NULL, visit, &v[i]), 0);
	}
	for (i = 0; i < CROWD_THREADS; i++) {
		pthread_join(thread[i], NULL);
		welcome += v[i].welcome;
		refused += v[i].refused;
		assert_int_equal(v[i].other, 0);
	}
	print_message("%u welcome, %u refused, %ld at once\n", welcome, refused, atomic_load(&in_most));
	assert_int_equal(welcome + refused, CROWD_THREADS * CROWD_ROUNDS * CROWD_FDS);
	assert_in_range(atomic_load(&in_most), 1, CROWD_LIMIT);
	assert_int_equal(atomic_load(&in_ever), welcome);
	assert_true(refused > 0);
	/* When the others have closed, the full number of connections is possible. */
	for (i = 0; i < 5000 && metric("mooncake_rpc_connections", ""); i++)
		usleep(2000);
	assert_int_equal(metric("mooncake_rpc_connections", ""), 0);
	for (i = 0; i < CROWD_LIMIT; i++)
		raw[i] = raw_hello(i & 1 ? fx.tcp : fx.path, MCP_CHANNEL_CONTROL);
	assert_int_equal(atomic_load(&in_now), CROWD_LIMIT);
	for (i = 0; i < CROWD_LIMIT; i++)
		raw_close(raw[i]);
	fixture_wait(&in_now, 0);
}

/* The server waits only for a limited number of refused clients that do not say hello. */
static void refusals_are_limited(void **state)
{
	struct rlimit old, lim = { 4000, 4000 };
	static struct mc_stream *in[3], *more[1100];
	unsigned closed = 0, i;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	lim.rlim_max = old.rlim_max > 4000 ? old.rlim_max : 4000;
	if (old.rlim_cur < 4000 && setrlimit(RLIMIT_NOFILE, &lim) < 0)
		skip();
	for (i = 0; i < 3; i++)
		in[i] = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
	for (i = 0; i < 1100; i++)
		more[i] = raw_connect(fx.path);
	for (i = 1000; i < 1100; i++)
		closed += is_closed(more[i]);
	assert_in_range(closed, 90, 100);
	for (i = 0; i < 3; i++)
		raw_close(in[i]);
	for (i = 0; i < 1100; i++)
		raw_close(more[i]);
	fixture_wait(&fx.closed, 3);
	(void)setrlimit(RLIMIT_NOFILE, &old);
}

#define HELLO_MS 2000
#define IDLE_MS 3000

static void impatient(struct mcp_server_conf *conf)
{
	conf->hello_timeout_ms = HELLO_MS;
	conf->idle_timeout_ms = IDLE_MS;
}

/* The session stays open while it is used: its numbers increase. If this machine stalls so long
 * that the server may have closed the session legitimately, the numbers restart. */
static void keep_busy(struct mcp_client *c, uint64_t ms)
{
	uint64_t end = mc_deadline_ms((int64_t)ms), last = mc_now_ns(), sent;
	int64_t expect = 1, r;

	while (mc_now_ns() < end) {
		sent = mc_now_ns();
		r = fixture_rename(c, "a", 10000);
		/* The client may also have connected anew, and stalled before its hello. */
		if (mc_now_ns() - last < HELLO_MS * MC_NS_PER_MS)
			assert_int_equal(r, expect);
		expect = r < 0 ? 1 : r + 1;
		last = sent;
		usleep(5000);
	}
}

static void silent_peers_are_closed(void **state)
{
	struct mc_stream *no_hello = raw_connect(fx.tcp), *half = raw_connect(fx.path);
	struct mc_stream *idle = raw_hello(fx.tcp, MCP_CHANNEL_CONTROL);
	struct mc_stream *beat = raw_hello(fx.tcp, MCP_CHANNEL_HEARTBEAT);
	struct mcp_client *busy = fixture_client(fx.tcp);

	raw_send(half, "\x20\0\0", 3);
	keep_busy(busy, 2 * IDLE_MS + IDLE_MS / 2);
	assert_true(is_closed(no_hello));
	assert_true(is_closed(half));
	assert_true(is_closed(idle));
	assert_true(is_closed(beat));
	fixture_wait(&fx.closed, fx.opened);
	assert_true(fx.opened >= 3);
	raw_close(no_hello);
	raw_close(half);
	raw_close(idle);
	raw_close(beat);
	mcp_client_close(busy);
}

/* ---- loops ---- */

static struct {
	pthread_mutex_t lock;
	pid_t thread[16];
	int sessions[16];
	int threads;
} seen_loops = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int note_loop(struct mcp_session *s, void *arg)
{
	pid_t me = (pid_t)syscall(SYS_gettid);
	int i;

	pthread_mutex_lock(&seen_loops.lock);
	for (i = 0; i < seen_loops.threads && seen_loops.thread[i] != me; i++)
		;
	if (i == seen_loops.threads)
		seen_loops.thread[seen_loops.threads++] = me;
	seen_loops.sessions[i]++;
	pthread_mutex_unlock(&seen_loops.lock);
	fx.opened++;
	return 0;
}

static void four_loops(struct mcp_server_conf *conf)
{
	conf->loops = 4;
	conf->opened = note_loop;
}

static void sessions_are_spread_evenly(void **state)
{
	struct mc_stream *raw[12];

	for (int i = 0; i < 12; i++)
		raw[i] = raw_hello(i & 1 ? fx.tcp : fx.path, MCP_CHANNEL_CONTROL);
	assert_int_equal(seen_loops.threads, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(seen_loops.sessions[i], 3);
	for (int i = 0; i < 12; i++)
		raw_close(raw[i]);
}

static void *call_gate(void *arg)
{
	int64_t *result = arg;
	struct mcp_client *c = fixture_client(fx.path);

	*result = fixture_rename(c, "gate", 30000);
	mcp_client_close(c);
	return NULL;
}

static void one_loop(struct mcp_server_conf *conf)
{
	conf->loops = 1;
}

static int beat(struct mcp_client *c, uint64_t sequence)
{
	struct mcp_heartbeat rq = { .sequence = sequence };
	struct mcp_heartbeat_reply reply;
	int r;

	r = mcp_call(c, MCP_HEARTBEAT, &rq, &reply, NULL, mc_deadline_ms(10000));
	return r < 0 ? r : reply.reattach;
}

/* A connection that was opened for heartbeats refuses other requests, and can still send
 * heartbeats. */
static void the_heartbeat_channel_refuses_other_work(void **state)
{
	struct mcp_client_conf conf = { .net = test_net(), .channel = MCP_CHANNEL_HEARTBEAT };
	struct mcp_list rq = { .limit = 8 };
	struct mcp_reply mem = { 0 };
	struct mcp_list_reply reply;
	struct mcp_client *c;

	for (int local = 0; local < 2; local++) {
		int64_t unknown = metric("mooncake_rpc_protocol_errors_total", "kind=\"type\"");

		conf.addrs = local ? "local:test" : fx.tcp;
		assert_int_equal(mcp_client_open(&conf, &c), 0);
		assert_int_equal(beat(c, 1), 1);
		assert_int_equal(mcp_call(c, MCP_LIST, &rq, &reply, &mem, mc_deadline_ms(10000)), -MC_ENOTSUP);
		assert_int_equal(metric("mooncake_rpc_protocol_errors_total", "kind=\"type\""), unknown + 1);
		assert_int_equal(beat(c, 2), 0);
		mcp_client_close(c);
	}
}

/* The only control loop is busy for a long time: heartbeats are answered, also on new connections. */
static void heartbeats_have_a_channel(void **state)
{
	struct mcp_client_conf conf = { .net = test_net(), .addrs = fx.tcp, .channel = MCP_CHANNEL_HEARTBEAT };
	struct mcp_client *before, *after, *control = fixture_client(fx.tcp);
	pthread_t thread;
	int64_t result = 0;

	assert_int_equal(mcp_client_open(&conf, &before), 0);
	assert_int_equal(mcp_client_open(&conf, &after), 0);
	assert_int_equal(beat(before, 1), 1);
	assert_int_equal(fixture_rename(control, "a", 10000), 1);
	assert_int_equal(pthread_create(&thread, NULL, call_gate, &result), 0);
	fixture_wait(&fx.opened, 3);
	/* the gate's request may not have arrived: the loop is blocked once a control call gets no
	 * reply */
	while (fixture_rename(control, "a", 50) > 0)
		;
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(beat(before, i), i & 1);
		assert_int_equal(beat(after, i), i & 1);
	}
	assert_int_equal(fixture_rename(control, "a", 50), -MC_ETIMEDOUT);
	fx.gate = true;
	pthread_join(thread, NULL);
	assert_int_equal(result, 1);
	assert_true(fixture_rename(control, "a", 10000) > 1);
	mcp_client_close(before);
	mcp_client_close(after);
	mcp_client_close(control);
}

/* ---- stopping the server ---- */

static void stop_ends_all_sessions(void **state)
{
	struct mcp_client *tcp, *local;
	struct mc_stream *raw, *silent;

	fixture_start(&fx, NULL);
	tcp = fixture_client(NULL);
	local = fixture_client("local:test");
	raw = raw_hello(fx.path, MCP_CHANNEL_HEARTBEAT);
	silent = raw_connect(fx.tcp);
	assert_int_equal(fixture_rename(tcp, "a", 10000), 1);
	assert_int_equal(fixture_rename(local, "a", 10000), 1);
	assert_true(mcp_client_up(local));
	assert_int_equal(fx.opened, 3);
	fixture_stop(&fx);
	assert_int_equal(fx.closed, 3);
	assert_true(is_closed(raw));
	assert_true(is_closed(silent));
	assert_false(mcp_client_up(tcp));
	assert_false(mcp_client_up(local));
	assert_int_equal(fixture_rename(tcp, "a", 10000), -MC_ERPC);
	assert_int_equal(fixture_rename(local, "a", 10000), -MC_ERPC);
	mcp_client_close(tcp);
	mcp_client_close(local);
	assert_int_equal(fx.closed, 3);
	raw_close(raw);
	raw_close(silent);
}

#define SETUP(change) \
	static int start_##change(void **state) \
	{ \
		fixture_start(&fx, change); \
		return 0; \
	}
#define normal NULL
SETUP(normal)
SETUP(stingy)
SETUP(three_connections)
SETUP(crowded)
SETUP(impatient)
SETUP(four_loops)
SETUP(one_loop)

static int stop(void **state)
{
	fixture_stop(&fx);
	return 0;
}

#define TEST(f, change) cmocka_unit_test_setup_teardown(f, start_##change, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(wrong_hellos_are_refused, normal),
		TEST(versions_are_negotiated, normal),
		TEST(first_frame_has_to_be_a_hello, normal),
		TEST(bad_headers_close_the_connection, normal),
		TEST(frames_may_come_in_pieces, normal),
		TEST(requests_may_follow_the_hello_at_once, normal),
		TEST(large_frames_pass_beside_small_ones, normal),
		TEST(requests_may_be_wrong_and_the_session_goes_on, normal),
		TEST(unread_replies_stop_the_reading, stingy),
		TEST(peer_that_never_reads_may_go, stingy),
		TEST(connections_are_limited, three_connections),
		TEST(the_limit_holds_in_a_crowd, crowded),
		TEST(refusals_are_limited, three_connections),
		TEST(silent_peers_are_closed, impatient),
		TEST(sessions_are_spread_evenly, four_loops),
		TEST(heartbeats_have_a_channel, one_loop),
		TEST(the_heartbeat_channel_refuses_other_work, normal),
		cmocka_unit_test(stop_ends_all_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
