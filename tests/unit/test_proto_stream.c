/* SPDX-License-Identifier: Apache-2.0
 * test_proto_stream.c - RPC over streams that behave as TLS does: bytes travel in records, a record
 * that was sent in part has to be repeated, and bytes that were received ahead cause no event of
 * the descriptor. */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/net/stream.h"

#define RECORD 1000u		/* most bytes of a record's payload */
#define AHEAD (64u << 10)
#define SOCKET_BUFFER 4096
#define THREADS 4

static atomic_long repeated, delivered_late;

struct record_stream {
	uint8_t out[2 + RECORD];	/* the record being sent: length, payload with its bits flipped */
	size_t out_len, out_at;
	uint8_t in[AHEAD];		/* from the socket; the first @ready bytes are payload */
	size_t in_len, ready;
};

static size_t iov_copy(const struct iovec *iov, int n, size_t skip, uint8_t *to, size_t len)
{
	size_t got = 0;

	for (int i = 0; i < n && got < len; i++) {
		size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;
		size_t part = iov[i].iov_len - from < len - got ? iov[i].iov_len - from : len - got;

		skip -= from;
		if (part)
			memcpy(to + got, (const uint8_t *)iov[i].iov_base + from, part);
		got += part;
	}
	return got;
}

static void flip(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] ^= 0xa5;
}

static ssize_t record_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct record_stream *rs = s->state;
	uint8_t payload[RECORD];
	size_t taken = 0, len;
	ssize_t sent;

	for (;;) {
		len = iov_copy(iov, n, taken, payload, RECORD);
		if (!len)
			return (ssize_t)taken;
		flip(payload, len);
		if (!rs->out_len) {
			memcpy(rs->out + 2, payload, len);
			rs->out[0] = (uint8_t)len;
			rs->out[1] = (uint8_t)(len >> 8);
			rs->out_len = 2 + len;
			rs->out_at = 0;
		} else {
			/* The caller repeats the bytes of the record. */
			assert_true(len >= rs->out_len - 2);
			assert_memory_equal(payload, rs->out + 2, rs->out_len - 2);
			atomic_fetch_add(&repeated, 1);
		}
		sent = send(s->fd, rs->out + rs->out_at, rs->out_len - rs->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno != EAGAIN)
			return mc_fail(-errno, "%s", mc_strerror(errno));
		rs->out_at += sent > 0 ? (size_t)sent : 0;
		if (rs->out_at < rs->out_len)
			return taken ? (ssize_t)taken : -EAGAIN;
		taken += rs->out_len - 2;
		rs->out_len = 0;
	}
}

static size_t record_repeat(const struct mc_stream *s)
{
	const struct record_stream *rs = s->state;

	return rs->out_len ? rs->out_len - 2 : 0;
}

/* Decode whole records that follow the decoded payload. */
static void record_open(struct record_stream *rs)
{
	while (rs->in_len - rs->ready >= 2) {
		uint8_t *at = rs->in + rs->ready;
		size_t len = at[0] + ((size_t)at[1] << 8);

		assert_in_range(len, 1, RECORD);
		if (rs->in_len - rs->ready < 2 + len)
			break;
		flip(at + 2, len);
		memmove(at, at + 2, rs->in_len - rs->ready - 2);
		rs->in_len -= 2;
		rs->ready += len;
	}
}

/* Receive as much as fits. 1: there is payload; 0: the end; or -errno. */
static int record_peek(struct mc_stream *s)
{
	struct record_stream *rs = s->state;
	ssize_t n = 1;

	while (n > 0 && !rs->ready) {
		n = recv(s->fd, rs->in + rs->in_len, AHEAD - rs->in_len, MSG_DONTWAIT);
		if (n > 0) {
			rs->in_len += (size_t)n;
			record_open(rs);
		}
	}
	if (rs->ready)
		return 1;
	return n == 0 ? 0 : errno == EAGAIN ? -EAGAIN : mc_fail(-errno, "%s", mc_strerror(errno));
}

static ssize_t record_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct record_stream *rs = s->state;
	int r = record_peek(s);
	size_t got = 0;

	if (r <= 0)
		return r;
	for (int i = 0; i < n; i++) {
		size_t part = iov[i].iov_len < rs->ready - got ? iov[i].iov_len : rs->ready - got;

		/* Return less than is available, so that bytes remain without an event. */
		part = part < 777 ? part : 777;
		memcpy(iov[i].iov_base, rs->in + got, part);
		got += part;
	}
	rs->ready -= got;
	rs->in_len -= got;
	memmove(rs->in, rs->in + got, rs->in_len);
	if (rs->ready)
		atomic_fetch_add(&delivered_late, 1);
	return (ssize_t)got;
}

static size_t record_pending(const struct mc_stream *s)
{
	return ((const struct record_stream *)s->state)->ready;
}

static void record_shutdown(struct mc_stream *s, int how)
{
	(void)shutdown(s->fd, how);
}

static void record_close(struct mc_stream *s)
{
	close(s->fd);
	free(s->state);
}

void __wrap_mc_stream_plain(struct mc_stream *s, int fd);
void __wrap_mc_stream_plain(struct mc_stream *s, int fd)
{
	static const struct mc_stream_ops ops = {
		.send = record_send, .repeat = record_repeat, .recv = record_recv, .peek = record_peek,
		.pending = record_pending, .shutdown = record_shutdown, .close = record_close,
	};
	int size = SOCKET_BUFFER;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	*s = (struct mc_stream){ .ops = &ops, .fd = fd, .state = calloc(1, sizeof(struct record_stream)) };
	assert_non_null(s->state);
}

/* ---- the tests ---- */

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
	atomic_store(&repeated, 0);
	atomic_store(&delivered_late, 0);
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
	assert_true(atomic_load(&repeated) > 0);
	assert_true(atomic_load(&delivered_late) > 0);
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

	return cmocka_run_group_tests(tests, NULL, NULL);
}
