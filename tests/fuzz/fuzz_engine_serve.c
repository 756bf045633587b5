/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_serve.c - an engine that receives any bytes over TCP: it stays alive, serves other
 * peers, and changes nothing outside the one writable region.  So that inputs pass the checks, the
 * eight bytes "WKEYWKEY" or "RKEYRKEY" are replaced by the key of the writable or the readable
 * region, and "WADR" or "RADR", with the offset in the low half, by an address.  Built once more
 * with FUZZ_UPSTREAM, for the port of upstream's protocol. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/net/socket.h"
#include "engine/mce.h"
#include "engine/tcp/tcp_wire.h"
#include "tests/lib/transfer.h"

#ifndef FUZZ_UPSTREAM
#define FUZZ_UPSTREAM 0
#endif

#define PART 65536u
#define INPUT 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* guard, writable region, guard, readable region, guard */
static uint8_t *mem;
static struct mce_engine *e;
static struct mce_mr *writable, *readable;

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void begin(void)
{
	struct mce_conf conf = { .progress_timeout_ms = 5000, .upstream = FUZZ_UPSTREAM };
	struct mce_mr_attr attr = { .len = PART, .fd = -1 };

	mem = mmap(NULL, 5 * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(mem != MAP_FAILED);
	memset(mem, 0xa5, 5 * PART);
	check(mce_engine_open(&conf, &e) == 0);
	attr.base = mem + PART;
	attr.access = MCE_ACCESS_WRITE;
	check(mce_mr_register(e, &attr, &writable) == 0);
	attr.base = mem + 3 * PART;
	attr.access = MCE_ACCESS_READ;
	check(mce_mr_register(e, &attr, &readable) == 0);
}

static void fill_in(uint8_t *p, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i++) {
		if (!memcmp(p + i, "WKEYWKEY", 8))
			mce_put64(p + i, mce_mr_rkey(writable));
		else if (!memcmp(p + i, "RKEYRKEY", 8))
			mce_put64(p + i, mce_mr_rkey(readable));
		else if (!memcmp(p + i + 4, "WADR", 4))
			mce_put64(p + i, (uintptr_t)(mem + PART) + mce_get32(p + i));
		else if (!memcmp(p + i + 4, "RADR", 4))
			mce_put64(p + i, (uintptr_t)(mem + 3 * PART) + mce_get32(p + i));
		else
			continue;
		i += 7;
	}
}

static int dial(void)
{
	char addr[MC_ADDR_MAX];
	int fd;

	snprintf(addr, sizeof(addr), "127.0.0.1:%d", mce_engine_upstream_port(e));
	fd = mc_socket_connect(FUZZ_UPSTREAM ? addr : mce_engine_endpoint(e), mc_deadline_ms(5000));
	check(fd >= 0);
	return fd;
}

/* Send all bytes and read answers until the engine has closed the connection. */
static void converse(int fd, const uint8_t *p, size_t size)
{
	static uint8_t answer[65536];
	struct pollfd pfd = { .fd = fd };
	ssize_t n;

	for (;;) {
		pfd.events = size ? POLLIN | POLLOUT : POLLIN;
		check(poll(&pfd, 1, 20000) > 0);
		if (size && (pfd.revents & POLLOUT)) {
			n = send(fd, p, size, MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN)
				return;
			p += n > 0 ? n : 0;
			size -= n > 0 ? (size_t)n : 0;
			if (size == 0)
				shutdown(fd, SHUT_WR);
		}
		n = recv(fd, answer, sizeof(answer), 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return;
	}
}

static void check_guards(void)
{
	static uint8_t same[PART];

	memset(same, 0xa5, PART);
	check(!memcmp(mem, same, PART) && !memcmp(mem + 2 * PART, same, PART) &&
	      !memcmp(mem + 3 * PART, same, PART) && !memcmp(mem + 4 * PART, same, PART));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[INPUT];
	static unsigned runs;
	struct mce_peer *peer;
	int fd;

	if (!e)
		begin();
	if (size == 0 || size > INPUT)
		return 0;
	memcpy(bytes, data, size);
	fill_in(bytes, size);
	fd = dial();
	converse(fd, bytes, size);
	close(fd);
	check_guards();
	if (++runs % 64 == 0) {
		struct mce_conf conf = { .force_tcp = true };
		struct iovec iov = { bytes, 16 };
		struct mce_req req = { .op = MCE_READ, .iov = &iov, .iovcnt = 1 };
		struct mce_engine *other;

		check(mce_engine_open(&conf, &other) == 0);
		check(mce_peer_get(other, mce_engine_endpoint(e), &peer) == 0);
		req.peer = peer;
		req.addr = (uintptr_t)(mem + 3 * PART);
		req.rkey = mce_mr_rkey(readable);
		check(mce_transfer(other, &req, mc_deadline_ms(10000)) == 0);
		mce_peer_put(peer);
		mce_engine_close(other);
	}
	return 0;
}
