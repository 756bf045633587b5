/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/xor_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "tests/lib/tls_net.h"

#define RECORD 3000u		/* most bytes of a record's payload */
#define HEAD 2u			/* its length */
#define AHEAD (64u << 10)
#define MOST 2777u		/* bytes of one receive */

atomic_long xor_repeated, xor_delivered_late;
int xor_socket_buffer;

struct xor_stream {
	struct mc_stream inner;
	/* of the sender */
	uint8_t out[HEAD + RECORD];	/* the record being sent */
	size_t out_len, out_at;
	uint64_t out_pos;		/* bytes of records before it */
	/* of the receiver: payload in [ready, ready_end), records in [rest, rest_end) behind it */
	uint8_t in[AHEAD];
	size_t ready, ready_end, rest, rest_end;
	uint64_t in_pos;		/* bytes of decoded records */
};

static void xor_check(bool ok, const char *rule)
{
	if (ok)
		return;
	fprintf(stderr, "xor_net: %s\n", rule);
	abort();
}

static void xor_apply(uint8_t *p, size_t len, uint64_t pos)
{
	for (size_t i = 0; i < len; i++, pos++)
		p[i] ^= (uint8_t)(0xa5 + pos * 31 + (pos >> 8));
}

static size_t xor_gather(const struct iovec *iov, int n, size_t skip, uint8_t *to, size_t len)
{
	size_t got = 0;

	for (int i = 0; i < n && got < len; i++) {
		size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;
		size_t part = iov[i].iov_len - from < len - got ? iov[i].iov_len - from : len - got;

		skip -= from;
		if (part)
			memcpy(to + got, (const uint8_t *)iov[i].iov_base + from, part);
		got += part;
	}
	return got;
}

/* Make a record of @payload, or check that it begins with the record that was sent in part. */
static void xor_seal(struct xor_stream *x, uint8_t *payload, size_t len)
{
	xor_apply(payload, len, x->out_pos);
	if (x->out_len) {
		xor_check(len >= x->out_len - HEAD && !memcmp(payload, x->out + HEAD, x->out_len - HEAD),
			  "a send does not begin with the bytes that repeat() has counted");
		atomic_fetch_add(&xor_repeated, 1);
		return;
	}
	memcpy(x->out + HEAD, payload, len);
	x->out[0] = (uint8_t)len;
	x->out[1] = (uint8_t)(len >> 8);
	x->out_len = HEAD + len;
	x->out_at = 0;
}

static ssize_t xor_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct xor_stream *x = s->state;
	uint8_t payload[RECORD];
	size_t taken = 0, len;

	while ((len = xor_gather(iov, n, taken, payload, RECORD)) > 0) {
		struct iovec rest;
		ssize_t sent;

		xor_seal(x, payload, len);
		rest = (struct iovec){ x->out + x->out_at, x->out_len - x->out_at };
		sent = mc_stream_send(&x->inner, &rest, 1);
		if (sent < 0 && sent != -EAGAIN) {
			x->out_len = 0;
			return sent;
		}
		x->out_at += sent > 0 ? (size_t)sent : 0;
		if (x->out_at < x->out_len)
			return taken ? (ssize_t)taken : -EAGAIN;
		taken += x->out_len - HEAD;
		x->out_pos += x->out_len - HEAD;
		x->out_len = 0;
	}
	return (ssize_t)taken;
}

static size_t xor_repeat(const struct mc_stream *s)
{
	const struct xor_stream *x = s->state;

	return x->out_len ? x->out_len - HEAD : 0;
}

/* Decode the whole records of the rest. */
static void xor_open(struct xor_stream *x)
{
	while (x->rest_end - x->rest >= HEAD) {
		uint8_t *at = x->in + x->rest;
		size_t len = at[0] + ((size_t)at[1] << 8);

		xor_check(len > 0 && len <= RECORD, "received bytes are no records of this net");
		if (x->rest_end - x->rest < HEAD + len)
			break;
		memmove(x->in + x->ready_end, at + HEAD, len);
		xor_apply(x->in + x->ready_end, len, x->in_pos);
		x->ready_end += len;
		x->rest += HEAD + len;
		x->in_pos += len;
	}
}

/* Receive as much as fits.  1: there is payload; 0: the end; or -errno. */
static int xor_peek(struct mc_stream *s)
{
	struct xor_stream *x = s->state;

	while (x->ready == x->ready_end) {
		struct iovec space;
		ssize_t n;

		x->ready = x->ready_end = 0;
		memmove(x->in, x->in + x->rest, x->rest_end - x->rest);
		x->rest_end -= x->rest;
		x->rest = 0;
		space = (struct iovec){ x->in + x->rest_end, AHEAD - x->rest_end };
		n = mc_stream_recv(&x->inner, &space, 1);
		if (n <= 0)
			return (int)n;
		x->rest_end += (size_t)n;
		xor_open(x);
	}
	return 1;
}

