/* SPDX-License-Identifier: Apache-2.0
 * stage.c - the transport "staged": requests with device memory over the paths that need host memory.
 *
 * Loads carry pieces of staged requests: a load has a slot of pinned host memory, which pieces of one staged request or
 * of many fill, and a request of host memory for each piece.  For a WRITE the GPU first copies the pieces to the slot,
 * in one call, then the requests are submitted, which send and compute the checksums; for a READ the requests come
 * first, then the copy.  All loads are under way at the same time, so copies, checksums and the network overlap.
 *
 * A staged request that is cancelled ends when no copy of the GPU touches its memory any more. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/thread.h"
#include "engine/gpu/gpu_i.h"

#define LOADS 32u
#define PIECES 256u
/* A load with this many spans takes no further piece. */
#define SPANS_ENOUGH 1024u

/* A request with device memory while it passes through slots. */
struct staged {
	struct mce_req *req;
	struct mce_peer *p;
	/* the rest is guarded by the stager's lock */
	struct mc_list node, queue_node;	/* in mce_stager.staged; in .queue or .tails */
	unsigned idx;				/* the next piece: its buffer in the iov */
	uint64_t off, pos;			/* the next piece: its offset in the buffer and in the transfer */
	unsigned users;				/* pieces under way, the trailer included, and threads with a hold */
	int status;				/* the first failure, or the cancellation's status */
	enum mce_path path;
	/* the trailer of checksums */
	bool tail_sent, tail_over;
	struct mce_req tail;
	struct mce_batch tail_batch;
	struct iovec tail_iov;
};

struct piece {
	struct staged *s;
	uint64_t pos;
	uint32_t len, off;	/* in the slot */
	unsigned gpu_spans, host_spans;	/* number of its spans in the load, after those of earlier pieces */
};

struct load {
	struct mce_stager *st;
	char *slot;
	struct mc_list node;	/* in mce_stager.idle (no pieces) or .busy */
	enum mce_op op;
	int gpu;
	struct mce_peer *p;
	unsigned npieces;
	bool sent;		/* stager's lock: its requests are submitted and not all complete */
	unsigned holds;		/* stager's lock: threads that are cancelling some of its requests */
	bool over;		/* stager's lock: the load has ended, and its last hold recycles it */
	struct piece piece[PIECES];
	struct mce_req req[PIECES];
	struct iovec iov[PIECES];
	/* Spans that the GPU copies, and spans that the processor copies; for a READ the processor copies after the
	 * GPU. */
	struct mce_spans gpu_spans, host_spans;
	struct mce_batch batch;
	struct mc_gpu_job job;
};

struct mce_stager {
	struct mce_engine *e;
	char *arena;
	struct mce_mr *mr;		/* the arena's registered memory; NULL without NICs */
	struct mc_thread thread;
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond changed;		/* a load or staged request has ended, or the thread has work */
	struct mc_list staged, queue, idle, busy;
	struct mc_list tails;		/* staged requests whose trailer has to be submitted */
	struct mc_gpu_queue *to_host[MCE_GPUS_MAX], *to_gpu[MCE_GPUS_MAX];
	unsigned pumps;			/* number of threads in stager_pump_locked() */
	unsigned ending;		/* staged requests that have left the lists and are being completed */
	bool closing;
	struct load load[LOADS];
};

/* This thread is submitting the requests of a load, so flush has nothing to do. */
static __thread bool submitting;

/* ---- staged requests --------------------------------------------------------------------------- */

static bool staged_is_cut(const struct staged *s)
{
	return s->status < 0 || s->pos == mce_reqx(s->req)->total;
}

/* No piece of the staged request is under way and none will be: remove it from the lists.  The caller completes it
 * without the lock. */
static bool staged_take_locked(struct mce_stager *st, struct staged *s)
{
	if (s->users || !staged_is_cut(s) || (s->status == 0 && mce_tail_len(s->req) && !s->tail_sent))
		return false;
	mc_list_remove(&s->node);
	mc_list_remove(&s->queue_node);
	mce_req_move(s->req, MCE_AT_DONE);
	st->ending++;
	return true;
}

static void staged_end(struct mce_stager *st, struct staged *s)
{
	struct mce_req *req = s->req;
	enum mce_path path = s->path;
	int status = s->status;

	free(s);
	mce_complete(req, path, status);
	/* The peer and the engine may be freed from now on. */
	mc_mutex_lock(&st->lock);
	st->ending--;
	mc_cond_broadcast(&st->changed);
	mc_mutex_unlock(&st->lock);
}

