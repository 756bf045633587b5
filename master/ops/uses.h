/* SPDX-License-Identifier: Apache-2.0
 * uses.h - reports what clients ask for, read and put to the part of the master that learns from it (learn/learn.h). */
#ifndef MCM_USES_H
#define MCM_USES_H

#include <stdint.h>

#include "master/learn/learn.h"

struct mcm;

/* Describe an object that has bytes and that a client asked for; its shard is locked. */
void mcm_uses_describe(struct mcm *m, uint32_t slot, struct mcm_asked *ret);
/* The keys of one request, in its order, up to MCM_CHAIN_MAX; no lock held. */
void mcm_uses_asked(struct mcm *m, const struct mcm_asked *keys, unsigned n);
/* Puts of up to MCM_PREFETCH_MAX keys with these hashes begin; those with @outcome 0. */
void mcm_uses_puts(struct mcm *m, const uint32_t *hash, unsigned n, const int *outcome);
/* The object's shard is locked: it is read; it was put; it leaves the pool; it left the memory and is on disks only. */
void mcm_uses_read(struct mcm *m, uint32_t slot);
void mcm_uses_put(struct mcm *m, uint32_t slot);
void mcm_uses_gone(struct mcm *m, uint32_t slot);
void mcm_uses_left_memory(struct mcm *m, uint32_t slot);

/* The object was restored, with the result of mcm_learn_describe() (0: none). */
void mcm_uses_restored(struct mcm *m, uint32_t slot, uint16_t traits, uint32_t age);
/* Keep the model with the state on disk, before a checkpoint; restore it when the master starts. */
void mcm_uses_save(struct mcm *m);
void mcm_uses_load(struct mcm *m);

#endif
