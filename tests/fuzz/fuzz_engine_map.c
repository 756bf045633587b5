/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_map.c - packets with descriptors between engines of one machine.  Input: packets of u8 options, u8
 * length, bytes.  Options:
 *	0x07 number of descriptors
 *	0x38 kind of the first: pipe, empty memfd, memfd, sealed memfd, hazard page, directory; the others are the pipe
 *	0x40 the receiver takes no descriptor
 *	0x80 to a running owner; of these packets the first has to be a HELLO, and "RKEYRKEY" becomes its region's key
 *
 * A received message is the bytes that were sent, and survives sending.  No copy of the pipe stays open after any
 * packet, and only a sealed memfd is safe to map.  The owner sends valid messages, and serves a well-behaved mapper. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "engine/mce.h"
#include "engine/shm/map_wire.h"
#include "engine/tcp/tcp_wire.h"

#define TOKEN 4711u
#define LEN 65536u
#define FDS_MAX 7u
#define CHECK_EVERY 64
#define LIMIT_MS 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { PIPE, EMPTY, PLAIN, SEALED, HAZARDS, DIRECTORY, KINDS };

static int kinds[KINDS], pair[2];
static struct mce_engine *e;
static struct mce_mr *mr;
static struct mce_greeting owner;	/* what the owner said */
static int greeted;			/* the connection with TOKEN */

/* Much of this happens in another thread, so an input that failed may not fail again: name the check. */
static void check_at(bool ok, int line)
{
	if (ok)
		return;
	fprintf(stderr, "check in line %d failed: %m\n", line);
	abort();
}
#define check(ok) check_at(ok, __LINE__)

