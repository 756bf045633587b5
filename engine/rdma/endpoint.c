/* SPDX-License-Identifier: Apache-2.0
 * endpoint.c - queue pairs: making, connecting and freeing them. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "engine/rdma/rdma_i.h"

static struct ibv_qp *qp_create(struct mce_nic *nic, struct ibv_cq *cq, uint32_t wrs)
{
	unsigned max_inline = __atomic_load_n(&nic->max_inline, __ATOMIC_RELAXED);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = wrs, .max_recv_wr = 1, .max_send_sge = nic->max_sge, .max_recv_sge = 1,
			.max_inline_data = max_inline,
		},
	};
	struct ibv_qp *qp = nic->r->v->create_qp(nic->pd, &init);

	if (qp || !max_inline || errno != EINVAL)
		return qp;
	/* Some NICs take no data with the request. */
	__atomic_store_n(&nic->max_inline, 0, __ATOMIC_RELAXED);
	init.cap.max_inline_data = 0;
	return nic->r->v->create_qp(nic->pd, &init);
}

int mce_rdma_qp_new(struct mce_nic *nic, struct ibv_cq *cq, uint32_t wrs, unsigned access, struct ibv_qp **ret)
{
	const struct mce_rdma_tune *t = &nic->r->tune;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .pkey_index = (uint16_t)t->pkey, .port_num = (uint8_t)t->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | (access & MCE_ACCESS_READ ? IBV_ACCESS_REMOTE_READ : 0) |
			(access & MCE_ACCESS_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0),
	};
	struct ibv_qp *qp = qp_create(nic, cq, wrs);
	int r, mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | (nic->iwarp ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT);

	if (!qp)
		return mc_fail(-errno, "%s: queue pair: %m", nic->addr.name);
	r = nic->r->v->modify_qp(qp, &attr, mask);
	if (r < 0) {
		nic->r->v->destroy_qp(qp);
		return mc_fail(r, "%s: queue pair: %s", nic->addr.name, mc_strerror(r));
	}
	*ret = qp;
	return 0;
}

static enum ibv_mtu mtu_code(unsigned bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 256u << mtu <= bytes)
		mtu++;
	return mtu;
}

static int qp_ready_to_receive(struct mce_nic *nic, struct ibv_qp *qp, const struct mce_rdma_addr *to, uint32_t qpn,
			       uint32_t psn, unsigned mtu)
{
	const struct mce_rdma_tune *t = &nic->r->tune;
	struct mce_rdma_addr own;
	int gid_index;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(mtu), .dest_qp_num = qpn, .rq_psn = psn,
		.max_dest_rd_atomic = (uint8_t)nic->rd_atomic, .min_rnr_timer = 12,
		.ah_attr = { .dlid = to->lid, .sl = (uint8_t)t->sl, .port_num = (uint8_t)t->port },
	};

	mce_nic_addr(nic, &own, &gid_index);
	if (nic->global) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = to->gid;
		attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		attr.ah_attr.grh.traffic_class = (uint8_t)t->tc;
	}
	return nic->r->v->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int mce_rdma_qp_connect(struct mce_nic *nic, struct ibv_qp *qp, const struct mce_rdma_addr *to, uint32_t qpn,
			uint32_t psn, unsigned mtu)
{
	const struct mce_rdma_tune *t = &nic->r->tune;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = (uint8_t)t->timeout,
		.retry_cnt = (uint8_t)t->retry, .rnr_retry = 6, .max_rd_atomic = (uint8_t)nic->rd_atomic,
	};
	int r = mc_fault("engine.rdma.connect");

	if (r == 0)
		r = qp_ready_to_receive(nic, qp, to, qpn, psn, mtu);
	if (r == 0)
		r = nic->r->v->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return r < 0 ? mc_fail(r, "%s to %s: %s", nic->addr.name, to->name, mc_strerror(r)) : 0;
}

