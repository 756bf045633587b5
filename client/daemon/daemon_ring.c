/* SPDX-License-Identifier: Apache-2.0
 * daemon_ring.c - requests over the rings: the client's side.
 *
 * Each thread uses its own ring of the connection while there are enough, so it normally finds
 * the ring's lock free.  One call at a time uses a ring: it fills entries and arena from their
 * beginning, and reads all answers before it returns. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/futex.h"
#include "common/sys/thread.h"

#define ENTRIES 1024u
#define ARENA ((uint64_t)1 << 20)
#define SLICE_NS (100 * MC_NS_PER_MS)	/* period of the check whether the daemon still runs */
/* The daemon keeps the deadlines.  If it does not answer this long after one, the connection is lost; */
#define GRACE_MS 3000
/* then wait this long for the daemon to confirm that it no longer uses the memory named in the requests. */
#define RELEASE_MS 5000
/* Attempts to make missing pages present. */
#define TOUCHES 3

struct mcs_daemon_ring {
	/* constant */
	struct mcs_daemon_conn *conn;
	struct mcfs_ring *hdr;
	size_t len;
	struct mcfs_sqe *sq;
	const struct mcfs_cqe *cq;
	unsigned char *arena;
	uint64_t arena_size;
	uint32_t mask;

	struct mc_mutex lock;
	/* with the lock held */
	uint32_t tail, head;		/* requests written, answers read */
	uint32_t series;		/* number of the window, part of the tags */
	uint64_t spin_ns;
};

static int ring_new(struct mcs_daemon_conn *c, uint64_t until, struct mcs_daemon_ring **ret)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_RING, .entries = ENTRIES, .size = ARENA };
	struct mcs_daemon_ring *r;
	struct mcfs_ring *h;
	int fd = -1, err;

	err = mcs_daemon_conn_ask(c, &msg, -1, until, &fd);
	if (err < 0)
		return err;
	h = mmap(NULL, msg.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (h == MAP_FAILED)
		return mc_fail(-errno, "a ring cannot be mapped: %s", mc_strerror(errno));
	r = calloc(1, sizeof(*r));
	if (!r || h->magic != MCFS_RING_MAGIC || h->entries != ENTRIES || h->arena_size < ARENA) {
		munmap(h, msg.size);
		free(r);
		return r ? mc_fail(-MC_EPROTO, "a ring of another layout") : -ENOMEM;
	}
	r->conn = c;
	r->hdr = h;
	r->len = msg.size;
	r->sq = (void *)((char *)h + h->sq_offset);
	r->cq = (void *)((char *)h + h->cq_offset);
	r->arena = (unsigned char *)h + h->arena_offset;
	r->arena_size = h->arena_size;
	r->mask = h->entries - 1;
	r->spin_ns = c->d->spin_us * 1000ull;
	mc_mutex_init(&r->lock);
	*ret = r;
	return 0;
}

void mcs_daemon_ring_free(struct mcs_daemon_ring *r)
{
	munmap(r->hdr, r->len);
	mc_mutex_destroy(&r->lock);
	free(r);
}

/* Make one more ring and store it in the next free slot: 1; 0: the limit is reached. */
static int ring_add_locked(struct mcs_daemon_conn *c, uint64_t until, struct mcs_daemon_ring **ret)
{
	int r = 0;

	if (c->nrings == MCS_DAEMON_RINGS)
		return 0;
	r = ring_new(c, until, ret);
	if (r < 0)
		return r;
	mc_mutex_lock(&(*ret)->lock);
	__atomic_store_n(&c->ring[c->nrings], *ret, __ATOMIC_RELEASE);
	__atomic_store_n(&c->nrings, c->nrings + 1, __ATOMIC_RELEASE);
	return 1;
}

static int ring_add(struct mcs_daemon_conn *c, uint64_t until, struct mcs_daemon_ring **ret)
{
	int r;

	if (mc_mutex_lock_until(&c->rings_lock, until) < 0)
		return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered other threads yet");
	r = ring_add_locked(c, until, ret);
	mc_mutex_unlock(&c->rings_lock);
	return r;
}