static int memory(size_t len, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(fd >= 0 && ftruncate(fd, (off_t)len) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void greet(void)
{
	/* A connection replaces an older one with its token. */
	static uint32_t epoch;
	struct mce_greeting g = { .version = 1, .version_min = 1, .token = TOKEN, .epoch = ++epoch };
	struct pollfd p = { .events = POLLIN };
	uint8_t bytes[MCE_GREETING_SIZE];
	size_t n = 0;

	p.fd = greeted = mc_socket_connect(mce_engine_endpoint(e), mc_deadline_ms(LIMIT_MS));
	mce_greeting_pack(bytes, &g);
	check(greeted >= 0 && send(greeted, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes));
	while (n < sizeof(bytes)) {
		ssize_t k = recv(greeted, bytes + n, sizeof(bytes) - n, 0);

		check(k > 0 || (k < 0 && errno == EAGAIN));
		n += k > 0 ? (size_t)k : 0;
		if (k < 0)
			(void)poll(&p, 1, LIMIT_MS);
	}
	check(mce_greeting_unpack(bytes, sizeof(bytes), &owner) > 0);
}

static void begin(void)
{
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	const struct mce_conf conf = { .progress_timeout_ms = 600000 };
	struct mce_mr_attr attr = { .len = LEN, .access = MCE_ACCESS_READ };

	check(mc_log_open(&quiet) >= 0);
	kinds[EMPTY] = memory(0, 0);
	kinds[PLAIN] = memory(LEN, 0);
	kinds[SEALED] = memory(LEN, F_SEAL_SHRINK);
	kinds[HAZARDS] = memory(MCE_HAZARD_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
	kinds[DIRECTORY] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	check(mce_engine_open(&conf, &e) == 0);
	attr.fd = memory(LEN, F_SEAL_SHRINK);
	attr.base = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, attr.fd, 0);
	check(attr.base != MAP_FAILED && mce_mr_register(e, &attr, &mr) == 0);
	greet();
}

/* ---- packets ---- */

struct packet {
	uint8_t options, len, bytes[255];
};

static bool packet_next(const uint8_t **p, const uint8_t *end, struct packet *ret)
{
	static const char key[8] = "RKEYRKEY";
	uint64_t rkey = mce_mr_rkey(mr);

	if (end - *p < 2)
		return false;
	ret->options = *(*p)++;
	ret->len = *(*p)++;
	if (ret->len > end - *p)
		ret->len = (uint8_t)(end - *p);
	memcpy(ret->bytes, *p, ret->len);
	*p += ret->len;
	for (unsigned i = 0; i + sizeof(key) <= ret->len; i++)
		if (!memcmp(ret->bytes + i, key, sizeof(key)))
			memcpy(ret->bytes + i, &rkey, sizeof(rkey));
	return true;
}

/* A full socket, or one that the receiver has closed, drops the packet. */
static void packet_send(int sock, const struct packet *p)
{
	union {
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = { .buf = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)p->bytes, p->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	unsigned n = p->options & 7u;
	int fds[FDS_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = kinds[i ? PIPE : p->options / 8 % 8 % KINDS];
	if (n) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	(void)sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the wire ---- */

static void wire(const struct packet *p)
{
	struct mce_map_msg m, again;
	int fd = -1, r;

	packet_send(pair[0], p);
	r = mce_map_recv(pair[1], &m, p->options & 0x40 ? NULL : &fd);
	if (r < 0) {
		check(fd == -1);
		/* One packet was received, or none when it was not sent. */
		check(recv(pair[1], &m, sizeof(m), MSG_DONTWAIT) < 0);
		return;
	}
	check(p->len >= sizeof(m) && !memcmp(&m, p->bytes, sizeof(m)) && (fd < 0 || p->options & 7));
	check(mce_map_send(pair[0], &m, fd) == 0);
	if (fd >= 0) {
		bool sealed = mce_map_is_sealed(fd);
		unsigned kind = p->options / 8 % 8 % KINDS;

		check(sealed == (kind == SEALED || kind == HAZARDS));
		close(fd);
	}
	r = mce_map_recv(pair[1], &again, &fd);
	check(r == 0 && !memcmp(&m, &again, sizeof(m)));
	if (fd >= 0)
		close(fd);
}

/* ---- the owner ---- */

static int dial(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char name[MC_ADDR_MAX];

	mce_map_address(owner.id.nonce, name);
	memcpy(sa.sun_path + 1, name, strlen(name));
	check(fd >= 0 && connect(fd, (struct sockaddr *)&sa,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0);
	return fd;
}

/* The owner's next message; false: it has closed the connection. */
static bool hear(int sock, struct mce_map_msg *ret)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int fd = -1, r;

	for (;;) {
		r = mce_map_recv(sock, ret, &fd);
		if (r != -EAGAIN)
			break;
		if (poll(&p, 1, LIMIT_MS) <= 0)
			check(errno == EINTR);
	}
	if (fd >= 0)
		close(fd);
	check(r == 0 || r == -ECONNRESET || r == -EPIPE);
	return r == 0;
}

/* A mapper that has just connected: the owner may get its HELLO before the greeting of its other connection. */
static void good_mapper(void)
{
	const struct mce_map_msg hello = { .version = 1, .type = MCE_MAP_HELLO, .rkey = TOKEN };
	uint64_t deadline = mc_deadline_ms(LIMIT_MS);
	struct mce_map_msg m;
	int sock;

	close(greeted);
	greet();
	for (;;) {
		sock = dial();
		check(mce_map_send(sock, &hello, -1) == 0);
		if (hear(sock, &m))
			break;
		check(mc_now_ns() < deadline);
		close(sock);
	}
	check(m.type == MCE_MAP_WELCOME);
	m = (struct mce_map_msg){ .version = 1, .type = MCE_MAP_FETCH, .rkey = mce_mr_rkey(mr) };
	check(mce_map_send(sock, &m, -1) == 0 && hear(sock, &m) && m.type == MCE_MAP_REGION && m.len == LEN);
	close(sock);
}

static void to_owner(const uint8_t *data, size_t size)
{
	const uint8_t *at = data, *end = data + size;
	struct mce_map_msg m;
	struct packet p;
	int sock = -1;

	while (packet_next(&at, end, &p)) {
		if (!(p.options & 0x80))
			continue;
		if (sock < 0)
			sock = dial();
		packet_send(sock, &p);
	}
	if (sock < 0)
		return;
	shutdown(sock, SHUT_WR);
	while (hear(sock, &m))
		check(m.type == MCE_MAP_WELCOME || m.type == MCE_MAP_REGION);
	close(sock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at = data, *end = data + size;
	static unsigned inputs;
	struct pollfd hangup = { .events = POLLIN };
	struct packet p;
	int ends[2];

	if (!e)
		begin();
	check(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	kinds[PIPE] = ends[1];
	while (packet_next(&at, end, &p))
		if (!(p.options & 0x80))
			wire(&p);
	to_owner(data, size);
	close(ends[1]);
	/* The owner's end of the connection may be on its way out. */
	hangup.fd = ends[0];
	while (poll(&hangup, 1, LIMIT_MS) <= 0)
		check(errno == EINTR);
	check(hangup.revents == POLLHUP);
	close(ends[0]);
	if (++inputs % CHECK_EVERY == 0)
		good_mapper();
	return 0;
}
