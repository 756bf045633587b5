/* SPDX-License-Identifier: Apache-2.0
 * region.c - registered memory on the NICs: regions of the engine, and slots for bytes that are in no region. */
#include <config.h>

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "engine/rdma/rdma_i.h"

#define STAGE_BYTES (16u << 20)

static unsigned access_flags(const struct mce_nic *nic, unsigned access)
{
	/* On iWARP the answer to a READ is written like a WRITE.  So memory that peers may only read takes no answers:
	 * a READ into it fails. */
	bool sink = nic->iwarp && access != MCE_ACCESS_READ;

	return IBV_ACCESS_LOCAL_WRITE | (access & MCE_ACCESS_READ ? IBV_ACCESS_REMOTE_READ : 0) |
		(access & MCE_ACCESS_WRITE || sink ? IBV_ACCESS_REMOTE_WRITE : 0) |
		(nic->r->tune.relaxed ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

static void warn_unregistered(const struct mce_nic *nic, uint64_t len, int err)
{
	struct rlimit lim = { .rlim_cur = RLIM_INFINITY };

	(void)getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur != RLIM_INFINITY)
		mc_warn("rdma", "cannot register memory, its transfers do not use this NIC: %s; "
			"the limit of locked memory is %llu KiB (ulimit -l) nic=%s bytes=%llu", mc_strerror(err),
			(unsigned long long)lim.rlim_cur / 1024, nic->addr.name, (unsigned long long)len);
	else
		mc_warn("rdma", "cannot register memory, its transfers do not use this NIC: %s nic=%s bytes=%llu",
			mc_strerror(err), nic->addr.name, (unsigned long long)len);
}

/* One NIC's share of the registration. */
struct share {
	struct mce_nic *nic;
	struct mce_rdma_region *region;
	const struct mce_mr *mr;
	const struct mce_rdma_dmabuf *bufs;	/* one per part; NULL: the part is registered by its address */
	int err;		/* error of a part that cannot be registered; 0: none */
	struct mc_thread thread;
	bool started;
};

static struct ibv_mr *part_register(const struct share *s, unsigned part)
{
	const struct mce_verbs *v = s->nic->r->v;
	unsigned flags = access_flags(s->nic, s->mr->access);
	uint64_t off = part * s->region->part, left = s->mr->len - off;
	uint64_t len = left < s->region->part ? left : s->region->part;
	void *at = (void *)(uintptr_t)(s->mr->base + off);
	struct ibv_mr *mr;

	if (mc_fault("engine.rdma.register") < 0) {
		errno = ENOMEM;
		return NULL;
	}
	if (s->bufs)
		return v->reg_dmabuf_mr(s->nic->pd, s->bufs[part].off, len, (uintptr_t)at, s->bufs[part].fd, flags);
	mr = v->reg_mr(s->nic->pd, at, len, flags);
	/* Memory that is mapped read-only can still be read by peers. */
	if (!mr && (errno == EFAULT || errno == EACCES) && s->mr->gpu < 0 && !(s->mr->access & MCE_ACCESS_WRITE))
		mr = v->reg_mr(s->nic->pd, at, len,
			       flags & ~(unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	return mr;
}

static void *share_run(void *arg)
{
	struct share *s = arg;
	struct ibv_mr **mr = &s->region->mr[s->nic->index * s->region->nparts];

	for (unsigned i = 0; i < s->region->nparts && s->err == 0; i++) {
		mr[i] = part_register(s, i);
		if (!mr[i])
			s->err = errno > 0 ? -errno : -EIO;
	}
	return NULL;
}

/* Pinning takes long, and each NIC does it by itself. */
static void shares_run(struct share *share, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (i + 1 < n)
			share[i].started = mc_thread_start(&share[i].thread, "mce-register", share_run, &share[i]) == 0;
		if (!share[i].started)
			share_run(&share[i]);
	}
	for (unsigned i = 0; i < n; i++)
		if (share[i].started)
			mc_thread_join(share[i].thread);
}

static uint64_t nic_part(const struct mce_rdma *r)
{
	uint64_t part = UINT64_MAX;

	for (unsigned i = 0; r && i < r->nnics; i++)
		part = r->nic[i].max_mr < part ? r->nic[i].max_mr : part;
	return part == UINT64_MAX ? part : part & ~4095ull;
}

uint64_t mce_mr_nic_part(const struct mce_mr *mr)
{
	const struct mce_rdma_region *region = mr->service[MCE_PATH_RDMA];

	return region ? region->part : nic_part(mce_rdma_of(mr->e));
}

/* ---- device memory ----------------------------------------------------------------------------- */

#define WHY_MAX 160

static void part_drop(const struct mce_verbs *v, struct ibv_mr **mr)
{
	if (*mr)
		(void)v->dereg_mr(*mr);
	*mr = NULL;
}

/* Try one way to register the region on the NICs that do not have it, on each NIC all parts or none.  Returns the
 * number of NICs that have it after that; @why: the error of the others. */
static unsigned device_try(struct mce_rdma *r, struct mce_rdma_region *region, const struct mce_mr *mr,
			   bool peer_memory, char why[WHY_MAX])
{
	struct share share[MCE_NICS_MAX] = { 0 };
	struct mce_rdma_dmabuf *bufs = NULL;
	unsigned n = 0, lacking = 0;
	int err = peer_memory ? 0 : mce_rdma_dmabufs_open(mr, region, &bufs);

	if (err < 0)
		snprintf(why, WHY_MAX, "dma-buf: %s", mc_err_detail(err));
	for (unsigned i = 0; i < r->nnics; i++)
		if (!region->mr[i * region->nparts])
			share[n++] = (struct share){ .nic = &r->nic[i], .region = region, .mr = mr, .bufs = bufs,
						     .err = err };
	if (err == 0)
		shares_run(share, n);
	for (unsigned i = 0; i < n; i++) {
		if (share[i].err == 0)
			continue;
		lacking++;
		for (unsigned k = 0; k < region->nparts; k++)
			part_drop(r->v, &region->mr[share[i].nic->index * region->nparts + k]);
		if (err == 0)
			snprintf(why, WHY_MAX, "%s on %s: %s", peer_memory ? "peer memory" : "dma-buf",
				 share[i].nic->addr.name, mc_strerror(share[i].err));
	}
	mce_rdma_dmabufs_close(bufs, region->nparts);
	return r->nnics - lacking;
}

static unsigned device_register(struct mce_rdma *r, struct mce_rdma_region *region, const struct mce_mr *mr)
{
	char why[2][WHY_MAX] = { "" };
	unsigned have = 0;

	for (unsigned i = 0; i < 2 && have < r->nnics; i++)
		have = device_try(r, region, mr, r->tune.peer_memory == (i == 0), why[i]);
	if (have < r->nnics)
		mc_info("rdma", "%u of %u NICs can access GPU memory, its transfers are staged through host memory: "
			"%s; %s gpu=%d bytes=%llu", have, r->nnics, why[0], why[1], mr->gpu,
			(unsigned long long)mr->len);
	return have;
}

/* ---- regions ----------------------------------------------------------------------------------- */

/* Bits of the NICs on the memory's NUMA node; 0: the node is unknown, or has no NIC or all of them. */
static uint32_t nics_near(const struct mce_rdma *r, const struct mce_mr *mr)
{
	uint32_t near = 0, all = (uint32_t)((1ull << r->nnics) - 1);
	int node = -1;

	/* The pages exist, because registration has allocated them. */
	if (r->nnics < 2 || syscall(SYS_get_mempolicy, &node, NULL, 0, mr->base, MPOL_F_NODE | MPOL_F_ADDR) < 0)
		return 0;
	for (unsigned i = 0; i < r->nnics; i++)
		near |= r->nic[i].numa == node ? 1u << i : 0;
	return near == all ? 0 : near;
}

/* Register host memory.  Returns the number of NICs that have at least one part. */
static unsigned host_register(struct mce_rdma *r, struct mce_rdma_region *region, const struct mce_mr *mr)
{
	struct share share[MCE_NICS_MAX] = { 0 };

	for (unsigned i = 0; i < r->nnics; i++)
		share[i] = (struct share){ .nic = &r->nic[i], .region = region, .mr = mr };
	shares_run(share, r->nnics);
	for (unsigned i = 0; i < r->nnics; i++)
		if (share[i].err)
			warn_unregistered(&r->nic[i], mr->len, share[i].err);
	return r->nnics;
}

static bool is_everywhere(const struct mce_rdma *r, const struct mce_rdma_region *region)
{
	for (unsigned i = 0; i < r->nnics * region->nparts; i++)
		if (!region->mr[i])
			return false;
	return true;
}

void mce_rdma_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr)
{
	struct mce_rdma *r = mce_rdma_of(mr->e);
	struct mce_rdma_region *region;
	bool device = mr->gpu >= 0;
	uint64_t part = nic_part(r);

	if (!r || r->nnics == 0 || mr->medium || (device && !r->tune.gpu_direct))
		return;
	if (device)
		part = mce_rdma_device_part(part);
	if (!part || (mr->len - 1) / part >= MCE_RDMA_PARTS_MAX) {
		mc_warn("rdma", "memory is larger than the NICs can register, using tcp for it bytes=%llu",
			(unsigned long long)mr->len);
		return;
	}
	region = calloc(1, sizeof(*region) + r->nnics * ((mr->len - 1) / part + 1) * sizeof(region->mr[0]));
	if (!region)
		return;
	region->part = part;
	region->nparts = (unsigned)((mr->len - 1) / part + 1);
	if ((device ? device_register(r, region, mr) : host_register(r, region, mr)) == 0) {
		free(region);
		return;
	}
	region->everywhere = is_everywhere(r, region);
	mr->service[MCE_PATH_RDMA] = region;
	mr->nics = attr->nics ? attr->nics : device ? 0 : nics_near(r, mr);
	if (mr->nics)
		__atomic_store_n(&r->picky, true, __ATOMIC_RELAXED);
}

void mce_rdma_region_free(struct mce_mr *mr)
{
	struct mce_rdma_region *region = mr->service[MCE_PATH_RDMA];
	struct mce_rdma *r = mce_rdma_of(mr->e);

	if (!region)
		return;
	/* After return the NIC does not touch the memory: dereg_mr waits. */
	for (unsigned i = 0; i < r->nnics * region->nparts; i++)
		part_drop(r->v, &region->mr[i]);
	free(region);
	mr->service[MCE_PATH_RDMA] = NULL;
}

void mce_mr_nic_keys(const struct mce_mr *mr, uint64_t off, uint32_t *rkeys, uint32_t *lkeys)
{
	const struct mce_rdma_region *region = mr->service[MCE_PATH_RDMA];
	const struct mce_rdma *r = mce_rdma_of(mr->e);

	for (unsigned i = 0; r && i < r->nnics; i++) {
		const struct ibv_mr *ib = region ? region->mr[i * region->nparts + off / region->part] : NULL;

		if (r->nic[i].iwarp)
			continue;
		*rkeys++ = ib ? ib->rkey : 0;
		*lkeys++ = ib ? ib->lkey : 0;
	}
}

bool mce_rdma_lkey(const struct mce_mr *mr, const struct mce_nic *nic, uint64_t addr, uint32_t *ret_key,
		   uint64_t *ret_room)
{
	const struct mce_rdma_region *region = mr->service[MCE_PATH_RDMA];
	uint64_t off = addr - mr->base, part;
	const struct ibv_mr *ib;

	if (!region)
		return false;
	part = region->nparts > 1 ? off / region->part : 0;
	ib = region->mr[nic->index * region->nparts + part];
	if (!ib)
		return false;
	*ret_key = ib->lkey;
	*ret_room = (part + 1 < region->nparts ? (part + 1) * region->part : mr->len) - off;
	return true;
}

/* ---- slots ------------------------------------------------------------------------------------- */

static int stage_open_locked(struct mce_rdma *r)
{
	struct mce_rdma_stage *st = &r->stage;
	char *base;

	st->slot = r->tune.slice;
	st->len = STAGE_BYTES / st->slot * st->slot;
	if (st->len < 4 * st->slot)
		st->len = 4 * st->slot;
	base = mmap(NULL, st->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	for (unsigned i = 0; i < r->nnics; i++) {
		st->mr[i] = r->v->reg_mr(r->nic[i].pd, base, st->len, access_flags(&r->nic[i], 0));
		if (!st->mr[i])
			warn_unregistered(&r->nic[i], st->len, -errno);
	}
	for (uint64_t off = 0; off < st->len; off += st->slot) {
		*(void **)(base + off) = st->free;
		st->free = base + off;
	}
	st->base = base;
	return 0;
}

void *mce_rdma_stage_take(struct mce_rdma *r)
{
	struct mce_rdma_stage *st = &r->stage;
	void *slot;

	MC_LOCKED(&st->lock);
	if (!st->base && stage_open_locked(r) < 0)
		return NULL;
	slot = st->free;
	if (slot)
		st->free = *(void **)slot;
	else
		st->starved = true;
	return slot;
}

static void stage_freed(void *arg)
{
	mce_rdma_unstarve(arg);
}

void mce_rdma_stage_give(struct mce_rdma *r, void *slot)
{
	MC_LOCKED(&r->stage.lock);
	*(void **)slot = r->stage.free;
	r->stage.free = slot;
	/* A peer may wait for the slot, and its lock cannot be taken here, so the loop pumps it.  If the post fails,
	 * a tick does. */
	if (r->stage.starved && !r->stage.told)
		r->stage.told = mc_evloop_post(r->io.loop, stage_freed, r) == 0;
}

struct ibv_mr *mce_rdma_stage_mr(struct mce_rdma *r, const struct mce_nic *nic)
{
	return r->stage.mr[nic->index];
}

void mce_rdma_stage_close(struct mce_rdma *r)
{
	struct mce_rdma_stage *st = &r->stage;

	for (unsigned i = 0; i < r->nnics; i++)
		if (st->mr[i])
			(void)r->v->dereg_mr(st->mr[i]);
	if (st->base)
		munmap(st->base, st->len);
	mc_mutex_destroy(&st->lock);
}
