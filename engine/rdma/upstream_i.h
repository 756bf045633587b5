/* SPDX-License-Identifier: Apache-2.0
 * upstream_i.h - what upstream.c, which connects to upstream's nodes, and strangers.c, to which they connect, share. */
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

/* A node of upstream's asks for the pair of @nic and its NIC: end our older endpoints of the pair.  False: we have
 * asked for the pair as well, and our message wins; @in is the answer to the other then. */
bool mce_rdma_up_yields(struct mce_rdma *r, const struct mce_nic *nic, struct mce_setup *in);

#endif
