/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/test_proto_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/fault.h"

struct fixture fx;

static int exist(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	static __thread uint8_t present[MCP_BATCH_MAX];
	struct mcp_exist_reply reply;
	struct mcp_exist rq;
	struct mcp_iter it;
	struct mcp_key key;
	uint32_t n = 0;
	int r;

	r = mcp_decode(&mcp_desc_exist, body, len, &rq);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &rq.keys, &mcp_desc_key);
	while (mcp_iter_next(&it, &key))
		present[n++] = key.key.len && *(const char *)key.key.data == 'y';
	reply.present = mcp_bytes(present, n);
	return mcp_answer(a, &mcp_desc_exist_reply, &reply);
}

static int rename_(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	struct mcp_rename_reply reply;
	uintptr_t number = (uintptr_t)mcp_session_get(s) + 1;
	struct mcp_rename rq;
	int r;

	r = mcp_decode(&mcp_desc_rename, body, len, &rq);
	if (r < 0)
		return r;
	if (rq.from.len == 4 && !memcmp(rq.from.data, "slow", 4))
		MC_FAULT_POINT("test.slow");
	if (rq.from.len == 4 && !memcmp(rq.from.data, "gate", 4))
		for (uint64_t end = mc_deadline_ms(20000); !fx.gate && mc_now_ns() < end;)
			usleep(1000);
	mcp_session_set(s, (void *)number);
	reply.generation = number;
	return mcp_answer(a, &mcp_desc_rename_reply, &reply);
}

static int list(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	struct mcp_list_reply reply = { 0 };
	struct mcp_list rq;
	char *text;
	int r;

	r = mcp_decode(&mcp_desc_list, body, len, &rq);
	if (r < 0)
		return r;
	text = malloc(rq.limit + 1u);
	assert_non_null(text);
	memset(text, 'c', rq.limit);
	reply.cursor = mcp_bytes(text, rq.limit);
	r = mcp_answer(a, &mcp_desc_list_reply, &reply);
	free(text);
	return r;
}

static int remove_match(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
			void *arg)
{
	struct mcp_remove_match_reply reply = { 0 };

	/* An error is returned to the client even after an answer. */
	assert_int_equal(mcp_answer(a, &mcp_desc_remove_match_reply, &reply), 0);
	assert_int_equal(mcp_answer(a, &mcp_desc_remove_match_reply, &reply), -MC_EPARAM);
	return mc_fail(-MC_ENOOBJECT, "nothing matches");
}

static int unmount(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	return 0;
}

static int release(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	struct mcp_release rq;
	struct mcp_iter it;
	struct mcp_pin pin;
	int r;

	r = mcp_decode(&mcp_desc_release, body, len, &rq);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &rq.pins, &mcp_desc_pin);
	while (mcp_iter_next(&it, &pin))
		fx.pins += (long)pin.pin;
	return 0;
}

static int stats(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	struct mcp_stats_reply reply = { .objects = (uint64_t)fx.pins };

	return mcp_answer(a, &mcp_desc_stats_reply, &reply);
}

static int heartbeat(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		     void *arg)
{
	struct mcp_heartbeat_reply reply = { 0 };
	struct mcp_heartbeat rq;
	int r;

	r = mcp_decode(&mcp_desc_heartbeat, body, len, &rq);
	if (r < 0)
		return r;
	fx.heartbeats++;
	reply.reattach = rq.sequence & 1;
	return mcp_answer(a, &mcp_desc_heartbeat_reply, &reply);
}

static int fixture_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg)
{
	if (fx.peer_roles)
		ret->roles = fx.peer_roles;
	return 0;
}

static const struct mcp_handler handlers[] = {
	{ MCP_EXIST, exist },
	{ MCP_RENAME, rename_ },
	{ MCP_LIST, list },
	{ MCP_REMOVE_MATCH, remove_match },
	{ MCP_UNMOUNT, unmount },
	{ MCP_RELEASE, release },
	{ MCP_STATS, stats },
	{ MCP_HEARTBEAT, heartbeat },
	{ 0, NULL }
};

static const uint16_t any_channel[] = { MCP_RENAME, MCP_RELEASE, MCP_HEARTBEAT, 0 };

static int opened(struct mcp_session *s, void *arg)
{
	struct fixture *f = arg;

	if (f->opened_result < 0)
		return f->opened_result;
	f->opened++;
	return 0;
}

static void closed(struct mcp_session *s, void *arg)
{
	struct fixture *f = arg;

	f->closed++;
}

