/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/net/networks.h"
#include "common/net/socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/guard.h"

#define SOON mc_deadline_ms(5000)

static void addresses_split(void **state)
{
	static const struct {
		const char *addr;
		int def;
		const char *host;	/* NULL: refused */
		int port;
	} rows[] = {
		{ "host:80", -1, "host", 80 },
		{ "host", 50051, "host", 50051 },
		{ "host", -1, NULL, 0 },
		{ "10.0.0.1:65535", -1, "10.0.0.1", 65535 },
		{ "[::1]:80", -1, "::1", 80 },
		{ "[::1]", 7, "::1", 7 },
		{ "fe80::1", 7, "fe80::1", 7 },
		{ ":80", -1, "", 80 },
		{ "host:0", -1, "host", 0 },
		{ "host:", 7, NULL, 0 },
		{ "host:65536", 7, NULL, 0 },
		{ "host:-1", 7, NULL, 0 },
		{ "host:+1", 7, NULL, 0 },
		{ "host:8x", 7, NULL, 0 },
		{ "host:99999999999999999999", 7, NULL, 0 },
		{ "[::1", 7, NULL, 0 },
		{ "[::1]x", 7, NULL, 0 },
		{ "a-host-name-that-is-longer-than-the-buffer:1", 7, NULL, 0 },
	};
	char host[32];
	int port, r;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		r = mc_addr_split(rows[i].addr, host, sizeof(host), rows[i].def, &port);
		if (!rows[i].host) {
			assert_true(r < 0);
			assert_non_null(strstr(mc_err_detail(r), rows[i].addr));
			continue;
		}
		assert_int_equal(r, 0);
		assert_string_equal(host, rows[i].host);
		assert_int_equal(port, rows[i].port);
	}
}

static int accept_soon(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 5000), 1);
	return mc_socket_accept(fd);
}

static void check_flags(int fd, bool tcp)
{
	int on = 0;
	socklen_t len = sizeof(on);

	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	if (!tcp)
		return;
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
	assert_true(on);
}

static void check_pair(const char *addr, bool tcp)
{
	char bound[MC_ADDR_MAX], peer[MC_ADDR_MAX], user[32], byte;
	int l, a, c;

	l = mc_socket_listen(addr, 16, 0, bound);
	assert_true(l >= 0);
	assert_int_equal(mc_socket_accept(l), -EAGAIN);
	c = mc_socket_connect(bound, SOON);
	assert_true(c >= 0);
	a = accept_soon(l);
	assert_true(a >= 0);
	check_flags(l, false);
	check_flags(c, tcp);
	check_flags(a, tcp);
	assert_int_equal(write(c, "x", 1), 1);
	assert_int_equal(recv(a, &byte, 1, MSG_WAITALL), 1);
	snprintf(user, sizeof(user), "unix:%u", getuid());
	assert_string_equal(mc_socket_peer(c, peer), tcp ? bound : user);
	assert_non_null(strstr(mc_socket_peer(a, peer), tcp ? "127.0.0.1:" : "unix"));
	close(l);
	close(a);
	close(c);
	assert_string_equal(mc_socket_peer(-1, peer), "unknown");
}

static char dir[] = "/tmp/mc-net-XXXXXX";

static void pairs(void **state)
{
	char addr[MC_ADDR_MAX];

	check_pair("127.0.0.1:0", true);
	snprintf(addr, sizeof(addr), "unix:%s/sock", dir);
	check_pair(addr, false);
	snprintf(addr, sizeof(addr), "unix:@mc-test-%d", getpid());
	check_pair(addr, false);
}

static void names_are_looked_up(void **state)
{
	char bound[MC_ADDR_MAX], addr[64];
	struct addrinfo *found;
	int l, c;

	/* A bare chroot has no hosts file, so not even this name. */
	if (getaddrinfo("localhost", NULL, NULL, &found) != 0)
		skip();
	freeaddrinfo(found);
	l = mc_socket_listen("localhost:0", 16, 0, bound);
	assert_true(l >= 0);
	snprintf(addr, sizeof(addr), "localhost:%s", strrchr(bound, ':') + 1);
	c = mc_socket_connect(addr, SOON);
	assert_true(c >= 0);
	close(c);
	close(l);
}

