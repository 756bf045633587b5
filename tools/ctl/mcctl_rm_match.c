/* SPDX-License-Identifier: Apache-2.0
 * mcctl_rm_match.c - remove many objects, by prefix or pattern.
 *
 * The master removes the objects in one request and evaluates the pattern.  Before that, the matches are counted
 * here with the same library, so that the user can decline. */
#include <config.h>

#define PCRE2_CODE_UNIT_WIDTH 8

#include "tools/ctl/mcctl_rm.h"

#include <inttypes.h>
#include <pcre2.h>
#include <string.h>
#include <unistd.h>

struct matching {
	struct mcctl *c;
	struct mcs_key prefix;
	pcre2_code *re;			/* NULL: everything matches */
	pcre2_match_data *data;
	uint64_t objects, bytes;
};

static enum mcctl_status matching_compile(struct matching *m)
{
	const char *pattern = m->c->conf->match;
	PCRE2_UCHAR why[128];
	PCRE2_SIZE at;
	int err;

	if (!*pattern)
		return MCCTL_OK;
	m->re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
			      PCRE2_NEVER_BACKSLASH_C, &err, &at, NULL);
	if (!m->re) {
		pcre2_get_error_message(err, why, sizeof(why));
		return mcctl_complain(MCCTL_USAGE, "--match=%s: %s, at character %zu", pattern,
				      (const char *)why, (size_t)at + 1);
	}
	m->data = pcre2_match_data_create_from_pattern(m->re, NULL);
	return m->data ? MCCTL_OK : mcctl_complain(MCCTL_FAILED, "out of memory");
}

/* 1: matches, 0: does not, negative: the pattern needs too much work. */
static int matching_has(const struct matching *m, struct mcs_key key)
{
	int r;

	if (!m->re)
		return 1;
	r = pcre2_match(m->re, key.data, key.len, 0, 0, m->data, NULL);
	return r >= 0 ? 1 : r == PCRE2_ERROR_NOMATCH ? 0 : r;
}

static enum mcctl_status matching_count(struct matching *m)
{
	const struct mcctl_conf *conf = m->c->conf;
	struct mcs_entry e;
	mcs_list_t *list;
	int r, hit = 0;

	r = mcs_list_open(m->c->store, m->prefix, 0, &list);
	if (r < 0)
		return mcctl_error(r, "cannot list keys");
	while (hit >= 0 && (r = mcs_list_next(list, &e, -1)) > 0) {
		hit = matching_has(m, e.name);
		if (hit <= 0)
			continue;
		m->objects++;
		m->bytes += e.size;
		if (!conf->dry_run)
			continue;
		mcctl_key_print(conf->raw, e.name, stdout);
		putchar(conf->null ? '\0' : '\n');
	}
	mcs_list_close(list);
	if (hit < 0)
		return mcctl_complain(MCCTL_FAILED, "--match=%s needs too much work for some key; "
				      "nothing was removed", conf->match);
	return r < 0 ? mcctl_error(r, "cannot list keys; nothing was removed") : MCCTL_OK;
}

static enum mcctl_status matching_confirm(const struct matching *m)
{
	char answer[16], size[32];

	if (m->c->conf->yes)
		return MCCTL_OK;
	mc_format_size(m->bytes, size, sizeof(size));
	if (!isatty(STDIN_FILENO))
		return mcctl_complain(MCCTL_USAGE, "this would remove %" PRIu64 " objects (%s); "
				      "nothing was removed: use --yes to remove, --dry_run to see "
				      "them", m->objects, size);
	fprintf(stderr, "Remove %" PRIu64 " objects (%s)?  Type yes: ", m->objects, size);
	if (!fgets(answer, sizeof(answer), stdin) || strcmp(answer, "yes\n"))
		return mcctl_complain(MCCTL_NO, "nothing was removed");
	return MCCTL_OK;
}

/* @asked false: nothing matched, so the user was not asked; then keys stored since must not be removed. */
static enum mcctl_status matching_remove(const struct matching *m, bool asked)
{
	const struct mcctl_conf *conf = m->c->conf;
	int64_t removed = 0;

	if (asked)
		removed = mcs_remove_match(m->c->store, m->prefix, *conf->match ? conf->match : NULL,
				   conf->force ? MCS_REMOVE_FORCE : 0, -1);
	if (removed < 0)
		return mcctl_error(removed, "cannot remove them");
	if (conf->json)
		return mcctl_json_print(json_pack("{s:I, s:I}", "removed", (json_int_t)removed,
						  "matched", (json_int_t)m->objects));
	printf("removed %" PRId64 " of %" PRIu64 " objects\n", removed, m->objects);
	if ((uint64_t)removed < m->objects && !conf->force)
		fprintf(stderr, "mcctl: the others are being read or no longer exist; --force also removes "
			"objects that are being read\n");
	return MCCTL_OK;
}

int mcctl_rm_matching(struct mcctl *c)
{
	struct matching m = { .c = c };
	enum mcctl_status status;

	status = mcctl_prefix_parse(c, c->conf->prefix, &m.prefix);
	if (status != MCCTL_OK)
		return status;
	status = matching_compile(&m);
	if (status == MCCTL_OK)
		status = matching_count(&m);
	if (status == MCCTL_OK && !c->conf->dry_run && m.objects)
		status = matching_confirm(&m);
	if (status == MCCTL_OK && !c->conf->dry_run)
		status = matching_remove(&m, c->conf->yes || m.objects);
	pcre2_match_data_free(m.data);
	pcre2_code_free(m.re);
	mcctl_key_free(&m.prefix);
	return status;
}
