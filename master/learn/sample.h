/* SPDX-License-Identifier: Apache-2.0
 * sample.h - a sample of the keys, chosen by their hashes, with all uses of these keys (SHARDS; Waldspurger et al.,
 * FAST 2015).
 *
 * The sample is a directory of the sampled keys used last, whether the pool has them or not.  On it the model
 * learns, and simulated pools of several sizes run, as much smaller than real ones as the sample is smaller than all
 * keys: with LRU for all sizes at once, because a larger LRU pool has all that a smaller one has, and with the policy
 * `learn` for each size (sim.h).  The rate of sampling halves when the pool gets more objects, so that memory and
 * work stay bounded.
 *
 * One lock, a leaf.  Everything is a function of the sequence of calls: with one client the results are the same in
 * each run. */
#ifndef MCM_SAMPLE_H
#define MCM_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/learn/model.h"

#define MCM_SIZES 4u		/* pool sizes of the curve: MCM_SIZE_FACTORS times the present one */
#define MCM_SIZE_FACTORS { 0.5, 1, 2, 4 }
#define MCM_SIZE_NOW 1u		/* index of factor 1 */

struct mcm_sample_key;
struct mcm_sim;

/* LRU pools of all sizes: memory, then disks. */
#define MCM_LRU_SIZES (2 * MCM_SIZES)

struct mcm_lru {
	uint64_t room, used;	/* granules */
	uint32_t oldest;	/* key that leaves it next, 0: it is empty */
	double hits;
};

struct mcm_key_sample {
	bool simulates;			/* also the policy `learn` */
	/* atomic */
	uint32_t shift;			/* one of 2^shift keys is sampled */
	bool behind;			/* LRU has more hits than `learn` */
	struct mcm_model model;		/* its values are atomic, its counts guarded by the lock */
	struct mc_mutex lock;
	/* guarded by the lock */
	uint64_t memory, disk, objects;	/* bytes and (roughly) objects of the real pool */
	struct mcm_sample_key *key;	/* 0: the head of the list by last use */
	uint32_t *bucket;
	uint32_t keys, free, swept;
	uint32_t rest;			/* sampled uses until the model learns again */
	uint32_t period;
	struct mcm_lru lru[MCM_LRU_SIZES];
	struct mcm_sim *sim[MCM_SIZES];
	double uses, known;		/* sampled uses; those of keys that were put before */
	double expected;		/* uses of all keys times the rate, up to clock */
	uint64_t clock;
	double duel_lru, duel_learn;	/* hits of both policies, recent ones count most */
};

/* A batch of uses, in the order of the chain. */
struct mcm_sampled {
	bool locked;
	uint32_t before;	/* the last sampled key, 0: none */
};

struct mcm_sample_use {
	uint32_t hash, now;
	bool there;		/* the real pool has the key */
	uint8_t class;
	uint64_t size;		/* bytes, if it has */
};

/* Hit ratios 0..1. */
struct mcm_curve {
	double lru[MCM_LRU_SIZES];	/* memory, then disks */
	double learn[MCM_SIZES];
	double endless;			/* no key that was put is ever evicted, of those that the sample remembers */
	uint64_t uses;			/* sampled uses on which it is based */
	double rate;			/* share of the keys that are sampled */
	bool behind;			/* the pool uses LRU at the moment */
};

int mcm_sample_init(struct mcm_key_sample *s, bool simulates);
void mcm_sample_done(struct mcm_key_sample *s);

static inline bool mcm_sample_has(const struct mcm_key_sample *s, uint32_t hash)
{
	/* Not the bits that select a bucket or shard of the index. */
	uint32_t mixed = (hash * 0x85ebca6bu ^ hash >> 15) * 0xc2b2ae35u;

	return mixed >> (32 - __atomic_load_n(&s->shift, __ATOMIC_RELAXED)) == 0;
}

/* Sizes of the real pool: bytes that objects may use, and objects. */
bool mcm_sample_crowded(const struct mcm_key_sample *s, uint64_t objects);	/* the rate must fall */
void mcm_sample_pool(struct mcm_key_sample *s, uint64_t memory, uint64_t disk, uint64_t objects);

/* A sampled key is used.  @b: zero before the first key of a batch; mcm_sample_end() after the last one. */
void mcm_sample_use(struct mcm_key_sample *s, struct mcm_sampled *b, const struct mcm_sample_use *u);
/* The same for several keys, whose records are prefetched together. */
void mcm_sample_use_many(struct mcm_key_sample *s, struct mcm_sampled *b, const struct mcm_sample_use *u, unsigned n);
/* @clock: uses of all keys so far. */
void mcm_sample_end(struct mcm_key_sample *s, struct mcm_sampled *b, uint64_t clock);
/* A sampled key is put. */
void mcm_sample_put(struct mcm_key_sample *s, uint32_t hash, uint64_t size);

static inline bool mcm_sample_ahead(const struct mcm_key_sample *s)
{
	return !__atomic_load_n(&s->behind, __ATOMIC_RELAXED);
}

void mcm_sample_curve(struct mcm_key_sample *s, uint64_t clock, struct mcm_curve *ret);
/* Copy the model's counts, which are saved with the master's state, out or in. */
void mcm_sample_save(struct mcm_key_sample *s, unsigned class, float ret_reached[MCM_AGE_BINS],
		     float ret_used[MCM_AGE_BINS]);
void mcm_sample_load(struct mcm_key_sample *s, unsigned class, const float reached[MCM_AGE_BINS],
		     const float used[MCM_AGE_BINS]);
/* All classes are loaded: compute the values. */
void mcm_sample_loaded(struct mcm_key_sample *s);

#endif
