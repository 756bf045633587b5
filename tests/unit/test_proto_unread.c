/* SPDX-License-Identifier: Apache-2.0
 * test_proto_unread.c - replies that clients do not read: the limit of their memory, and which
 * clients are closed. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/metrics.h"

#define KIB 1024u
#define LEN 60000u
#define ASKS 64u
#define CROWD 8u
#define UNREAD (1024 * KIB)
#define TRIES 5u
/* The server closes a client that reads nothing for a second, so a run in which this machine
 * delayed the reader that long proves nothing. The reader frees space in the socket at least once a
 * block, which takes 400 ms without delays. */
#define BLOCK (64 * KIB)
#define HELD_UP_MS 900

static void narrow(struct mcp_server_conf *conf)
{
	conf->max_outstanding = 8192;
	conf->max_unread = UNREAD;
}

static void little(struct mcp_server_conf *conf)
{
	conf->max_outstanding = 64;
}

static int64_t metric(const char *name)
{
	int64_t v = -1;

	assert_int_equal(mc_metrics_lookup(name, "", &v), 0);
	return v;
}

static int64_t closed(void)
{
	return metric("mooncake_rpc_unread_closed_total");
}

static void ask(struct mc_stream *raw, unsigned n, uint32_t len)
{
	struct mcp_list rq = { .limit = len };

	for (unsigned i = 0; i < n; i++)
		raw_send_frame(raw, (struct mcp_frame){ .type = MCP_LIST, .id = i + 1 },
			       mcp_desc_of(MCP_LIST, false), &rq);
}

/* Receive all replies, each as a whole. */
static void hear(struct mc_stream *raw, unsigned n, uint32_t len)
{
	struct mcp_frame f;

	for (unsigned i = 0; i < n; i++) {
		assert_true(raw_recv_frame(raw, &f, NULL));
		assert_int_equal(f.id, i + 1);
		assert_int_equal(f.status, 0);
		assert_true(f.length >= len);
	}
}