/* A trailer has ended, or a thread releases its hold.  Releases the lock while it completes the staged request. */
static void staged_release_locked(struct mce_stager *st, struct staged *s)
{
	bool over, cancel = s->status < 0 && s->tail_sent && !s->tail_over;
	int status = s->status;

	/* The staged request was cancelled while its trailer was being submitted. */
	if (cancel) {
		mc_mutex_unlock(&st->lock);
		mce_peer_cancel(s->p, &s->tail, status);
		mc_mutex_lock(&st->lock);
	}
	s->users--;
	over = staged_take_locked(st, s);
	mc_mutex_unlock(&st->lock);
	if (over)
		staged_end(st, s);
	mc_mutex_lock(&st->lock);
}

static void tail_done(void *arg)
{
	struct staged *s = arg;
	struct mce_stager *st = s->p->e->gpus->stager;

	MC_LOCKED(&st->lock);
	if (s->tail.status < 0 && s->status == 0)
		s->status = s->tail.status;
	s->tail_over = true;
	staged_release_locked(st, s);
}

/* The lock is held.  All pieces of a WRITE are stored, so its checksums are complete.  True: submit s->tail. */
static bool tail_prepare_locked(struct staged *s)
{
	struct mce_req *req = s->req;
	uint64_t len = mce_tail_len(req);

	if (!len || s->users || s->status < 0 || !staged_is_cut(s) || s->tail_sent)
		return false;
	s->tail_sent = true;
	s->users = 1;
	s->tail_iov = (struct iovec){ req->crc, len };
	s->tail = (struct mce_req){
		.op = MCE_WRITE, .peer = s->p, .addr = req->addr + mce_tail_off(req), .rkey = req->rkey,
		.cap = req->cap, .fence = req->fence, .iov = &s->tail_iov, .iovcnt = 1,
	};
	mce_batch_init(&s->tail_batch);
	s->tail_batch.done = tail_done;
	s->tail_batch.arg = s;
	return true;
}

/* ---- loads: filling ---------------------------------------------------------------------------- */

static struct mc_gpu_queue *queue_of_locked(struct mce_stager *st, enum mce_op op, int gpu)
{
	struct mc_gpu_queue **q = op == MCE_WRITE ? &st->to_host[gpu] : &st->to_gpu[gpu];

	if (!*q && mc_gpu_queue_open(gpu, op == MCE_WRITE ? "mce-from-gpu" : "mce-to-gpu", q) < 0)
		*q = NULL;
	return *q;
}

/* Add the next @len bytes of the staged request to the load as a piece. */
static int piece_cut(struct load *l, struct staged *s, uint32_t len)
{
	struct piece *pc = &l->piece[l->npieces];
	bool write = l->op == MCE_WRITE;
	int r = 0;

	while (pc->len < len && r == 0) {
		const struct iovec *iov = &s->req->iov[s->idx];
		uint64_t room = iov->iov_len - s->off;
		uint32_t n = room < len - pc->len ? (uint32_t)room : len - pc->len;
		char *at = (char *)iov->iov_base + s->off, *slot = l->slot + pc->off + pc->len;

		if (n)
			r = mce_span_add(mce_gpu_of(l->p->e, at) < 0 ? &l->host_spans : &l->gpu_spans,
				     write ? slot : at, write ? at : slot, n);
		pc->len += n;
		s->off += n;
		if (s->off == iov->iov_len) {
			s->idx++;
			s->off = 0;
		}
	}
	s->pos += len;
	return r;
}

/* Cut one piece of the staged request; false: the load has no room for it.  A piece ends with a chunk of the checksums,
 * or with the transfer. */
static bool load_add(struct load *l, struct staged *s)
{
	uint64_t left = mce_reqx(s->req)->total - s->pos;
	const struct piece *last = l->npieces ? &l->piece[l->npieces - 1] : NULL;
	uint32_t at = last ? (last->off + last->len + 63) & ~63u : 0, len;
	unsigned nspans, nhost;
	int r;

	if (l->npieces == PIECES || at >= MCE_GPU_SLOT || l->gpu_spans.n + l->host_spans.n >= SPANS_ENOUGH)
		return false;
	len = MCE_GPU_SLOT - at;
	if (left <= len)
		len = (uint32_t)left;
	else
		len -= len % MC_CRC_CHUNK;
	if (len == 0)
		return false;
	l->piece[l->npieces] = (struct piece){ .s = s, .pos = s->pos, .off = at };
	nspans = l->gpu_spans.n;
	nhost = l->host_spans.n;
	r = piece_cut(l, s, len);
	l->piece[l->npieces].gpu_spans = l->gpu_spans.n - nspans;
	l->piece[l->npieces].host_spans = l->host_spans.n - nhost;
	/* The piece is not sent: its completion completes the staged request with this error. */
	if (r < 0 && s->status == 0)
		s->status = r;
	s->users++;
	l->npieces++;
	return true;
}

