/* SPDX-License-Identifier: Apache-2.0
 * sample.c - directory of the sampled keys: uses, LRU of several sizes, learning. */
#include <config.h>

#include "master/learn/sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/learn/sim.h"

#define SHIFT_FIRST 2u
#define SHIFT_MAX 24u
#define BUCKETS MCM_SAMPLE_KEYS
#define REMEMBERED 8u		/* the directory has that many times the keys of the pool, at least */
#define SWEEP 2u		/* keys whose age is looked at per use */
/* Sampled uses until the model learns: about as many as the pool has sampled objects, within limits; in the beginning
 * fewer, doubled each time. */
#define PERIOD_FIRST 128u
#define PERIOD_MIN 512u
#define PERIOD_MAX 2048u
#define DUEL_FORGET 0.995
#define DUEL_MARGIN 0.003	/* hits per use by which LRU has to be better */
#define USES_MAX (1u << 22)	/* then all counts of the curve are halved */
#define GRANULE 64u
#define LOADED_MIN 1000		/* observations that are worth something */

int mcm_sample_init(struct mcm_key_sample *s, bool simulates)
{
	memset(s, 0, sizeof(*s));
	mc_mutex_init(&s->lock);
	s->simulates = simulates;
	s->shift = SHIFT_FIRST;
	s->rest = s->period = PERIOD_FIRST;
	mcm_model_init(&s->model);
	s->key = calloc(MCM_SAMPLE_KEYS, sizeof(*s->key));
	s->bucket = calloc(BUCKETS, sizeof(*s->bucket));
	if (!s->key || !s->bucket)
		return -ENOMEM;
	for (unsigned i = 0; i < MCM_SIZES; i++) {
		s->sim[i] = mcm_sim_new(i);
		if (!s->sim[i])
			return -ENOMEM;
	}
	return 0;
}

void mcm_sample_done(struct mcm_key_sample *s)
{
	for (unsigned i = 0; i < MCM_SIZES; i++)
		free(s->sim[i]);
	free(s->bucket);
	free(s->key);
	mc_mutex_destroy(&s->lock);
}

static uint32_t *bucket_of(struct mcm_key_sample *s, uint32_t hash)
{
	return &s->bucket[(hash * 0x9e3779b1u) >> 16 & (BUCKETS - 1)];
}

static uint32_t sample_find(struct mcm_key_sample *s, uint32_t hash)
{
	uint32_t id = *bucket_of(s, hash);

	while (id && s->key[id].hash != hash)
		id = s->key[id].next;
	return id;
}

/* ---- LRU pools of several sizes over one list ---- */

static void list_remove(struct mcm_key_sample *s, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id];

	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		if (s->lru[i].oldest == id)
			s->lru[i].oldest = k->newer;
	s->key[k->newer].older = k->older;
	s->key[k->older].newer = k->newer;
}

static void lru_shrink(struct mcm_key_sample *s, unsigned nr)
{
	struct mcm_lru *lru = &s->lru[nr];

	while (lru->used > lru->room && lru->oldest) {
		struct mcm_sample_key *k = &s->key[lru->oldest];

		k->in_lru &= (uint8_t)~(1u << nr);
		lru->used -= k->granules;
		lru->oldest = k->newer;
	}
}

static void list_newest(struct mcm_key_sample *s, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id];

	k->older = s->key[0].older;
	k->newer = 0;
	s->key[k->older].newer = id;
	s->key[0].older = id;
	for (unsigned i = 0; i < MCM_LRU_SIZES; i++) {
		if (!(k->in_lru >> i & 1))
			s->lru[i].used += k->granules;
		k->in_lru |= (uint8_t)(1u << i);
		if (!s->lru[i].oldest)
			s->lru[i].oldest = id;
		lru_shrink(s, i);
	}
}

/* ---- the directory ---- */