/* Get a ring and lock it. */
static int ring_lock(struct mcs_daemon_conn *c, uint64_t until, struct mcs_daemon_ring **ret)
{
	static unsigned next;
	static __thread unsigned mine;	/* number of this thread's ring plus 1 */
	unsigned n = __atomic_load_n(&c->nrings, __ATOMIC_ACQUIRE);
	int r;

	if (!mine)
		mine = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < n; i++) {
		*ret = __atomic_load_n(&c->ring[(mine - 1 + i) % n], __ATOMIC_ACQUIRE);
		if (mc_mutex_trylock(&(*ret)->lock) == 0)
			return 0;
	}
	r = ring_add(c, until, ret);
	/* The daemon refused, or the limit is reached: wait for a ring. */
	if (r <= 0) {
		n = __atomic_load_n(&c->nrings, __ATOMIC_ACQUIRE);
		if (!n)
			return r < 0 ? r : -ENOBUFS;
		*ret = c->ring[(mine - 1) % n];
		if (mc_mutex_lock_until(&(*ret)->lock, until) < 0)
			return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered other threads yet");
	}
	return 0;
}

/* ---- a window of requests ---- */

struct window {
	struct mcs_daemon_ring *r;
	uint32_t used;			/* bytes of the arena */
	unsigned n;
	const struct mcs_put_opts *opts;
	struct mcfs_ring_put put;	/* the options, without an eviction group */
};

static bool window_fits(const struct window *w, size_t len)
{
	return len <= w->r->arena_size - w->used;
}

/* Copy to the arena; the offset there. */
static uint32_t window_append(struct window *w, const void *p, size_t len)
{
	uint32_t at = w->used;

	memcpy(w->r->arena + at, p, len);
	w->used = (uint32_t)((at + len + 7) & ~(size_t)7);
	return at;
}

static size_t names_len(const char *const *names)
{
	size_t len = 0;

	for (unsigned i = 0; names && names[i]; i++)
		len += strlen(names[i]) + 1;
	return len;
}

static void window_put_names(struct window *w, const char *const *names)
{
	for (unsigned i = 0; names && names[i]; i++) {
		size_t one = strlen(names[i]) + 1;

		memcpy(w->r->arena + w->used, names[i], one);
		w->used += (uint32_t)one;
	}
}

/* Copy the options of all puts of a window to the arena, except for the eviction group. */
static int window_begin_puts(struct window *w, const struct mcs_put_opts *o)
{
	bool nof = o && o->flags & MCS_PUT_NOF && o->nof_replicas;
	size_t len;

	w->opts = o;
	if (!o)
		return 0;
	len = names_len(o->preferred) + (nof ? names_len(o->preferred_nof) + 1 : 0);
	if (len > MCFS_RING_PREFERRED_MAX || o->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "too many preferred segments, or the group's name is too "
			       "long");
	if ((unsigned)o->kind > UINT8_MAX || (unsigned)o->soft_pin > UINT8_MAX ||
	    (unsigned)o->data_type > UINT8_MAX)
		return mc_fail(-MC_EPARAM, "unknown kind of object or pin");
	w->put = (struct mcfs_ring_put){
		.flags = o->flags & ~MCS_PUT_DFS, .replicas = o->replicas, .soft_pin_ms = o->soft_pin_ms,
		.kind = (uint8_t)o->kind, .soft_pin = (uint8_t)o->soft_pin,
		.data_type = (uint8_t)o->data_type, .nof_replicas = (uint8_t)(nof ? o->nof_replicas : 0),
		.preferred = w->used, .preferred_len = (uint32_t)len,
	};
	window_put_names(w, o->preferred);
	if (nof) {
		w->r->arena[w->used++] = 0;
		window_put_names(w, o->preferred_nof);
	}
	w->used = (w->used + 7) & ~7u;
	return 0;
}

