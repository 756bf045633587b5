/* SPDX-License-Identifier: Apache-2.0
 * handshake_conn.c - one connection of the handshake daemon: receive a frame, send the conn_answer_text, then
 * wait until the peer closes, because a reset could destroy the conn_answer_text. */
#include <config.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "engine/upstream/handshake_i.h"

#define LOG "handshake"
#define CONNS_MAX 256
#define SILENCE_NS (5 * MC_NS_PER_SEC)
#define TOTAL_NS (60 * MC_NS_PER_SEC)
#define FIRST_SIZE 4096u
#define HELD_MIN (64u << 20)	/* limit for the buffers of all connections, if larger than two frames */
#define SWALLOW_MAX (1u << 20)	/* bytes after the frame that are discarded before the connection is closed */

MC_COUNTER(answered, "mooncake_engine_handshakes_total", "", "Handshakes answered");
MC_COUNTER(refused, "mooncake_engine_handshakes_refused_total", "",
	   "Handshake connections closed without an answer");

enum state { READING, WRITING, LINGERING };

struct conn {
	struct mce_handshake *h;
	struct mc_evfd ev;
	struct mc_evtimer timer;
	struct mc_list link;
	enum state state;
	uint64_t end_ns;	/* deadline of the connection */
	uint8_t head[MCE_HANDSHAKE_HEAD];
	size_t head_len;
	uint8_t *buf;		/* the body, later the conn_answer_text; size bytes and a NUL */
	size_t size, len, at;
	uint64_t need;		/* the body's length */
	size_t swallowed;
};

static void conn_hold(struct conn *c, size_t size)
{
	c->h->held = c->h->held - c->size + size;
	c->size = size;
}

static void conn_free(struct conn *c)
{
	conn_hold(c, 0);
	c->h->nconns--;
	mc_list_remove(&c->link);
	close(c->ev.fd);
	free(c->buf);
	free(c);
}

static void conn_close(struct conn *c)
{
	if (c->state != LINGERING)
		mc_metric_add(&refused, 1);
	mc_evtimer_disarm(c->h->loop, &c->timer);
	mc_evloop_del(c->h->loop, &c->ev);
	conn_free(c);
}

static void conn_silent(struct mc_evtimer *t)
{
	struct conn *c = mc_container_of(t, struct conn, timer);
	char name[MC_ADDR_MAX];

	if (c->state != LINGERING)
		mc_warn(LOG, "a peer is too slow, connection closed peer=%s", mc_socket_peer(c->ev.fd, name));
	conn_close(c);
}

/* Bytes were transferred: restart the silence timer, at most up to end_ns. */
static void conn_progress(struct conn *c)
{
	uint64_t due = mc_now_ns() + SILENCE_NS;

	mc_evtimer_arm(c->h->loop, &c->timer, due < c->end_ns ? due : c->end_ns);
	mc_list_remove(&c->link);
	mc_list_push_back(&c->h->conns, &c->link);
}

/* ---- answers ----------------------------------------------------------------------------------- */

static int conn_answer_notify(const struct mce_handshake *h, const char *text, size_t len, char **ret_text)
{
	const char *name, *msg;
	json_t *o;
	int r;

	o = json_loadb(text, len, 0, NULL);
	name = json_string_value(json_object_get(o, "name"));
	msg = json_string_value(json_object_get(o, "notify_msg"));
	r = name && msg ? 0 : mc_fail(-MC_EPROTO, "handshake: not a notification");
	if (r == 0)
		r = h->conf.notify ? h->conf.notify(h->conf.arg, name, msg) : -MC_ENOTSUP;
	json_decref(o);
	if (r < 0)
		return r;
	*ret_text = strdup("{\"name\":\"\",\"notify_msg\":\"success\"}\n");
	return *ret_text ? 0 : -ENOMEM;
}

static int conn_answer_setup(const struct mce_handshake *h, const char *text, size_t len, char **ret_text)
{
	if (h->conf.connection)
		return h->conf.connection(h->conf.arg, text, len, ret_text);
	*ret_text = strdup("{\"reply_msg\":\"this node has no RDMA, use TCP\"}\n");
	return *ret_text ? 0 : -ENOMEM;
}

static int conn_answer_text(const struct mce_handshake *h, unsigned type, const char *text, size_t len,
			    char **ret_text)
{
	switch (type) {
	case MCE_HANDSHAKE_METADATA:
		return h->conf.metadata ? h->conf.metadata(h->conf.arg, text, len, ret_text) :
					  -MC_ENOTSUP;
	case MCE_HANDSHAKE_NOTIFY:
		return conn_answer_notify(h, text, len, ret_text);
	case MCE_HANDSHAKE_PROBE:
		*ret_text = strdup("{\"status\":\"success\"}\n");
		return *ret_text ? 0 : -ENOMEM;
	default:
		return conn_answer_setup(h, text, len, ret_text);
	}
}

