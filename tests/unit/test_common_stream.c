/* SPDX-License-Identifier: Apache-2.0
 * test_common_stream.c - streams of plain sockets, and streams that behave as TLS does. */
#include <config.h>

#include "common/net/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include "tests/lib/tls_net.h"
#include "tests/lib/xor_net.h"

static struct mc_stream a, b;

static int connect_pair(const struct mc_net *net, const char *addr)
{
	struct mc_listener l;

	assert_int_equal(mc_net_listen(net, addr, 1, &l), 0);
	assert_int_equal(mc_listener_wait(&l, 0), 0);
	assert_int_equal(mc_net_connect(net, l.addr, mc_deadline_ms(5000), &a), 0);
	assert_int_equal(mc_listener_wait(&l, mc_deadline_ms(5000)), 1);
	assert_int_equal(mc_listener_accept(&l, &b), 0);
	mc_listener_close(&l);
	return 0;
}

static int over_tcp(void **state)
{
	return connect_pair(mc_net_plain(), "127.0.0.1:0");
}

static const char *unix_addr(void)
{
	static char addr[64];

	snprintf(addr, sizeof(addr), "unix:@mc-stream-%d", (int)getpid());
	return addr;
}

static int over_unix(void **state)
{
	return connect_pair(mc_net_plain(), unix_addr());
}

static int over_records(void **state)
{
	return connect_pair(xor_net(), unix_addr());
}

static void *accept_tls(void *arg)
{
	struct mc_stream_peer peer = { .principal = NULL };

	assert_int_equal(mc_listener_wait(arg, mc_deadline_ms(5000)), 1);
	assert_int_equal(mc_listener_accept(arg, &b), 0);
	while (!peer.principal) {
		(void)mc_stream_wait(&b, POLLIN, mc_deadline_ms(5000));
		assert_int_equal(mc_stream_peek(&b), -EAGAIN);
		mc_stream_peer(&b, &peer);
	}
	return NULL;
}

static int over_tls(void **state)
{
	struct mc_listener l;
	pthread_t t;

	assert_int_equal(mc_net_listen(tls_net(), "127.0.0.1:0", 1, &l), 0);
	assert_int_equal(pthread_create(&t, NULL, accept_tls, &l), 0);
	assert_int_equal(mc_net_connect(tls_net(), l.addr, mc_deadline_ms(5000), &a), 0);
	pthread_join(t, NULL);
	mc_listener_close(&l);
	return 0;
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

static int wait_for(struct mc_stream *s, short events)
{
	return mc_stream_wait(s, events, mc_deadline_ms(5000));
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
	size_t sent = 0, got = 0, rest, at_rest;
	ssize_t n;

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 7 + i / 251);
	/* Send until the socket is full; then a part of a block is accepted, or nothing. */
	while ((n = put(&a, block + sent % sizeof(block), sizeof(block) - sent % sizeof(block))) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	assert_true(sent % sizeof(block) != 0);
	/* The kernel sends every byte that it has taken. */
	assert_true(a.state || !mc_stream_repeat(&a));
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
	at_rest = sent % sizeof(block);
	rest = mc_stream_repeat(&a) ? mc_stream_repeat(&a) : 1;
	assert_int_equal(put(&a, block + at_rest, rest), rest);
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	for (got = 0; got < rest; got += (size_t)n) {
		n = get(&b, copy, sizeof(copy));
		assert_true(n > 0);
		assert_memory_equal(copy, block + at_rest + got, (size_t)n);
	}
}

static void pending_bytes_cause_no_event(void **state)
{
	static char out[5000], in[5000];
	size_t got = 0;
	ssize_t n;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 3);
	assert_int_equal(put(&a, out, sizeof(out)), sizeof(out));
	assert_true(wait_for(&b, POLLIN) & POLLIN);
	while (got < sizeof(in)) {
		n = get(&b, in + got, sizeof(in) - got);
		assert_true(n > 0);
		got += (size_t)n;
		assert_int_equal(mc_stream_pending(&b), sizeof(in) - got);
		assert_int_equal(mc_stream_wait(&b, POLLIN, 0), 0);
	}
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
}

