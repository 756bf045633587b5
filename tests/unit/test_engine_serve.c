/* SPDX-License-Identifier: Apache-2.0
 * test_engine_serve.c - the serving side against peers that violate the protocol: raw sockets. */
#include <config.h>

#include "test_engine_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "engine/engine_i.h"
#include "engine/tcp/tcp_wire.h"

#define LEN (4ull << 20)
#define SEED 9

static struct mce_conf conf = { .progress_timeout_ms = 60000 };

static void put(int fd, const void *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };

	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k > 0) {
			p = (const char *)p + k;
			n -= (size_t)k;
		} else if (errno != EAGAIN || poll(&pfd, 1, 10000) <= 0) {
			fail_msg("send: %s", strerror(errno));
		}
	}
}

/* True when all @n bytes came, false when the connection ended before. */
static bool get(int fd, void *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	while (n) {
		ssize_t k;

		if (poll(&pfd, 1, 10000) <= 0)
			fail_msg("no answer");
		k = recv(fd, p, n, 0);
		if (k == 0 || (k < 0 && errno == ECONNRESET))
			return false;
		if (k > 0) {
			p = (char *)p + k;
			n -= (size_t)k;
		}
	}
	return true;
}

static bool ended(int fd)
{
	char byte;

	return !get(fd, &byte, 1);
}

static struct mce_greeting greet_as(int fd, uint64_t token, uint32_t conn, uint32_t epoch)
{
	struct mce_greeting g = {
		.version = 1, .version_min = 1, .token = token, .conn = conn, .epoch = epoch,
	};
	uint8_t b[MCE_GREETING_SIZE];

	mce_greeting_pack(b, &g);
	put(fd, b, sizeof(b));
	assert_true(get(fd, b, sizeof(b)));
	assert_int_equal(mce_greeting_unpack(b, sizeof(b), &g), sizeof(b));
	return g;
}

static void ask(int fd, struct mce_wire_req q)
{
	uint8_t b[MCE_REQ_SIZE];

	if (q.whole_len == 0) {
		q.whole = q.addr;
		q.whole_len = q.len;
	}
	mce_req_pack(b, &q);
	put(fd, b, sizeof(b));
}

static struct mce_wire_resp answer(int fd)
{
	struct mce_wire_resp a = { .type = 0 };
	uint8_t b[MCE_RESP_SIZE];

	assert_true(get(fd, b, sizeof(b)));
	assert_int_equal(mce_resp_unpack(b, sizeof(b), &a), sizeof(b));
	return a;
}

static struct mce_wire_req request(const struct side *s, uint8_t type, uint64_t off, uint32_t len)
{
	return (struct mce_wire_req){
		.type = type, .len = len, .id = off + 1, .addr = (uintptr_t)s->mem + off,
		.rkey = mce_mr_rkey(s->mr),
	};
}

/* Through the file: the engine's threads write the memory at the same time. */
static void wait_for_byte(const struct side *s, uint64_t off, char want)
{
	uint64_t end = SECONDS(10);
	char byte = 0;

	while (byte != want) {
		assert_true(mc_now_ns() < end);
		assert_int_equal(pread(s->fd, &byte, 1, (off_t)off), 1);
	}
}

/* ---- greeting ---- */

static void other_protocols_are_disconnected(void **state)
{
	static const struct {
		const char *what;
		const char *bytes;
		size_t n;
	} start[] = {
		{ "HTTP", "GET / HTTP/1.1\r\n", 16 },
		{ "TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11 },
		/* upstream: a data header of 64 KiB, and a handshake frame of 40 bytes */
		{ "data", "\0\0\1\0\0\0\0\0" "\0\0\0\0\0\x7f\0\0" "\1\0\0\0\0\0\0\0", 24 },
		{ "handshake", "\x28\0\0\0\0\0\0\0\1{}", 11 },
		{ "almost", "MCELANE\xf2", 8 },
	};
	struct side s;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++) {
		int fd = side_dial(&s);

		put(fd, start[i].bytes, start[i].n);
		if (!ended(fd))
			fail_msg("%s was answered", start[i].what);
		close(fd);
	}
	side_close(&s);
}

