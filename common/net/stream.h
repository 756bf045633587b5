/* SPDX-License-Identifier: Apache-2.0
 * stream.h - the two-way byte stream of a connection behind a table of operations.  The first implementation is
 * a connected stream socket (TCP or unix); TLS over a socket can be another one, and its users need not change.
 *
 * A stream is embedded in its connection's struct.  Its operations never block, never allocate and
 * move bytes directly from and to the caller's iovecs.  Results: a count of bytes, or -errno; never
 * -EINTR.  -EAGAIN says that nothing can be done now and has no detail.  Every other error ends the
 * stream and has a detail (mc_err_detail()).  A handshake, where there is one, is complete on the
 * connecting side before the stream is used, and is a part of recv on the accepting side, which
 * sends nothing before it has received.
 *
 * Readiness: @fd is for poll() and epoll (level-triggered).  After -EAGAIN of recv or peek wait for
 * POLLIN, after -EAGAIN of send for POLLOUT; POLLRDHUP, POLLHUP and POLLERR report the end of the
 * connection.  An implementation may have received more than it has delivered (a TLS record that
 * was longer than the caller's buffer): such bytes cause no event.  So wait for POLLIN only when
 * recv or peek has just returned -EAGAIN, or pending returns 0.
 *
 * Threads: one thread at a time receives (recv, peek, pending) and one sends (send, repeat); both may run at
 * the same time.  Any thread may call shutdown(SHUT_RDWR) and poll @fd at any time before close; it wakes
 * threads that poll @fd.  shutdown(SHUT_WR) belongs to the sender.  close needs the stream for itself. */
#ifndef MC_STREAM_H
#define MC_STREAM_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct mc_stream;

struct mc_stream_ops {
	/* Take bytes from @iov in order.  The result may be less than their sum: the caller sends the rest
	 * later.  Bytes that were not taken may be dropped or replaced, except those that repeat() counts. */
	ssize_t (*send)(struct mc_stream *s, const struct iovec *iov, int n);
	/* How many of the bytes that were not taken the next send has to begin with, from any address: an
	 * implementation that has encrypted a record, but could not write all of it, counts the record here. */
	size_t (*repeat)(const struct mc_stream *s);
	/* Fill @iov in order as far as bytes have arrived.  0: the peer has ended its direction. */
	ssize_t (*recv)(struct mc_stream *s, const struct iovec *iov, int n);
	/* The result that recv would have, without consuming bytes: 1 for any number of bytes; 0,
	 * -EAGAIN, -errno. */
	int (*peek)(struct mc_stream *s);
	/* Bytes that recv can return although @fd need not become readable. */
	size_t (*pending)(const struct mc_stream *s);
	/* SHUT_WR: the peer's recv returns 0 after the bytes that were taken.  SHUT_RDWR: end both directions. */
	void (*shutdown)(struct mc_stream *s, int how);
	/* Close @fd and free @state. */
	void (*close)(struct mc_stream *s);
};

struct mc_stream {
	const struct mc_stream_ops *ops;	/* NULL: not open */
	int fd;					/* for poll(), epoll and socket options only */
	void *state;				/* the implementation's */
};

/* A stream of the connected socket @fd, which belongs to the stream from now on. */
void mc_stream_plain(struct mc_stream *s, int fd);

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

static inline void mc_stream_shutdown(struct mc_stream *s, int how)
{
	s->ops->shutdown(s, how);
}

/* Nothing for a stream that is not open; afterwards it is not. */
static inline void mc_stream_close(struct mc_stream *s)
{
	if (s->ops)
		s->ops->close(s);
	s->ops = NULL;
}

#endif
