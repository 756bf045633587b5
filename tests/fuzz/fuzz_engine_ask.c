/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_ask.c - an engine whose peer answers with arbitrary bytes: each request ends, the
 * engine writes only to the request's memory, and not after the request has ended.  The first byte
 * selects the protocol and the requests, see the enum.  In the other bytes "REQIDREQ" is replaced
 * by the id of the first request. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "engine/mce.h"
#include "engine/tcp/tcp_wire.h"
#include "engine/upstream/upstream_wire.h"
#include "tests/lib/transfer.h"

#define LEN 4096u
#define GUARD 4096u
#define INPUT 65536u
/* Deadline of a request without an answer. */
#define LIMIT_MS 30

enum {
	ASK_WRITE = 0x01,
	ASK_UPSTREAM = 0x02,	/* its protocol, */
	ASK_VERSION_2 = 0x04,	/* of this version */
	ASK_GREETING = 0x08,	/* our protocol: the input contains the greeting too */
	ASK_ACK_UPTO = 0x10,	/* our protocol: the peer has this feature */
	ASK_STAYS = 0x20,	/* the peer sends no more bytes, and does not close */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mce_engine *e;
static char addr[MC_ADDR_MAX];
static int listener, port;
static uint8_t mem[GUARD + LEN + GUARD];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static uint8_t script[INPUT], mode;
static size_t script_len;

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* ---- the peer ---- */

/* Send or receive all @n bytes; false when the connection ends before. */
static bool move(int fd, uint8_t *p, size_t n, bool out)
{
	struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };

	while (n) {
		ssize_t k = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);

		if (k == 0 || (k < 0 && errno != EAGAIN))
			return false;
		p += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
		if (k < 0 && poll(&pfd, 1, 20000) <= 0)
			return false;
	}
	return true;
}

static bool greet(int fd, uint8_t how)
{
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .len_max = 1 << 20, .window = 256,
		.id = { .nonce = { 1, 2, 3 } },
		.features = how & ASK_ACK_UPTO ? MCE_FEATURE_ACK_UPTO : 0,
	};
	uint8_t b[MCE_GREETING_SIZE];

	if (!move(fd, b, sizeof(b), false))
		return false;
	mce_greeting_pack(b, &g);
	return (how & ASK_GREETING) || move(fd, b, sizeof(b), true);
}

static void fill_in(uint8_t *p, size_t size, uint64_t id)
{
	for (size_t i = 0; i + 8 <= size; i++)
		if (!memcmp(p + i, "REQIDREQ", 8)) {
			mce_put64(p + i, id);
			i += 7;
		}
}

static bool asked(int fd, uint8_t how, uint64_t *ret_id)
{
	uint8_t b[MCE_REQ_SIZE];
	struct mce_wire_req q;

	*ret_id = 0;
	if (how & ASK_UPSTREAM)
		return move(fd, b, MCE_UP_REQ_SIZE, false);
	if (!greet(fd, how))
		return false;
	if (how & ASK_GREETING)
		return true;
	/* A connection left from the previous input may use the other protocol. */
	if (!move(fd, b, sizeof(b), false) || mce_req_unpack(b, sizeof(b), &q) != MCE_REQ_SIZE)
		return false;
	*ret_id = q.id;
	return true;
}

static void answer(int fd)
{
	static uint8_t bytes[INPUT];
	uint8_t how, c[LEN];
	uint64_t id;
	size_t n;

	pthread_mutex_lock(&lock);
	memcpy(bytes, script, script_len);
	n = script_len;
	how = mode;
	pthread_mutex_unlock(&lock);
	if (!asked(fd, how, &id))
		return;
	fill_in(bytes, n, id);
	if (!move(fd, bytes, n, true))
		return;
	if (!(how & ASK_STAYS))
		shutdown(fd, SHUT_WR);
	while (move(fd, c, 1, false))
		;
}

static void *peer_main(void *arg)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };
	int fd;

	for (;;) {
		poll(&pfd, 1, -1);
		fd = mc_socket_accept(listener);
		if (fd < 0)
			continue;
		answer(fd);
		close(fd);
	}
	return NULL;
}

static void begin(void)
{
	struct mce_conf conf = {
		.conns = 1, .force_tcp = true, .progress_timeout_ms = 20000, .status_timeout_ms = 20000,
	};
	char host[MC_ADDR_MAX];
	pthread_t thread;

	(void)mc_log_open(&(struct mc_log_conf){ .program = "fuzz", .levels = "err" });
	listener = mc_socket_listen("127.0.0.1:0", 64, 0, addr);
	check(listener >= 0 && mc_addr_split(addr, host, sizeof(host), -1, &port) == 0);
	check(pthread_create(&thread, NULL, peer_main, NULL) == 0);
	check(mce_engine_open(&conf, &e) == 0);
}

/* ---- the requesting side ---- */

static void check_guards(void)
{
	for (unsigned i = 0; i < GUARD; i++)
		check(mem[i] == 0xa5 && mem[GUARD + LEN + i] == 0xa5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iovec iov = { mem + GUARD, LEN };
	struct mce_req req = { .addr = 4096, .rkey = 1, .iov = &iov, .iovcnt = 1 };
	struct mce_peer *peer;
	uint8_t how;
	int r;

	if (!e)
		begin();
	if (size == 0 || size > INPUT)
		return 0;
	how = data[0];
	pthread_mutex_lock(&lock);
	mode = how;
	script_len = size - 1;
	memcpy(script, data + 1, size - 1);
	pthread_mutex_unlock(&lock);
	memset(mem, 0xa5, sizeof(mem));
	if (how & ASK_UPSTREAM)
		r = mce_peer_get_upstream(e, "127.0.0.1", port, how & ASK_VERSION_2 ? 2 : 1, &peer);
	else
		r = mce_peer_get(e, addr, &peer);
	check(r == 0);
	req.op = how & ASK_WRITE ? MCE_WRITE : MCE_READ;
	req.peer = peer;
	r = mce_transfer(e, &req, mc_deadline_ms(LIMIT_MS));
	check(r <= 0);
	/* A WRITE must not change its source, whatever the peer sends. */
	for (unsigned i = 0; (how & ASK_WRITE) && i < LEN; i++)
		check(mem[GUARD + i] == 0xa5);
	/* The memory belongs to the caller again. */
	memset(mem + GUARD, 0x5a, LEN);
	mce_peer_put(peer);
	for (unsigned i = 0; i < LEN; i++)
		check(mem[GUARD + i] == 0x5a);
	check_guards();
	return 0;
}
