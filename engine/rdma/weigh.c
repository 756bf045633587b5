/* SPDX-License-Identifier: Apache-2.0
 * weigh.c - the share of each endpoint of a peer, by the rates of the two NICs that it connects.
 *
 * The slower of its NICs limits an endpoint, and a NIC divides its rate among its endpoints to the peer.  post.c keeps
 * the bytes in flight in this proportion, so that an endpoint of a slow NIC does not end its part of a request long
 * after the others.  A NIC without a known rate counts as no limit. */
#include <config.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"

/* The most that the share of one endpoint is smaller than that of another. */
#define SCALE_MAX (64u * MCE_RDMA_SCALE)
/* A further pair of NICs has to add this fraction of our NIC's rate. */
#define GAIN_RATIO 8u
/* NICs with more completion queues than this get no further pairs: peers to come need queue pairs too. */
#define EXTRA_CQS (MCE_RDMA_CQS_MAX / 4)
/* Pause for each failure before a further pair is tried again.  Connecting over a dead path takes a second, and nothing
 * needs this pair. */
#define EXTRA_PAUSE_MS 10000u

struct loads {
	unsigned eps[2][MCE_NICS_MAX];		/* [0]: our NICs, [1]: the peer's; endpoints that are up */
	uint64_t used[2][MCE_NICS_MAX];		/* sum of their shares, Mb/s */
	bool pair[MCE_NICS_MAX][MCE_NICS_MAX];
};

static unsigned nic_rate(const struct mce_nic *nic)
{
	return __atomic_load_n(&nic->rate, __ATOMIC_RELAXED);
}

/* The endpoint's share in Mb/s, 0: unknown. */
static uint64_t ep_share(const struct mce_rdma_ep *ep, const struct loads *l)
{
	uint64_t own = nic_rate(ep->nic) / l->eps[0][ep->nic->index];
	uint64_t theirs = ep->rp->remote[ep->remote].rate / l->eps[1][ep->remote];

	return !own || (theirs && theirs < own) ? theirs : own;
}

static void loads_count(const struct mce_rdma_peer *rp, struct loads *ret)
{
	struct mc_list *pos;

	*ret = (struct loads){ 0 };
	for (unsigned pass = 0; pass < 2; pass++)
		mc_list_for_each(pos, &rp->eps) {
			const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

			if (ep->state != MCE_RDMA_EP_UP)
				continue;
			if (pass == 0) {
				ret->eps[0][ep->nic->index]++;
				ret->eps[1][ep->remote]++;
				ret->pair[ep->nic->index][ep->remote] = true;
				continue;
			}
			ret->used[0][ep->nic->index] += ep_share(ep, ret);
			ret->used[1][ep->remote] += ep_share(ep, ret);
		}
}

void mce_rdma_weigh_locked(struct mce_rdma_peer *rp)
{
	uint64_t least = 2ull * rp->r->tune.slice, full = least > MCE_RDMA_EP_BYTES ? least : MCE_RDMA_EP_BYTES;
	uint64_t most = 0, share;
	struct mc_list *pos;
	struct loads l;

	loads_count(rp, &l);
	mc_list_for_each(pos, &rp->eps) {
		const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		share = ep->state == MCE_RDMA_EP_UP ? ep_share(ep, &l) : 0;
		most = share > most ? share : most;
	}
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		share = ep->state == MCE_RDMA_EP_UP ? ep_share(ep, &l) : 0;
		ep->scale = share ? (uint32_t)(most * MCE_RDMA_SCALE / share) : MCE_RDMA_SCALE;
		if (ep->scale > SCALE_MAX)
			ep->scale = SCALE_MAX;
		ep->limit = full * MCE_RDMA_SCALE / ep->scale;
		if (ep->limit < least)
			ep->limit = least;
	}
}

uint64_t mce_rdma_extra_at(const struct mce_rdma_peer *rp, const struct mce_nic *nic, unsigned remote)
{
	return rp->pair_ms[nic->index][remote] + rp->pair_fails[nic->index][remote] * (uint64_t)EXTRA_PAUSE_MS;
}

bool mce_rdma_extra_wanted(struct mce_rdma_peer *rp, struct mce_nic **ret_nic, unsigned *ret_remote)
{
	uint64_t best = 0, now = mc_now_ms();
	struct loads l;

	MC_LOCKED(&rp->p->lock);
	loads_count(rp, &l);
	for (unsigned i = 0; i < rp->r->nnics; i++) {
		struct mce_nic *nic = &rp->r->nic[i];
		uint64_t rate = nic_rate(nic), lacks = rate > l.used[0][i] ? rate - l.used[0][i] : 0;

		if (!mce_nic_up(nic) || !l.eps[0][i] || __atomic_load_n(&nic->ncqs, __ATOMIC_RELAXED) > EXTRA_CQS)
			continue;
		for (unsigned k = 0; k < rp->nremotes; k++) {
			uint64_t has = rp->remote[k].rate, gain = has > l.used[1][k] ? has - l.used[1][k] : 0;

			gain = gain < lacks ? gain : lacks;
			if (l.pair[i][k] || !mce_rdma_pair_fits(nic, &rp->remote[k]) || gain <= best ||
			    gain * GAIN_RATIO < rate || now < mce_rdma_extra_at(rp, nic, k))
				continue;
			best = gain;
			*ret_nic = nic;
			*ret_remote = k;
		}
	}
	return best > 0;
}
