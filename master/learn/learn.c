/* SPDX-License-Identifier: Apache-2.0
 * learn.c - traits of objects and ghosts, chains. */
#include <config.h>

#include "master/learn/learn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define HUB_ENDS 8u
#define MOST 3u			/* largest value of turns, uses and lengths */
#define AFTER_MAX 60000u	/* no object is linked behind one that has that many behind it */
#define LEAVES 31u
#define LEAVES_SHIFT 8
#define YOUNG 4u		/* steps */
#define OBJECTS_MORE 256u
#define SAMPLED_TOGETHER 32u	/* keys whose records are prefetched together */

/* Traits. */
#define TURN_SHIFT 0
#define NOW_SHIFT 2
#define USES_SHIFT 4
#define LENGTH_SHIFT 6
#define ENDS_SHIFT 8
#define ENDS_MOST 15u
#define ASKED 0x1000u		/* a client asked for it, and has not read or put it since */

#define RECENT_BITS 14u		/* log2 of the entries */

/* Keys that were put or found lately, by hash: hash << 32 | slot, atomic.  A key that is put finds the object of the
 * key before it here. */
struct mcm_recent {
	uint64_t entry[1u << RECENT_BITS];
};

struct mcm_leaves {
	uint32_t added;		/* atomic */
	uint32_t taken;
	uint32_t slot[LEAVES + 1];	/* atomic */
};

#define load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define store(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

int mcm_learn_init(struct mcm_learn *l, bool tracks)
{
	int r;

	memset(l, 0, sizeof(*l));
	l->tracks = tracks;
	mcm_slab_init(&l->learned, sizeof(struct mcm_learned), MCM_LEARNED_SHIFT);
	mcm_slab_init(&l->leaves, sizeof(struct mcm_leaves), LEAVES_SHIFT);
	r = mcm_sample_init(&l->sample, tracks);
	if (r == 0)
		r = mcm_ghosts_init(&l->ghosts);
	if (r == 0 && tracks) {
		l->recent = calloc(1, sizeof(*l->recent));
		if (!l->recent)
			r = -ENOMEM;
	}
	return r;
}

void mcm_learn_done(struct mcm_learn *l)
{
	free(l->recent);
	mcm_ghosts_done(&l->ghosts);
	mcm_sample_done(&l->sample);
	mcm_slab_done(&l->leaves);
	mcm_slab_done(&l->learned);
}

void mcm_learn_pool(struct mcm_learn *l, uint64_t memory, uint64_t disk)
{
	uint64_t objects = load(&l->objects);

	if (memory == load(&l->memory) && disk == load(&l->disk) && !mcm_sample_crowded(&l->sample, objects) &&
	    objects / 2 < load(&l->objects_told))
		return;
	store(&l->memory, memory);
	store(&l->disk, disk);
	store(&l->objects_told, objects + OBJECTS_MORE);
	mcm_sample_pool(&l->sample, memory, disk, objects);
}

int mcm_learn_cover(struct mcm_learn *l, uint32_t slot)
{
	return l->tracks ? mcm_slab_cover(&l->learned, slot) : 0;
}

static struct mcm_learned *learn_record(const struct mcm_learn *l, uint32_t slot)
{
	return mcm_slab_get(&l->learned, slot, sizeof(struct mcm_learned), MCM_LEARNED_SHIFT);
}

static uint32_t clock_now(const struct mcm_learn *l)
{
	return (uint32_t)(load(&l->clock) >> MCM_CLOCK_SHIFT);
}

/* ---- traits ---- */

static unsigned trait_of(uint16_t traits, unsigned shift)
{
	return traits >> shift & MOST;
}

static unsigned trait_ends(uint16_t traits)
{
	return traits >> ENDS_SHIFT & ENDS_MOST;
}

static unsigned class_of(uint16_t traits)
{
	if (trait_ends(traits) > HUB_ENDS)
		return MCM_CLASSES - 1;
	return (trait_of(traits, NOW_SHIFT) * (MOST + 1) + trait_of(traits, LENGTH_SHIFT)) * (MOST + 1) +
	       trait_of(traits, USES_SHIFT);
}

