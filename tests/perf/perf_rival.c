/* SPDX-License-Identifier: Apache-2.0
 * perf_rival.c - our engine over TCP against upstream's wheel, 0.3.13.post1 with its connection
 * pool and its maximum queue length, in turn within one run: the same sizes and the same number of
 * concurrent requests, which upstream may spread over its best number of threads.  Both include the
 * CPU time of both of their processes.  The wheel is that of tests/integ/interop_0_3_13.sh. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/net.h"
#include "engine/mce.h"
#include "tests/perf/row.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define REGION (256 * MIB)
#define REPEATS_MAX 5
#define REPEATS (unsigned)perf_n(REPEATS_MAX, 1)
#define SPELL_NS perf_n(300 * MC_NS_PER_MS, 5 * MC_NS_PER_MS)
#define FLIGHT_MAX 4096u

struct child {
	pid_t pid;
	FILE *to, *from;
};

struct offer {
	char endpoint[MC_ADDR_MAX];
	uint64_t addr, rkey;
};

static struct child owner, rival_owner, rival;

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static char *memory(void)
{
	char *mem = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		die("mmap", -errno);
	memset(mem, 1, REGION);
	return mem;
}

/* ---- processes ---- */

/* Fork with pipes to and from the child's standard input and output; returns 0 in the child. */
static pid_t split(struct child *c)
{
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		die("pipe", -errno);
	c->pid = fork();
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
	} else {
		c->to = fdopen(in[1], "w");
		c->from = fdopen(out[0], "r");
	}
	close(in[0]);
	close(out[1]);
	return c->pid;
}

static void start(struct child *c, const char *role, const char *name)
{
	char python[4096], script[4096], length[24];

	if (split(c))
		return;
	snprintf(python, sizeof(python), "%s/tests/wheels/0.3.13.post1/bin/python", getenv("top_builddir"));
	snprintf(script, sizeof(script), "%s/tests/integ/interop_actor.py", getenv("top_srcdir"));
	snprintf(length, sizeof(length), "%llu", REGION);
	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	setenv("MC_TCP_ENABLE_CONNECTION_POOL", "1", 1);
	setenv("MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "65535", 1);
	setenv("MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER", "65535", 1);
	setenv("MC_TCP_ADMISSION_TIMEOUT_MS", "600000", 1);
	if (!freopen("/dev/null", "w", stderr))
		_exit(127);
	execl(python, python, script, role, "P2PHANDSHAKE", name ? name : length, name ? length : NULL,
	      (char *)NULL);
	_exit(127);
}

static void told(struct child *c, char line[256])
{
	if (!fgets(line, 256, c->from))
		die("upstream's process", -EPIPE);
	line[strcspn(line, "\n")] = 0;
}

static void stop(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
}

static void own(void)
{
	struct mce_mr_attr attr = {
		.len = REGION, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1,
	};
	struct mce_conf conf = { .spin_us = 50 };
	struct mce_engine *e;
	struct mce_mr *mr;
	int r;

	attr.base = memory();
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr);
	if (r < 0)
		die("engine", r);
	printf("%s %" PRIu64 " %" PRIu64 "\n", mce_engine_endpoint(e), (uint64_t)(uintptr_t)attr.base,
	       mce_mr_rkey(mr));
	fflush(stdout);
	for (;;)
		pause();
}

static double cpu_of(pid_t pid)
{
	struct timespec ts = { .tv_sec = 0 };
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		die("clock", -ESRCH);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- measuring ---- */

struct load {
	enum mce_op op;
	uint64_t size;
	unsigned flight;
};

struct figure {
	double rate[REPEATS_MAX], cpu, bytes;
};

static void note(struct figure *f, unsigned i, double rate)
{
	f->rate[i] = rate;
	f->bytes += rate * (double)SPELL_NS;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, REPEATS, sizeof(*v), by_value);
	return v[REPEATS / 2];
}

static double run_ours(struct mce_engine *e, struct mce_peer *peer, const struct offer *o,
		       const struct load *l, char *mem)
{
	static struct mce_req reqs[FLIGHT_MAX];
	static struct iovec iov[FLIGHT_MAX];
	uint64_t began = mc_now_ns(), now = began, bytes = 0, off = 0;
	struct mce_batch b;

	while (now - began < SPELL_NS) {
		memset(reqs, 0, l->flight * sizeof(reqs[0]));
		for (unsigned i = 0; i < l->flight; i++) {
			iov[i] = (struct iovec){ mem + off, l->size };
			reqs[i] = (struct mce_req){
				.op = l->op, .peer = peer, .addr = o->addr + off, .rkey = o->rkey,
				.iov = &iov[i], .iovcnt = 1,
			};
			off = (off + l->size) % REGION;
		}
		mce_batch_init(&b);
		mce_submit(e, &b, reqs, l->flight);
		if (mce_batch_wait(e, &b, reqs, l->flight, mc_deadline_ms(30000)) || b.failed)
			die("transfer", reqs[0].status);
		bytes += l->size * l->flight;
		now = mc_now_ns();
	}
	return (double)bytes / (double)(now - began);
}