void fixture_start(struct fixture *f, void (*change)(struct mcp_server_conf *conf))
{
	const char *addrs[3] = { "127.0.0.1:0", f->path, NULL };
	struct mcp_server_conf conf = {
		.net = test_net(), .addrs = addrs, .local_name = "test", .identify = fixture_identify,
		.loops = 2, .tcp_nodelay = true,
		.software = "fixture", .handlers = handlers, .opened = opened, .closed = closed,
		.any_channel = any_channel, .arg = f,
	};
	int r;

	memset(f, 0, sizeof(*f));
	strcpy(f->dir, "/tmp/mc-proto-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "unix:%s/sock", f->dir);
	if (change)
		change(&conf);
	r = mcp_server_start(&conf, &f->server);
	if (r < 0)
		fail_msg("server: %s", mc_err_detail(r));
	f->tcp = mcp_server_addr(f->server, 0);
}

void fixture_stop(struct fixture *f)
{
	mcp_server_stop(f->server);
	/* This also checks that the server has removed its socket. */
	assert_int_equal(rmdir(f->dir), 0);
}

struct mcp_client *fixture_client(const char *addr)
{
	struct mcp_client_conf conf = {
		.net = test_net(), .addrs = addr ? addr : fx.tcp, .client = { 1, 2 }, .software = "test",
	};
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	return c;
}

int64_t fixture_rename(struct mcp_client *c, const char *from, int64_t ms)
{
	struct mcp_rename rq = { .from = mcp_bytes(from, strlen(from)) };
	struct mcp_reply mem = { 0 };
	struct mcp_rename_reply reply;
	int r;

	r = mcp_call(c, MCP_RENAME, &rq, &reply, &mem, mc_deadline_ms(ms));
	mcp_reply_done(&mem);
	return r < 0 ? r : (int64_t)reply.generation;
}

void fixture_wait(const atomic_long *value, long want)
{
	uint64_t end = mc_deadline_ms(10000);

	while (*value != want && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(*value, want);
}

/* ---- raw frames ---- */

static struct mc_stream *raw_new(const struct mc_stream *s)
{
	struct mc_stream *raw = malloc(sizeof(*raw));

	assert_non_null(raw);
	*raw = *s;
	return raw;
}

struct mc_stream *raw_connect(const char *addr)
{
	struct mc_stream s;
	int r = mc_net_connect(test_net(), addr, mc_deadline_ms(10000), &s);

	if (r < 0)
		fail_msg("connect: %s", mc_err_detail(r));
	return raw_new(&s);
}

struct mc_stream *raw_accept(struct mc_listener *l)
{
	struct mc_stream s;

	assert_int_equal(mc_listener_accept(l, &s), 0);
	return raw_new(&s);
}

void raw_close(struct mc_stream *raw)
{
	mc_stream_close(raw);
	free(raw);
}

static void raw_wait(struct mc_stream *raw, short events)
{
	if (mc_stream_wait(raw, events, mc_deadline_ms(10000)) <= 0)
		fail_msg("the peer does not go on");
}

void raw_send(struct mc_stream *raw, const void *data, size_t len)
{
	struct iovec left = { (void *)(uintptr_t)data, len };

	while (left.iov_len) {
		ssize_t n = mc_stream_send(raw, &left, 1);

		if (n > 0) {
			left.iov_base = (char *)left.iov_base + n;
			left.iov_len -= (size_t)n;
		} else if (n == -EAGAIN) {
			raw_wait(raw, POLLOUT);
		} else {
			return;		/* closed: the test sees it with its next read */
		}
	}
}

bool raw_recv(struct mc_stream *raw, void *data, size_t len)
{
	struct iovec left = { data, len };

	while (left.iov_len) {
		ssize_t n = mc_stream_recv(raw, &left, 1);

		if (n > 0) {
			left.iov_base = (char *)left.iov_base + n;
			left.iov_len -= (size_t)n;
		} else if (n == -EAGAIN) {
			raw_wait(raw, POLLIN);
		} else {
			return false;
		}
	}
	return true;
}

void raw_send_frame(struct mc_stream *raw, struct mcp_frame f, const struct mcp_desc *d, const void *msg)
{
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_frame_append(&b, f, d, msg), 0);
	raw_send(raw, b.data, b.len);
	mcp_buf_free(&b);
}

bool raw_recv_frame(struct mc_stream *raw, struct mcp_frame *ret, const uint8_t **ret_body)
{
	static __thread uint8_t body[1 << 20];
	uint8_t header[MCP_FRAME_HEADER];

	if (!raw_recv(raw, header, sizeof(header)))
		return false;
	assert_int_equal(mcp_frame_unpack(header, sizeof(body), ret), 0);
	if (ret_body)
		*ret_body = body;
	return raw_recv(raw, body, ret->length);
}

void raw_hello_fill(struct mcp_hello *hello, enum mcp_channel channel)
{
	*hello = (struct mcp_hello){
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.lane = (uint8_t)channel,
	};
}

struct mc_stream *raw_hello(const char *addr, enum mcp_channel channel)
{
	struct mc_stream *raw = raw_connect(addr);
	struct mcp_hello hello;
	struct mcp_frame f;

	raw_hello_fill(&hello, channel);
	raw_send_frame(raw, (struct mcp_frame){ .type = MCP_HELLO, .id = 4711 }, &mcp_desc_hello, &hello);
	assert_true(raw_recv_frame(raw, &f, NULL));
	assert_int_equal(f.type, MCP_HELLO);
	assert_int_equal(f.flags, MCP_FRAME_REPLY);
	assert_int_equal(f.id, 4711);
	assert_int_equal(f.status, 0);
	return raw;
}
