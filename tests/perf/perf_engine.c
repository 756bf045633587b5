/* SPDX-License-Identifier: Apache-2.0
 * perf_engine.c - the transfer engine against the machine's limits, in one run: memcpy over the
 * same working set for the paths local and mapped, and for tcp a minimal program that sends the
 * same number of bytes through two sockets, or a ping-pong.  The comparison is measured again next
 * to every figure, and each pair several times: the table shows the best of both, and the median of
 * their ratios.  For tcp it also shows the CPU time of both processes, which other load on the
 * machine disturbs less. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "engine/mce.h"
#include "tests/lib/transfer.h"
#include "tests/perf/row.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
/* Larger than the CPU caches. */
#define REGION perf_n(256 * MIB, 64 * MIB)
#define REPEATS_MAX 5
#define SPELL_NS perf_n(250 * MC_NS_PER_MS, MC_NS_PER_MS)
#define STREAMS 2
#define FLIGHT_MAX 256u

/* The memory and addresses that the owner's process offers. */
struct offer {
	char endpoint[MC_ADDR_MAX], raw[MC_ADDR_MAX];
	uint64_t addr, rkey;
};

static uint64_t region, spell_ns;
static unsigned repeats;
static char *local;		/* region bytes in this process */
static struct offer offer;
static const char *only = "";	/* run only rows whose names contain this */
static pid_t owner_pid;

