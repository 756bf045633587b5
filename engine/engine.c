/* SPDX-License-Identifier: Apache-2.0
 * engine.c - opening and closing an engine, submitting transfers. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"
#include "engine/gpu/gpu_i.h"

/* After no transport took requests together, this many go singly: by then another path may be connected. */
#define SINGLE_RUN 64u
/* Longest fragment of a request over TCP. */
#define STRIPE_MAX (8ull << 20)
/* Bounds of the default limit of incoming connections. */
#define PEERS_IN_MIN 16u
#define PEERS_IN_MAX 4096u

/* The program that hosts the engine needs descriptors for its own work. */
static uint32_t conf_max_peers_in(void)
{
	struct rlimit lim;
	rlim_t n = getrlimit(RLIMIT_NOFILE, &lim) == 0 ? lim.rlim_cur / 4 : PEERS_IN_MAX;

	if (n < PEERS_IN_MIN)
		return PEERS_IN_MIN;
	return n < PEERS_IN_MAX ? (uint32_t)n : PEERS_IN_MAX;
}

static int conf_fill(struct mce_engine *e, const struct mce_conf *conf)
{
	struct mce_conf *c = &e->conf;
	unsigned share;
	int r;

	*c = *conf;
	c->net = conf->net ? conf->net : mc_net_default();
	c->control_net = conf->control_net ? conf->control_net : c->net;
	c->host = c->bind_host = c->io_cpus = NULL;
	c->numa_cpus = NULL;
	if (conf->port < 0 || conf->port > 65535 || conf->port_min < 0 || conf->port_max > 65535 ||
	    conf->port_min > conf->port_max)
		return mc_fail(-EINVAL, "port %d, or the range %d to %d, is not valid", conf->port,
			       conf->port_min, conf->port_max);
	if (c->upstream_port_min == 0)
		c->upstream_port_min = 15000;
	if (c->upstream_port_max == 0)
		c->upstream_port_max = 17000;
	if (c->upstream_port < 0 || c->upstream_port > 65535 || c->upstream_port_min < 1 ||
	    c->upstream_port_max > 65535 || c->upstream_port_min > c->upstream_port_max)
		return mc_fail(-EINVAL, "port %d, or the range %d to %d, is not valid", c->upstream_port,
			       c->upstream_port_min, c->upstream_port_max);
	if (conf->numa_nodes > 1 && conf->numa_nodes <= MCE_NUMA_MAX && conf->numa_of && conf->numa_cpus)
		e->numa_nodes = conf->numa_nodes;
	else if (conf->numa_nodes > 1)
		return mc_fail(-EINVAL, "%u NUMA nodes, at most %u are supported", conf->numa_nodes,
			       MCE_NUMA_MAX);
	share = e->numa_nodes ? e->numa_nodes : 1;
	if (c->io_threads == 0)
		c->io_threads = 2 * share < MCE_IO_MAX ? 2 * share : MCE_IO_MAX;
	if (c->conns == 0)
		c->conns = 2 * share < MCE_TCP_CONNS_MAX ? 2 * share : MCE_TCP_CONNS_MAX;
	if (c->io_threads > MCE_IO_MAX || c->conns > MCE_TCP_CONNS_MAX)
		return mc_fail(-EINVAL, "at most %u I/O threads and %u connections per peer", MCE_IO_MAX,
			       MCE_TCP_CONNS_MAX);
	if (c->stripe_bytes == 0)
		c->stripe_bytes = 512 << 10;
	if (c->stripe_bytes > STRIPE_MAX)
		c->stripe_bytes = STRIPE_MAX;
	/* A fragment holds whole chunks, so that no two connections compute parts of one checksum. */
	c->stripe_bytes = (c->stripe_bytes + MC_CRC_CHUNK - 1) / MC_CRC_CHUNK * MC_CRC_CHUNK;
	if (c->max_peers_in == 0)
		c->max_peers_in = conf_max_peers_in();
	if (c->progress_timeout_ms == 0)
		c->progress_timeout_ms = 30000;
	if (c->status_timeout_ms == 0)
		c->status_timeout_ms = 30000;
	r = mce_cpus_parse(conf->io_cpus ? conf->io_cpus : "", &e->cpus[0]);
	for (unsigned i = 0; i < e->numa_nodes && r == 0; i++)
		r = mce_cpus_parse(conf->numa_cpus[i], &e->cpus[i]);
	return r;
}

