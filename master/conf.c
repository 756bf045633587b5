/* SPDX-License-Identifier: Apache-2.0
 * conf.c - the program's options as tables, and what must be true between them. */
#include <config.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/err.h"
#include "master/evict_policy.h"
#include "master/mcm.h"
#include "master/strategy.h"

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct mcm_conf, __VA_ARGS__)
#include "master/options.def"
#undef OPT
	{ .name = NULL },
};

static const struct mc_opt_alias aliases[] = {
	{ "client_live_ttl_sec", "client_ttl" },
	{ NULL, NULL },
};

#define NO_HA "there is no high availability; run one master"
#define NO_SSD "there is no SSD tier"
#define NO_NOF "there is no NVMe-oF tier"
#define NO_SNAPSHOT "the index is not kept across restarts"
#define NO_TASKS "there are no copy, move and drain tasks"
#define NO_EVENTS "there are no KV events"
#define NO_TENANTS "there is one tenant"
#define NO_META "run mooncake_http_metadata_server of upstream, or none: nodes here need none"
#define NO_REPLICATION "hot keys are not copied"
#define NO_CXL "there is no CXL tier"
#define NO_DISK "there is no shared-filesystem tier"

static const struct mc_opt_alias absent[] = {
	{ "nof_eviction_ratio", NO_NOF },
	{ "nof_eviction_high_watermark_ratio", NO_NOF },
	{ "nof_heartbeat_interval_sec", NO_NOF },
	{ "nof_heartbeat_probe_timeout_ms", NO_NOF },
	{ "nof_heartbeat_failures_threshold", NO_NOF },
	{ "enable_http_metadata_server", NO_META },
	{ "http_metadata_server_port", NO_META },
	{ "http_metadata_server_host", NO_META },
	{ "enable_metadata_cleanup_on_timeout", NO_META },
	{ "enable_multi_tenants", NO_TENANTS },
	{ "tenant_quota_connector_type", NO_TENANTS },
	{ "tenant_quota_connector_uri", NO_TENANTS },
	{ "enable_offload", NO_SSD },
	{ "offload_on_evict", NO_SSD },
	{ "offload_force_evict", NO_SSD },
	{ "offloading_queue_limit", NO_SSD },
	{ "offload_cap_ratio", NO_SSD },
	{ "promotion_on_hit", NO_SSD },
	{ "promotion_admission_threshold", NO_SSD },
	{ "promotion_queue_limit", NO_SSD },
	{ "promotion_max_per_heartbeat", NO_SSD },
	{ "quota_bytes", NO_DISK },
	{ "enable_disk_eviction", NO_DISK },
	{ "root_fs_dir", NO_DISK },
	{ "global_file_segment_size", NO_DISK },
	{ "dynamic_replication_mode", NO_REPLICATION },
	{ "dynamic_replication_heat_window_seconds", NO_REPLICATION },
	{ "dynamic_replication_admission_qps_threshold", NO_REPLICATION },
	{ "dynamic_replication_max_memory_replicas", NO_REPLICATION },
	{ "enable_cxl", NO_CXL },
	{ "cxl_path", NO_CXL },
	{ "cxl_size", NO_CXL },
	{ "enable_ha", NO_HA },
	{ "ha_backend_type", NO_HA },
	{ "ha_backend_connstring", NO_HA },
	{ "etcd_endpoints", NO_HA },
	{ "cluster_id", NO_HA },
	{ "enable_oplog", NO_HA },
	{ "oplog_poll_interval_ms", NO_HA },
	{ "oplog_batch_max_entries", NO_HA },
	{ "batch_oplog_retry_timeout_sec", NO_HA },
	{ "pod_name", NO_HA },
	{ "pod_namespace", NO_HA },
	{ "enable_snapshot", NO_SNAPSHOT },
	{ "enable_snapshot_restore", NO_SNAPSHOT },
	{ "snapshot_interval_seconds", NO_SNAPSHOT },
	{ "snapshot_child_timeout_seconds", NO_SNAPSHOT },
	{ "snapshot_retention_count", NO_SNAPSHOT },
	{ "snapshot_backup_dir", NO_SNAPSHOT },
	{ "snapshot_object_store_type", NO_SNAPSHOT },
	{ "snapshot_payload_store_type", NO_SNAPSHOT },
	{ "snapshot_payload_backend_type", NO_SNAPSHOT },
	{ "snapshot_catalog_store_type", NO_SNAPSHOT },
	{ "snapshot_catalog_backend_type", NO_SNAPSHOT },
	{ "snapshot_catalog_store_connstring", NO_SNAPSHOT },
	{ "snapshot_catalog_backend_connstring", NO_SNAPSHOT },
	{ "max_total_finished_tasks", NO_TASKS },
	{ "max_total_pending_tasks", NO_TASKS },
	{ "max_total_processing_tasks", NO_TASKS },
	{ "pending_task_timeout_sec", NO_TASKS },
	{ "processing_task_timeout_sec", NO_TASKS },
	{ "max_retry_attempts", NO_TASKS },
	{ "enable_kv_events", NO_EVENTS },
	{ "kv_events_bind_endpoint", NO_EVENTS },
	{ "kv_events_backend_id", NO_EVENTS },
	{ "kv_events_emit_legacy_compat", NO_EVENTS },
	{ "kv_events_emit_object_key", NO_EVENTS },
	{ "kv_events_queue_capacity", NO_EVENTS },
	{ "kv_events_model_name", NO_EVENTS },
	{ "kv_events_tenant_id", NO_EVENTS },
	{ "kv_events_additional_salt", NO_EVENTS },
	{ "kv_events_lora_name", NO_EVENTS },
	{ "kv_events_block_size", NO_EVENTS },
	{ "kv_events_dp_rank", NO_EVENTS },
	{ NULL, NULL },
};

const struct mc_program mcm_program = {
	.name = "mooncake_master",
	.synopsis = "[OPTION]...",
	.summary = "The master of a Mooncake pool: which objects there are, where they lie, what goes",
	.rows = rows,
	.aliases = aliases,
	.absent = absent,
};

int mcm_conf_defaults(struct mcm_conf *conf, struct mc_options **ret_owner)
{
	char name[] = "mooncake_master", *argv[] = { name, NULL };

	return mc_options_parse(&mcm_program, 1, argv, conf, ret_owner);
}

int mcm_conf_check(const struct mcm_conf *c)
{
	if (strcmp(c->memory_allocator, "offset") != 0)
		return mc_fail(-EINVAL, "memory_allocator=%s: only offset is known",
			       c->memory_allocator);
	if (!mcm_strategy_find(c->allocation_strategy))
		return mc_fail(-EINVAL, "allocation_strategy=%s: random and free_ratio_first are known",
			       c->allocation_strategy);
	if (!mcm_evict_ops_find(c->eviction_policy))
		return mc_fail(-EINVAL, "eviction_policy=%s: only lru is known", c->eviction_policy);
	if (c->default_kv_soft_pin_ttl > c->max_kv_soft_pin_ttl)
		return mc_fail(-EINVAL, "default_kv_soft_pin_ttl is above max_kv_soft_pin_ttl");
	if (c->put_start_release_timeout_sec <= c->put_start_discard_timeout_sec)
		return mc_fail(-EINVAL,
			       "put_start_release_timeout_sec must be above put_start_discard_timeout_sec");
	return 0;
}
