/* SPDX-License-Identifier: Apache-2.0
 * env.c - environment variables with bounds, those with secrets, and the report of those without effect. */
#include <config.h>

#include "common/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options/options.h"

/* ---- secrets ---- */

static const char *const secrets[] = {
	"MC_METADATA_HTTP_TOKEN", "MC_REDIS_PASSWORD",
	"MOONCAKE_S3_SECRET_ACCESS_KEY", "MOONCAKE_OSS_ACCESS_KEY_SECRET", "MOONCAKE_AWS_SECRET_ACCESS_KEY",
	"MOONCAKE_S3_SESSION_TOKEN", "MOONCAKE_OSS_SECURITY_TOKEN",
};
#define SECRETS (sizeof(secrets) / sizeof(*secrets))

static const char *hidden[SECRETS];	/* their values; constant after the start of the program */

/* Memory as that of keys (security/secret.c): not in core dumps, and not in the swap space where that is allowed. */
static char *secret_memory(size_t len)
{
	char *p = len ? mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

	if (p == MAP_FAILED)
		return NULL;
	(void)mlock(p, len);
	(void)madvise(p, len, MADV_DONTDUMP);
	return p;
}

/* Move the variables into memory of their own, as NAME=VALUE, and call @take for each.  The kernel reads
 * /proc/PID/environ from the old place, which is erased. */
static void secrets_move(void (*take)(unsigned i, char *entry))
{
	size_t sum = 0;
	char *to;

	for (unsigned i = 0; i < SECRETS; i++)
		sum += getenv(secrets[i]) ? strlen(secrets[i]) + strlen(getenv(secrets[i])) + 2 : 0;
	to = secret_memory(sum);
	for (unsigned i = 0; to && i < SECRETS; i++) {
		char *v = getenv(secrets[i]);

		if (!v)
			continue;
		sprintf(to, "%s=%s", secrets[i], v);
		take(i, to);
		to += strlen(to) + 1;
		explicit_bzero(v, strlen(v));
	}
}

static void take_hidden(unsigned i, char *entry)
{
	hidden[i] = strchr(entry, '=') + 1;
	unsetenv(secrets[i]);
}

void mc_env_hide(void)
{
	secrets_move(take_hidden);
}

static void take_scrubbed(unsigned i, char *entry)
{
	(void)i;
	(void)putenv(entry);
}

void mc_env_scrub(void)
{
	secrets_move(take_scrubbed);
}

static bool env_is_secret(const char *entry)
{
	for (unsigned i = 0; i < SECRETS; i++) {
		size_t len = strlen(secrets[i]);

		if (!strncmp(entry, secrets[i], len) && entry[len] == '=')
			return true;
	}
	return false;
}

char **mc_env_public(void)
{
	char **ret;
	size_t n = 0, to = 0;

	while (environ[n])
		n++;
	ret = calloc(n + 1, sizeof(*ret));
	for (size_t i = 0; ret && i < n; i++)
		if (!env_is_secret(environ[i]))
			ret[to++] = environ[i];
	return ret;
}

char **mc_env_revealed(void)
{
	char **ret, *text;
	size_t n = 0;

	while (environ[n])
		n++;
	ret = calloc(n + SECRETS + 1, sizeof(*ret));
	if (!ret)
		return NULL;
	memcpy(ret, environ, n * sizeof(*ret));
	for (unsigned i = 0; i < SECRETS; i++)
		if (hidden[i] && asprintf(&text, "%s=%s", secrets[i], hidden[i]) > 0)
			ret[n++] = text;
	return ret;
}

const char *mc_env_str(const char *name)
{
	const char *v = getenv(name);

	for (unsigned i = 0; i < SECRETS && !v; i++)
		if (hidden[i] && !strcmp(secrets[i], name))
			v = hidden[i];
	return v && *v ? v : NULL;
}

/* ---- values ---- */

int64_t mc_env_int(const char *name, int64_t def, int64_t min, int64_t max)
{
	const char *v = mc_env_str(name);
	char *end;
	long long n;

	if (!v)
		return def;
	errno = 0;
	n = strtoll(v, &end, 10);
	if (!errno && end != v && !*end && n >= min && n <= max)
		return n;
	mc_warn("env", "not a number from %lld to %lld, using %lld: %s=%s", (long long)min,
		(long long)max, (long long)def, name, v);
	return def;
}

uint64_t mc_env_size(const char *name, uint64_t def, uint64_t min, uint64_t max)
{
	const char *v = mc_env_str(name);
	char a[32], b[32], c[32];
	uint64_t n;

	if (!v)
		return def;
	if (mc_parse_size(v, &n) == 0 && n >= min && n <= max)
		return n;
	mc_warn("env", "not a size from %s to %s, such as 1048576 or 64MB, using %s: %s=%s",
		mc_format_size(min, a, sizeof(a)), mc_format_size(max, b, sizeof(b)), mc_format_size(def, c, sizeof(c)),
		name, v);
	return def;
}

