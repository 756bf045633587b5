/* SPDX-License-Identifier: Apache-2.0
 * tcp_conn.c - TCP connections of upstream's clients: requests in, answers out. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "node/upstream/peer.h"
#include "node/upstream/upstream_i.h"

#define BUDGET 64		/* receives of one client before the loop serves the next client */

MC_GAUGE(nconns, "mooncake_node_upstream_connections", "", "TCP connections of upstream's clients")

static void conn_receive(struct mcn_up_conn *c);

static void conn_free(struct mcn_up_conn *c)
{
	mc_stream_close(&c->stream);
	mc_mutex_destroy(&c->send_lock);
	free(c->body);
	free(c);
}

static bool conn_charge_locked(struct mcn_up_conn *c, uint64_t len)
{
	if (len > MCN_UP_BYTES_MAX - c->up->bytes || len > MCN_UP_UID_BYTES_HELD - c->user->bytes)
		return false;
	c->up->bytes += len;
	c->user->bytes += len;
	return true;
}

static void conn_uncharge_locked(struct mcn_up_conn *c, uint64_t len)
{
	c->up->bytes -= len;
	c->user->bytes -= len;
}

static void out_drop(struct mcn_up_conn *c, struct mcn_up_out *o)
{
	mc_mutex_lock(&c->up->lock);
	conn_uncharge_locked(c, o->len);
	mc_mutex_unlock(&c->up->lock);
	mc_list_remove(&o->link);
	free(o->data);
	free(o);
}

void mcn_up_conn_unref(struct mcn_up_conn *c)
{
	struct mcn_up *up = c->up;
	bool last;

	mc_mutex_lock(&up->lock);
	last = !--c->refs;
	mc_mutex_unlock(&up->lock);
	if (!last)
		return;
	while (!mc_list_empty(&c->out))
		out_drop(c, mc_list_first(&c->out, struct mcn_up_out, link));
	mcn_up_user_leave(up, c->user, false);
	conn_free(c);
	mc_metric_add(&nconns, -1);
	mc_mutex_lock(&up->lock);
	up->nconns--;
	mc_cond_broadcast(&up->changed);
	mc_mutex_unlock(&up->lock);
}

/* ---- memory of requests ---- */

static bool conn_charge(struct mcn_up_conn *c, uint64_t len)
{
	struct mcn_up *up = c->up;
	bool fits;

	mc_mutex_lock(&up->lock);
	fits = conn_charge_locked(c, len);
	if (c->waits == fits)
		up->waiting += fits ? -1u : 1u;
	c->waits = !fits;
	mc_mutex_unlock(&up->lock);
	return fits;
}

/* ---- the end ---- */

void mcn_up_conn_close(struct mcn_up_conn *c)
{
	struct mcn_up *up = c->up;

	mc_evloop_del(up->loop, &c->ev);
	mc_list_remove(&c->link);
	mc_stream_shutdown(&c->stream, SHUT_RDWR);
	mc_mutex_lock(&up->lock);
	c->over = true;
	up->waiting -= c->waits;
	c->waits = false;
	if (c->body)
		conn_uncharge_locked(c, c->body_len);
	mc_mutex_unlock(&up->lock);
	mcn_up_conn_unref(c);
}

void mcn_up_conns_retry(void *arg)
{
	struct mcn_up *up = arg;
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &up->conns) {
		struct mcn_up_conn *c = mc_container_of(pos, struct mcn_up_conn, link);

		if (c->waits)
			conn_receive(c);
	}
}

/* ---- answers ---- */

static uint32_t conn_events(struct mcn_up_conn *c)
{
	bool reads, sends;

	mc_mutex_lock(&c->up->lock);
	reads = !c->waits && c->jobs < MCN_UP_CONN_JOBS;
	mc_mutex_unlock(&c->up->lock);
	mc_mutex_lock(&c->send_lock);
	sends = c->out_len > 0;
	reads = reads && c->out_len <= MCN_UP_OUT_PAUSE;
	mc_mutex_unlock(&c->send_lock);
	return (reads ? EPOLLIN : 0) | (sends ? EPOLLOUT : 0);
}

static void conn_watch(struct mcn_up_conn *c)
{
	uint32_t events = conn_events(c);

	if (events != c->ev.events)
		(void)mc_evloop_mod(c->up->loop, &c->ev, events);
}

/* A request that has been received already, and waits, causes no event. */
static void conn_continue(struct mcn_up_conn *c)
{
	conn_watch(c);
	if (c->ev.events & EPOLLIN)
		conn_receive(c);
}

