/* SPDX-License-Identifier: Apache-2.0
 * test_master_alloc_check.h - consistency check of an allocator. */
#ifndef TEST_MASTER_ALLOC_CHECK_H
#define TEST_MASTER_ALLOC_CHECK_H

#include "master/memory/alloc.h"

/* Check all records against each other. 0, or -MC_EINTERNAL with a detail of the contradiction. */
int mcm_alloc_check(const struct mcm_alloc *a);

#endif