static unsigned at_most(unsigned n, unsigned most)
{
	return n < most ? n : most;
}

static unsigned length_of(unsigned n)
{
	return n <= 4 ? 0 : n <= 16 ? 1 : n <= 64 ? 2 : MOST;
}

/* The part of the traits that all keys of a chain have in common after its use. */
static uint16_t traits_chain(unsigned now, unsigned length)
{
	return (uint16_t)(now << NOW_SHIFT | length << LENGTH_SHIFT | ASKED);
}

/* Traits of a key, which had @traits (0: it was not known), after a use in a chain. */
static uint16_t traits_used(uint16_t traits, uint16_t chain)
{
	unsigned kept = traits & (MOST << TURN_SHIFT | ENDS_MOST << ENDS_SHIFT);

	if (!traits)
		return (uint16_t)(chain | trait_of(chain, NOW_SHIFT) << TURN_SHIFT | 1u << USES_SHIFT);
	return (uint16_t)(chain | kept | at_most(trait_of(traits, USES_SHIFT) + 1, MOST) << USES_SHIFT);
}

/* ---- chains ---- */

static uint32_t link_slot(uint64_t link)
{
	return (uint32_t)link;
}

static uint16_t link_life(uint64_t link)
{
	return (uint16_t)(link >> 32);
}

static uint16_t own_life(const struct mcm_learned *o)
{
	return (uint16_t)(load(&o->link) >> 48);
}

/* The slot of the object before @o, if it still is that object; else 0. */
static uint32_t before_of(const struct mcm_learn *l, const struct mcm_learned *o)
{
	uint64_t link = load(&o->link);
	uint32_t slot = link_slot(link);

	return slot && own_life(learn_record(l, slot)) == link_life(link) ? slot : 0;
}

/* Is @o linked behind the object in slot @before, whose record is @b? */
static bool is_behind(const struct mcm_learned *o, uint32_t before, const struct mcm_learned *b)
{
	uint64_t link = load(&o->link);

	return link_slot(link) == before && link_life(link) == own_life(b);
}

/* Replace the object before @o; the counts of both change.  Links lead to objects that were put earlier, so they make
 * no circle.  Returns the previous one, if it has no other behind it now. */
