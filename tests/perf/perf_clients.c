/* SPDX-License-Identifier: Apache-2.0
 * perf_clients.c - cost of idle clients that only send heartbeats, at the rate that the master
 * requests: the master's share of a core for clients that only use the store, and for as many that
 * have a segment each; and the cost of connecting them.
 *
 *	perf_clients [CLIENTS [SECONDS]]	default: 10000 and 10 */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "master/master.h"
#include "proto/codec.h"
#include "tests/perf/row.h"

#define CLIENTS_MAX 60000u

static void die(const char *what, int err)
{
	fprintf(stderr, "perf_clients: %s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static uint64_t cpu_ns_of(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static pid_t master_start(const char *addr)
{
	const char *addrs[] = { addr, NULL };
	struct mcm_listen where = { .addrs = addrs };
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm *m;
	pid_t pid = fork();
	int r;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = mcm_conf_defaults(&conf, &options);
	conf.rpc_thread_num = 1;
	conf.enable_metric_reporting = false;
	if (r == 0)
		r = mcm_start(&conf, &where, &m);
	if (r < 0)
		die("master", r);
	for (;;)
		pause();
}

/* ---- the clients, all in this thread ---- */

static int fds[CLIENTS_MAX];
static unsigned offers;

static void send_frame(unsigned i, uint16_t type, uint32_t id, const void *msg)
{
	struct mcp_frame f = { .type = type, .id = id };
	struct mcp_buf b = { 0 };

	if (mcp_frame_append(&b, f, mcp_desc_of(type, false), msg) < 0 ||
	    send(fds[i], b.data, b.len, MSG_NOSIGNAL) != (ssize_t)b.len)
		die("send", -errno);
	mcp_buf_free(&b);
}

/* Wait for @answers answers; return the length of the last heartbeat answer's body, 0 if there was none. */
static size_t receive(unsigned i, unsigned answers, uint8_t body[256])
{
	uint64_t end = mc_now_ns() + 20 * MC_NS_PER_SEC;
	struct mcp_frame f = { 0 };
	uint8_t in[1024];
	unsigned seen = 0;
	size_t len = 0;
	ssize_t n, at;

	do {
		n = recv(fds[i], in, sizeof(in), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN) || mc_now_ns() > end)
			die("receive", n ? -errno : -EPIPE);
		for (at = 0; at < n; at += MCP_FRAME_HEADER + f.length) {
			if (n - at < (ssize_t)MCP_FRAME_HEADER ||
			    mcp_frame_unpack(in + at, MCP_FRAME_MAX, &f) < 0 || f.status ||
			    f.length > 256 || n - at < (ssize_t)(MCP_FRAME_HEADER + f.length))
				die("answer", -EPROTO);
			if (f.type == MCP_HEARTBEAT) {
				memcpy(body, in + at + MCP_FRAME_HEADER, f.length);
				len = f.length;
			}
			seen++;
		}
		if (seen < answers)
			usleep(100);
	} while (seen < answers);
	return len;
}

static void offer(unsigned i)
{
	char name[32];
	struct mcp_mount mount = {
		.segment = { 8, i + 1 }, .client = { 7, i + 1 }, .epoch = 1, .size = 1 << 20,
		.endpoint = mcp_bytes("h:1", 3), .protocol = mcp_bytes("tcp", 3),
	};

	offers++;
	mount.name = mcp_bytes(name, (uint32_t)snprintf(name, sizeof(name), "owner-%u", i));
	send_frame(i, MCP_MOUNT, 3, &mount);
}

static void join(const char *addr, unsigned i, bool owner)
{
	struct mcp_register reg = { .client = { 7, i + 1 }, .name = mcp_bytes("perf", 4) };
	struct mcp_hello hello = {
		.magic = MCP_MAGIC, .version = MCP_VERSION, .min_version = MCP_MIN_VERSION,
		.client = { 7, i + 1 }, .lane = MCP_CHANNEL_CONTROL, .software = mcp_bytes("perf", 4),
	};

	fds[i] = mc_socket_connect(addr, mc_deadline_ms(20000));
	if (fds[i] < 0)
		die("connect", fds[i]);
	send_frame(i, MCP_HELLO, 1, &hello);
	send_frame(i, MCP_REGISTER, 2, &reg);
	if (owner)
		offer(i);
}

/* Each client sends one heartbeat per period, in turn, for @for_ms. */
static uint64_t beat_all(unsigned n, uint64_t for_ms, uint32_t *ret_ms)
{
	uint64_t began = mc_now_ns(), end = began + for_ms * MC_NS_PER_MS, beats = 0, due = began, now;
	struct mcp_heartbeat_reply reply;
	uint32_t ms = *ret_ms;
	uint8_t body[256];
	unsigned i = 0;
	size_t len;

	while (mc_now_ns() < end) {
		struct mcp_heartbeat rq = { .client = { 7, i + 1 }, .sequence = beats };

		len = receive(i, 0, body);
		if (len && mcp_decode(&mcp_desc_heartbeat_reply, body, len, &reply) == 0 &&
		    reply.heartbeat_ms) {
			ms = reply.heartbeat_ms;
			if (reply.reattach)
				offer(i);
		}
		send_frame(i, MCP_HEARTBEAT, 4, &rq);
		beats++;
		i = (i + 1) % n;
		due += ms * MC_NS_PER_MS / n;
		for (now = mc_now_ns(); now < due; now = mc_now_ns())
			usleep((useconds_t)((due - now) / 1000 + 1));
	}
	*ret_ms = ms;
	return beats;
}

static void bench(const char *addr, const char *what, unsigned n, uint64_t for_ms, bool owner)
{
	pid_t master = master_start(addr);
	uint64_t cpu, began, beats, wall, come;
	uint32_t ms = 1000;
	uint8_t body[256];
	unsigned i, k;
	int fd = -1;

	for (i = 0; fd < 0 && i < 1000; i++) {
		fd = mc_socket_connect(addr, mc_deadline_ms(1000));
		if (fd < 0)
			usleep(10000);
	}
	close(fd);
	come = cpu_ns_of(master);
	for (i = 0; i < n; i++) {
		join(addr, i, owner);
		if (i % 256 == 255 || i == n - 1)
			for (k = i & ~255u; k <= i; k++)
				receive(k, owner ? 3 : 2, body);
	}
	come = cpu_ns_of(master) - come;
	beat_all(n, 2 * for_ms / 5, &ms);
	offers = 0;
	cpu = cpu_ns_of(master);
	began = mc_now_ns();
	beats = beat_all(n, for_ms, &ms);
	wall = mc_now_ns() - began;
	cpu = cpu_ns_of(master) - cpu;
	perf_row(what, "one comes", (double)come / 1e3 / n, "us of the master's CPU time");
	perf_row(what, "asked for", ms, "ms between two heartbeats of a client");
	perf_row(what, "heartbeats", (double)beats * 1e9 / (double)wall, "/s");
	perf_row(what, "one", (double)cpu / 1e3 / (double)beats, "us of the master's CPU time");
	perf_row(what, "master", 100 * (double)cpu / (double)wall, "% of a core");
	if (owner)
		perf_row(what, "silent meanwhile", offers, "segments");
	for (i = 0; i < n; i++)
		close(fds[i]);
	kill(master, SIGKILL);
	waitpid(master, NULL, 0);
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : (unsigned)perf_n(10000, 50);
	uint64_t for_ms = argc > 2 ? 1000 * strtoull(argv[2], NULL, 10) : perf_n(10000, 100);
	struct rlimit lim;
	char addr[64];

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_max < n + 100)
		lim.rlim_max = n + 100;
	lim.rlim_cur = lim.rlim_max;
	if (n < 1 || n > CLIENTS_MAX || setrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur < n + 50) {
		printf("perf_clients: %u descriptors are not available here\n", n);
		return 77;
	}
	snprintf(addr, sizeof(addr), "unix:@perf-clients-%d", (int)getpid());
	bench(addr, "idle clients, unix", n, for_ms, false);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", 21000 + (int)(getpid() % 9000));
	bench(addr, "idle clients, tcp", n, for_ms, false);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", 30000 + (int)(getpid() % 1000));
	bench(addr, "idle owners of segments, tcp", n, for_ms, true);
	return 0;
}