static void unknown_names(void **state)
{
	int r;

	/* No such name by RFC 6761; a network that drops DNS queries costs the timeout at most. */
	r = mc_socket_connect("no-such-host.invalid:1", mc_deadline_ms(300));
	assert_true(r == -EHOSTUNREACH || r == -EAGAIN || r == -ETIMEDOUT);
	assert_non_null(strstr(mc_err_detail(r), "no-such-host.invalid:1"));
}

static void ipv6(void **state)
{
	char bound[MC_ADDR_MAX];
	int l = mc_socket_listen("[::1]:0", 16, 0, bound), c;

	if (l < 0) {
		print_message("no IPv6 here: %s\n", mc_err_detail(l));
		skip();
	}
	assert_int_equal(strncmp(bound, "[::1]:", 6), 0);
	c = mc_socket_connect(bound, SOON);
	assert_true(c >= 0);
	close(c);
	close(l);
}

static void ports_are_taken_once_or_shared(void **state)
{
	char bound[MC_ADDR_MAX], text[MC_ADDR_MAX + 32];
	int a = mc_socket_listen("127.0.0.1:0", 16, 0, bound), b;

	assert_true(a >= 0);
	assert_int_equal(mc_socket_listen(bound, 16, 0, NULL), -EADDRINUSE);
	snprintf(text, sizeof(text), "address already in use: %s", bound);
	assert_string_equal(mc_err_detail(-EADDRINUSE), text);
	close(a);

	a = mc_socket_listen("127.0.0.1:0", 16, 1, bound);
	b = mc_socket_listen(bound, 16, 1, NULL);
	assert_true(a >= 0 && b >= 0);
	close(a);
	close(b);
}

static void connect_to_a_closed_port_fails(void **state)
{
	char bound[MC_ADDR_MAX], addr[MC_ADDR_MAX];
	int l = mc_socket_listen("127.0.0.1:0", 16, 0, bound);

	close(l);
	assert_int_equal(mc_socket_connect(bound, SOON), -ECONNREFUSED);
	assert_non_null(strstr(mc_err_detail(-ECONNREFUSED), bound));
	snprintf(addr, sizeof(addr), "unix:%s/none", dir);
	assert_int_equal(mc_socket_connect(addr, SOON), -ENOENT);
	assert_non_null(strstr(mc_err_detail(-ENOENT), addr));
}

static void a_socket_file_left_behind(void **state)
{
	char addr[MC_ADDR_MAX];
	int a, b;

	snprintf(addr, sizeof(addr), "unix:%s/stale", dir);
	a = mc_socket_listen(addr, 16, 0, NULL);
	assert_true(a >= 0);
	/* In use while its owner lives ... */
	assert_int_equal(mc_socket_listen(addr, 16, 0, NULL), -EADDRINUSE);
	close(a);
	/* ... and free for the next one after. */
	b = mc_socket_listen(addr, 16, 0, NULL);
	assert_true(b >= 0);
	close(b);
}

static void a_file_that_is_no_socket(void **state)
{
	char addr[MC_ADDR_MAX];
	int fd;

	snprintf(addr, sizeof(addr), "unix:%s/file", dir);
	fd = open(addr + 5, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "mine", 4), 4);
	close(fd);
	assert_int_equal(mc_socket_listen(addr, 16, 0, NULL), -EADDRINUSE);
	assert_int_equal(unlink(addr + 5), 0);
}

static void bad_unix_addresses(void **state)
{
	char addr[MC_ADDR_MAX];

	assert_int_equal(mc_socket_listen("unix:", 1, 0, NULL), -EINVAL);
	assert_int_equal(mc_socket_connect("unix:@", SOON), -EINVAL);
	memset(addr, 'x', sizeof(addr));
	memcpy(addr, "unix:/", 6);
	addr[200] = '\0';
	assert_int_equal(mc_socket_connect(addr, SOON), -ENAMETOOLONG);
	assert_int_equal(mc_socket_connect("nonsense", SOON), -EINVAL);
}

