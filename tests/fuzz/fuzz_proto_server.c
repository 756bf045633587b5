/* SPDX-License-Identifier: Apache-2.0
 * fuzz_proto_server.c - a running server that receives any bytes.  Input: options, then the bytes to send.
 *	0x01 send a valid hello first
 *	0x02 on the heartbeat channel
 *	0x04 send in two pieces
 *
 * The server must send whole frames only, or an alert after the beginning of a TLS handshake, end the connection, and
 * serve a well-behaved client in between. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"
#include "tests/unit/test_proto_dump.h"

#define CHECK_EVERY 256
#define MAX_REPLY (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every message has a handler that decodes and reads it, and answers with zeros. */
static int handle(uint16_t type, const void *body, size_t len, struct mcp_answer *a)
{
	static FILE *null;
	uint64_t msg[128] = { 0 };
	const struct mcp_desc *reply = mcp_desc_of(type, true);
	int r = mcp_decode(mcp_desc_of(type, false), body, len, msg);

	if (r < 0)
		return r;
	if (!null)
		null = fopen("/dev/null", "w");
	if (null)
		mcp_dump(mcp_desc_of(type, false), msg, UINT32_MAX, null);
	memset(msg, 0, sizeof(msg));
	return reply ? mcp_answer(a, reply, msg) : 0;
}

#define MCP_MESSAGE(NAME, name, num, roles) \
	static int handle_##name(struct mcp_session *s, const void *body, size_t len, \
				 struct mcp_answer *a, void *arg) \
	{ \
		return handle(num, body, len, a); \
	}
#include "proto/msg_each.h"

static const struct mcp_handler all[] = {
#define MCP_MESSAGE(NAME, name, num, roles) { num, handle_##name },
#include "proto/msg_each.h"
	{ 0, NULL }
};

static const uint16_t any_channel[] = { MCP_HEARTBEAT, MCP_REGISTER, MCP_STATS, 0 };

static char address[64];
static struct mcp_client *good;
static struct mcp_server *server;	/* for all inputs; LeakSanitizer looks for its memory from here */

static void start(void)
{
	const char *addrs[] = { address, NULL };
	struct mcp_server_conf conf = {
		.addrs = addrs, .loops = 1, .max_frame = 65536, .hello_timeout_ms = 5000,
		.handlers = all + 1,	/* without the hello, which the server handles itself */
		.any_channel = any_channel,
	};
	struct mcp_client_conf client = { .addrs = address };

	mc_log_open(&(struct mc_log_conf){ .program = "fuzz", .levels = "err" });
	snprintf(address, sizeof(address), "unix:@mc-fuzz-%d", (int)getpid());
	if (all[0].type != MCP_HELLO || mcp_server_start(&conf, &server) < 0 ||
	    mcp_client_open(&client, &good) < 0)
		abort();
}

/* libFuzzer's own signals may interrupt poll(). */
static bool waited(struct pollfd *p)
{
	int r;

	do {
		r = poll(p, 1, 10000);
	} while (r < 0 && errno == EINTR);
	return r == 1;
}

static void send_bytes(int fd, const uint8_t *p, size_t len)
{
	struct pollfd poller = { .fd = fd, .events = POLLOUT };

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN) {
			return;		/* the server has closed */
		} else if (!waited(&poller)) {
			abort();
		}
	}
}

/* Receive until the server closes. */
static size_t receive_all(int fd, uint8_t *buf)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	size_t len = 0;

	for (;;) {
		ssize_t n = recv(fd, buf + len, MAX_REPLY - len, 0);

		if (n > 0)
			len += (size_t)n;
		else if (n == 0 || errno != EAGAIN)
			return len;
		else if (!waited(&poller))
			abort();
	}
}

static void check_frames(const uint8_t *p, size_t len)
{
	struct mcp_frame f;

	while (len) {
		if (len < MCP_FRAME_HEADER || mcp_frame_unpack(p, MCP_FRAME_MAX, &f) < 0 ||
		    f.flags != MCP_FRAME_REPLY || f.length > len - MCP_FRAME_HEADER ||
		    (f.status && f.length))
			abort();
		p += MCP_FRAME_HEADER + f.length;
		len -= MCP_FRAME_HEADER + f.length;
	}
}

/* A client with a credential at a server without security gets the reason from its own library. */
static bool is_alert(const uint8_t *p, size_t len)
{
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, 70 };

	return len == sizeof(alert) && !memcmp(p, alert, len);
}

static void say_hello(int fd, enum mcp_channel channel)
{
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.lane = (uint8_t)channel,
	};
	struct mcp_buf b = { 0 };

	if (mcp_frame_append(&b, (struct mcp_frame){ .type = MCP_HELLO }, &mcp_desc_hello, &hello) < 0)
		abort();
	send_bytes(fd, b.data, b.len);
	mcp_buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t buf[MAX_REPLY];
	static unsigned inputs;
	struct mcp_stats_reply stats;
	size_t first, len;
	int fd;

	if (!good)
		start();
	if (!size)
		return 0;
	fd = mc_socket_connect(address, mc_deadline_ms(10000));
	if (fd < 0)
		abort();
	if (data[0] & 1)
		say_hello(fd, data[0] & 2 ? MCP_CHANNEL_HEARTBEAT : MCP_CHANNEL_CONTROL);
	first = data[0] & 4 ? (size - 1) / 2 : 0;
	send_bytes(fd, data + 1, first);
	send_bytes(fd, data + 1 + first, size - 1 - first);
	shutdown(fd, SHUT_WR);
	len = receive_all(fd, buf);
	if ((data[0] & 1) || size < 3 || data[1] != 22 || data[2] != 3 || !is_alert(buf, len))
		check_frames(buf, len);
	close(fd);
	if (++inputs % CHECK_EVERY == 0 &&
	    mcp_call(good, MCP_STATS, &(struct mcp_stats){ 0 }, &stats, NULL, mc_deadline_ms(10000)))
		abort();
	return 0;
}
