/* SPDX-License-Identifier: Apache-2.0
 * mcctl_watch.c - print events of keys, one per line. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <inttypes.h>

static const char *const names[] = {
	[MCS_EVENT_PUT] = "put", [MCS_EVENT_REMOVE] = "remove", [MCS_EVENT_EVICT] = "evict",
	[MCS_EVENT_RENAME] = "rename", [MCS_EVENT_ATTRS] = "attrs", [MCS_EVENT_GAP] = "gap",
};

static enum mcctl_status print_json(const struct mcs_event *e)
{
	json_t *j;

	if (e->type == MCS_EVENT_GAP)
		j = json_pack("{s:s, s:I}", "event", names[e->type], "lost", (json_int_t)e->lost);
	else
		j = json_pack("{s:s, s:o*, s:o*, s:I, s:I, s:I, s:I, s:s}", "event", names[e->type],
			      "key", mcctl_key_json(e->key), "to",
			      e->type == MCS_EVENT_RENAME ? mcctl_key_json(e->to) : NULL, "sequence",
			      (json_int_t)e->sequence, "time_ms", (json_int_t)e->time_ms, "size",
			      (json_int_t)e->size, "generation", (json_int_t)e->generation, "kind",
			      mcctl_kind_name(e->kind));
	if (!j || json_dumpf(j, stdout, JSON_COMPACT) < 0) {
		json_decref(j);
		return mcctl_complain(MCCTL_FAILED, "cannot print JSON");
	}
	json_decref(j);
	putchar('\n');
	return MCCTL_OK;
}

static enum mcctl_status print_event(const struct mcctl *c, const struct mcs_event *e)
{
	char when[32];

	if (c->conf->json)
		return print_json(e);
	if (e->type == MCS_EVENT_GAP) {
		printf("%-19s  %-6s  %" PRIu64 " events were missed\n", "-", names[e->type], e->lost);
		return MCCTL_OK;
	}
	printf("%s  %-6s  %12" PRIu64 "  ", mcctl_time_text(e->time_ms, when, sizeof(when)),
	       names[e->type], e->size);
	mcctl_key_print(c->conf->raw, e->key, stdout);
	if (e->type == MCS_EVENT_RENAME) {
		fputs("  ->  ", stdout);
		mcctl_key_print(c->conf->raw, e->to, stdout);
	}
	putchar('\n');
	return MCCTL_OK;
}

static enum mcctl_status print_events(struct mcctl *c, mcs_watch_t *w)
{
	enum mcctl_status status = MCCTL_OK;
	int64_t seen = 0;
	struct mcs_event e;
	int r;

	while (status == MCCTL_OK && (!c->conf->count || seen < c->conf->count)) {
		r = mcs_watch_next(w, &e, -1);
		if (r < 0)
			return mcctl_error(r, "cannot watch");
		if (r) {
			status = print_event(c, &e);
			seen++;
		}
		/* A reader of the pipe wants each line at once. */
		if (fflush(stdout))
			return mcctl_complain(MCCTL_FAILED, "cannot write to standard output");
	}
	return status;
}

int mcctl_watch(struct mcctl *c)
{
	struct mcs_key prefix = { NULL, 0 };
	enum mcctl_status status = MCCTL_OK;
	mcs_watch_t *w;
	int r;

	if (c->argc)
		status = mcctl_prefix_parse(c, c->argv[0], &prefix);
	if (status != MCCTL_OK)
		return (int)status;
	r = mcs_watch_open(c->store, prefix, 0, &w, -1);
	if (r < 0) {
		status = mcctl_error(r, "cannot watch");
	} else {
		status = print_events(c, w);
		mcs_watch_close(w);
	}
	mcctl_key_free(&prefix);
	return (int)status;
}
