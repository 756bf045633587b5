/* SPDX-License-Identifier: Apache-2.0
 * test_common_stream.c - streams of plain sockets. */
#include <config.h>

#include "common/net/stream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/net.h"

static struct mc_stream a, b;

static int connect_pair(const char *addr)
{
	char bound[MC_ADDR_MAX];
	int listener = mc_listen(addr, 1, 0, bound), fd;

	assert_true(listener >= 0);
	fd = mc_connect(bound, mc_deadline_ms(5000));
	assert_true(fd >= 0);
	mc_stream_plain(&a, fd);
	fd = mc_accept(listener);
	assert_true(fd >= 0);
	mc_stream_plain(&b, fd);
	close(listener);
	return 0;
}

static int over_tcp(void **state)
{
	return connect_pair("127.0.0.1:0");
}

static int over_unix(void **state)
{
	char addr[64];

	snprintf(addr, sizeof(addr), "unix:@mc-stream-%d", (int)getpid());
	return connect_pair(addr);
}

static int done(void **state)
{
	mc_stream_close(&a);
	mc_stream_close(&b);
	return 0;
}

static ssize_t put(struct mc_stream *s, const void *p, size_t len)
{
	const struct iovec iov = { (void *)(uintptr_t)p, len };

	return mc_stream_send(s, &iov, 1);
}

static ssize_t get(struct mc_stream *s, void *p, size_t len)
{
	const struct iovec iov = { p, len };

	return mc_stream_recv(s, &iov, 1);
}

static short wait_for(const struct mc_stream *s, short events)
{
	struct pollfd p = { .fd = s->fd, .events = events };

	return poll(&p, 1, 5000) == 1 ? p.revents : 0;
}

static void iovecs_are_gathered_and_scattered(void **state)
{
	char first[3] = "", second[8] = "";
	const struct iovec out[] = { { (void *)(uintptr_t)"ab", 2 }, { NULL, 0 }, { (void *)(uintptr_t)"cdefg", 5 } };
	const struct iovec in[] = { { first, 3 }, { second, 8 } };

	assert_int_equal(mc_stream_send(&a, out, 3), 7);
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	assert_int_equal(mc_stream_recv(&b, in, 2), 7);
	assert_memory_equal(first, "abc", 3);
	assert_memory_equal(second, "defg", 4);
}

static void an_empty_stream_returns_eagain(void **state)
{
	char c;

	assert_int_equal(get(&a, &c, 1), -EAGAIN);
	assert_int_equal(mc_stream_peek(&a), -EAGAIN);
	assert_int_equal(mc_stream_pending(&a), 0);
}

static void a_full_socket_takes_a_part(void **state)
{
	static char block[999983], copy[999983];
	size_t sent = 0, got = 0;
	ssize_t n;

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 7 + i / 251);
	/* Send until the socket is full; then a part of a block is accepted, or nothing. */
	while ((n = put(&a, block + sent % sizeof(block), sizeof(block) - sent % sizeof(block))) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	assert_int_equal(mc_stream_repeat(&a), 0);
	assert_true(sent % sizeof(block) != 0);
	/* The rest can be sent when the peer has received some, and no byte is lost or doubled. */
	while (got < sent) {
		size_t at = got % sizeof(block);

		n = get(&b, copy, sizeof(copy) - at);
		if (n == -EAGAIN) {
			assert_true(wait_for(&b, POLLIN) & POLLIN);
			continue;
		}
		assert_true(n > 0);
		assert_memory_equal(copy, block + at, (size_t)n);
		got += (size_t)n;
	}
	assert_true(wait_for(&a, POLLOUT) & POLLOUT);
	assert_int_equal(put(&a, "x", 1), 1);
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	assert_int_equal(get(&b, copy, sizeof(copy)), 1);
	assert_int_equal(copy[0], 'x');
}