static ssize_t xor_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct xor_stream *x = s->state;
	int r = xor_peek(s);
	size_t got = 0;

	if (r <= 0)
		return r;
	for (int i = 0; i < n && got < MOST; i++) {
		size_t part = x->ready_end - x->ready;

		part = part < MOST - got ? part : MOST - got;
		part = part < iov[i].iov_len ? part : iov[i].iov_len;
		if (part)
			memcpy(iov[i].iov_base, x->in + x->ready, part);
		x->ready += part;
		got += part;
	}
	/* A short count must not hide bytes that have arrived: no event would report them. */
	if (x->ready == x->ready_end)
		(void)xor_peek(s);
	if (x->ready < x->ready_end)
		atomic_fetch_add(&xor_delivered_late, 1);
	return (ssize_t)got;
}

static size_t xor_pending(const struct mc_stream *s)
{
	const struct xor_stream *x = s->state;

	return x->ready_end - x->ready;
}

static struct mc_stream *xor_inner(const struct mc_stream *s)
{
	return &((struct xor_stream *)s->state)->inner;
}

static int xor_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	return mc_stream_wait(xor_inner(s), events, deadline);
}

static void xor_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	mc_stream_peer(xor_inner(s), ret);
}

static void xor_tune(struct mc_stream *s, const struct mc_stream_tuning *t)
{
	mc_stream_tune(xor_inner(s), t);
}

static void xor_shutdown(struct mc_stream *s, int how)
{
	mc_stream_shutdown(xor_inner(s), how);
}

static void xor_reset(struct mc_stream *s)
{
	mc_stream_reset(xor_inner(s));
}

static void xor_close(struct mc_stream *s)
{
	mc_stream_close(xor_inner(s));
	free(s->state);
}

/* Wrap the stream that *@s is. */
static int xor_wrap(struct mc_stream *s)
{
	static const struct mc_stream_ops ops = {
		.send = xor_send, .repeat = xor_repeat, .recv = xor_recv, .peek = xor_peek, .pending = xor_pending,
		.wait = xor_wait, .peer = xor_peer, .tune = xor_tune, .shutdown = xor_shutdown, .reset = xor_reset,
		.close = xor_close,
	};
	struct xor_stream *x = calloc(1, sizeof(*x));

	if (!x) {
		mc_stream_close(s);
		return mc_fail(-ENOMEM, "no memory for a stream");
	}
	if (xor_socket_buffer)
		(void)setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &xor_socket_buffer, sizeof(xor_socket_buffer));
	x->inner = *s;
	*s = (struct mc_stream){ .ops = &ops, .fd = x->inner.fd, .state = x };
	return 0;
}

static int xor_accept(struct mc_listener *l, struct mc_stream *ret)
{
	int r = mc_listener_accept(l->state, ret);

	return r < 0 ? r : xor_wrap(ret);
}

static int xor_listener_wait(struct mc_listener *l, uint64_t deadline)
{
	return mc_listener_wait(l->state, deadline);
}

static void xor_listener_close(struct mc_listener *l)
{
	mc_listener_close(l->state);
	free(l->state);
}

static int xor_connect(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	struct mc_stream s;
	int r = mc_net_connect(mc_net_plain(), addr, deadline, &s);

	if (r == 0)
		r = xor_wrap(&s);
	if (r == 0)
		*ret = s;
	return r;
}

static int xor_listen(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret)
{
	static const struct mc_listener_ops ops = {
		.accept = xor_accept, .wait = xor_listener_wait, .close = xor_listener_close,
	};
	struct mc_listener *inner = malloc(sizeof(*inner));
	int r;

	if (!inner)
		return mc_fail(-ENOMEM, "no memory for a listener");
	r = mc_net_listen(mc_net_plain(), addr, backlog, inner);
	if (r < 0) {
		free(inner);
		return r;
	}
	*ret = (struct mc_listener){ .ops = &ops, .fd = inner->fd, .state = inner };
	strcpy(ret->addr, inner->addr);
	return 0;
}

const struct mc_net *xor_net(void)
{
	static const struct mc_net_ops ops = { .connect = xor_connect, .listen = xor_listen };
	static const struct mc_net net = { .ops = &ops };

	return &net;
}

const struct mc_net *test_net(void)
{
	const char *name = getenv("TEST_NET");

	if (name && !strcmp(name, "tls"))
		return tls_net();
	return name && !strcmp(name, "xor") ? xor_net() : mc_net_plain();
}
