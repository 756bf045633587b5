/* SPDX-License-Identifier: Apache-2.0
 * engine.c - opening, closing, and the door through which transfers come in. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "common/fork.h"
#include "engine/engine_i.h"

/* What no transport takes together may be connected, by another path, a moment later. */
#define ALONE_RUN 64u
/* Longest piece that goes over TCP at once. */
#define STRIPE_MAX (8ull << 20)

static int fill_conf(struct mce_engine *e, const struct mce_conf *conf)
{
	struct mce_conf *c = &e->conf;
	unsigned share;
	int r;

	*c = *conf;
	c->host = c->bind_host = c->io_cpus = NULL;
	c->place_cpus = NULL;
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
	if (conf->places > 1 && conf->places <= MCE_NUMA_MAX && conf->place_of && conf->place_cpus)
		e->nplaces = conf->places;
	else if (conf->places > 1)
		return mc_fail(-EINVAL, "%u places, and at most %u can be told apart", conf->places,
			       MCE_NUMA_MAX);
	share = e->nplaces ? e->nplaces : 1;
	if (c->io_threads == 0)
		c->io_threads = 2 * share < MCE_IO_MAX ? 2 * share : MCE_IO_MAX;
	if (c->lanes == 0)
		c->lanes = 2 * share < MCE_TCP_CONNS_MAX ? 2 * share : MCE_TCP_CONNS_MAX;
	if (c->io_threads > MCE_IO_MAX || c->lanes > MCE_TCP_CONNS_MAX)
		return mc_fail(-EINVAL, "at most %u I/O threads and %u lanes per peer", MCE_IO_MAX,
			       MCE_TCP_CONNS_MAX);
	if (c->stripe_bytes == 0)
		c->stripe_bytes = 512 << 10;
	if (c->stripe_bytes > STRIPE_MAX)
		c->stripe_bytes = STRIPE_MAX;
	/* A piece holds whole chunks, so that no checksum is made in two places. */
	c->stripe_bytes = (c->stripe_bytes + MC_CRC_CHUNK - 1) / MC_CRC_CHUNK * MC_CRC_CHUNK;
	if (c->max_peers_in == 0)
		c->max_peers_in = 4096;
	if (c->progress_timeout_ms == 0)
		c->progress_timeout_ms = 30000;
	if (c->status_timeout_ms == 0)
		c->status_timeout_ms = 30000;
	r = mce_cpus_parse(conf->io_cpus ? conf->io_cpus : "", &e->cpus[0]);
	for (unsigned i = 0; i < e->nplaces && r == 0; i++)
		r = mce_cpus_parse(conf->place_cpus[i], &e->cpus[i]);
	return r;
}

