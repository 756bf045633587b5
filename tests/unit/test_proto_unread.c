/* SPDX-License-Identifier: Apache-2.0
 * test_proto_unread.c - replies that are not read: what they may hold together, and who gives way. */
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

static void narrow(struct mcp_server_conf *conf)
{
	conf->max_outstanding = 8192;
	conf->max_unread = UNREAD;
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

static void ask(int fd, unsigned n, uint32_t len)
{
	struct mcp_list rq = { .limit = len };

	for (unsigned i = 0; i < n; i++)
		raw_send_frame(fd, (struct mcp_frame){ .type = MCP_LIST, .id = i + 1 },
			       mcp_desc_of(MCP_LIST, false), &rq);
}

/* All replies that were asked for, each whole. */
static void hear(int fd, unsigned n, uint32_t len)
{
	struct mcp_frame f;

	for (unsigned i = 0; i < n; i++) {
		assert_true(raw_recv_frame(fd, &f, NULL));
		assert_int_equal(f.id, i + 1);
		assert_int_equal(f.status, 0);
		assert_true(f.length >= len);
	}
}

static ssize_t some(int fd, void *buf, size_t size)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 10000) == 1 ? recv(fd, buf, size, 0) : -1;
}

/* Reads, but slowly: what it has asked for takes it longer than anybody is waited for. */
static void *slow(void *arg)
{
	int fd = *(int *)arg;
	char buf[16 * KIB];
	size_t sum = 0;
	ssize_t n = 1;

	for (unsigned i = 0; i < 40 && n > 0; i++) {
		n = some(fd, buf, sizeof(buf));
		sum += n > 0 ? (size_t)n : 0;
		usleep(100000);
	}
	while (n > 0 && sum < ASKS * LEN) {
		n = some(fd, buf, sizeof(buf));
		sum += n > 0 ? (size_t)n : 0;
	}
	return (void *)(uintptr_t)(sum >= ASKS * LEN);
}

static void who_does_not_read_gives_way(void **state)
{
	int64_t before = closed(), most = 0, bytes;
	uint64_t end = mc_deadline_ms(20000);
	struct mcp_client *c;
	int fd[CROWD], reads;
	pthread_t t;
	void *all;

	fixture_start(&fx, narrow);
	c = fixture_client(fx.path);
	reads = raw_hello(fx.path, MCP_LANE_CONTROL);
	assert_int_equal(pthread_create(&t, NULL, slow, &reads), 0);
	ask(reads, ASKS, LEN);
	for (unsigned i = 0; i < CROWD; i++) {
		fd[i] = raw_hello(fx.path, MCP_LANE_CONTROL);
		ask(fd[i], ASKS, LEN);
	}
	do {
		bytes = metric("mooncake_rpc_unread_bytes");
		most = bytes > most ? bytes : most;
		/* Whoever reads is served as ever. */
		assert_true(fixture_rename(c, "a", 10000) > 0);
		usleep(1000);
	} while ((most <= UNREAD || bytes > UNREAD) && mc_now_ns() < end);
	assert_in_range(most, UNREAD + 1, UNREAD + (CROWD + 1) * 4 * 64 * KIB);
	assert_in_range(bytes, 0, UNREAD);
	assert_in_range(closed(), before + 1, before + CROWD);
	/* That one has asked for as much as the others. */
	pthread_join(t, &all);
	assert_non_null(all);
	for (unsigned i = 0; i < CROWD; i++)
		close(fd[i]);
	close(reads);
	mcp_client_close(c);
	fixture_wait(&fx.closed, fx.opened);
	assert_int_equal(metric("mooncake_rpc_unread_bytes"), 0);
	fixture_stop(&fx);
}

/* Time enough to be looked at more than once. */
static void without_a_crowd_nobody_does(void **state)
{
	int64_t before = closed();
	int fd[2];

	fixture_start(&fx, narrow);
	for (unsigned i = 0; i < 2; i++) {
		fd[i] = raw_hello(fx.path, MCP_LANE_CONTROL);
		ask(fd[i], 8, LEN);
	}
	usleep(3500000);
	assert_int_equal(closed(), before);
	assert_in_range(metric("mooncake_rpc_unread_bytes"), 1, UNREAD);
	for (unsigned i = 0; i < 2; i++) {
		hear(fd[i], 8, LEN);
		close(fd[i]);
	}
	fixture_wait(&fx.closed, fx.opened);
	assert_int_equal(metric("mooncake_rpc_unread_bytes"), 0);
	fixture_stop(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_does_not_read_gives_way),
		cmocka_unit_test(without_a_crowd_nobody_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
