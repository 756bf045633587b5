/* SPDX-License-Identifier: Apache-2.0
 * serve.c - the owner's side: control connections of peers, and the queue pairs through which they reach our memory.
 *
 * The queue pairs at this end never send.  They are destroyed before the answer to CLOSE, before a newer connection of
 * the same peer is answered, when the connection ends, and when the peer is fenced: after that nothing is written
 * through them any more, however late its packets are.  They also end with the identity that the peer proved on the
 * control connection: at the tick after its credential is revoked, or its ticket expires.  Everything here runs on the
 * loop of mce_rdma.ctl, which may wait for a second while a queue pair is connected. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "engine/rdma/rdma_i.h"

/* Maximum number of endpoints of one peer: twice as many as it can have NICs, so that a peer cannot use up queue
 * pairs. */
#define EPS_MAX (2 * MCE_NICS_MAX)
#define REQUEST_MAX (16u << 10)

MC_GAUGE(guests_now, "mooncake_transfer_rdma_peers_in", "", "Peers that reach this process's memory over RDMA")
MC_COUNTER(guests_cut, "mooncake_transfer_rdma_peers_revoked_total", "",
	   "Peers whose RDMA access was ended because their credential was revoked or their ticket expired")

struct guest_ep {
	struct mc_list node;
	uint32_t id;
	struct mce_nic *nic;
	unsigned nqps;
	struct ibv_qp *qp[MCE_RDMA_QPS_MAX];
	uint64_t token;		/* 0: they are not connected by the connection manager */
	struct mce_rdma_cm cm[MCE_RDMA_QPS_MAX];
};

struct guest {
	struct mc_list node;
	struct mce_rdma *r;
	struct mc_stream stream;
	struct mc_evfd evfd;
	uint64_t token, fence;
	uint32_t epoch;
	uint8_t nonce[16];
	bool read_only;		/* its number was fenced when it greeted, or its role only reads */
	const struct mc_principal *principal;	/* identity that the peer proved; NULL: none */
	struct mce_watcher watcher;
	struct mc_list eps;
	unsigned neps;
	uint8_t head[4];	/* the length of the frame that is being received */
	char *in;		/* the frame's bytes; NULL: the length is not complete */
	size_t have, want;	/* received bytes of the length or the frame; size of the frame */
};

static void guest_ep_free(struct guest *g, struct guest_ep *ep)
{
	for (unsigned i = 0; i < ep->nqps; i++) {
		(void)g->r->v->destroy_qp(ep->qp[i]);
		mce_rdma_cm_close(g->r, &ep->cm[i]);
	}
	mc_list_remove(&ep->node);
	mc_metric_add(&ep->nic->metrics->endpoints_in, -1);
	g->neps--;
	free(ep);
}

static void guest_close(struct guest *g)
{
	struct mc_list *pos, *next;

	mc_evloop_del(g->r->ctl.loop, &g->evfd);
	mce_io_unwatch(&g->r->ctl, &g->watcher);
	mc_list_for_each_safe(pos, next, &g->eps)
		guest_ep_free(g, mc_container_of(pos, struct guest_ep, node));
	mc_list_remove(&g->node);
	mc_stream_shutdown(&g->stream, SHUT_RDWR);
	mc_stream_close(&g->stream);
	g->r->nguests--;
	free(g->in);
	free(g);
	mc_metric_add(&guests_now, -1);
}

