/* SPDX-License-Identifier: Apache-2.0
 * packet.c - unix sockets with message boundaries. */
#include <config.h>

#include "common/net/packet.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"

#define RETRY_NS 2000000

/* Length of the address, or negative. */
static int packet_address(const char *addr, struct sockaddr_un *sa)
{
	const char *name = addr;
	size_t len;

	if (strncmp(name, "unix:", 5))
		return mc_fail(-EINVAL, "%s is not an address of a unix socket (unix:PATH)", addr);
	name += 5;
	len = strlen(name);
	if (!len || len >= sizeof(sa->sun_path))
		return mc_fail(-EINVAL, "%s: the name has %zu bytes, 1 to %zu are allowed", addr,
			       len, sizeof(sa->sun_path) - 1);
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	memcpy(sa->sun_path, name, len);
	if (*name != '@')
		return (int)(offsetof(struct sockaddr_un, sun_path) + len + 1);
	sa->sun_path[0] = '\0';
	return (int)(offsetof(struct sockaddr_un, sun_path) + len);
}

static int packet_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? mc_fail(-errno, "cannot make a unix socket: %s", mc_strerror(errno)) : fd;
}

/* Is the file a socket without a listener?  Other files are kept. */
static bool packet_is_abandoned(const char *addr, const char *path)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = mc_packet_connect(addr, 0);
	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

int mc_packet_listen(const char *addr, int backlog)
{
	const char *path = addr + 5;
	struct sockaddr_un sa;
	auto_close int fd = -1;
	int len = packet_address(addr, &sa), r;

	if (len < 0)
		return len;
	fd = packet_socket();
	if (fd < 0)
		return fd;
	r = bind(fd, (struct sockaddr *)&sa, (socklen_t)len) < 0 ? -errno : 0;
	if (r == -EADDRINUSE && *path != '@' && packet_is_abandoned(addr, path) && unlink(path) == 0)
		r = bind(fd, (struct sockaddr *)&sa, (socklen_t)len) < 0 ? -errno : 0;
	if (r == 0 && listen(fd, backlog) < 0)
		r = -errno;
	return r < 0 ? mc_fail(r, "cannot listen on %s: %s", addr, mc_strerror(r)) : TAKE_FD(fd);
}

int mc_packet_accept(int listener)
{
	return mc_socket_accept(listener);
}

int mc_packet_connect(const char *addr, uint64_t deadline)
{
	struct sockaddr_un sa;
	auto_close int fd = -1;
	int len = packet_address(addr, &sa), r;

	if (len < 0)
		return len;
	fd = packet_socket();
	if (fd < 0)
		return fd;
	/* A connect to a unix socket has to wait only while the queue is full, and no event reports
	 * the end of that. */
	while (connect(fd, (struct sockaddr *)&sa, (socklen_t)len) < 0) {
		r = -errno;
		if (r == -EINTR)
			continue;
		if (r != -EAGAIN || mc_now_ns() >= deadline)
			return mc_fail(r, "cannot connect to %s: %s", addr, mc_strerror(r));
		mc_sleep_ns(RETRY_NS);
	}
	return TAKE_FD(fd);
}

static int packet_wait(int sock, short events, uint64_t deadline)
{
	struct pollfd p = { .fd = sock, .events = events };
	int r;

	if (!deadline)
		return -EAGAIN;
	do
		r = poll(&p, 1, mc_deadline_left_ms(deadline));
	while (r < 0 && errno == EINTR);
	return r > 0 ? 0 : r < 0 ? -errno : -EAGAIN;
}

static ssize_t packet_send_plain(int sock, const void *data, size_t len)
{
	ssize_t n = send(sock, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

int mc_packet_send(int sock, const void *data, size_t len, int fd, uint64_t deadline)
{
	ssize_t n;
	int r;

	for (;;) {
		n = fd >= 0 ? mc_send_fd(sock, fd, data, len, mc_now_ns()) :
			packet_send_plain(sock, data, len);
		if (n >= 0)
			return 0;
		if (n == -EINTR)
			continue;
		if (n != -EAGAIN && n != -ETIMEDOUT)
			return (int)n;
		r = packet_wait(sock, POLLOUT, deadline);
		if (r < 0)
			return r;
	}
}

ssize_t mc_packet_recv(int sock, void *data, size_t len, int *ret_fd, uint64_t deadline)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;
	int r;

	if (ret_fd)
		*ret_fd = -1;
	for (;;) {
		/* Control space for one descriptor only: the kernel drops the others.  If we
		 * received them, closing them could block in their filesystem. */
		msg.msg_control = ret_fd ? control.buf : NULL;
		msg.msg_controllen = ret_fd ? CMSG_LEN(sizeof(int)) : 0;
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);
		if (n >= 0)
			break;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		r = packet_wait(sock, POLLIN, deadline);
		if (r < 0)
			return r;
	}
	if (ret_fd)
		*ret_fd = mc_take_fd(&msg);
	return n;
}
