/* SPDX-License-Identifier: Apache-2.0
 * handshake_call.c - client of the handshake daemon: connect, send one frame, receive one. */
#include <config.h>

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "common/env.h"
#include "engine/upstream/handshake_i.h"

#define FIRST_SIZE 4096u

struct call {
	const char *addr;
	int fd;
	uint64_t deadline;
};

static int call_wait(const struct call *c, short events)
{
	struct pollfd p = { .fd = c->fd, .events = events };
	int n;

	for (;;) {
		n = poll(&p, 1, mc_deadline_left_ms(c->deadline));
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && mc_deadline_left_ms(c->deadline) == 0)
			return mc_fail(-ETIMEDOUT, "handshake with %s: no answer in time", c->addr);
	}
}

static int call_failed(const struct call *c, int err)
{
	return mc_fail(err, "handshake with %s: %s", c->addr, mc_strerror(err));
}

static int call_send(const struct call *c, const uint8_t *p, size_t len)
{
	ssize_t n;

	for (; len; p += n, len -= (size_t)n) {
		n = mc_socket_send(c->fd, p, len);
		if (n < 0 && n != -EAGAIN)
			return call_failed(c, (int)n);
		n = n < 0 ? call_wait(c, POLLOUT) : n;
		if (n < 0)
			return (int)n;
	}
	return 0;
}

static int call_recv(const struct call *c, uint8_t *p, size_t len)
{
	ssize_t n;

	for (; len; p += n, len -= (size_t)n) {
		n = mc_socket_recv(c->fd, p, len);
		if (n == 0)
			return mc_fail(-ECONNRESET, "handshake with %s: closed without an answer", c->addr);
		if (n < 0 && n != -EAGAIN)
			return call_failed(c, (int)n);
		n = n < 0 ? call_wait(c, POLLIN) : n;
		if (n < 0)
			return (int)n;
	}
	return 0;
}

/* Receive the body of a frame and append a NUL.  Memory grows with the received bytes, not with the announced
 * length. */
static int call_recv_body(const struct call *c, uint64_t need, uint8_t **ret)
{
	size_t size = 0, next;
	uint8_t *buf = NULL, *more;
	int r = 0;

	while (r == 0 && size < need) {
		next = size ? size * 2 : FIRST_SIZE;
		if (next > need)
			next = (size_t)need;
		more = realloc(buf, next + 1);
		if (!more) {
			free(buf);
			return mc_fail(-ENOMEM, "no memory for a handshake");
		}
		buf = more;
		r = call_recv(c, buf + size, next - size);
		size = next;
	}
	if (r < 0) {
		free(buf);
		return r;
	}
	buf[need] = '\0';
	*ret = buf;
	return 0;
}

static int call_recv_reply(const struct call *c, enum mce_handshake_type asked, char **ret_reply)
{
	uint8_t head[MCE_HANDSHAKE_HEAD], *body = NULL;
	uint64_t need = 0;
	unsigned type;
	size_t at;
	int r;

	r = call_recv(c, head, sizeof(head));
	if (r < 0)
		return r;
	for (unsigned i = 0; i < MCE_HANDSHAKE_HEAD; i++)
		need |= (uint64_t)head[i] << 8 * i;
	if (need == 0 || need > mce_handshake_max())
		return mc_fail(-MC_EPROTO, "handshake with %s: answer of %llu bytes", c->addr,
			       (unsigned long long)need);
	r = call_recv_body(c, need, &body);
	if (r < 0)
		return r;
	r = mce_handshake_parse(body, (size_t)need, &type, &at);
	if (r == 0 && type != MCE_HANDSHAKE_LEGACY && type != (unsigned)asked)
		r = mc_fail(-MC_EPROTO, "handshake with %s: the answer has type %u instead of %u", c->addr, type,
			    (unsigned)asked);
	if (r == 0) {
		memmove(body, body + at, (size_t)need - at + 1);
		*ret_reply = (char *)body;
		return 0;
	}
	free(body);
	return r;
}

static int64_t connect_ms(void)
{
	return mc_env_int("MC_HANDSHAKE_CONNECT_TIMEOUT", 5, 1, 3599) * 1000;
}

int64_t mce_handshake_ask_ms(void)
{
	int64_t ms = connect_ms();

	return ms > MCE_HANDSHAKE_ANSWER_MS ? ms + MCE_HANDSHAKE_ANSWER_MS : MCE_HANDSHAKE_ANSWER_MS;
}

static uint64_t call_sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int call_connect(struct call *c, enum mce_handshake_type type)
{
	int64_t answer_ms = type == MCE_HANDSHAKE_CONNECTION ? MCE_HANDSHAKE_SETUP_MS : MCE_HANDSHAKE_ANSWER_MS;

	c->fd = mc_socket_connect(c->addr, call_sooner(c->deadline, mc_deadline_ms(connect_ms())));
	c->deadline = call_sooner(c->deadline, mc_deadline_ms(answer_ms));
	return c->fd < 0 ? c->fd : 0;
}

int mce_handshake_call(const char *host, int port, enum mce_handshake_type type, const char *json,
		       uint64_t deadline, char **ret_reply)
{
	auto_free uint8_t *frame = NULL;
	char addr[MC_ADDR_MAX];
	struct call c = { .addr = addr, .fd = -1, .deadline = deadline };
	auto_close int fd = -1;
	size_t len;
	int r;

	r = *host ? mc_addr_join(host, port, addr) : mc_fail(-EINVAL, "the host name is empty");
	if (r == 0)
		r = mce_handshake_frame((unsigned)type, json, &frame, &len);
	if (r == 0)
		r = call_connect(&c, type);
	if (r < 0)
		return r;
	fd = c.fd;
	r = call_send(&c, frame, len);
	return r < 0 ? r : call_recv_reply(&c, type, ret_reply);
}

/* Send a request; success if @member of the answer is "success". */
static int call_for_success(const char *host, int port, enum mce_handshake_type type,
			    const char *json, const char *member, uint64_t deadline)
{
	auto_free char *reply = NULL;
	const char *status;
	json_t *o;
	int r;

	r = mce_handshake_call(host, port, type, json, deadline, &reply);
	if (r < 0)
		return r;
	o = json_loads(reply, 0, NULL);
	status = json_string_value(json_object_get(o, member));
	if (!status || strcmp(status, "success"))
		r = mc_fail(-MC_EPROTO, "handshake with %s:%d: %s is %.64s", host, port, member,
			    status ? status : "missing");
	json_decref(o);
	return r;
}

int mce_handshake_notify(const char *host, int port, const char *name, const char *msg, uint64_t deadline)
{
	json_t *o = json_pack("{s:s, s:s}", "name", name, "notify_msg", msg);
	auto_free char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	if (!text)
		return mc_fail(-EINVAL, "the notification is not UTF-8");
	return call_for_success(host, port, MCE_HANDSHAKE_NOTIFY, text, "notify_msg", deadline);
}

int mce_handshake_probe(const char *host, int port, uint64_t deadline)
{
	return call_for_success(host, port, MCE_HANDSHAKE_PROBE, "{}\n", "status", deadline);
}