/* False: the caller closes it. */
static bool guest_admitted(const struct guest *g)
{
	if (mce_admits(g->r->e, g->principal))
		return true;
	mc_info("rdma", "the peer's identity is not admitted any more: its queue pairs are destroyed name=%s "
		"serial=%016llx endpoints=%u", g->principal->name, (unsigned long long)g->principal->serial, g->neps);
	mc_metric_add(&guests_cut, 1);
	return false;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static void serve_nics(struct guest *g, struct mce_rdma_msg *out)
{
	int gid_index;

	out->naddrs = g->r->nnics;
	for (unsigned i = 0; i < g->r->nnics; i++)
		mce_nic_addr(&g->r->nic[i], &out->addr[i], &gid_index);
}

static int guest_ep_open(struct guest *g, struct guest_ep *ep, const struct mce_rdma_msg *in, struct mce_rdma_msg *out)
{
	struct mce_rdma_cq *cq;
	unsigned mtu;
	int gid_index, r = 0;

	mce_nic_addr(ep->nic, &out->far.addr, &gid_index);
	mtu = out->far.addr.mtu < in->far.addr.mtu ? out->far.addr.mtu : in->far.addr.mtu;
	out->far.psn = (uint32_t)(mc_random_u64() & 0xffffff);
	/* Queue pairs of this side send nothing, so they need no room in the completion queue. */
	r = mce_nic_cq_take(ep->nic, 0, &cq);
	while (r == 0 && ep->nqps < in->far.nqps) {
		r = mce_rdma_qp_new(ep->nic, cq->cq, 1, MCE_ACCESS_READ | (g->read_only ? 0 : MCE_ACCESS_WRITE),
				    &ep->qp[ep->nqps]);
		if (r < 0)
			break;
		out->far.qpn[ep->nqps] = ep->qp[ep->nqps]->qp_num;
		/* Our send sequence number is not used; the receive sequence number is the peer's. */
		if (!in->cm)
			r = mce_rdma_qp_connect(ep->nic, ep->qp[ep->nqps], &in->far.addr, in->far.qpn[ep->nqps],
						in->far.psn, mtu);
		ep->nqps++;
	}
	if (in->cm)
		out->token = ep->token = mc_random_u64() | 1;
	out->far.nqps = r == 0 ? ep->nqps : 0;
	return r;
}

static int serve_open(struct guest *g, const struct mce_rdma_msg *in, struct mce_rdma_msg *out)
{
	struct guest_ep *ep;
	int r = mc_fault("engine.rdma.serve_open");

	if (r < 0)
		return r;
	if (in->nic >= g->r->nnics || in->far.nqps == 0 || g->neps >= EPS_MAX * g->r->nnics)
		return -EINVAL;
	if (!mce_nic_active(&g->r->nic[in->nic]))
		return -ENETDOWN;
	if (in->cm ? !g->r->nic[in->nic].cm_listener : g->r->nic[in->nic].iwarp)
		return -MC_ENOTSUP;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	ep->nic = &g->r->nic[in->nic];
	ep->id = ++g->r->next_id & INT32_MAX;
	mc_list_push_back(&g->eps, &ep->node);
	mc_metric_add(&ep->nic->metrics->endpoints_in, 1);
	g->neps++;
	r = guest_ep_open(g, ep, in, out);
	out->id = ep->id;
	if (r < 0)
		guest_ep_free(g, ep);
	return r;
}

static struct guest_ep *guest_ep_find(const struct guest *g, uint32_t id)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &g->eps)
		if (mc_container_of(pos, struct guest_ep, node)->id == id)
			return mc_container_of(pos, struct guest_ep, node);
	return NULL;
}

int mce_rdma_guest_dialled(const struct mce_nic *nic, uint32_t id, uint64_t token, uint32_t index, struct ibv_qp **ret,
			   struct mce_rdma_cm **ret_cm)
{
	struct guest_ep *ep = NULL;
	struct mc_list *pos;

	mc_list_for_each(pos, &nic->r->guests)
		if (!ep)
			ep = guest_ep_find(mc_container_of(pos, struct guest, node), id);
	if (!ep || ep->nic != nic || !ep->token || ep->token != token || index >= ep->nqps || ep->cm[index].id)
		return mc_fail(-ENOENT, "no queue pair waits for it");
	*ret = ep->qp[index];
	*ret_cm = &ep->cm[index];
	return 0;
}

static void serve_close(struct guest *g, uint32_t id)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &g->eps) {
		struct guest_ep *ep = mc_container_of(pos, struct guest_ep, node);

		if (ep->id == id)
			guest_ep_free(g, ep);
	}
}

/* Fill the keys of the NICs on which the whole region is registered.  Returns the number of these NICs. */
static unsigned region_keys(const struct mce_rdma *r, const struct mce_rdma_region *region, uint32_t *key)
{
	unsigned nics = 0;

	for (unsigned i = 0; i < r->nnics; i++) {
		struct ibv_mr *const *mr = &region->mr[i * region->nparts];
		bool whole = true;

		for (unsigned k = 0; k < region->nparts; k++)
			whole &= mr[k] != NULL;
		for (unsigned k = 0; k < region->nparts && whole; k++)
			key[i * region->nparts + k] = mr[k]->rkey;
		nics += whole;
	}
	return nics;
}

