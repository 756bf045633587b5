/* SPDX-License-Identifier: Apache-2.0
 * mapped.c - checks of addresses from callers: a wrong, freed or protected one is an error instead of a signal. */
#include "python/mcpy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MADV_POPULATE_READ_ 22
#define MADV_POPULATE_WRITE_ 23

/* struct procmap_query of linux/fs.h, for the ioctl PROCMAP_QUERY of Linux 6.11 and later. */
struct query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define QUERY _IOWR('f', 17, struct query)

struct vma {
	uint64_t from, end;		/* equal: no mapping yet */
	unsigned access;
	uint64_t sound;			/* pages up to here are backed: a mapped file may have been truncated */
};

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- one mapping ---- */

/* A cached descriptor of /proc/self/maps of this process; a forked child opens its own.  @again: open another, because
 * other code has closed the cached one. */
static int maps_fd(bool again)
{
	static _Atomic uint64_t known;	/* pid, descriptor */
	uint64_t now = known, mine = (uint64_t)getpid() << 32;
	int fd;

	if (!again && now >> 32 == mine >> 32)
		return (int)(uint32_t)now;
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !atomic_compare_exchange_strong(&known, &now, mine | (uint32_t)fd)) {
		close(fd);
		return (int)(uint32_t)now;
	}
	return fd;
}

/* Whether a page of a mapping can be accessed; true if the kernel cannot tell. */
static bool page_sound(uint64_t at, unsigned access)
{
	void *page = (void *)(uintptr_t)(at & ~(page_size() - 1));

	return madvise(page, page_size(), access & MCPY_WRITE ? MADV_POPULATE_WRITE_ : MADV_POPULATE_READ_) == 0 ||
	       errno != EFAULT;
}

/* Find the mapping of @at: 1, 0 if there is none, -1 if this kernel has no PROCMAP_QUERY.  For a file mapping, also
 * check that the last page below @limit is backed. */
static int vma_at(uint64_t at, uint64_t limit, unsigned access, struct vma *ret)
{
	static atomic_bool silent;
	struct query q = { .size = sizeof(q), .query_addr = at };
	int r;

	if (atomic_load(&silent))
		return -1;
	r = ioctl(maps_fd(false), QUERY, &q);
	if (r < 0 && (errno == EBADF || errno == ENOTTY)) {
		r = ioctl(maps_fd(true), QUERY, &q);
		/* ENOTTY on a new descriptor is final: a retry would open one more descriptor per call. */
		if (r < 0 && errno == ENOTTY)
			atomic_store(&silent, true);
	}
	if (r < 0)
		return errno == ENOENT ? 0 : -1;
	*ret = (struct vma){ q.vma_start, q.vma_end, (unsigned)q.vma_flags & (MCPY_READ | MCPY_WRITE), q.vma_end };
	limit = limit < q.vma_end ? limit : q.vma_end;
	if (q.inode && access && (ret->access & access) == access && !page_sound(limit - 1, access))
		ret->sound = q.vma_start;
	return 1;
}

/* ---- kernels without PROCMAP_QUERY ---- */

/* MS_ASYNC does not change the pages, but fails if one is not mapped. */
static bool span_mapped(uint64_t from, uint64_t end)
{
	return msync((void *)(uintptr_t)from, end - from, MS_ASYNC) == 0;
}

/* Whether /proc/self/maps allows the access; slow. */
static bool maps_allow(uint64_t at, unsigned access)
{
	unsigned long long first, end;
	bool good = true;
	char line[512], r, w;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx-%llx %c%c", &first, &end, &r, &w) == 4 && first <= at && at < end) {
			good = (!(access & MCPY_READ) || r == 'r') && (!(access & MCPY_WRITE) || w == 'w');
			break;
		}
	if (f)
		fclose(f);
	return good;
}

