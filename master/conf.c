/* SPDX-License-Identifier: Apache-2.0
 * conf.c - tables of the program's options, and checks of relations between options. */
#include <config.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "master/admin/kv_events.h"
#include "master/conf.h"
#include "master/identity.h"
#include "master/journal/journal.h"
#include "master/ops/hot.h"
#include "master/snapshot/snapshot.h"
#include "master/space/evict_policy.h"
#include "master/space/strategy.h"
#include "master/tenant/policy_store.h"

#define LOG "options"

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct mcm_conf, __VA_ARGS__)
#include "master/options.def"
#undef OPT
	{ .name = NULL },
};

static const struct mc_opt_alias aliases[] = {
	{ "client_active_ttl_sec", "client_ttl" },
	{ "client_live_ttl_sec", "client_ttl" },
	{ "snapshot_payload_store_type", "snapshot_object_store_type" },
	{ "snapshot_payload_backend_type", "snapshot_object_store_type" },
	{ "snapshot_catalog_backend_type", "snapshot_catalog_store_type" },
	{ "enable_oplog_snapshot", "enable_snapshot" },
	{ NULL, NULL },
};

#define NO_K8S "there is no k8s backend; use etcd or redis"
#define NO_NOF "a device over NVMe-oF is a disk of its node, which pauses it while its I/O fails"
#define NO_CHILD "a thread writes snapshots, which does not stop the master, and gives one up when the store fails"
#define NO_CATALOG "there is no list of snapshots beside them: they are found by their names in the store " \
	"(snapshot_object_store_type)"
#define NO_CHUNKS "pieces of snapshots are cut by bytes, not by a number of objects"
#define NO_OPLOG "the leader sends its journal to the standbys (ha_backend_type) as it is written; none polls a store"
#define OWNERS_CXL "the master opens no device; the owners do, with --far_segment_path and --far_segment_size, or " \
	"MC_CXL_DEV_PATH and MC_CXL_DEV_SIZE"
#define NO_WEIGHTS "there are no managed weights"
#define NO_ARENA "the master does not store objects"

static const struct mc_opt_absent absent[] = {
	{ "pod_name", "", NO_K8S },
	{ "pod_namespace", "", NO_K8S },
	{ NULL, NULL, NULL },
};

/* They would change no result. */
static const struct mc_opt_absent idle[] = {
	{ "batch_oplog_retry_timeout_sec", "180", NO_OPLOG },
	{ "cxl_path", "/dev/dax0.0", OWNERS_CXL },
	{ "cxl_size", "8589934592", OWNERS_CXL },
	{ "handler_worker_thread_num", "0", "the RPC threads (rpc_thread_num) run the requests, in slices" },
	{ "mmap_arena_pool_size", "8589934592", NO_ARENA },
	{ "nof_eviction_high_watermark_ratio", "0.90", NO_NOF },
	{ "nof_eviction_ratio", "0.05", NO_NOF },
	{ "nof_heartbeat_failures_threshold", "3", NO_NOF },
	{ "nof_heartbeat_interval_sec", "10", NO_NOF },
	{ "nof_heartbeat_probe_timeout_ms", "1000", NO_NOF },
	{ "oplog_batch_max_entries", "1024", NO_OPLOG },
	{ "oplog_poll_interval_ms", "1000", NO_OPLOG },
	{ "snapshot_catalog_backend_connstring", "", NO_CATALOG },
	{ "snapshot_catalog_store_connstring", "", NO_CATALOG },
	/* a value of an option; mcm_conf_report() */
	{ "snapshot_catalog_store_type=redis", "embedded", NO_CATALOG },
	{ "snapshot_child_timeout_seconds", "300", NO_CHILD },
	{ "snapshot_chunk_object_count", "1000000", NO_CHUNKS },
	{ "tenant_eviction_high_watermark_ratio", "0.9",
	  "a put beyond the tenant's quota evicts objects of the tenant and is not rejected" },
	{ "use_mmap_arena_allocator", "false", NO_ARENA },
	{ "weight_import_idle_timeout_ms", "300000", NO_WEIGHTS },
	{ "weight_management_oplog_capability_confirmed", "false", NO_WEIGHTS },
	{ NULL, NULL, NULL },
};

const struct mc_program mcm_program = {
	.name = "mooncake_master",
	.synopsis = "[OPTION]...",
	.summary = "Run the master of a Mooncake pool, which indexes, places and evicts objects",
	.rows = rows,
	.aliases = aliases,
	.absent = absent,
	.idle = idle,
};

int mcm_conf_defaults(struct mcm_conf *conf, struct mc_options **ret_owner)
{
	char name[] = "mooncake_master", none[] = "--journal_dir=none", *argv[] = { name, none, NULL };

	return mc_options_parse(&mcm_program, 2, argv, conf, ret_owner);
}

void mcm_conf_report(const struct mcm_conf *c)
{
	if (!strcmp(c->memory_allocator, "cachelib"))
		mc_warn(LOG, "--memory_allocator=cachelib is another name of offset here");
	if (!strcmp(c->snapshot_catalog_store_type, "redis"))
		mc_warn(LOG, "--snapshot_catalog_store_type=redis has no effect: " NO_CATALOG);
}

int mcm_conf_check(const struct mcm_conf *c)
{
	const char *dir;
	int r;

	if (strcmp(c->memory_allocator, "offset") != 0 && strcmp(c->memory_allocator, "cachelib") != 0)
		return mc_fail(-EINVAL, "memory_allocator=%s: unknown, use offset", c->memory_allocator);
	if (!mcm_strategy_find(c->allocation_strategy))
		return mc_fail(-EINVAL, "allocation_strategy=%s: not built into this version, use random, "
			       "free_ratio_first, ssd_free_ratio_first, local_first or cxl",
			       c->allocation_strategy);
	if (!mcm_evict_ops_find(c->eviction_policy))
		return mc_fail(-EINVAL, "eviction_policy=%s: unknown, use learn, lru or fifo",
			       c->eviction_policy);
	if (c->default_kv_soft_pin_ttl > c->max_kv_soft_pin_ttl)
		return mc_fail(-EINVAL, "default_kv_soft_pin_ttl must not be above max_kv_soft_pin_ttl");
	if (c->client_ttl && c->client_ttl < 100)
		return mc_fail(-EINVAL, "client_ttl must be 0 or at least 0.1 seconds");
	if (c->put_start_release_timeout_sec <= c->put_start_discard_timeout_sec)
		return mc_fail(-EINVAL,
			       "put_start_release_timeout_sec must be above put_start_discard_timeout_sec");
	if (strcmp(c->security, "off") != 0 && strcmp(c->security, "on") != 0)
		return mc_fail(-EINVAL, "security=%s: unknown, use off or on", c->security);
	if ((*c->tls_cert || *c->tls_key || *c->tls_ca || *c->tls_map) &&
	    (strcmp(c->security, "on") || !*c->tls_cert || !*c->tls_key || !*c->tls_ca || !*c->tls_map))
		return mc_fail(-EINVAL, "tls_cert, tls_key, tls_ca and tls_map need each other, and security=on");
	r = mcm_policy_check(c);
	if (r == 0)
		r = mcm_identity_check(c);
	if (r == 0)
		r = mcm_hot_check(c);
	if (r == 0)
		r = mcm_kv_events_check(c);
	if (r == 0)
		r = mcm_snapshots_wanted(c);
	if (r >= 0)
		r = mcm_journal_wanted(c, &dir);
	return r < 0 ? r : 0;
}