static int serve_region(struct guest *g, uint64_t rkey, struct mce_rdma_remote **ret)
{
	const struct mce_rdma_region *region;
	struct mce_rdma_remote *rem;
	unsigned n;
	struct mce_mr *mr;
	int r = mce_mr_find(g->r->e, rkey, &mr);

	if (r < 0)
		return r;
	region = mr->service[MCE_PATH_RDMA];
	n = region ? g->r->nnics * region->nparts : 0;
	rem = calloc(1, sizeof(*rem) + n * sizeof(rem->key[0]));
	if (rem) {
		rem->rkey = rkey;
		rem->base = mr->base;
		rem->len = mr->len;
		/* No NIC has a medium, so its peers take another path. */
		rem->access = mr->medium ? MCE_ACCESS_READ : mr->access;
		rem->nnics = region ? g->r->nnics : 0;
		rem->nparts = region ? region->nparts : 1;
		rem->part = region ? region->part : mr->len;
		if (region && region_keys(g->r, region, rem->key) == 0)
			rem->nnics = 0;
	}
	r = !rem ? -ENOMEM : mr->access == 0 ? -EACCES : 0;
	mce_mr_unref(mr);
	if (r < 0)
		free(rem);
	else
		*ret = rem;
	return r;
}

static int guest_send(struct guest *g, const struct mce_rdma_msg *msg)
{
	char *frame;
	size_t len;
	ssize_t n;
	int r = mce_rdma_encode(msg, &frame, &len);

	if (r < 0)
		return r;
	/* The stream has room for one answer; the connection of a peer that does not read is closed. */
	n = mc_stream_send(&g->stream, &(struct iovec){ frame, len }, 1);
	free(frame);
	return n == (ssize_t)len ? 0 : -ECONNRESET;
}

static int guest_serve(struct guest *g, const char *text, size_t len)
{
	struct mce_rdma_msg in, out;
	int r = mce_rdma_decode(text, len, &in), status = 0;

	if (r < 0)
		return r;
	free(in.remote);
	/* The next tick would be too late for a key that the peer asks for now. */
	if (!guest_admitted(g))
		return -EACCES;
	memset(&out, 0, sizeof(out));
	out.op = in.op;
	out.rkey = in.rkey;
	out.id = in.id;
	out.read_only = g->read_only;
	switch (in.op) {
	case MCE_RDMA_NICS:
		serve_nics(g, &out);
		break;
	case MCE_RDMA_OPEN:
		status = serve_open(g, &in, &out);
		break;
	case MCE_RDMA_CLOSE:
		serve_close(g, in.id);
		break;
	default:
		status = serve_region(g, in.rkey, &out.remote);
		break;
	}
	if (status < 0)
		mc_info("rdma", "request of a peer failed: %s", mc_err_detail(status));
	out.status = status < 0 ? mc_err_to_wire(status) : 0;
	r = guest_send(g, &out);
	free(out.remote);
	return r;
}

/* ---- connections ------------------------------------------------------------------------------- */

/* Receive up to the end of a frame: 1 when it is complete, 0 when more has to come. */
static int guest_receive(struct guest *g)
{
	char *to = g->in ? g->in : (char *)g->head;
	size_t size = g->in ? g->want : sizeof(g->head);
	ssize_t n = mc_stream_recv(&g->stream, &(struct iovec){ to + g->have, size - g->have }, 1);

	if (n <= 0)
		return n == 0 ? -ECONNRESET : n == -EAGAIN ? 0 : (int)n;
	g->have += (size_t)n;
	if (g->have < size)
		return 0;
	g->have = 0;
	if (g->in)
		return 1;
	g->want = mce_get32(g->head);
	if (g->want == 0 || g->want > REQUEST_MAX)
		return -MC_EPROTO;
	g->in = malloc(g->want);
	return g->in ? 0 : -ENOMEM;
}

static void guest_ready(struct mc_evfd *evfd, uint32_t events)
{
	struct guest *g = mc_container_of(evfd, struct guest, evfd);
	int r;

	(void)events;
	do {
		r = guest_receive(g);
		if (r == 1) {
			r = guest_serve(g, g->in, g->want);
			free(g->in);
			g->in = NULL;
		}
	} while (r == 0 && mc_stream_pending(&g->stream));
	if (r < 0)
		guest_close(g);
}

static void guest_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct guest *g = mc_container_of(w, struct guest, watcher);

	(void)now_ms;
	if (!guest_admitted(g))
		guest_close(g);
}

