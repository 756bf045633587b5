/* SPDX-License-Identifier: Apache-2.0
 * random.h - random bytes for ids and nonces. */
#ifndef MC_SYS_RANDOM_H
#define MC_SYS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* 64 random bits.  If the kernel refuses them, a value that is distinct, though not secret. */
uint64_t mc_random_u64(void);

/* Fill @buf, of at most 256 bytes.  0, or -errno with a detail: the kernel has no random numbers. */
int mc_random_bytes(void *buf, size_t len);

#endif
