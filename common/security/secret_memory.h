/* SPDX-License-Identifier: Apache-2.0
 * secret_memory.h - memory for keys: pages of their own, locked, and not in core dumps. */
#ifndef MC_SECRET_MEMORY_H
#define MC_SECRET_MEMORY_H

#include <stddef.h>

/* @len bytes, all zero.  NULL with a detail.  Without the right to lock memory they can reach the swap space. */
void *mc_secret_alloc(size_t len);
/* Erase and free them; NULL is fine. */
void mc_secret_free(void *p, size_t len);

#endif
