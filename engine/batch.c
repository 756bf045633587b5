/* SPDX-License-Identifier: Apache-2.0
 * batch.c - completion of requests and waiting for batches.
 *
 * mce_batch.left counts the incomplete requests; its top bit says that a thread sleeps, so only the last completion
 * makes a system call, and only when there is a sleeper.  The batch may be freed as soon as the count is 0:
 * the wake-up that follows uses only the address, which a futex permits. */
#include <config.h>

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"

#define SLEEPER (1u << 31)
/* Requests of a batch that its waiter may receive in its own thread. */
#define LEAD_MAX 16u

static uint32_t batch_left(const struct mce_batch *b)
{
	return __atomic_load_n(&b->left, __ATOMIC_ACQUIRE) & ~SLEEPER;
}

void mce_batch_init(struct mce_batch *b)
{
	b->left = 0;
	b->failed = 0;
	b->done = NULL;
	b->arg = NULL;
}

unsigned mce_batch_left(const struct mce_batch *b)
{
	return batch_left(b);
}

void mce_batch_hold(struct mce_batch *b)
{
	__atomic_fetch_add(&b->left, 1, __ATOMIC_RELAXED);
}

bool mce_batch_done(const struct mce_batch *b)
{
	return batch_left(b) == 0;
}

/* ---- completion -------------------------------------------------------------------------------- */

static void sum_add(uint64_t *sum, uint64_t n)
{
	__atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
}

static void req_count(const struct mce_req *req, int status, uint64_t total)
{
	struct mce_peer *p = req->peer;

	if (mce_reqx((struct mce_req *)(uintptr_t)req)->staged) {
		sum_add(&p->ended, total);
		return;
	}
	if (p) {
		sum_add(&p->ended, total);
		sum_add(status < 0 ? &p->path[req->path].errors : &p->path[req->path].requests, 1);
		sum_add(&p->path[req->path].bytes, status < 0 ? 0 : total);
	}
	mce_path_count(req->path, req->op, status, total);
}

void mce_batch_release(struct mce_batch *b)
{
	void (*done)(void *arg) = b->done;
	uint32_t *word = &b->left;
	void *arg = b->arg;
	uint32_t was;

	was = __atomic_fetch_sub(word, 1, __ATOMIC_ACQ_REL);
	if (was == (SLEEPER | 1))
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	if (done && (was & ~SLEEPER) == 1)
		done(arg);
}

void mce_complete(struct mce_req *req, enum mce_path path, int status)
{
	struct mce_batch *b = req->batch;

	req->path = path;
	mce_req_move(req, MCE_AT_DONE);
	req_count(req, status, mce_reqx(req)->total);
	if (status < 0)
		__atomic_fetch_add(&b->failed, 1, __ATOMIC_RELAXED);
	/* Last: a caller that watches only the request's status may reuse the request now. */
	mce_req_set_status(req, status);
	mce_batch_release(b);
}

void mce_req_poll(struct mce_req *req)
{
	if (mce_req_at(req) == MCE_AT_TRANSPORT && mc_fork_check(req->peer->e->fork_depth) == 0)
		for (const struct mce_transport *const *t = req->peer->transports; *t; t++)
			(*t)->poll(req->peer);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Sleep until the count is 0 or @deadline. */
static void batch_sleep(struct mce_batch *b, uint64_t deadline)
{
	struct timespec until, *ts = NULL;
	uint32_t seen;

	seen = __atomic_or_fetch(&b->left, SLEEPER, __ATOMIC_ACQ_REL);
	if (deadline != MC_NEVER) {
		until.tv_sec = (time_t)(deadline / MC_NS_PER_SEC);
		until.tv_nsec = (long)(deadline % MC_NS_PER_SEC);
		ts = &until;
	}
	if (seen != SLEEPER)
		syscall(SYS_futex, &b->left, FUTEX_WAIT_BITSET_PRIVATE, seen, ts, NULL,
			FUTEX_BITSET_MATCH_ANY);
}

/* Poll the batch and the transport for a while: that saves the wake-up of the I/O thread. */
static void batch_spin(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		       uint64_t deadline)
{
	uint64_t now = mc_now_ns(), until = now + e->conf.spin_us * 1000ull;
	unsigned i = 0;

	if (until > deadline)
		until = deadline;
	while (now < until && batch_left(b)) {
		while (i < n && mce_req_at(&reqs[i]) == MCE_AT_DONE)
			i++;
		if (i < n && mce_req_at(&reqs[i]) == MCE_AT_TRANSPORT)
			for (const struct mce_transport *const *t = reqs[i].peer->transports;
			     *t; t++)
				(*t)->poll(reqs[i].peer);
		now = mc_now_ns();
	}
}

void mce_batch_lead(struct mce_batch *b, struct mce_req *reqs, unsigned n, uint64_t deadline)
{
	if (n == 0 || n > LEAD_MAX || !reqs[0].peer || mc_fork_check(reqs[0].peer->e->fork_depth) < 0)
		return;
	for (unsigned i = 0; i < n; i++)
		if (reqs[i].peer != reqs[0].peer || mce_req_at(&reqs[i]) < MCE_AT_TRANSPORT ||
		    mce_reqx(&reqs[i])->gpu)
			return;
	for (const struct mce_transport *const *t = reqs[0].peer->transports; *t && batch_left(b); t++)
		if ((*t)->lead(reqs[0].peer, b, deadline) == 0)
			return;
}

int mce_batch_until(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		    uint64_t until)
{
	/* If it was submitted before a fork, the answers go to the parent. */
	int r = batch_left(b) ? mc_fork_check(e->fork_depth) : 0;

	if (r < 0)
		return r;
	if (batch_left(b))
		mce_batch_lead(b, reqs, n, until);
	if (batch_left(b) && e->conf.spin_us)
		batch_spin(e, b, reqs, n, until);
	while (batch_left(b) && mc_now_ns() < until)
		batch_sleep(b, until);
	return batch_left(b) ? -EAGAIN : 0;
}

int mce_batch_wait(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		   uint64_t deadline)
{
	bool late = false;
	int r;

	r = mce_batch_until(e, b, reqs, n, deadline);
	if (r < 0 && r != -EAGAIN)
		return r;
	while (batch_left(b)) {
		if (!late && mc_now_ns() >= deadline) {
			for (unsigned i = 0; i < n; i++)
				if (mce_req_at(&reqs[i]) != MCE_AT_DONE)
					mce_peer_cancel(reqs[i].peer, &reqs[i], -MC_ETIMEDOUT);
			late = true;
		}
		/* A request that is not done after the cancellation is being copied or completed at this moment. */
		batch_sleep(b, late ? MC_NEVER : deadline);
	}
	__atomic_store_n(&b->left, 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; late && i < n; i++)
		if (reqs[i].status == -MC_ETIMEDOUT)
			return -MC_ETIMEDOUT;
	return 0;
}
