/* SPDX-License-Identifier: Apache-2.0
 * memory.c - files of clients' buffers, and their pages that do not exist yet. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/err.h"
#include "node/node_i.h"

#define PAGES 4096u		/* asked for at a time */

bool mcn_memory_is_present(const void *p, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p & ~(page - 1);
	uint64_t end = (uintptr_t)p + len, step;
	unsigned char present[PAGES];

	for (; len && at < end; at += step) {
		step = end - at < PAGES * page ? end - at : PAGES * page;
		if (mincore((void *)(uintptr_t)at, step, present) < 0)
			return false;
		for (uint64_t i = 0; i < (step + page - 1) / page; i++)
			if (!(present[i] & 1))
				return false;
	}
	return true;
}

int mcn_memory_check(int fd, uint64_t size, bool sealed)
{
	struct statfs fs;
	struct stat st;
	int seals;

	if (fd < 0)
		return mc_fail(-EINVAL, "a buffer without its descriptor");
	if (!mcn_is_memory(fd))
		return mc_fail(-EINVAL, "a buffer has to be a memfd");
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return mc_fail(-errno, "buffer: %s", mc_strerror(errno));
	if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
		return mc_fail(-EINVAL, "a buffer has to be a memfd of ordinary pages");
	if (!size || (uint64_t)st.st_size < size)
		return mc_fail(-EINVAL, "a buffer of %llu bytes in a file of %llu",
			       (unsigned long long)size, (unsigned long long)st.st_size);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && !(seals & F_SEAL_SHRINK) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		seals = fcntl(fd, F_GET_SEALS);
	if (sealed && (seals < 0 || !(seals & F_SEAL_SHRINK)))
		return mc_fail(-EINVAL, "a buffer has to be a memfd that cannot shrink");
	/* The client may have truncated the file before the seal. */
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < size)
		return mc_fail(-EINVAL, "the buffer's file was truncated");
	return 0;
}