static int io_threads_open(struct mce_engine *e)
{
	char name[32];
	int r;

	for (unsigned i = 0; i < e->conf.io_threads; i++) {
		snprintf(name, sizeof(name), "mce-io%u", i);
		e->io[i].numa = e->numa_nodes ? i % e->numa_nodes : 0;
		r = mce_io_open(&e->io[i], e, name);
		if (r < 0) {
			mce_io_close(&e->io[i]);
			return r;
		}
		e->nio++;
	}
	return 0;
}

int mce_engine_open(const struct mce_conf *conf, struct mce_engine **ret)
{
	struct mce_engine *e;
	int r;

	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	mc_mutex_init(&e->lock);
	mc_cond_init(&e->idle);
	mc_list_init(&e->peers);
	mc_list_init(&e->fences);
	mc_list_init(&e->owed);
	mc_mutex_init(&e->disk.lock);
	mc_list_init(&e->disk.jobs);
	e->upstream_port = -1;
	e->time_early = e->time_late = mc_wall_ms() - mc_now_ms();
	e->fork_depth = mc_fork_depth;
	r = mce_mr_table_init(&e->mrs);
	if (r == 0)
		r = mce_gpus_open(e);
	if (r == 0)
		r = mce_writers_init(&e->writers);
	if (r == 0)
		r = conf_fill(e, conf);
	if (r == 0)
		r = mce_id_make(&e->id);
	if (r == 0)
		r = io_threads_open(e);
	if (r == 0)
		r = mce_services_open(e, conf);
	if (r < 0) {
		mce_engine_close(e);
		return r;
	}
	*ret = e;
	return 0;
}

void mce_engine_close(struct mce_engine *e)
{
	if (!e || mc_fork_check(e->fork_depth) < 0)
		return;
	mc_mutex_lock(&e->lock);
	__atomic_store_n(&e->closing, true, __ATOMIC_RELEASE);
	mc_mutex_unlock(&e->lock);
	mce_peers_close(e);
	mce_gpus_stop(e);
	mce_mr_table_clear(&e->mrs);
	for (unsigned i = 0; i < e->nio; i++)
		mce_io_close(&e->io[i]);
	mce_mr_table_done(&e->mrs);
	mce_services_close(e);
	mce_gpus_close(e);
	mce_writers_done(&e->writers);
	mc_mutex_destroy(&e->disk.lock);
	mc_cond_destroy(&e->idle);
	mc_mutex_destroy(&e->lock);
	free(e);
}

const char *mce_engine_endpoint(const struct mce_engine *e)
{
	return e->endpoint;
}

void mce_engine_set_time(struct mce_engine *e, uint64_t time_ms, uint64_t asked_ms)
{
	__atomic_store_n(&e->time_early, time_ms - mc_now_ms(), __ATOMIC_RELAXED);
	__atomic_store_n(&e->time_late, time_ms - asked_ms, __ATOMIC_RELAXED);
}

uint64_t mce_engine_time(const struct mce_engine *e, bool late)
{
	return mc_now_ms() + __atomic_load_n(late ? &e->time_late : &e->time_early, __ATOMIC_RELAXED);
}

int mce_engine_upstream_port(const struct mce_engine *e)
{
	return e->upstream_port;
}

/* ---- transfers --------------------------------------------------------------------------------- */

/* 0 and the number of bytes in the request's x->total. */
static int req_check(struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	if (!req->peer || (req->op != MCE_READ && req->op != MCE_WRITE) || (req->iovcnt && !req->iov))
		return -EINVAL;
	if (mc_fork_check(req->peer->e->fork_depth) < 0)
		return -MC_EUNAVAILABLE;
	for (unsigned i = 0; i < req->iovcnt; i++)
		if (__builtin_add_overflow(x->total, req->iov[i].iov_len, &x->total))
			return -EINVAL;
	if (req->crc && req->crc_len > x->total)
		return -EINVAL;
	if (req->crc_tail && (!req->crc || req->op != MCE_WRITE || req->crc_len != x->total))
		return -EINVAL;
	return 0;
}