static void sample_forget(struct mcm_key_sample *s, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id];
	uint32_t *at = bucket_of(s, k->hash);

	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		if (k->in_lru >> i & 1)
			s->lru[i].used -= k->granules;
	list_remove(s, id);
	for (unsigned i = 0; i < MCM_SIZES; i++)
		mcm_sim_remove(s, s->sim[i], id);
	while (*at != id)
		at = &s->key[*at].next;
	*at = k->next;
	k->in_lru = 0;
	k->granules = 0;
	k->before = 0;
	k->hash = 0;
	k->next = s->free;
	s->free = id;
}

/* A new key; the one used longest ago makes room. */
static uint32_t learn_key(struct mcm_key_sample *s, uint32_t hash)
{
	uint32_t id;

	if (!s->free && s->keys == MCM_SAMPLE_KEYS - 1)
		sample_forget(s, s->key[0].newer);
	if (s->free) {
		id = s->free;
		s->free = s->key[id].next;
	} else {
		id = ++s->keys;
	}
	s->key[id].hash = hash;
	s->key[id].next = *bucket_of(s, hash);
	*bucket_of(s, hash) = id;
	return id;
}

/* Half of the keys are sampled no more. */
static void rate_halve(struct mcm_key_sample *s)
{
	__atomic_store_n(&s->shift, s->shift + 1, __ATOMIC_RELAXED);
	for (uint32_t id = 1; id <= s->keys; id++)
		if (s->key[id].hash && !mcm_sample_has(s, s->key[id].hash))
			sample_forget(s, id);
}

static void rooms_set(struct mcm_key_sample *s)
{
	static const double factor[MCM_SIZES] = MCM_SIZE_FACTORS;

	for (unsigned i = 0; i < MCM_SIZES; i++) {
		s->lru[i].room = s->sim[i]->room = (uint64_t)((double)s->memory * factor[i] / GRANULE) >> s->shift;
		s->lru[MCM_SIZES + i].room = (uint64_t)((double)s->disk * factor[i] / GRANULE) >> s->shift;
	}
	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		lru_shrink(s, i);
}

bool mcm_sample_crowded(const struct mcm_key_sample *s, uint64_t objects)
{
	uint32_t shift = __atomic_load_n(&s->shift, __ATOMIC_RELAXED);

	return objects * REMEMBERED >> shift > MCM_SAMPLE_KEYS && shift < SHIFT_MAX;
}

void mcm_sample_pool(struct mcm_key_sample *s, uint64_t memory, uint64_t disk, uint64_t objects)
{
	mc_mutex_lock(&s->lock);
	s->objects = objects;
	while (mcm_sample_crowded(s, objects))
		rate_halve(s);
	s->memory = memory;
	s->disk = disk;
	rooms_set(s);
	mc_mutex_unlock(&s->lock);
}

/* ---- learning ---- */

/* Count the ages that the key has reached. */
static unsigned sample_settle(struct mcm_key_sample *s, struct mcm_sample_key *k, uint32_t now)
{
	unsigned bin = mcm_model_bin(mcm_model_age(now, k->last));

	for (; k->settled <= bin; k->settled++)
		s->model.reached[k->class][k->settled]++;
	return bin;
}

static void sample_sweep(struct mcm_key_sample *s, uint32_t now)
{
	for (unsigned i = 0; i < SWEEP; i++) {
		s->swept = s->swept >= s->keys ? 1 : s->swept + 1;
		if (s->key[s->swept].hash)
			(void)sample_settle(s, &s->key[s->swept], now);
	}
}

/* Which policy has more hits with the present size?  It is used for the pool from now on. */
static void sample_duel(struct mcm_key_sample *s, double uses)
{
	bool behind = s->behind;
	double ahead = s->duel_learn - s->duel_lru;

	if (ahead < -DUEL_MARGIN * uses)
		behind = true;
	else if (ahead >= 0)
		behind = false;
	__atomic_store_n(&s->behind, behind, __ATOMIC_RELAXED);
	s->duel_learn *= DUEL_FORGET;
	s->duel_lru *= DUEL_FORGET;
}

