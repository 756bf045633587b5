/* SPDX-License-Identifier: Apache-2.0
 * device.c - the NICs of an engine: which ones, their ports, addresses and completion queues. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "engine/rdma/rdma_i.h"

#define SINK_SIZE 4096u

/* ---- addresses --------------------------------------------------------------------------------- */

/* How well peers on other hosts reach a GID of a RoCE port; 0: not at all.  IPv4 and routable IPv6 before link-local,
 * version 2 (UDP, routable) before version 1. */
static int gid_rank(const struct mce_nic *nic, unsigned port, int index, const union ibv_gid *gid)
{
	static const union ibv_gid zero;
	uint32_t type = IBV_GID_TYPE_ROCE_V2;
	bool mapped = gid->global.subnet_prefix == 0, local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;

	if (!memcmp(gid, &zero, sizeof(zero)))
		return 0;
	if (nic->r->v->query_gid_type(nic->ctx, (uint8_t)port, index, &type) < 0)
		type = IBV_GID_TYPE_ROCE_V2;
	return (type == IBV_GID_TYPE_ROCE_V2 ? 4 : 1) + (mapped ? 2 : !local ? 1 : 0);
}

static int gid_choose(struct mce_nic *nic, const struct ibv_port_attr *port, struct mce_rdma_addr *addr, int *ret_index)
{
	const struct mce_rdma_tune *t = &nic->r->tune;
	int best = 0, rank;
	union ibv_gid gid;

	*ret_index = t->gid_index;
	if (t->gid_index >= 0)
		return nic->r->v->query_gid(nic->ctx, (uint8_t)t->port, t->gid_index, &addr->gid) == 0 ? 0 :
			mc_fail(-ENODEV, "%s has no GID %d (MC_GID_INDEX)", addr->name, t->gid_index);
	for (int i = 0; i < port->gid_tbl_len; i++) {
		if (nic->r->v->query_gid(nic->ctx, (uint8_t)t->port, i, &gid) < 0)
			continue;
		rank = gid_rank(nic, t->port, i, &gid);
		if (rank <= best)
			continue;
		best = rank;
		*ret_index = i;
		addr->gid = gid;
	}
	return *ret_index < 0 && nic->global ? mc_fail(-ENODEV, "%s has no address", addr->name) : 0;
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static void nic_set_up(struct mce_nic *nic, bool up)
{
	__atomic_store_n(&nic->up, up, __ATOMIC_RELEASE);
	mc_metric_set(&nic->metrics->up, up);
}

/* Mb/s of a port, 0: unknown. */
static unsigned port_rate(const struct ibv_port_attr *port)
{
	/* Bits of LinkWidthActive, and of LinkSpeedActive for one lane, in PortInfo of the InfiniBand specification. */
	static const unsigned lanes[] = { 1, 4, 8, 12, 2 };
	static const unsigned speed[] = { 2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000 };
	unsigned w = port->active_width, s = port->active_speed;

	if (!w || w & (w - 1) || w > 16 || !s || s & (s - 1))
		return 0;
	return lanes[__builtin_ctz(w)] * speed[__builtin_ctz(s)];
}

/* Query the state, rate and address of the port. */
static int port_query(struct mce_nic *nic)
{
	struct mce_rdma_addr addr = nic->addr;
	struct ibv_port_attr port;
	int index = -1, r = nic->r->v->query_port(nic->ctx, (uint8_t)nic->r->tune.port, &port);

	if (r < 0)
		return mc_fail(r, "%s port %u: %s", addr.name, nic->r->tune.port, mc_strerror(r));
	addr.lid = port.lid;
	addr.mtu = mtu_bytes(port.active_mtu);
	if (addr.mtu > nic->r->tune.mtu)
		addr.mtu = nic->r->tune.mtu;
	nic->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	nic->global = nic->ethernet || port.lid == 0;
	addr.rate = port_rate(&port);
	r = gid_choose(nic, &port, &addr, &index);
	if (r < 0)
		return r;
	MC_LOCKED(&nic->lock);
	nic->addr = addr;
	nic->gid_index = index;
	__atomic_store_n(&nic->rate, addr.rate, __ATOMIC_RELAXED);
	mc_metric_set(&nic->metrics->rate, addr.rate);
	nic_set_up(nic, port.state == IBV_PORT_ACTIVE);
	return 0;
}

bool mce_nic_active(const struct mce_nic *nic)
{
	struct ibv_port_attr port;

	return mce_nic_up(nic) && nic->r->v->query_port(nic->ctx, (uint8_t)nic->r->tune.port, &port) == 0 &&
		port.state == IBV_PORT_ACTIVE;
}

bool mce_nic_failed(struct mce_nic *nic)
{
	if (mce_nic_active(nic))
		return false;
	__atomic_store_n(&nic->late, true, __ATOMIC_RELEASE);
	return true;
}

void mce_nic_addr(struct mce_nic *nic, struct mce_rdma_addr *ret, int *ret_gid_index)
{
	MC_LOCKED(&nic->lock);
	*ret = nic->addr;
	*ret_gid_index = nic->gid_index;
}

/* ---- completion queues ------------------------------------------------------------------------- */

static int cq_new(struct mce_nic *nic, struct mce_rdma_cq **ret)
{
	struct mce_rdma_cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return -ENOMEM;
	cq->nic = nic;
	cq->room = nic->max_cqe < (int)nic->r->tune.cqe ? (uint32_t)nic->max_cqe : nic->r->tune.cqe;
	cq->cq = nic->r->v->create_cq(nic->ctx, (int)cq->room, cq, nic->channel, 0);
	if (!cq->cq) {
		free(cq);
		return mc_fail(-errno, "%s: completion queue: %m", nic->addr.name);
	}
	mc_mutex_init(&cq->lock);
	/* While no thread polls, the next completion wakes the I/O thread. */
	cq->armed = nic->r->v->req_notify_cq(cq->cq, 0) == 0;
	*ret = cq;
	return 0;
}

int mce_nic_cq_take(struct mce_nic *nic, uint32_t n, struct mce_rdma_cq **ret)
{
	int r = 0;

	if (n > nic->r->tune.cqe || (int)n > nic->max_cqe)
		return mc_fail(-EINVAL, "MC_MAX_WR exceeds MC_MAX_CQE_PER_CTX, or the limit of %s", nic->addr.name);
	MC_LOCKED(&nic->lock);
	for (unsigned i = 0; i < nic->ncqs; i++)
		if (nic->cq[i]->room >= n) {
			nic->cq[i]->room -= n;
			*ret = nic->cq[i];
			return 0;
		}
	if (nic->ncqs == MCE_RDMA_CQS_MAX)
		return mc_fail(-MC_ELIMIT, "%s: too many queue pairs", nic->addr.name);
	r = cq_new(nic, &nic->cq[nic->ncqs]);
	if (r < 0)
		return r;
	*ret = nic->cq[nic->ncqs];
	(*ret)->room -= n;
	__atomic_store_n(&nic->ncqs, nic->ncqs + 1, __ATOMIC_RELEASE);
	return 0;
}

void mce_nic_cq_give(struct mce_rdma_cq *cq, uint32_t n)
{
	MC_LOCKED(&cq->nic->lock);
	cq->room += n;
}

/* ---- events ------------------------------------------------------------------------------------ */

/* Down: all endpoints of the NIC lose their slices at once, and the others carry them.  Up: peers make endpoints on it
 * again. */
static void nic_changed(struct mce_nic *nic, bool up)
{
	struct mc_list *pos, *at;

	MC_LOCKED(&nic->r->lock);
	mc_list_for_each(pos, &nic->r->peers) {
		struct mce_rdma_peer *rp = mc_container_of(pos, struct mce_rdma_peer, node);

		mc_mutex_lock(&rp->p->lock);
		mc_list_for_each(at, &rp->eps) {
			struct mce_rdma_ep *ep = mc_container_of(at, struct mce_rdma_ep, node);

			if (!up && ep->nic == nic)
				mce_rdma_ep_break_locked(ep);
		}
		if (up) {
			rp->nic_back = true;
			rp->retry_ms = 0;
			mce_rdma_kick_locked(rp);
		}
		mc_mutex_unlock(&rp->p->lock);
	}
}

static void async_ready(struct mc_evfd *evfd, uint32_t events)
{
	struct mce_nic *nic = mc_container_of(evfd, struct mce_nic, async_evfd);
	struct ibv_async_event event;

	(void)events;
	while (nic->r->v->get_async_event(nic->ctx, &event) == 0) {
		bool fatal = event.event_type == IBV_EVENT_DEVICE_FATAL, was = mce_nic_up(nic), up, late;

		nic->r->v->ack_async_event(&event);
		if (port_query(nic) < 0 || fatal)
			nic_set_up(nic, false);
		up = mce_nic_up(nic);
		late = __atomic_exchange_n(&nic->late, false, __ATOMIC_ACQ_REL);
		/* The port may be active again, while endpoints that found it inactive are gone: make them again. */
		if (was == up && !(up && late))
			continue;
		if (up)
			mc_info("rdma", "a NIC is up again nic=%s", nic->addr.name);
		else
			mc_warn("rdma", "a NIC is down, the others carry on nic=%s", nic->addr.name);
		nic_changed(nic, up);
	}
}

/* ---- opening ----------------------------------------------------------------------------------- */

static int nic_numa_node(const char *name)
{
	char path[128];
	FILE *f;
	int node = -1;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", name);
	f = fopen(path, "re");
	if (f && fscanf(f, "%d", &node) != 1)
		node = -1;
	if (f)
		fclose(f);
	return node;
}

static unsigned nic_least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static int nic_limits(struct mce_nic *nic)
{
	struct ibv_device_attr attr;
	int r = nic->r->v->query_device(nic->ctx, &attr);

	if (r < 0)
		return mc_fail(r, "%s: %s", nic->addr.name, mc_strerror(r));
	nic->max_wr = nic_least(nic->r->tune.max_wr, (unsigned)attr.max_qp_wr / (nic->iwarp ? 2 : 1));
	nic->max_sge = nic_least(MCE_RDMA_SGE, (unsigned)attr.max_sge);
	nic->max_sge_rd = attr.max_sge_rd > 0 ? nic_least(nic->max_sge, (unsigned)attr.max_sge_rd) : nic->max_sge;
	nic->max_inline = nic->r->tune.max_inline;
	nic->max_cqe = attr.max_cqe;
	nic->rd_atomic = nic_least(16, (unsigned)(attr.max_qp_rd_atom > 0 ? attr.max_qp_rd_atom : 1));
	nic->init_atomic = attr.max_qp_init_rd_atom > 0 ? nic_least(16, (unsigned)attr.max_qp_init_rd_atom) :
		nic->rd_atomic;
	nic->max_mr = attr.max_mr_size && attr.max_mr_size < nic->r->tune.max_mr ? attr.max_mr_size :
		nic->r->tune.max_mr;
	return 0;
}

static void nic_close(struct mce_nic *nic)
{
	const struct mce_verbs *v = nic->r->v;

	for (unsigned i = 0; i < nic->ncqs; i++) {
		v->destroy_cq(nic->cq[i]->cq);
		mc_mutex_destroy(&nic->cq[i]->lock);
		free(nic->cq[i]->qp);
		free(nic->cq[i]);
	}
	mce_rdma_cm_end(nic);
	if (nic->sink_mr)
		v->dereg_mr(nic->sink_mr);
	if (nic->channel)
		v->destroy_comp_channel(nic->channel);
	if (nic->pd)
		v->dealloc_pd(nic->pd);
	if (nic->ctx)
		v->close_device(nic->ctx);
	mc_mutex_destroy(&nic->lock);
	memset(nic, 0, sizeof(*nic));
}

static void nic_fd_nonblocking(int fd)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* A page of its own: with ibv_fork_init() a child does not have the pages of registered memory. */
static int nic_sink_open(struct mce_nic *nic)
{
	struct mce_rdma *r = nic->r;
	void *page;

	if (!r->sink) {
		page = mmap(NULL, SINK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			return mc_fail(-errno, "%s: %m", nic->addr.name);
		r->sink = page;
	}
	nic->sink_mr = r->v->reg_mr(nic->pd, r->sink, SINK_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return nic->sink_mr ? 0 : mc_fail(-errno, "%s: %m", nic->addr.name);
}

/* Use the connection manager where the NIC needs it, or the program wants it. */
static int nic_cm_open(struct mce_nic *nic)
{
	int r = nic->iwarp || nic->r->tune.cm ? mce_rdma_cm_open(nic) : 0;

	if (r < 0 && nic->iwarp)
		return mc_fail(r, "%s is an iWARP NIC, which connects only by rdma_cm: %s", nic->addr.name,
			       mc_err_detail(r));
	if (r < 0)
		mc_warn("rdma", "MC_RDMA_CM has no effect on a NIC: %s nic=%s", mc_err_detail(r), nic->addr.name);
	return 0;
}

static int nic_open(struct mce_nic *nic, struct ibv_device *dev)
{
	const struct mce_verbs *v = nic->r->v;
	struct mce_rdma_cq *cq;
	int r = mc_fault("engine.rdma.nic");

	mc_mutex_init(&nic->lock);
	nic->iwarp = nic->addr.iwarp = dev->transport_type == IBV_TRANSPORT_IWARP;
	(void)strncpy(nic->addr.name, v->get_device_name(dev), sizeof(nic->addr.name) - 1);
	nic->metrics = mce_nic_metrics(nic->addr.name);
	nic->ctx = r == 0 ? v->open_device(dev) : NULL;
	if (!nic->ctx)
		return r < 0 ? r : mc_fail(-errno, "cannot open %s: %m", nic->addr.name);
	r = port_query(nic);
	if (r == 0 && !mce_nic_up(nic))
		r = mc_fail(-ENETDOWN, "port %u of %s is not active", nic->r->tune.port, nic->addr.name);
	if (r == 0)
		r = nic_limits(nic);
	if (r < 0)
		return r;
	nic->pd = v->alloc_pd(nic->ctx);
	nic->channel = nic->pd ? v->create_comp_channel(nic->ctx) : NULL;
	if (!nic->channel)
		return mc_fail(-errno, "%s: %m", nic->addr.name);
	nic_fd_nonblocking(nic->ctx->async_fd);
	nic_fd_nonblocking(nic->channel->fd);
	nic->numa = nic_numa_node(nic->addr.name);
	nic->async_evfd = (struct mc_evfd){ .fd = nic->ctx->async_fd, .ready = async_ready };
	nic->channel_evfd = (struct mc_evfd){ .fd = nic->channel->fd, .ready = mce_rdma_channel_ready };
	if (nic->iwarp) {
		r = nic_sink_open(nic);
		if (r < 0)
			return r;
	}
	r = nic_cm_open(nic);
	if (r == 0)
		r = mce_nic_cq_take(nic, 0, &cq);
	if (r == 0)
		r = mc_evloop_add(nic->r->io.loop, &nic->async_evfd, EPOLLIN);
	if (r == 0)
		r = mc_evloop_add(nic->r->io.loop, &nic->channel_evfd, EPOLLIN);
	return r;
}

static const char *nic_kind(const struct mce_nic *nic)
{
	return nic->iwarp ? "iwarp" : nic->ethernet ? "roce" : "infiniband";
}

static void nic_add(struct mce_rdma *r, struct ibv_device *dev, bool named)
{
	struct mce_nic *nic = &r->nic[r->nnics];
	int err;

	nic->r = r;
	nic->index = r->nnics;
	err = nic_open(nic, dev);
	if (err == 0) {
		r->nnics++;
		mc_info("rdma", "NIC opened nic=%s kind=%s connects=%s%s%s gid_index=%d mtu=%u numa=%d rate_mbps=%u",
			nic->addr.name, nic_kind(nic), nic->cm_listener ? "rdma_cm" : "handshake",
			nic->cm_listener ? " listens=" : "", nic->addr.cm, nic->gid_index, nic->addr.mtu, nic->numa,
			nic->addr.rate);
		return;
	}
	if (named)
		mc_warn("rdma", "cannot use a NIC: %s", mc_err_detail(err));
	else
		mc_info("rdma", "cannot use a NIC: %s", mc_err_detail(err));
	nic_close(nic);
}

bool mce_nics_exist(bool wanted)
{
	const struct mce_verbs *v = mce_verbs();
	struct ibv_device **devices;
	int n = 0;

	if (!v) {
		if (wanted)
			mc_warn("rdma", "no RDMA, using tcp and shared memory: %s", mc_err_detail(-MC_ENOTSUP));
		return false;
	}
	devices = v->get_device_list(&n);
	if (devices)
		v->free_device_list(devices);
	if (!devices || n == 0) {
		if (wanted)
			mc_warn("rdma", "this machine has no RDMA NIC, using tcp and shared memory");
		return false;
	}
	return true;
}

/* Add all devices that the filter admits, in the library's order.  When there are more than the limit, the devices near
 * this thread are first. */
static void nics_add_all(struct mce_rdma *r, struct ibv_device **devices, int n, const char *filter)
{
	unsigned cpu, node = 0;
	bool some = n > (int)r->tune.max_nics && getcpu(&cpu, &node) == 0;

	for (int pass = some ? 0 : 1; pass < 2; pass++)
		for (int i = 0; i < n && r->nnics < r->tune.max_nics; i++) {
			const char *name = r->v->get_device_name(devices[i]);
			bool near = some && nic_numa_node(name) == (int)node;

			if (filter && *filter && !mce_nics_listed(filter, name))
				continue;
			if (pass == 1 ? !near : near)
				nic_add(r, devices[i], false);
		}
}

/* The list for this process out of an object of lists by rank: {"0": "mlx5_0", "1": "mlx5_1"}.  Malloc'ed; NULL: all
 * NICs. */
static char *list_of_rank(const char *text)
{
	const char *rank = mc_env_str("LOCAL_RANK"), *list;
	json_t *o = json_loads(text, 0, NULL);
	char *copy;

	list = json_string_value(json_object_get(o, rank ? rank : "0"));
	if (!list)
		mc_warn("rdma", "the list of NICs has none for this rank (LOCAL_RANK), using all rank=%s list=%s",
			rank ? rank : "0", text);
	copy = list ? strdup(list) : NULL;
	json_decref(o);
	return copy;
}

/* The device of this name, which is missed in the log; NULL: there is none. */
static struct ibv_device *device_named(const struct mce_rdma *r, struct ibv_device **devices, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(r->v->get_device_name(devices[i]), name))
			return devices[i];
	mc_warn("rdma", "no such NIC on this machine nic=%s", name);
	return NULL;
}

int mce_nics_open(struct mce_rdma *r, const struct mce_conf *conf)
{
	const char *list = conf->rdma_devices, *filter = conf->rdma_filter;
	auto_free char *own = *list == '{' ? list_of_rank(list) : NULL;
	struct ibv_device **devices, *dev;
	char name[MCE_RDMA_NAME_MAX];
	int n = 0;

	if (*list == '{')
		list = own ? own : "";
	devices = r->v->get_device_list(&n);
	if (!devices)
		n = 0;
	/* The order of the list numbers the NICs; without a list, the library's order does. */
	for (const char *at = list; (at = mce_nics_next(at, name)); ) {
		dev = device_named(r, devices, n, name);
		if (dev && r->nnics < r->tune.max_nics)
			nic_add(r, dev, true);
	}
	if (!*list) {
		for (const char *at = filter ? filter : ""; (at = mce_nics_next(at, name)); )
			(void)device_named(r, devices, n, name);
		nics_add_all(r, devices, n, filter);
	}
	if (devices)
		r->v->free_device_list(devices);
	if (r->nnics == 0 && conf->rdma_wanted)
		mc_warn("rdma", "no usable NIC, using tcp and shared memory devices=%d", n);
	return mce_rdma_cm_start(r);
}

void mce_nics_close(struct mce_rdma *r)
{
	for (unsigned i = 0; i < r->nnics; i++)
		nic_close(&r->nic[i]);
	r->nnics = 0;
	if (r->cm_channel)
		r->cm->destroy_event_channel(r->cm_channel);
	r->cm_channel = NULL;
	if (r->sink)
		munmap(r->sink, SINK_SIZE);
	r->sink = NULL;
}
