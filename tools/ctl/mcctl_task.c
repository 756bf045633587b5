/* SPDX-License-Identifier: Apache-2.0
 * mcctl_task.c - tasks: start drain, evict, copy, move, rebalance; list and cancel tasks. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"

#define LOOK_MS 100
#define WAIT_LOOKS 10		/* a drain that gives the same reason so often waits */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* Split a comma-separated list into a NULL-terminated array.  One allocation holds array and names; free() it. */
static const char **names_of(const char *list)
{
	size_t n = 2, len = strlen(list);
	const char **names;
	char *text, *save, *name;

	for (const char *s = list; *s; s++)
		n += *s == ',';
	names = malloc(n * sizeof(*names) + len + 1);
	if (!names)
		return NULL;
	text = (char *)(names + n);
	memcpy(text, list, len + 1);
	n = 0;
	for (name = strtok_r(text, ",", &save); name; name = strtok_r(NULL, ",", &save))
		names[n++] = name;
	names[n] = NULL;
	return names;
}

/* ---- listing ---- */

static bool task_over(const struct mcs_task *t)
{
	return strcmp(t->status, "pending") && strcmp(t->status, "running");
}

/* A task that waits ends at an unknown time. */
static bool time_known(const struct mcs_task *t)
{
	return t->rate && !task_over(t) && !*t->message;
}

static json_t *task_json(const struct mcs_task *t)
{
	struct mcs_key key = { t->key, t->key_len };

	return json_pack("{s:s, s:s, s:s, s:o*, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:s, s:s*, s:I, s:I, s:I, s:I, s:o*}", "id", t->id, "kind", t->kind, "status", t->status,
			 "key", t->key_len ? mcctl_key_json(key) : NULL, "sources", t->sources, "targets",
			 t->targets, "created_ms", (json_int_t)t->created_ms, "updated_ms",
			 (json_int_t)t->updated_ms, "succeeded", (json_int_t)t->succeeded, "failed",
			 (json_int_t)t->failed, "blocked", (json_int_t)t->blocked, "active",
			 (json_int_t)t->active, "bytes", (json_int_t)t->bytes, "total_bytes",
			 (json_int_t)t->total, "left_bytes", (json_int_t)t->left, "message",
			 t->message, "tenant", *t->tenant ? t->tenant : NULL, "given_up", (json_int_t)t->given_up,
			 "total_objects", (json_int_t)t->total_objects, "left_objects", (json_int_t)t->left_objects,
			 "bytes_per_second", (json_int_t)t->rate, "seconds_left", time_known(t) ?
			 json_integer((json_int_t)(t->left / t->rate)) : NULL);
}

static uint64_t objects_done(const struct mcs_task *t)
{
	return t->total_objects > t->left_objects ? t->total_objects - t->left_objects : 0;
}

/* "12 of 40 objects, 3 MiB of 10 MiB, 30%, 1 MiB/s, 7 s left", as far as it is known. */
static void print_progress(const struct mcs_task *t)
{
	uint64_t done = t->total > t->left ? t->total - t->left : 0;
	char part[32], whole[32], when[24];

	if (t->total_objects)
		printf(", %" PRIu64 " of %" PRIu64 " objects", objects_done(t), t->total_objects);
	if (t->total)
		printf(", %s of %s, %u%%", mc_format_size(done, part, sizeof(part)),
		       mc_format_size(t->total, whole, sizeof(whole)),
		       (unsigned)((double)done * 100 / (double)t->total));
	if (t->rate)
		printf(", %s/s", mc_format_size(t->rate, part, sizeof(part)));
	if (t->total && time_known(t))
		printf(", %s left", mcctl_left_text(t->left, (double)t->rate, when, sizeof(when)));
}

static void print_task(const struct mcctl *c, const struct mcs_task *t)
{
	struct mcs_key key = { t->key, t->key_len };
	char when[32], moved[32];

	printf("%-41s  %-9s  %-9s  %s  %8" PRIu64 "  %10s  ", t->id, t->kind, t->status,
	       mcctl_time_text(t->created_ms, when, sizeof(when)), t->succeeded,
	       mc_format_size(t->bytes, moved, sizeof(moved)));
	if (*t->tenant && strcmp(t->tenant, "default") != 0)
		printf("%s: ", t->tenant);
	if (t->key_len)
		mcctl_key_print(c->conf->raw, key, stdout);
	else
		fputs(*t->sources ? t->sources : "-", stdout);
	if (*t->targets)
		printf(" -> %s", t->targets);
	if (!task_over(t))
		print_progress(t);
	if (t->failed)
		printf(", %" PRIu64 " failed", t->failed);
	if (*t->message)
		printf(": %s", t->message);
	putchar('\n');
}

static enum mcctl_status task_cancel(struct mcctl *c, const char *id)
{
	int r = mcs_task_cancel(c->store, id, -1);

	if (r < 0)
		return mcctl_error(r, "cannot cancel task %s", id);
	return MCCTL_OK;
}

int mcctl_tasks(struct mcctl *c)
{
	auto_free struct mcs_task *tasks = NULL;
	const char *id = c->argc ? c->argv[0] : NULL;
	json_t *all;
	int n;

	if (c->conf->cancel) {
		if (!id)
			return mcctl_complain(MCCTL_USAGE, "--cancel needs the id of a task; "
					      "\"mcctl tasks\" shows them");
		return task_cancel(c, id);
	}
	n = mcs_tasks(c->store, id, &tasks, -1);
	if (n < 0)
		return mcctl_error(n, "cannot ask for tasks");
	if (c->conf->json) {
		all = json_array();
		for (int i = 0; i < n; i++)
			json_array_append_new(all, task_json(&tasks[i]));
		return mcctl_json_print(all);
	}
	if (n)
		printf("%-41s  %-9s  %-9s  %-19s  %8s  %10s  %s\n", "ID", "KIND", "STATUS", "CREATED",
		       "OBJECTS", "BYTES", "WHAT");
	for (int i = 0; i < n; i++)
		print_task(c, &tasks[i]);
	return MCCTL_OK;
}

