/* SPDX-License-Identifier: Apache-2.0
 * strategy.c - placement strategies. */
#include <config.h>

#include "master/space/strategy.h"

#include <string.h>

static void pick_first(struct mcm_pick *p)
{
	p->first = p->ss->n_live ? (unsigned)(p->random % p->ss->n_live) : 0;
}

static uint32_t pick_live(const struct mcm_pick *p, unsigned i)
{
	const struct mcm_segments *ss = p->ss;
	unsigned at = p->first + i;

	if (i >= ss->n_live)
		return MCM_NO_SEGMENT;
	return ss->live[at < ss->n_live ? at : at - ss->n_live];
}

/* ---- random: all segments, beginning with a random one ---- */

static void random_begin(struct mcm_pick *p)
{
	p->n_sample = 0;
	pick_first(p);
}

static uint32_t random_next(struct mcm_pick *p)
{
	return pick_live(p, p->at++);
}

const struct mcm_strategy mcm_strategy_random = { "random", random_begin, random_next };

/* ---- free_ratio_first: a few random segments, the emptiest first; then the others.  ssd_free_ratio_first: the same,
 * but those with the emptiest disks first ---- */

#define SAMPLE_PER_COPY 6

static double free_ratio(const struct mcm_segment *s)
{
	return 1.0 - (double)mcm_load_relaxed(&s->used) / (double)s->size;
}

/* The free part of the disk of the same node; nodes without a disk come first, as in upstream. */
static double disk_free_ratio(const struct mcm_segments *ss, const struct mcm_segment *s)
{
	uint16_t disk = __atomic_load_n(&s->disk, __ATOMIC_RELAXED);

	return disk ? free_ratio(mcm_segment(ss, (uint16_t)(disk - 1))) : 1.0;
}

static void sample_by(struct mcm_pick *p, bool disks)
{
	unsigned n = SAMPLE_PER_COPY * p->copies, i, j;
	double ratio[MCM_PICK_SAMPLE];

	pick_first(p);
	if (n > MCM_PICK_SAMPLE)
		n = MCM_PICK_SAMPLE;
	for (i = 0; i < n; i++) {
		uint32_t number = pick_live(p, i);
		const struct mcm_segment *s;
		double r;

		if (number == MCM_NO_SEGMENT)
			break;
		s = p->ss->at[number];
		r = disks ? disk_free_ratio(p->ss, s) : free_ratio(s);
		for (j = i; j && ratio[j - 1] < r; j--) {
			ratio[j] = ratio[j - 1];
			p->sample[j] = p->sample[j - 1];
		}
		ratio[j] = r;
		p->sample[j] = s->index;
	}
	p->n_sample = i;
}

static void free_ratio_begin(struct mcm_pick *p)
{
	sample_by(p, false);
}

static void ssd_free_ratio_begin(struct mcm_pick *p)
{
	sample_by(p, true);
}

static uint32_t free_ratio_next(struct mcm_pick *p)
{
	unsigned i = p->at++;

	if (i < p->n_sample)
		return p->sample[i];
	/* The sample is the beginning of the walk, so it is not met again. */
	return pick_live(p, i);
}

const struct mcm_strategy mcm_strategy_free_ratio = {
	"free_ratio_first", free_ratio_begin, free_ratio_next
};

const struct mcm_strategy mcm_strategy_ssd_free_ratio = {
	"ssd_free_ratio_first", ssd_free_ratio_begin, free_ratio_next
};

/* ---- cxl: as random, but on far memory; on near memory only the copies that find no space there (allocate.c) ---- */

const struct mcm_strategy mcm_strategy_cxl = { "cxl", random_begin, random_next };

const struct mcm_strategy *mcm_strategy_find(const char *name)
{
	static const struct mcm_strategy *const all[] = {
		&mcm_strategy_random, &mcm_strategy_free_ratio, &mcm_strategy_ssd_free_ratio, &mcm_strategy_local,
		&mcm_strategy_cxl,
	};
	unsigned i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}