static bool window_same_group(const struct mcs_key *a, const struct mcs_key *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

/* Set q->put to the offset of its options in the arena (~0u: it needs none).  Requests of the
 * same eviction group share them.  False: they do not fit into this window. */
static bool window_place_put(struct window *w, struct mcs_daemon_req *q)
{
	const struct mcs_key *group = q->group.len || !w->opts ? &q->group : &w->opts->group;
	struct mcfs_ring_put put = w->put;

	q->put = ~0u;
	if (q->op != MCFS_RING_PUT || (!w->opts && !group->len))
		return true;
	for (const struct mcs_daemon_req *p = q - w->n; p < q; p++) {
		if (p->put == ~0u || !window_same_group(&p->group, &q->group))
			continue;
		q->put = p->put;
		return true;
	}
	if (!window_fits(w, group->len + sizeof(put) + 16))
		return false;
	put.group_len = (uint32_t)group->len;
	if (group->len)
		put.group = window_append(w, group->data, group->len);
	q->put = window_append(w, &put, sizeof(put));
	return true;
}

static uint32_t window_timeout(uint64_t deadline)
{
	uint64_t now = mc_now_ns(), left;

	if (deadline == MC_NEVER)
		return 0;
	left = deadline > now ? (deadline - now) / MC_NS_PER_MS : 0;
	return left < 1 ? 1 : left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/* Send an absolute deadline.  A timeout is less exact: the daemon would count it from the moment
 * it sees the request. */
static void window_set_deadline(const struct mcs_daemon_conn *c, struct mcfs_sqe *e, uint64_t deadline)
{
	if (!c->one_clock || deadline == MC_NEVER || e->op == MCFS_RING_NOP ||
	    e->op == MCFS_RING_UNPIN || e->op == MCFS_RING_HELD)
		return;
	e->flags |= MCFS_SQE_DEADLINE;
	e->pin = deadline;
}

/* Write one request.  False: it belongs to the next window. */
static bool window_add(struct window *w, struct mcs_daemon_req *q, uint64_t deadline)
{
	struct mcs_daemon_ring *r = w->r;
	struct mcfs_sqe e = {
		.op = q->op, .flags = q->flags, .key_len = (uint16_t)q->key.len, .len = q->len,
		.offset = q->offset, .pin = q->pin, .timeout_ms = window_timeout(deadline),
		.tag = (uint64_t)r->series << 32 | w->n,
	};

	if (w->n > r->mask || !window_place_put(w, q) ||
	    !window_fits(w, q->key.len + 16 + q->nranges * sizeof(*q->range)))
		return false;
	e.put = q->put;
	if (q->key.len)
		e.key = window_append(w, q->key.data, q->key.len);
	if (q->nranges == 1) {
		e.buffer = q->range->buffer;
		e.at = q->range->at;
		e.len = q->range->len;
	} else if (q->nranges) {
		e.nranges = q->nranges;
		e.at = window_append(w, q->range, q->nranges * sizeof(*q->range));
	}
	window_set_deadline(r->conn, &e, deadline);
	r->sq[r->tail++ & r->mask] = e;
	w->n++;
	return true;
}

/* Poll for a while if polling was successful lately, then sleep. */
static void ring_wait(struct mcs_daemon_ring *r)
{
	uint64_t began = mc_now_ns(), until = began + r->spin_ns;
	uint64_t max = r->conn->d->spin_us * 1000ull;

	while (r->spin_ns && mc_now_ns() < until) {
		for (int i = 0; i < 32; i++) {
			if (__atomic_load_n(&r->hdr->cq_tail, __ATOMIC_ACQUIRE) != r->head) {
				r->spin_ns = max;
				return;
			}
			mc_cpu_relax();
		}
	}
	r->spin_ns /= 2;
	__atomic_store_n(&r->hdr->cq_sleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->hdr->cq_tail, __ATOMIC_SEQ_CST) == r->head &&
	    !__atomic_load_n(&r->hdr->closed, __ATOMIC_ACQUIRE))
		mc_futex_wait(&r->hdr->cq_tail, r->head, SLICE_NS);
	__atomic_store_n(&r->hdr->cq_sleep, 0, __ATOMIC_RELAXED);
	if (mc_now_ns() - began < 4 * max)
		r->spin_ns = max;
}

/* Store the answers that have arrived for this window in their requests; their number. */
static unsigned ring_read_answers(struct mcs_daemon_ring *r, struct mcs_daemon_req *reqs, unsigned n)
{
	uint32_t tail = __atomic_load_n(&r->hdr->cq_tail, __ATOMIC_ACQUIRE);
	unsigned got = 0;

	for (; r->head != tail; r->head++) {
		const struct mcfs_cqe *e = &r->cq[r->head & r->mask];
		uint32_t at = (uint32_t)e->tag;

		if ((uint32_t)(e->tag >> 32) != r->series || at >= n)
			continue;
		reqs[at].c = *e;
		got++;
	}
	__atomic_store_n(&r->hdr->cq_head, r->head, __ATOMIC_RELEASE);
	return got;
}

static uint64_t ring_later(uint64_t deadline, uint64_t ms)
{
	return deadline > MC_NEVER - ms * MC_NS_PER_MS ? MC_NEVER : deadline + ms * MC_NS_PER_MS;
}

/* No answer has arrived for a while.  0: continue to wait.
 *
 * A lost connection alone is no reason to return: the caller may reuse the memory that the window names, so the
 * daemon must have released it first.  Wait for that until the time is over. */
static int ring_may_leave(struct mcs_daemon_ring *r, uint64_t given_up, bool *late)
{
	if (__atomic_load_n(&r->hdr->closed, __ATOMIC_ACQUIRE) || mcs_daemon_conn_over(r->conn)) {
		mcs_daemon_conn_lost(r->conn);
		return *late ? mc_fail(-MC_ETIMEDOUT, "the node's daemon did not answer in time") :
			mc_fail(-MC_ERPC, "the node's daemon has gone");
	}
	if (mc_now_ns() < given_up)
		return 0;
	/* Its late answers would arrive in another call's window. */
	mcs_daemon_conn_lost(r->conn);
	*late = true;
	if (mc_now_ns() < ring_later(given_up, RELEASE_MS))
		return 0;
	return mc_fail(-MC_ETIMEDOUT, "the node's daemon does not answer");
}

static int window_run(struct mcs_daemon_ring *r, struct mcs_daemon_req *reqs, unsigned n, uint64_t deadline)
{
	uint64_t given_up = ring_later(deadline, GRACE_MS);
	bool late = false;
	unsigned got = 0;
	int err = 0;

	__atomic_store_n(&r->hdr->sq_tail, r->tail, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->hdr->sq_sleep, __ATOMIC_SEQ_CST))
		mc_futex_wake(&r->hdr->sq_tail);
	for (;;) {
		/* Also after the daemon has ended: its last answers arrived before that. */
		got += ring_read_answers(r, reqs, n);
		if (got >= n || err < 0)
			return got >= n ? 0 : err;
		ring_wait(r);
		if (__atomic_load_n(&r->hdr->cq_tail, __ATOMIC_ACQUIRE) == r->head)
			err = ring_may_leave(r, given_up, &late);
	}
}