/* Fill the load with pieces of the first waiting staged requests. */
static void load_fill_locked(struct mce_stager *st, struct load *l)
{
	struct mc_list *pos, *next;
	struct staged *s = mc_list_first(&st->queue, struct staged, queue_node);

	l->op = s->req->op;
	l->gpu = mce_reqx(s->req)->gpu - 1;
	l->p = s->p;
	l->npieces = l->gpu_spans.n = l->host_spans.n = 0;
	mc_list_for_each_safe(pos, next, &st->queue) {
		s = mc_container_of(pos, struct staged, queue_node);
		if (s->req->op != l->op || mce_reqx(s->req)->gpu - 1 != l->gpu || s->p != l->p)
			break;
		while (!staged_is_cut(s) && load_add(l, s))
			;
		if (!staged_is_cut(s))
			break;
		mc_list_remove(pos);
	}
}

/* ---- loads: on their way ----------------------------------------------------------------------- */

static void load_recycle_locked(struct mce_stager *st, struct load *l)
{
	mc_list_remove(&l->node);
	mc_list_push_back(&st->idle, &l->node);
	mc_cond_broadcast(&st->changed);
}

/* The load is done, its copy with @status: complete the staged requests whose last piece it carried.  The caller may
 * hold a transport's lock, so the stager's thread submits trailers and the next loads, unless another thread is about
 * to submit them. */
static void load_end(struct load *l, int status)
{
	struct mce_stager *st = l->st;
	struct staged *over[PIECES];
	unsigned nover = 0;

	mc_mutex_lock(&st->lock);
	for (unsigned i = 0; i < l->npieces; i++) {
		struct staged *s = l->piece[i].s;
		int r = status < 0 ? status : mce_req_status(&l->req[i]);

		if (r == 0)
			s->path = l->req[i].path;
		else if (s->status == 0)
			s->status = r;
		s->users--;
		if (tail_prepare_locked(s))
			mc_list_push_back(&st->tails, &s->queue_node);
		else if (staged_take_locked(st, s))
			over[nover++] = s;
	}
	l->sent = false;
	l->over = l->holds > 0;
	if (!l->over)
		load_recycle_locked(st, l);
	mc_cond_broadcast(&st->changed);
	mc_mutex_unlock(&st->lock);
	for (unsigned i = 0; i < nover; i++)
		staged_end(st, over[i]);
}

static void load_copy_host(const struct load *l)
{
	const struct mce_spans *h = &l->host_spans;

	for (unsigned i = 0; i < h->n; i++)
		memcpy(h->s[i].dst, h->s[i].src, h->s[i].len);
}

static void load_copied_to_gpu(struct mc_gpu_job *job, int status)
{
	struct load *l = mc_container_of(job, struct load, job);

	if (status == 0)
		load_copy_host(l);
	load_end(l, status);
}

static void load_copy(struct load *l, void (*done)(struct mc_gpu_job *job, int status))
{
	struct mce_stager *st = l->st;
	struct mc_gpu_queue *q;

	mc_mutex_lock(&st->lock);
	q = l->gpu_spans.n ? queue_of_locked(st, l->op, l->gpu) : NULL;
	mc_mutex_unlock(&st->lock);
	l->job = (struct mc_gpu_job){ .spans = l->gpu_spans.s, .n = l->gpu_spans.n, .done = done };
	if (q)
		mc_gpu_queue_add(q, &l->job);
	else
		done(&l->job, l->gpu_spans.n ? -ENOMEM : 0);
}

/* Omit the spans of pieces that have not arrived, because their part of the slot has other bytes.  False: no piece
 * has arrived. */
static bool load_keep_arrived(struct load *l)
{
	unsigned gpu = 0, host = 0;
	bool any = false;

	l->gpu_spans.n = l->host_spans.n = 0;
	for (unsigned i = 0; i < l->npieces; i++) {
		const struct piece *pc = &l->piece[i];

		if (l->req[i].status == 0 && l->req[i].iovcnt) {
			mce_spans_keep(&l->gpu_spans, gpu, pc->gpu_spans);
			mce_spans_keep(&l->host_spans, host, pc->host_spans);
			any = true;
		}
		gpu += pc->gpu_spans;
		host += pc->host_spans;
	}
	return any;
}

