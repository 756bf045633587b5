/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/lib/memory_net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

static void (*hook_before)(struct memory_pair *pair);
static void (*hook_idle)(void);
static const char *peer_name = "memory";
static struct mc_stream waiting;	/* the accepting end of a connection that nothing has accepted */

struct memory_end {
	struct memory_pair *pair;
	struct memory_pipe *in, *out;
};

void memory_net_hooks(void (*before)(struct memory_pair *pair), void (*idle)(void))
{
	hook_before = before;
	hook_idle = idle;
}

void memory_net_name(const char *name)
{
	peer_name = name;
}

void memory_pipe_put(struct memory_pipe *p, const void *data, size_t len)
{
	if (p->mute || !len)
		return;
	if (p->len + len > p->room) {
		p->room = 2 * (p->len + len);
		p->bytes = realloc(p->bytes, p->room);
		if (!p->bytes)
			abort();
	}
	memcpy(p->bytes + p->len, data, len);
	if (p->flip_at >= p->len && p->flip_at < p->len + len)
		p->bytes[p->flip_at] ^= 1;
	p->len += len;
}

static struct memory_end *end_of(const struct mc_stream *s)
{
	return s->state;
}

static ssize_t end_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct memory_pipe *p = end_of(s)->out;
	size_t taken = 0;

	if (p->ended)
		return mc_fail(-EPIPE, "%s", mc_strerror(EPIPE));
	for (; n; iov++, n--) {
		size_t room = p->limit - (p->len - p->read), part = iov->iov_len < room ? iov->iov_len : room;

		memory_pipe_put(p, iov->iov_base, part);
		taken += part;
		if (part < iov->iov_len)
			return taken ? (ssize_t)taken : -EAGAIN;
	}
	return (ssize_t)taken;
}

static size_t end_none(const struct mc_stream *s)
{
	return 0;
}

/* Bytes that can be read. */
static size_t pipe_ready(const struct memory_pipe *p)
{
	size_t end = p->len < p->cut_at ? p->len : p->cut_at;

	return end > p->read ? end - p->read : 0;
}

static int end_peek(struct mc_stream *s)
{
	const struct memory_pipe *p = end_of(s)->in;

	if (pipe_ready(p))
		return 1;
	return p->ended || p->read >= p->cut_at ? 0 : -EAGAIN;
}

static ssize_t end_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct memory_pipe *p = end_of(s)->in;
	size_t got = 0;

	if (end_peek(s) <= 0)
		return end_peek(s);
	for (; n; iov++, n--) {
		size_t part = pipe_ready(p);

		part = part < iov->iov_len ? part : iov->iov_len;
		if (part)
			memcpy(iov->iov_base, p->bytes + p->read, part);
		p->read += part;
		got += part;
	}
	return (ssize_t)got;
}

static int end_events(struct mc_stream *s, short events)
{
	const struct memory_pipe *out = end_of(s)->out;
	int got = end_peek(s) != -EAGAIN ? POLLIN : 0;

	if (out->len - out->read < out->limit)
		got |= POLLOUT;
	return got & events;
}

static int end_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	if (!end_events(s, events) && hook_idle)
		hook_idle();
	return end_events(s, events);
}

static void end_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	*ret = (struct mc_stream_peer){ .local = false };
	snprintf(ret->name, sizeof(ret->name), "%s", peer_name);
}

static void end_tune(struct mc_stream *s, const struct mc_stream_tuning *t)
{
}

static void end_shutdown(struct mc_stream *s, int how)
{
	end_of(s)->out->ended = true;
	if (how == SHUT_RDWR)
		end_of(s)->in->ended = true;
}

static void end_reset(struct mc_stream *s)
{
	end_shutdown(s, SHUT_RDWR);
}

static void end_close(struct mc_stream *s)
{
	struct memory_end *e = end_of(s);

	end_shutdown(s, SHUT_RDWR);
	if (!--e->pair->ends) {
		free(e->pair->up.bytes);
		free(e->pair->down.bytes);
		free(e->pair);
	}
	free(e);
}

static void end_make(struct memory_pair *pair, struct memory_pipe *in, struct memory_pipe *out, struct mc_stream *ret)
{
	static const struct mc_stream_ops ops = {
		.send = end_send, .repeat = end_none, .recv = end_recv, .peek = end_peek, .pending = end_none,
		.wait = end_wait, .peer = end_peer, .tune = end_tune, .shutdown = end_shutdown, .reset = end_reset,
		.close = end_close,
	};
	struct memory_end *e = malloc(sizeof(*e));

	if (!e)
		abort();
	*e = (struct memory_end){ .pair = pair, .in = in, .out = out };
	*ret = (struct mc_stream){ .ops = &ops, .fd = -1, .state = e };
	pair->ends++;
}

struct memory_pair *memory_pair_make(struct mc_stream *ret_connecting, struct mc_stream *ret_accepting)
{
	const struct memory_pipe empty = { .limit = SIZE_MAX, .flip_at = MEMORY_NOWHERE, .cut_at = MEMORY_NOWHERE };
	struct memory_pair *pair = malloc(sizeof(*pair));

	if (!pair)
		abort();
	*pair = (struct memory_pair){ .up = empty, .down = empty };
	end_make(pair, &pair->down, &pair->up, ret_connecting);
	end_make(pair, &pair->up, &pair->down, ret_accepting);
	return pair;
}

static int net_connect(const struct mc_net *n, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	struct memory_pair *pair;

	mc_stream_close(&waiting);
	pair = memory_pair_make(ret, &waiting);
	if (hook_before)
		hook_before(pair);
	return 0;
}

static int listener_accept(struct mc_listener *l, struct mc_stream *ret)
{
	if (!waiting.ops)
		return -EAGAIN;
	*ret = waiting;
	waiting.ops = NULL;
	return 0;
}

static int listener_wait(struct mc_listener *l, uint64_t deadline)
{
	return waiting.ops != NULL;
}

static void listener_close(struct mc_listener *l)
{
	mc_stream_close(&waiting);
}

static int net_listen(const struct mc_net *n, const char *addr, int backlog, struct mc_listener *ret)
{
	static const struct mc_listener_ops ops = {
		.accept = listener_accept, .wait = listener_wait, .close = listener_close,
	};

	*ret = (struct mc_listener){ .ops = &ops, .fd = -1 };
	snprintf(ret->addr, sizeof(ret->addr), "%s", addr);
	return 0;
}

const struct mc_net *memory_net(void)
{
	static const struct mc_net_ops ops = { .connect = net_connect, .listen = net_listen };
	static const struct mc_net net = { .ops = &ops };

	return &net;
}
