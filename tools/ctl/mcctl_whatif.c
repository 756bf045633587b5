/* SPDX-License-Identifier: Apache-2.0
 * mcctl_whatif.c - the hit ratio that the pool would have with less or more memory, as the master estimates it. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"

#define FEW_USES 10000	/* below it the estimates are rough */

static void print_size(const char *name, const json_t *j)
{
	const json_t *saved = json_object_get(j, "recompute_seconds_saved");
	double bytes = json_number_value(json_object_get(j, "bytes"));
	char size[32];

	printf("%-14s  %10s  %6.1f%%", name, bytes > 0 ? mc_format_size((uint64_t)bytes, size, sizeof(size)) : "",
	       100 * json_number_value(json_object_get(j, "hit_ratio")));
	if (saved)
		printf("  %12.0f s", json_number_value(saved));
	putchar('\n');
}

static void print_sizes(const char *what, const json_t *list)
{
	const json_t *size;
	char name[64];
	size_t i;

	json_array_foreach(list, i, size) {
		snprintf(name, sizeof(name), "%s x %g", what, json_number_value(json_object_get(size, "factor")));
		print_size(name, size);
	}
}

static int print_text(const json_t *j)
{
	const json_t *memory, *disks, *endless;
	const char *policy, *like;
	json_int_t asked, found, uses;
	double ratio, rate;

	if (json_unpack((json_t *)j, "{s:s, s:s, s:I, s:I, s:F, s:I, s:F, s:o, s:o, s:o}", "policy", &policy,
			"evicts_like", &like, "keys_asked", &asked, "keys_found", &found, "hit_ratio", &ratio,
			"sampled_uses", &uses, "sampling_rate", &rate, "memory", &memory, "disks", &disks,
			"endless", &endless))
		return mcctl_complain(MCCTL_FAILED, "the master's answer is not understood; is it of another version?");
	printf("%-14s  %10s  %7s%s\n", "POOL", "SIZE", "HITS",
	       json_object_get(endless, "recompute_seconds_saved") ? "  TIME SAVED" : "");
	printf("%-14s  %10s  %6.1f%%\n", "now (real)", "", 100 * ratio);
	print_sizes("memory", memory);
	print_sizes("disks", disks);
	print_size("endless", endless);
	printf("\npolicy %s%s; %lld of %lld keys that clients asked for were found since the master started\n", policy,
	       strcmp(policy, like) ? ", which evicts like lru at the moment" : "", (long long)found, (long long)asked);
	printf("estimated from %lld uses of %g %% of the keys%s\n", (long long)uses, 100 * rate,
	       uses < FEW_USES ? "; that is little, ask again later" : "");
	return MCCTL_OK;
}

int mcctl_whatif(struct mcctl *c)
{
	auto_free char *body = NULL;
	json_t *j;
	int status, r;
	long code;

	r = mcctl_ask_http(c, "/api/v1/whatif", &code, &body);
	if (r == -EACCES)
		return mcctl_complain(MCCTL_FAILED, "no estimates: %s", mc_err_detail(r));
	if (r < 0)
		return mcctl_complain(MCCTL_FAILED, "cannot ask the master's HTTP server: %s; --metrics_port "
				      "tells where it listens", mc_err_detail(r));
	j = json_loads(body, 0, NULL);
	if (code != 200 || !j) {
		json_decref(j);
		return mcctl_complain(MCCTL_FAILED, "the master answered with HTTP status %ld: it is not ready, "
				      "or an older version that has no estimates", code);
	}
	if (c->conf->json)
		return (int)mcctl_json_print(j);
	status = print_text(j);
	json_decref(j);
	return status;
}
