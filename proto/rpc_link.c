/* SPDX-License-Identifier: Apache-2.0
 * rpc_link.c - one connection of a client: sending, receiving, failure. */
#include <config.h>

#include "proto/rpc_client_i.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "proto/codec_i.h"
#include "proto/rpc_i.h"

#define LOCAL_PREFIX "local:"
#define RX_MIN (64u << 10)
/* A receive buffer that a very large reply made larger than this is freed. */
#define RX_KEEP (1u << 20)
/* How long a sender without the reader's role waits before it checks again whether another thread
 * still reads: the server may take no more requests before its replies are read. */
#define ROLE_CHECK_NS (2 * MC_NS_PER_MS)
/* A spin that received nothing halves the next one, down to spin_us / SPIN_SHRINK. */
#define SPIN_SHRINK 32
#define SPIN_YIELD 8

/* ---- life ---- */

int mcp_link_new(struct mcp_client *c, const char *addr, uint64_t deadline, struct mcp_link **ret)
{
	struct mcp_link *l;
	int r;

	l = calloc(1, sizeof(*l));
	if (!l)
		return mc_fail(-ENOMEM, "no memory for a connection");
	l->client = c;
	l->refs = 1;
	l->max_frame = MCP_FRAME_MAX;
	l->spin_ns = c->spin_max_ns;
	l->active_ms = mc_now_ms();
	strncpy(l->peer, addr, sizeof(l->peer) - 1);
	mc_list_init(&l->waiters);
	mc_mutex_init(&l->send_lock);
	if (!strncmp(addr, LOCAL_PREFIX, strlen(LOCAL_PREFIX)))
		r = mcp_local_open(addr + strlen(LOCAL_PREFIX), &l->local);
	else
		r = mc_net_connect(c->conf.net, addr, deadline, &l->stream);
	if (r < 0) {
		mcp_link_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void mcp_link_free(struct mcp_link *l)
{
	if (!l)
		return;
	if (l->local)
		mcp_local_close(l->local);
	mc_stream_close(&l->stream);
	mcp_buf_free(&l->rx);
	mcp_buf_free(&l->ahead);
	mcp_buf_free(&l->unsent);
	mc_mutex_destroy(&l->send_lock);
	free(l);
}

struct mcp_link *mcp_link_unref_locked(struct mcp_link *l)
{
	return --l->refs ? NULL : l;
}

void mcp_link_unref(struct mcp_link *l)
{
	struct mcp_client *c = l->client;

	mc_mutex_lock(&c->lock);
	l = mcp_link_unref_locked(l);
	mc_mutex_unlock(&c->lock);
	mcp_link_free(l);
}

void mcp_link_fail_locked(struct mcp_link *l, const char *why)
{
	struct mcp_client *c = l->client;

	if (l->dead)
		return;
	l->dead = true;
	strncpy(l->why, why, sizeof(l->why) - 1);
	/* Not closed yet: other threads may be using the stream. */
	if (!l->local)
		mc_stream_shutdown(&l->stream, SHUT_RDWR);
	for (unsigned i = 0; i < c->slot_count; i++)
		if (c->slots[i]->link == l)
			mcp_slot_done_locked(c->slots[i], -MC_ERPC);
}

void mcp_link_fail(struct mcp_link *l, const char *why)
{
	mc_mutex_lock(&l->client->lock);
	mcp_link_fail_locked(l, why);
	mc_mutex_unlock(&l->client->lock);
}

bool mcp_link_is_stale(struct mcp_link *l)
{
	int r;

	if (l->local)
		return !mcp_local_up(l->local);
	r = mc_stream_peek(&l->stream);
	return r <= 0 && r != -EAGAIN;
}

bool mcp_link_is_over(struct mcp_link *l)
{
	if (l->local)
		return !mcp_local_up(l->local);
	return mc_stream_wait(&l->stream, POLLRDHUP, 0) > 0;
}

static int link_lost(struct mcp_link *l)
{
	char why[sizeof(l->why)];

	mc_mutex_lock(&l->client->lock);
	memcpy(why, l->why, sizeof(why));
	mc_mutex_unlock(&l->client->lock);
	return mc_fail(-MC_ERPC, "connection to %s lost: %s", l->peer, why);
}

/* ---- reading ---- */

/* Deliver the complete frames in @rx and move the rest to the front.  NULL, or the reason why the
 * link has to fail. */
static const char *link_dispatch(struct mcp_link *l)
{
	struct mcp_client *c = l->client;
	struct mcp_frame f;
	size_t at = 0;

	while (l->rx.len - at >= MCP_FRAME_HEADER) {
		void *body = NULL;

		if (mcp_frame_unpack(l->rx.data + at, c->conf.max_frame, &f) < 0 ||
		    !(f.flags & MCP_FRAME_REPLY))
			return "malformed frame";
		if (l->rx.len - at - MCP_FRAME_HEADER < f.length)
			break;
		if (f.length) {
			body = malloc(f.length);
			if (!body)
				return "no memory for a reply";
			memcpy(body, l->rx.data + at + MCP_FRAME_HEADER, f.length);
		}
		if (mcp_client_reply(c, l, &f, body) < 0)
			return "reply of another type than its request";
		at += MCP_FRAME_HEADER + f.length;
	}
	if (at) {
		l->rx.len -= at;
		memmove(l->rx.data, l->rx.data + at, l->rx.len);
		if (!l->rx.len && l->rx.cap > RX_KEEP)
			mcp_buf_free(&l->rx);
	}
	return NULL;
}

/* Reserve space for the rest of the frame that has begun, but at most as much again as has been
 * received: a header alone must not cause a large allocation. */
static int link_reserve(struct mcp_buf *rx)
{
	size_t whole, more = RX_MIN;

	if (rx->len >= MCP_FRAME_HEADER) {
		whole = MCP_FRAME_HEADER + (size_t)mcp_get_u32(rx->data);
		more = whole - rx->len;
		if (more > rx->len && more > RX_MIN)
			more = rx->len > RX_MIN ? rx->len : RX_MIN;
	}
	return mcp_buf_reserve(rx, more);
}

/* Receive once without waiting.  Bytes; 0: none have arrived; negative: the link has failed. */
static ssize_t link_receive(struct mcp_link *l)
{
	const char *wrong = NULL;
	struct iovec iov;
	ssize_t n;

	if (link_reserve(&l->rx) < 0) {
		mcp_link_fail(l, "no memory for a reply");
		return -MC_ERPC;
	}
	iov = (struct iovec){ l->rx.data + l->rx.len, l->rx.cap - l->rx.len };
	n = mc_stream_recv(&l->stream, &iov, 1);
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		wrong = mc_err_detail((int)n);
	else if (n == 0)
		wrong = "closed by the server";
	else
		l->rx.len += (size_t)n;
	if (!wrong)
		wrong = link_dispatch(l);
	if (!wrong)
		return n;
	mcp_link_fail(l, wrong);
	return -MC_ERPC;
}

/* Receive again and again without sleeping: a wake-up takes longer than most replies. */
static ssize_t link_spin(struct mcp_link *l, uint64_t deadline)
{
	uint64_t now = mc_now_ns(), until = now + l->spin_ns;
	ssize_t n;

	if (until > deadline)
		until = deadline;
	for (unsigned i = 1; now < until; i++) {
		n = link_receive(l);
		if (n) {
			l->spin_ns = l->client->spin_max_ns;
			return n;
		}
		/* The server may be waiting for this processor. */
		if (i % SPIN_YIELD == 0)
			mc_thread_yield();
		now = mc_now_ns();
	}
	if (l->spin_ns > l->client->spin_max_ns / SPIN_SHRINK)
		l->spin_ns /= 2;
	return 0;
}

void mcp_link_read(struct mcp_link *l, short events, uint64_t deadline)
{
	uint64_t from;
	int r;

	if (link_receive(l))
		return;
	if (events == POLLIN && l->spin_ns && link_spin(l, deadline))
		return;
	from = l->spin_ns ? mc_now_ns() : 0;
	r = mc_stream_wait(&l->stream, events, deadline);
	if (r <= 0)
		return;
	if (l->spin_ns && mc_now_ns() - from < l->client->spin_max_ns)
		l->spin_ns = l->client->spin_max_ns;
	if (r & ~POLLOUT)
		link_receive(l);
}

void mcp_link_offer_locked(struct mcp_link *l)
{
	if (!l->reading && !mc_list_empty(&l->waiters))
		mc_cond_signal(&mc_list_first(&l->waiters, struct mcp_slot, waiter)->cond);
}

/* ---- sending ---- */

/* The socket is full: wait until it is writable, and read replies meanwhile unless another thread
 * does: the server may take no more requests before its replies are read. */
static void link_wait_writable(struct mcp_link *l, uint64_t deadline)
{
	struct mcp_client *c = l->client;
	uint64_t check;
	bool role;

	mc_mutex_lock(&c->lock);
	role = !l->reading;
	l->reading = true;
	mc_mutex_unlock(&c->lock);
	if (!role) {
		check = mc_now_ns() + ROLE_CHECK_NS;
		(void)mc_stream_wait(&l->stream, POLLOUT, check < deadline ? check : deadline);
		return;
	}
	mcp_link_read(l, POLLIN | POLLOUT, deadline);
	mc_mutex_lock(&c->lock);
	l->reading = false;
	mcp_link_offer_locked(l);
	mc_mutex_unlock(&c->lock);
}

/* Send all of @iov.  0, -MC_ETIMEDOUT with the unsent rest in @iov, -MC_ERPC. */
static int link_send_all(struct mcp_link *l, struct iovec iov[2], uint64_t deadline)
{
	ssize_t n;

	while (iov[0].iov_len + iov[1].iov_len) {
		n = mc_stream_send(&l->stream, iov, 2);
		if (n == -EAGAIN) {
			if (mc_now_ns() >= deadline)
				return -MC_ETIMEDOUT;
			link_wait_writable(l, deadline);
			continue;
		}
		if (n < 0) {
			mcp_link_fail(l, mc_err_detail((int)n));
			return -MC_ERPC;
		}
		for (int i = 0; i < 2; i++) {
			size_t part = (size_t)n < iov[i].iov_len ? (size_t)n : iov[i].iov_len;

			/* An empty iovec may have no address to add to. */
			if (!part)
				continue;
			iov[i].iov_base = (char *)iov[i].iov_base + part;
			iov[i].iov_len -= part;
			n -= (ssize_t)part;
		}
	}
	return 0;
}

static int link_append(struct mcp_buf *b, const struct iovec *iov)
{
	int r = mcp_buf_reserve(b, iov->iov_len);

	if (r < 0)
		return r;
	if (iov->iov_len)
		memcpy(b->data + b->len, iov->iov_base, iov->iov_len);
	b->len += iov->iov_len;
	return 0;
}

/* Send the rest of the frame whose sender timed out: the server has received the beginning of it. */
static int link_send_unsent(struct mcp_link *l, uint64_t deadline)
{
	struct iovec iov[2] = { { l->unsent.data, l->unsent.len }, { NULL, 0 } };
	int r;

	if (!l->unsent.len)
		return 0;
	r = link_send_all(l, iov, deadline);
	memmove(l->unsent.data, iov[0].iov_base, iov[0].iov_len);
	l->unsent.len = iov[0].iov_len;
	if (!l->unsent.len)
		mcp_buf_free(&l->unsent);
	return r;
}

/* Timed out: keep the one-way frames, because the hook has passed them on, and the request if a
 * part of it has been sent. */
static int link_keep_unsent(struct mcp_link *l, const struct iovec iov[2], size_t len)
{
	bool begun = iov[1].iov_len < len || mc_stream_repeat(&l->stream) > iov[0].iov_len;
	int r = link_append(&l->unsent, &iov[0]);

	if (r == 0 && begun)
		r = link_append(&l->unsent, &iov[1]);
	if (r < 0)
		mcp_link_fail(l, "no memory for the rest of a request");
	return r;
}

static int link_send_stream(struct mcp_link *l, const struct mcp_buf *frames, uint64_t deadline)
{
	struct iovec iov[2];
	int r;

	iov[0] = (struct iovec){ l->ahead.data, l->ahead.len };
	iov[1] = (struct iovec){ frames->data, frames->len };
	r = link_send_all(l, iov, deadline);
	if (r == -MC_ETIMEDOUT && link_keep_unsent(l, iov, frames->len) < 0)
		return -MC_ERPC;
	return r;
}

static int link_send_local(struct mcp_link *l, const struct mcp_buf *frames, uint64_t deadline)
{
	const char *wrong;
	int r = 0;

	if (l->ahead.len)
		r = mcp_local_exchange(l->local, &l->ahead, &l->rx, deadline);
	if (r == 0)
		r = mcp_local_exchange(l->local, frames, &l->rx, deadline);
	if (r == -MC_ERPC || r == -ENOMEM) {
		mcp_link_fail(l, "the server has stopped");
		return -MC_ERPC;
	}
	wrong = link_dispatch(l);
	if (wrong) {
		mcp_link_fail(l, wrong);
		return -MC_ERPC;
	}
	return r;
}

static int link_send_locked(struct mcp_link *l, const struct mcp_buf *frames, bool ahead, uint64_t deadline)
{
	const struct mcp_client_conf *conf = &l->client->conf;
	int r;

	if (l->dead)
		return -MC_ERPC;
	if (mc_fault("rpc.send") < 0) {
		mcp_link_fail(l, "fault rpc.send");
		return -MC_ERPC;
	}
	r = link_send_unsent(l, deadline);
	if (r < 0)
		return r;
	mcp_buf_reset(&l->ahead);
	if (ahead && conf->piggyback)
		conf->piggyback(&l->ahead, conf->arg);
	return l->local ? link_send_local(l, frames, deadline) : link_send_stream(l, frames, deadline);
}

int mcp_link_send(struct mcp_link *l, const struct mcp_buf *frames, bool ahead, uint64_t deadline)
{
	int r;

	if (mc_mutex_lock_until(&l->send_lock, deadline) < 0)
		return mc_fail(-MC_ETIMEDOUT, "deadline exceeded, an earlier request is still running");
	r = link_send_locked(l, frames, ahead, deadline);
	mc_mutex_unlock(&l->send_lock);
	if (r == -MC_ERPC)
		return link_lost(l);
	if (r == -MC_ETIMEDOUT)
		return mc_fail(r, "deadline exceeded, %s does not take more requests", l->peer);
	return r;
}
