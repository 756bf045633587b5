/* SPDX-License-Identifier: Apache-2.0
 * perf_rpc.c - calls against a bare ping-pong of as many bytes over the same kind of socket,
 * between the same two processors: small calls, and exist with 500 and 5000 keys. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"
#include "tests/perf/row.h"

#define ROUNDS_MAX 20000
#define ROUNDS (unsigned)perf_n(ROUNDS_MAX, 200)
#define KEY_LEN 64
#define KEYS_MAX 5000
/* Bytes on the wire of the small call: rename with one-byte names. */
#define SMALL_REQUEST (MCP_FRAME_HEADER + 4 + 5 + 5)
#define SMALL_REPLY (MCP_FRAME_HEADER + 8)

enum where { APART, TOGETHER };

struct addresses {
	char rpc[2][MC_ADDR_MAX], raw[2][MC_ADDR_MAX];
};

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* ---- the server's process ---- */

static int rename_(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	struct mcp_rename_reply reply = { .generation = 1 };
	struct mcp_rename rq;
	int r = mcp_decode(&mcp_desc_rename, body, len, &rq);

	return r < 0 ? r : mcp_answer(a, &mcp_desc_rename_reply, &reply);
}

static int exist(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a, void *arg)
{
	static __thread uint8_t present[MCP_BATCH_MAX];
	struct mcp_exist_reply reply;
	struct mcp_exist rq;
	struct mcp_iter it;
	struct mcp_key key;
	uint32_t n = 0;
	int r = mcp_decode(&mcp_desc_exist, body, len, &rq);

	if (r < 0)
		return r;
	mcp_iter_init(&it, &rq.keys, &mcp_desc_key);
	while (mcp_iter_next(&it, &key))
		present[n++] = *(const char *)key.key.data & 1;
	reply.present = mcp_bytes(present, n);
	return mcp_answer(a, &mcp_desc_exist_reply, &reply);
}

static const struct mcp_handler handlers[] = {
	{ MCP_RENAME, rename_ }, { MCP_EXIST, exist }, { 0, NULL }
};

/* Returns false when the peer has closed the connection. */
static bool transfer(int fd, bool out, char *p, size_t len, bool spin)
{
	struct pollfd poller = { .fd = fd, .events = out ? POLLOUT : POLLIN };

	while (len) {
		ssize_t n = out ? send(fd, p, len, MSG_NOSIGNAL) : recv(fd, p, len, 0);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0 || errno != EAGAIN) {
			return false;
		} else if (!spin) {
			poll(&poller, 1, -1);
		}
	}
	return true;
}

/* The raw peer first receives the sizes of request and reply. */
struct raw_plan {
	uint32_t request, reply, spin;
};

static void *raw_serve(void *arg)
{
	static __thread char buf[1 << 20];
	int listener = (int)(intptr_t)arg, fd;
	struct pollfd p = { .fd = listener, .events = POLLIN };
	struct raw_plan plan;

	while (poll(&p, 1, -1) > 0) {
		fd = mc_socket_accept(listener);
		if (fd < 0)
			continue;
		if (transfer(fd, false, (char *)&plan, sizeof(plan), false))
			while (transfer(fd, false, buf, plan.request, plan.spin) &&
			       transfer(fd, true, buf, plan.reply, plan.spin))
				;
		close(fd);
	}
	return NULL;
}

static int serve(const char *dir, unsigned cpu, unsigned spin_us, int tell)
{
	char paths[2][MC_ADDR_MAX];
	const char *addrs[] = { "127.0.0.1:0", paths[0], NULL };
	struct mcp_server_conf conf = {
		.addrs = addrs, .loops = 1, .spin_us = spin_us, .tcp_nodelay = true,
		.handlers = handlers,
	};
	struct addresses where;
	struct mcp_server *s;
	int r;

	pin(cpu);
	snprintf(paths[0], sizeof(paths[0]), "unix:%s/rpc", dir);
	snprintf(paths[1], sizeof(paths[1]), "unix:%s/raw", dir);
	r = mcp_server_start(&conf, &s);
	if (r < 0)
		die("server", r);
	for (unsigned i = 0; i < 2; i++) {
		pthread_t t;
		int fd = mc_socket_listen(i ? paths[1] : "127.0.0.1:0", 8, 0, where.raw[i]);

		if (fd < 0)
			die("listen", fd);
		snprintf(where.rpc[i], MC_ADDR_MAX, "%s", mcp_server_addr(s, i));
		pthread_create(&t, NULL, raw_serve, (void *)(intptr_t)fd);
	}
	if (write(tell, &where, sizeof(where)) != sizeof(where))
		return 1;
	/* until the parent has ended */
	return (int)read(tell, &where, 1);
}

/* ---- measuring ---- */

static struct mcp_key keys[KEYS_MAX];
static char key_text[KEYS_MAX][KEY_LEN + 1];
static uint32_t times[ROUNDS_MAX];

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Compute median and 99th percentile of @n measured rounds, in nanoseconds. */
static void sum_up(unsigned n, double *p50, double *p99)
{
	qsort(times, n, sizeof(times[0]), by_value);
	*p50 = times[n / 2];
	*p99 = times[n - 1 - n / 100];
}

static void measure_raw(const char *addr, struct raw_plan plan, unsigned rounds, double *p50,
			double *p99)
{
	static char buf[1 << 20];
	int fd = mc_socket_connect(addr, mc_deadline_ms(5000));

	if (fd < 0)
		die("connect", fd);
	transfer(fd, true, (char *)&plan, sizeof(plan), false);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t from = mc_now_ns();

		transfer(fd, true, buf, plan.request, plan.spin);
		transfer(fd, false, buf, plan.reply, plan.spin);
		times[i] = (uint32_t)(mc_now_ns() - from);
	}
	sum_up(rounds, p50, p99);
	close(fd);
}