/* Receive the bytes that have arrived, at most @size; waits for the first one. */
static ssize_t some(struct mc_stream *raw, char *buf, size_t size)
{
	size_t got = 0;
	ssize_t n = -EAGAIN;

	if (!mc_stream_pending(raw))
		(void)mc_stream_wait(raw, POLLIN, mc_deadline_ms(10000));
	while (got < size) {
		const struct iovec iov = { buf + got, size - got };

		n = mc_stream_recv(raw, &iov, 1);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got ? (ssize_t)got : n;
}

/* The longest time between two steps. */
struct pace {
	uint64_t last, longest;
};

static void step(struct pace *p)
{
	uint64_t now = mc_now_ns();

	if (now - p->last > p->longest)
		p->longest = now - p->last;
	p->last = now;
}

struct reader {
	struct mc_stream *raw;
	size_t sum;
	struct pace blocks;
};

static bool took_some(struct reader *r)
{
	char buf[16 * KIB];
	ssize_t n = some(r->raw, buf, sizeof(buf));

	if (n <= 0)
		return false;
	if (r->sum / BLOCK != (r->sum + (size_t)n) / BLOCK)
		step(&r->blocks);
	r->sum += (size_t)n;
	return true;
}

/* Reads slowly: reading all of its replies takes longer than the server waits for a client without
 * progress. */
static void *slow(void *arg)
{
	struct reader *r = arg;
	bool more = true;

	for (unsigned i = 0; i < 40 && more; i++) {
		more = took_some(r);
		usleep(100000);
	}
	while (more && r->sum < ASKS * LEN)
		more = took_some(r);
	step(&r->blocks);
	return NULL;
}

/* False: this machine was delayed, so the run proves nothing. */
static bool one_crowd(void)
{
	struct pace looks = { 0 };
	int64_t before = closed(), most = 0, bytes, gone;
	uint64_t end = mc_deadline_ms(20000);
	struct reader r = { 0 };
	struct mcp_client *c;
	struct mc_stream *raw[CROWD];
	pthread_t t;
	bool counts;

	fixture_start(&fx, narrow);
	c = fixture_client(fx.path);
	r.raw = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
	r.blocks.last = looks.last = mc_now_ns();
	assert_int_equal(pthread_create(&t, NULL, slow, &r), 0);
	ask(r.raw, ASKS, LEN);
	for (unsigned i = 0; i < CROWD; i++) {
		raw[i] = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
		ask(raw[i], ASKS, LEN);
		step(&looks);
	}
	do {
		bytes = metric("mooncake_rpc_unread_bytes");
		most = bytes > most ? bytes : most;
		/* A client that reads is served as always. */
		assert_true(fixture_rename(c, "a", 10000) > 0);
		usleep(1000);
		step(&looks);
	} while ((most <= UNREAD || bytes > UNREAD) && mc_now_ns() < end);
	gone = closed();
	pthread_join(t, NULL);
	/* The limit is exceeded for at least a second, so looks that are closer together must see
	 * it. */
	counts = r.blocks.longest < HELD_UP_MS * MC_NS_PER_MS &&
		(most > UNREAD || looks.longest < HELD_UP_MS * MC_NS_PER_MS);
	if (counts) {
		assert_in_range(most, UNREAD + 1, UNREAD + (CROWD + 1) * 4 * 64 * KIB);
		assert_in_range(bytes, 0, UNREAD);
		assert_in_range(gone, before + 1, before + CROWD);
		/* The slow reader, which has requested as much as the others, gets all of it. */
		assert_true(r.sum >= ASKS * LEN);
	}
	for (unsigned i = 0; i < CROWD; i++)
		raw_close(raw[i]);
	raw_close(r.raw);
	mcp_client_close(c);
	fixture_wait(&fx.closed, fx.opened);
	assert_int_equal(metric("mooncake_rpc_unread_bytes"), 0);
	fixture_stop(&fx);
	if (!counts)
		print_message("held up: a block took %llu ms, a look %llu ms\n",
			      (unsigned long long)(r.blocks.longest / MC_NS_PER_MS),
			      (unsigned long long)(looks.longest / MC_NS_PER_MS));
	return counts;
}

static void a_client_that_does_not_read_yields(void **state)
{
	for (unsigned i = 0; i < TRIES; i++)
		if (one_crowd())
			return;
	fail_msg("held up %u times", TRIES);
}

/* Long enough for the server to check the clients more than once. */
static void without_a_crowd_no_client_yields(void **state)
{
	int64_t before = closed();
	struct mc_stream *raw[2];

	fixture_start(&fx, narrow);
	for (unsigned i = 0; i < 2; i++) {
		raw[i] = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
		ask(raw[i], 8, LEN);
	}
	usleep(3500000);
	assert_int_equal(closed(), before);
	assert_in_range(metric("mooncake_rpc_unread_bytes"), 1, UNREAD);
	for (unsigned i = 0; i < 2; i++) {
		hear(raw[i], 8, LEN);
		raw_close(raw[i]);
	}
	fixture_wait(&fx.closed, fx.opened);
	assert_int_equal(metric("mooncake_rpc_unread_bytes"), 0);
	fixture_stop(&fx);
}

/* Requests wait until the client reads, and so do the invalid bytes behind them. The client reads
 * so little that the socket reports no free space. */
static void requests_behind_are_checked(void **state)
{
	struct mcp_list rq = { .limit = 4 * KIB };
	char buf[48 * KIB];
	struct mcp_buf b = { 0 };
	struct mc_stream *raw;

	fixture_start(&fx, little);
	raw = raw_hello(fx.path, MCP_CHANNEL_CONTROL);
	for (unsigned i = 0; metric("mooncake_rpc_unread_bytes") <= 56 * KIB; i++) {
		assert_true(i < 2000);
		ask(raw, 1, rq.limit);
		usleep(1000);
	}
	for (uint32_t id = 1; id <= 4; id++)
		assert_int_equal(mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_LIST, .id = id },
						  mcp_desc_of(MCP_LIST, false), &rq), 0);
	assert_int_equal(mcp_buf_reserve(&b, 64), 0);
	memset(b.data + b.len, 0xff, 64);
	raw_send(raw, b.data, b.len + 64);
	usleep(100000);
	assert_int_equal(fx.closed, 0);
	assert_true(raw_recv(raw, buf, sizeof(buf)));
	fixture_wait(&fx.closed, 1);
	raw_close(raw);
	mcp_buf_free(&b);
	fixture_stop(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_that_does_not_read_yields),
		cmocka_unit_test(without_a_crowd_no_client_yields),
		cmocka_unit_test(requests_behind_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