/* The body is complete: replace it by the conn_answer_text. */
static int conn_answer(struct conn *c)
{
	uint8_t *frame = NULL;
	char *text = NULL;
	unsigned type = 0;
	size_t at = 0, len = 0;
	int r;

	c->buf[c->len] = '\0';
	r = mce_handshake_parse(c->buf, c->len, &type, &at);
	if (r == 0)
		r = conn_answer_text(c->h, type, (char *)c->buf + at, c->len - at, &text);
	if (r == 0)
		r = mce_handshake_frame(type, text, &frame, &len);
	free(text);
	if (r < 0)
		return r;
	free(c->buf);
	c->buf = frame;
	conn_hold(c, len);
	c->len = len;
	c->at = 0;
	c->state = WRITING;
	return 0;
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static int conn_write(struct conn *c)
{
	ssize_t n;

	while (c->at < c->len) {
		n = send(c->ev.fd, c->buf + c->at, c->len - c->at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return mc_evloop_mod(c->h->loop, &c->ev, EPOLLOUT);
		if (n < 0)
			return -errno;
		c->at += (size_t)n;
		conn_progress(c);
	}
	mc_metric_add(&answered, 1);
	c->state = LINGERING;
	free(c->buf);
	c->buf = NULL;
	conn_hold(c, 0);
	shutdown(c->ev.fd, SHUT_WR);
	return mc_evloop_mod(c->h->loop, &c->ev, EPOLLIN);
}

/* Enlarge the buffer.  Memory grows with the received bytes, not with the announced length. */
static int conn_grow(struct conn *c)
{
	size_t held_max = c->h->max_len * 2 > HELD_MIN ? c->h->max_len * 2 : HELD_MIN;
	size_t size = c->size ? c->size * 2 : FIRST_SIZE;
	uint8_t *buf;

	if (size > c->need)
		size = (size_t)c->need;
	if (c->h->held - c->size + size > held_max)
		return mc_fail(-MC_ELIMIT, "handshakes use too much memory: %zu bytes", c->h->held);
	buf = realloc(c->buf, size + 1);
	if (!buf)
		return -ENOMEM;
	c->buf = buf;
	conn_hold(c, size);
	return 0;
}

static int conn_head_done(struct conn *c)
{
	c->need = 0;
	for (unsigned i = 0; i < MCE_HANDSHAKE_HEAD; i++)
		c->need |= (uint64_t)c->head[i] << 8 * i;
	if (c->need == 0 || c->need > c->h->max_len)
		return mc_fail(-MC_EPROTO, "not a handshake: length %llu, limit %zu",
			       (unsigned long long)c->need, c->h->max_len);
	return conn_grow(c);
}

/* One recv() into the head or the body; after the frame bytes are discarded. */
static ssize_t conn_recv(struct conn *c)
{
	char nowhere[4096];

	if (c->state == LINGERING)
		return recv(c->ev.fd, nowhere, sizeof(nowhere), MSG_DONTWAIT);
	if (c->head_len < sizeof(c->head))
		return recv(c->ev.fd, c->head + c->head_len, sizeof(c->head) - c->head_len, MSG_DONTWAIT);
	return recv(c->ev.fd, c->buf + c->len, c->size - c->len, MSG_DONTWAIT);
}

/* Account for @n received bytes.  1: the frame is complete. */
static int conn_received(struct conn *c, size_t n)
{
	if (c->state == LINGERING) {
		c->swallowed += n;
		return c->swallowed > SWALLOW_MAX ? -MC_ELIMIT : 0;
	}
	if (c->head_len < sizeof(c->head)) {
		c->head_len += n;
		return c->head_len < sizeof(c->head) ? 0 : conn_head_done(c);
	}
	c->len += n;
	if (c->len == c->need)
		return 1;
	return c->len == c->size ? conn_grow(c) : 0;
}

/* 0: wait for more bytes; 1: the frame is complete; negative: close the connection. */
static int conn_read(struct conn *c)
{
	ssize_t n;
	int r;

	for (;;) {
		n = conn_recv(c);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		r = conn_received(c, (size_t)n);
		if (r)
			return r;
		conn_progress(c);
	}
}

static void conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct conn *c = mc_container_of(e, struct conn, ev);
	char name[MC_ADDR_MAX];
	int r = 0;

	if (c->state != WRITING)
		r = conn_read(c);
	if (r == 1)
		r = conn_answer(c);
	if (r == 0 && c->state == WRITING)
		r = conn_write(c);
	if (r == 0)
		return;
	if (c->state != LINGERING && r != -ECONNRESET)
		mc_warn(LOG, "closing the connection: %s peer=%s", mc_err_detail(r),
			mc_socket_peer(c->ev.fd, name));
	conn_close(c);
}

void mce_handshake_accept(struct mce_handshake *h, int fd)
{
	struct conn *c;

	if (h->nconns >= CONNS_MAX)
		conn_close(mc_list_first(&h->conns, struct conn, link));
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		return;
	}
	c->h = h;
	c->ev.fd = fd;
	c->ev.ready = conn_ready;
	c->timer.fire = conn_silent;
	c->end_ns = mc_now_ns() + TOTAL_NS;
	mc_list_push_back(&h->conns, &c->link);
	h->nconns++;
	if (mc_evloop_add(h->loop, &c->ev, EPOLLIN) < 0) {
		conn_free(c);
		return;
	}
	conn_progress(c);
}

void mce_handshake_drop_all(struct mce_handshake *h)
{
	while (!mc_list_empty(&h->conns))
		conn_free(mc_list_first(&h->conns, struct conn, link));
}