/* A listener that never accepts: once its queue is full, connecting would take forever. */
static void connecting_keeps_its_deadline(void **state)
{
	static const char *const addrs[] = { "127.0.0.1:0", NULL };
	char bound[MC_ADDR_MAX], unix_addr[MC_ADDR_MAX];
	int fds[64], l, n;
	uint64_t begin;

	snprintf(unix_addr, sizeof(unix_addr), "unix:%s/full", dir);
	for (int i = 0; i < 2; i++) {
		l = mc_socket_listen(addrs[i] ? addrs[i] : unix_addr, 0, 0, bound);
		assert_true(l >= 0);
		for (n = 0; n < 64; n++) {
			begin = mc_now_ns();
			fds[n] = mc_socket_connect(bound, mc_deadline_ms(60));
			if (fds[n] < 0)
				break;
		}
		assert_true(n < 64);
		assert_int_equal(fds[n], -ETIMEDOUT);
		assert_true(mc_now_ns() - begin >= 60 * MC_NS_PER_MS);
		assert_true(mc_now_ns() - begin < 5000 * MC_NS_PER_MS);
		while (n--)
			close(fds[n]);
		close(l);
	}
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Receive up to @len bytes and at most one descriptor. */
static ssize_t receive_fd(int sock, int *ret_fd, void *data, size_t len)
{
	union {
		char buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf, .msg_controllen = sizeof(control.buf),
	};
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);

	*ret_fd = mc_take_fd(&msg);
	return n;
}

