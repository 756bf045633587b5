/* SPDX-License-Identifier: Apache-2.0
 * upstream_i.h - declarations shared by upstream.c, which connects to upstream's nodes, and strangers.c, which accepts
 * their connections. */
#ifndef MCE_RDMA_UPSTREAM_I_H
#define MCE_RDMA_UPSTREAM_I_H

#include "engine/rdma/rdma_i.h"
#include "engine/upstream/setup.h"

/* Set the fields that describe our end of @ep (address, queue pairs) and clear `reply`; the paths stay unchanged. */
void mce_rdma_setup_own(struct mce_setup *s, const struct mce_rdma_ep *ep);

/* Resolver thread.  Take over the endpoint that the peer's NIC @path has requested.  Waits until @deadline for the
 * peer to report that its end is connected.  NULL: the peer has not requested one. */
struct mce_rdma_ep *mce_rdma_stranger_take(struct mce_rdma *r, struct mce_nic *nic, const char *path,
					   uint64_t deadline);

enum mce_rdma_claim {
	MCE_CLAIM_NONE,		/* our older endpoints of the pair are broken: make a new one */
	MCE_CLAIM_LOSES,	/* we request the pair too, and our message wins: refuse */
	MCE_CLAIM_TRYING,	/* we request it too, and lose: connect @ret->trying as the message says */
};
/* A node of upstream requests the pair of @nic and the NIC in @in.  Unless the result is NONE, @answer gets the
 * fields of our end. */
enum mce_rdma_claim mce_rdma_up_claim(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in,
				      struct mce_setup *answer, struct mce_rdma_peer **ret);
/* The endpoint of MCE_CLAIM_TRYING is connected (@status 0), or connecting has failed. */
void mce_rdma_up_claimed(struct mce_rdma_peer *rp, const struct mce_setup *in, int status);
/* The node has reported that its end of the pair is connected. */
void mce_rdma_up_ready(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in);

#endif
