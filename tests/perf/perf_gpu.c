/* SPDX-License-Identifier: Apache-2.0
 * perf_gpu.c - the additional cost of transfers of GPU memory, compared with host memory in one run.
 *
 * Without a GPU the fake driver is used, whose copies then move no bytes, so the difference is the work around the
 * copies: slots, events, threads.  On a GPU the rows "x cudaMemcpy" compare a transfer into a segment of this host with
 * plain copies of the same size.  Each pair is measured in turn, several
 * times; the table shows the best of both and the median of their ratios. */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/gpu/gpu.h"
#include "common/net/net.h"
#include "engine/mce.h"
#include "tests/lib/fake_cuda_use.h"
#include "tests/perf/row.h"

#ifndef FAKE_CUDA	/* the lint compiles without this program's flags */
#define FAKE_CUDA "libcuda.so.1"
#endif

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define REGION (128 * MIB)
#define REPEATS_MAX 7
#define REPEATS (unsigned)perf_n(REPEATS_MAX, 1)
#define SPELL_NS perf_n(250 * MC_NS_PER_MS, MC_NS_PER_MS)
#define FLIGHT_MAX 4096u

struct offer {
	char endpoint[MC_ADDR_MAX];
	uint64_t addr, rkey;
};

static const struct mc_gpu_driver *gpu;
static char *host, *device;
static struct mce_engine *e;
static struct mce_peer *peer;
static struct offer offer;

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static char *memory(int *ret_fd)
{
	int fd = memfd_create("perf", MFD_CLOEXEC);
	char *mem;

	if (fd < 0 || ftruncate(fd, REGION))
		die("memfd", -errno);
	mem = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		die("mmap", -errno);
	memset(mem, 1, REGION);
	*ret_fd = fd;
	return mem;
}

