/* SPDX-License-Identifier: Apache-2.0
 * post.c - handing slices to the NICs: chains of work requests, one doorbell each, the last one signalled.
 *
 * The endpoint with the fewest bytes in flight for its share (weigh.c) takes the next chain, so a faster NIC takes
 * more.  NICs that are far from the memory join in when the near ones have much to do. */
#include <config.h>

#include <string.h>

#include "common/fault.h"
#include "engine/rdma/rdma_i.h"

/* Maximum bytes of a chain when several endpoints share the work. */
#define CHAIN_BYTES (256u << 10)
/* How many bytes more a near NIC has in flight before a far one takes some. */
#define FAR_BYTES (1u << 20)

struct chain {
	unsigned n;	/* slices */
	struct ibv_send_wr wr[MCE_RDMA_CHAIN + 1];
	struct ibv_sge sge[MCE_RDMA_CHAIN][MCE_RDMA_SGE], proof;
};

/* Fill the scatter list of a slice for this NIC.  Returns the number of entries; 0: the NIC cannot use the slice's
 * memory. */
static unsigned slice_sge(const struct mce_rdma_slice *s, const struct mce_nic *nic, struct ibv_sge *sge)
{
	const struct iovec *iov = s->stage ? NULL : &s->req->iov[s->iov_idx];
	const struct ibv_mr *stage;
	uint64_t off = s->iov_off, left = s->len, room;
	unsigned n = 0;

	if (s->stage) {
		stage = mce_rdma_stage_mr(nic->r, nic);
		sge[0] = (struct ibv_sge){ (uintptr_t)s->stage, s->len, stage ? stage->lkey : 0 };
		return stage ? 1 : 0;
	}
	for (; left; n++, off += sge[n - 1].length) {
		while (iov->iov_len == off) {
			iov++;
			off = 0;
		}
		if (n == s->nmr)
			return 0;
		sge[n].addr = (uintptr_t)iov->iov_base + off;
		if (!mce_rdma_lkey(s->mr[n], nic, sge[n].addr, &sge[n].lkey, &room))
			return 0;
		if (room > iov->iov_len - off)
			room = iov->iov_len - off;
		sge[n].length = (uint32_t)(room < left ? room : left);
		left -= sge[n].length;
	}
	return n;
}

/* Add the slice to the chain.  False: this endpoint cannot carry it. */
static bool chain_add(struct chain *c, struct mce_rdma_qp *qp, struct mce_rdma_slice *s)
{
	struct mce_rdma_ep *ep = qp->ep;
	const struct mce_rdma_remote *rem = mce_rdma_remote_find_locked(ep->rp, s->req->rkey);
	uint64_t addr = s->req->addr + s->off, at = rem->nparts > 1 ? (addr - rem->base) / rem->part : 0;
	struct ibv_send_wr *wr = &c->wr[c->n];

	if (ep->remote >= rem->nnics || !rem->key[ep->remote * rem->nparts + at])
		return false;
	memset(wr, 0, sizeof(*wr));
	wr->num_sge = (int)slice_sge(s, ep->nic, c->sge[c->n]);
	if (wr->num_sge == 0 || wr->num_sge > (int)(s->write ? ep->nic->max_sge : ep->nic->max_sge_rd))
		return false;
	wr->wr_id = (uint64_t)qp->id << 32 | qp->head;
	wr->sg_list = c->sge[c->n];
	wr->opcode = s->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	/* The processor copies inline bytes, which is impossible for device memory. */
	if (s->write && !mce_reqx(s->req)->gpu && s->len <= __atomic_load_n(&ep->nic->max_inline, __ATOMIC_RELAXED))
		wr->send_flags = IBV_SEND_INLINE;
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rem->key[ep->remote * rem->nparts + at];
	if (c->n)
		c->wr[c->n - 1].next = wr;
	c->n++;
	qp->ring[qp->head++ & (qp->depth - 1)] = s;
	ep->bytes += s->len;
	return true;
}

/* On iWARP a WRITE completes when its bytes are sent.  The owner answers a READ that follows on the same connection
 * only when they are stored (RFC 5040, 5.5), so the chain ends with a READ, and only that one is signalled. */
static struct ibv_send_wr *chain_end(struct chain *c, struct mce_nic *nic)
{
	struct ibv_send_wr *last = &c->wr[c->n - 1], *wr = &c->wr[c->n];

