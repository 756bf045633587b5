/* SPDX-License-Identifier: Apache-2.0
 * stream.h - connections behind tables of operations: the two-way byte stream of one connection, the listener that
 * accepts streams, and the net that makes both.  mc_net_plain() makes streams of TCP and unix sockets; TLS over a
 * socket can be another net, and its users need not change.
 *
 * A stream is embedded in its connection's struct.  Its operations, except wait, never block, never allocate and
 * move bytes directly from and to the caller's iovecs.  Results: a count of bytes, or -errno; never
 * -EINTR.  -EAGAIN says that nothing can be done now and has no detail.  Every other error ends the
 * stream and has a detail (mc_err_detail()).  A handshake, where there is one, is complete on the
 * connecting side before the stream is used, and is a part of recv on the accepting side, which
 * sends nothing before it has received.
 *
 * Readiness: wait for one stream with mc_stream_wait(), for many with a poller or an event loop (poller.h, evloop.h;
 * level-triggered).  After -EAGAIN of recv or peek wait for
 * POLLIN, after -EAGAIN of send for POLLOUT; POLLRDHUP, POLLHUP and POLLERR report the end of the
 * connection.  An implementation may have received more than it has delivered (a TLS record that
 * was longer than the caller's buffer): such bytes cause no event in a poller.  So wait there for POLLIN only when
 * recv or peek has just returned -EAGAIN, or pending returns 0.
 *
 * Threads: one thread at a time receives (recv, peek, pending) and one sends (send, repeat); both may run at
 * the same time.  Any thread may call shutdown(SHUT_RDWR), reset, peer, tune and wait at any time before close; the
 * shutdown wakes threads that wait.  shutdown(SHUT_WR) belongs to the sender.  close needs the stream for itself. */
#ifndef MC_STREAM_H
#define MC_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "common/net/net.h"

struct mc_stream;
struct mc_principal;

struct mc_stream_peer {
	char name[MC_ADDR_MAX];	/* address, "unix:UID", or "unknown" */
	bool local;		/* a process of this host, of user @uid and with number @pid */
	bool same_host;		/* on this host, or connected from the address that it is connected to */
	uid_t uid;
	pid_t pid;
	/* The identity that the peer of an accepted stream has proved in its handshake; NULL: none
	 * (yet).  Constant, and valid until the stream is closed. */
	const struct mc_principal *principal;
};

struct mc_stream_tuning {
	bool nodelay;			/* do not gather small sends; the initial state of a stream */
	unsigned unacked_ms;		/* end the stream when the peer confirms no byte for this time; 0: default */
};

struct mc_stream_ops {
	/* Take bytes from @iov in order.  The result may be less than their sum: the caller sends the rest
	 * later.  Bytes that were not taken may be dropped or replaced, except those that repeat() counts.
	 * -EFAULT, when the first bytes of @iov cannot be read: nothing was taken, and the stream continues. */
	ssize_t (*send)(struct mc_stream *s, const struct iovec *iov, int n);
	/* How many of the bytes that were not taken the next send has to begin with, from any address: an
	 * implementation that has encrypted a record, but could not write all of it, counts the record here. */
	size_t (*repeat)(const struct mc_stream *s);
	/* Fill @iov in order as far as bytes have arrived.  0: the peer has ended its direction.  If the result is
	 * less than the sum of @iov, the next bytes cause an event, except those that pending() counts. */
	ssize_t (*recv)(struct mc_stream *s, const struct iovec *iov, int n);
	/* The result that recv would have, without consuming bytes: 1 for any number of bytes; 0,
	 * -EAGAIN, -errno. */
	int (*peek)(struct mc_stream *s);
	/* Bytes that recv can return although no event reports them. */
	size_t (*pending)(const struct mc_stream *s);
	/* Wait until @deadline (mc_now_ns() scale; 0: do not wait) for one of @events (POLLIN, POLLOUT, POLLRDHUP),
	 * POLLHUP or POLLERR: those that hold, 0 at the deadline, -errno.  May return 0 before the deadline.  Pending
	 * bytes are no event. */
	int (*wait)(struct mc_stream *s, short events, uint64_t deadline);
	/* The process at the other end, as far as the transport knows it. */
	void (*peer)(const struct mc_stream *s, struct mc_stream_peer *ret);
	/* For connections over a network: end the stream when the peer's host has vanished (about a minute), and
	 * set the options of @t.  Without effect on others. */
	void (*tune)(struct mc_stream *s, const struct mc_stream_tuning *t);
	/* SHUT_WR: the peer's recv returns 0 after the bytes that were taken.  SHUT_RDWR: end both directions. */
	void (*shutdown)(struct mc_stream *s, int how);
	/* End both directions now: bytes that were taken and are not sent are dropped, where the transport can, and the
	 * peer may see an error instead of an end. */
	void (*reset)(struct mc_stream *s);
	/* Free the memory and descriptors of the stream. */
	void (*close)(struct mc_stream *s);
};