void mcn_up_conn_tick(struct mcn_up_conn *c, uint64_t now)
{
	bool late;

	if (mc_stream_peek(&c->stream) == -EAGAIN)
		c->empty = now;
	/* While the daemon does not receive, the client is not to blame. */
	late = now > c->due && conn_events(c) & EPOLLIN;
	mc_mutex_lock(&c->send_lock);
	late = late || (c->out_len && now > mc_list_first(&c->out, struct mcn_up_out, link)->since +
			MCN_UP_CALL_MS * MC_NS_PER_MS);
	mc_mutex_unlock(&c->send_lock);
	if (!late) {
		/* A post that failed for lack of memory is made up for here. */
		if (conn_events(c) != c->ev.events)
			conn_continue(c);
		return;
	}
	mc_info("node", "upstream's client: a connection has made no progress");
	mcn_up_conn_close(c);
}

/* Loop. */
static void conn_resume(void *arg)
{
	struct mcn_up_conn *c = arg;

	if (!c->over)
		conn_continue(c);
	mcn_up_conn_unref(c);
}

/* Without memory for the post, the next tick continues. */
static void conn_post(struct mcn_up_conn *c)
{
	mc_mutex_lock(&c->up->lock);
	c->refs++;
	mc_mutex_unlock(&c->up->lock);
	if (mc_evloop_post(c->up->loop, conn_resume, c) < 0)
		mcn_up_conn_unref(c);
}

/* Keep an answer of which @at bytes were sent; the data is the connection's on success. */
static int out_keep_locked(struct mcn_up_conn *c, struct mcn_up_answer *a, size_t at)
{
	struct mcn_up_out *o;
	bool fits;

	if (a->len > MCN_UP_OUT_MAX - c->out_len)
		return mc_fail(-ENOBUFS, "a client does not read its answers");
	o = malloc(sizeof(*o));
	if (!o)
		return -ENOMEM;
	mc_mutex_lock(&c->up->lock);
	fits = conn_charge_locked(c, a->len);
	mc_mutex_unlock(&c->up->lock);
	if (!fits) {
		free(o);
		return mc_fail(-ENOBUFS, "clients of user %u do not read their answers", (unsigned)c->uid);
	}
	*o = (struct mcn_up_out){ .data = a->data, .len = a->len, .at = at, .since = mc_now_ns() };
	a->data = NULL;
	mc_list_push_back(&c->out, &o->link);
	c->out_len += o->len - at;
	return 0;
}

/* Returns 1 if bytes are left, which only the loop sends, and which it does not know of yet. */
static int conn_send(struct mcn_up_conn *c, struct mcn_up_answer *a)
{
	struct iovec iov = { a->data, a->len };
	bool first;
	ssize_t n = 0;
	int r = 0;

	mc_mutex_lock(&c->send_lock);
	first = !c->out_len;
	if (first)
		n = mc_stream_send(&c->stream, &iov, 1);
	if (n == -EAGAIN)
		n = 0;
	if (n < 0)
		r = (int)n;
	else if ((size_t)n < a->len)
		r = out_keep_locked(c, a, (size_t)n);
	r = r < 0 ? r : first && c->out_len;
	mc_mutex_unlock(&c->send_lock);
	return r;
}

void mcn_up_conn_answer(struct mcn_up_conn *c, struct mcn_up_answer *a, int err)
{
	if (err == 0)
		err = conn_send(c, a);
	/* The loop closes it. */
	if (err < 0)
		mc_stream_shutdown(&c->stream, SHUT_RDWR);
	else if (err > 0)
		conn_post(c);
	mcn_up_answer_done(a);
}

static int conn_flush(struct mcn_up_conn *c)
{
	ssize_t n = 1;

	mc_mutex_lock(&c->send_lock);
	while (c->out_len && n > 0) {
		struct mcn_up_out *o = mc_list_first(&c->out, struct mcn_up_out, link);
		struct iovec iov = { o->data + o->at, o->len - o->at };

		n = mc_stream_send(&c->stream, &iov, 1);
		if (n <= 0)
			break;
		o->at += (size_t)n;
		c->out_len -= (size_t)n;
		if (o->at == o->len)
			out_drop(c, o);
	}
	mc_mutex_unlock(&c->send_lock);
	return n == -EAGAIN || n > 0 ? 0 : (int)n;
}