/* The requests of the load are complete. */
static void load_sent(void *arg)
{
	struct load *l = arg;

	if (l->op == MCE_READ && load_keep_arrived(l))
		load_copy(l, load_copied_to_gpu);
	else
		load_end(l, 0);
}

static void piece_request(struct load *l, unsigned i, bool cancelled)
{
	const struct piece *pc = &l->piece[i];
	const struct mce_req *req = pc->s->req;

	l->iov[i] = (struct iovec){ l->slot + pc->off, pc->len };
	l->req[i] = (struct mce_req){
		.op = l->op, .peer = l->p, .addr = req->addr + pc->pos, .rkey = req->rkey, .cap = req->cap,
		.fence = req->fence, .iov = &l->iov[i], .iovcnt = cancelled ? 0 : 1,
	};
	if (!req->crc || pc->pos >= req->crc_len || cancelled)
		return;
	l->req[i].crc = req->crc + pc->pos / MC_CRC_CHUNK;
	l->req[i].crc_len = req->crc_len - pc->pos < pc->len ? req->crc_len - pc->pos : pc->len;
}

/* Cancel the requests of pieces whose staged request was cancelled while they were being submitted. */
static void load_cancel_late(struct load *l)
{
	struct mce_stager *st = l->st;
	int status[PIECES];

	mc_mutex_lock(&st->lock);
	l->sent = true;
	for (unsigned i = 0; i < l->npieces; i++)
		status[i] = l->piece[i].s->status;
	mc_mutex_unlock(&st->lock);
	for (unsigned i = 0; i < l->npieces; i++)
		if (status[i] < 0)
			mce_peer_cancel(l->p, &l->req[i], status[i]);
}

static void load_send(struct load *l)
{
	struct mce_stager *st = l->st;
	bool was = submitting;

	MC_FAULT_POINT("engine.gpu.send");
	mc_mutex_lock(&st->lock);
	for (unsigned i = 0; i < l->npieces; i++)
		piece_request(l, i, l->piece[i].s->status < 0);
	mc_mutex_unlock(&st->lock);
	mce_batch_init(&l->batch);
	l->batch.done = load_sent;
	l->batch.arg = l;
	mce_batch_hold(&l->batch);
	submitting = true;
	mce_submit(st->e, &l->batch, l->req, l->npieces);
	submitting = was;
	load_cancel_late(l);
	mce_batch_release(&l->batch);
}

static void load_copied_to_host(struct mc_gpu_job *job, int status)
{
	struct load *l = mc_container_of(job, struct load, job);

	if (status < 0)
		load_end(l, status);
	else
		load_send(l);
}

static void load_start(struct load *l)
{
	if (l->op == MCE_READ) {
		load_send(l);
		return;
	}
	load_copy_host(l);
	load_copy(l, load_copied_to_host);
}

/* ---- the stager -------------------------------------------------------------------------------- */

static bool stager_has_work(const struct mce_stager *st)
{
	return !mc_list_empty(&st->tails) || (!mc_list_empty(&st->queue) && !mc_list_empty(&st->idle));
}

/* The lock is held; it is released while requests are submitted. */
static void tail_submit_locked(struct mce_stager *st)
{
	struct staged *s = mc_list_first(&st->tails, struct staged, queue_node);
	bool was = submitting;

	mc_list_remove(&s->queue_node);
	/* The stager's end, and the peer's, wait for this thread. */
	s->users++;
	mc_mutex_unlock(&st->lock);
	submitting = true;
	mce_submit(st->e, &s->tail_batch, &s->tail, 1);
	submitting = was;
	mc_mutex_lock(&st->lock);
	staged_release_locked(st, s);
}

static void stager_pump_locked(struct mce_stager *st)
{
	struct load *l;

	st->pumps++;
	while (stager_has_work(st)) {
		if (!mc_list_empty(&st->tails)) {
			tail_submit_locked(st);
			continue;
		}
		l = mc_list_first(&st->idle, struct load, node);
		mc_list_remove(&l->node);
		mc_list_push_back(&st->busy, &l->node);
		load_fill_locked(st, l);
		mc_mutex_unlock(&st->lock);
		load_start(l);
		mc_mutex_lock(&st->lock);
	}
	st->pumps--;
}

