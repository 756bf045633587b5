/* SPDX-License-Identifier: Apache-2.0
 * batch.c - completion and waiting.
 *
 * mce_batch.left counts; its top bit says that somebody sleeps, so completions make a system call
 * only for a sleeper and only the last one does.  The batch may be gone as soon as the count is 0:
 * the wake-up that follows uses the address alone, and a futex forgives that. */
#include <config.h>

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fork.h"
#include "common/metrics.h"
#include "engine/engine_i.h"

#define SLEEPER (1u << 31)
/* Requests of a batch that its waiter may receive by itself. */
#define LEAD_MAX 16u

static uint32_t left(const struct mce_batch *b)
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
	return left(b);
}

void mce_batch_hold(struct mce_batch *b)
{
	__atomic_fetch_add(&b->left, 1, __ATOMIC_RELAXED);
}

bool mce_batch_done(const struct mce_batch *b)
{
	return left(b) == 0;
}

/* ---- completion -------------------------------------------------------------------------------- */

#define PATHS (MCE_PATHS - 1)
#define OPS 2
#define COUNTERS(what, help) \
	MC_COUNTER(what##_local_read, "mooncake_transfer_" #what "_total", \
		   "path=\"local\",op=\"read\"", help) \
	MC_COUNTER(what##_local_write, "mooncake_transfer_" #what "_total", \
		   "path=\"local\",op=\"write\"", help) \
	MC_COUNTER(what##_mapped_read, "mooncake_transfer_" #what "_total", \
		   "path=\"mapped\",op=\"read\"", help) \
	MC_COUNTER(what##_mapped_write, "mooncake_transfer_" #what "_total", \
		   "path=\"mapped\",op=\"write\"", help) \
	MC_COUNTER(what##_tcp_read, "mooncake_transfer_" #what "_total", \
		   "path=\"tcp\",op=\"read\"", help) \
	MC_COUNTER(what##_tcp_write, "mooncake_transfer_" #what "_total", \
		   "path=\"tcp\",op=\"write\"", help) \
	MC_COUNTER(what##_upstream_read, "mooncake_transfer_" #what "_total", \
		   "path=\"upstream\",op=\"read\"", help) \
	MC_COUNTER(what##_upstream_write, "mooncake_transfer_" #what "_total", \
		   "path=\"upstream\",op=\"write\"", help) \
	MC_COUNTER(what##_process_vm_read, "mooncake_transfer_" #what "_total", \
		   "path=\"process_vm\",op=\"read\"", help) \
	MC_COUNTER(what##_process_vm_write, "mooncake_transfer_" #what "_total", \
		   "path=\"process_vm\",op=\"write\"", help) \
	static struct mc_metric *const what##_counters[PATHS][OPS] = { \
		{ &what##_local_read, &what##_local_write }, \
		{ &what##_mapped_read, &what##_mapped_write }, \
		{ &what##_tcp_read, &what##_tcp_write }, \
		{ &what##_upstream_read, &what##_upstream_write }, \
		{ &what##_process_vm_read, &what##_process_vm_write }, \
	}

COUNTERS(bytes, "Bytes moved by completed transfers this process asked for");
COUNTERS(requests, "Completed transfers this process asked for");
COUNTERS(errors, "Failed transfers this process asked for");
MC_COUNTER(unconnected_errors, "mooncake_transfer_errors_total", "path=\"none\",op=\"any\"",
	   "Failed transfers this process asked for")

static void add(uint64_t *sum, uint64_t n)
{
	__atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
}

static void count(const struct mce_req *req, int status, uint64_t total)
{
	unsigned path = (unsigned)req->path - 1, op = req->op == MCE_WRITE;
	struct mce_peer *p = req->peer;

	if (p) {
		add(&p->ended, total);
		add(status < 0 ? &p->path[req->path].errors : &p->path[req->path].requests, 1);
		add(&p->path[req->path].bytes, status < 0 ? 0 : total);
	}
	if (req->path == MCE_PATH_NONE) {
		if (status < 0)
			mc_metric_add(&unconnected_errors, 1);
	} else if (status < 0) {
		mc_metric_add(errors_counters[path][op], 1);
	} else {
		mc_metric_add(requests_counters[path][op], 1);
		mc_metric_add(bytes_counters[path][op], (int64_t)total);
	}
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
	count(req, status, mce_reqx(req)->total);
	if (status < 0)
		__atomic_fetch_add(&b->failed, 1, __ATOMIC_RELAXED);
	/* Last: who looks at the request alone takes it back now. */
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

/* Poll for a while, also the transport itself: that saves the I/O thread's wake-up. */
static void batch_spin(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		       uint64_t deadline)
{
	uint64_t now = mc_now_ns(), until = now + e->conf.spin_us * 1000ull;
	unsigned i = 0;

	if (until > deadline)
		until = deadline;
	while (now < until && left(b)) {
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
		if (reqs[i].peer != reqs[0].peer || mce_req_at(&reqs[i]) < MCE_AT_TRANSPORT)
			return;
	for (const struct mce_transport *const *t = reqs[0].peer->transports; *t; t++)
		if ((*t)->lead(reqs[0].peer, b, deadline) == 0)
			return;
}

int mce_batch_until(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		    uint64_t until)
{
	/* Begun before the fork: it is the parent who gets its answers. */
	int r = left(b) ? mc_fork_check(e->fork_depth) : 0;

	if (r < 0)
		return r;
	if (left(b))
		mce_batch_lead(b, reqs, n, until);
	if (left(b) && e->conf.spin_us)
		batch_spin(e, b, reqs, n, until);
	while (left(b) && mc_now_ns() < until)
		batch_sleep(b, until);
	return left(b) ? -EAGAIN : 0;
}

int mce_batch_wait(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		   uint64_t deadline)
{
	bool late = false;
	int r;

	r = mce_batch_until(e, b, reqs, n, deadline);
	if (r < 0 && r != -EAGAIN)
		return r;
	while (left(b)) {
		if (!late && mc_now_ns() >= deadline) {
			for (unsigned i = 0; i < n; i++)
				if (mce_req_at(&reqs[i]) != MCE_AT_DONE)
					mce_peer_cancel(reqs[i].peer, &reqs[i], -MC_ETIMEDOUT);
			late = true;
		}
		/* What is not done after that is being copied, or completed, at this moment. */
		batch_sleep(b, late ? MC_NEVER : deadline);
	}
	__atomic_store_n(&b->left, 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; late && i < n; i++)
		if (reqs[i].status == -MC_ETIMEDOUT)
			return -MC_ETIMEDOUT;
	return 0;
}
