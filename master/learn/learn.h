/* SPDX-License-Identifier: Apache-2.0
 * learn.h - the use of keys, from which the master learns for the policy `learn` and for the curve of hit ratios.
 *
 * Inference engines ask for the blocks of a request in one batch, in the order of the text: the keys of a batch are
 * a chain, in which each block extends the one before it.  Which turn of a conversation a request is, and how long
 * it is, says more about its next use than how often a key was used.  So each key has traits:
 *
 *	turn	of the conversation in which the key was first put: one more than that of the last block before the
 *		new ones that was known, 1 without one; 3 means three or more, as for the other numbers
 *	now	turn of the request that used it last
 *	uses	number of requests that used it
 *	length	of the chain that used it last: up to 4, 16, 64 keys, or more
 *	ends	number of chains whose known part ended at this key; with more than HUB_ENDS it is a hub, such as the
 *		last block of a system prompt, from which conversations begin
 *
 * Time is the number of keys asked for, in steps of 2^MCM_CLOCK_SHIFT: replaying the same requests faster or slower
 * gives the same results.
 *
 * Threads: all functions may be called by several threads at once, under any lock of the master but the journal's.
 * Records and ghosts are relaxed atomics; races cost a wrong guess, never more.  Sample and simulations have a lock,
 * which is a leaf. */
#ifndef MCM_LEARN_H
#define MCM_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "master/learn/ghosts.h"
#include "master/learn/model.h"
#include "master/learn/sample.h"
#include "master/memory/slab.h"

#define MCM_CLOCK_SHIFT 4
#define MCM_CHAIN_MAX 2048u	/* keys of one call */

/* The use of an object, by its slot. */
struct mcm_learned {
	/* Slot of the object before it in its chain, 0: none; 16 bits: life of that slot then; 16 bits: life of this
	 * one.  The life of a slot is the number of its object: a link to an earlier object of a slot is void. */
	uint64_t link;
	uint32_t last;		/* last use */
	uint16_t after;		/* objects that have this one before them */
	uint16_t traits;
};
_Static_assert(sizeof(struct mcm_learned) == 16, "at most 16 bytes per object");
#define MCM_LEARNED_SHIFT 18	/* 4 MiB */

struct mcm_leaves;
struct mcm_recent;

struct mcm_learn {
	/* constant after initialisation */
	bool tracks;			/* the policy is `learn`: objects have traits; else there is only the sample */
	struct mcm_slab learned;	/* struct mcm_learned, by slot */
	struct mcm_slab leaves;		/* struct mcm_leaves, by number of the segment + 1 */
	struct mcm_ghosts ghosts;
	struct mcm_recent *recent;
	struct mcm_key_sample sample;
	/* atomic */
	uint64_t clock;			/* keys asked for */
	uint64_t found;			/* keys asked for that the pool had */
	uint64_t objects;		/* with bytes, in the pool */
	bool puts_asked;		/* clients ask for keys before they put them */
	uint64_t memory, disk, objects_told;	/* as of the last mcm_learn_pool() that did something */
};

struct mcm_asked {
	uint32_t hash, slot;	/* hash of the key, and slot of its object; slot 0: the pool does not have it */
	/* if there is an object: bytes that it occupies, if the key is sampled; a larger number if it was put later
	 * than another */
	uint64_t size, generation;
};

/* @tracks: for the policy `learn`.  -ENOMEM. */
int mcm_learn_init(struct mcm_learn *l, bool tracks);
void mcm_learn_done(struct mcm_learn *l);

/* Bytes that the objects of a full pool may use, in memory and on disks.  Cheap if nothing has changed. */
void mcm_learn_pool(struct mcm_learn *l, uint64_t memory, uint64_t disk);
/* Whether the key is sampled: only then its size is used. */
static inline bool mcm_learn_samples(const struct mcm_learn *l, uint32_t hash)
{
	return mcm_sample_has(&l->sample, hash);
}

/* Make room for the record of an object.  -ENOMEM. */
int mcm_learn_cover(struct mcm_learn *l, uint32_t slot);

/* The next calls use this key. */
static inline void mcm_learn_prefetch(const struct mcm_learn *l, uint32_t hash)
{
	if (l->tracks)
		mcm_ghosts_prefetch(&l->ghosts, hash);
}

/* The next calls use this object, which may not be covered yet. */
static inline void mcm_learn_prefetch_object(const struct mcm_learn *l, uint32_t slot)
{
	if (l->tracks && slot >> MCM_LEARNED_SHIFT < __atomic_load_n(&l->learned.chunks, __ATOMIC_ACQUIRE))
		__builtin_prefetch(mcm_slab_get(&l->learned, slot, sizeof(struct mcm_learned), MCM_LEARNED_SHIFT), 1);
}

/* Objects that have no other behind them any more, because those are in another chain now. */
#define MCM_LEFT_MAX 8u
struct mcm_left {
	uint32_t slot[MCM_LEFT_MAX];
	unsigned n;
};
/* A client asked for these keys, in this order; at most MCM_CHAIN_MAX.  @left: NULL, or some are added.  The caller
 * has prefetched each object, or the key that has none, as soon as it knew it. */
void mcm_learn_asked(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, struct mcm_left *left);
/* A client begins to put keys.  If it did not ask for them before, they are a chain that it asks for now. */
void mcm_learn_puts(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n);
/* A client reads an object; if it asked for it before, that was the use.  Not counted with other policies. */
void mcm_learn_read(struct mcm_learn *l, const struct mcm_asked *key);
/* A key was put; its object is covered.  The object's shard is locked. */
void mcm_learn_put(struct mcm_learn *l, const struct mcm_asked *key);
/* The object leaves the pool, or the pool's memory.  Returns the slot of the object before it if that has no other
 * object behind it now, else 0. */
uint32_t mcm_learn_left(struct mcm_learn *l, uint32_t slot);
/* The pool does not have the key any more; @hash 0: it is forgotten. */
void mcm_learn_gone(struct mcm_learn *l, uint32_t slot, uint32_t hash);

/* Traits and age of an object, to be stored; and back, before the first use. */
void mcm_learn_describe(const struct mcm_learn *l, uint32_t slot, uint16_t *ret_traits, uint32_t *ret_age);
void mcm_learn_restored(struct mcm_learn *l, uint32_t slot, uint16_t traits, uint32_t age);

/* ---- for the policy ---- */

/* Whether another object of the pool's memory is behind this one in a chain. */
bool mcm_learn_inner(const struct mcm_learn *l, uint32_t slot);
/* Whether the policy `learn` has more hits than LRU on the sampled keys. */
bool mcm_learn_ahead(const struct mcm_learn *l);
/* The value of the object, which occupies @granules; @by_age: as for LRU, the younger the higher. */
float mcm_learn_value(const struct mcm_learn *l, uint32_t slot, uint64_t granules, bool by_age);
/* The object was used just now: the client may be putting those behind it. */
bool mcm_learn_young(const struct mcm_learn *l, uint32_t slot);
uint32_t mcm_learn_before(const struct mcm_learn *l, uint32_t slot);
/* The object before this one has no other behind it. */
bool mcm_learn_only_one(const struct mcm_learn *l, uint32_t before);

/* Objects of a segment that have no other behind them any more: a ring, in which old ones are lost. */
int mcm_leaves_cover(struct mcm_learn *l, uint16_t segment);
/* Nothing happens if the segment has another policy. */
void mcm_leaves_add(struct mcm_learn *l, uint16_t segment, uint32_t slot);
/* Take one; 0: there is none.  One thread at a time per segment. */
uint32_t mcm_leaves_take(struct mcm_learn *l, uint16_t segment);

#endif