static double run_theirs(const struct load *l, unsigned threads)
{
	char line[256];

	fprintf(rival.to, "%s %" PRIu64 " %u %f %u\n", l->op == MCE_READ ? "read" : "write", l->size,
		l->flight, (double)SPELL_NS / 1e9, threads);
	fflush(rival.to);
	told(&rival, line);
	return atof(line);
}

static unsigned best_threads(const struct load *l)
{
	static const unsigned threads[] = { 1, 2, 4, 8 };
	unsigned best = 1;
	double most = 0, v;

	for (unsigned i = 0; i < 4 && threads[i] <= l->flight; i++) {
		(void)run_theirs(l, threads[i]);
		v = run_theirs(l, threads[i]);
		if (v > most) {
			most = v;
			best = threads[i];
		}
	}
	return best;
}

static void compare(struct mce_engine *e, struct mce_peer *peer, const struct offer *o,
		    const struct load *l, char *mem)
{
	struct figure ours = { .cpu = 0 }, theirs = { .cpu = 0 };
	unsigned threads = best_threads(l);
	double ratio[REPEATS_MAX], from;
	char name[80];

	for (unsigned i = 0; i < REPEATS; i++) {
		from = cpu_of(rival.pid) + cpu_of(rival_owner.pid);
		note(&theirs, i, run_theirs(l, threads));
		theirs.cpu += cpu_of(rival.pid) + cpu_of(rival_owner.pid) - from;
		from = cpu_of(getpid()) + cpu_of(owner.pid);
		note(&ours, i, run_ours(e, peer, o, l, mem));
		ours.cpu += cpu_of(getpid()) + cpu_of(owner.pid) - from;
		ratio[i] = ours.rate[i] / theirs.rate[i];
	}
	snprintf(name, sizeof(name), "tcp %s %" PRIu64 " KiB, %u at once", l->op == MCE_READ ? "read" : "write",
		 (uint64_t)(l->size / KIB), l->flight);
	perf_row(name, "engine", median(ours.rate), "GB/s");
	perf_row(name, "upstream", median(theirs.rate), "GB/s");
	perf_row(name, "its threads", threads, "");
	perf_row(name, "ratio", median(ratio), "x upstream");
	perf_row(name, "cpu", ours.cpu / ours.bytes * 1e9, "s/GB");
	perf_row(name, "cpu ratio", ours.cpu / ours.bytes / (theirs.cpu / theirs.bytes), "x upstream's cpu");
}

int main(void)
{
	static const struct load loads[] = {
		{ MCE_READ, 4 * KIB, 4096 }, { MCE_READ, 64 * KIB, 64 }, { MCE_READ, MIB, 16 },
		{ MCE_READ, 16 * MIB, 4 }, { MCE_WRITE, 4 * KIB, 4096 }, { MCE_WRITE, 64 * KIB, 64 },
		{ MCE_WRITE, MIB, 16 }, { MCE_WRITE, 16 * MIB, 4 },
	};
	struct mce_conf conf = { .force_tcp = true, .spin_us = 50 };
	char python[4096], name[256], line[256];
	struct mce_engine *e;
	struct mce_peer *peer;
	struct offer o;
	char *mem;
	int r;

	if (!getenv("top_builddir") || !getenv("top_srcdir"))
		die("top_builddir and top_srcdir", -EINVAL);
	snprintf(python, sizeof(python), "%s/tests/wheels/0.3.13.post1/complete", getenv("top_builddir"));
	if (access(python, R_OK)) {
		printf("upstream's wheel is not there; tests/integ/interop_0_3_13.sh installs it\n");
		return 77;
	}
	if (split(&owner) == 0)
		own();
	start(&rival_owner, "serve", NULL);
	told(&rival_owner, name);
	start(&rival, "bench", name);
	told(&owner, line);
	if (sscanf(line, "%255s %" SCNu64 " %" SCNu64, o.endpoint, &o.addr, &o.rkey) != 3)
		die(line, -EINVAL);
	mem = memory();
	r = mce_engine_open(&conf, &e);
	if (r == 0)
		r = mce_peer_get(e, o.endpoint, &peer);
	if (r < 0)
		die("engine", r);
	for (unsigned i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		compare(e, peer, &o, &loads[i], mem);
	mce_peer_put(peer);
	mce_engine_close(e);
	stop(&rival);
	stop(&rival_owner);
	stop(&owner);
	return 0;
}