void mce_rdma_qp_fail(struct mce_nic *nic, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)nic->r->v->modify_qp(qp, &attr, IBV_QP_STATE);
}

/* ---- endpoints --------------------------------------------------------------------------------- */

/* Number the queue pair in its completion queue, so that completions find it. */
static int cq_enter(struct mce_rdma_cq *cq, struct mce_rdma_qp *qp)
{
	uint32_t id = 0;

	MC_LOCKED(&cq->lock);
	while (id < cq->nqp && cq->qp[id])
		id++;
	if (id == cq->cap) {
		uint32_t cap = cq->cap ? cq->cap * 2 : 16;
		struct mce_rdma_qp **more = realloc(cq->qp, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		cq->qp = more;
		cq->cap = cap;
	}
	cq->qp[id] = qp;
	if (id == cq->nqp)
		cq->nqp++;
	qp->id = id;
	return 0;
}

static void cq_leave(struct mce_rdma_cq *cq, struct mce_rdma_qp *qp)
{
	MC_LOCKED(&cq->lock);
	cq->qp[qp->id] = NULL;
}

static int qp_open(struct mce_rdma_ep *ep, struct mce_rdma_qp *qp, bool two_way)
{
	int r;

	qp->ep = ep;
	/* A power of two, because positions in the ring wrap around. */
	for (qp->depth = 1; qp->depth * 2 <= ep->nic->max_wr; qp->depth *= 2)
		;
	/* A chain may have one slice, and then a READ for its WRITE. */
	qp->wrs = ep->nic->iwarp ? 2 * qp->depth : qp->depth;
	qp->ring = calloc(qp->depth, sizeof(*qp->ring));
	r = qp->ring ? mce_nic_cq_take(ep->nic, qp->wrs, &qp->cq) : -ENOMEM;
	if (r < 0)
		return r;
	/* Some iWARP NICs take answers to READs only where the peer may write. */
	r = mce_rdma_qp_new(ep->nic, qp->cq->cq, qp->wrs,
			    two_way || ep->nic->iwarp ? MCE_ACCESS_READ | MCE_ACCESS_WRITE : 0, &qp->qp);
	return r < 0 ? r : cq_enter(qp->cq, qp);
}

int mce_rdma_ep_new(struct mce_rdma_peer *rp, struct mce_nic *nic, unsigned nqps, bool two_way,
		    struct mce_rdma_ep **ret)
{
	struct mce_rdma_ep *ep = calloc(1, sizeof(*ep));
	int r = 0;

	if (!ep)
		return -ENOMEM;
	mc_list_init(&ep->node);
	ep->rp = rp;
	ep->nic = nic;
	while (ep->nqps < nqps && r == 0) {
		ep->qp[ep->nqps].id = UINT32_MAX;
		r = qp_open(ep, &ep->qp[ep->nqps++], two_way);
	}
	if (r < 0) {
		mce_rdma_ep_close(ep);
		mce_rdma_ep_free(ep);
		return r;
	}
	*ret = ep;
	return 0;
}

void mce_rdma_ep_close(struct mce_rdma_ep *ep)
{
	for (unsigned i = 0; i < ep->nqps; i++) {
		struct mce_rdma_qp *qp = &ep->qp[i];

		if (qp->id != UINT32_MAX)
			cq_leave(qp->cq, qp);
		if (qp->qp)
			(void)ep->nic->r->v->destroy_qp(qp->qp);
		mce_rdma_cm_close(ep->nic->r, &qp->cm);
		if (qp->cq)
			mce_nic_cq_give(qp->cq, qp->wrs);
		qp->id = UINT32_MAX;
		qp->qp = NULL;
		qp->cq = NULL;
	}
}

void mce_rdma_ep_free(struct mce_rdma_ep *ep)
{
	for (unsigned i = 0; i < ep->nqps; i++)
		free(ep->qp[i].ring);
	free(ep);
}
