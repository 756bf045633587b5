/* SPDX-License-Identifier: Apache-2.0
 * ring.c - one ring and its thread.
 *
 * The thread keeps its own positions.  Those in shared memory are only written for the client, or read once and
 * checked.  A client with invalid positions loses its ring, nothing else. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/futex.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "node/node_i.h"

#define JOBS 1024u
#define SLEEP_NS (500 * MC_NS_PER_MS)
/* How often to check a client that does not read its answers. */
#define FULL_NS_MIN (1 * MC_NS_PER_MS)
#define FULL_NS_MAX (200 * MC_NS_PER_MS)

MC_GAUGE(nrings, "mooncake_node_rings", "", "rings of local clients")
MC_COUNTER(sleeps, "mooncake_node_ring_sleeps_total", "", "times that a ring's thread slept")
MC_COUNTER(broken, "mooncake_node_rings_broken_total", "", "rings closed because their client broke the protocol")

struct mcn_ring {
	/* constant */
	struct mcn_conn *conn;
	int fd;
	size_t len;
	struct mcfs_ring *hdr;
	const struct mcfs_sqe *sq;
	struct mcfs_cqe *cq;
	const unsigned char *arena;
	uint64_t arena_size;
	uint32_t mask;
	uint32_t stop;			/* atomic */
	/* owned by the thread */
	uint32_t head, tail;		/* requests taken, answers given */
	uint32_t seen;			/* requests up to here had arrived at seen_ns */
	uint64_t seen_ns;
	uint64_t spin_ns;		/* current time to poll */
	uint64_t full_ns;
	struct mcn_scratch sc;
	struct mcn_job *jobs;
};