static void *stager_main(void *arg)
{
	struct mce_stager *st = arg;

	MC_LOCKED(&st->lock);
	while (!st->closing) {
		if (stager_has_work(st) && st->pumps == 0)
			stager_pump_locked(st);
		else
			mc_cond_wait(&st->changed, &st->lock);
	}
	return NULL;
}

static void stager_close(struct mce_stager *st)
{
	for (unsigned i = 0; i < MCE_GPUS_MAX; i++) {
		mc_gpu_queue_close(st->to_host[i]);
		mc_gpu_queue_close(st->to_gpu[i]);
	}
	for (unsigned i = 0; i < LOADS; i++) {
		free(st->load[i].gpu_spans.s);
		free(st->load[i].host_spans.s);
	}
	mce_mr_unregister(st->mr);
	mce_pinned_free(st->arena, (size_t)LOADS * MCE_GPU_SLOT);
	mc_cond_destroy(&st->changed);
	mc_mutex_destroy(&st->lock);
	free(st);
}

static struct mce_stager *stager_new(struct mce_engine *e)
{
	struct mce_mr_attr attr = { .len = (uint64_t)LOADS * MCE_GPU_SLOT, .fd = -1 };
	struct mce_stager *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->e = e;
	mc_mutex_init(&st->lock);
	mc_cond_init(&st->changed);
	mc_list_init(&st->staged);
	mc_list_init(&st->queue);
	mc_list_init(&st->tails);
	mc_list_init(&st->idle);
	mc_list_init(&st->busy);
	st->arena = mce_pinned_new((size_t)LOADS * MCE_GPU_SLOT);
	attr.base = st->arena;
	/* Registered slots let NICs read and write them without a copy. */
	if (st->arena && mce_engine_has_rdma(e) && mce_mr_register(e, &attr, &st->mr) < 0)
		st->mr = NULL;
	for (unsigned i = 0; i < LOADS; i++) {
		st->load[i].st = st;
		st->load[i].slot = st->arena + (size_t)i * MCE_GPU_SLOT;
		mc_list_push_back(&st->idle, &st->load[i].node);
	}
	if (!st->arena || mc_thread_start(&st->thread, "mce-gpu", stager_main, st) < 0) {
		stager_close(st);
		return NULL;
	}
	return st;
}

struct mce_stager *mce_stager_get(struct mce_engine *e)
{
	struct mce_stager *st = __atomic_load_n(&e->gpus->stager, __ATOMIC_ACQUIRE), *made = NULL;

	if (st)
		return st;
	st = stager_new(e);
	if (!st)
		return NULL;
	if (__atomic_compare_exchange_n(&e->gpus->stager, &made, st, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return st;
	mce_stager_free(st);
	return made;
}

void mce_stager_free(struct mce_stager *st)
{
	if (!st)
		return;
	mc_mutex_lock(&st->lock);
	st->closing = true;
	mc_cond_broadcast(&st->changed);
	mc_mutex_unlock(&st->lock);
	mc_thread_join(st->thread);
	stager_close(st);
}

/* ---- the transport ----------------------------------------------------------------------------- */

static struct mce_stager *stager_of(const struct mce_peer *p)
{
	return __atomic_load_n(&p->e->gpus->stager, __ATOMIC_ACQUIRE);
}

static struct staged *staged_new(struct mce_peer *p, struct mce_req *req)
{
	struct staged *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->req = req;
	s->p = p;
	mc_list_init(&s->queue_node);
	return s;
}

/* Returns 0, or the status of a request that was cancelled meanwhile. */
static int staged_queue(struct mce_stager *st, struct staged *s)
{
	struct mce_reqx *x = mce_reqx(s->req);

	MC_LOCKED(&s->p->lock);
	if (x->status < 0)
		return x->status;
	x->staged = true;
	x->owner = &mce_staged_transport;
	/* A cancellation finds the staged request in the lists from now on. */
	mc_mutex_lock(&st->lock);
	mce_req_move(s->req, MCE_AT_TRANSPORT);
	mc_list_push_back(&st->staged, &s->node);
	mc_list_push_back(&st->queue, &s->queue_node);
	mc_mutex_unlock(&st->lock);
	return 0;
}

static int staged_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_stager *st;
	struct staged *s;
	int r;

	if (!mce_reqx(req)->gpu)
		return -MC_ENOTSUP;
	st = mce_stager_get(p->e);
	s = st ? staged_new(p, req) : NULL;
	r = s ? staged_queue(st, s) : -ENOMEM;
	if (r < 0) {
		free(s);
		mce_req_move(req, MCE_AT_DONE);
		mce_complete(req, MCE_PATH_STAGED, r);
	}
	return 0;
}

static unsigned staged_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	unsigned i = 0;

