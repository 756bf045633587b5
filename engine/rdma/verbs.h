/* SPDX-License-Identifier: Apache-2.0
 * verbs.h - the RDMA verbs that the engine calls, as one table of functions.
 *
 * libibverbs is loaded at run time, so programs start and run on machines without it.  Tests replace the table by a
 * device that moves bytes inside the process.  Each function has the contract of the verb of its name (ibv_*(3)),
 * except that all that return int return 0 or -errno, and poll_cq the number of completions. */
#ifndef MCE_VERBS_H
#define MCE_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct mce_verbs {
	/* devices */
	struct ibv_device **(*get_device_list)(int *ret_n);	/* NULL with errno */
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *dev);
	struct ibv_context *(*open_device)(struct ibv_device *dev);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *ret);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *ret);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *ret);
	/* IBV_GID_TYPE_*; -ENOTSUP where the library is too old to tell */
	int (*query_gid_type)(struct ibv_context *ctx, uint8_t port, int index, uint32_t *ret);
	int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ret);
	void (*ack_async_event)(struct ibv_async_event *event);
	/* memory */
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	/* IBV_ACCESS_RELAXED_ORDERING is dropped where the library or the device does not have it. */
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, unsigned access);
	/* Register [offset, offset + len) of a dma-buf; work requests address its first byte as @iova.  NULL with
	 * EOPNOTSUPP if the library has no such verb. */
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
					unsigned access);
	int (*dereg_mr)(struct ibv_mr *mr);
	/* completions */
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **ret, void **ret_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	const char *(*wc_status_str)(enum ibv_wc_status status);
	/* queue pairs */
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
};

/* The table, loaded at the first call; NULL: the library is missing or too old, and a detail is set (mc_fail()).
 * Any thread. */
const struct mce_verbs *mce_verbs(void);
/* For tests, before an engine is opened: NULL: the library's again. */
void mce_verbs_replace(const struct mce_verbs *v);

#endif
