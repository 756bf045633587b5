/* SPDX-License-Identifier: Apache-2.0
 * dram.h - the tier "dram": one shared file in memory, mapped once, on huge pages where possible.
 *
 * Kinds:
 *	"auto" (default): "tmpfs", or "memfd" where that fails
 *	"tmpfs": file on a private tmpfs, mounted with huge=always and never attached to a path, so that it
 *		vanishes with the last descriptor; needs CAP_SYS_ADMIN
 *	"memfd": memfd with MADV_HUGEPAGE
 *	"hugetlb": memfd of reserved huge pages; also the reserve is allocated at once
 * The size is rounded up to 2 MiB; a reserve costs address space only, except for "hugetlb".
 *
 * With the path of a DAX device, the kind is ignored: @size bytes of the device from path_offset on, or all if it is 0;
 * both are multiples of the device's alignment, at least 2 MiB.  One process at a time (common/dax.h).
 *
 * With another path the kind is ignored: @size is rounded down to 2 MiB, the file has that many bytes from
 * path_offset on, and its blocks are allocated at once and overwritten.  If another process truncates the file,
 * this process crashes (SIGBUS). */
#ifndef MCT_DRAM_H
#define MCT_DRAM_H

#include "tiers/tier.h"

extern const struct mct_tier_ops mct_dram_tier;

#endif