struct mc_stream {
	const struct mc_stream_ops *ops;	/* NULL: not open */
	int fd;					/* for pollers of the kernel only; -1: no descriptor */
	void *state;				/* the implementation's */
};

/* A stream of the connected socket @fd, which belongs to the stream from now on. */
void mc_stream_plain(struct mc_stream *s, int fd);

struct mc_listener;

struct mc_listener_ops {
	/* A connection that waits: 0, and *ret is open; -EAGAIN without a detail, when none waits; -errno. */
	int (*accept)(struct mc_listener *l, struct mc_stream *ret);
	/* Wait until @deadline (0: do not wait) for a connection: 1, 0 at the deadline or before, -errno. */
	int (*wait)(struct mc_listener *l, uint64_t deadline);
	/* Connections that wait are reset; the name of a unix socket is removed. */
	void (*close)(struct mc_listener *l);
};

struct mc_listener {
	const struct mc_listener_ops *ops;	/* NULL: not open */
	int fd;					/* for pollers of the kernel only; -1: no descriptor */
	void *state;				/* the implementation's */
	char addr[MC_ADDR_MAX];			/* the bound address, with the real port; constant */
};

struct mc_net;

/* Both have a detail for every error, and name the address in it.  On failure *ret is unchanged.  Any thread. */
struct mc_net_ops {
	/* Connect to @addr by @deadline, and complete a handshake. */
	int (*connect)(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret);
	/* Listen on @addr; port 0 selects a free one.  -EADDRINUSE... */
	int (*listen)(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret);
};

struct mc_net {
	const struct mc_net_ops *ops;
	void *state;				/* the implementation's */
};

/* The kernel's sockets, without encryption. */
const struct mc_net *mc_net_plain(void);

/* The net of configurations that name none: the kernel's, or that of the simulated process (common/sys/world.h). */
const struct mc_net *mc_net_default(void);

static inline int mc_net_connect(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	return n->ops->connect(n, addr, deadline, ret);
}

static inline int mc_net_listen(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret)
{
	return n->ops->listen(n, addr, backlog, ret);
}

static inline int mc_listener_accept(struct mc_listener *l, struct mc_stream *ret)
{
	return l->ops->accept(l, ret);
}

static inline int mc_listener_wait(struct mc_listener *l, uint64_t deadline)
{
	return l->ops->wait(l, deadline);
}

/* Nothing for a listener that is not open; afterwards it is not. */
static inline void mc_listener_close(struct mc_listener *l)
{
	if (l->ops)
		l->ops->close(l);
	l->ops = NULL;
}

static inline ssize_t mc_stream_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	return s->ops->send(s, iov, n);
}

static inline size_t mc_stream_repeat(const struct mc_stream *s)
{
	return s->ops->repeat(s);
}

static inline ssize_t mc_stream_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	return s->ops->recv(s, iov, n);
}

static inline int mc_stream_peek(struct mc_stream *s)
{
	return s->ops->peek(s);
}

static inline size_t mc_stream_pending(const struct mc_stream *s)
{
	return s->ops->pending(s);
}

static inline int mc_stream_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	return s->ops->wait(s, events, deadline);
}

static inline void mc_stream_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	s->ops->peer(s, ret);
}

static inline void mc_stream_tune(struct mc_stream *s, const struct mc_stream_tuning *t)
{
	s->ops->tune(s, t);
}

static inline void mc_stream_shutdown(struct mc_stream *s, int how)
{
	s->ops->shutdown(s, how);
}

static inline void mc_stream_reset(struct mc_stream *s)
{
	s->ops->reset(s);
}

/* Nothing for a stream that is not open; afterwards it is not. */
static inline void mc_stream_close(struct mc_stream *s)
{
	if (s->ops)
		s->ops->close(s);
	s->ops = NULL;
}

#endif
