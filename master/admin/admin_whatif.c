/* SPDX-License-Identifier: Apache-2.0
 * admin_whatif.c - /api/v1/whatif and metrics: the hit ratio with less or more memory, estimated (learn/sample.h).
 *
 * A key counts as used when a client asks for it or, without having asked, puts it; as a hit when the pool has it. */
#include <config.h>

#include <jansson.h>
#include <string.h>

#include "common/metrics.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/admin/stats.h"
#include "master/mcm_i.h"

#define PPM 1e6
#define SECONDS_MAX 1e15

#define RATIO(var, labels) \
	MC_METRIC_DEFINE(var, "mooncake_master_hit_ratio", labels, \
			 "Share of the keys asked for that the pool had, or would have with other sizes (estimated)", \
			 MC_GAUGE_TYPE, NULL, 1 / PPM)
RATIO(ratio_real, "size=\"real\"")
RATIO(ratio_half, "size=\"memory*0.5\"")
RATIO(ratio_same, "size=\"memory*1\"")
RATIO(ratio_double, "size=\"memory*2\"")
RATIO(ratio_fourfold, "size=\"memory*4\"")
RATIO(ratio_endless, "size=\"endless\"")
MC_METRIC_DEFINE(saved, "mooncake_master_recompute_seconds_saved", "",
		 "Time to recompute the hits so far, with --token_recompute_time", MC_GAUGE_TYPE, NULL, 1e-3)
MC_GAUGE(by_lru, "mooncake_master_policy_learn_uses_lru", "", "1: the policy learn evicts like lru at the moment")

static bool policy_is(const struct mcm *m, const struct mcm_evict_ops *policy)
{
	return m->evict == policy;
}

/* The estimates for the policy in use; for fifo they are those of LRU. */
static double whatif_estimate(const struct mcm *m, const struct mcm_curve *c, unsigned size)
{
	return policy_is(m, &mcm_evict_learn) && !c->behind ? c->learn[size] : c->lru[size];
}

/* Seconds to compute the tokens of @hits objects. */
static double seconds_of(const struct mcm *m, double hits)
{
	double s = hits * (double)m->conf.tokens_per_object * m->conf.token_recompute_time;

	return s < SECONDS_MAX ? s : SECONDS_MAX;
}

static double real_ratio(uint64_t uses, uint64_t found)
{
	return uses ? (double)found / (double)uses : 0;
}

void mcm_stats_whatif(struct mcm *m)
{
	struct mc_metric *const by_size[MCM_SIZES] = { &ratio_half, &ratio_same, &ratio_double, &ratio_fourfold };
	uint64_t uses = mcm_load_relaxed(&m->learn.clock), found = mcm_load_relaxed(&m->learn.found);
	struct mcm_curve c;

	mcm_sample_curve(&m->learn.sample, uses, &c);
	mc_metric_set(&ratio_real, (int64_t)(real_ratio(uses, found) * PPM));
	for (unsigned i = 0; i < MCM_SIZES; i++)
		mc_metric_set(by_size[i], (int64_t)(whatif_estimate(m, &c, i) * PPM));
	mc_metric_set(&ratio_endless, (int64_t)(c.endless * PPM));
	mc_metric_set(&saved, (int64_t)(seconds_of(m, (double)found) * 1e3));
	mc_metric_set(&by_lru, policy_is(m, &mcm_evict_learn) && c.behind);
}

static json_t *size_json(const struct mcm *m, double factor, uint64_t bytes, double ratio, double uses)
{
	json_t *j = json_pack("{s:f, s:I, s:f}", "factor", factor, "bytes", (json_int_t)((double)bytes * factor),
			      "hit_ratio", ratio);

	if (m->conf.token_recompute_time > 0)
		json_object_set_new(j, "recompute_seconds_saved", json_real(seconds_of(m, ratio * uses)));
	return j;
}

void mcm_admin_whatif(struct mc_http_request *rq, void *arg)
{
	static const double factor[MCM_SIZES] = MCM_SIZE_FACTORS;
	struct mcm *m = arg;
	uint64_t uses = mcm_load_relaxed(&m->learn.clock), found = mcm_load_relaxed(&m->learn.found);
	uint64_t memory = mcm_load_relaxed(&m->segments.capacity), disk = mcm_load_relaxed(&m->segments.disk_capacity);
	json_t *in_memory = json_array(), *on_disks = json_array();
	struct mcm_curve c;

	mcm_sample_curve(&m->learn.sample, uses, &c);
	for (unsigned i = 0; i < MCM_SIZES; i++) {
		json_array_append_new(in_memory, size_json(m, factor[i], memory, whatif_estimate(m, &c, i),
							   (double)uses));
		if (disk)
			json_array_append_new(on_disks, size_json(m, factor[i], disk, c.lru[MCM_SIZES + i],
							  (double)uses));
	}
	mcm_answer_json(rq, 200, json_pack("{s:s, s:s, s:I, s:I, s:f, s:I, s:f, s:o, s:o, s:o}",
		"policy", m->evict->name,
		"evicts_like", policy_is(m, &mcm_evict_learn) && c.behind ? "lru" : m->evict->name,
		"keys_asked", (json_int_t)uses, "keys_found", (json_int_t)found,
		"hit_ratio", real_ratio(uses, found),
		"sampled_uses", (json_int_t)c.uses, "sampling_rate", c.rate,
		"memory", in_memory, "disks", on_disks,
		"endless", size_json(m, 0, 0, c.endless, (double)uses)));
}
