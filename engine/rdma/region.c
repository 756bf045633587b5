/* SPDX-License-Identifier: Apache-2.0
 * region.c - registered memory on the NICs: regions of the engine, and slots for bytes that are in no region. */
#include <config.h>

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/thread.h"
#include "engine/rdma/rdma_i.h"

#define STAGE_BYTES (16u << 20)

static unsigned access_flags(const struct mce_rdma *r, unsigned access)
{
	return IBV_ACCESS_LOCAL_WRITE | (access & MCE_ACCESS_READ ? IBV_ACCESS_REMOTE_READ : 0) |
		(access & MCE_ACCESS_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
		(r->tune.relaxed ? IBV_ACCESS_RELAXED_ORDERING : 0);
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
	pthread_t thread;
	bool started;
};

static struct ibv_mr *part_register(const struct share *s, uint64_t off, uint64_t len)
{
	const struct mce_verbs *v = s->nic->r->v;
	unsigned flags = access_flags(s->nic->r, s->mr->access);
	void *at = (void *)(uintptr_t)(s->mr->base + off);
	struct ibv_mr *mr;

	if (mc_fault("engine.rdma.register") < 0) {
		errno = ENOMEM;
		return NULL;
	}
	mr = v->reg_mr(s->nic->pd, at, len, flags);
	/* Memory that is mapped read-only can still be read by peers. */
	if (!mr && (errno == EFAULT || errno == EACCES) && !(s->mr->access & MCE_ACCESS_WRITE))
		mr = v->reg_mr(s->nic->pd, at, len, flags & ~(unsigned)IBV_ACCESS_LOCAL_WRITE);
	return mr;
}

static void *share_run(void *arg)
{
	struct share *s = arg;
	struct ibv_mr **mr = &s->region->mr[s->nic->index * s->region->nparts];

	for (unsigned i = 0; i < s->region->nparts; i++) {
		uint64_t off = i * s->region->part, left = s->mr->len - off;

		mr[i] = part_register(s, off, left < s->region->part ? left : s->region->part);
		if (mr[i])
			continue;
		warn_unregistered(s->nic, s->mr->len, -errno);
		break;
	}
	return NULL;
}

uint64_t mce_engine_nic_part(const struct mce_engine *e)
{
	const struct mce_rdma *r = mce_rdma_of(e);
	uint64_t part = UINT64_MAX;

	for (unsigned i = 0; r && i < r->nnics; i++)
		part = r->nic[i].max_mr < part ? r->nic[i].max_mr : part;
	return part == UINT64_MAX ? part : part & ~4095ull;
}

/* The NICs of the NUMA node that the memory is on; 0: it is unknown, or near to none or all of them. */
static uint32_t nics_near(const struct mce_rdma *r, const struct mce_mr *mr)
{
	uint32_t near = 0, all = (uint32_t)((1ull << r->nnics) - 1);
	int node = -1;

	/* Registration has allocated its pages. */
	if (r->nnics < 2 || syscall(SYS_get_mempolicy, &node, NULL, 0, mr->base, MPOL_F_NODE | MPOL_F_ADDR) < 0)
		return 0;
	for (unsigned i = 0; i < r->nnics; i++)
		near |= r->nic[i].numa == node ? 1u << i : 0;
	return near == all ? 0 : near;
}

void mce_rdma_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr)
{
	struct mce_rdma *r = mce_rdma_of(mr->e);
	struct share share[MCE_NICS_MAX] = { 0 };
	struct mce_rdma_region *region;
	uint64_t part = mce_engine_nic_part(mr->e);

	if (!r || r->nnics == 0 || mr->medium || mr->gpu >= 0)
		return;
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
	mr->service[MCE_PATH_RDMA] = region;
	/* Pinning takes long, and each NIC does it by itself. */
	for (unsigned i = 0; i < r->nnics; i++) {
		share[i] = (struct share){ .nic = &r->nic[i], .region = region, .mr = mr };
		if (i + 1 < r->nnics)
			share[i].started = mc_thread_start(&share[i].thread, "mce-register", share_run, &share[i]) == 0;
		if (!share[i].started)
			share_run(&share[i]);
	}
	for (unsigned i = 0; i < r->nnics; i++)
		if (share[i].started)
			pthread_join(share[i].thread, NULL);
	mr->nics = attr->nics ? attr->nics : nics_near(r, mr);
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
		if (region->mr[i])
			(void)r->v->dereg_mr(region->mr[i]);
	free(region);
	mr->service[MCE_PATH_RDMA] = NULL;
}

void mce_mr_nic_keys(const struct mce_mr *mr, uint64_t off, uint32_t *rkeys, uint32_t *lkeys)
{
	const struct mce_rdma_region *region = mr->service[MCE_PATH_RDMA];
	const struct mce_rdma *r = mce_rdma_of(mr->e);

	for (unsigned i = 0; r && i < r->nnics; i++) {
		const struct ibv_mr *ib = region ? region->mr[i * region->nparts + off / region->part] : NULL;

		rkeys[i] = ib ? ib->rkey : 0;
		lkeys[i] = ib ? ib->lkey : 0;
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
		st->mr[i] = r->v->reg_mr(r->nic[i].pd, base, st->len, IBV_ACCESS_LOCAL_WRITE);
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
	/* Another peer may wait for it, whose lock cannot be taken here.  Otherwise a tick does it. */
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
	pthread_mutex_destroy(&st->lock);
}
