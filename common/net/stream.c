/* SPDX-License-Identifier: Apache-2.0
 * stream.c - streams of plain sockets. */
#include <config.h>

#include "common/net/stream.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "common/err.h"

static ssize_t stream_result(ssize_t n)
{
	if (n >= 0)
		return n;
	return errno == EAGAIN ? -EAGAIN : mc_fail(-errno, "%s", mc_strerror(errno));
}

static ssize_t stream_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	const struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t len;

	/* For one buffer send() and recv() are cheaper than sendmsg() and recvmsg(). */
	do {
		len = n == 1 ? send(s->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT) :
			       sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (len < 0 && errno == EINTR);
	return stream_result(len);
}

/* The kernel sends every byte that it has taken. */
static size_t stream_none(const struct mc_stream *s)
{
	return 0;
}

static ssize_t stream_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t len;

	do {
		len = n == 1 ? recv(s->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) :
			       recvmsg(s->fd, &m, MSG_DONTWAIT);
	} while (len < 0 && errno == EINTR);
	return stream_result(len);
}

static int stream_peek(struct mc_stream *s)
{
	ssize_t len;
	char byte;

	do {
		len = recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	} while (len < 0 && errno == EINTR);
	return (int)stream_result(len);
}

static void stream_shutdown(struct mc_stream *s, int how)
{
	(void)shutdown(s->fd, how);
}

static void stream_close(struct mc_stream *s)
{
	close(s->fd);
}

void mc_stream_plain(struct mc_stream *s, int fd)
{
	static const struct mc_stream_ops ops = {
		.send = stream_send, .repeat = stream_none, .recv = stream_recv, .peek = stream_peek,
		.pending = stream_none, .shutdown = stream_shutdown, .close = stream_close,
	};

	*s = (struct mc_stream){ .ops = &ops, .fd = fd };
}
