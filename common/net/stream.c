/* SPDX-License-Identifier: Apache-2.0
 * stream.c - streams and listeners of plain sockets. */
#include <config.h>

#include "common/net/stream.h"
#include "common/sys/world.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"

/* A host that vanished is noticed after about a minute. */
#define KEEPALIVE_IDLE_SEC 30
#define KEEPALIVE_INTERVAL_SEC 10
#define KEEPALIVE_PROBES 3

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

static int socket_wait(int fd, short events, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };
	struct timespec left = { 0 };
	int n;

	if (deadline)
		left = mc_timespec(mc_deadline_left_ns(deadline));
	n = ppoll(&p, 1, &left, NULL);
	if (n < 0)
		return errno == EINTR ? 0 : mc_fail(-errno, "cannot wait for a socket: %s", mc_strerror(errno));
	return n ? p.revents : 0;
}

static int stream_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	return socket_wait(s->fd, events, deadline);
}

static void stream_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*ret = (struct mc_stream_peer){ .local = false };
	mc_socket_peer(s->fd, ret->name);
	ret->same_host = mc_socket_same_host(s->fd);
	/* A socket of TCP has the credentials of no process. */
	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid) {
		ret->local = true;
		ret->uid = cred.uid;
		ret->pid = cred.pid;
	}
}

static void stream_tune(struct mc_stream *s, const struct mc_stream_tuning *t)
{
	int on = 1, nodelay = t->nodelay;
	int idle = KEEPALIVE_IDLE_SEC, interval = KEEPALIVE_INTERVAL_SEC, probes = KEEPALIVE_PROBES;

	/* A unix socket refuses it. */
	if (setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay)) < 0)
		return;
	(void)setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	(void)setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	if (t->unacked_ms)
		(void)setsockopt(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &t->unacked_ms, sizeof(t->unacked_ms));
}

static void stream_shutdown(struct mc_stream *s, int how)
{
	(void)shutdown(s->fd, how);
}

static void stream_reset(struct mc_stream *s)
{
	const struct sockaddr disconnect = { .sa_family = AF_UNSPEC };

	/* Only TCP can disconnect. */
	if (connect(s->fd, &disconnect, sizeof(disconnect)) < 0)
		(void)shutdown(s->fd, SHUT_RDWR);
}

static void stream_close(struct mc_stream *s)
{
	close(s->fd);
}

void mc_stream_plain(struct mc_stream *s, int fd)
{
	static const struct mc_stream_ops ops = {
		.send = stream_send, .repeat = stream_none, .recv = stream_recv, .peek = stream_peek,
		.pending = stream_none, .wait = stream_wait, .peer = stream_peer, .tune = stream_tune,
		.shutdown = stream_shutdown, .reset = stream_reset, .close = stream_close,
	};

	*s = (struct mc_stream){ .ops = &ops, .fd = fd };
}

/* ---- listeners --------------------------------------------------------------------------------- */

static int listener_accept(struct mc_listener *l, struct mc_stream *ret)
{
	int fd = mc_socket_accept(l->fd);

	if (fd < 0)
		return fd;
	mc_stream_plain(ret, fd);
	return 0;
}

static int listener_wait(struct mc_listener *l, uint64_t deadline)
{
	int r = socket_wait(l->fd, POLLIN, deadline);

	return r > 0 ? 1 : r;
}

static void listener_close(struct mc_listener *l)
{
	const char *path = l->addr + 5;

	/* Remove the name first: a client that connects from now on fails at once. */
	if (!strncmp(l->addr, "unix:", 5) && *path && *path != '@')
		(void)unlink(path);
	/* A forked child that still has the socket must not listen. */
	(void)shutdown(l->fd, SHUT_RDWR);
	close(l->fd);
}

/* ---- the net ----------------------------------------------------------------------------------- */

static int plain_connect(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	int fd = mc_socket_connect(addr, deadline);

	if (fd < 0)
		return fd;
	mc_stream_plain(ret, fd);
	return 0;
}

static int plain_listen(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret)
{
	static const struct mc_listener_ops ops = {
		.accept = listener_accept, .wait = listener_wait, .close = listener_close,
	};
	char bound[MC_ADDR_MAX];
	int fd = mc_socket_listen(addr, backlog, 0, bound);

	if (fd < 0)
		return fd;
	*ret = (struct mc_listener){ .ops = &ops, .fd = fd };
	strcpy(ret->addr, bound);
	return 0;
}

const struct mc_net *mc_net_plain(void)
{
	static const struct mc_net_ops ops = { .connect = plain_connect, .listen = plain_listen };
	static const struct mc_net net = { .ops = &ops };

	return &net;
}

const struct mc_net *mc_net_default(void)
{
	struct mc_world *w = mc_world();

	return w ? w->net : mc_net_plain();
}