/* The other process: memory of the host that can be mapped. */
static void owner(int out, bool tcp)
{
	struct mce_conf conf = { .force_tcp = tcp };
	struct mce_mr_attr attr = { .len = REGION, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct offer o = { .addr = 0 };
	struct mce_engine *mine;
	struct mce_mr *mr;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attr.base = memory(&attr.fd);
	r = mce_engine_open(&conf, &mine);
	if (r == 0)
		r = mce_mr_register(mine, &attr, &mr);
	if (r < 0)
		die("owner", r);
	snprintf(o.endpoint, sizeof(o.endpoint), "%s", mce_engine_endpoint(mine));
	o.addr = (uintptr_t)attr.base;
	o.rkey = mce_mr_rkey(mr);
	if (write(out, &o, sizeof(o)) != (ssize_t)sizeof(o))
		exit(1);
	pause();
}

static pid_t owner_start(bool tcp)
{
	int out[2];
	pid_t pid;

	if (pipe(out))
		die("pipe", -errno);
	pid = fork();
	if (pid == 0)
		owner(out[1], tcp);
	if (pid < 0 || read(out[0], &offer, sizeof(offer)) != (ssize_t)sizeof(offer))
		die("owner", -EIO);
	close(out[0]);
	close(out[1]);
	return pid;
}

/* ---- one figure -------------------------------------------------------------------------------- */

struct work {
	enum mce_op op;
	uint64_t block;
	unsigned n;		/* requests at a time */
	bool crc;
};

static double spell(const struct work *w, char *mem)
{
	static struct mce_req req[FLIGHT_MAX];
	static struct iovec iov[FLIGHT_MAX];
	static uint32_t crc[FLIGHT_MAX * 4];
	uint64_t begin = mc_now_ns(), now = begin, end = begin + SPELL_NS, bytes = 0, at = 0;
	struct mce_batch b;

	for (; now < end; now = mc_now_ns()) {
		for (unsigned i = 0; i < w->n; i++, at = (at + w->block) % (REGION - w->block)) {
			at &= ~63ull;
			iov[i] = (struct iovec){ mem + at, w->block };
			req[i] = (struct mce_req){
				.op = w->op, .peer = peer, .addr = offer.addr + at, .rkey = offer.rkey, .iov = &iov[i],
				.iovcnt = 1,
			};
			if (w->crc) {
				req[i].crc = crc + i * mc_crc_chunks(w->block);
				req[i].crc_len = w->block;
			}
		}
		mce_batch_init(&b);
		mce_submit(e, &b, req, w->n);
		if (mce_batch_wait(e, &b, req, w->n, MC_NEVER) < 0 || b.failed)
			die("transfer", req[0].status);
		bytes += w->n * w->block;
	}
	return (double)bytes / (double)(now - begin);
}

/* Plain copies of the driver between pinned memory and the GPU. */
static double spell_memcpy(const struct work *w, char *pinned)
{
	uint64_t begin = mc_now_ns(), now = begin, end = begin + SPELL_NS, bytes = 0, at = 0;

	for (; now < end; now = mc_now_ns()) {
		for (unsigned i = 0; i < w->n; i++, at = (at + w->block) % (REGION - w->block)) {
			char *d = device + at, *h = pinned + at;
			int r = gpu->copy_now(w->op == MCE_READ ? d : h, w->op == MCE_READ ? h : d, w->block);

			if (r < 0)
				die("copy", r);
		}
		bytes += w->n * w->block;
	}
	return (double)bytes / (double)(now - begin);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void compare(const char *name, const struct work *w, double (*other)(const struct work *w, char *mem), char *mem,
		    const char *against)
{
	double best = 0, best_other = 0, ratio[REPEATS_MAX];
	unsigned n = REPEATS;

	for (unsigned i = 0; i < n; i++) {
		double with = spell(w, device), without = other(w, mem);

		best = with > best ? with : best;
		best_other = without > best_other ? without : best_other;
		ratio[i] = with / without;
	}
	qsort(ratio, n, sizeof(ratio[0]), by_value);
	perf_row(name, "GPU memory", best, "GB/s");
	perf_row(name, against, best_other, "GB/s");
	perf_row(name, "ratio", ratio[n / 2], against);
}

static void table(const char *path, bool fake)
{
	static const struct work works[] = {
		{ MCE_WRITE, 4 * KIB, 1, true }, { MCE_READ, 4 * KIB, 1, true },
		{ MCE_WRITE, 16 * KIB, 2048, false }, { MCE_READ, 16 * KIB, 2048, false },
		{ MCE_WRITE, 256 * KIB, 32, true }, { MCE_READ, 256 * KIB, 32, true },
		{ MCE_WRITE, MIB, 16, true }, { MCE_READ, MIB, 16, true },
		{ MCE_WRITE, 16 * MIB, 2, true }, { MCE_READ, 16 * MIB, 2, true },
	};
	char name[64];

	for (unsigned i = 0; i < sizeof(works) / sizeof(*works); i++) {
		const struct work *w = &works[i];

		snprintf(name, sizeof(name), "%s %s %llu KiB x %u%s", path, w->op == MCE_WRITE ? "put" : "get",
			 (unsigned long long)(w->block / KIB), w->n, w->crc ? " crc" : "");
		compare(name, w, spell, host, "host memory");
		if (!fake)
			compare(name, w, spell_memcpy, host, "x cudaMemcpy");
	}
}

static void path_measure(const char *path, bool tcp, bool fake)
{
	struct mce_conf conf = { .force_tcp = tcp };
	struct mce_mr_attr attr = { .len = REGION, .fd = -1 };
	struct mce_mr *mr[2];
	int r = mce_engine_open(&conf, &e);

	if (r == 0)
		r = mce_peer_get(e, offer.endpoint, &peer);
	attr.base = host;
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr[0]);
	attr.base = device;
	if (r == 0)
		r = mce_mr_register(e, &attr, &mr[1]);
	if (r < 0)
		die(path, r);
	table(path, fake);
	mce_peer_put(peer);
	mce_engine_close(e);
}

/* The machine's driver, else the fake one. */
static bool driver_load(void)
{
	gpu = mc_gpu_load();
	if (gpu)
		return false;
	if (fake_cuda_load(FAKE_CUDA) < 0)
		exit(1);
	gpu = mc_gpu_load();
	if (!gpu)
		die("fake driver", -MC_ENOTSUP);
	fake_cuda_set("FAKE_CUDA_NO_BYTES", "1");
	return true;
}

int main(void)
{
	pid_t pid;
	bool fake;
	int fd, r;

	/* Each path in a process of its own. */
	for (int tcp = 0; tcp < 2; tcp++) {
		pid = fork();
		if (pid > 0) {
			waitpid(pid, &r, 0);
			if (!WIFEXITED(r) || WEXITSTATUS(r))
				return 1;
			continue;
		}
		host = memory(&fd);
		pid = owner_start(tcp);	/* before the driver is used */
		fake = driver_load();
		r = gpu->alloc(0, REGION, (void **)&device);
		if (r < 0)
			die("GPU memory", r);
		(void)gpu->pin(host, REGION, false);
		path_measure(tcp ? "tcp" : "same host", tcp, fake);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return 0;
	}
	return 0;
}