static void counts_halve(struct mcm_key_sample *s)
{
	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		s->lru[i].hits /= 2;
	for (unsigned i = 0; i < MCM_SIZES; i++)
		s->sim[i]->hits /= 2;
	s->uses /= 2;
	s->known /= 2;
	s->expected /= 2;
}

static uint32_t period_next(const struct mcm_key_sample *s)
{
	uint64_t most = s->objects >> s->shift;

	most = most < PERIOD_MIN ? PERIOD_MIN : most > PERIOD_MAX ? PERIOD_MAX : most;
	return 2 * s->period < most ? 2 * s->period : (uint32_t)most;
}

static void sample_learn(struct mcm_key_sample *s)
{
	if (--s->rest)
		return;
	if (s->simulates) {
		mcm_model_learn(&s->model);
		sample_duel(s, s->period / (1 - DUEL_FORGET));
	}
	s->period = period_next(s);
	s->rest = s->period;
	if (s->uses > USES_MAX)
		counts_halve(s);
}

/* ---- uses ---- */

static void count_hits(struct mcm_key_sample *s, const struct mcm_sample_key *k)
{
	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		s->lru[i].hits += k->in_lru >> i & 1;
	for (unsigned i = 0; i < MCM_SIZES; i++)
		s->sim[i]->hits += k->in_sim >> i & 1;
	s->duel_lru += k->in_lru >> MCM_SIZE_NOW & 1;
	s->duel_learn += k->in_sim >> MCM_SIZE_NOW & 1;
	s->known++;
}

static void sample_store(struct mcm_key_sample *s, uint32_t id, uint64_t size)
{
	struct mcm_sample_key *k = &s->key[id];
	uint64_t granules = (size + GRANULE - 1) / GRANULE;

	if (!granules)
		granules = 1;
	if (granules > UINT32_MAX)
		granules = UINT32_MAX;
	if (granules != k->granules) {
		/* Another size is another object. */
		for (unsigned i = 0; i < MCM_SIZES; i++)
			mcm_sim_remove(s, s->sim[i], id);
		for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
			if (k->in_lru >> i & 1)
				s->lru[i].used += granules - k->granules;
		k->granules = (uint32_t)granules;
		for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
			lru_shrink(s, i);
	}
	for (unsigned i = 0; i < MCM_SIZES && s->simulates; i++)
		if (!(k->in_sim >> i & 1))
			mcm_sim_add(s, s->sim[i], id, k->last);
}

void mcm_sample_use(struct mcm_key_sample *s, struct mcm_sampled *b, const struct mcm_sample_use *u)
{
	struct mcm_sample_key *k;
	uint32_t id;

	if (!b->locked)
		mc_mutex_lock(&s->lock);
	b->locked = true;
	s->uses++;
	id = sample_find(s, u->hash);
	if (id) {
		k = &s->key[id];
		s->model.used[k->class][sample_settle(s, k, u->now)]++;
		if (k->granules)
			count_hits(s, k);
		list_remove(s, id);
	} else {
		id = learn_key(s, u->hash);
		k = &s->key[id];
	}
	k->class = u->class;
	k->last = u->now;
	k->settled = 0;
	list_newest(s, id);
	if (s->simulates && b->before != id)
		mcm_sims_link(s, id, b->before);
	if (u->there || k->granules)
		sample_store(s, id, u->there ? u->size : (uint64_t)k->granules * GRANULE);
	b->before = id;
	sample_sweep(s, u->now);
	sample_learn(s);
}

/* Lock held: the memory that these uses read. */
static void uses_prefetch(struct mcm_key_sample *s, const struct mcm_sample_use *u, unsigned n)
{
	uint32_t id;

	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(bucket_of(s, u[i].hash));
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(&s->key[*bucket_of(s, u[i].hash)], 1);
	for (unsigned i = 0; i < n; i++) {
		id = sample_find(s, u[i].hash);
		if (!id)
			continue;
		__builtin_prefetch(&s->key[s->key[id].newer], 1);
		__builtin_prefetch(&s->key[s->key[id].older], 1);
		__builtin_prefetch(&s->key[s->key[id].before], 1);
	}
}

