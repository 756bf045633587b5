/* SPDX-License-Identifier: Apache-2.0
 * engine_actor.c - an engine at one end of a network, for tests of several nodes.
 *
 *	engine_actor serve HOST LEN		offer LEN bytes; print "PID ENDPOINT PORT ADDR RKEY", PORT is
 *						for upstream's protocol; then "sleep MS" per line of input: print
 *						the CPU milliseconds and wake-ups of that time
 *	engine_actor drive HOST KIND N WHO...	N clients (KIND "ours" or "upstream"), each an engine of its own, that
 *						each write and read their share of WHO's LEN bytes in blocks of
 *						SIZE for SECONDS, and check it; print bytes per second of each
 *						(WHO: ENDPOINT PORT ADDR RKEY LEN SIZE SECONDS)
 *
 * With ENGINE_ACTOR_RDMA=NICS in the environment all clients of KIND "ours" use these NICs, also on one host, and print
 * behind the rate how many of their transfers went over another path, and how long the longest took (ms). */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/net.h"
#include "engine/mce.h"

#define FLIGHT 8u
#define CLIENTS_MAX 256u

static void die(const char *what, int err)
{
	printf("%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void use_nics(struct mce_conf *conf)
{
	conf->rdma_devices = getenv("ENGINE_ACTOR_RDMA");
	conf->force_rdma = conf->rdma_devices;
}

static char *memory(uint64_t len)
{
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		die("mmap", -errno);
	return mem;
}

/* ---- serving ---- */

/* Number of times that threads of this process slept.  /proc/self/status counts only the first thread. */
static long woken(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], line[128];
	struct dirent *ent;
	long all = 0, n;
	FILE *f;

	while (d && (ent = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", ent->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				all += n;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return all;
}

static void idle(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 }, from, to;
	long before = woken();

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	nanosleep(&ts, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	printf("%.1f %ld\n",
	       (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6,
	       woken() - before);
	fflush(stdout);
}

static void serve(const char *host, uint64_t len)
{
	struct mce_conf conf = { .host = host, .upstream = true, .bind_host = host };
	struct mce_mr_attr attr = { .len = len, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1 };
	struct mce_engine *e;
	struct mce_mr *mr;
	char line[64];
	unsigned ms;
	int r;

	attr.base = memory(len);
	use_nics(&conf);
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr);
	if (r < 0)
		die("serve", r);
	printf("%d %s %d %" PRIu64 " %" PRIu64 "\n", (int)getpid(), mce_engine_endpoint(e), mce_engine_upstream_port(e),
	       (uint64_t)(uintptr_t)attr.base, mce_mr_rkey(mr));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		if (sscanf(line, "sleep %u", &ms) == 1)
			idle(ms);
	mce_engine_close(e);
}

/* ---- driving ---- */

struct client {
	pthread_t thread;
	unsigned n, others;	/* transfers over other paths than RDMA */
	uint64_t longest;	/* ns, of a group of transfers */
	double rate;
};

static struct {
	const char *host, *endpoint;
	bool upstream;
	int port;
	unsigned n;
	uint64_t addr, rkey, len, size, ns;
} run;

static pthread_barrier_t all_there;

static unsigned move(struct mce_engine *e, struct mce_peer *peer, enum mce_op op, uint64_t addr, char *mem,
		     uint64_t part)
{
	struct mce_req reqs[FLIGHT];
	struct iovec iov[FLIGHT];
	struct mce_batch b;
	unsigned n = 0, others = 0;

	memset(reqs, 0, sizeof(reqs));
	for (uint64_t off = 0; n < FLIGHT && off + run.size <= part; n++, off += run.size) {
		iov[n] = (struct iovec){ mem + off, run.size };
		reqs[n] = (struct mce_req){
			.op = op, .peer = peer, .addr = addr + off, .rkey = run.rkey, .iov = &iov[n], .iovcnt = 1,
		};
	}
	mce_batch_init(&b);
	mce_submit(e, &b, reqs, n);
	if (mce_batch_wait(e, &b, reqs, n, mc_deadline_ms(60000)) || b.failed)
		die("transfer", reqs[0].status);
	for (unsigned i = 0; i < n; i++)
		others += reqs[i].path != MCE_PATH_RDMA;
	return others;
}

/* Memory of a client; NICs use it without a copy. */
static void own(struct mce_engine *e, char *mem, uint64_t len)
{
	struct mce_mr_attr attr = { .base = mem, .len = len, .fd = -1 };
	struct mce_mr *mr;
	int r = mce_mr_register(e, &attr, &mr);

	if (r < 0)
		die("register", r);
}

static uint64_t blocks(uint64_t part)
{
	return part / run.size < FLIGHT ? part / run.size : FLIGHT;
}

static void timed_move(struct client *c, struct mce_engine *e, struct mce_peer *peer, enum mce_op op, uint64_t addr,
		       char *mem, uint64_t part)
{
	uint64_t began = mc_now_ns(), took;

	c->others += move(e, peer, op, addr, mem, part);
	took = mc_now_ns() - began;
	c->longest = took > c->longest ? took : c->longest;
}

static void *client_main(void *arg)
{
	struct mce_conf conf = { .host = run.host, .force_tcp = true, .io_threads = 1 };
	struct client *c = arg;
	uint64_t part = run.len / run.n, addr = run.addr + c->n * part, bytes = 0, began;
	char *out = memory(part), *in = memory(part);
	struct mce_engine *e;
	struct mce_peer *peer = NULL;
	char host[MC_ADDR_MAX];
	int port, r;

	use_nics(&conf);
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mc_addr_split(run.endpoint, host, sizeof(host), -1, &port);
	if (r == 0)
		r = run.upstream ? mce_peer_get_upstream(e, host, run.port, 2, &peer) :
			mce_peer_get(e, run.endpoint, &peer);
	if (r < 0)
		die("client", r);
	own(e, out, part);
	own(e, in, part);
	/* Start the clock when all clients are connected and have touched their memory. */
	memset(out, 1, part);
	move(e, peer, MCE_READ, addr, in, part);
	pthread_barrier_wait(&all_there);
	began = mc_now_ns();
	for (unsigned k = 0; mc_now_ns() - began < run.ns; k++) {
		memset(out, (int)(c->n + k), blocks(part) * run.size);
		timed_move(c, e, peer, MCE_WRITE, addr, out, part);
		timed_move(c, e, peer, MCE_READ, addr, in, part);
		if (memcmp(out, in, blocks(part) * run.size))
			die("bytes differ", -EINVAL);
		bytes += 2 * blocks(part) * run.size;
	}
	c->rate = (double)bytes * 1e9 / (double)(mc_now_ns() - began);
	mce_peer_put(peer);
	mce_engine_close(e);
	return NULL;
}

int main(int argc, char **argv)
{
	struct mc_log_conf log = { .levels = getenv("ENGINE_ACTOR_LOG") };
	static struct client c[CLIENTS_MAX];

	if (log.levels && mc_log_open(&log) < 0)
		die("log", -EINVAL);
	if (argc == 4 && !strcmp(argv[1], "serve")) {
		serve(argv[2], strtoull(argv[3], NULL, 0));
		return 0;
	}
	if (argc != 12)
		die("arguments", -EINVAL);
	run.host = argv[2];
	run.upstream = !strcmp(argv[3], "upstream");
	run.n = (unsigned)atoi(argv[4]);
	run.endpoint = argv[5];
	run.port = atoi(argv[6]);
	run.addr = strtoull(argv[7], NULL, 0);
	run.rkey = strtoull(argv[8], NULL, 0);
	run.len = strtoull(argv[9], NULL, 0);
	run.size = strtoull(argv[10], NULL, 0);
	run.ns = strtoull(argv[11], NULL, 0) * MC_NS_PER_SEC;
	if (run.n == 0 || run.n > CLIENTS_MAX || pthread_barrier_init(&all_there, NULL, run.n))
		die("clients", -EINVAL);
	for (unsigned i = 0; i < run.n; i++) {
		c[i].n = i;
		if (pthread_create(&c[i].thread, NULL, client_main, &c[i]))
			die("thread", -EAGAIN);
	}
	for (unsigned i = 0; i < run.n; i++) {
		pthread_join(c[i].thread, NULL);
		if (getenv("ENGINE_ACTOR_RDMA"))
			printf("%.0f %u %.1f\n", c[i].rate, c[i].others, (double)c[i].longest / 1e6);
		else
			printf("%.0f\n", c[i].rate);
	}
	return 0;
}
