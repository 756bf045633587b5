/* SPDX-License-Identifier: Apache-2.0
 * memory.c - pages of clients' buffers that do not exist yet. */
#include <config.h>

#include <sys/mman.h>
#include <unistd.h>

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
