/* SPDX-License-Identifier: Apache-2.0
 * model.c - life tables of the classes, and values. */
#include <config.h>

#include "master/learn/model.h"

#include <stdbool.h>
#include <string.h>

#define FORGET 0.99f
/* Weight of all classes together in the estimate of one class, in objects: a class with few observations is treated
 * like the average one.  One conversation of hundreds of blocks is one observation, not hundreds. */
#define PRIOR 300.0f
/* The chance of use in a bin that few objects of any class have reached is a bit lower than in the one before it. */
#define FEW 10.0f
#define LATER 0.8f
#define FIRST_CHANCE 0.01f
#define BEYOND 4u		/* bins behind the last one that an object has reached, in which a use is expected */

/* The youngest age of a bin. */
static float bin_begin(unsigned bin)
{
	if (!bin)
		return 0;
	return (float)(1ull << (bin - 1) / 2) * ((bin - 1) % 2 ? 1.41421356f : 1.0f);
}

unsigned mcm_model_bin(uint32_t age)
{
	unsigned octave, bin;

	if (!age)
		return 0;
	octave = 31u - (unsigned)__builtin_clz(age);
	bin = 1 + 2 * octave + ((uint64_t)age * age >= 2ull << 2 * octave);
	return bin < MCM_AGE_BINS ? bin : MCM_AGE_BINS - 1;
}

static void value_set(struct mcm_model *md, unsigned class, unsigned bin, float v)
{
	__atomic_store(&md->value[class][bin], &v, __ATOMIC_RELAXED);
}

static float value_get(const struct mcm_model *md, unsigned class, unsigned bin)
{
	float v;

	__atomic_load(&md->value[class][bin], &v, __ATOMIC_RELAXED);
	return v;
}

/* Before anything is known: the longer it was not used, the lower. */
void mcm_model_init(struct mcm_model *md)
{
	memset(md, 0, sizeof(*md));
	for (unsigned c = 0; c < MCM_CLASSES; c++)
		for (unsigned b = 0; b < MCM_AGE_BINS; b++)
			value_set(md, c, b, 1 / (bin_begin(b) + 1));
}

/* The best rate of hits of an object that has just reached @bin; later ages than @end are not looked at. */
static float best_rate(const float chance[MCM_AGE_BINS], const float width[MCM_AGE_BINS], unsigned bin, unsigned end)
{
	float alive = 1, used = 0, time = 0, best = 0;

	for (unsigned t = bin; t < end; t++) {
		/* On average, an object is in the middle of its bin. */
		time += alive * (t == bin ? width[t] / 2 : width[t]) * (1 - chance[t] / 2);
		used += alive * chance[t];
		alive *= 1 - chance[t];
		if (used > best * time)
			best = used / time;
	}
	return best;
}

/* Chances of use at each age of all classes together; returns the bin behind the last one that matters. */
static unsigned learn_all(const struct mcm_model *md, float all[MCM_AGE_BINS])
{
	float last = FIRST_CHANCE;
	unsigned end = 0;

	for (unsigned b = 0; b < MCM_AGE_BINS; b++) {
		float reached = 0, used = 0;

		for (unsigned c = 0; c < MCM_CLASSES; c++) {
			reached += md->reached[c][b];
			used += md->used[c][b];
		}
		end = reached > 0 ? b + BEYOND : end;
		last = all[b] = (used + FEW * LATER * last) / (reached + FEW);
	}
	return end < MCM_AGE_BINS ? end : MCM_AGE_BINS;
}

static bool class_is_empty(const struct mcm_model *md, unsigned class)
{
	for (unsigned b = 0; b < MCM_AGE_BINS; b++)
		if (md->reached[class][b] > 0 || md->used[class][b] > 0)
			return false;
	return true;
}

void mcm_model_learn(struct mcm_model *md)
{
	float all[MCM_AGE_BINS], chance[MCM_AGE_BINS], width[MCM_AGE_BINS];
	unsigned end = learn_all(md, all), empty = MCM_CLASSES;

	for (unsigned b = 0; b < MCM_AGE_BINS; b++)
		width[b] = bin_begin(b + 1) - bin_begin(b);
	for (unsigned c = 0; c < MCM_CLASSES; c++) {
		/* Classes without observations, mostly the majority, have the same values. */
		if (class_is_empty(md, c)) {
			for (unsigned b = 0; empty < c && b < MCM_AGE_BINS; b++)
				value_set(md, c, b, value_get(md, empty, b));
			if (empty < c)
				continue;
			empty = c;
		}
		for (unsigned b = 0; b < MCM_AGE_BINS; b++) {
			chance[b] = (md->used[c][b] + PRIOR * all[b]) / (md->reached[c][b] + PRIOR);
			if (chance[b] > 1)
				chance[b] = 1;
			md->reached[c][b] *= FORGET;
			md->used[c][b] *= FORGET;
		}
		for (unsigned b = 0; b < MCM_AGE_BINS; b++)
			value_set(md, c, b, best_rate(chance, width, b, b < end ? end : b + 1));
	}
}

float mcm_model_value(const struct mcm_model *md, unsigned class, uint32_t age)
{
	unsigned bin = mcm_model_bin(age), from;
	float begin = bin_begin(bin), at;

	if (bin == MCM_AGE_BINS - 1)
		return value_get(md, class, bin);
	/* The value of a bin is that of its middle. */
	at = (float)bin + ((float)age - begin) / (bin_begin(bin + 1) - begin) - 0.5f;
	if (at < 0)
		at = 0;
	from = (unsigned)at;
	at -= (float)from;
	return value_get(md, class, from) * (1 - at) + value_get(md, class, from + 1) * at;
}
