/* SPDX-License-Identifier: Apache-2.0
 * full_pool.h - the part of perf_master with puts into a full pool. */
#ifndef FULL_POOL_H
#define FULL_POOL_H

#include <stdint.h>

/* Print the rows of pools of @objects objects.  @part: leased, segments or pinned; "": all of them. */
void perf_full(uint64_t objects, const char *part);

#endif
