/* SPDX-License-Identifier: Apache-2.0
 * env.c - environment variables with bounds. */
#include <config.h>

#include "common/env.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "common/log.h"

const char *mc_env_str(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

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