static void a_newer_peer_is_served_if_it_speaks_our_version(void **state)
{
	struct mce_greeting g = { .version = 9, .version_min = 1, .token = 1, .epoch = 1 };
	uint8_t b[MCE_GREETING_SIZE + 64] = { 0 };
	struct mce_wire_resp a;
	struct side s;
	char byte;
	int fd;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	/* A newer peer that can speak our version, with a longer greeting and longer headers. */
	fd = side_dial(&s);
	mce_greeting_pack(b, &g);
	mce_put32(b + 8, sizeof(b));
	put(fd, b, sizeof(b));
	assert_true(get(fd, b, MCE_GREETING_SIZE));
	assert_int_equal(mce_greeting_unpack(b, MCE_GREETING_SIZE, &g), MCE_GREETING_SIZE);
	assert_int_equal(g.status, 0);
	assert_int_equal(g.version, 1);
	assert_true(g.window > 0 && g.len_max > 0);
	{
		struct mce_wire_req q = request(&s, MCE_FRAME_READ, 3, 1);
		uint8_t h[MCE_REQ_SIZE + 8] = { 0 };

		q.whole = q.addr;
		q.whole_len = 1;
		mce_req_pack(h, &q);
		mce_put16(h + 2, sizeof(h));
		put(fd, h, sizeof(h));
		/* A request header as short as those of older versions. */
		q.id++;
		mce_req_pack(h, &q);
		mce_put16(h + 2, MCE_REQ_MIN);
		put(fd, h, MCE_REQ_MIN);
	}
	for (int i = 0; i < 2; i++) {
		a = answer(fd);
		assert_int_equal(a.status, 0);
		assert_true(get(fd, &byte, 1));
		pattern_check(&byte, 1, SEED, 3);
	}
	close(fd);
	/* A peer that cannot is refused with a status. */
	fd = side_dial(&s);
	g = (struct mce_greeting){ .version = 9, .version_min = 8, .token = 1, .epoch = 5 };
	mce_greeting_pack(b, &g);
	put(fd, b, MCE_GREETING_SIZE);
	assert_true(get(fd, b, MCE_GREETING_SIZE));
	assert_int_equal(mce_greeting_unpack(b, MCE_GREETING_SIZE, &g), MCE_GREETING_SIZE);
	assert_int_equal(mc_err_from_wire(g.status), -MC_EVERSION);
	assert_true(ended(fd));
	close(fd);
	side_close(&s);
}

/* A connection that takes over the name ends the older one, in the middle of its payload. */
static void a_newer_connection_fences_the_older_one(void **state)
{
	char *payload = malloc(LEN);
	struct side s;
	int old, new, older;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	memset(payload, 0x44, LEN);
	old = side_dial(&s);
	assert_int_equal(greet_as(old, 77, 0, 5).status, 0);
	ask(old, request(&s, MCE_FRAME_WRITE, 0, 65536));
	put(old, payload, 1000);
	wait_for_byte(&s, 999, 0x44);
	/* Another connection of the same peer has another name. */
	older = side_dial(&s);
	assert_int_equal(greet_as(older, 77, 1, 1).status, 0);
	new = side_dial(&s);
	assert_int_equal(greet_as(new, 77, 0, 6).status, 0);
	(void)send(old, payload, 64536, MSG_NOSIGNAL);
	assert_true(ended(old));
	pattern_check(s.mem + 1000, 65536 - 1000, SEED, 1000);
	/* An older epoch does not get the name. */
	close(old);
	old = side_dial(&s);
	assert_int_equal(mc_err_from_wire(greet_as(old, 77, 0, 5).status), -ESTALE);
	assert_true(ended(old));
	ask(new, request(&s, MCE_FRAME_READ, LEN - 1, 1));
	assert_int_equal(answer(new).status, 0);
	ask(older, request(&s, MCE_FRAME_READ, LEN - 1, 1));
	assert_int_equal(answer(older).status, 0);
	close(old);
	close(older);
	close(new);
	side_close(&s);
	free(payload);
}

/* ---- requests ---- */