/* The error of an invalid request is kept in it until its turn.  @gpu: its memory may be a GPU's. */
static void req_prepare(struct mce_batch *b, struct mce_req *req, bool gpu)
{
	struct mce_reqx *x = mce_reqx(req);

	memset(req->priv, 0, sizeof(req->priv));
	mc_list_init(&x->node);
	mce_req_set_status(req, -EINPROGRESS);
	req->path = MCE_PATH_NONE;
	req->batch = b;
	x->status = req_check(req);
	x->gpu = gpu && x->status == 0 ? (uint8_t)(mce_req_gpu(req) + 1) : 0;
	if (req->peer)
		__atomic_fetch_add(&req->peer->asked, x->total, __ATOMIC_RELAXED);
}

/* True: the request waits for the resolver. */
static bool req_submit(struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	if (x->status == 0 && x->total)
		return mce_peer_submit(req->peer, req);
	mce_complete(req, MCE_PATH_NONE, x->status);
	return false;
}

/* Progress of one mce_submit(): requests [next, ready) are prepared and of one peer. */
struct submission {
	struct mce_req *reqs;
	unsigned next, ready, n;
	bool gpu;		/* the program uses a GPU */
	uint64_t single_key;	/* key of a region whose requests no transport takes together */
	unsigned single_left;	/* requests to offer singly before several are offered together again */
};

static void submission_prepare(struct mce_batch *b, struct submission *h)
{
	struct mce_peer *p = h->reqs[h->next].peer;

	if (h->ready > h->next)
		return;
	while (h->ready < h->n && h->ready < h->next + MCE_RUN_MAX && h->reqs[h->ready].peer == p)
		req_prepare(b, &h->reqs[h->ready++], h->gpu);
}

/* The first of @n requests waits for the peer or its region, so the following ones for the same region wait too.  How
 * many, the first included. */
static unsigned reqs_pend(struct mce_peer *p, uint64_t rkey, struct mce_req *reqs, unsigned n)
{
	unsigned i = 1;

	while (i < n && reqs[i].rkey == rkey && mce_reqx(&reqs[i])->status == 0 && mce_reqx(&reqs[i])->total)
		i++;
	if (i > 1)
		mce_peer_pend(p, reqs + 1, i - 1);
	return i;
}

static void submission_step(struct submission *h)
{
	struct mce_req *req = &h->reqs[h->next];
	unsigned n = h->ready - h->next, took = 0;
	struct mce_peer *p = req->peer;
	uint64_t rkey = req->rkey;

	if (n > 1 && p && !(h->single_left && h->single_key == rkey)) {
		took = mce_peer_offer_run(p, req, n);
		h->single_left = took ? 0 : SINGLE_RUN;
		h->single_key = rkey;
	}
	if (took == 0 && req_submit(req)) {
		took = reqs_pend(p, rkey, req, n);
		/* Later requests may find the peer connected, so offer them together again. */
		h->single_left = 0;
	}
	h->single_left -= h->single_left > 0;
	h->next += took ? took : 1;
}

static void peer_flush(struct mce_peer *p)
{
	/* In a forked child the queued requests and the connection may be the parent's. */
	if (mc_fork_check(p->e->fork_depth) < 0)
		return;
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->flush(p);
}

int mce_submit(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n)
{
	struct submission h = { .reqs = reqs, .n = n, .gpu = mc_gpu() != NULL };
	struct mce_peer *p = NULL;

	__atomic_fetch_add(&b->left, n, __ATOMIC_RELAXED);
	while (h.next < n) {
		/* Do not read it from a submitted request: that may be complete and freed. */
		struct mce_peer *next = reqs[h.next].peer;

		if (p && p != next)
			peer_flush(p);
		submission_prepare(b, &h);
		submission_step(&h);
		p = next;
	}
	if (p)
		peer_flush(p);
	return 0;
}
