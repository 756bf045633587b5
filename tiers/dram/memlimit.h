/* SPDX-License-Identifier: Apache-2.0
 * memlimit.h - amount of memory that this process can still allocate. */
#ifndef MCT_MEMLIMIT_H
#define MCT_MEMLIMIT_H

#include <stdint.h>

/* Bytes available without swapping: the smallest of the machine's MemAvailable and the amounts left in each
 * memory cgroup of this process; UINT64_MAX when the system does not say.  *ret_by names the limit that
 * applies (static). */
uint64_t mct_mem_available(const char **ret_by);

/* Bytes of free, unreserved 2 MiB huge pages. */
uint64_t mct_hugetlb_free(void);

/* Bytes available on a NUMA node, free ones and page cache.  UINT64_MAX: the system does not say.  0: there is no such
 * node. */
uint64_t mct_node_available(int node);

/* The number in the line "KEY N" or "KEY: N" of @text, 0 without such a line.  Public for tests. */
uint64_t mct_stat_value(const char *text, const char *key);

#endif