static size_t page_up(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

static int open_memory(struct mcn_ring *r, uint32_t entries, uint64_t arena)
{
	size_t sq = page_up(sizeof(*r->hdr)), cq, at;
	struct mcfs_ring *h;

	cq = sq + page_up(entries * sizeof(struct mcfs_sqe));
	at = cq + page_up(entries * sizeof(struct mcfs_cqe));
	r->len = at + page_up(arena);
	r->fd = memfd_create("mooncake-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->fd < 0 || ftruncate(r->fd, (off_t)r->len) < 0 ||
	    fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return mc_fail(-errno, "memory of a ring: %s", mc_strerror(errno));
	h = mmap(NULL, r->len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (h == MAP_FAILED)
		return mc_fail(-errno, "memory of a ring: %s", mc_strerror(errno));
	/* Not the arena: its pages are charged to the process that first writes them, the client. */
	(void)madvise(h, at, MADV_POPULATE_WRITE);
	h->magic = MCFS_RING_MAGIC;
	h->version = MCFS_RING_VERSION;
	h->entries = entries;
	h->sq_offset = sq;
	h->cq_offset = cq;
	h->arena_offset = at;
	h->arena_size = page_up(arena);
	r->hdr = h;
	r->sq = (const void *)((char *)h + sq);
	r->cq = (void *)((char *)h + cq);
	r->arena = (unsigned char *)h + at;
	r->arena_size = page_up(arena);
	r->mask = entries - 1;
	return 0;
}

static void ring_free(struct mcn_ring *r)
{
	if (r->hdr)
		munmap(r->hdr, r->len);
	if (r->fd >= 0)
		close(r->fd);
	free(r->sc.base);
	free(r->jobs);
	free(r);
}

/* ---- the thread ---- */

static bool ring_stopping(const struct mcn_ring *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_ACQUIRE);
}

static void break_off(struct mcn_ring *r, const char *why)
{
	mc_metric_add(&broken, 1);
	mc_warn("node", "ring closed, its client broke the protocol pid=%d uid=%u: %s",
		(int)r->conn->pid, (unsigned)r->conn->uid, why);
	__atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
}

/* Number of requests that wait. */
static uint32_t ring_waiting(struct mcn_ring *r)
{
	uint32_t tail = __atomic_load_n(&r->hdr->sq_tail, __ATOMIC_ACQUIRE);

	if (tail - r->head > r->mask + 1) {
		break_off(r, "more requests than fit");
		return 0;
	}
	if (r->head == r->seen && tail != r->head) {
		r->seen = tail;
		r->seen_ns = mc_now_ns();
	}
	return r->seen - r->head;
}

/* Number of answers that fit. */
static uint32_t ring_room(struct mcn_ring *r)
{
	uint32_t n = r->tail - __atomic_load_n(&r->hdr->cq_head, __ATOMIC_ACQUIRE);

	if (n <= r->mask + 1)
		return r->mask + 1 - n;
	break_off(r, "more answers read than given");
	return 0;
}

static uint64_t spin_max(const struct mcn_ring *r)
{
	return r->conn->n->conf.spin_us * 1000ull;
}

/* Poll as long as polling was successful recently, then sleep until the client wakes the thread. */
static void ring_idle(struct mcn_ring *r)
{
	uint64_t began = mc_now_ns(), now = began, until = began + r->spin_ns;
	uint32_t seen = r->head;

	while (now < until) {
		for (int i = 0; i < 64; i++) {
			if (__atomic_load_n(&r->hdr->sq_tail, __ATOMIC_ACQUIRE) != seen) {
				r->spin_ns = spin_max(r);
				return;
			}
			mc_cpu_relax();
		}
		if (ring_stopping(r))
			return;
		now = mc_now_ns();
	}
	r->spin_ns /= 2;
	__atomic_store_n(&r->hdr->sq_sleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->hdr->sq_tail, __ATOMIC_SEQ_CST) == seen && !ring_stopping(r)) {
		mc_metric_add(&sleeps, 1);
		mc_futex_wait(&r->hdr->sq_tail, seen, SLEEP_NS);
	}
	__atomic_store_n(&r->hdr->sq_sleep, 0, __ATOMIC_RELAXED);
	/* Polling would have been enough. */
	if (mc_now_ns() - began < 4 * spin_max(r))
		r->spin_ns = spin_max(r);
}

static void wait_for_room(struct mcn_ring *r)
{
	uint32_t seen = __atomic_load_n(&r->hdr->cq_head, __ATOMIC_ACQUIRE);

	if (r->tail - seen != r->mask + 1)
		return;
	r->full_ns = r->full_ns ? r->full_ns * 2 : FULL_NS_MIN;
	if (r->full_ns > FULL_NS_MAX)
		r->full_ns = FULL_NS_MAX;
	mc_futex_wait(&r->hdr->cq_head, seen, r->full_ns);
}

static void ring_answer(struct mcn_ring *r, struct mcn_job *jobs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		mcn_job_release(r->conn, &jobs[i]);
		r->cq[r->tail++ & r->mask] = jobs[i].c;
	}
	__atomic_store_n(&r->hdr->cq_tail, r->tail, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->hdr->cq_sleep, __ATOMIC_SEQ_CST))
		mc_futex_wake(&r->hdr->cq_tail);
}

static bool job_timed(const struct mcn_job *j)
{
	return (j->e.flags & MCFS_SQE_DEADLINE) ||
		(j->e.op != MCFS_RING_PUT && j->e.op != MCFS_RING_GET && j->e.op != MCFS_RING_REMOVE);
}

/* A put, get or remove without a deadline is abandoned only when its client disconnects: then fail the batch. */
static void drop_if_left(struct mcn_ring *r, uint32_t n)
{
	uint32_t k = 0;

	while (k < n && job_timed(&r->jobs[k]))
		k++;
	if (k == n || !mcn_conn_left(r->conn))
		return;
	for (uint32_t i = 0; i < n; i++) {
		r->jobs[i].c.result = -MCS_ERPC;
		r->jobs[i].done = true;
	}
}

/* Take up to @n requests, as many as the scratch memory allows, carry them out, answer. */
static void ring_serve(struct mcn_ring *r, uint32_t n)
{
	uint32_t got = 0, done;

	r->sc.used = 0;
	while (got < n && r->sc.size - r->sc.used >= MCN_JOB_MAX) {
		struct mcn_job *j = &r->jobs[got++];

		memset(j, 0, sizeof(*j));
		j->seen_ns = r->seen_ns;
		memcpy(&j->e, &r->sq[r->head++ & r->mask], sizeof(j->e));
		__asm__ volatile("" ::: "memory");
		mcn_job_take(r->conn, r->arena, r->arena_size, &r->sc, j);
	}
	__atomic_store_n(&r->hdr->sq_head, r->head, __ATOMIC_RELEASE);
	drop_if_left(r, got);
	done = mcn_exec(r->conn, r->jobs, got);
	ring_answer(r, r->jobs, done);
	/* Requests without an answer were not carried out, so the client may safely send them elsewhere. */
	for (uint32_t i = done; i < got; i++)
		mcn_job_release(r->conn, &r->jobs[i]);
}

