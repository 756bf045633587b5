/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - device memory of GPUs that NICs read and write themselves: its dma-bufs, and the requests that may use it.
 *
 * The processor cannot touch device memory, so nothing of such a request goes through the slots of region.c, and no NIC
 * gets its bytes inline.  A request that would need that is left to the path "staged". */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/err.h"
#include "engine/gpu/gpu_i.h"
#include "engine/rdma/rdma_i.h"

/* Some kernels corrupt data that is further than 4 GiB from the beginning of a dma-buf. */
#define PART_MAX (1ull << 30)
/* Size of a GPU's page.  NICs need fewer entries for a dma-buf of whole pages. */
#define GPU_PAGE (64ull << 10)

/* ---- dma-bufs ---------------------------------------------------------------------------------- */

uint64_t mce_rdma_device_part(uint64_t max)
{
	if (max >= PART_MAX)
		return PART_MAX;
	return max >= GPU_PAGE ? max & ~(GPU_PAGE - 1) : max;
}

static int export_pages(uint64_t at, uint64_t len, uint64_t page, struct mce_rdma_dmabuf *ret)
{
	uint64_t first = at & ~(page - 1), end = (at + len + page - 1) & ~(page - 1);

	ret->off = at - first;
	return mc_gpu()->export_dmabuf((void *)(uintptr_t)first, end - first, &ret->fd);
}

static int part_export(uint64_t at, uint64_t len, struct mce_rdma_dmabuf *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int r = export_pages(at, len, page > GPU_PAGE ? page : GPU_PAGE, ret);

	/* The allocation may begin or end inside of a page of the GPU. */
	if (r < 0 && r != -MC_ENOTSUP && page < GPU_PAGE)
		r = export_pages(at, len, page, ret);
	return r;
}

int mce_rdma_dmabufs_open(const struct mce_mr *mr, const struct mce_rdma_region *region, struct mce_rdma_dmabuf **ret)
{
	struct mce_rdma_dmabuf *bufs = calloc(region->nparts, sizeof(*bufs));
	uint64_t off = 0, left = mr->len;
	int r = bufs ? 0 : -ENOMEM;

	for (unsigned i = 0; bufs && i < region->nparts; i++)
		bufs[i].fd = -1;
	for (unsigned i = 0; r == 0 && i < region->nparts; i++) {
		r = part_export(mr->base + off, left < region->part ? left : region->part, &bufs[i]);
		off += region->part;
		left -= region->part;
	}
	if (r < 0) {
		mce_rdma_dmabufs_close(bufs, region->nparts);
		return r;
	}
	*ret = bufs;
	return 0;
}

void mce_rdma_dmabufs_close(struct mce_rdma_dmabuf *bufs, unsigned n)
{
	for (unsigned i = 0; bufs && i < n; i++)
		if (bufs[i].fd >= 0)
			close(bufs[i].fd);
	free(bufs);
}

/* ---- requests ---------------------------------------------------------------------------------- */

static bool is_registered(const struct mce_rdma *r, const struct iovec *iov)
{
	const struct mce_rdma_region *region;
	struct mce_mr *mr;
	bool is;

	if (mce_mr_get_at(r->e, (uintptr_t)iov->iov_base, iov->iov_len, 0, &mr) < 0)
		return false;
	region = mr->service[MCE_PATH_RDMA];
	is = region && region->everywhere;
	mce_mr_unref(mr);
	return is;
}

bool mce_rdma_direct(const struct mce_rdma *r, struct mce_req *req)
{
	/* Checksums need the processor.  The program's earlier work on the GPU must be done (gpu/follow.c). */
	if (req->crc || !(req->ordered || mce_reqx(req)->followed))
		return false;
	/* All NICs need the region, because each may get any slice. */
	for (unsigned i = 0; i < req->iovcnt; i++)
		if (req->iov[i].iov_len && !is_registered(r, &req->iov[i]))
			return false;
	return true;
}