/* A new connection that the TCP service has accepted.  Its greeting is not answered yet. */
struct arrival {
	struct mce_rdma *r;
	struct mc_stream stream;
	struct mce_greeting g;
};

/* End an older connection of the same peer.  -ESTALE when there is a newer one. */
static int older_close(struct mce_rdma *r, const struct mce_greeting *greeting)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &r->guests) {
		struct guest *g = mc_container_of(pos, struct guest, node);

		if (g->token != greeting->token)
			continue;
		if (g->epoch >= greeting->epoch)
			return -ESTALE;
		guest_close(g);
	}
	return 0;
}

static int guest_new(struct arrival *a)
{
	struct mc_stream_peer peer;
	struct guest *g;
	int r;

	if (a->r->nguests >= a->r->e->conf.max_peers_in)
		return -MC_ELIMIT;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->r = a->r;
	g->token = a->g.token;
	g->epoch = a->g.epoch;
	g->fence = a->g.fence;
	memcpy(g->nonce, a->g.id.nonce, sizeof(g->nonce));
	mc_list_init(&g->eps);
	g->stream = a->stream;
	mc_stream_peer(&g->stream, &peer);
	g->principal = peer.principal;
	g->watcher.tick = guest_tick;
	/* A fence closes guests on this loop too, so none is missed. */
	g->read_only = mce_writer_is_fenced(a->r->e, g->nonce, g->fence) || !mce_may_write(g->principal);
	g->evfd.ready = guest_ready;
	mc_evfd_stream(&g->evfd, &g->stream);
	r = mc_evloop_add(a->r->ctl.loop, &g->evfd, EPOLLIN | EPOLLRDHUP);
	if (r < 0) {
		free(g);
		return r;
	}
	mce_io_watch(&a->r->ctl, &g->watcher);
	mc_list_push_back(&a->r->guests, &g->node);
	a->r->nguests++;
	mc_metric_add(&guests_now, 1);
	return 0;
}

static void arrival_run(void *arg)
{
	struct arrival *a = arg;
	struct mce_greeting out = {
		.version = MCE_WIRE_VERSION, .version_min = MCE_WIRE_VERSION_MIN,
		.features = MCE_WIRE_FEATURES | MCE_FEATURE_RDMA, .id = a->r->e->id,
		.len_max = MCE_WIRE_LEN_MAX, .window = MCE_WIRE_WINDOW,
	};
	uint8_t buf[MCE_GREETING_SIZE];
	int r = older_close(a->r, &a->g);

	out.status = r < 0 ? mc_err_to_wire(r) : 0;
	mce_greeting_pack(buf, &out);
	if (mc_stream_send(&a->stream, &(struct iovec){ buf, sizeof(buf) }, 1) != sizeof(buf) || r < 0 ||
	    guest_new(a) < 0)
		mc_stream_close(&a->stream);
	free(a);
}

int mce_rdma_take_connection(struct mce_engine *e, const struct mc_stream *stream, const struct mce_greeting *g)
{
	struct mce_rdma *r = mce_rdma_of(e);
	struct arrival *a;
	int err;

	if (!r || r->nnics == 0)
		return -MC_ENOTSUP;
	a = malloc(sizeof(*a));
	if (!a)
		return -ENOMEM;
	*a = (struct arrival){ .r = r, .stream = *stream, .g = *g };
	err = mc_evloop_post(r->ctl.loop, arrival_run, a);
	if (err < 0)
		free(a);
	return err;
}

struct fence_call {
	struct mce_rdma *r;
	const uint8_t *nonce;
	uint64_t upto;
};

static void fence_run(void *arg)
{
	struct fence_call *f = arg;
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &f->r->guests) {
		struct guest *g = mc_container_of(pos, struct guest, node);

		if (!g->read_only && mce_fence_matches(f->nonce, f->upto, g->nonce, g->fence))
			guest_close(g);
	}
}

int mce_rdma_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto)
{
	struct fence_call f = { .r = mce_rdma_of(e), .nonce = nonce, .upto = upto };

	if (f.r && f.r->nnics)
		mce_io_call(&f.r->ctl, fence_run, &f);
	return 0;
}

static void guests_close_run(void *arg)
{
	struct mce_rdma *r = arg;
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &r->guests)
		guest_close(mc_container_of(pos, struct guest, node));
	mce_rdma_strangers_end(r);
}

void mce_rdma_guests_close(struct mce_rdma *r)
{
	mce_io_call(&r->ctl, guests_close_run, r);
}
