/* SPDX-License-Identifier: Apache-2.0
 * offload_env.c - the settings of disks in upstream's environment variables, MOONCAKE_OFFLOAD_* and their short names.
 *
 * Upstream's storage backends have one format each; here all their names mean the one of tiers/ssd/. */
#include <config.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <mooncake/mcs.h>

#include "common/env.h"
#include "common/err.h"

#define PATH_DEFAULT "/data/file_storage"
#define BYTES_MAX (1ull << 50)

/* The value of the variable, or of its short name; NULL. */
static const char *env_either(const char *name, const char *alias)
{
	const char *v = mc_env_str(name);

	return v || !alias ? v : mc_env_str(alias);
}

static uint64_t bytes_of(const char *name, const char *alias)
{
	return mc_env_size(mc_env_str(name) || !alias ? name : alias, 0, 0, BYTES_MAX);
}

static int backend_check(void)
{
	static const char *const known[] = {
		"bucket_storage_backend", "file_per_key_storage_backend", "offset_allocator_storage_backend",
	};
	const char *v = mc_env_str("MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR");

	for (size_t i = 0; v && i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(v, known[i]))
			return 0;
	return v ? mc_fail(-EINVAL, "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=%s: not in this version; "
			   "bucket_storage_backend, file_per_key_storage_backend and offset_allocator_storage_backend "
			   "all mean the same here", v) : 0;
}

static int percent_of(const char *name, const char *alias, unsigned *ret)
{
	const char *v = env_either(name, alias);
	char *end;
	double d;

	if (!v)
		return 0;
	d = strtod(v, &end);
	if (*end || !(d > 0 && d <= 1))
		return mc_fail(-EINVAL, "%s=%s is not a share between 0 and 1", name, v);
	*ret = (unsigned)(d * 100 + 0.5);
	*ret = *ret ? *ret : 1;
	return 0;
}

static int offload_watermarks(struct mcs_conf *conf)
{
	const char *on = mc_env_str("MOONCAKE_OFFLOAD_ENABLE_DISK_WATERMARK_EVICTION");
	int r;

	r = percent_of("MOONCAKE_OFFLOAD_DISK_EVICTION_HIGH_WATERMARK_RATIO",
		       "MOONCAKE_DISK_EVICTION_HIGH_WATERMARK_RATIO", &conf->ssd_high);
	if (r == 0)
		r = percent_of("MOONCAKE_OFFLOAD_DISK_EVICTION_LOW_WATERMARK_RATIO",
			       "MOONCAKE_DISK_EVICTION_LOW_WATERMARK_RATIO", &conf->ssd_low);
	/* Without watermarks objects are evicted only for the next one. */
	if (on && !mc_env_on("MOONCAKE_OFFLOAD_ENABLE_DISK_WATERMARK_EVICTION")) {
		conf->ssd_high = 100;
		conf->ssd_low = 99;
	}
	if (r == 0 && conf->ssd_low && conf->ssd_high && conf->ssd_low >= conf->ssd_high)
		r = mc_fail(-EINVAL, "the low watermark of disks (%u %%) must be below the high one (%u %%)",
			    conf->ssd_low, conf->ssd_high);
	return r;
}

static int policy_of(struct mcs_conf *conf)
{
	const char *v = env_either("MOONCAKE_OFFLOAD_BUCKET_EVICTION_POLICY", "MOONCAKE_BUCKET_EVICTION_POLICY");

	if (!v)
		return 0;
	if (!strcmp(v, "none")) {
		conf->ssd_high = 100;
		return 0;
	}
	if (strcmp(v, "lru") && strcmp(v, "fifo"))
		return mc_fail(-EINVAL, "MOONCAKE_OFFLOAD_BUCKET_EVICTION_POLICY=%s is not none, lru or fifo", v);
	conf->ssd_policy = v;
	return 0;
}

static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
	return !a ? b : !b || a < b ? a : b;
}

int mcs_conf_offload(struct mcs_conf *conf)
{
	const char *uring = env_either("MOONCAKE_OFFLOAD_USE_URING", "MOONCAKE_USE_URING");
	int r;

	r = backend_check();
	if (r == 0)
		r = offload_watermarks(conf);
	if (r == 0)
		r = policy_of(conf);
	if (r < 0)
		return r;
	if (!conf->ssd_path || !*conf->ssd_path)
		conf->ssd_path = mc_env_str("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH");
	if (!conf->ssd_path)
		conf->ssd_path = PATH_DEFAULT;
	if (!conf->ssd_size) {
		conf->ssd_size = bytes_of("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", NULL);
		conf->ssd_size = smaller_limit(conf->ssd_size, bytes_of("MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE",
									"MOONCAKE_BUCKET_MAX_TOTAL_SIZE"));
		conf->ssd_size = smaller_limit(conf->ssd_size,
					       bytes_of("MOONCAKE_OFFLOAD_BUCKET_MAX_PHYSICAL_BYTES", NULL));
	}
	if (!conf->ssd_buffers)
		conf->ssd_buffers = bytes_of("MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", NULL);
	if (uring && (!strcmp(uring, "0") || !strcasecmp(uring, "false")))
		conf->ssd_threads = 1;
	if (!conf->ssd_format)
		conf->ssd_format = mc_env_on("MOONCAKE_SSD_FORMAT");
	if (!conf->ssd_nof || !*conf->ssd_nof)
		conf->ssd_nof = mc_env_str("MOONCAKE_SSD_NOF");
	return 0;
}