	/* A peer with RDMA gets requests one by one, because its NICs may take them as soon as it is connected. */
	while (i < n && mce_reqx(&reqs[i])->status == 0 && mce_reqx(&reqs[i])->total &&
	       (!p->tp[MCE_PATH_RDMA] || reqs[i].crc) && staged_submit(p, &reqs[i]) == 0)
		i++;
	return i;
}

static void staged_flush(struct mce_peer *p)
{
	struct mce_stager *st = stager_of(p);

	if (!st || submitting)
		return;
	MC_LOCKED(&st->lock);
	stager_pump_locked(st);
}

/* Collect the busy loads that have pieces of the staged request in flight, with a hold on each. */
static unsigned staged_loads_locked(struct mce_stager *st, const struct staged *s, struct load *ret[LOADS])
{
	struct mc_list *pos;
	unsigned n = 0;

	mc_list_for_each(pos, &st->busy) {
		struct load *l = mc_container_of(pos, struct load, node);
		bool has = false;

		for (unsigned i = 0; i < l->npieces && l->sent && !has; i++)
			has = l->piece[i].s == s;
		if (!has)
			continue;
		l->holds++;
		ret[n++] = l;
	}
	return n;
}

/* Releases the lock while it cancels. */
static void staged_stop_locked(struct mce_stager *st, struct staged *s, int status)
{
	struct load *loads[LOADS];
	bool tail = s->tail_sent && mc_list_empty(&s->queue_node), over;
	unsigned n;

	if (s->status == 0)
		s->status = status;
	if (!s->tail_sent)
		mc_list_remove(&s->queue_node);
	n = staged_loads_locked(st, s, loads);
	s->users++;
	mc_mutex_unlock(&st->lock);
	for (unsigned k = 0; k < n; k++)
		for (unsigned i = 0; i < loads[k]->npieces; i++)
			if (loads[k]->piece[i].s == s)
				mce_peer_cancel(s->p, &loads[k]->req[i], status);
	if (tail)
		mce_peer_cancel(s->p, &s->tail, status);
	mc_mutex_lock(&st->lock);
	for (unsigned k = 0; k < n; k++)
		if (--loads[k]->holds == 0 && loads[k]->over) {
			loads[k]->over = false;
			load_recycle_locked(st, loads[k]);
		}
	s->users--;
	over = staged_take_locked(st, s);
	mc_mutex_unlock(&st->lock);
	if (over)
		staged_end(st, s);
	mc_mutex_lock(&st->lock);
}

static void staged_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_stager *st = stager_of(p);
	struct mc_list *pos;

	if (!st)
		return;
	MC_LOCKED(&st->lock);
	mc_list_for_each(pos, &st->staged) {
		struct staged *s = mc_container_of(pos, struct staged, node);

		if (s->req != req)
			continue;
		staged_stop_locked(st, s, status);
		return;
	}
}

/* Has the peer a staged request or a load, or is any staged request being completed?  *@ret: one of the peer's that is
 * not cancelled; NULL: there is none. */
static bool peer_is_busy_locked(struct mce_stager *st, const struct mce_peer *p, struct staged **ret)
{
	bool busy = st->ending > 0;
	struct mc_list *pos;

	*ret = NULL;
	mc_list_for_each(pos, &st->staged) {
		struct staged *s = mc_container_of(pos, struct staged, node);

		if (s->p != p)
			continue;
		busy = true;
		if (s->status == 0)
			*ret = s;
	}
	mc_list_for_each(pos, &st->busy)
		busy |= mc_container_of(pos, struct load, node)->p == p;
	return busy;
}

static void staged_detach(struct mce_peer *p)
{
	struct mce_stager *st = stager_of(p);
	struct staged *s;

	if (!st)
		return;
	MC_LOCKED(&st->lock);
	while (peer_is_busy_locked(st, p, &s)) {
		if (s)
			staged_stop_locked(st, s, -ECANCELED);
		else
			mc_cond_wait(&st->changed, &st->lock);
	}
}

const struct mce_transport mce_staged_transport = {
	.name = "staged",
	.path = MCE_PATH_STAGED,
	.distance = MCE_DISTANCE_NETWORK,
	.gpu = true,
	.attach = mce_no_attach,
	.detach = staged_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = staged_submit,
	.submit_run = staged_run,
	.flush = staged_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = staged_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = mce_no_map,
};
