/* SPDX-License-Identifier: Apache-2.0
 * stats.c - sums over the master's state, and gauges that are computed from it. */
#include <config.h>

#include "master/admin/stats.h"

#include "common/cleanup.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"

/* The series of this room: a node's daemon contains a master, too, and runs it for --standalone only. */
MC_METRIC_PART(own_series, "master_", "mooncake_master_", "mem_cache_", "file_cache_", "total_get_nums_",
	       "valid_get_nums_")

MC_GAUGE(allocated, "master_allocated_bytes", "", "Bytes used in segments")
MC_GAUGE(capacity, "master_total_capacity_bytes", "", "Bytes of all mounted segments")
MC_GAUGE(keys, "master_key_count", "", "Objects")
MC_GAUGE(mem_keys, "mem_cache_nums_", "", "Objects in memory")
MC_GAUGE(disk_keys, "file_cache_nums_", "", "Objects on disks")
MC_GAUGE(disk_allocated, "master_allocated_file_size_bytes", "", "Bytes used on disks")
MC_GAUGE(nof_allocated, "master_nof_allocated_bytes", "", "Bytes used on the disks that are reached over NVMe-oF")
MC_GAUGE(nof_capacity, "master_total_nof_capacity_bytes", "", "Bytes of mounted disks that are reached over NVMe-oF")
MC_GAUGE(disk_capacity, "master_total_file_capacity_bytes", "", "Bytes of all mounted disks")
MC_GAUGE(far_allocated, "mooncake_master_far_allocated_bytes", "", "Bytes used in far memory")
MC_GAUGE(far_capacity, "mooncake_master_far_capacity_bytes", "", "Bytes of all mounted far memory")
MC_GAUGE(clients, "master_active_clients", "", "Clients known")
MC_GAUGE(active, "master_client_liveness_active_clients", "", "Clients that are not suspected or offline")
MC_GAUGE(suspected, "master_client_liveness_suspected_clients", "",
	 "Clients whose segments are hidden because they were silent")
MC_GAUGE(offline, "master_client_liveness_offline_clients", "",
	 "Clients whose segments are hidden for longer than client_suspicion_ttl_sec")
MC_GAUGE(evictable, "mooncake_master_evictable_bytes", "", "Bytes of objects that may be evicted")
MC_GAUGE(directories, "mooncake_master_directories", "", "Directories of keys with slashes")
MC_GAUGE(index_bytes, "mooncake_master_index_bytes", "",
	 "Memory that objects, their keys and directories have taken; later ones reuse that of removed ones")
MC_GAUGE(counted, "mooncake_master_counted_objects", "",
	 "Objects, unfinished puts and directories as --max_objects counts them")
MC_GAUGE(silent, "mooncake_master_silent_segments", "", "Segments whose owner is silent")

int64_t mcm_stats_counter(const char *name, const char *labels)
{
	int64_t v = 0;

	(void)mc_metrics_lookup(name, labels, &v);
	return v;
}

/* Size of the largest object that fits, with its checksums, into a segment of @size bytes. */
static uint64_t largest_object(uint64_t size)
{
	uint64_t room = size & ~(uint64_t)(MCM_GRANULE - 1), len = room, takes;

	while (len) {
		takes = mcm_alloc_round(mcm_object_reserve(len)) << MCM_GRANULE_SHIFT;
		if (takes <= room)
			break;
		len -= takes - room < len ? takes - room : len;
	}
	return len;
}

void mcm_stats_tenant(struct mcm *m, uint32_t tenant, struct mcp_stats_reply *ret)
{
	struct mcm_segments *ss = &m->segments;
	struct mcp_tenant about = { .objects = 0 };

	*ret = (struct mcp_stats_reply){ .clients = 0 };
	if (tenant != MCM_TENANT_NONE)
		(void)mcm_tenant_describe(m, tenant, &about);
	ret->objects = about.objects;
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];
		uint32_t of = mcm_load_relaxed(&s->tenant);
		uint64_t used = of ? mcm_load_relaxed(&s->used) : 0;

		if (of != tenant + 1 && (of || m->security))
			continue;
		ret->segments++;
		if (!mcm_segment_is(s, MCP_TRAIT_PUTS)) {
			ret->disk_capacity += s->rank >= MCP_RANK_DISK ? s->size : 0;
			ret->disk_used += s->rank >= MCP_RANK_DISK ? used : 0;
			continue;
		}
		ret->capacity += s->size;
		ret->used += used;
		ret->evictable += of ? mcm_load_relaxed(&s->evictable) : 0;
		if (s->size > ret->largest_put && !mcm_load_relaxed(&s->draining))
			ret->largest_put = s->size;
	}
	mc_rwlock_unlock(&ss->lock);
	if (!m->security)
		ret->used = about.charged;
	ret->largest_put = largest_object(ret->largest_put);
}