void mcm_sample_use_many(struct mcm_key_sample *s, struct mcm_sampled *b, const struct mcm_sample_use *u, unsigned n)
{
	if (!n)
		return;
	if (!b->locked)
		mc_mutex_lock(&s->lock);
	b->locked = true;
	uses_prefetch(s, u, n);
	for (unsigned i = 0; i < n; i++)
		mcm_sample_use(s, b, &u[i]);
}

static void sample_expect(struct mcm_key_sample *s, uint64_t clock)
{
	s->expected += (double)(clock - s->clock) / (double)(1u << s->shift);
	s->clock = clock;
}

void mcm_sample_end(struct mcm_key_sample *s, struct mcm_sampled *b, uint64_t clock)
{
	if (!b->locked)
		return;
	if (clock > s->clock)
		sample_expect(s, clock);
	mc_mutex_unlock(&s->lock);
}

void mcm_sample_put(struct mcm_key_sample *s, uint32_t hash, uint64_t size)
{
	uint32_t id;

	mc_mutex_lock(&s->lock);
	id = sample_find(s, hash);
	if (id)
		sample_store(s, id, size);
	mc_mutex_unlock(&s->lock);
}

/* ---- results ---- */

/* A key that is used very often is in the sample with all of its uses, or with none.  Such keys are hits in pools of
 * any size, so the difference to the expected number of uses is one of hits (SHARDS-adj). */
static double sample_ratio(const struct mcm_key_sample *s, double hits)
{
	double r = s->expected > 0 ? (hits + s->expected - s->uses) / s->expected : 0;

	return r < 0 ? 0 : r > 1 ? 1 : r;
}

void mcm_sample_curve(struct mcm_key_sample *s, uint64_t clock, struct mcm_curve *ret)
{
	mc_mutex_lock(&s->lock);
	if (clock > s->clock)
		sample_expect(s, clock);
	for (unsigned i = 0; i < MCM_LRU_SIZES; i++)
		ret->lru[i] = sample_ratio(s, s->lru[i].hits);
	for (unsigned i = 0; i < MCM_SIZES; i++)
		ret->learn[i] = sample_ratio(s, s->sim[i]->hits);
	ret->endless = sample_ratio(s, s->known);
	ret->uses = (uint64_t)s->uses;
	ret->rate = 1.0 / (1u << s->shift);
	ret->behind = s->behind;
	mc_mutex_unlock(&s->lock);
}

void mcm_sample_save(struct mcm_key_sample *s, unsigned class, float ret_reached[MCM_AGE_BINS],
		     float ret_used[MCM_AGE_BINS])
{
	mc_mutex_lock(&s->lock);
	memcpy(ret_reached, s->model.reached[class], sizeof(s->model.reached[class]));
	memcpy(ret_used, s->model.used[class], sizeof(s->model.used[class]));
	mc_mutex_unlock(&s->lock);
}

void mcm_sample_load(struct mcm_key_sample *s, unsigned class, const float reached[MCM_AGE_BINS],
		     const float used[MCM_AGE_BINS])
{
	mc_mutex_lock(&s->lock);
	memcpy(s->model.reached[class], reached, sizeof(s->model.reached[class]));
	memcpy(s->model.used[class], used, sizeof(s->model.used[class]));
	mc_mutex_unlock(&s->lock);
}

void mcm_sample_loaded(struct mcm_key_sample *s)
{
	float any = 0;

	mc_mutex_lock(&s->lock);
	for (unsigned c = 0; c < MCM_CLASSES; c++)
		any += s->model.reached[c][0];
	if (any > LOADED_MIN)
		mcm_model_learn(&s->model);
	mc_mutex_unlock(&s->lock);
}