static uint32_t link_before(struct mcm_learn *l, struct mcm_learned *o, uint32_t before)
{
	uint64_t old = load(&o->link), link;
	struct mcm_learned *b;

	if (before_of(l, o) == before)
		return 0;
	if (before && load(&learn_record(l, before)->after) >= AFTER_MAX)
		before = 0;
	if (before)
		__atomic_fetch_add(&learn_record(l, before)->after, 1, __ATOMIC_RELAXED);
	do
		link = (old >> 48) << 48 | (uint64_t)(before ? own_life(learn_record(l, before)) : 0) << 32 | before;
	while (!__atomic_compare_exchange_n(&o->link, &old, link, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (!link_slot(old))
		return 0;
	b = learn_record(l, link_slot(old));
	if (own_life(b) != link_life(old))
		return 0;
	return __atomic_sub_fetch(&b->after, 1, __ATOMIC_RELAXED) == 0 ? link_slot(old) : 0;
}

/* A new object in the slot, behind the one in slot @before, 0: none.  Links to the slot's previous object are void. */
static void new_life(const struct mcm_learn *l, struct mcm_learned *o, uint32_t before)
{
	uint64_t link = (uint64_t)(uint16_t)(own_life(o) + 1) << 48;
	struct mcm_learned *b = before ? learn_record(l, before) : NULL;

	if (b && load(&b->after) < AFTER_MAX) {
		__atomic_fetch_add(&b->after, 1, __ATOMIC_RELAXED);
		link |= (uint64_t)own_life(b) << 32 | before;
	}
	store(&o->link, link);
	store(&o->after, 0);
}

static uint64_t *recent_of(const struct mcm_learn *l, uint32_t hash)
{
	return &l->recent->entry[hash * 0x9e3779b1u >> (32 - RECENT_BITS)];
}

static void recent_add(struct mcm_learn *l, uint32_t hash, uint32_t slot)
{
	store(recent_of(l, hash), (uint64_t)hash << 32 | slot);
}

static uint32_t recent_find(const struct mcm_learn *l, uint32_t hash)
{
	uint64_t e = load(recent_of(l, hash));

	return hash && e >> 32 == hash ? (uint32_t)e : 0;
}

/* The traits of each key, 0: it is not known. */
static void chain_traits(const struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, uint16_t *ret)
{
	struct mcm_ghost ghost;

	for (unsigned i = 0; i < n; i++) {
		if (keys[i].slot)
			ret[i] = load(&learn_record(l, keys[i].slot)->traits);
		else
			ret[i] = mcm_ghosts_find(&l->ghosts, keys[i].hash, &ghost) ? ghost.traits : 0;
	}
}

/* The turn of the conversation that the chain is; one more chain ends at its last known key. */
static unsigned chain_turn(uint16_t *traits, unsigned n)
{
	unsigned known = 0, ends;

	while (known < n && traits[known])
		known++;
	if (!known)
		return 1;
	ends = at_most(trait_ends(traits[known - 1]) + 1, ENDS_MOST);
	traits[known - 1] = (uint16_t)((traits[known - 1] & ~(ENDS_MOST << ENDS_SHIFT)) | ends << ENDS_SHIFT);
	return ends > HUB_ENDS ? 1 : at_most(trait_of(traits[known - 1], TURN_SHIFT) + 1, MOST);
}

static void left_add(struct mcm_left *left, uint32_t slot)
{
	if (slot && left && left->n < MCM_LEFT_MAX)
		left->slot[left->n++] = slot;
}

/* The pool does not have the key. */
static void chain_use_ghost(struct mcm_learn *l, const struct mcm_asked *key, const struct mcm_asked *before,
			    uint32_t now, uint16_t traits)
{
	struct mcm_ghost ghost = { now, before ? before->hash : 0, traits };

	mcm_ghosts_add(&l->ghosts, key->hash, &ghost, now);
	if (l->tracks && before && before->slot)
		recent_add(l, before->hash, before->slot);
}

static void chain_use(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, uint32_t now, uint16_t *traits,
		      struct mcm_left *left)
{
	uint16_t chain = traits_chain(chain_turn(traits, n), length_of(n));
	struct mcm_learned *o, *before = NULL;

	for (unsigned i = 0; i < n; i++, before = o) {
		traits[i] = traits_used(traits[i], chain);
		o = NULL;
		if (!keys[i].slot) {
			chain_use_ghost(l, &keys[i], i ? &keys[i - 1] : NULL, now, traits[i]);
			continue;
		}
		o = learn_record(l, keys[i].slot);
		store(&o->last, now);
		store(&o->traits, traits[i]);
		if (before && !is_behind(o, keys[i - 1].slot, before) && keys[i - 1].generation < keys[i].generation)
			left_add(left, link_before(l, o, keys[i - 1].slot));
	}
}

/* Without traits, only ghosts of sampled keys are remembered. */
static void chain_use_sampled(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, uint32_t now)
{
	uint16_t traits = traits_used(0, traits_chain(1, length_of(n)));

	for (unsigned i = 0; i < n; i++)
		if (!keys[i].slot && mcm_sample_has(&l->sample, keys[i].hash))
			chain_use_ghost(l, &keys[i], i ? &keys[i - 1] : NULL, now, traits);
}

/* Tell the sample; @traits NULL: there are none. */
static void chain_sample(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, uint32_t now,
			 const uint16_t *traits)
{
	struct mcm_sample_use use[SAMPLED_TOGETHER];
	struct mcm_sampled s = { 0 };
	unsigned found = 0, k = 0;

	for (unsigned i = 0; i < n; i++) {
		found += keys[i].slot != 0;
		if (!mcm_sample_has(&l->sample, keys[i].hash))
			continue;
		use[k++] = (struct mcm_sample_use){
			.hash = keys[i].hash, .now = now, .there = keys[i].slot != 0, .size = keys[i].size,
			.class = traits ? (uint8_t)class_of(traits[i]) : 0,
		};
		if (k == SAMPLED_TOGETHER) {
			mcm_sample_use_many(&l->sample, &s, use, k);
			k = 0;
		}
	}
	mcm_sample_use_many(&l->sample, &s, use, k);
	if (found)
		__atomic_fetch_add(&l->found, found, __ATOMIC_RELAXED);
	mcm_sample_end(&l->sample, &s, load(&l->clock));
}

void mcm_learn_asked(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n, struct mcm_left *left)
{
	uint32_t now = (uint32_t)(__atomic_fetch_add(&l->clock, n, __ATOMIC_RELAXED) >> MCM_CLOCK_SHIFT);
	uint16_t traits[MCM_CHAIN_MAX];

	if (l->tracks) {
		chain_traits(l, keys, n, traits);
		chain_use(l, keys, n, now, traits, left);
	} else {
		chain_use_sampled(l, keys, n, now);
	}
	chain_sample(l, keys, n, now, l->tracks ? traits : NULL);
}

void mcm_learn_puts(struct mcm_learn *l, const struct mcm_asked *keys, unsigned n)
{
	struct mcm_ghost ghost;

	bool asked = !l->tracks && load(&l->puts_asked);
	unsigned i = 0;

	/* Without traits, only sampled keys are remembered. */
	while (!l->tracks && i < n && !mcm_sample_has(&l->sample, keys[i].hash))
		i++;
	if (i < n) {
		asked = mcm_ghosts_find(&l->ghosts, keys[i].hash, &ghost) && ghost.traits & ASKED;
		store(&l->puts_asked, asked);
	}
	if (n && !asked)
		mcm_learn_asked(l, keys, n, NULL);
}

void mcm_learn_read(struct mcm_learn *l, const struct mcm_asked *key)
{
	struct mcm_sampled s = { 0 };
	struct mcm_learned *o;
	uint16_t traits = 0;
	uint64_t clock;

	if (!l->tracks)
		return;
	o = learn_record(l, key->slot);
	traits = load(&o->traits);
	if (traits & ASKED) {
		store(&o->traits, (uint16_t)(traits & ~ASKED));
		return;
	}
	clock = __atomic_add_fetch(&l->clock, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&l->found, 1, __ATOMIC_RELAXED);
	traits = traits_used(traits, traits_chain(traits ? trait_of(traits, NOW_SHIFT) : 1,
						  trait_of(traits, LENGTH_SHIFT)));
	traits &= (uint16_t)~ASKED;
	store(&o->traits, traits);
	store(&o->last, (uint32_t)(clock >> MCM_CLOCK_SHIFT));
	if (mcm_sample_has(&l->sample, key->hash))
		mcm_sample_use(&l->sample, &s, &(struct mcm_sample_use){
			.hash = key->hash, .now = (uint32_t)(clock >> MCM_CLOCK_SHIFT), .there = true,
			.size = key->size, .class = (uint8_t)class_of(traits),
		});
	mcm_sample_end(&l->sample, &s, clock);
}

void mcm_learn_put(struct mcm_learn *l, const struct mcm_asked *key)
{
	struct mcm_ghost ghost = { clock_now(l), 0, traits_used(0, traits_chain(1, 0)) };
	bool sampled = mcm_sample_has(&l->sample, key->hash);
	struct mcm_learned *o;

	__atomic_fetch_add(&l->objects, 1, __ATOMIC_RELAXED);
	if (l->tracks || sampled)
		(void)mcm_ghosts_take(&l->ghosts, key->hash, &ghost);
	if (l->tracks) {
		o = learn_record(l, key->slot);
		new_life(l, o, recent_find(l, ghost.before));
		store(&o->last, ghost.last);
		store(&o->traits, (uint16_t)(ghost.traits & ~ASKED));
		recent_add(l, key->hash, key->slot);
	}
	if (sampled)
		mcm_sample_put(&l->sample, key->hash, key->size);
}

uint32_t mcm_learn_left(struct mcm_learn *l, uint32_t slot)
{
	return l->tracks ? link_before(l, learn_record(l, slot), 0) : 0;
}

void mcm_learn_gone(struct mcm_learn *l, uint32_t slot, uint32_t hash)
{
	const struct mcm_learned *o;

	if (hash)
		__atomic_fetch_sub(&l->objects, 1, __ATOMIC_RELAXED);
	if (!hash || !l->tracks)
		return;
	if (recent_find(l, hash) == slot)
		recent_add(l, hash, 0);
	o = learn_record(l, slot);
	mcm_ghosts_add(&l->ghosts, hash, &(struct mcm_ghost){ load(&o->last), 0, load(&o->traits) & (uint16_t)~ASKED },
		       clock_now(l));
}

static uint32_t age_of(const struct mcm_learn *l, const struct mcm_learned *o)
{
	return mcm_model_age(clock_now(l), load(&o->last));
}

void mcm_learn_describe(const struct mcm_learn *l, uint32_t slot, uint16_t *ret_traits, uint32_t *ret_age)
{
	*ret_traits = l->tracks ? load(&learn_record(l, slot)->traits) & (uint16_t)~ASKED : 0;
	*ret_age = *ret_traits ? age_of(l, learn_record(l, slot)) : 0;
}

void mcm_learn_restored(struct mcm_learn *l, uint32_t slot, uint16_t traits, uint32_t age)
{
	__atomic_fetch_add(&l->objects, 1, __ATOMIC_RELAXED);
	if (!l->tracks)
		return;
	store(&learn_record(l, slot)->traits, traits);
	store(&learn_record(l, slot)->last, clock_now(l) - age);
}

/* ---- for the policy ---- */

bool mcm_learn_inner(const struct mcm_learn *l, uint32_t slot)
{
	return load(&learn_record(l, slot)->after) != 0;
}

bool mcm_learn_ahead(const struct mcm_learn *l)
{
	return mcm_sample_ahead(&l->sample);
}

float mcm_learn_value(const struct mcm_learn *l, uint32_t slot, uint64_t granules, bool by_age)
{
	const struct mcm_learned *o = learn_record(l, slot);
	uint32_t age = age_of(l, o);

	if (by_age)
		return 1 / ((float)age + 1);
	return mcm_model_value(&l->sample.model, class_of(load(&o->traits)), age) / (float)granules;
}

bool mcm_learn_young(const struct mcm_learn *l, uint32_t slot)
{
	return age_of(l, learn_record(l, slot)) < YOUNG;
}

uint32_t mcm_learn_before(const struct mcm_learn *l, uint32_t slot)
{
	return before_of(l, learn_record(l, slot));
}

bool mcm_learn_only_one(const struct mcm_learn *l, uint32_t before)
{
	return load(&learn_record(l, before)->after) == 1;
}

/* NULL: it is not covered. */
static struct mcm_leaves *leaves_of(const struct mcm_learn *l, uint16_t segment)
{
	uint32_t chunk = (segment + 1u) >> LEAVES_SHIFT;

	if (chunk >= __atomic_load_n(&l->leaves.chunks, __ATOMIC_ACQUIRE) ||
	    !mcm_slab_at(&l->leaves, chunk << LEAVES_SHIFT))
		return NULL;
	return mcm_slab_at(&l->leaves, segment + 1u);
}

int mcm_leaves_cover(struct mcm_learn *l, uint16_t segment)
{
	return mcm_slab_cover(&l->leaves, segment + 1u);
}

void mcm_leaves_add(struct mcm_learn *l, uint16_t segment, uint32_t slot)
{
	struct mcm_leaves *f = leaves_of(l, segment);

	if (f)
		store(&f->slot[__atomic_fetch_add(&f->added, 1, __ATOMIC_RELAXED) & LEAVES], slot);
}

uint32_t mcm_leaves_take(struct mcm_learn *l, uint16_t segment)
{
	struct mcm_leaves *f = leaves_of(l, segment);
	uint32_t added = load(&f->added);

	if (f->taken == added)
		return 0;
	if (added - f->taken > LEAVES)
		f->taken = added - LEAVES;
	return load(&f->slot[f->taken++ & LEAVES]);
}
