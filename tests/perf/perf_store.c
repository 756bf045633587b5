/* SPDX-License-Identifier: Apache-2.0
 * perf_store.c - put and get of the store on one host: bandwidth of large objects against memcpy
 * over the same working set, and latency of a small get between processes against a round trip over
 * a socket between processes, in one run.  Then put and get of objects in far memory (the machine's last NUMA node)
 * against memcpy to and from that node.
 *
 * Three processes: master, owner of the memory, and the one that measures. */
#include <config.h>

#include <mooncake/mcs.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "master/master.h"
#include "tests/perf/row.h"

#define WORKING_SET perf_n(256 << 20, 4 << 20)	/* four times as large is the segment */
#define ROUNDS perf_n(3, 1)
#define BATCH_BYTES ((size_t)64 << 20)
#define LATENCY_ROUNDS perf_n(4000, 100)
#define SPIN_US 50

static char master_addr[MC_ADDR_MAX];
static int far_node = -1;	/* NUMA node of the far memory that is measured, -1: near memory */

static void die(const char *what, int r)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(r));
	exit(1);
}

/* Both kinds of round trip use the first two processors, if there are two. */
static void pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		(void)sched_setaffinity(0, sizeof(set), &set);
}

static void unpin(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		CPU_SET(i, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

/* Run @fn in a process that ends with this one; @fn writes to @out when it is ready. */
static pid_t child(void (*fn)(int out), int *ret_fd)
{
	int p[2];
	pid_t pid;

	if (pipe(p))
		die("pipe", -errno);
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork", -errno);
	if (!pid) {
		/* A killed benchmark leaves no process behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(p[0]);
		fn(p[1]);
		for (;;)
			pause();
	}
	close(p[1]);
	*ret_fd = p[0];
	return pid;
}

static void run_master(int out)
{
	static const char *const addrs[] = { "127.0.0.1:0", NULL };
	const struct mcm_listen where = { .addrs = addrs };
	struct mc_options *owner;
	char addr[MC_ADDR_MAX] = "";
	struct mcm_conf conf;
	struct mcm *m;
	int r;

	pin(1);
	r = mcm_conf_defaults(&conf, &owner);
	conf.rpc_spin_us = SPIN_US;
	conf.rpc_thread_num = 1;
	conf.enable_cxl = far_node >= 0;
	if (!r)
		r = mcm_start(&conf, &where, &m);
	if (r < 0)
		die("master", r);
	snprintf(addr, sizeof(addr), "%s", mcm_addr(m, 0));
	if (write(out, addr, sizeof(addr)) != sizeof(addr))
		exit(1);
}

static mcs_t *open_store(uint64_t segment, int force_tcp)
{
	struct mcs_conf conf;
	mcs_t *s;
	int r;

	mcs_conf_init(&conf);
	conf.master = master_addr;
	conf.segment_size = far_node >= 0 ? 0 : segment;
	conf.far_size = far_node >= 0 ? segment : 0;
	conf.far_node = far_node;
	conf.force_tcp = force_tcp;
	conf.spin_us = segment ? 0 : SPIN_US;
	r = mcs_open(&conf, &s);
	if (r < 0)
		die("mcs_open", r);
	return s;
}

static void run_owner(int out)
{
	(void)open_store(4 * WORKING_SET, 0);
	if (write(out, "x", 1) != 1)
		exit(1);
}

/* Receive @len bytes; poll for SPIN_US before sleeping, as both ends of the store's calls do. */
static void recv_all(int fd, char *buf, size_t len)
{
	uint64_t sleep_ns = mc_now_ns() + SPIN_US * 1000ull;
	size_t n = 0;

	while (n < len) {
		ssize_t r = recv(fd, buf + n, len - n, MSG_DONTWAIT);
		struct pollfd p = { fd, POLLIN, 0 };

		if (!r)
			_exit(0);
		n += r > 0 ? (size_t)r : 0;
		if (r < 0 && mc_now_ns() > sleep_ns)
			(void)poll(&p, 1, -1);
	}
}

static void send_all(int fd, const char *buf, size_t len)
{
	for (size_t n = 0; n < len;) {
		ssize_t r = send(fd, buf + n, len - n, MSG_NOSIGNAL);

		if (r < 0 && errno != EAGAIN)
			_exit(0);
		n += r > 0 ? (size_t)r : 0;
	}
}

/* Answer each 64 bytes with 4 KiB. */
static void run_echo(int out)
{
	static char reply[4096], ask[64];
	char addr[MC_ADDR_MAX];
	int fd, c;

	pin(1);
	fd = mc_socket_listen("127.0.0.1:0", 1, 0, addr);
	if (fd < 0)
		die("listen", fd);
	if (write(out, addr, sizeof(addr)) != sizeof(addr))
		exit(1);
	do
		c = mc_socket_accept(fd);
	while (c < 0);
	for (;;) {
		recv_all(c, ask, sizeof(ask));
		send_all(c, reply, sizeof(reply));
	}
}

/* Memory of a NUMA node, -1: any. */
static void *region(size_t len, int node)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long mask = node < 0 ? 0 : 1ul << node;

	if (p == MAP_FAILED)
		die("mmap", -errno);
	if (mask && syscall(SYS_mbind, p, len, MPOL_BIND, &mask, 8 * sizeof(mask), 0u))
		die("mbind", -errno);
	(void)madvise(p, len, MADV_HUGEPAGE);
	memset(p, 1, len);
	return p;
}

static double gbs(size_t bytes, uint64_t ns)
{
	return (double)bytes / (double)ns;
}

static double best(double a, double b)
{
	return a > b ? a : b;
}

/* Bytes per ns of copying the working set in pieces of @size. */
static double measure_memcpy(char *dst, const char *src, size_t size)
{
	size_t set = WORKING_SET;
	double result = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t began = mc_now_ns();

		for (size_t at = 0; at + size <= set; at += size)
			memcpy(dst + at, src + at, size);
		result = best(result, gbs(set / size * size, mc_now_ns() - began));
	}
	return result;
}

struct rates {
	double put, get;
};

static struct rates measure_store(mcs_t *s, char *src, char *dst, size_t size)
{
	unsigned total = (unsigned)(WORKING_SET / size), per = (unsigned)(BATCH_BYTES / size);
	struct mcs_put_item *put = calloc(total, sizeof(*put));
	struct mcs_get_item *get = calloc(total, sizeof(*get));
	struct iovec *in = calloc(total, sizeof(*in)), *out = calloc(total, sizeof(*out));
	char (*name)[24] = calloc(total, sizeof(*name));
	const struct mcs_key all = { NULL, 0 };
	struct rates rates = { 0, 0 };

	per = per ? per : 1;
	per = per < 256 ? per : 256;
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t began, put_ns, get_ns;

		for (unsigned i = 0; i < total; i++) {
			snprintf(name[i], sizeof(name[i]), "p%zu-%u", size, i);
			in[i] = (struct iovec){ src + i * size, size };
			out[i] = (struct iovec){ dst + i * size, size };
			put[i] = (struct mcs_put_item){
				.key = { name[i], strlen(name[i]) }, .iov = &in[i], .iovcnt = 1 };
			get[i] = (struct mcs_get_item){
				{ name[i], strlen(name[i]) }, 0, 1, &out[i], 1, 0 };
		}
		began = mc_now_ns();
		for (unsigned i = 0; i < total; i += per) {
			unsigned n = total - i < per ? total - i : per;

			if (mcs_put_batch(s, put + i, n, NULL, -1) != (int)n)
				die("put", put[i].result);
		}
		put_ns = mc_now_ns() - began;
		began = mc_now_ns();
		for (unsigned i = 0; i < total; i += per) {
			unsigned n = total - i < per ? total - i : per;

			if (mcs_get_batch(s, get + i, n, -1) != (int)n)
				die("get", (int)get[i].result);
		}
		get_ns = mc_now_ns() - began;
		rates.put = best(rates.put, gbs(total * size, put_ns));
		rates.get = best(rates.get, gbs(total * size, get_ns));
		if (memcmp(src, dst, total * size))
			die("the bytes differ", -EIO);
		(void)mcs_remove_match(s, all, NULL, MCS_REMOVE_FORCE, -1);
	}
	free(put);
	free(get);
	free(in);
	free(out);
	free(name);
	return rates;
}

static void bandwidth(mcs_t *s, const char *how, char *src, char *dst)
{
	static const size_t sizes[] = {
		4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= WORKING_SET; i++) {
		size_t size = sizes[i];
		double copy = measure_memcpy(dst, src, size);
		struct rates r = measure_store(s, src, dst, size);

		char what[48];

		(void)snprintf(what, sizeof(what), "store put, %s, %zu KiB", how, size >> 10);
		perf_row(what, "rate", r.put, "GB/s");
		perf_row(what, "ratio", r.put / copy, "x memcpy");
		(void)snprintf(what, sizeof(what), "store get, %s, %zu KiB", how, size >> 10);
		perf_row(what, "rate", r.get, "GB/s");
		perf_row(what, "ratio", r.get / copy, "x memcpy");
	}
}

static void raw_round_trips(int fd, unsigned n, struct mc_hist *hist)
{
	static char ask[64], reply[4096];

	while (n--) {
		uint64_t began = mc_now_ns();

		send_all(fd, ask, sizeof(ask));
		recv_all(fd, reply, sizeof(reply));
		mc_hist_add(hist, mc_now_ns() - began);
	}
}

static void small_gets(mcs_t *s, char *buf, unsigned n, struct mc_hist *hist)
{
	const struct mcs_key key = { "small", 5 };
	struct iovec iov = { buf, 4096 };

	while (n--) {
		uint64_t began = mc_now_ns();

		if (mcs_get(s, key, &iov, 1, -1) != 4096)
			die("get", -EIO);
		mc_hist_add(hist, mc_now_ns() - began);
	}
}

/* In turn, so that both suffer the same disturbances. */
static void small_get_latency(mcs_t *s, char *buf, const char *echo_addr)
{
	const struct mcs_key key = { "small", 5 };
	struct iovec iov = { buf, 4096 };
	static struct mc_hist raw, get;
	double ratio;
	int fd = mc_socket_connect(echo_addr, mc_deadline_ms(5000));

	if (fd < 0)
		die("connect", fd);
	if (mcs_put(s, key, &iov, 1, NULL, -1))
		die("put", -EIO);
	for (int turn = 0; turn < 20; turn++) {
		raw_round_trips(fd, (unsigned)LATENCY_ROUNDS / 20, &raw);
		small_gets(s, buf, (unsigned)LATENCY_ROUNDS / 20, &get);
	}
	close(fd);
	ratio = (double)mc_hist_quantile(&get, 0.5) / (double)mc_hist_quantile(&raw, 0.5);
	perf_row("socket round trip of 4 KiB", "p50", (double)mc_hist_quantile(&raw, 0.5) / 1000, "us");
	perf_row("store get, between processes, 4 KiB", "p50",
		 (double)mc_hist_quantile(&get, 0.5) / 1000, "us");
	perf_row("store get, between processes, 4 KiB", "p50 ratio", ratio, "x socket");
}

static uint64_t small_put(mcs_t *s, char *buf)
{
	struct iovec iov = { buf, 4096 };
	struct mc_hist hist = { 0 };

	for (unsigned i = 0; i < LATENCY_ROUNDS; i++) {
		char name[32];
		struct mcs_key key = { name, (size_t)snprintf(name, sizeof(name), "put-%u", i) };
		uint64_t began = mc_now_ns();

		if (mcs_put(s, key, &iov, 1, NULL, -1))
			die("put", -EIO);
		mc_hist_add(&hist, mc_now_ns() - began);
	}
	return mc_hist_quantile(&hist, 0.5);
}

/* Keys per second of batched exists over one connection. */
static double exist_rate(mcs_t *s, char *buf)
{
	enum { N = 20000, BATCH = 500 };
	struct mcs_put_item *put = calloc(N, sizeof(*put));
	struct mcs_key *keys = calloc(N, sizeof(*keys));
	uint8_t *present = malloc(N);
	char (*name)[32] = calloc(N, sizeof(*name));
	struct iovec iov = { buf, 64 };
	uint64_t began;
	double result = 0;

	for (unsigned i = 0; i < N; i++) {
		keys[i] = (struct mcs_key){ name[i], (size_t)snprintf(name[i], 32, "exist-%u", i) };
		put[i] = (struct mcs_put_item){ .key = keys[i], .iov = &iov, .iovcnt = 1 };
	}
	if (mcs_put_batch(s, put, N, NULL, -1) != N)
		die("put", put[0].result);
	for (int round = 0; round < 5; round++) {
		began = mc_now_ns();
		for (unsigned i = 0; i < N; i += BATCH)
			if (mcs_exist(s, keys + i, BATCH, present, -1) != BATCH)
				die("exist", -EIO);
		result = best(result, gbs(N, mc_now_ns() - began));
	}
	free(put);
	free(keys);
	free(present);
	free(name);
	return result * 1e3;
}

static uint64_t mapped_read(mcs_t *s)
{
	const struct mcs_key key = { "small", 5 };
	struct mc_hist hist = { 0 };
	mcs_object_t *o;
	int r;

	r = mcs_object_open(s, key, &o, -1);
	if (r < 0)
		die("open", r);
	for (unsigned i = 0; i < LATENCY_ROUNDS; i++) {
		uint64_t began = mc_now_ns();
		const void *p;

		r = mcs_object_map(o, &p, -1);
		if (r < 0)
			die("map", r);
		mc_hist_add(&hist, mc_now_ns() - began);
	}
	mcs_object_close(o);
	return mc_hist_quantile(&hist, 0.5);
}

/* The machine's last NUMA node. */
static int last_node(void)
{
	char text[64] = "0", *at;
	int fd = open("/sys/devices/system/node/online", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		*text = 0;
	if (fd >= 0)
		close(fd);
	at = text + strcspn(text, "\n");
	while (at > text && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return atoi(at);
}

static void far_bandwidth(mcs_t *s, char *src, char *dst)
{
	static const size_t sizes[] = { 1 << 20, 16 << 20 };
	char *there = region(WORKING_SET, far_node);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= WORKING_SET; i++) {
		double put = measure_memcpy(there, src, sizes[i]), get = measure_memcpy(dst, there, sizes[i]);
		struct rates r = measure_store(s, src, dst, sizes[i]);
		char what[48];

		(void)snprintf(what, sizeof(what), "store put, far memory, %zu KiB", sizes[i] >> 10);
		perf_row(what, "rate", r.put, "GB/s");
		perf_row(what, "ratio", r.put / put, "x memcpy");
		(void)snprintf(what, sizeof(what), "store get, far memory, %zu KiB", sizes[i] >> 10);
		perf_row(what, "rate", r.get, "GB/s");
		perf_row(what, "ratio", r.get / get, "x memcpy");
	}
	munmap(there, WORKING_SET);
}

static void start_pool(pid_t *ret_master, pid_t *ret_owner)
{
	int fd;
	char c;

	*ret_master = child(run_master, &fd);
	if (read(fd, master_addr, sizeof(master_addr)) != sizeof(master_addr))
		die("master", -EIO);
	close(fd);
	*ret_owner = child(run_owner, &fd);
	if (read(fd, &c, 1) != 1)
		die("owner", -EIO);
	close(fd);
}

static void stop_pool(pid_t master, pid_t owner)
{
	kill(owner, SIGKILL);
	kill(master, SIGKILL);
	(void)waitpid(owner, NULL, 0);
	(void)waitpid(master, NULL, 0);
}

int main(void)
{
	pid_t master, owner, echo;
	char echo_addr[MC_ADDR_MAX], *src, *dst;
	int fd;
	mcs_t *s;

	start_pool(&master, &owner);
	echo = child(run_echo, &fd);
	if (read(fd, echo_addr, sizeof(echo_addr)) != sizeof(echo_addr))
		die("echo", -EIO);
	src = region(WORKING_SET, -1);
	dst = region(WORKING_SET, -1);
	for (size_t i = 0; i < WORKING_SET; i++)
		src[i] = (char)(i * 131 + i / 4096);

	s = open_store(0, 0);
	pin(0);
	small_get_latency(s, src, echo_addr);
	(void)waitpid(echo, NULL, 0);
	perf_row("store put, between processes, 4 KiB", "p50", (double)small_put(s, src) / 1000, "us");
	perf_row("store open and map", "p50", (double)mapped_read(s) / 1000, "us");
	perf_row("store exist, batches of 500", "rate", exist_rate(s, src), "M keys/s");
	unpin();
	bandwidth(s, "mapped", src, dst);
	mcs_close(s);
	s = open_store(0, 1);
	bandwidth(s, "tcp", src, dst);
	mcs_close(s);
	stop_pool(master, owner);

	far_node = last_node();
	start_pool(&master, &owner);
	s = open_store(0, 0);
	far_bandwidth(s, src, dst);
	mcs_close(s);
	stop_pool(master, owner);
	return 0;
}