static void a_descriptor_travels(void **state)
{
	int pair[2], pipefd[2], got = -2;
	char buf[8], byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(mc_send_fd(pair[0], pipefd[0], "hello", 5, SOON), 5);
	assert_int_equal(receive_fd(pair[1], &got, buf, sizeof(buf)), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_true(got >= 0 && got != pipefd[0]);
	assert_true(fcntl(got, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(pipefd[1], "y", 1), 1);
	assert_int_equal(read(got, &byte, 1), 1);
	close(got);

	/* Bytes without a descriptor, then the end. */
	assert_int_equal(write(pair[0], "z", 1), 1);
	assert_int_equal(receive_fd(pair[1], &got, buf, sizeof(buf)), 1);
	assert_int_equal(got, -1);
	close(pair[0]);
	assert_int_equal(receive_fd(pair[1], &got, buf, sizeof(buf)), 0);
	assert_int_equal(mc_send_fd(pair[1], pipefd[0], "x", 1, SOON), -EPIPE);
	assert_int_equal(mc_send_fd(pair[1], pipefd[0], "", 0, SOON), -EINVAL);
	close(pair[1]);
	close(pipefd[0]);
	close(pipefd[1]);
}

/* A peer that sends more descriptors than asked for must not fill our table. */
static void surplus_descriptors_are_closed(void **state)
{
	union {
		char buf[CMSG_SPACE(5 * sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = { 0 } };
	struct iovec iov = { .iov_base = (char[]){ 'x' }, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf, .msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int pair[2], fds[5] = { 0, 0, 0, 0, 0 }, got, before;
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	before = open_fds();
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
	assert_int_equal(receive_fd(pair[1], &got, &byte, 1), 1);
	assert_true(got >= 0);
	assert_int_equal(open_fds(), before + 1);
	close(got);
	close(pair[0]);
	close(pair[1]);
}

static void sending_keeps_its_deadline(void **state)
{
	char data[4096] = { 0 };
	int pair[2];
	ssize_t n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	do {
		n = mc_send_fd(pair[0], 0, data, sizeof(data), mc_deadline_ms(20));
	} while (n > 0);
	/* The kernel also limits how many descriptors may be in flight. */
	assert_true(n == -ETIMEDOUT || n == -ETOOMANYREFS);
	close(pair[0]);
	close(pair[1]);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	static const char *const names[] = { "sock", "stale", "full" };
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

static void the_guard_admits_the_loopback_only(void **state)
{
	static const char *const local[] = {
		"127.0.0.1", "127.255.0.1:80", "::1", "[::1]", "[::1]:80", "localhost", "LocalHost:1",
		"::ffff:127.0.0.1", "[::ffff:127.1.2.3]:1", "unix:/x", "unix:@x", "local:x",
	};
	static const char *const beyond[] = {
		"0.0.0.0", "0.0.0.0:1", "::", "[::]:1", "", ":80", "*", "10.0.0.1", "128.0.0.1",
		"127.0.0.1.example.com", "127.1", "localhost.example.com", "::ffff:10.0.0.1", "::127.0.0.1",
		"fe80::1", "[::1", "127.0.0.1:x",
	};
	struct mc_guard g = { .harm = "read", .secure = "use a lock" };

	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
		assert_int_equal(mc_guard_listen(&g, "host", local[i]), 0);
		assert_string_equal(mc_guard_default(&g, "host", local[i]), local[i]);
	}
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
		assert_int_equal(mc_guard_listen(&g, "host", beyond[i]), -EACCES);
		assert_non_null(strstr(mc_err_detail(-EACCES), beyond[i]));
		assert_non_null(strstr(mc_err_detail(-EACCES), "use a lock"));
		assert_true(mc_guard_closes(&g, beyond[i]));
	}
	assert_string_equal(mc_guard_default(&g, "host", "::"), "127.0.0.1");
	g.allowed = true;
	assert_int_equal(mc_guard_listen(&g, "host", "::"), 0);
	g = (struct mc_guard){ .harm = "read", .secured = true };
	assert_int_equal(mc_guard_listen(&g, "host", "::"), 0);
	assert_string_equal(mc_guard_default(&g, "host", "::"), "::");
}

static bool admits(const char *list, const char *addr)
{
	struct mc_networks *n;
	struct in6_addr a;
	struct in_addr v4;
	bool admitted;

	assert_int_equal(mc_networks_parse("peers", list, &n), 0);
	if (inet_pton(AF_INET, addr, &v4) == 1) {
		memset(&a, 0, sizeof(a));
		a.s6_addr[10] = a.s6_addr[11] = 0xff;
		memcpy(a.s6_addr + 12, &v4, 4);
	} else {
		assert_int_equal(inet_pton(AF_INET6, addr, &a), 1);
	}
	admitted = mc_networks_admit(n, &a);
	mc_networks_free(n);
	return admitted;
}

static void a_list_of_networks_admits_their_hosts_and_the_loopback(void **state)
{
	static const char *const wrong[] = { "10.0.0.0/33", "10.0.0", "x", "10.0.0.0/", "10.0.0.0/-1", "fd00::/129",
					     ",", "1.2.3.4," };
	struct mc_networks *n = NULL;

	assert_true(admits("", "127.3.2.1") && admits("", "::1"));
	assert_false(admits("", "10.0.0.1") || admits("", "128.0.0.1") || admits("", "fd00::1"));
	assert_true(admits("10.0.0.0/24", "10.0.0.255"));
	assert_false(admits("10.0.0.0/24", "10.0.1.0"));
	assert_true(admits("10.1.0.0/15", "10.0.255.1") && !admits("10.1.0.0/15", "10.2.0.1"));
	assert_true(admits("192.168.7.1", "192.168.7.1") && !admits("192.168.7.1", "192.168.7.2"));
	assert_true(admits("1.2.3.4,fd00::/8", "fdff::9") && admits("0.0.0.0/0", "8.8.8.8"));
	assert_false(admits("0.0.0.0/0", "fd00::1"));
	assert_true(admits("::/0", "8.8.8.8"));
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(mc_networks_parse("peers", wrong[i], &n), -EINVAL);
		assert_non_null(strstr(mc_err_detail(-EINVAL), wrong[i]));
	}
	assert_null(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_of_networks_admits_their_hosts_and_the_loopback),
		cmocka_unit_test(addresses_split),
		cmocka_unit_test(pairs),
		cmocka_unit_test(names_are_looked_up),
		cmocka_unit_test(unknown_names),
		cmocka_unit_test(ipv6),
		cmocka_unit_test(ports_are_taken_once_or_shared),
		cmocka_unit_test(connect_to_a_closed_port_fails),
		cmocka_unit_test(a_socket_file_left_behind),
		cmocka_unit_test(a_file_that_is_no_socket),
		cmocka_unit_test(bad_unix_addresses),
		cmocka_unit_test(connecting_keeps_its_deadline),
		cmocka_unit_test(a_descriptor_travels),
		cmocka_unit_test(surplus_descriptors_are_closed),
		cmocka_unit_test(sending_keeps_its_deadline),
		cmocka_unit_test(the_guard_admits_the_loopback_only),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