void mcn_up_conn_job_done(struct mcn_up_conn *c, uint64_t bytes)
{
	struct mcn_up *up = c->up;
	bool resume, retry;

	mc_mutex_lock(&up->lock);
	conn_uncharge_locked(c, bytes);
	resume = c->jobs-- == MCN_UP_CONN_JOBS;
	retry = up->waiting > 0;
	mc_mutex_unlock(&up->lock);
	if (resume)
		conn_post(c);
	/* Which connection can continue, the loop finds out, without memory for the post at its next tick. */
	if (retry)
		(void)mc_evloop_post(up->loop, mcn_up_conns_retry, up);
	mcn_up_conn_unref(c);
}

/* ---- requests ---- */

/* The request is complete: carry it out here, or give it to a worker. */
static int conn_dispatch(struct mcn_up_conn *c)
{
	const struct mcn_up_call *call = mcn_up_call_find(c->head.function);
	struct mcn_up_job *job = NULL;
	struct mcn_up_answer a = { 0 };
	uint8_t *body = c->body;
	uint64_t deadline = c->due;
	int r;

	c->body = NULL;
	c->in_body = false;
	c->due = c->have ? c->sent + MCN_UP_CALL_MS * MC_NS_PER_MS : MC_NEVER;
	mc_mutex_lock(&c->up->lock);
	c->refs++;
	c->jobs++;
	mc_mutex_unlock(&c->up->lock);
	if (call && !call->quick) {
		job = malloc(sizeof(*job));
		if (!job) {
			free(body);
			mcn_up_conn_job_done(c, c->body_len);
			return -ENOMEM;
		}
		*job = (struct mcn_up_job){ .conn = c, .call = call, .sequence = c->head.sequence, .body = body,
					    .len = c->head.length, .charged = c->body_len,
					    .deadline = deadline };
		mcn_up_work_add(c->up, job);
		return 0;
	}
	mcn_up_work_run(c, call, deadline, body, c->head.length, &a);
	free(body);
	r = mcn_up_answer_end(&a, c->head.sequence);
	mcn_up_conn_answer(c, &a, r);
	mcn_up_conn_job_done(c, c->body_len);
	return 0;
}

/* Take @n bytes off the buffer. */
static void conn_consume(struct mcn_up_conn *c, size_t n)
{
	c->have -= n;
	memmove(c->in, c->in + n, c->have);
}

/* Leave out the bytes of a request that is too long; then it is answered. */
static void conn_skip(struct mcn_up_conn *c)
{
	size_t n = c->have < c->skip ? c->have : (size_t)c->skip;
	struct mcn_up_answer a = { 0 };
	int r;

	c->skip -= n;
	conn_consume(c, n);
	if (c->skip)
		return;
	c->skips = false;
	c->in_body = false;
	c->due = c->have ? c->sent + MCN_UP_CALL_MS * MC_NS_PER_MS : MC_NEVER;
	mcn_up_answer_fail(&a, MCN_UP_BAD_ARGUMENTS, "the request is too long");
	r = mcn_up_answer_end(&a, c->head.sequence);
	mcn_up_conn_answer(c, &a, r);
}

/* The head is complete.  1: the body's memory has to be waited for. */
static int conn_begin_body(struct mcn_up_conn *c)
{
	c->body_len = (size_t)c->head.length + c->head.attached;
	if (c->body_len > MCN_UP_FRAME_MAX) {
		mc_warn("node", "upstream's client: a request of %zu bytes, the limit is %llu user=%u", c->body_len,
			(unsigned long long)MCN_UP_FRAME_MAX, (unsigned)c->uid);
		c->skip = c->body_len;
		c->skips = true;
		return 0;
	}
	if (!conn_charge(c, c->body_len))
		return 1;
	c->body = malloc(c->body_len + 1);
	if (!c->body) {
		mc_mutex_lock(&c->up->lock);
		conn_uncharge_locked(c, c->body_len);
		mc_mutex_unlock(&c->up->lock);
		return -ENOMEM;
	}
	c->body_have = c->have < c->body_len ? c->have : c->body_len;
	memcpy(c->body, c->in, c->body_have);
	conn_consume(c, c->body_have);
	return 0;
}

static int conn_take_head(struct mcn_up_conn *c)
{
	int r = mcn_up_head_unpack(c->in, &c->head);

	if (r < 0)
		return r;
	conn_consume(c, MCN_UP_REQUEST_HEAD);
	c->in_body = true;
	return 0;
}