void mcm_stats(struct mcm *m, struct mcp_stats_reply *ret)
{
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	*ret = (struct mcp_stats_reply){ .clients = mcm_client_count(m) };
	mc_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (!mcm_segment_is(s, MCP_TRAIT_PUTS)) {
			ret->disk_capacity += s->rank >= MCP_RANK_DISK ? s->size : 0;
			ret->disk_used += s->rank >= MCP_RANK_DISK ? mcm_load_relaxed(&s->used) : 0;
			continue;
		}
		ret->capacity += s->size;
		ret->used += mcm_load_relaxed(&s->used);
		ret->evictable += mcm_load_relaxed(&s->evictable);
		if (s->size > ret->largest_put && !mcm_load_relaxed(&s->draining))
			ret->largest_put = s->size;
	}
	ret->segments = ss->n_live;
	mc_rwlock_unlock(&ss->lock);
	ret->largest_put = largest_object(ret->largest_put);
	ret->objects = mcm_index_count(&m->index);
	ret->evictions = (uint64_t)mcm_stats_counter("master_evicted_key_count", "");
	ret->evicted_bytes = (uint64_t)mcm_stats_counter("master_evicted_size_bytes", "");
	ret->puts_refused = (uint64_t)mcm_stats_counter("master_put_start_alloc_failures_total", "");
}

void mcm_stats_nof(struct mcm *m, uint64_t *ret_used, uint64_t *ret_size)
{
	uint64_t used = 0, size = 0;

	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		used += mcm_segment_is(s, MCP_TRAIT_NOF) ? mcm_load_relaxed(&s->used) : 0;
		size += mcm_segment_is(s, MCP_TRAIT_NOF) ? s->size : 0;
	}
	mc_rwlock_unlock(&m->segments.lock);
	*ret_used = used;
	*ret_size = size;
}

void mcm_stats_collect(void *arg)
{
	struct mcm *m = arg;
	struct mcp_stats_reply st;
	uint64_t in_memory = 0, below = 0;	/* copies */
	uint64_t far_size = 0, far_used = 0, nof_size, nof_used;
	struct mcm_liveness live;
	unsigned i, n = 0;

	mcm_stats(m, &st);
	mc_metric_set(&allocated, (int64_t)st.used);
	mc_metric_set(&capacity, (int64_t)st.capacity);
	mc_metric_set(&keys, (int64_t)st.objects);
	mc_metric_set(&clients, st.clients);
	mc_metric_set(&evictable, (int64_t)st.evictable);
	mc_mutex_lock(&m->names.tree_lock);
	mc_metric_set(&directories, (int64_t)m->names.count);
	mc_mutex_unlock(&m->names.tree_lock);
	mc_metric_set(&index_bytes, (int64_t)(mcm_index_bytes(&m->index) + mcm_names_bytes(&m->names)));
	mc_metric_set(&counted, (int64_t)mcm_load_relaxed(&m->index.count));
	mc_rwlock_rdlock(&m->segments.lock);
	for (i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		n += mcm_segment_state(s) == MCP_SEG_SILENT;
		far_size += s->rank == MCP_RANK_FAR ? s->size : 0;
		far_used += s->rank == MCP_RANK_FAR ? mcm_load_relaxed(&s->used) : 0;
		*(mcm_segment_is(s, MCP_TRAIT_PUTS) ? &in_memory : &below) += mcm_load_relaxed(&s->objects);
	}
	mc_rwlock_unlock(&m->segments.lock);
	mc_metric_set(&silent, n);
	live = mcm_liveness_counts(m);
	mc_metric_set(&active, live.active);
	mc_metric_set(&suspected, live.suspected);
	mc_metric_set(&offline, live.offline);
	mcm_stats_whatif(m);
	mc_metric_set(&disk_keys, (int64_t)below);
	mc_metric_set(&disk_allocated, (int64_t)st.disk_used);
	mc_metric_set(&disk_capacity, (int64_t)st.disk_capacity);
	mc_metric_set(&far_allocated, (int64_t)far_used);
	mc_metric_set(&far_capacity, (int64_t)far_size);
	mcm_stats_nof(m, &nof_used, &nof_size);
	mc_metric_set(&nof_allocated, (int64_t)nof_used);
	mc_metric_set(&nof_capacity, (int64_t)nof_size);
	/* Copies, not objects, if there are more copies; objects without bytes are in memory. */
	if (!(st.disk_capacity + far_size) || in_memory > st.objects)
		in_memory = st.objects;
	mc_metric_set(&mem_keys, (int64_t)in_memory);
}

void mcm_stats_print_segments(struct mcm *m, FILE *to)
{
	static const struct {
		const char *name, *help;
	} series[] = {
		{ "segment_allocated_bytes", "Bytes used in a segment" },
		{ "segment_total_capacity_bytes", "Bytes of a segment" },
		{ "mooncake_master_segment_objects", "Objects in a segment" },
	};
	auto_free struct mcm_segment_sum *sum = NULL;
	unsigned n = 0;

	if (mcm_segments_sums(&m->segments, &sum, &n) < 0)
		mc_warn("stats", "out of memory: /metrics lacks the figures by segment");
	for (unsigned k = 0; k < sizeof(series) / sizeof(series[0]); k++) {
		fprintf(to, "# HELP %s %s\n# TYPE %s gauge\n", series[k].name, series[k].help,
			series[k].name);
		for (unsigned i = 0; i < n; i++) {
			const uint64_t value[] = { sum[i].used, sum[i].size, sum[i].objects };

			fprintf(to, "%s{segment=\"%s\"} %llu\n", series[k].name, sum[i].name,
				(unsigned long long)value[k]);
		}
	}
}

void mcm_series_show(void)
{
	mc_metric_part_show(&own_series);
}
