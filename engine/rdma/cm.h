/* SPDX-License-Identifier: Apache-2.0
 * cm.h - the RDMA connection manager, as one table of functions.
 *
 * librdmacm is loaded at run time, as libibverbs is (verbs.h), and tests replace the table by connections between the
 * NICs of tests/lib/fake_verbs.h.  Identifiers are of the port space RDMA_PS_TCP, and have no queue pair of the
 * library's: the caller makes it, names it in rdma_conn_param.qp_num, and moves it to its states.  Each function has
 * the contract of the function of its name (rdma_*(3)), except that all that return int return 0 or -errno. */
#ifndef MCE_CM_H
#define MCE_CM_H

#include <rdma/rdma_cma.h>

struct mce_cm {
	/* NULL with errno.  Its descriptor is made non-blocking. */
	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *channel);
	int (*create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **ret);
	/* Waits until the events of @id that get_event has returned are acknowledged. */
	int (*destroy_id)(struct rdma_cm_id *id);
	int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
	int (*listen)(struct rdma_cm_id *id, int backlog);
	int (*resolve_addr)(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms);
	int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
	int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*reject)(struct rdma_cm_id *id, const void *data, uint8_t len);
	int (*establish)(struct rdma_cm_id *id);
	int (*init_qp_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
	/* -EAGAIN: there is none. */
	int (*get_event)(struct rdma_event_channel *channel, struct rdma_cm_event **ret);
	int (*ack_event)(struct rdma_cm_event *event);
	/* Find an IP address of a port of the device @name; its own port number is 0.  -ENODEV: it has none. */
	int (*device_addr)(const char *name, unsigned port, struct sockaddr_storage *ret);
};

/* The table, loaded at the first call; NULL: the library is missing or too old, and a detail is set (mc_fail()).
 * Any thread. */
const struct mce_cm *mce_cm(void);
/* For tests, before an engine is opened: NULL: the library's again. */
void mce_cm_replace(const struct mce_cm *cm);

#endif
