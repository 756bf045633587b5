/* SPDX-License-Identifier: Apache-2.0
 * test_engine_upstream_raw.c - serving upstream's protocol to clients that violate it, disconnect, or stall: raw
 * sockets. */
#include <config.h>

#include "test_engine_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/net/socket.h"
#include "engine/upstream/upstream_wire.h"

#define LEN (8ull << 20)
#define SEED 3

static struct mce_conf conf = {
	.upstream = true, .bind_host = "127.0.0.1", .progress_timeout_ms = 60000,
};
static struct side side;

static void begin(void)
{
	side_open(&side, &conf, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
}

static int dial(void)
{
	char addr[MC_ADDR_MAX];
	int fd;

	snprintf(addr, sizeof(addr), "127.0.0.1:%d", mce_engine_upstream_port(side.e));
	fd = mc_socket_connect(addr, SECONDS(5));
	assert_true(fd >= 0);
	return fd;
}

/* How many bytes went out before the connection ended. */
static size_t put(int fd, const void *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	size_t done = 0;

	while (done < n) {
		ssize_t k = send(fd, (const char *)p + done, n - done, MSG_NOSIGNAL);

		if (k > 0)
			done += (size_t)k;
		else if (errno == EPIPE || errno == ECONNRESET)
			break;
		else if (errno != EAGAIN || poll(&pfd, 1, 10000) <= 0)
			fail_msg("send: %s", strerror(errno));
	}
	return done;
}

/* How many bytes came before the connection ended. */
static size_t get(int fd, void *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	size_t done = 0;

	while (done < n) {
		ssize_t k;

		if (poll(&pfd, 1, 10000) <= 0)
			fail_msg("no answer");
		k = recv(fd, (char *)p + done, n - done, 0);
		if (k == 0 || (k < 0 && errno == ECONNRESET))
			break;
		if (k > 0)
			done += (size_t)k;
	}
	return done;
}

static bool ended(int fd)
{
	char byte;

	return get(fd, &byte, 1) == 0;
}

static void ask(int fd, bool v2, enum mce_up_op op, uint64_t off, uint64_t size)
{
	struct mce_up_req q = {
		.size = size, .addr = (uintptr_t)side.mem + off, .op = (uint8_t)op, .v2 = v2,
	};
	uint8_t b[MCE_UP_REQ_SIZE];

	mce_up_req_pack(b, &q);
	/* Upstream sends whatever is there. */
	memset(b + 17, 0xa5, 7);
	assert_int_equal(put(fd, b, sizeof(b)), sizeof(b));
}

static uint32_t status(int fd)
{
	uint8_t b[MCE_UP_STATUS_SIZE];
	uint32_t code = 99;

	assert_int_equal(get(fd, b, sizeof(b)), sizeof(b));
	assert_int_equal(mce_up_status_unpack(b, sizeof(b), &code), sizeof(b));
	return code;
}

/* ---- the protocol ---- */

static void messages_have_the_layout_of_upstream(void **state)
{
	static const uint8_t write5_v2[] = {
		5, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x81,
		0, 0, 0, 0, 0, 0, 0,
	};
	static const uint8_t refused[] = { 1, 0, 0, 0, 'V', 'T', 'C', 'M' };
	struct mce_up_req q = { .size = 5, .addr = 0x1122334455667788, .op = MCE_UP_WRITE, .v2 = true };
	uint8_t b[MCE_UP_REQ_SIZE];

	mce_up_req_pack(b, &q);
	assert_memory_equal(b, write5_v2, sizeof(write5_v2));
	mce_up_status_pack(b, MCE_UP_REFUSED);
	assert_memory_equal(b, refused, sizeof(refused));
}

/* Requests of both versions sent at once, answered in order. */
static void pipelined_requests_are_answered_in_order(void **state)
{
	static char buf[1 << 20];
	char byte = 'x';
	int fd;

	begin();
	fd = dial();
	ask(fd, true, MCE_UP_READ, 10, 5);
	ask(fd, false, MCE_UP_WRITE, 100, 1);
	put(fd, &byte, 1);
	ask(fd, false, MCE_UP_READ, 100, 2);
	ask(fd, true, MCE_UP_WRITE, 200, 1);
	put(fd, &byte, 1);
	ask(fd, true, MCE_UP_READ, LEN - sizeof(buf), sizeof(buf));
	assert_int_equal(status(fd), MCE_UP_OK);
	assert_int_equal(get(fd, buf, 5), 5);
	pattern_check(buf, 5, SEED, 10);
	assert_int_equal(get(fd, buf, 2), 2);
	assert_int_equal(buf[0], 'x');
	pattern_check(buf + 1, 1, SEED, 101);
	assert_int_equal(status(fd), MCE_UP_OK);
	assert_int_equal(side.mem[200], 'x');
	assert_int_equal(status(fd), MCE_UP_OK);
	assert_int_equal(get(fd, buf, sizeof(buf)), sizeof(buf));
	pattern_check(buf, sizeof(buf), SEED, LEN - sizeof(buf));
	close(fd);
	side_close(&side);
}

/* ---- refusals ---- */

static void refuse(bool v2, enum mce_up_op op, uint64_t off, uint64_t size)
{
	int fd = dial();

	ask(fd, v2, op, off, size);
	if (v2)
		assert_int_equal(status(fd), MCE_UP_REFUSED);
	assert_true(ended(fd));
	close(fd);
}

static void a_request_outside_the_region_is_refused(void **state)
{
	uint64_t base;

	begin();
	base = (uintptr_t)side.mem;
	for (int v2 = 0; v2 < 2; v2++)
		for (enum mce_up_op op = MCE_UP_READ; op <= MCE_UP_WRITE; op++) {
			refuse(v2, op, 0, 0);
			refuse(v2, op, 5, 0);
			refuse(v2, op, 0, LEN + 1);
			refuse(v2, op, 1, LEN);
			refuse(v2, op, LEN, 1);
			refuse(v2, op, (uint64_t)-1, 2);
			refuse(v2, op, -base, 64);
			refuse(v2, op, 8, UINT64_MAX);
			refuse(v2, op, 8, UINT64_MAX - base - 7);
			refuse(v2, op, 8, 1ull << 63);
		}
	pattern_check(side.mem, LEN, SEED, 0);
	side_close(&side);
}

/* Two adjacent regions are two regions. */
static void no_request_spans_adjacent_regions(void **state)
{
	char *mem;
	struct mce_mr_attr attr = {
		.len = 4096, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1,
	};
	struct mce_mr *a, *b;
	uint64_t off;

	begin();
	mem = aligned_alloc(4096, 8192);
	memset(mem, 0, 8192);
	attr.base = mem;
	assert_int_equal(mce_mr_register(side.e, &attr, &a), 0);
	attr.base = mem + 4096;
	assert_int_equal(mce_mr_register(side.e, &attr, &b), 0);
	off = (uintptr_t)mem - (uintptr_t)side.mem;
	refuse(true, MCE_UP_READ, off + 4095, 2);
	refuse(true, MCE_UP_READ, off - 1, 2);
	refuse(true, MCE_UP_READ, off + 8191, 2);
	refuse(true, MCE_UP_READ, off, 4097);
	side_close(&side);
	free(mem);
}

/* The status is sent although the client continues to send, and can be read after all of that. */
static void a_refusal_is_readable_after_the_whole_payload(void **state)
{
	static char payload[4 << 20];
	int fd;

	begin();
	fd = dial();
	ask(fd, true, MCE_UP_WRITE, LEN - 1, sizeof(payload));
	assert_int_equal(put(fd, payload, sizeof(payload)), sizeof(payload));
	assert_int_equal(status(fd), MCE_UP_REFUSED);
	assert_true(ended(fd));
	close(fd);
	pattern_check(side.mem, LEN, SEED, 0);
	side_close(&side);
}

/* Bytes that are no request end the connection without an answer. */
static void invalid_requests_end_the_connection_without_an_answer(void **state)
{
	static const char *const texts[] = {
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on for a while",
		"MCELANE\xf1 greeting of another protocol, long enough",
		"\x20\0\0\0\0\0\0\0{\"name\":\"a handshake\"}     ",
		"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
	};
	uint8_t frame[MCE_UP_REQ_SIZE] = { 1 };
	int fd;

	begin();
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint8_t text[64] = { 0 };

		memcpy(text, texts[i], i == 3 ? 32 : strlen(texts[i]));
		fd = dial();
		put(fd, text, 40);
		assert_true(ended(fd));
		close(fd);
	}
	for (unsigned op = 2; op < 256; op++) {
		if ((op & 0x7f) < 2)
			continue;
		frame[16] = (uint8_t)op;
		fd = dial();
		put(fd, frame, sizeof(frame));
		assert_true(ended(fd));
		close(fd);
	}
	pattern_check(side.mem, LEN, SEED, 0);
	side_close(&side);
}

