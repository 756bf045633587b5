/* SPDX-License-Identifier: Apache-2.0
 * reachable.c - whether this process can access given memory at all. */
#include <config.h>

#include "common/process/reachable.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "common/err.h"

/* struct procmap_query of linux/fs.h, for the ioctl PROCMAP_QUERY of Linux 6.11 and later. */
struct query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define QUERY _IOWR('f', 17, struct query)
#define READABLE 1u
#define WRITABLE 2u

/* The end of the accessible memory that begins at @at, at most @end; -errno when the kernel has no such query. */
static int reach_by_query(int fd, uint64_t at, uint64_t end, uint64_t *ret)
{
	while (at < end) {
		struct query q = { .size = sizeof(q), .query_addr = at };

		if (ioctl(fd, QUERY, &q) < 0) {
			if (errno != ENOENT)
				return -errno;
			break;
		}
		if (!(q.vma_flags & (READABLE | WRITABLE)))
			break;
		at = q.vma_end;
	}
	*ret = at;
	return 0;
}

/* The same, from the text of /proc/self/maps, whose lines are in the order of addresses. */
static uint64_t reach_by_text(FILE *f, uint64_t at, uint64_t end)
{
	unsigned long long from, to;
	char line[512], r, w;

	while (at < end && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx %c%c", &from, &to, &r, &w) != 4 || to <= at)
			continue;
		if (from > at || (r != 'r' && w != 'w'))
			break;
		at = to;
	}
	return at;
}

int mc_reachable(const void *base, size_t len)
{
	uint64_t at = (uintptr_t)base, end = at + len, to = at;
	FILE *f;

	if (end < at)
		return mc_fail(-EFAULT, "%zu bytes at %p are more than the address space", len, base);
	f = fopen("/proc/self/maps", "re");
	if (!f)
		return 0;
	if (reach_by_query(fileno(f), at, end, &to) < 0)
		to = reach_by_text(f, at, end);
	fclose(f);
	if (to >= end)
		return 0;
	return mc_fail(-EFAULT, "this process cannot access the memory at 0x%llx: it is not mapped, protected, or a "
		       "GPU's whose driver (libcuda.so.1) this process has not loaded", (unsigned long long)to);
}