/* Populating fails where an access would raise a signal, but also on device memory and on kernels before 5.14. */
static bool page_allows(uint64_t at, unsigned access)
{
	void *page = (void *)(uintptr_t)(at & ~(page_size() - 1));
	int advice = access & MCPY_WRITE ? MADV_POPULATE_WRITE_ : MADV_POPULATE_READ_;

	if (!access || madvise(page, page_size(), advice) == 0)
		return true;
	/* EFAULT: the page is not backed, although it is listed. */
	return errno != EFAULT && maps_allow(at, access);
}

/* Checks the first and the last page; between them finds holes, but not protected pages. */
static uint64_t mapped_reach_old(uint64_t at, uint64_t size, unsigned access)
{
	uint64_t page = page_size(), from = at & ~(page - 1), end = (at + size + page - 1) & ~(page - 1), good, step;

	/* Small buffers are frequent: few system calls for them. */
	if (span_mapped(from, end))
		return page_allows(at, access) && (end - from == page || page_allows(at + size - 1, access)) ? size : 0;
	if (!span_mapped(from, from + page) || !page_allows(at, access))
		return 0;
	/* [from, good) is mapped, [from, end) is not */
	for (good = from + page; end - good > page; ) {
		step = good + (((end - good) / 2) & ~(page - 1));
		if (step == good)
			break;
		if (span_mapped(good, step))
			good = step;
		else
			end = step;
	}
	return good - at;
}

/* ---- addresses ---- */

/* Number of bytes from @at on that allow @access; @v caches a mapping of the same call, initially an empty one. */
static uint64_t mapped_reach(uint64_t at, uint64_t size, uint64_t limit, unsigned access, struct vma *v)
{
	uint64_t to = at, end = at + size;
	int r;

	for (; to < end; to = v->end) {
		if (to < v->from || to >= v->end) {
			r = vma_at(to, limit, access, v);
			if (r < 0)
				return mapped_reach_old(at, size, access);
			if (!r)
				break;
		}
		if ((v->access & access) != access)
			break;
		/* The page below @limit is not backed, but this piece's last page may be. */
		if (v->sound < v->end && !page_sound((end < v->end ? end : v->end) - 1, access))
			break;
	}
	return (to < end ? to : end) - at;
}

/* Memory of a GPU, from its first byte to its last. */
static bool gpu_reaches(uint64_t at, uint64_t size)
{
	int gpu = mcpy_gpu_of((const void *)(uintptr_t)at);

	return gpu >= 0 && mcpy_gpu_of((const void *)(uintptr_t)(at + size - 1)) == gpu;
}

uint64_t mcpy_reach(uint64_t at, uint64_t size, unsigned access)
{
	struct vma v = { 0 };
	uint64_t page = page_size(), n;

	/* Exclude the last page of the address space, which is never mapped, so that sums do not overflow. */
	if (at + size < at || at + size > UINT64_MAX - page)
		size = UINT64_MAX - 2 * page > at ? UINT64_MAX - 2 * page - at : 0;
	n = size ? mapped_reach(at, size, at + size, access, &v) : 0;
	return n < size && gpu_reaches(at, size) ? size : n;
}

bool mcpy_all_reach(const struct iovec *iov, Py_ssize_t n, unsigned access)
{
	struct vma v = { 0 };
	uint64_t limit = 0, at, page = page_size();

	for (Py_ssize_t i = 0; i < n; i++) {
		at = (uint64_t)(uintptr_t)iov[i].iov_base;
		if (!iov[i].iov_len)
			continue;
		if (at + iov[i].iov_len < at || at + iov[i].iov_len > UINT64_MAX - page)
			return false;
		limit = at + iov[i].iov_len > limit ? at + iov[i].iov_len : limit;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (iov[i].iov_len && iov[i].iov_len >
		    mapped_reach((uintptr_t)iov[i].iov_base, iov[i].iov_len, limit, access, &v) &&
		    !gpu_reaches((uintptr_t)iov[i].iov_base, iov[i].iov_len))
			return false;
	return true;
}
