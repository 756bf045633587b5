/* SPDX-License-Identifier: Apache-2.0
 * small_master.c - masters that start in a fraction of a millisecond. */
#include <config.h>

#include "tests/fuzz/small_master.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "master/journal/check.h"
#include "tests/fuzz/memory_dir.h"
#include "tests/unit/test_master_alloc_check.h"

void __wrap_mcm_rates_init(struct mcm_rates *r);
int __wrap_mcm_ghosts_init(struct mcm_ghosts *g);
void __wrap_mcm_ghosts_done(struct mcm_ghosts *g);
int __real_mcm_ghosts_init(struct mcm_ghosts *g);
int __wrap_mcm_sample_init(struct mcm_key_sample *s, bool simulates);
void __wrap_mcm_sample_done(struct mcm_key_sample *s);
int __real_mcm_sample_init(struct mcm_key_sample *s, bool simulates);

void __wrap_mcm_rates_init(struct mcm_rates *r)
{
	memset(r, 0, sizeof(*r));
	mc_mutex_init(&r->lock);
}

int __wrap_mcm_ghosts_init(struct mcm_ghosts *g)
{
	static struct mcm_ghosts all;

	if (!all.entry && __real_mcm_ghosts_init(&all) < 0)
		abort();
	*g = all;
	return 0;
}

void __wrap_mcm_ghosts_done(struct mcm_ghosts *g)
{
	g->entry = NULL;
}

/* The next master continues it. */
static struct mcm_key_sample sample;

int __wrap_mcm_sample_init(struct mcm_key_sample *s, bool simulates)
{
	if (!sample.key && __real_mcm_sample_init(&sample, simulates) < 0)
		abort();
	*s = sample;
	mc_mutex_init(&s->lock);
	return 0;
}

void __wrap_mcm_sample_done(struct mcm_key_sample *s)
{
	mc_mutex_destroy(&s->lock);
	sample = *s;
}

struct mcm_conf *small_master_conf(void)
{
	static const struct mc_log_conf quiet = { .program = "fuzz", .levels = "err" };
	static struct mc_options *options;
	static struct mcm_conf conf;
	static char lru[] = "lru";

	if (!options && (mc_log_open(&quiet) < 0 || mcm_conf_defaults(&conf, &options) < 0))
		abort();
	conf.journal_dir = memory_dir();
	conf.index_seed = 7;
	conf.eviction_policy = lru;
	return &conf;
}

int64_t small_master_check(struct mcm *m)
{
	for (unsigned i = 0; i < m->segments.top; i++) {
		const struct mcm_segment *s = m->segments.at[i];

		if (mcm_segment_state(s) != MCM_SEG_NONE && mcm_alloc_check(&s->alloc) < 0)
			abort();
	}
	return (int64_t)mcm_index_count(&m->index);
}

int64_t small_master_count(const struct mcm_conf *conf)
{
	struct mcm_check c;
	int64_t n = mcm_journal_check(conf, conf->journal_dir, &c) < 0 ? -1 : (int64_t)c.objects;

	mcm_check_done(&c);
	return n;
}