/* ---- the end of a region ---- */

static void unregister_ends_a_write_in_the_middle(void **state)
{
	char byte = 'y';
	int fd;

	begin();
	for (int v2 = 0; v2 < 2; v2++) {
		struct mce_mr_attr attr = {
			.base = side.mem, .len = LEN, .access = MCE_ACCESS_WRITE, .fd = side.fd,
		};
		uint64_t end = SECONDS(10);

		fd = dial();
		side.mem[0] = 0;
		ask(fd, v2, MCE_UP_WRITE, 0, 1000);
		put(fd, &byte, 1);
		while (((volatile char *)side.mem)[0] != 'y')
			assert_true(mc_now_ns() < end);
		mce_mr_unregister(side.mr);
		pattern_fill(side.mem, LEN, SEED, 0);
		put(fd, "zzzzzzzz", 8);
		assert_true(ended(fd));
		close(fd);
		pattern_check(side.mem, LEN, SEED, 0);
		refuse(v2, MCE_UP_WRITE, 0, 1);
		assert_int_equal(mce_mr_register(side.e, &attr, &side.mr), 0);
	}
	side_close(&side);
}

/* A client does not read the answer to its READ: the region is unregistered at once, and the client finds the end. */
static void unregister_does_not_wait_for_a_client_that_does_not_read(void **state)
{
	static char buf[LEN];
	uint8_t head[MCE_UP_STATUS_SIZE];
	uint64_t began;
	int fd, small = 128 << 10;

	begin();
	fd = dial();
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	ask(fd, true, MCE_UP_READ, 0, LEN);
	assert_int_equal(get(fd, head, sizeof(head)), sizeof(head));
	began = mc_now_ns();
	mce_mr_unregister(side.mr);
	assert_true(mc_now_ns() - began < 20 * MC_NS_PER_SEC);
	memset(side.mem, 0x77, LEN);
	/* Bytes that it received are those from before the end. */
	pattern_check(buf, get(fd, buf, LEN) < LEN ? 0 : LEN, SEED, 0);
	close(fd);
	side_close(&side);
}

