/* SPDX-License-Identifier: Apache-2.0
 * nic_metrics.c - the series of each NIC in /metrics. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/process/fork.h"
#include "engine/rdma/rdma_i.h"

/* One for each name, kept for the life of the process, because the registry only grows. */
struct nic_series {
	struct nic_series *next;
	struct mce_nic_metrics m;
	struct mc_metric total;
	char nic[MCE_RDMA_NAME_MAX + 8], verb[2][MCE_RDMA_NAME_MAX + 24];
};

static struct mc_mutex series_lock = MC_MUTEX_INIT;
MC_FORK_KEEP(series_lock, MC_FORK_LEAF)
static struct nic_series *all_series;	/* atomic: the collector reads it without the lock; changed under it */

static void totals_collect(void *arg)
{
	(void)arg;
	for (struct nic_series *s = __atomic_load_n(&all_series, __ATOMIC_ACQUIRE); s; s = s->next)
		mc_metric_set(&s->total, mc_metric_get(&s->m.carried[0]) + mc_metric_get(&s->m.carried[1]));
}

static void series_add(struct mc_metric *m, enum mc_metric_type type, const char *name, const char *labels,
		       const char *help)
{
	*m = (struct mc_metric){ .name = name, .labels = labels, .help = help, .type = type, .scale = 1 };
	mc_metric_register(m);
}

static void series_register(struct nic_series *s)
{
	for (unsigned write = 0; write < 2; write++)
		series_add(&s->m.carried[write], MC_COUNTER_TYPE, "mooncake_transfer_nic_verb_bytes_total",
			   s->verb[write],
			   "Bytes that each RDMA NIC has received (read) or sent (write) for this process's transfers");
	series_add(&s->total, MC_COUNTER_TYPE, "mooncake_transfer_nic_bytes_total", s->nic,
		   "Bytes that each RDMA NIC has moved for transfers this process asked for");
	series_add(&s->m.failed, MC_COUNTER_TYPE, "mooncake_transfer_nic_failed_slices_total", s->nic,
		   "Slices of transfers that each RDMA NIC has reported as failed");
	series_add(&s->m.endpoints, MC_GAUGE_TYPE, "mooncake_transfer_nic_endpoints", s->nic,
		   "Connections of each RDMA NIC over which this process moves bytes");
	series_add(&s->m.endpoints_in, MC_GAUGE_TYPE, "mooncake_transfer_nic_endpoints_in", s->nic,
		   "Connections of each RDMA NIC over which peers reach this process's memory");
	series_add(&s->m.up, MC_GAUGE_TYPE, "mooncake_transfer_nic_up", s->nic,
		   "1: the port of the RDMA NIC is active");
	series_add(&s->m.rate, MC_GAUGE_TYPE, "mooncake_transfer_nic_rate_megabits", s->nic,
		   "Rate of the port of the RDMA NIC in Mb/s; 0: unknown");
}

struct mce_nic_metrics *mce_nic_metrics(const char *name)
{
	static struct mce_nic_metrics unseen;
	struct nic_series *s;
	char label[sizeof(s->nic)];

	snprintf(label, sizeof(label), "nic=\"%s\"", name);
	MC_LOCKED(&series_lock);
	for (s = all_series; s && strcmp(s->nic, label) != 0; s = s->next)
		;
	if (s)
		return &s->m;
	s = calloc(1, sizeof(*s));
	if (!s)
		return &unseen;
	strcpy(s->nic, label);
	snprintf(s->verb[0], sizeof(s->verb[0]), "%s,verb=\"read\"", label);
	snprintf(s->verb[1], sizeof(s->verb[1]), "%s,verb=\"write\"", label);
	series_register(s);
	if (!all_series)
		(void)mc_metrics_collector(totals_collect, NULL);
	s->next = all_series;
	__atomic_store_n(&all_series, s, __ATOMIC_RELEASE);
	return &s->m;
}