static void a_wait_ends_at_its_deadline(void **state)
{
	uint64_t begun = mc_now_ns();

	assert_int_equal(mc_stream_wait(&a, POLLIN, 0), 0);
	assert_int_equal(mc_stream_wait(&a, POLLIN, mc_deadline_ms(20)), 0);
	assert_true(mc_now_ns() - begun >= 20 * MC_NS_PER_MS);
	assert_int_equal(mc_stream_wait(&a, POLLIN | POLLOUT, mc_deadline_ms(5000)), POLLOUT);
}

static void a_peer_on_the_network_has_an_address(void **state)
{
	const struct mc_stream_tuning tuning = { .unacked_ms = 5000 };
	struct mc_stream_peer peer;
	socklen_t len = sizeof(int);
	int value = -1;

	mc_stream_peer(&b, &peer);
	assert_false(peer.local);
	assert_non_null(strstr(peer.name, "127.0.0.1:"));
	mc_stream_tune(&b, &tuning);
	assert_int_equal(getsockopt(b.fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len), 0);
	assert_int_equal(value, 1);
	assert_int_equal(getsockopt(b.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &len), 0);
	assert_int_equal(value, 5000);
	assert_int_equal(getsockopt(b.fd, IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
	assert_int_equal(value, 0);
}

static void a_local_peer_has_a_user(void **state)
{
	const struct mc_stream_tuning tuning = { .nodelay = true };
	struct mc_stream_peer peer;
	char user[32];

	snprintf(user, sizeof(user), "unix:%u", (unsigned)getuid());
	mc_stream_tune(&b, &tuning);
	mc_stream_peer(&b, &peer);
	assert_true(peer.local);
	assert_string_equal(peer.name, user);
	assert_int_equal(peer.uid, getuid());
	assert_int_equal(peer.pid, getpid());
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

/* ---- listeners --------------------------------------------------------------------------------- */

static void a_closed_listener_refuses_and_leaves_no_name(void **state)
{
	char addr[64], dir[] = "/tmp/mc-stream-XXXXXX";
	struct mc_listener l, second;
	struct mc_stream s;

	assert_non_null(mkdtemp(dir));
	snprintf(addr, sizeof(addr), "unix:%s/sock", dir);
	assert_int_equal(mc_net_listen(mc_net_plain(), addr, 1, &l), 0);
	assert_string_equal(l.addr, addr);
	assert_int_equal(mc_listener_accept(&l, &s), -EAGAIN);
	assert_int_equal(mc_net_listen(mc_net_plain(), addr, 1, &second), -EADDRINUSE);
	mc_listener_close(&l);
	mc_listener_close(&l);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(mc_net_connect(mc_net_plain(), addr, mc_deadline_ms(5000), &s), -ENOENT);
	assert_non_null(strstr(mc_err_detail(-ENOENT), addr));
}

#define BOTH(test) \
	{ #test " over tcp", test, over_tcp, done, NULL }, { #test " over unix", test, over_unix, done, NULL }
#define ALL(test) \
	BOTH(test), { #test " over records", test, over_records, done, NULL }, \
	{ #test " over tls", test, over_tls, done, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(iovecs_are_gathered_and_scattered),
		ALL(an_empty_stream_returns_eagain),
		ALL(a_full_socket_takes_a_part),
		ALL(peek_does_not_consume),
		ALL(a_peer_that_ended_its_direction_still_receives),
		ALL(shutdown_wakes_both_sides),
		ALL(a_closed_peer_ends_the_stream),
		cmocka_unit_test_setup_teardown(a_peer_that_closed_with_bytes_unread_is_an_error, over_tcp, done),
		ALL(closing_twice_is_harmless),
		ALL(a_wait_ends_at_its_deadline),
		cmocka_unit_test_setup_teardown(a_peer_on_the_network_has_an_address, over_tcp, done),
		cmocka_unit_test_setup_teardown(a_local_peer_has_a_user, over_unix, done),
		cmocka_unit_test_setup_teardown(a_local_peer_has_a_user, over_records, done),
		cmocka_unit_test_setup_teardown(pending_bytes_cause_no_event, over_records, done),
		cmocka_unit_test_setup_teardown(pending_bytes_cause_no_event, over_tls, done),
		cmocka_unit_test(a_closed_listener_refuses_and_leaves_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