/* Purpose of a connection to the minimal program. */
enum plain { PLAIN_WRITE, PLAIN_READ, PLAIN_PING };
#define PING_BYTES 48u		/* size of a request, which one block answers */

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static char *huge_memory(int *ret_fd)
{
	int fd = memfd_create("perf", MFD_CLOEXEC);
	char *mem;

	if (fd < 0 || ftruncate(fd, region))
		die("memfd", -errno);
	mem = mmap(NULL, region, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		die("mmap", -errno);
	madvise(mem, region, MADV_HUGEPAGE);
	memset(mem, 1, region);
	*ret_fd = fd;
	return mem;
}

/* ---- the owner's process ---- */

/* Serve one connection: receive bytes into memory block by block, or send them from it.  The
 * client's first message has the purpose, the size of a block, and this stream's part of the
 * memory. */
static void *raw_serve(void *arg)
{
	static char *into;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int fd = (int)(intptr_t)arg;
	uint64_t head[3], off = 0;
	ssize_t n;
	char *part;

	pthread_mutex_lock(&lock);
	if (!into)
		into = huge_memory(&(int){ 0 });
	pthread_mutex_unlock(&lock);
	n = recv(fd, head, sizeof(head), MSG_WAITALL);
	part = into + head[2] % STREAMS * (region / STREAMS);
	while (n > 0) {
		if (head[0] == PLAIN_PING)
			n = recv(fd, part + region / STREAMS - PING_BYTES, PING_BYTES, MSG_WAITALL);
		if (n <= 0)
			break;
		n = head[0] ? send(fd, part + off, head[1], MSG_NOSIGNAL) :
			recv(fd, part + off, head[1], MSG_WAITALL);
		off = (off + head[1]) % (region / STREAMS);
	}
	close(fd);
	return NULL;
}

static void *raw_accept(void *arg)
{
	int listener = (int)(intptr_t)arg, fd;
	pthread_t t;

	for (;;) {
		struct pollfd pfd = { .fd = listener, .events = POLLIN };

		poll(&pfd, 1, -1);
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			continue;
		if (pthread_create(&t, NULL, raw_serve, (void *)(intptr_t)fd))
			die("thread", -EAGAIN);
		pthread_detach(t);
	}
	return NULL;
}

static void owner(int out, unsigned spin_us)
{
	struct mce_conf conf = { .spin_us = spin_us };
	struct mce_mr_attr attr = { .len = region, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct mce_engine *e;
	struct mce_mr *mr;
	struct offer o = { .addr = 0 };
	int r, listener;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attr.base = huge_memory(&attr.fd);
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr);
	if (r < 0)
		die("engine", r);
	listener = mc_socket_listen("127.0.0.1:0", 8, 0, o.raw);
	if (listener < 0)
		die("listen", listener);
	snprintf(o.endpoint, sizeof(o.endpoint), "%s", mce_engine_endpoint(e));
	o.addr = (uintptr_t)attr.base;
	o.rkey = mce_mr_rkey(mr);
	if (write(out, &o, sizeof(o)) != sizeof(o))
		exit(1);
	raw_accept((void *)(intptr_t)listener);
}

static pid_t owner_start(unsigned spin_us)
{
	int p[2];
	pid_t pid;

	if (pipe(p))
		die("pipe", -errno);
	pid = fork();
	if (pid == 0)
		owner(p[1], spin_us);
	close(p[1]);
	if (read(p[0], &offer, sizeof(offer)) != sizeof(offer))
		exit(1);
	close(p[0]);
	return pid;
}

/* ---- comparisons ---- */

/* Each function returns GB/s. */
static double run_memcpy(const char *from, uint64_t size)
{
	uint64_t began = mc_now_ns(), now = began, bytes = 0, off = 0;

	while (now - began < spell_ns) {
		for (uint64_t k = 0; k < 8 * MIB; k += size) {
			memcpy(local + off, from + off, size);
			off = (off + size) % region;
			bytes += size;
		}
		now = mc_now_ns();
	}
	return (double)bytes / (double)(now - began);
}

struct stream {
	uint64_t op, size, bytes, end;
	unsigned n;
};

static void *raw_main(void *arg)
{
	struct stream *s = arg;
	uint64_t head[3] = { s->op == MCE_READ ? PLAIN_READ : PLAIN_WRITE, s->size, s->n }, off = 0;
	char *part = local + s->n * (region / STREAMS);
	int fd = mc_socket_connect(offer.raw, mc_deadline_ms(5000));
	ssize_t n = 1;

	if (fd < 0)
		die("connect", fd);
	/* The minimal program uses blocking sockets. */
	if (fcntl(fd, F_SETFL, 0) || send(fd, head, sizeof(head), 0) != sizeof(head))
		die("raw", -errno);
	while (n > 0 && mc_now_ns() < s->end) {
		n = s->op == MCE_READ ? recv(fd, part + off, s->size, MSG_WAITALL) :
			send(fd, part + off, s->size, MSG_NOSIGNAL);
		s->bytes += n > 0 ? (uint64_t)n : 0;
		off = (off + s->size) % (region / STREAMS);
	}
	close(fd);
	return NULL;
}

static double seconds_of(clockid_t clock)
{
	struct timespec ts = { .tv_sec = 0 };

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* CPU time of both processes. */
static double cpu_seconds(void)
{
	clockid_t owners;

	if (clock_getcpuclockid(owner_pid, &owners))
		die("clock", -EINVAL);
	return seconds_of(owners) + seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* Microseconds of a round trip that transfers one block. */
static double raw_ping(uint64_t size, unsigned rounds)
{
	uint64_t head[3] = { PLAIN_PING, size, 0 }, began;
	int fd = mc_socket_connect(offer.raw, mc_deadline_ms(5000));

	if (fd < 0)
		die("connect", fd);
	if (fcntl(fd, F_SETFL, 0) || send(fd, head, sizeof(head), 0) != sizeof(head))
		die("raw", -errno);
	began = mc_now_ns();
	for (unsigned i = 0; i < rounds; i++)
		if (send(fd, local + size, PING_BYTES, 0) < 0 ||
		    recv(fd, local, size, MSG_WAITALL) != (ssize_t)size)
			die("ping", -errno);
	close(fd);
	return (double)(mc_now_ns() - began) / rounds / 1000;
}

static double run_raw(enum mce_op op, uint64_t size)
{
	struct stream s[STREAMS];
	pthread_t t[STREAMS];
	uint64_t began = mc_now_ns(), bytes = 0;

	for (unsigned i = 0; i < STREAMS; i++) {
		s[i] = (struct stream){ .op = op, .size = size, .end = began + spell_ns, .n = i };
		if (pthread_create(&t[i], NULL, raw_main, &s[i]))
			die("thread", -EAGAIN);
	}
	for (unsigned i = 0; i < STREAMS; i++) {
		pthread_join(t[i], NULL);
		bytes += s[i].bytes;
	}
	return (double)bytes / (double)(mc_now_ns() - began);
}

/* ---- the engine ---- */

struct load {
	struct mce_engine *e;
	struct mce_peer *peer;
	uint64_t addr, rkey, size;
	enum mce_op op;
	unsigned flight;
	bool crc;
	enum mce_path path;
};

/* Half of the requests in flight: while one half is awaited, the other half moves, as sockets too
 * keep moving bytes between two calls. */
struct half {
	struct mce_batch batch;
	struct mce_req reqs[FLIGHT_MAX];
	struct iovec iov[FLIGHT_MAX];
	uint32_t crc[FLIGHT_MAX][256];
	unsigned n;
};

static void half_submit(const struct load *l, struct half *h, uint64_t *off)
{
	memset(h->reqs, 0, h->n * sizeof(h->reqs[0]));
	for (unsigned i = 0; i < h->n; i++) {
		struct mce_req *q = &h->reqs[i];

		h->iov[i] = (struct iovec){ local + *off, l->size };
		q->op = l->op;
		q->peer = l->peer;
		q->addr = l->addr + *off;
		q->rkey = l->rkey;
		q->iov = &h->iov[i];
		q->iovcnt = 1;
		if (l->crc) {
			q->crc = h->crc[i];
			q->crc_len = l->size;
		}
		*off = (*off + l->size) % region;
	}
	mce_batch_init(&h->batch);
	mce_submit(l->e, &h->batch, h->reqs, h->n);
}

static uint64_t half_wait(const struct load *l, struct half *h)
{
	if (mce_batch_wait(l->e, &h->batch, h->reqs, h->n, mc_deadline_ms(30000)) || h->batch.failed)
		die("transfer", h->reqs[0].status);
	if (h->reqs[0].path != l->path)
		die("path", -EINVAL);
	return l->size * h->n;
}

static double run_engine(const struct load *l)
{
	static struct half half[2];
	uint64_t began = mc_now_ns(), now = began, bytes = 0, off = 0;
	unsigned halves = l->flight > 1 ? 2 : 1, turn = 0;

	for (unsigned i = 0; i < halves; i++) {
		half[i].n = l->flight / halves;
		half_submit(l, &half[i], &off);
	}
	while (now - began < spell_ns) {
		bytes += half_wait(l, &half[turn]);
		half_submit(l, &half[turn], &off);
		turn = (turn + 1) % halves;
		now = mc_now_ns();
	}
	for (unsigned i = 0; i < halves; i++)
		bytes += half_wait(l, &half[(turn + i) % halves]);
	return (double)bytes / (double)(mc_now_ns() - began);
}

static const char *size_name(uint64_t size, char buf[16])
{
	snprintf(buf, 16, size < MIB ? "%llu KiB" : "%llu MiB",
		 (unsigned long long)(size < MIB ? size / KIB : size / MIB));
	return buf;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void compare(struct load *l, const char *path)
{
	double mine = 0, theirs = 0, v, cpu[2] = { 0 }, bytes[2] = { 0 }, ratio[REPEATS_MAX], from;
	bool tcp = l->path == MCE_PATH_TCP;
	char name[80], size[16];

	snprintf(name, sizeof(name), "%s %s %s%s", path, l->op == MCE_READ ? "read" : "write",
		 size_name(l->size, size), l->crc ? ", crc" : "");
	if (l->flight > 1)
		snprintf(name + strlen(name), sizeof(name) - strlen(name), ", %u at once", l->flight);
	if (!strstr(name, only))
		return;
	for (unsigned i = 0; i < repeats; i++) {
		from = tcp ? cpu_seconds() : 0;
		v = tcp ? run_raw(l->op, l->size) : run_memcpy((const char *)(uintptr_t)l->addr, l->size);
		theirs = v > theirs ? v : theirs;
		ratio[i] = v;
		cpu[0] += tcp ? cpu_seconds() - from : 0;
		bytes[0] += v * (double)spell_ns;
		from = tcp ? cpu_seconds() : 0;
		v = run_engine(l);
		mine = v > mine ? v : mine;
		ratio[i] = v / ratio[i];
		cpu[1] += tcp ? cpu_seconds() - from : 0;
		bytes[1] += v * (double)spell_ns;
	}
	perf_row(name, "engine", mine, "GB/s");
	perf_row(name, tcp ? "2 sockets" : "memcpy", theirs, "GB/s");
	perf_row(name, "ratio", median(ratio, repeats), tcp ? "x sockets" : "x memcpy");
	if (!tcp)
		return;
	perf_row(name, "engine cpu", cpu[1] / bytes[1] * 1e9, "s/GB");
	perf_row(name, "ratio", cpu[1] / bytes[1] / (cpu[0] / bytes[0]), "x sockets' cpu");
}

static void latency(struct load *l, const char *path)
{
	const unsigned rounds = (unsigned)perf_n(l->size <= 4 * KIB ? 5000 : 500, 20);
	struct iovec iov = { .iov_base = local, .iov_len = l->size };
	struct mce_req req = {
		.op = l->op, .peer = l->peer, .addr = l->addr, .rkey = l->rkey, .iov = &iov, .iovcnt = 1,
	};
	double mine = 1e9, theirs = 1e9, ratio[REPEATS_MAX], v;
	bool tcp = l->path == MCE_PATH_TCP;
	char name[80], size[16];

	snprintf(name, sizeof(name), "%s %s %s, one at a time", path,
		 l->op == MCE_READ ? "read" : "write", size_name(l->size, size));
	if (!strstr(name, only))
		return;
	for (unsigned k = 0; k < repeats; k++) {
		uint64_t began = mc_now_ns();

		for (unsigned i = 0; i < rounds; i++)
			if (mce_transfer(l->e, &req, mc_deadline_ms(5000)))
				die("transfer", req.status);
		v = (double)(mc_now_ns() - began) / rounds / 1000;
		mine = v < mine ? v : mine;
		ratio[k] = v;
		v = tcp ? raw_ping(l->size, rounds) : theirs;
		theirs = v < theirs ? v : theirs;
		ratio[k] = v / ratio[k];
	}
	perf_row(name, "mean", mine, "us");
	if (!tcp)
		return;
	perf_row(name, "ping-pong", theirs, "us");
	perf_row(name, "ratio", median(ratio, repeats), "x ping-pong");
}

static const uint64_t sizes[] = { 4 * KIB, 64 * KIB, MIB, 16 * MIB };

/* memcpy needs a source in this process: for the mapped path use the engine's mapping. */
static void same_host(struct mce_engine *e, struct load *l, const char *path)
{
	struct load m = *l;

	m.e = e;
	m.flight = 1;
	for (int crc = 0; crc < 2; crc++)
		for (unsigned i = 0; i < 4; i++) {
			m.size = sizes[i];
			m.crc = crc;
			compare(&m, path);
		}
	m.size = 4 * KIB;
	m.crc = false;
	latency(&m, path);
}

static void local_path(void)
{
	struct mce_mr_attr attr = { .len = region, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct load l = { .op = MCE_READ, .path = MCE_PATH_LOCAL };
	struct mce_conf conf = { .spin_us = 50 };
	struct mce_mr *mr;
	int r;

	attr.base = huge_memory(&attr.fd);
	r = mce_engine_open(&conf, &l.e);
	if (r == 0)
		r = mce_mr_register(l.e, &attr, &mr);
	if (r == 0)
		r = mce_peer_get(l.e, mce_engine_endpoint(l.e), &l.peer);
	if (r < 0)
		die("local", r);
	l.addr = (uintptr_t)attr.base;
	l.rkey = mce_mr_rkey(mr);
	same_host(l.e, &l, "local");
	mce_peer_put(l.peer);
	mce_engine_close(l.e);
	munmap(attr.base, region);
	close(attr.fd);
}

static void mapped_path(void)
{
	struct load l = { .path = MCE_PATH_MAPPED, .addr = offer.addr, .rkey = offer.rkey };
	struct mce_conf conf = { .spin_us = 50 };
	double engine[2][4] = { { 0 } }, copy[4] = { 0 }, v;
	char name[80], size[16];
	const char *at;
	int err, r;

	r = mce_engine_open(&conf, &l.e);
	if (r == 0)
		r = mce_peer_get(l.e, offer.endpoint, &l.peer);
	if (r < 0)
		die("mapped", r);
	at = mce_peer_map(l.peer, offer.addr, offer.rkey, region, mc_deadline_ms(5000), &err);
	if (!at)
		die("map", err);
	l.flight = 1;
	for (unsigned k = 0; k < repeats; k++)
		for (unsigned i = 0; i < 4; i++) {
			v = run_memcpy(at, sizes[i]);
			copy[i] = v > copy[i] ? v : copy[i];
			l.size = sizes[i];
			for (int crc = 0; crc < 2; crc++) {
				l.crc = crc;
				v = run_engine(&l);
				engine[crc][i] = v > engine[crc][i] ? v : engine[crc][i];
			}
		}
	for (unsigned i = 0; i < 4; i++)
		for (int crc = 0; crc < 2; crc++) {
			snprintf(name, sizeof(name), "mapped read %s%s", size_name(sizes[i], size),
				 crc ? ", crc" : "");
			perf_row(name, "engine", engine[crc][i], "GB/s");
			perf_row(name, "memcpy", copy[i], "GB/s");
			perf_row(name, "ratio", engine[crc][i] / copy[i], "x memcpy");
		}
	l.size = 4 * KIB;
	l.crc = false;
	latency(&l, "mapped");
	mce_peer_put(l.peer);
	mce_engine_close(l.e);
}

static void tcp_path(unsigned spin_us)
{
	static const unsigned flights[] = { 256, 64, 16, 4 };
	struct load l = { .path = MCE_PATH_TCP, .addr = offer.addr, .rkey = offer.rkey };
	struct mce_conf conf = { .force_tcp = true, .spin_us = spin_us };
	int r;

	r = mce_engine_open(&conf, &l.e);
	if (r == 0)
		r = mce_peer_get(l.e, offer.endpoint, &l.peer);
	if (r < 0)
		die("tcp", r);
	for (int op = MCE_READ; op <= MCE_WRITE; op++)
		for (unsigned i = 0; i < 4; i++) {
			l.op = (enum mce_op)op;
			l.size = sizes[i];
			l.flight = flights[i];
			compare(&l, "tcp");
		}
	l.crc = true;
	l.size = MIB;
	l.flight = 16;
	for (int op = MCE_READ; op <= MCE_WRITE; op++) {
		l.op = (enum mce_op)op;
		compare(&l, "tcp");
	}
	l.crc = false;
	l.op = MCE_READ;
	for (unsigned i = 0; i < 3; i++) {
		l.size = sizes[i];
		latency(&l, "tcp");
	}
	mce_peer_put(l.peer);
	mce_engine_close(l.e);
}

/* perf_engine [SPIN_US [tcp [TEXT]]] - "tcp": only that path, of it only the rows whose names have TEXT */
int main(int argc, char **argv)
{
	unsigned spin_us = argc > 1 ? (unsigned)atoi(argv[1]) : 50;
	int fd;

	if (argc > 3)
		only = argv[3];
	region = REGION;
	spell_ns = SPELL_NS;
	repeats = (unsigned)perf_n(REPEATS_MAX, 1);
	owner_pid = owner_start(spin_us);
	local = huge_memory(&fd);
	if (argc <= 2 || strcmp(argv[2], "tcp")) {
		local_path();
		mapped_path();
	}
	tcp_path(spin_us);
	kill(owner_pid, SIGKILL);
	waitpid(owner_pid, NULL, 0);
	return 0;
}
