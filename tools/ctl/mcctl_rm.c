/* SPDX-License-Identifier: Apache-2.0
 * mcctl_rm.c - remove objects by name. */
#include <config.h>

#include "tools/ctl/mcctl_rm.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"

#define BATCH 1000

struct removal {
	struct mcctl *c;
	struct mcs_key *keys;
	int *results;
	uint64_t removed;
	json_t *refused;		/* NULL without --json */
};

static enum mcctl_status remove_batch(struct removal *rm, int at, unsigned n)
{
	unsigned flags = rm->c->conf->force ? MCS_REMOVE_FORCE : 0;
	enum mcctl_status status = MCCTL_OK, one;
	int r;

	r = mcs_remove_batch(rm->c->store, rm->keys + at, n, flags, rm->results, -1);
	if (r < 0)
		return mcctl_error(r, "cannot remove %s%s", rm->c->argv[at],
				   n > 1 ? " and the keys after it" : "");
	for (unsigned i = 0; i < n; i++) {
		if (rm->results[i] >= 0) {
			rm->removed++;
			continue;
		}
		/* As rm(1): -f asks that the name is gone. */
		if (rm->c->conf->force && mcs_errno(rm->results[i]) == ENOENT)
			continue;
		one = mcctl_error(rm->results[i], "cannot remove %s", rm->c->argv[at + (int)i]);
		if (one > status)
			status = one;
		json_array_append_new(rm->refused, json_pack("{s:o*, s:s, s:i}",
			"key", mcctl_key_json(rm->keys[at + (int)i]),
			"error", mcs_strerror(rm->results[i]), "code", mcs_code(rm->results[i])));
	}
	return status;
}

static enum mcctl_status remove_keys(struct removal *rm)
{
	struct mcctl *c = rm->c;
	enum mcctl_status status = MCCTL_OK, one;

	/* Check all names before the first object is removed. */
	for (int i = 0; i < c->argc && status == MCCTL_OK; i++)
		status = mcctl_key_parse(c, c->argv[i], &rm->keys[i]);
	if (status != MCCTL_OK)
		return status;
	for (int i = 0; i < c->argc; i += BATCH) {
		one = remove_batch(rm, i, (unsigned)(c->argc - i < BATCH ? c->argc - i : BATCH));
		if (one > status)
			status = one;
	}
	if (!c->conf->json)
		return status;
	one = mcctl_json_print(json_pack("{s:I, s:O}", "removed", (json_int_t)rm->removed,
					 "refused", rm->refused));
	return one > status ? one : status;
}

static enum mcctl_status rm_named(struct mcctl *c)
{
	struct removal rm = { .c = c };
	enum mcctl_status status;

	rm.keys = calloc((size_t)c->argc, sizeof(*rm.keys));
	rm.results = calloc(BATCH, sizeof(*rm.results));
	rm.refused = c->conf->json ? json_array() : NULL;
	if (rm.keys && rm.results)
		status = remove_keys(&rm);
	else
		status = mcctl_complain(MCCTL_FAILED, "out of memory");
	for (int i = 0; rm.keys && i < c->argc; i++)
		mcctl_key_free(&rm.keys[i]);
	free(rm.keys);
	free(rm.results);
	json_decref(rm.refused);
	return status;
}

/* --dry_run with names: print the ones that exist. */
static enum mcctl_status show_named(struct mcctl *c)
{
	enum mcctl_status status = MCCTL_OK, one;
	struct mcs_info info;
	struct mcs_key key;
	int r;

	for (int i = 0; i < c->argc; i++) {
		one = mcctl_key_parse(c, c->argv[i], &key);
		if (one != MCCTL_OK)
			return one;
		r = mcs_stat(c->store, key, &info, -1);
		if (r < 0) {
			one = mcctl_error(r, "%s", c->argv[i]);
		} else {
			mcctl_key_print(c->conf->raw, key, stdout);
			putchar(c->conf->null ? '\0' : '\n');
		}
		mcctl_key_free(&key);
		if (one > status)
			status = one;
	}
	return status;
}

int mcctl_rm(struct mcctl *c)
{
	bool many = *c->conf->prefix || *c->conf->match;

	if (many && c->argc)
		return mcctl_complain(MCCTL_USAGE, "rm takes keys or --prefix and --match, not both");
	if (!many && !c->argc)
		return mcctl_complain(MCCTL_USAGE, "nothing to remove: give keys, --prefix or --match");
	if (c->conf->dry_run && c->conf->json)
		return mcctl_complain(MCCTL_USAGE, "--dry_run prints keys only, not JSON");
	if (c->conf->null && !c->conf->dry_run)
		return mcctl_complain(MCCTL_USAGE, "-0 is for rm --dry_run");
	if (many)
		return mcctl_rm_matching(c);
	return c->conf->dry_run ? show_named(c) : rm_named(c);
}
