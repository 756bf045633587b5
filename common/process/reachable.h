/* SPDX-License-Identifier: Apache-2.0
 * reachable.h - whether this process can access given memory at all. */
#ifndef MC_REACHABLE_H
#define MC_REACHABLE_H

#include <stddef.h>

/* 0: every page of the @len bytes at @base is mapped and can be read or written.  -EFAULT, with the first address that
 * cannot, for memory that no transfer can touch: not mapped, protected (PROT_NONE), or a device's.  0 also when the
 * kernel does not tell, without /proc.  Accesses no page.  One system call per mapping from Linux 6.11 on, on older
 * kernels one pass over /proc/self/maps.  Any thread. */
int mc_reachable(const void *base, size_t len);

#endif