static bool is_off(const char *v)
{
	return !strcasecmp(v, "0") || !strcasecmp(v, "false") || !strcasecmp(v, "no") ||
	       !strcasecmp(v, "off");
}

bool mc_env_on(const char *name)
{
	const char *v = mc_env_str(name);

	return v && !is_off(v);
}

const char *mc_env_dfs(void)
{
	const char *dir = mc_env_str("MOONCAKE_DFS_ROOT_DIR");

	if (!mc_env_on("MOONCAKE_ENABLE_DFS"))
		return NULL;
	return dir ? dir : "/mnt/3fs/mooncake";
}

double mc_env_ratio(const char *name, double def)
{
	const char *v = mc_env_str(name);
	char *end;
	double n;

	if (!v)
		return def;
	n = strtod(v, &end);
	if (end != v && !*end && n >= 0 && n <= 1)
		return n;
	mc_warn("env", "not a number from 0 to 1, using %g: %s=%s", def, name, v);
	return def;
}

/* ---- variables without effect ---- */

/* Bytes of the names in one line of the log, which cuts longer lines off. */
#define INERT_BYTES 1500

/* Upstream's variables that no part of this version reads.  A name that ends in _ stands for all that begin with it.
 * tests/lint/env.sh compares this table with the sources and the documents. */
static const char *const inert[] = {
	/* the store */
	"MC_STORE_", "MC_NOF_", "MC_NVME_", "MC_RPC_TIMEOUT_MS", "MC_RPC_CONNECT_TIMEOUT_MS",
	"MC_MMAP_ARENA_POOL_SIZE", "MC_DISABLE_MMAP_ARENA",
	"MC_FILEREAD_WORKERS",
	/* disk tiers, snapshots, checksums */
	"MOONCAKE_OFFLOAD_SCANMETA_", "MOONCAKE_OFFLOAD_TOTAL_KEYS_LIMIT", "MOONCAKE_OFFLOAD_HEARTBEAT_",
	"MOONCAKE_OFFLOAD_CLIENT_BUFFER_GC_", "MOONCAKE_OFFLOAD_BUCKET_SIZE_LIMIT_BYTES",
	"MOONCAKE_OFFLOAD_BUCKET_KEYS_LIMIT", "MOONCAKE_OFFLOAD_BUCKET_DISK_", "MOONCAKE_OFFLOAD_FSDIR",
	"MOONCAKE_OFFLOAD_ENABLE_EVICTION", "MOONCAKE_OFFLOAD_FLUSH_PARTIAL_BUCKETS",
	"MOONCAKE_SCANMETA_", "MOONCAKE_OFFSET_", "MOONCAKE_NVME_KV_", "MOONCAKE_DFS_FS_ADAPTER",
	"MOONCAKE_DFS_SHARD_", "MOONCAKE_DFS_ALIGNMENT", "MOONCAKE_DFS_SINGLE_TENANT", "MOONCAKE_DFS_EVICTION_",
	"MOONCAKE_DFS_DEFERRED_FREE_SECONDS", "MOONCAKE_DFS_ALLOCATOR", "MOONCAKE_DFS_BUCKET_", "MOONCAKE_DFS_ENABLED",
	"MOONCAKE_DFS_MAX_BUCKET_COUNT",
	"MOONCAKE_DISTRIBUTED_", "MOONCAKE_KVCS_EFC_CONFIG",
	"MOONCAKE_STORE_CHECKSUM", "MOONCAKE_STORE_BACKEND",
	"MOONCAKE_HOST_ID", "MOONCAKE_DISABLE_HIP_DMABUF", "MOONCAKE_ENABLE_EMBEDDED_MASTER",
	"MOONCAKE_S3_ANONYMOUS", "MOONCAKE_S3_MAX_CONNECTIONS", "MOONCAKE_S3_UPLOAD_BUFFER_SIZE",
	"MOONCAKE_S3_RECEIVE_BUFFER_SIZE",
	"MOONCAKE_OSS_ANONYMOUS", "MOONCAKE_OSS_MAX_CONNECTIONS", "MOONCAKE_OSS_UPLOAD_BUFFER_SIZE",
	"MOONCAKE_OSS_RECEIVE_BUFFER_SIZE",
	/* TCP */
	"MC_TCP_ENABLE_CONNECTION_POOL", "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER",
	"MC_TCP_MAX_QUEUED_BYTES_PER_PEER", "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER",
	"MC_TCP_ADMISSION_TIMEOUT_MS", "MC_TCP_SLICE_SIZE", "MC_FORCE_SHM",
	/* RDMA */
	"MC_PATH_ROUNDROBIN", "MC_ENABLE_DEST_DEVICE_AFFINITY", "MC_NUM_CQ_PER_CTX", "MC_NUM_COMP_CHANNELS_PER_CTX",
	"MC_MAX_SGE", "MC_WORKERS_PER_CTX", "MC_FRAGMENT_RATIO", "MC_RETRY_CNT", "MC_SLICE_TIMEOUT",
	"MC_CONN_PAUSE_TTL_MS", "MC_CONTEXT_PAUSE_TTL_MS", "MC_AUTO_GID_MAX_RETRIES", "MC_ENDPOINT_STORE_TYPE",
	"MC_MLX5_", "MC_ENABLE_PARALLEL_REG_MR", "MC_MIN_REG_SIZE", "MC_MAX_CONCURRENT_REG_MR", "MC_EFA_",
	"MC_LOG_RDMA_SLICE_AFFINITY", "MC_TRACK_RDMA_POSTED_SLICES", "MC_USE_RDMA_TWOSIDED",
	"MC_RDMA_BIND_ADDRESS", "MC_RDMA_RAIL_PAUSE_SECONDS", "MC_RDMA_NOTIFY_", "MC_RDMA_SIGNAL_INTERVAL",
	"MC_RDMA_WORKER_IDLE_SPIN_US", "MC_RDMA_DATA_DIRECT", "MC_RDMA_DATA_DIRECT_PAIRING", "MC_LIBFABRIC_PATH",
	/* links between accelerators, CXL */
	"MC_FORCE_MNNVL", "MC_FORCE_MUSA", "MC_INTRANODE_NVLINK", "MC_INTRA_NVLINK", "MC_ENABLE_MNNVL",
	"MC_USE_NVLINK_IPC", "MC_USE_HIP_IPC", "MC_USE_UBSHMEM_IPC", "MC_DISABLE_HIP", "MC_DISABLE_MACA",
	"MC_DISABLE_MUSA", "MC_CXL_", "MC_HIP_", "MC_MACA_", "MC_MUSA_", "MC_UBSHMEM_", "MC_TANGRT_",
	"MC_TPU_",
	/* remote calls, metadata */
	"MC_USE_TENT", "MC_USE_TEV1", "MC_TENT_", "MC_RPC_PROTOCOL", "MC_RPC_CLIENT_IO_THREADS",
	"MC_TE_RPC_CLIENT_IO_THREADS", "MC_YLT_LOG_LEVEL", "MC_HANDSHAKE_MAX_NOTIFY_ENTRIES",
	"MC_METADATA_MAX_CONCURRENT_PUTS",
};