static void *ring_main(void *arg)
{
	struct mcn_ring *r = arg;
	struct mcn_conn *c = r->conn;

	r->spin_ns = spin_max(r);
	while (!ring_stopping(r)) {
		uint32_t n = ring_waiting(r), k;

		if (!n) {
			if (!ring_stopping(r))
				ring_idle(r);
			continue;
		}
		k = ring_room(r);
		if (!k) {
			if (!ring_stopping(r))
				wait_for_room(r);
			continue;
		}
		r->full_ns = 0;
		n = n < k ? n : k;
		ring_serve(r, n < JOBS ? n : JOBS);
	}
	__atomic_store_n(&r->hdr->closed, 1, __ATOMIC_SEQ_CST);
	mc_futex_wake(&r->hdr->cq_tail);
	mc_mutex_lock(&c->lock);
	for (unsigned i = 0; i < c->nrings; i++) {
		if (c->ring[i] != r)
			continue;
		c->ring[i] = c->ring[--c->nrings];
		break;
	}
	mc_mutex_unlock(&c->lock);
	mc_mutex_lock(&c->n->lock);
	c->n->nrings--;
	mc_mutex_unlock(&c->n->lock);
	mc_metric_add(&nrings, -1);
	ring_free(r);
	mcn_conn_unref(c);
	return NULL;
}

void mcn_ring_stop(struct mcn_ring *r)
{
	__atomic_store_n(&r->stop, 1, __ATOMIC_SEQ_CST);
	mc_futex_wake(&r->hdr->sq_tail);
	mc_futex_wake(&r->hdr->cq_head);
}

/* ---- creation ---- */

static int ring_make(struct mcn_conn *c, uint32_t entries, uint64_t arena, struct mcn_ring **ret)
{
	struct mcn_ring *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->fd = -1;
	r->conn = c;
	r->sc.size = MCN_SCRATCH_SIZE;
	r->sc.base = malloc(r->sc.size);
	r->jobs = malloc(JOBS * sizeof(*r->jobs));
	err = r->sc.base && r->jobs ? open_memory(r, entries, arena) : -ENOMEM;
	if (err < 0) {
		ring_free(r);
		return err;
	}
	*ret = r;
	return 0;
}

static int ring_count(struct mcn *n)
{
	int r = 0;

	mc_mutex_lock(&n->lock);
	if (n->nrings >= MCN_RINGS_MAX)
		r = mc_fail(-ENOBUFS, "there are %u rings", n->nrings);
	else
		n->nrings++;
	mc_mutex_unlock(&n->lock);
	return r;
}

int mcn_ring_new(struct mcn_conn *c, uint32_t entries, uint64_t arena, struct mcn_ring **ret,
		 int *ret_fd, uint64_t *ret_size)
{
	struct mcn_ring *r = NULL;
	struct mc_thread thread;
	int err;

	if (entries < 2 || entries > MCFS_RING_ENTRIES_MAX || (entries & (entries - 1)) ||
	    arena > MCFS_RING_ARENA_MAX)
		return mc_fail(-EINVAL, "a ring of %u entries", entries);
	err = ring_count(c->n);
	if (err < 0)
		return err;
	err = ring_make(c, entries, arena, &r);
	if (err < 0)
		goto fail;
	*ret_fd = dup(r->fd);
	*ret_size = r->len;
	if (*ret_fd < 0) {
		err = -errno;
		goto fail;
	}
	mc_metric_add(&nrings, 1);
	mcn_conn_ref(c);
	*ret = r;
	err = mc_thread_start(&thread, "mcn-ring", ring_main, r);
	if (err < 0) {
		mc_metric_add(&nrings, -1);
		mcn_conn_unref(c);
		close(*ret_fd);
		goto fail;
	}
	mc_thread_detach(thread);
	return 0;
fail:
	if (r)
		ring_free(r);
	mc_mutex_lock(&c->n->lock);
	c->n->nrings--;
	mc_mutex_unlock(&c->n->lock);
	return err;
}
