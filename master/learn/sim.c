/* SPDX-License-Identifier: Apache-2.0
 * sim.c - simulated pools with the policy `learn`. */
#include <config.h>

#include "master/learn/sim.h"

#include <stdlib.h>

#define DRAWS 4u
#define DRAWS_MAX 16u
#define PROBES 64u
#define VICTIMS_MAX 32u		/* evicted for one key */

struct mcm_sim *mcm_sim_new(unsigned nr)
{
	struct mcm_sim *sim = calloc(1, sizeof(*sim));

	if (sim) {
		sim->nr = nr;
		sim->random = 88172645463325252ull + nr;
	}
	return sim;
}

static uint32_t random_below(struct mcm_sim *sim, uint32_t n)
{
	sim->random ^= sim->random << 13;
	sim->random ^= sim->random >> 7;
	sim->random ^= sim->random << 17;
	return (uint32_t)((sim->random >> 32) * n >> 32);
}

static bool sim_has(const struct mcm_key_sample *s, const struct mcm_sim *sim, uint32_t id)
{
	return s->key[id].in_sim >> sim->nr & 1;
}

static bool is_candidate(const struct mcm_key_sample *s, const struct mcm_sim *sim, uint32_t id)
{
	return sim_has(s, sim, id) && !s->key[id].after[sim->nr];
}

static void list_candidate(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id];

	if (k->listed >> sim->nr & 1 || sim->n == MCM_SAMPLE_KEYS)
		return;
	k->listed |= (uint8_t)(1u << sim->nr);
	sim->candidate[sim->n++] = id;
}

static void sim_remember(struct mcm_sim *sim, uint32_t id)
{
	for (uint32_t i = 0; i < sim->n_best; i++)
		if (sim->best[i] == id)
			return;
	if (sim->n_best <= MCM_SIM_POOL)
		sim->best[sim->n_best++] = id;
}

static void unlink_key(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id], *b = &s->key[k->before];

	if (!(k->linked >> sim->nr & 1))
		return;
	k->linked &= (uint8_t)~(1u << sim->nr);
	if (--b->after[sim->nr] == 0 && sim_has(s, sim, k->before)) {
		list_candidate(s, sim, k->before);
		sim_remember(sim, k->before);
	}
}

static void link_key(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id)
{
	struct mcm_sample_key *k = &s->key[id], *b = &s->key[k->before];

	if (!k->before || k->linked >> sim->nr & 1 || !sim_has(s, sim, id) || !sim_has(s, sim, k->before) ||
	    b->after[sim->nr] == UINT16_MAX)
		return;
	k->linked |= (uint8_t)(1u << sim->nr);
	b->after[sim->nr]++;
}

void mcm_sims_link(struct mcm_key_sample *s, uint32_t id, uint32_t before)
{
	for (unsigned i = 0; i < MCM_SIZES; i++)
		if (s->key[id].before != before)
			unlink_key(s, s->sim[i], id);
	s->key[id].before = before;
	for (unsigned i = 0; i < MCM_SIZES; i++)
		link_key(s, s->sim[i], id);
}

void mcm_sim_remove(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id)
{
	if (!sim_has(s, sim, id))
		return;
	s->key[id].in_sim &= (uint8_t)~(1u << sim->nr);
	sim->used -= s->key[id].granules;
	unlink_key(s, sim, id);
}

static float value_of(const struct mcm_key_sample *s, uint32_t id, uint32_t now)
{
	const struct mcm_sample_key *k = &s->key[id];

	return mcm_model_value(&s->model, k->class, mcm_model_age(now, k->last)) / (float)k->granules;
}

/* Remember a few more candidates. */
static void sim_draw(struct mcm_key_sample *s, struct mcm_sim *sim)
{
	unsigned good = 0;

	for (unsigned i = 0; i < DRAWS_MAX && good < DRAWS && sim->n && sim->n_best <= MCM_SIM_POOL; i++) {
		uint32_t at = random_below(sim, sim->n), id = sim->candidate[at];

		if (is_candidate(s, sim, id)) {
			sim_remember(sim, id);
			good++;
		} else {
			s->key[id].listed &= (uint8_t)~(1u << sim->nr);
			sim->candidate[at] = sim->candidate[--sim->n];
		}
	}
}

/* The candidate of the lowest value leaves the remembered ones, of which only the best stay. */
static uint32_t sim_choose(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t now)
{
	float value[MCM_SIM_POOL + 1], lowest = 0, highest = 0;
	uint32_t n = 0, best = 0, worst = 0, id;

	for (uint32_t i = 0; i < sim->n_best; i++)
		if (is_candidate(s, sim, sim->best[i]))
			sim->best[n++] = sim->best[i];
	sim->n_best = n;
	sim_draw(s, sim);
	for (uint32_t i = 0; i < sim->n_best; i++) {
		value[i] = value_of(s, sim->best[i], now);
		if (!i || value[i] < lowest) {
			lowest = value[i];
			best = i;
		}
		if (!i || value[i] >= highest) {
			highest = value[i];
			worst = i;
		}
	}
	if (!sim->n_best)
		return 0;
	id = sim->best[best];
	/* Room for new candidates. */
	if (sim->n_best > MCM_SIM_POOL - DRAWS && worst != best) {
		sim->best[worst] = sim->best[--sim->n_best];
		if (best == sim->n_best)
			best = worst;
	}
	sim->best[best] = sim->best[--sim->n_best];
	return id;
}

/* Any key of the pool. */
static uint32_t sim_probe(struct mcm_key_sample *s, struct mcm_sim *sim)
{
	for (unsigned i = 0; i < PROBES; i++) {
		uint32_t id = 1 + random_below(sim, s->keys);

		if (sim_has(s, sim, id))
			return id;
	}
	return 0;
}

void mcm_sim_add(struct mcm_key_sample *s, struct mcm_sim *sim, uint32_t id, uint32_t now)
{
	uint32_t victim;

	/* In a pool smaller than an object, that object would be the only one. */
	if (s->key[id].granules > sim->room)
		return;
	/* If the pool has just become smaller, the rest follows with the next keys. */
	for (unsigned i = 0; i < VICTIMS_MAX && sim->used && sim->used + s->key[id].granules > sim->room; i++) {
		victim = sim_choose(s, sim, now);
		if (!victim)
			victim = sim_probe(s, sim);
		if (!victim)
			break;
		mcm_sim_remove(s, sim, victim);
	}
	s->key[id].in_sim |= (uint8_t)(1u << sim->nr);
	sim->used += s->key[id].granules;
	list_candidate(s, sim, id);
	link_key(s, sim, id);
}