	if (!nic->iwarp || last->opcode != IBV_WR_RDMA_WRITE)
		return last;
	memset(wr, 0, sizeof(*wr));
	c->proof = (struct ibv_sge){ (uintptr_t)nic->r->sink + nic->index, 1, nic->sink_mr->lkey };
	wr->wr_id = last->wr_id;
	wr->sg_list = &c->proof;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma = last->wr.rdma;
	last->next = wr;
	return wr;
}

/* The NIC refused the work requests from @bad on: mark their slices lost. */
static void chain_undo(struct chain *c, struct mce_rdma_qp *qp, const struct ibv_send_wr *bad, struct mc_list *over)
{
	/* A library that failed behind the last one names none. */
	unsigned taken = bad && (unsigned)(bad - c->wr) < c->n ? (unsigned)(bad - c->wr) : c->n;

	/* Those that it took end, without success, when the endpoint is broken. */
	for (unsigned i = c->n; i > taken; i--) {
		struct mce_rdma_slice *s = qp->ring[--qp->head & (qp->depth - 1)];

		qp->ep->bytes -= s->len;
		mce_rdma_slice_lost_locked(qp->ep->rp, s, true, over);
	}
	mce_rdma_ep_break_locked(qp->ep);
}

/* Post one chain.  False: there was nothing to post, or no room. */
static bool ep_post_locked(struct mce_rdma_ep *ep, struct mc_list *over)
{
	struct mce_rdma_qp *qp = &ep->qp[ep->next++ % ep->nqps];
	struct ibv_send_wr *bad = NULL;
	struct mce_rdma_slice *s;
	uint64_t before = ep->bytes;
	struct chain c;
	int r;

	c.n = 0;
	while (c.n < MCE_RDMA_CHAIN && qp->head - qp->tail < qp->depth &&
	       (ep->rp->nup == 1 || ep->bytes - before < CHAIN_BYTES)) {
		s = mce_rdma_cut_locked(ep, over);
		if (!s)
			break;
		if (chain_add(&c, qp, s))
			continue;
		mce_rdma_slice_lost_locked(ep->rp, s, true, over);
		break;
	}
	if (c.n == 0)
		return false;
	chain_end(&c, ep->nic)->send_flags |= IBV_SEND_SIGNALED;
	r = mc_fault("engine.rdma.post");
	if (r == 0)
		r = ep->nic->r->v->post_send(qp->qp, c.wr, &bad);
	else
		bad = c.wr;
	if (r < 0)
		chain_undo(&c, qp, bad, over);
	return r == 0;
}

/* Bits of the NICs near the memory of the next request; 0: all NICs. */
static uint32_t next_nics(struct mce_rdma_peer *rp)
{
	if (!mc_list_empty(&rp->retry))
		return mce_reqx(mc_list_first(&rp->retry, struct mce_rdma_slice, node)->req)->nics;
	return mc_list_empty(&rp->queue) ? 0 : mce_reqx(mce_req_of(rp->queue.next))->nics;
}

/* Choose the endpoint for the next chain.  NULL: no endpoint has room. */
static struct mce_rdma_ep *ep_choose_locked(struct mce_rdma_peer *rp, const struct mce_rdma_ep *skip)
{
	uint32_t near = next_nics(rp);
	struct mce_rdma_ep *best = NULL;
	uint64_t least = 0, cost;
	struct mc_list *pos;

	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep == skip || ep->state != MCE_RDMA_EP_UP || ep->bytes >= ep->limit)
			continue;
		/* With one slice more, so that a fast one is the first. */
		cost = (ep->bytes + rp->r->tune.slice) * ep->scale / MCE_RDMA_SCALE;
		if (near && !(near >> ep->nic->index & 1))
			cost += FAR_BYTES;
		if (best && cost >= least)
			continue;
		best = ep;
		least = cost;
	}
	return best;
}

void mce_rdma_pump_locked(struct mce_rdma_peer *rp, struct mc_list *over)
{
	struct mce_rdma_ep *ep, *full = NULL;

	while ((!mc_list_empty(&rp->queue) || !mc_list_empty(&rp->retry)) && (ep = ep_choose_locked(rp, full))) {
		if (ep_post_locked(ep, over))
			continue;
		/* Its queue pair is full, or it can carry no waiting slice: try one other endpoint. */
		if (full)
			break;
		full = ep;
	}
}

void mce_rdma_pump(struct mce_rdma_peer *rp)
{
	struct mc_list over;

	mc_list_init(&over);
	mc_mutex_lock(&rp->p->lock);
	mce_rdma_pump_locked(rp, &over);
	mc_mutex_unlock(&rp->p->lock);
	mce_rdma_over(&over);
}
