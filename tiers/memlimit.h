/* SPDX-License-Identifier: Apache-2.0
 * memlimit.h - how much memory this process can still get. */
#ifndef MCT_MEMLIMIT_H
#define MCT_MEMLIMIT_H

#include <stdint.h>

/* Bytes that can be had without swapping: the machine's MemAvailable and what every memory cgroup
 * above this process leaves, whichever is least; UINT64_MAX when the system does not tell.
 * *ret_by names the limit in force (static). */
uint64_t mct_mem_available(const char **ret_by);

/* Bytes of free, unreserved 2 MiB huge pages. */
uint64_t mct_hugetlb_free(void);

/* Parsers, apart for tests.  mct_stat_value: the number behind line "<key> N" of @text, 0 if absent. */
uint64_t mct_stat_value(const char *text, const char *key);

#endif
