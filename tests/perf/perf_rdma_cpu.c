/* SPDX-License-Identifier: Apache-2.0
 * perf_rdma_cpu.c - CPU time of the engine for each request over RDMA, on fake NICs.  All requests of a batch are
 * posted, then their completions are taken, in one thread and without waiting in between. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "engine/mce.h"
#include "engine/rdma/verbs.h"
#include "tests/lib/fake_verbs.h"
#include "tests/perf/row.h"

#define REGION (64u << 20)
/* Room in the queue pairs of an endpoint. */
#define N 500u
#define ROUNDS (unsigned)perf_n(500, 2)
#define WARM (unsigned)perf_n(10, 1)	/* rounds in which the sides connect */

struct side {
	struct mce_engine *e;
	struct mce_mr *mr;
	char *mem;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void side_open(struct side *s, unsigned access)
{
	struct mce_conf conf = { .rdma_devices = "", .force_rdma = true, .force_tcp = true };
	struct mce_mr_attr attr = { .len = REGION, .access = access, .fd = -1 };
	int r;

	s->mem = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s->mem == MAP_FAILED)
		die("mmap", -errno);
	attr.base = s->mem;
	r = mce_engine_open(&conf, &s->e);
	if (r == 0)
		r = mce_mr_register(s->e, &attr, &s->mr);
	if (r < 0)
		die("engine", r);
}

static uint64_t thread_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void measure(struct side *owner, struct side *user, enum mce_op op, uint64_t size)
{
	static struct mce_req reqs[N];
	static struct iovec iov[N];
	unsigned rounds = ROUNDS, warm = WARM;
	struct mce_peer *peer;
	struct mce_batch b;
	uint64_t post = 0, complete = 0, begin, mid;
	char name[64];

	if (mce_peer_get(user->e, mce_engine_endpoint(owner->e), &peer) < 0)
		die("peer", -EINVAL);
	for (unsigned round = 0; round < rounds + warm; round++) {
		for (unsigned i = 0; i < N; i++) {
			iov[i] = (struct iovec){ user->mem + (uint64_t)i * size, size };
			reqs[i] = (struct mce_req){
				.op = op, .peer = peer, .addr = (uintptr_t)owner->mem + (uint64_t)(N - 1 - i) * size,
				.rkey = mce_mr_rkey(owner->mr), .iov = &iov[i], .iovcnt = 1,
			};
		}
		fake_hold(round >= warm);
		mce_batch_init(&b);
		begin = thread_cpu();
		mce_submit(user->e, &b, reqs, N);
		mid = thread_cpu();
		/* after the first rounds, which connect */
		post += round >= warm ? mid - begin : 0;
		usleep(round < warm ? 100000 : 3000);
		fake_hold(false);
		begin = thread_cpu();
		while (round >= warm && !mce_batch_done(&b))
			mce_req_poll(&reqs[N - 1]);
		if (mce_batch_wait(user->e, &b, reqs, N, mc_deadline_ms(10000)) < 0 || b.failed)
			die("transfer", reqs[0].status ? reqs[0].status : -MC_ETRANSFER);
		complete += round >= warm ? thread_cpu() - begin : 0;
	}
	snprintf(name, sizeof(name), "%s %lu B, fake NIC", op == MCE_WRITE ? "write" : "read", (unsigned long)size);
	perf_row(name, "post", (double)post / rounds / N / 1000, "us CPU/request");
	perf_row(name, "complete", (double)complete / rounds / N / 1000, "us CPU/request");
	mce_peer_put(peer);
}

int main(void)
{
	struct side owner, user;

	fake_reset(1);
	mce_verbs_replace(fake_verbs());
	side_open(&owner, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	side_open(&user, 0);
	for (unsigned i = 0; i < 2; i++) {
		measure(&owner, &user, MCE_WRITE, 4096);
		measure(&owner, &user, MCE_READ, 4096);
	}
	measure(&owner, &user, MCE_WRITE, 64);
	mce_engine_close(user.e);
	mce_engine_close(owner.e);
	return 0;
}