static int open_io(struct mce_engine *e)
{
	char name[32];
	int r;

	for (unsigned i = 0; i < e->conf.io_threads; i++) {
		snprintf(name, sizeof(name), "mce-io%u", i);
		e->io[i].place = e->nplaces ? i % e->nplaces : 0;
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
	const char *host = conf->host ? conf->host : "127.0.0.1";
	struct mce_engine *e;
	int r;

	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->idle, NULL);
	mc_list_init(&e->peers);
	mc_list_init(&e->fences);
	mc_list_init(&e->owed);
	e->upstream_port = -1;
	e->fork_depth = mc_fork_depth;
	/* Without it who waits looks up by itself. */
	e->ready_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	r = mce_mr_table_init(&e->mrs);
	if (r == 0)
		r = fill_conf(e, conf);
	if (r == 0)
		r = mce_id_make(&e->id);
	if (r == 0)
		r = open_io(e);
	if (r == 0)
		r = mce_mapserver_open(e, &e->mapserver);
	if (r == 0)
		r = mce_tcp_server_open(e, &e->server);
	/* First: there is nothing that could stand in for its port. */
	if (r == 0 && conf->upstream)
		r = mce_tcp_server_open_upstream(e->server, conf->bind_host);
	if (r == 0)
		r = mce_tcp_server_listen(e->server, host, conf->bind_host ? conf->bind_host : host);
	if (r == 0)
		r = mce_mapserver_start(e->mapserver);
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
	pthread_mutex_lock(&e->lock);
	__atomic_store_n(&e->closing, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&e->lock);
	mce_peers_close(e);
	mce_fences_close(e);
	mce_mr_table_clear(&e->mrs);
	for (unsigned i = 0; i < e->nio; i++)
		mce_io_close(&e->io[i]);
	mce_mr_table_done(&e->mrs);
	mce_tcp_server_close(e->server);
	mce_mapserver_close(e->mapserver);
	if (e->ready_fd >= 0)
		close(e->ready_fd);
	pthread_cond_destroy(&e->idle);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

const char *mce_engine_endpoint(const struct mce_engine *e)
{
	return e->endpoint;
}

int mce_engine_upstream_port(const struct mce_engine *e)
{
	return e->upstream_port;
}

/* ---- transfers --------------------------------------------------------------------------------- */

/* 0 and the number of bytes in the request's x->total. */
static int check_req(struct mce_req *req)
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

/* What is wrong with a request is kept in it until its turn comes. */
static void prepare_req(struct mce_batch *b, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	memset(req->priv, 0, sizeof(req->priv));
	mc_list_init(&x->node);
	mce_req_set_status(req, -EINPROGRESS);
	req->path = MCE_PATH_NONE;
	req->batch = b;
	x->status = check_req(req);
	if (req->peer)
		__atomic_fetch_add(&req->peer->asked, x->total, __ATOMIC_RELAXED);
}

/* Does it wait for the resolver? */
static bool submit_one(struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	if (x->status == 0 && x->total)
		return mce_peer_submit(req->peer, req);
	mce_complete(req, MCE_PATH_NONE, x->status);
	return false;
}

/* Requests that are handed over: [next, ready) are prepared and of one peer. */
struct handing {
	struct mce_req *reqs;
	unsigned next, ready, n;
	uint64_t alone;		/* key of a region whose requests no transport takes together */
	unsigned alone_left;	/* so many of them go alone before that is asked again */
};

/* More prepared ones, when there are none or few. */
static void prepare_more(struct mce_batch *b, struct handing *h)
{
	struct mce_peer *p = h->reqs[h->next].peer;

	if (h->ready > h->next)
		return;
	while (h->ready < h->n && h->ready < h->next + MCE_RUN_MAX && h->reqs[h->ready].peer == p)
		prepare_req(b, &h->reqs[h->ready++]);
}

/* The first of @n requests waits for the peer or its region: so do those behind it that want the same.  How many,
 * the first included. */
static unsigned pend_alike(struct mce_peer *p, uint64_t rkey, struct mce_req *reqs, unsigned n)
{
	unsigned i = 1;

	while (i < n && reqs[i].rkey == rkey && mce_reqx(&reqs[i])->status == 0 && mce_reqx(&reqs[i])->total)
		i++;
	if (i > 1)
		mce_peer_pend(p, reqs + 1, i - 1);
	return i;
}

static void submit_some(struct handing *h)
{
	struct mce_req *req = &h->reqs[h->next];
	unsigned n = h->ready - h->next, took = 0;
	struct mce_peer *p = req->peer;
	uint64_t rkey = req->rkey;

	if (n > 1 && p && !(h->alone_left && h->alone == rkey)) {
		took = mce_peer_offer_run(p, req, n);
		h->alone_left = took ? 0 : ALONE_RUN;
		h->alone = rkey;
	}
	if (took == 0 && submit_one(req)) {
		took = pend_alike(p, rkey, req, n);
		/* For those after them it may be connected. */
		h->alone_left = 0;
	}
	h->alone_left -= h->alone_left > 0;
	h->next += took ? took : 1;
}

static void flush_peer(struct mce_peer *p)
{
	/* What is queued may be the parent's, and so is the connection. */
	if (mc_fork_check(p->e->fork_depth) < 0)
		return;
	for (const struct mce_transport *const *t = p->transports; *t; t++)
		(*t)->flush(p);
}

int mce_submit(struct mce_engine *e, struct mce_batch *b, struct mce_req *reqs, unsigned n)
{
	struct handing h = { .reqs = reqs, .n = n };
	struct mce_peer *p = NULL;

	__atomic_fetch_add(&b->left, n, __ATOMIC_RELAXED);
	while (h.next < n) {
		/* Not a field of a request handed over before: it may be complete and gone. */
		struct mce_peer *next = reqs[h.next].peer;

		if (p && p != next)
			flush_peer(p);
		prepare_more(b, &h);
		submit_some(&h);
		p = next;
	}
	if (p)
		flush_peer(p);
	return 0;
}

int mce_transfer(struct mce_engine *e, struct mce_req *req, uint64_t deadline)
{
	struct mce_batch b;
	int r;

	mce_batch_init(&b);
	mce_submit(e, &b, req, 1);
	r = mce_batch_wait(e, &b, req, 1, deadline);
	return r < 0 ? r : req->status;
}