/* A refused WRITE's payload is discarded and the connection continues. */
static void a_refused_write_keeps_the_connection_open(void **state)
{
	struct mce_wire_req q;
	struct mce_wire_resp a;
	char *payload = malloc(LEN);
	struct side s;
	char byte;
	int fd;

	memset(payload, 0x55, LEN);
	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	fd = side_dial(&s);
	greet_as(fd, 1, 0, 1);
	for (unsigned i = 0; i < 6; i++) {
		q = request(&s, MCE_FRAME_WRITE, i, 300000);
		if (i == 1)
			q.rkey++;
		if (i == 2)
			q.addr = UINT64_MAX - 5;
		if (i == 3)
			q.whole = q.addr + 1, q.whole_len = 300000;	/* a fragment outside its transfer */
		if (i == 4)
			q.whole = q.addr, q.whole_len = UINT64_MAX;
		if (i == 5)
			q.len = 0;
		ask(fd, q);
		put(fd, payload, q.len);
		a = answer(fd);
		assert_int_equal(a.type, MCE_FRAME_ACK);
		assert_int_equal(a.id, q.id);
		assert_int_equal(mc_err_from_wire(a.status), i == 1 ? -ESTALE :
				 i == 0 || i == 5 ? -EACCES : -ERANGE);
	}
	pattern_check(s.mem, LEN, SEED, 0);
	ask(fd, request(&s, MCE_FRAME_READ, 7, 1));
	assert_int_equal(answer(fd).status, 0);
	assert_true(get(fd, &byte, 1));
	pattern_check(&byte, 1, SEED, 7);
	close(fd);
	side_close(&s);
	free(payload);
}

static void a_malformed_request_ends_the_connection(void **state)
{
	uint8_t h[MCE_REQ_SIZE];
	struct side s;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	for (unsigned i = 0; i < 4; i++) {
		struct mce_wire_req q = request(&s, MCE_FRAME_READ, 0, 1);
		int fd = side_dial(&s);

		greet_as(fd, i + 1, 0, 1);
		q.whole = q.addr;
		q.whole_len = q.len;
		mce_req_pack(h, &q);
		if (i == 0)
			h[0] = MCE_FRAME_ACK;
		if (i == 1)
			mce_put32(h + 4, MCE_WIRE_LEN_MAX + 1);
		if (i == 2)
			mce_put16(h + 2, MCE_REQ_MIN - 1);
		if (i == 3)
			mce_put16(h + 2, MCE_HDR_MAX + 1);
		put(fd, h, sizeof(h));
		assert_true(ended(fd));
		close(fd);
	}
	side_close(&s);
}

/* A peer that requests more than it reads is not read any further, and the others are served. */
static void a_client_that_does_not_read_delays_no_other(void **state)
{
	struct side s;
	int greedy, fd;
	unsigned asked = 0;
	uint8_t h[MCE_REQ_SIZE];
	struct mce_wire_req q;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	greedy = side_dial(&s);
	greet_as(greedy, 1, 0, 1);
	q = request(&s, MCE_FRAME_READ, 0, LEN);
	q.whole = q.addr;
	q.whole_len = q.len;
	mce_req_pack(h, &q);
	/* Far more than the window; the socket fills because the peer does not read. */
	while (asked < 100 * 1000 * 1000) {
		struct pollfd pfd = { .fd = greedy, .events = POLLOUT };
		ssize_t n = send(greedy, h + asked % sizeof(h), sizeof(h) - asked % sizeof(h),
				 MSG_NOSIGNAL);

		if (n > 0)
			asked += (unsigned)n;
		else if (poll(&pfd, 1, 300) <= 0)
			break;
	}
	assert_true(asked < 100 * 1000 * 1000);
	fd = side_dial(&s);
	greet_as(fd, 2, 0, 1);
	ask(fd, request(&s, MCE_FRAME_READ, 0, 100));
	assert_int_equal(answer(fd).status, 0);
	/* Its memory can be unregistered at once although answers wait to be sent from it. */
	{
		uint64_t began = mc_now_ns();

		mce_mr_unregister(s.mr);
		assert_true(mc_now_ns() - began < 2 * MC_NS_PER_SEC);
	}
	close(greedy);
	close(fd);
	side_close(&s);
}

