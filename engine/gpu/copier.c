/* SPDX-License-Identifier: Apache-2.0
 * copier.c - streams for copies that a thread waits for, and pinned host memory. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/lock.h"
#include "engine/gpu/gpu_i.h"

/* Pinning takes some 10 ms per window, once; a window is wholly in memory then. */
#define WINDOW (64ull << 20)

/* ---- copiers ----------------------------------------------------------------------------------- */

static void copier_free(struct mce_copier *c)
{
	const struct mc_gpu_driver *d = mc_gpu();

	for (unsigned i = 0; i < MCE_COPIER_EVENTS; i++)
		if (c->event[i])
			d->event_close(c->event[i]);
	if (c->stream)
		d->stream_close(c->stream);
	free(c);
}

static int copier_new(int gpu, struct mce_copier **ret)
{
	struct mce_copier *c = calloc(1, sizeof(*c));
	const struct mc_gpu_driver *d = mc_gpu();
	int r;

	if (!c)
		return -ENOMEM;
	c->gpu = gpu;
	r = d->stream_open(gpu, &c->stream);
	for (unsigned i = 0; i < MCE_COPIER_EVENTS && r == 0; i++)
		r = d->event_open(c->stream, &c->event[i]);
	if (r < 0) {
		copier_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int mce_copier_take(struct mce_engine *e, int gpu, struct mce_copier **ret)
{
	struct mc_list *pos;

	mc_mutex_lock(&e->gpus->lock);
	mc_list_for_each(pos, &e->gpus->copiers) {
		struct mce_copier *c = mc_container_of(pos, struct mce_copier, node);

		if (c->gpu != gpu)
			continue;
		mc_list_remove(pos);
		mc_mutex_unlock(&e->gpus->lock);
		*ret = c;
		return 0;
	}
	mc_mutex_unlock(&e->gpus->lock);
	return copier_new(gpu, ret);
}

void mce_copier_give(struct mce_engine *e, struct mce_copier *c)
{
	MC_LOCKED(&e->gpus->lock);
	mc_list_push_front(&e->gpus->copiers, &c->node);
}

int mce_copier_run(struct mce_copier *c, const struct mc_gpu_span *spans, unsigned n)
{
	const struct mc_gpu_driver *d = mc_gpu();
	int r, err;

	r = d->copy(c->stream, spans, n);
	/* Wait also after a failure: some of the copies may have been added. */
	err = d->event_record(c->event[0], c->stream);
	if (err == 0)
		err = d->event_wait(c->event[0]);
	if (err < 0)
		d->drain(c->stream);
	return r < 0 ? r : err;
}

int mce_span_add(struct mce_spans *l, void *dst, const void *src, size_t len)
{
	unsigned cap = l->cap ? 2 * l->cap : 64;
	struct mc_gpu_span *more;

	if (l->n == l->cap) {
		more = realloc(l->s, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->s = more;
		l->cap = cap;
	}
	l->s[l->n++] = (struct mc_gpu_span){ dst, src, len };
	return 0;
}

void mce_spans_keep(struct mce_spans *l, unsigned from, unsigned n)
{
	if (n)
		memmove(l->s + l->n, l->s + from, n * sizeof(*l->s));
	l->n += n;
}

int mce_gpu_wait_for_caller(struct mce_engine *e, int gpu)
{
	const struct mc_gpu_driver *d = mc_gpu();
	struct mce_copier *c;
	int r;

	r = mce_copier_take(e, gpu, &c);
	if (r < 0)
		return r;
	r = d->follow(c->stream);
	if (r == 0)
		r = d->event_record(c->event[0], c->stream);
	if (r == 0)
		r = d->event_wait(c->event[0]);
	mce_copier_give(e, c);
	return r;
}

/* ---- the engine's part ------------------------------------------------------------------------- */

int mce_gpus_open(struct mce_engine *e)
{
	struct mce_gpus *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->e = e;
	mc_mutex_init(&g->lock);
	mc_list_init(&g->copiers);
	mc_list_init(&g->reads.waiting);
	mce_follower_init(&g->follower);
	e->gpus = g;
	return 0;
}

void mce_gpus_stop(struct mce_engine *e)
{
	if (!e->gpus)
		return;
	mce_follower_stop(&e->gpus->follower);
	mce_stager_free(e->gpus->stager);
}

void mce_gpus_close(struct mce_engine *e)
{
	struct mce_gpus *g = e->gpus;

	if (!g)
		return;
	mce_gpu_reads_close(g);
	mce_follower_done(&g->follower);
	while (!mc_list_empty(&g->copiers)) {
		struct mce_copier *c = mc_list_first(&g->copiers, struct mce_copier, node);

		mc_list_remove(&c->node);
		copier_free(c);
	}
	mc_mutex_destroy(&g->lock);
	free(g);
	e->gpus = NULL;
}

int mce_gpu_of(struct mce_engine *e, const void *p)
{
	struct mce_mr *mr;
	int gpu;

	if (!mc_gpu())
		return -1;
	if (mce_mr_get_at(e, (uintptr_t)p, 1, 0, &mr) < 0)
		return mc_gpu_of(p);
	gpu = mr->gpu;
	mce_mr_unref(mr);
	return gpu;
}

int mce_req_gpu(const struct mce_req *req)
{
	int gpu = -1;

	if (!mc_gpu())
		return -1;
	for (unsigned i = 0; i < req->iovcnt && gpu < 0; i++)
		if (req->iov[i].iov_len)
			gpu = mce_gpu_of(req->peer->e, req->iov[i].iov_base);
	return gpu;
}

uint64_t mce_req_gpus(const struct mce_req *req)
{
	uint64_t gpus = 0;
	int gpu;

	if (mc_gpu()->count() == 1)
		return 1;
	for (unsigned i = 0; i < req->iovcnt; i++) {
		gpu = req->iov[i].iov_len ? mce_gpu_of(req->peer->e, req->iov[i].iov_base) : -1;
		gpus |= gpu >= 0 ? 1ull << gpu : 0;
	}
	return gpus;
}

/* ---- pinned memory ----------------------------------------------------------------------------- */

void *mce_pinned_new(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static bool warned;
	int r;

	if (p == MAP_FAILED)
		return NULL;
	r = mc_gpu()->pin(p, len, false);
	if (r < 0 && !__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))
		mc_warn("gpu", "host memory cannot be pinned, copies from and to the GPU are slow: %s",
			mc_err_detail(r));
	return p;
}

void mce_pinned_free(void *p, size_t len)
{
	struct mc_gpu_mem mem;

	if (!p)
		return;
	mc_gpu()->classify(p, &mem);
	if (mem.kind == MC_GPU_PINNED)
		mc_gpu()->unpin(p);
	munmap(p, len);
}

enum { UNTRIED, PINNED, PAGEABLE };

struct mce_pins {
	struct mc_mutex lock;
	char *base;
	uint64_t len;
	bool read_only;
	/* guarded by lock */
	uint8_t state[];	/* one entry per window */
};

static struct mce_pins *pins_get(struct mce_pins **at, void *base, uint64_t len, bool read_only)
{
	struct mce_pins *p = __atomic_load_n(at, __ATOMIC_ACQUIRE), *none = NULL;

	if (p)
		return p;
	p = calloc(1, sizeof(*p) + (len - 1) / WINDOW + 1);
	if (!p)
		return NULL;
	mc_mutex_init(&p->lock);
	p->base = base;
	p->len = len;
	p->read_only = read_only;
	if (__atomic_compare_exchange_n(at, &none, p, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return p;
	mce_pins_free(p);
	return none;
}

static uint64_t window_len(const struct mce_pins *p, uint64_t i)
{
	return p->len - i * WINDOW < WINDOW ? p->len - i * WINDOW : WINDOW;
}

static void window_pin_locked(struct mce_pins *p, uint64_t i)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), len = (window_len(p, i) + page - 1) / page * page;
	struct mc_gpu_mem mem;
	int r;

	mc_gpu()->classify(p->base + i * WINDOW, &mem);
	/* The program may have pinned its memory itself. */
	r = mem.kind == MC_GPU_HOST ? mc_gpu()->pin(p->base + i * WINDOW, len, p->read_only) : -EEXIST;
	if (r < 0 && r != -EEXIST)
		mc_info("gpu", "memory of a segment cannot be pinned, copies between it and the GPU are slower: %s",
			mc_err_detail(r));
	p->state[i] = r == 0 ? PINNED : PAGEABLE;
}

uint64_t mce_pins_reach(struct mce_pins **pins, void *base, uint64_t len, bool read_only, const void *at)
{
	uint64_t off = (uint64_t)((const char *)at - (char *)base), i = off / WINDOW;
	struct mce_pins *p = pins_get(pins, base, len, read_only);

	if (!p)
		return len - off;
	MC_LOCKED(&p->lock);
	if (p->state[i] == UNTRIED)
		window_pin_locked(p, i);
	return i * WINDOW + window_len(p, i) - off;
}

void mce_pins_free(struct mce_pins *p)
{
	if (!p)
		return;
	for (uint64_t i = 0; i * WINDOW < p->len; i++)
		if (p->state[i] == PINNED)
			mc_gpu()->unpin(p->base + i * WINDOW);
	mc_mutex_destroy(&p->lock);
	free(p);
}
