/* SPDX-License-Identifier: Apache-2.0
 * sim.h - a simulated pool of sampled keys with the policy `learn`.
 *
 * It evicts as the real policy does (space/evict_learn.c): of a few candidates that have no other key behind them
 * the one of the lowest value.  All functions are called under the sample's lock. */
#ifndef MCM_SIM_H
#define MCM_SIM_H

#include "master/learn/sample.h"

#define MCM_SAMPLE_KEYS 32768u

/* A sampled key; 0 is no key. */
struct mcm_sample_key {
	uint32_t hash;
	uint32_t next;			/* hash chain; free list */
	uint32_t newer, older;		/* neighbours in the order of the last use */
	uint32_t last;
	uint32_t granules;		/* 0: it was never put */
	uint32_t before;		/* the sampled key before it in its chain */
	uint16_t after[MCM_SIZES];	/* keys that are linked behind it, by simulated pool */
	uint8_t class, settled;		/* ages below it are counted as reached */
	uint8_t in_lru, in_sim;		/* bits of the pools that have it */
	uint8_t linked;			/* bits of the pools in which the one before it counts it */
	uint8_t listed;			/* bits of the pools that have it as a candidate */
};

#define MCM_SIM_POOL 16u

struct mcm_sim {
	unsigned nr;			/* its bit */
	uint64_t room, used;		/* granules */
	double hits;
	uint64_t random;
	uint32_t n, n_best;
	uint32_t best[MCM_SIM_POOL + 1];	/* the best candidates of earlier evictions */
	uint32_t candidate[MCM_SAMPLE_KEYS];
};

struct mcm_sim *mcm_sim_new(unsigned nr);
/* Add a key that the pool does not have, and evict others. */
void mcm_sim_add(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id, uint32_t now);
void mcm_sim_remove(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id);
/* The key @before is before @id, in all simulated pools. */
void mcm_sims_link(struct mcm_key_sample *s, uint32_t id, uint32_t before);

#endif