static void call(struct mcp_client *c, unsigned n)
{
	struct mcp_rename rename = { .from = mcp_bytes("a", 1), .to = mcp_bytes("b", 1) };
	struct mcp_exist exist_rq = { .keys = mcp_seq(keys, n) };
	uint64_t deadline = mc_deadline_ms(5000);
	struct mcp_reply mem = { 0 };
	union {
		struct mcp_rename_reply rename;
		struct mcp_exist_reply exist;
	} reply;
	int r = n ? mcp_call(c, MCP_EXIST, &exist_rq, &reply, &mem, deadline) :
		    mcp_call(c, MCP_RENAME, &rename, &reply, &mem, deadline);

	if (r < 0)
		die("call", r);
	mcp_reply_done(&mem);
}

static void measure_rpc(const char *addr, unsigned n, unsigned spin_us, unsigned rounds, double *p50,
			double *p99)
{
	struct mcp_client_conf conf = { .addrs = addr, .spin_us = spin_us };
	struct mcp_client *c;

	if (mcp_client_open(&conf, &c) < 0)
		exit(1);
	call(c, n);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t from = mc_now_ns();

		call(c, n);
		times[i] = (uint32_t)(mc_now_ns() - from);
	}
	sum_up(rounds, p50, p99);
	mcp_client_close(c);
}

/* @n is the number of keys; 0: the small call. */
static void compare(const struct addresses *at, int transport, unsigned n, unsigned spin_us,
		    const char *where)
{
	struct raw_plan plan = {
		.request = n ? MCP_FRAME_HEADER + 12 + n * (KEY_LEN + 8) : SMALL_REQUEST,
		.reply = n ? MCP_FRAME_HEADER + 4 + n : SMALL_REPLY, .spin = spin_us > 0,
	};
	unsigned rounds = n ? ROUNDS / 20 : ROUNDS;
	double raw50, raw99, p50, p99;
	char what[32], name[64];

	measure_raw(at->raw[transport], plan, rounds, &raw50, &raw99);
	measure_rpc(at->rpc[transport], n, spin_us, rounds, &p50, &p99);
	if (n)
		snprintf(what, sizeof(what), "exist %u keys", n);
	else
		snprintf(what, sizeof(what), "small call");
	snprintf(name, sizeof(name), "%s, %s, %s%s", what, transport ? "unix" : "tcp", where,
		 spin_us ? ", polling" : "");
	perf_row(name, "socket p50", raw50 / 1e3, "us");
	perf_row(name, "p50", p50 / 1e3, "us");
	perf_row(name, "p99", p99 / 1e3, "us");
	perf_row(name, "p50 ratio", p50 / raw50, "x socket");
	if (n)
		perf_row(name, "rate", n * 1e3 / p50, "M keys/s");
}

static void with_server(enum where where, unsigned spin_us, bool batches)
{
	char dir[] = "/tmp/mc-perf-XXXXXX", file[MC_ADDR_MAX];
	struct addresses at;
	int sock[2];
	pid_t pid;

	if (!mkdtemp(dir) || socketpair(AF_UNIX, SOCK_STREAM, 0, sock) < 0)
		die("setup", -errno);
	pid = fork();
	if (pid == 0) {
		/* A killed benchmark leaves no process behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sock[0]);
		_exit(serve(dir, where == TOGETHER ? 0 : 1, spin_us, sock[1]));
	}
	close(sock[1]);
	if (pid < 0 || read(sock[0], &at, sizeof(at)) != sizeof(at))
		die("server process", -EIO);
	for (int t = 0; t < 2; t++) {
		compare(&at, t, 0, spin_us, where == TOGETHER ? "one cpu" : "two cpus");
		if (batches) {
			compare(&at, t, 500, spin_us, "two cpus");
			compare(&at, t, 5000, spin_us, "two cpus");
		}
	}
	close(sock[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	snprintf(file, sizeof(file), "%s/rpc", dir);
	unlink(file);
	snprintf(file, sizeof(file), "%s/raw", dir);
	unlink(file);
	rmdir(dir);
}

static void local(void)
{
	struct mcp_server_conf conf = { .local_name = "perf", .loops = 1, .handlers = handlers };
	const unsigned sizes[] = { 0, 500, 5000 };
	struct mcp_server *s;
	double p50, p99;
	char name[64];

	if (mcp_server_start(&conf, &s) < 0)
		exit(1);
	for (unsigned i = 0; i < 3; i++) {
		measure_rpc("local:perf", sizes[i], 0, sizes[i] ? ROUNDS / 10 : ROUNDS, &p50, &p99);
		snprintf(name, sizeof(name), sizes[i] ? "exist %u keys, local" : "small call, local",
			 sizes[i]);
		perf_row(name, "p50", p50 / 1e3, "us");
		if (sizes[i])
			perf_row(name, "per key", p50 / sizes[i], "ns");
	}
	mcp_server_stop(s);
}

int main(void)
{
	bool apart = sysconf(_SC_NPROCESSORS_ONLN) > 1;

	for (unsigned i = 0; i < KEYS_MAX; i++) {
		snprintf(key_text[i], sizeof(key_text[i]), "%0*u", KEY_LEN, i);
		keys[i].key = mcp_bytes(key_text[i], KEY_LEN);
	}
	pin(0);
	with_server(TOGETHER, 0, false);
	if (apart) {
		with_server(APART, 0, true);
		with_server(APART, 50, true);
	}
	local();
	return 0;
}