static int ring_run(struct mcs_daemon_conn *c, struct mcs_daemon_req *reqs, unsigned n, const struct mcs_put_opts *put,
		    uint64_t deadline)
{
	struct mcs_daemon_ring *ring = NULL;
	unsigned done = 0;
	int r;

	for (unsigned i = 0; i < n; i++)
		reqs[i].c = (struct mcfs_cqe){ .result = -MC_ERPC };
	r = mc_fork_check(c->d->fork_depth);
	if (r == 0)
		r = ring_lock(c, mcs_daemon_until(deadline), &ring);
	if (r < 0)
		return r;
	/* The daemon may still read entries of a call that timed out, and their bytes in the arena. */
	if (mcs_daemon_conn_is_lost(c))
		r = mc_fail(-MC_ERPC, "the connection to the node's daemon is lost");
	while (done < n && r == 0) {
		struct window w = { .r = ring };

		ring->series++;
		r = window_begin_puts(&w, put);
		while (r == 0 && done + w.n < n && window_add(&w, &reqs[done + w.n], deadline))
			;
		if (r == 0)
			r = w.n ? window_run(ring, reqs + done, w.n, deadline) :
				mc_fail(-MC_EPARAM, "a request that is too long for a ring");
		done += w.n;
	}
	mc_mutex_unlock(&ring->lock);
	return r;
}

/* The daemon has refused memory without pages before it began.  Pages may be swapped out again meanwhile. */
static int ring_touch_and_run(struct mcs_daemon_conn *c, struct mcs_daemon_req *q, const struct mcs_put_opts *put,
			      uint64_t deadline)
{
	int r = 0;

	for (int tries = 0; tries < TOUCHES && r == 0 && q->c.result == -EFAULT; tries++) {
		mcs_daemon_mem_touch(c, q->range, q->nranges);
		r = ring_run(c, q, 1, put, deadline);
	}
	return r;
}

int mcs_daemon_run(struct mcs_daemon_conn *c, struct mcs_daemon_req *reqs, unsigned n,
		   const struct mcs_put_opts *put, uint64_t deadline)
{
	int r = ring_run(c, reqs, n, put, deadline);

	for (unsigned i = 0; i < n && r == 0; i++)
		if (reqs[i].c.result == -EFAULT && reqs[i].nranges)
			r = ring_touch_and_run(c, &reqs[i], put, deadline);
	return r;
}