/* ---- clients that stop ---- */

static void a_stalled_client_times_out(void **state)
{
	struct mce_conf quick = conf;
	uint8_t half[10] = { 1 };
	int fd[3];
	char byte;

	quick.progress_timeout_ms = 300;
	side_open(&side, &quick, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	for (unsigned i = 0; i < 3; i++)
		fd[i] = dial();
	put(fd[0], half, sizeof(half));			/* half a header */
	ask(fd[1], true, MCE_UP_WRITE, 0, 100);		/* no payload */
	ask(fd[2], true, MCE_UP_READ, 0, 1);
	assert_int_equal(status(fd[2]), MCE_UP_OK);
	assert_int_equal(get(fd[2], &byte, 1), 1);
	assert_true(ended(fd[0]));
	assert_true(ended(fd[1]));
	/* An idle connection may stay. */
	ask(fd[2], true, MCE_UP_READ, 7, 1);
	assert_int_equal(status(fd[2]), MCE_UP_OK);
	assert_int_equal(get(fd[2], &byte, 1), 1);
	for (unsigned i = 0; i < 3; i++)
		close(fd[i]);
	side_close(&side);
}

static unsigned count(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A thousand connections that end within a request leave nothing behind. */
static void a_thousand_cut_connections_leave_nothing(void **state)
{
	unsigned fds, threads;
	uint64_t end;

	begin();
	fds = count("/proc/self/fd");
	threads = count("/proc/self/task");
	for (unsigned i = 0; i < 1000; i++) {
		int fd = dial();
		uint8_t b[MCE_UP_STATUS_SIZE];

		if (i % 4 == 1)
			put(fd, b, 5);
		if (i % 4 == 2)
			ask(fd, true, MCE_UP_WRITE, 0, 1 << 20);
		if (i % 4 == 3)
			ask(fd, true, MCE_UP_READ, 0, LEN);
		close(fd);
	}
	end = SECONDS(10);
	while (count("/proc/self/fd") > fds) {
		assert_true(mc_now_ns() < end);
		poll(NULL, 0, 5);
	}
	assert_int_equal(count("/proc/self/task"), threads);
	refuse(true, MCE_UP_READ, LEN, 1);
	pattern_check(side.mem, LEN, SEED, 0);
	/* Closed connections hold no region. */
	mce_mr_unregister(side.mr);
	side_close(&side);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_have_the_layout_of_upstream),
		cmocka_unit_test(pipelined_requests_are_answered_in_order),
		cmocka_unit_test(a_request_outside_the_region_is_refused),
		cmocka_unit_test(no_request_spans_adjacent_regions),
		cmocka_unit_test(a_refusal_is_readable_after_the_whole_payload),
		cmocka_unit_test(invalid_requests_end_the_connection_without_an_answer),
		cmocka_unit_test(unregister_ends_a_write_in_the_middle),
		cmocka_unit_test(unregister_does_not_wait_for_a_client_that_does_not_read),
		cmocka_unit_test(a_stalled_client_times_out),
		cmocka_unit_test(a_thousand_cut_connections_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