/* Take the requests in the buffer.  0: more bytes are needed; 1: the connection has to wait. */
static int conn_parse(struct mcn_up_conn *c)
{
	int r = 0;

	while (r == 0) {
		if (!(conn_events(c) & EPOLLIN) && !c->waits)
			return 1;
		if (!c->in_body) {
			if (c->have < MCN_UP_REQUEST_HEAD)
				return 0;
			r = conn_take_head(c);
		}
		if (r == 0 && !c->body && !c->skips)
			r = conn_begin_body(c);
		if (r == 0 && c->skips) {
			conn_skip(c);
			if (c->skips)
				return 0;
			continue;
		}
		if (r == 0 && c->body_have < c->body_len)
			return 0;
		if (r == 0)
			r = conn_dispatch(c);
	}
	return r;
}

/* Bytes received, 0: the client has closed; -EAGAIN: none.  Fewer than there is place for: no others have arrived. */
static ssize_t conn_recv(struct mcn_up_conn *c)
{
	struct iovec iov = { c->in + c->have, sizeof(c->in) - c->have };
	uint64_t now = mc_now_ns(), before = c->empty;
	ssize_t n;

	if (c->body)
		iov = (struct iovec){ c->body + c->body_have, c->body_len - c->body_have };
	else if (c->skip)
		iov = (struct iovec){ c->up->waste, c->skip < sizeof(c->up->waste) ? c->skip : sizeof(c->up->waste) };
	n = mc_stream_recv(&c->stream, &iov, 1);
	if (n == -EAGAIN || (n > 0 && (size_t)n < iov.iov_len))
		c->empty = now;
	if (n <= 0)
		return n;
	c->sent = before;
	if (c->body)
		c->body_have += (size_t)n;
	else if (c->skip)
		c->skip -= (size_t)n;
	else
		c->have += (size_t)n;
	if (c->due == MC_NEVER)
		c->due = before + MCN_UP_CALL_MS * MC_NS_PER_MS;
	return n;
}

static void conn_receive(struct mcn_up_conn *c)
{
	ssize_t n = 1;
	int r;

	/* A request that the last receive has completed causes no event any more, so it is taken too. */
	for (int i = 0; (r = conn_parse(c)) == 0 && n > 0 && i < BUDGET; i++)
		n = conn_recv(c);
	if (r >= 0 && (n > 0 || n == -EAGAIN)) {
		conn_watch(c);
		return;
	}
	if (r < 0 || n < 0)
		mc_debug("node", "upstream's client: connection ended: %s", mc_err_detail(r < 0 ? r : (int)n));
	mcn_up_conn_close(c);
}

static void conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcn_up_conn *c = mc_container_of(e, struct mcn_up_conn, ev);

	if ((events & EPOLLOUT) && conn_flush(c) < 0) {
		mcn_up_conn_close(c);
		return;
	}
	/* Requests may have waited until answers were read. */
	if (events & (EPOLLIN | EPOLLOUT) && conn_events(c) & EPOLLIN) {
		conn_receive(c);
		return;
	}
	if (events & (EPOLLERR | EPOLLHUP)) {
		mcn_up_conn_close(c);
		return;
	}
	conn_watch(c);
}

int mcn_up_conn_new(struct mcn_up *up, struct mc_stream *stream, uint64_t empty)
{
	struct mc_principal identity;
	struct mcn_up_conn *c;
	uid_t uid = 0;
	int r;

	r = mcn_up_peer_uid(stream, &uid);
	if (r == 0)
		r = mcn_identify(up->node, uid, &identity);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->user = mcn_up_user_enter(up, uid, false);
	if (!c->user) {
		free(c);
		return -ENOBUFS;
	}
	c->up = up;
	c->uid = uid;
	c->identity = identity;
	c->refs = 1;
	c->empty = empty;
	c->due = MC_NEVER;
	mc_list_init(&c->out);
	mc_mutex_init(&c->send_lock);
	c->stream = *stream;
	mc_evfd_stream(&c->ev, &c->stream);
	c->ev.ready = conn_ready;
	r = mc_evloop_add(up->loop, &c->ev, EPOLLIN);
	if (r < 0) {
		mcn_up_user_leave(up, c->user, false);
		c->stream.ops = NULL;
		conn_free(c);
		return r;
	}
	mc_list_push_back(&up->conns, &c->link);
	mc_mutex_lock(&up->lock);
	up->nconns++;
	mc_mutex_unlock(&up->lock);
	mc_metric_add(&nconns, 1);
	return 0;
}