/* Unregistering ends a WRITE in the middle: the rest is discarded and the answer has the status. */
static void unregister_aborts_a_write_in_the_middle(void **state)
{
	char *payload = malloc(LEN);
	struct mce_wire_resp a;
	struct side s;
	uint64_t began;
	int fd;

	memset(payload, 0x66, LEN);
	side_open(&s, &conf, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	fd = side_dial(&s);
	greet_as(fd, 1, 0, 1);
	ask(fd, request(&s, MCE_FRAME_WRITE, 0, LEN));
	put(fd, payload, 5000);
	wait_for_byte(&s, 4999, 0x66);
	began = mc_now_ns();
	mce_mr_unregister(s.mr);
	assert_true(mc_now_ns() - began < 2 * MC_NS_PER_SEC);
	put(fd, payload, LEN - 5000);
	a = answer(fd);
	assert_int_equal(mc_err_from_wire(a.status), -ESTALE);
	pattern_check(s.mem + 5000, LEN - 5000, SEED, 5000);
	close(fd);
	side_close(&s);
	free(payload);
}

/* ---- stopped processes ---- */

/* The owner is stopped in the middle of received requests: the later ones are not carried out when it continues. */
static void requests_behind_a_stall_are_dropped(void **state)
{
	enum { N = 100, EACH = 8 };
	/* Longer than half the owner's progress timeout. */
	struct owner_conf oc = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .seed = SEED,
				 .faults = "engine.tcp.serve=delay:1500@31" };
	uint8_t b[N][MCE_REQ_SIZE + EACH];
	char command[64];
	struct owner o;
	uint64_t crc;
	int fd;

	assert_int_equal(owner_start(&o, &oc), 0);
	snprintf(command, sizeof(command), "crc %u %u", N / 2 * EACH, N / 2 * EACH);
	crc = owner_tell(&o, command);
	memset(b, 0x55, sizeof(b));
	for (unsigned i = 0; i < N; i++) {
		struct mce_wire_req q = { .type = MCE_FRAME_WRITE, .len = EACH, .id = i + 1, .rkey = o.rkey,
					  .addr = o.addr + i * EACH, .whole_len = EACH };

		q.whole = q.addr;
		mce_req_pack(b[i], &q);
	}
	fd = mc_socket_connect(o.endpoint, SECONDS(5));
	assert_true(fd >= 0);
	greet_as(fd, 1, 0, 1);
	put(fd, b, sizeof(b));
	while (!ended(fd))
		;
	assert_int_equal(owner_tell(&o, command), crc);
	close(fd);
	owner_stop(&o);
}

/* ---- limits ---- */

static void incoming_connections_are_limited(void **state)
{
	struct mce_conf few = conf;
	struct side s;
	int fd[5];

	few.max_peers_in = 3;
	side_open(&s, &few, LEN, MCE_ACCESS_READ, SEED);
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = side_dial(&s);
		assert_int_equal(greet_as(fd[i], i + 1, 0, 1).status, 0);
	}
	fd[3] = side_dial(&s);
	assert_true(ended(fd[3]));
	close(fd[3]);
	/* A freed connection can be used again. */
	close(fd[0]);
	for (unsigned i = 0; ; i++) {
		uint8_t b[MCE_GREETING_SIZE];
		struct mce_greeting g = { .version = 1, .version_min = 1, .token = 50, .epoch = 1 };

		assert_true(i < 1000);
		fd[4] = side_dial(&s);
		mce_greeting_pack(b, &g);
		if (send(fd[4], b, sizeof(b), MSG_NOSIGNAL) == sizeof(b) && get(fd[4], b, sizeof(b)))
			break;
		close(fd[4]);
		usleep(1000);
	}
	close(fd[1]);
	close(fd[2]);
	close(fd[4]);
	side_close(&s);
}

/* ---- idle connections ---- */

