/* SPDX-License-Identifier: Apache-2.0
 * op_metrics.h - requests and failures by operation, under upstream's names: those with one item
 * count as single ones, the others as batches. */
#ifndef MCM_OP_METRICS_H
#define MCM_OP_METRICS_H

#include "common/metrics.h"

struct mcm_op_metrics {
	struct mc_metric *requests, *failures;
	struct mc_metric *batches, *batch_failures, *partial, *items, *failed_items;
};

/* @single and @batch: names between "master_" and "_requests_total". */
#define MCM_OP_METRICS(var, single, batch) \
	MC_COUNTER(var##_requests, "master_" single "_requests_total", "", "Requests") \
	MC_COUNTER(var##_failures, "master_" single "_failures_total", "", "Requests that failed") \
	MC_COUNTER(var##_batches, "master_" batch "_requests_total", "", "Requests") \
	MC_COUNTER(var##_batch_failures, "master_" batch "_failures_total", "", \
		   "Requests of which every item failed") \
	MC_COUNTER(var##_partial, "master_" batch "_partial_successes_total", "", \
		   "Requests of which some items failed") \
	MC_COUNTER(var##_items, "master_" batch "_items_total", "", "Items of requests") \
	MC_COUNTER(var##_failed_items, "master_" batch "_failed_items_total", "", \
		   "Items that failed") \
	static const struct mcm_op_metrics var = { \
		&var##_requests, &var##_failures, &var##_batches, &var##_batch_failures, \
		&var##_partial, &var##_items, &var##_failed_items, \
	};

static inline void mcm_op_count(const struct mcm_op_metrics *om, unsigned items, unsigned failed)
{
	if (items == 1) {
		mc_metric_add(om->requests, 1);
		mc_metric_add(om->failures, failed);
		return;
	}
	mc_metric_add(om->batches, 1);
	mc_metric_add(om->items, items);
	if (!failed)
		return;
	mc_metric_add(om->failed_items, failed);
	mc_metric_add(failed == items ? om->batch_failures : om->partial, 1);
}

#endif
