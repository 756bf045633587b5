/* SPDX-License-Identifier: Apache-2.0
 * tune.c - the settings of the RDMA transport: upstream's variables, with its names and ranges. */
#include <config.h>

#include "common/env.h"
#include "engine/rdma/rdma_i.h"

static unsigned tune_number(const char *name, unsigned def, unsigned min, unsigned max)
{
	return (unsigned)mc_env_int(name, def, min, max);
}

void mce_rdma_tune_read(struct mce_rdma_tune *t)
{
	t->port = tune_number("MC_IB_PORT", 1, 1, 255);
	t->gid_index = (int)mc_env_int("MC_GID_INDEX", mc_env_int("NCCL_IB_GID_INDEX", -1, 0, 255), 0, 255);
	t->pkey = (int)mc_env_int("MC_PKEY_INDEX", 0, 0, 65535);
	t->tc = (int)mc_env_int("MC_IB_TC", 0, 0, 255);
	t->sl = (int)mc_env_int("MC_IB_SL", 0, 0, 15);
	t->relaxed = (int)mc_env_int("MC_IB_PCI_RELAXED_ORDERING", 1, 0, 2);
	t->gpu_direct = !mc_env_on("MC_DISABLE_GPU_DIRECT_RDMA");
	t->peer_memory = mc_env_on("WITH_NVIDIA_PEERMEM");
	/* For tests on one machine. */
	t->same_host = mc_env_on("MC_RDMA_SAME_HOST");
	/* As NCCL and UCX have it: also where the NIC does not require the connection manager. */
	t->cm = mc_env_on("MC_RDMA_CM");
	t->qps = tune_number("MC_NUM_QP_PER_EP", 2, 1, MCE_RDMA_QPS_MAX);
	t->max_wr = tune_number("MC_MAX_WR", 256, 2 * MCE_RDMA_CHAIN, 32768);
	t->max_inline = tune_number("MC_MAX_INLINE", 64, 1, 4096);
	t->cqe = tune_number("MC_MAX_CQE_PER_CTX", 4096, 256, 65535);
	t->max_nics = tune_number("MC_RDMA_MAX_NICS", MCE_NICS_MAX, 1, MCE_NICS_MAX);
	t->max_eps = tune_number("MC_MAX_EP_PER_CTX", 256, 1, 65535);
	t->slice = tune_number("MC_SLICE_SIZE", 65536, 4096, 1u << 30);
	t->mtu = tune_number("MC_MTU", 4096, 256, 4096);
	/* 4.096 us x 2^14 = 67 ms, and never 7 repetitions, which some drivers take as endless (vm-rdma.md). */
	t->timeout = tune_number("MC_RDMA_ACK_TIMEOUT", 14, 1, 31);
	t->retry = tune_number("MC_RDMA_ACK_RETRIES", 3, 0, 6);
	t->max_mr = (uint64_t)mc_env_int("MC_MAX_MR_SIZE", (int64_t)1 << 40, 4096, INT64_MAX);
}