/* ---- starting a task and following it ---- */

/* Wait until the task has ended or the user interrupts. */
static enum mcctl_status task_follow(struct mcctl *c, const char *id, const char *what, struct mcs_task **ret)
{
	struct mcctl_progress p;
	unsigned waits = 0;
	bool begun = false;
	int r;

	for (;;) {
		free(*ret);
		*ret = NULL;
		r = mcs_tasks(c->store, id, ret, -1);
		if (r < 0)
			break;
		if (!begun)
			mcctl_progress_begin(&p, what, (*ret)->total);
		begun = true;
		if ((*ret)->total_objects)
			snprintf(p.more, sizeof(p.more), "%" PRIu64 " of %" PRIu64 " objects", objects_done(*ret),
				 (*ret)->total_objects);
		mcctl_progress_step(&p, (*ret)->total > (*ret)->left ? (*ret)->total - (*ret)->left : 0);
		if (task_over(*ret) || interrupted)
			break;
		if (waits < WAIT_LOOKS)
			waits = *(*ret)->message ? waits + 1 : 0;
		if (waits == WAIT_LOOKS) {
			mcctl_progress_end(&p);
			fprintf(stderr, "mcctl: the %s waits: %s\n", what, (*ret)->message);
			waits++;
		}
		mc_sleep_ms(LOOK_MS);
	}
	if (begun)
		mcctl_progress_end(&p);
	return r < 0 ? mcctl_error(r, "cannot follow task %s; it continues without this command", id) :
		       MCCTL_OK;
}

static enum mcctl_status task_outcome(struct mcctl *c, const struct mcs_task *t, const char *what)
{
	char bytes[32];

	if (c->conf->json) {
		mcctl_json_print(task_json(t));
	} else if (!strcmp(t->status, "succeeded")) {
		printf("%s: %" PRIu64 " objects, %s", what, t->succeeded,
		       mc_format_size(t->bytes, bytes, sizeof(bytes)));
		/* The message tells more than the numbers then. */
		printf("%s%s\n", t->given_up ? "; " : "", t->given_up ? t->message : "");
	}
	if (!strcmp(t->status, "succeeded"))
		return MCCTL_OK;
	if (!task_over(t))
		return mcctl_complain(MCCTL_FAILED, "%s continues; show it with \"mcctl tasks %s\", cancel it "
				      "with \"mcctl tasks --cancel %s\"", what, t->id, t->id);
	return mcctl_complain(MCCTL_FAILED, "%s %s: %s%s", what, t->status, t->message,
			      !strcmp(t->kind, "drain") && t->error == -MCS_ENOSPACE ?
			      "\n       \"mcctl df\" shows whether the other segments have free memory; "
			      "failed objects are still in their old segment" : "");
}

static enum mcctl_status task_run(struct mcctl *c, const struct mcs_task_opts *opts, const char *what)
{
	auto_free struct mcs_task *t = NULL;
	struct sigaction sa = { .sa_handler = on_interrupt };
	enum mcctl_status status;
	char id[MCS_TASK_ID];
	int r;

	r = mcs_task_create(c->store, opts, id, -1);
	if (r < 0)
		return mcctl_error(r, "cannot start the %s", what);
	if (c->conf->background) {
		if (c->conf->json)
			return mcctl_json_print(json_pack("{s:s}", "id", id));
		printf("%s\n", id);
		return MCCTL_OK;
	}
	sigaction(SIGINT, &sa, NULL);
	status = task_follow(c, id, what, &t);
	return status == MCCTL_OK ? task_outcome(c, t, what) : status;
}

int mcctl_drain(struct mcctl *c)
{
	auto_free const char **targets = names_of(c->conf->to);
	struct mcs_task_opts opts = {
		.kind = MCS_TASK_DRAIN, .sources = c->argv, .targets = targets,
		.max_active = (unsigned)c->conf->concurrency,
	};

	return targets ? (int)task_run(c, &opts, "drain") :
			 (int)mcctl_complain(MCCTL_FAILED, "out of memory");
}

int mcctl_evict(struct mcctl *c)
{
	struct mcs_task_opts opts = { .kind = MCS_TASK_EVICT, .sources = c->argv };

	return (int)task_run(c, &opts, "eviction");
}

int mcctl_rebalance(struct mcctl *c)
{
	struct mcs_task_opts opts = {
		.kind = MCS_TASK_REBALANCE, .max_active = (unsigned)c->conf->concurrency,
	};

	return (int)task_run(c, &opts, "rebalancing");
}

static int one_object(struct mcctl *c, enum mcs_task_kind kind, const char *const *sources,
		      const char *const *targets, const char *what)
{
	struct mcs_task_opts opts = { .kind = kind, .sources = sources, .targets = targets };
	enum mcctl_status status;

	status = mcctl_key_parse(c, c->argv[0], &opts.key);
	if (status != MCCTL_OK)
		return (int)status;
	status = task_run(c, &opts, what);
	mcctl_key_free(&opts.key);
	return (int)status;
}

int mcctl_copy(struct mcctl *c)
{
	return one_object(c, MCS_TASK_COPY, NULL, c->argv + 1, "copy");
}

int mcctl_move(struct mcctl *c)
{
	const char *source[] = { c->argv[1], NULL }, *target[] = { c->argv[2], NULL };

	return one_object(c, MCS_TASK_MOVE, source, target, "move");
}
