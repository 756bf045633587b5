/* SPDX-License-Identifier: Apache-2.0
 * fake_verbs_i.h - declarations shared by fake_verbs.c (NICs, memory, completions, controls) and fake_verbs_qp.c (queue
 * pairs and their work). */
#ifndef FAKE_VERBS_I_H
#define FAKE_VERBS_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "tests/lib/fake_verbs.h"

#define SGE_MAX 16
#define INLINE_MAX 256
#define EVENTS_MAX 64
#define CONTEXTS_MAX 8

struct fake_qp;

struct work {
	uint64_t wr_id, remote;
	uint32_t rkey, len;
	bool read, signalled;
	unsigned nsge;
	struct ibv_sge sge[SGE_MAX];
	char data[INLINE_MAX];	/* inline: nsge is 0 */
};

struct fake_cq {
	struct ibv_cq ib;
	pthread_mutex_t lock;
	struct ibv_wc *ring;
	uint32_t head, tail, cap;
	bool armed;
};

struct fake_qp {
	struct ibv_qp ib;
	struct mc_list node;	/* fake_all_qps */
	unsigned nic;
	struct fake_cq *cq;
	pthread_mutex_t lock;	/* guards the ring's ends and the state */
	struct work *ring;
	uint32_t cap, head, tail;
	enum ibv_qp_state state;
	unsigned access;
	uint32_t dest_qpn;
	union ibv_gid dest;
	struct mc_list unstored;	/* iWARP: WRITEs that have completed, but are not stored; of the NIC's thread */
	unsigned busy;		/* fake_all_lock: work that uses it, on either side */
};

struct fake_mr {
	struct ibv_mr ib;
	struct mc_list node;	/* fake_all_mrs */
	unsigned access, nic;
	char *bytes;		/* where this process accesses the bytes of ib.addr */
	void *map;		/* of a dma-buf, NULL: none */
	size_t map_len;
	unsigned busy;		/* fake_all_lock */
};
static inline char *fake_mr_at(const struct fake_mr *mr, uint64_t addr)
{
	return mr->bytes + (addr - (uintptr_t)mr->ib.addr);
}

struct fake_channel {
	struct ibv_comp_channel ib;
	pthread_mutex_t lock;
	struct fake_cq *event[EVENTS_MAX];
	unsigned n;
};

struct late {
	struct mc_list node;
	uint64_t due_ns;
	uint32_t qpn, rkey, len;
	uint64_t remote;
	char *bytes;
};

struct fake_nic {
	struct ibv_device dev;
	char name[16];
	pthread_t thread;
	pthread_mutex_t lock;	/* of the fields below */
	pthread_cond_t work, turned;
	bool turning;		/* the thread is carrying out work requests */
	bool ending, stopped, late, repeats;
	bool event_up, up;	/* the port's state for ibv_query_port(); whether packets pass */
	unsigned delay_us, error_after;
	enum ibv_wc_status error;
	int reg_err;
	unsigned reg_times;
	int dmabuf_err;
	unsigned dmabuf_at;	/* registrations until it, 0: it is now */
	bool dmabuf_once;
	enum ibv_mtu mtu;
	uint8_t active_speed, active_width;
	uint64_t max_mr;
	struct mc_list lates;
	struct ibv_context *ctx[CONTEXTS_MAX];	/* open ones, one for each engine */
	uint64_t pokes;
	/* atomic */
	uint64_t wrs, doorbells, cqes, bytes, dmabufs;
};

extern struct fake_nic fake_nics[FAKE_NICS_MAX];
extern unsigned fake_nnics;

/* Queue pairs and regions of all NICs. */
extern pthread_mutex_t fake_all_lock;
extern pthread_cond_t fake_all_idle;
extern struct mc_list fake_all_qps, fake_all_mrs;
extern uint32_t fake_next_number;

static inline bool fake_is_iwarp(const struct fake_nic *nic)
{
	return nic->dev.transport_type == IBV_TRANSPORT_IWARP;
}

static inline void fake_count(uint64_t *n, uint64_t by)
{
	__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

static inline struct fake_nic *fake_nic_of(const struct ibv_context *ctx)
{
	return mc_container_of(ctx->device, struct fake_nic, dev);
}

void fake_object(long by);	/* count those that exist */
void fake_cq_push(struct fake_nic *nic, struct fake_qp *qp, const struct work *w, enum ibv_wc_status status);
/* fake_all_lock.  The region of the key in the protection domain if it permits the access, else NULL. */
struct fake_mr *fake_mr_find(const struct ibv_pd *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len,
			     unsigned access);

/* fake_verbs_qp.c */
void *fake_nic_main(void *nic);
void fake_nic_poke(struct fake_nic *nic);
struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int fake_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask);
int fake_destroy_qp(struct ibv_qp *ib);
void fake_qps_connect(uint32_t one, uint32_t other);	/* iWARP, both in the INIT state */
int fake_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

#endif
