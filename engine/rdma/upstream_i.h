/* SPDX-License-Identifier: Apache-2.0
 * upstream_i.h - declarations shared by upstream.c, which connects to upstream's nodes, and strangers.c, which accepts
 * their connections. */
#ifndef MCE_RDMA_UPSTREAM_I_H
#define MCE_RDMA_UPSTREAM_I_H

#include "engine/rdma/rdma_i.h"
#include "engine/upstream/setup.h"

/* The members about the endpoint's own end: address, queue pairs, and no reply; the paths stay. */
void mce_rdma_setup_own(struct mce_setup *s, const struct mce_rdma_ep *ep);

/* Resolver: the connected endpoint that the NIC with this path has asked for, which is the caller's now; NULL.  Waits
 * until @deadline for its other end. */
struct mce_rdma_ep *mce_rdma_stranger_take(struct mce_rdma *r, struct mce_nic *nic, const char *path,
					   uint64_t deadline);

enum mce_rdma_claim {
	MCE_CLAIM_NONE,		/* our older endpoints of the pair are ended, make another one */
	MCE_CLAIM_LOSES,	/* we ask for the pair as well, and our message wins */
	MCE_CLAIM_TRYING,	/* we ask as well, and lose: connect @ret->trying, which stays, as the message says */
};
/* A node of upstream's asks for the pair of @nic and its NIC.  Unless it is NONE, @answer gets our own members. */
enum mce_rdma_claim mce_rdma_up_claim(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in,
				      struct mce_setup *answer, struct mce_rdma_peer **ret);
/* The endpoint of MCE_CLAIM_TRYING is connected, or that has failed. */
void mce_rdma_up_claimed(struct mce_rdma_peer *rp, const struct mce_setup *in, int status);
/* The node says that its end of the pair is connected. */
void mce_rdma_up_ready(struct mce_rdma *r, const struct mce_nic *nic, const struct mce_setup *in);

#endif