static void peek_does_not_consume(void **state)
{
	char in[4];

	assert_int_equal(put(&a, "xyz", 3), 3);
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	assert_int_equal(mc_stream_peek(&b), 1);
	assert_int_equal(mc_stream_peek(&b), 1);
	assert_int_equal(get(&b, in, sizeof(in)), 3);
	assert_memory_equal(in, "xyz", 3);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
}

static void a_peer_that_ended_its_direction_still_receives(void **state)
{
	char in[4];

	assert_int_equal(put(&a, "end", 3), 3);
	mc_stream_shutdown(&a, SHUT_WR);
	assert_true(wait_for(&b, POLLRDHUP) & POLLRDHUP);
	/* Bytes that were sent before the end are received first. */
	assert_int_equal(mc_stream_peek(&b), 1);
	assert_int_equal(get(&b, in, sizeof(in)), 3);
	assert_int_equal(mc_stream_peek(&b), 0);
	assert_int_equal(get(&b, in, sizeof(in)), 0);
	assert_int_equal(put(&b, "yes", 3), 3);
	assert_true(wait_for(&a, POLLIN) & POLLIN);
	assert_int_equal(get(&a, in, sizeof(in)), 3);
	assert_int_equal(put(&a, "no", 2), -EPIPE);
	assert_string_equal(mc_err_detail(-EPIPE), mc_strerror(EPIPE));
}

/* NULL: the stream has not ended. */
static void *wait_for_end(void *arg)
{
	struct mc_stream *s = arg;
	char c;

	return wait_for(s, POLLIN) & POLLIN && get(s, &c, 1) == 0 ? s : NULL;
}

static void shutdown_wakes_both_sides(void **state)
{
	pthread_t local, peer;
	void *ended;

	assert_int_equal(pthread_create(&local, NULL, wait_for_end, &a), 0);
	assert_int_equal(pthread_create(&peer, NULL, wait_for_end, &b), 0);
	usleep(10000);
	mc_stream_shutdown(&a, SHUT_RDWR);
	pthread_join(local, &ended);
	assert_ptr_equal(ended, &a);
	pthread_join(peer, &ended);
	assert_ptr_equal(ended, &b);
	assert_int_equal(put(&a, "x", 1), -EPIPE);
}

static void a_closed_peer_ends_the_stream(void **state)
{
	char c;

	mc_stream_close(&b);
	assert_null(b.ops);
	assert_true(wait_for(&a, POLLIN | POLLRDHUP) & POLLRDHUP);
	assert_int_equal(mc_stream_peek(&a), 0);
	assert_int_equal(get(&a, &c, 1), 0);
}

static void a_peer_that_closed_with_bytes_unread_is_an_error(void **state)
{
	char c;

	assert_int_equal(put(&a, "lost", 4), 4);
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	mc_stream_close(&b);
	assert_true(wait_for(&a, POLLIN) & POLLERR);
	assert_int_equal(mc_stream_peek(&a), -ECONNRESET);
	assert_int_equal(get(&a, &c, 1), 0);
	assert_int_equal(put(&a, "x", 1), -EPIPE);
}

static void closing_twice_is_harmless(void **state)
{
	int fd = a.fd;

	mc_stream_close(&a);
	mc_stream_close(&a);
	assert_int_equal(close(fd), -1);
	assert_int_equal(errno, EBADF);
}

#define BOTH(test) \
	{ #test " over tcp", test, over_tcp, done, NULL }, { #test " over unix", test, over_unix, done, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(iovecs_are_gathered_and_scattered),
		BOTH(an_empty_stream_returns_eagain),
		BOTH(a_full_socket_takes_a_part),
		BOTH(peek_does_not_consume),
		BOTH(a_peer_that_ended_its_direction_still_receives),
		BOTH(shutdown_wakes_both_sides),
		BOTH(a_closed_peer_ends_the_stream),
		cmocka_unit_test_setup_teardown(a_peer_that_closed_with_bytes_unread_is_an_error, over_tcp, done),
		BOTH(closing_twice_is_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