/* Those of a row that have an effect. */
static const char *const effective[] = {
	"MC_CXL_DEV_PATH", "MC_CXL_DEV_SIZE",
	"MOONCAKE_DFS_EVICTION_HIGH_WATERMARK", "MOONCAKE_DFS_EVICTION_LOW_WATERMARK",
	"MC_STORE_CREDENTIALS",
	"MC_STORE_CLUSTER_ID", "MC_STORE_CLIENT_MIN_PORT", "MC_STORE_CLIENT_MAX_PORT", "MC_STORE_CLIENT_METRIC",
	"MC_STORE_CLIENT_METRIC_INTERVAL", "MC_STORE_CLIENT_METRIC_BANDWIDTH", "MC_STORE_MEMCPY",
	"MC_STORE_USE_HUGEPAGE", "MC_STORE_HUGEPAGE_SIZE",
	"MC_STORE_LOCAL_HOT_CACHE_SIZE", "MC_STORE_LOCAL_HOT_BLOCK_SIZE", "MC_STORE_LOCAL_HOT_ADMISSION_THR",
	"MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD",
};

/* The length of the name of "NAME=value" if the variable is in the table, and set to something; else 0. */
static size_t inert_name(const char *setting)
{
	const char *equals = strchr(setting, '=');
	size_t len, n = equals ? (size_t)(equals - setting) : 0;

	if (!n || !equals[1])
		return 0;
	for (size_t i = 0; i < sizeof(effective) / sizeof(effective[0]); i++)
		if (n == strlen(effective[i]) && !strncmp(setting, effective[i], n))
			return 0;
	for (size_t i = 0; i < sizeof(inert) / sizeof(inert[0]); i++) {
		len = strlen(inert[i]);
		if (!strncmp(setting, inert[i], len) && (n == len || (n > len && inert[i][len - 1] == '_')))
			return n;
	}
	return 0;
}

void mc_env_report_inert(void)
{
	static bool reported;	/* atomic */
	char names[INERT_BYTES] = "";
	size_t used = 0, more = 0, len;

	if (__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED))
		return;
	for (char **e = environ; e && *e; e++) {
		len = inert_name(*e);
		if (!len)
			continue;
		if (used + len + 2 > sizeof(names))
			more++;
		else
			used += (size_t)snprintf(names + used, sizeof(names) - used, " %.*s", (int)len, *e);
	}
	if (more)
		mc_warn("env", "these variables are set and have no effect in this version:%s and %zu more", names,
			more);
	else if (used)
		mc_warn("env", "these variables are set and have no effect in this version:%s", names);
}
