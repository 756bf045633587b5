/* SPDX-License-Identifier: Apache-2.0
 * mcctl_stat.c - attributes of objects. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <inttypes.h>

static void print_text(struct mcs_key key, bool raw, const struct mcs_info *info)
{
	char size[32], when[32];

	fputs("key:        ", stdout);
	mcctl_key_print(raw, key, stdout);
	printf("\nkind:       %s\n", mcctl_kind_name(info->kind));
	printf("size:       %" PRIu64 " (%s)\n", info->size,
	       mc_format_size(info->size, size, sizeof(size)));
	printf("stored:     %s\n", mcctl_time_text(info->mtime_ms, when, sizeof(when)));
	printf("crc32c:     %08" PRIx32 "\n", info->crc32c);
	printf("generation: %" PRIu64 "\n", info->generation);
	printf("replicas:   %u\n", info->replicas);
	printf("tier:       %s\n", mcctl_tier_name(info->flags));
	printf("pinned:     %s\n", info->flags & MCS_PUT_HARD_PIN ? "hard" :
	       info->flags & MCS_PUT_SOFT_PIN ? "soft" : "no");
}

static json_t *info_json(struct mcs_key key, const struct mcs_info *info)
{
	char crc[16];

	snprintf(crc, sizeof(crc), "%08" PRIx32, info->crc32c);
	return json_pack("{s:o*, s:s, s:I, s:I, s:s, s:I, s:i, s:b, s:b, s:s}",
			 "key", mcctl_key_json(key), "kind", mcctl_kind_name(info->kind),
			 "size", (json_int_t)info->size, "mtime_ms", (json_int_t)info->mtime_ms,
			 "crc32c", crc, "generation", (json_int_t)info->generation,
			 "replicas", (int)info->replicas,
			 "hard_pin", !!(info->flags & MCS_PUT_HARD_PIN),
			 "soft_pin", !!(info->flags & MCS_PUT_SOFT_PIN),
			 "tier", mcctl_tier_name(info->flags));
}

static enum mcctl_status stat_one(struct mcctl *c, const char *arg, bool first, json_t *all)
{
	enum mcctl_status status;
	struct mcs_info info;
	struct mcs_key key;
	int r;

	status = mcctl_key_parse(c, arg, &key);
	if (status != MCCTL_OK)
		return status;
	r = mcs_stat(c->store, key, &info, -1);
	if (r < 0) {
		status = mcctl_error(r, "%s", arg);
		json_array_append_new(all, json_pack("{s:o*, s:s, s:i}", "key", mcctl_key_json(key),
						     "error", mcs_strerror(r), "code",
						     mcs_code(r)));
	} else if (all) {
		json_array_append_new(all, info_json(key, &info));
	} else {
		if (!first)
			putchar('\n');
		print_text(key, c->conf->raw, &info);
	}
	mcctl_key_free(&key);
	return status;
}

int mcctl_stat(struct mcctl *c)
{
	json_t *all = c->conf->json ? json_array() : NULL;
	enum mcctl_status status = MCCTL_OK, one;

	for (int i = 0; i < c->argc; i++) {
		one = stat_one(c, c->argv[i], i == 0, all);
		if (one > status)
			status = one;
	}
	if (c->conf->json) {
		one = mcctl_json_print(all);
		if (one > status)
			status = one;
	}
	return status;
}