/* A connection from @from, which is an address of the loopback interface. */
static int dial_from(const struct side *s, const char *from)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	char host[MC_ADDR_MAX];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port;

	assert_true(fd >= 0);
	assert_int_equal(inet_pton(AF_INET, from, &at.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(mc_addr_split(mce_engine_endpoint(s->e), host, sizeof(host), 0, &port), 0);
	at.sin_port = htons((uint16_t)port);
	assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Does the server answer a greeting on @fd?  False: it has closed the connection. */
static bool greeting_answered(int fd, uint64_t token)
{
	struct mce_greeting g = { .version = 1, .version_min = 1, .token = token, .epoch = 1 };
	uint8_t b[MCE_GREETING_SIZE];

	mce_greeting_pack(b, &g);
	return send(fd, b, sizeof(b), MSG_NOSIGNAL) == sizeof(b) && get(fd, b, sizeof(b));
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static unsigned open_of(const int *fd, unsigned n)
{
	unsigned open = 0;

	for (unsigned i = 0; i < n; i++)
		open += is_open(fd[i]);
	return open;
}

static void read_one(const struct side *s, int fd)
{
	char byte;

	ask(fd, request(s, MCE_FRAME_READ, 0, 1));
	assert_int_equal(answer(fd).status, 0);
	assert_true(get(fd, &byte, 1));
}

#define CROWD_MAX 40u		/* 30 of them: three quarters; 20: one address */
#define NEW_MAX 8u

/* From three quarters of the limit on, the connection that was idle for the longest time gives way to a new one.  An
 * engine that loses connections in this way makes new ones when it has work again. */
static void the_longest_idle_connection_gives_way(void **state)
{
	struct mce_conf few = conf, tcp = { .force_tcp = true };
	uint64_t end = SECONDS(30);
	char byte[1];
	struct side s, other;
	struct mce_peer *peer;
	int fd[CROWD_MAX], more[NEW_MAX];
	unsigned n = 0;

	few.max_peers_in = CROWD_MAX;
	side_open(&s, &few, LEN, MCE_ACCESS_READ, SEED);
	/* The engine's connections are the oldest. */
	side_open(&other, &tcp, 0, 0, 0);
	assert_int_equal(mce_peer_get(other.e, mce_engine_endpoint(s.e), &peer), 0);
	assert_int_equal(transfer(other.e, peer, MCE_READ, (uintptr_t)s.mem, mce_mr_rkey(s.mr), byte, 1, NULL), 0);
	for (; n < 26; n++) {
		fd[n] = dial_from(&s, n % 2 ? "127.0.0.1" : "127.0.0.2");
		assert_int_equal(greet_as(fd[n], n + 1, 0, 1).status, 0);
	}
	for (unsigned i = 0; i < NEW_MAX; i++)
		more[i] = dial_from(&s, "127.0.0.3");
	/* New connections come, and the first one is in use. */
	for (unsigned i = 0; open_of(fd + 1, n - 1) == n - 1; i++) {
		assert_true(mc_now_ns() < end);
		read_one(&s, fd[0]);
		close(more[i % NEW_MAX]);
		more[i % NEW_MAX] = dial_from(&s, "127.0.0.3");
		assert_true(greeting_answered(more[i % NEW_MAX], 100 + i));
		usleep(20000);
	}
	assert_int_equal(open_of(more, NEW_MAX), NEW_MAX);
	read_one(&s, fd[0]);
	assert_int_equal(transfer(other.e, peer, MCE_READ, (uintptr_t)s.mem, mce_mr_rkey(s.mr), byte, 1, NULL), 0);
	mce_peer_put(peer);
	side_close(&other);
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
	for (unsigned i = 0; i < NEW_MAX; i++)
		close(more[i]);
	side_close(&s);
}

/* One address gets half of the limit.  Others are served nevertheless, and it gets new connections for its own idle
 * ones. */
static void one_address_does_not_take_all_connections(void **state)
{
	struct mce_conf few = conf;
	uint64_t end = SECONDS(30);
	int fd[CROWD_MAX];
	struct side s;

	few.max_peers_in = CROWD_MAX;
	side_open(&s, &few, LEN, MCE_ACCESS_READ, SEED);
	for (unsigned i = 0; i < CROWD_MAX; i++) {
		fd[i] = dial_from(&s, "127.0.0.1");
		(void)greeting_answered(fd[i], i + 1);
	}
	assert_true(open_of(fd, CROWD_MAX) <= CROWD_MAX / 2);
	for (unsigned i = 0; i < CROWD_MAX; i++)
		close(fd[i]);
	fd[0] = dial_from(&s, "127.0.0.2");
	assert_int_equal(greet_as(fd[0], 1000, 0, 1).status, 0);
	close(fd[0]);
	for (fd[0] = -1; fd[0] < 0; usleep(100000)) {
		assert_true(mc_now_ns() < end);
		fd[0] = dial_from(&s, "127.0.0.1");
		if (!greeting_answered(fd[0], 2000)) {
			close(fd[0]);
			fd[0] = -1;
		}
	}
	close(fd[0]);
	side_close(&s);
}

/* When the process has no free descriptor, an idle connection is closed for the new one. */
static void idle_connections_give_way_when_descriptors_run_out(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rlimit was, low;
	int fd[4], spare, last, port, full[256], n = 0;
	char host[MC_ADDR_MAX];
	struct side s;

	side_open(&s, &conf, LEN, MCE_ACCESS_READ, SEED);
	assert_int_equal(mc_addr_split(mce_engine_endpoint(s.e), host, sizeof(host), 0, &port), 0);
	at.sin_port = htons((uint16_t)port);
	assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
	for (unsigned i = 0; i < 4; i++) {
		fd[i] = side_dial(&s);
		assert_int_equal(greet_as(fd[i], i + 1, 0, 1).status, 0);
	}
	spare = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	last = dup(spare);
	assert_true(spare >= 0 && last >= 0);
	close(last);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = was;
	low.rlim_cur = (rlim_t)last + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (n < 256 && (full[n] = dup(spare)) >= 0)
		n++;
	assert_int_equal(errno, EMFILE);
	assert_int_equal(connect(spare, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_true(greeting_answered(spare, 100));
	assert_false(is_open(fd[0]));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	while (n)
		close(full[--n]);
	for (unsigned i = 0; i < 4; i++)
		close(fd[i]);
	close(spare);
	side_close(&s);
}

/* The program that hosts the engine needs descriptors for its own work. */
static void the_default_limit_is_a_quarter_of_the_descriptors(void **state)
{
	struct rlimit was, low;
	struct side s;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = was;
	low.rlim_cur = 300;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	side_open(&s, NULL, 0, 0, 0);
	assert_int_equal(s.e->conf.max_peers_in, 75);
	side_close(&s);
	low.rlim_cur = was.rlim_max < 1 << 20 ? was.rlim_max : 1 << 20;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	side_open(&s, NULL, 0, 0, 0);
	assert_true(s.e->conf.max_peers_in <= 4096 && s.e->conf.max_peers_in > 75);
	side_close(&s);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

/* Half a request and no more: the connection is closed when it makes no progress. */
static void half_a_request_times_out(void **state)
{
	struct mce_conf quick = conf;
	struct side s;
	int fd, idle;

	/* The owner's thread may be stopped for half of it before it considers all requests stale. */
	quick.progress_timeout_ms = 3000;
	side_open(&s, &quick, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	idle = side_dial(&s);
	greet_as(idle, 1, 0, 1);
	fd = side_dial(&s);
	greet_as(fd, 2, 0, 1);
	ask(fd, request(&s, MCE_FRAME_WRITE, 0, 1000));
	put(fd, "x", 1);
	assert_true(ended(fd));
	/* An idle connection stays. */
	ask(idle, request(&s, MCE_FRAME_READ, LEN - 1, 1));
	assert_int_equal(answer(idle).status, 0);
	close(fd);
	close(idle);
	side_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_protocols_are_disconnected),
		cmocka_unit_test(a_newer_peer_is_served_if_it_speaks_our_version),
		cmocka_unit_test(a_newer_connection_fences_the_older_one),
		cmocka_unit_test(a_refused_write_keeps_the_connection_open),
		cmocka_unit_test(a_malformed_request_ends_the_connection),
		cmocka_unit_test(a_client_that_does_not_read_delays_no_other),
		cmocka_unit_test(unregister_aborts_a_write_in_the_middle),
		cmocka_unit_test(requests_behind_a_stall_are_dropped),
		cmocka_unit_test(incoming_connections_are_limited),
		cmocka_unit_test(the_longest_idle_connection_gives_way),
		cmocka_unit_test(one_address_does_not_take_all_connections),
		cmocka_unit_test(idle_connections_give_way_when_descriptors_run_out),
		cmocka_unit_test(the_default_limit_is_a_quarter_of_the_descriptors),
		cmocka_unit_test(half_a_request_times_out),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
