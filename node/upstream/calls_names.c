/* SPDX-License-Identifier: Apache-2.0
 * calls_names.c - calls about keys: existence, sizes, removal, and tasks that copy and move objects. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "node/upstream/calls.h"

#define NO_TASK (-MC_ENOTASK)
/* Upstream's TaskType and TaskStatus. */
#define TASK_COPY 0u
#define TASK_MOVE 1u

/* A text that ends in NUL, to be freed; NULL: no memory, or it contains a NUL. */
static char *names_text(struct mcs_key k)
{
	return memchr(k.data, '\0', k.len) ? NULL : strndup(k.data, k.len);
}

static unsigned names_flags(bool force)
{
	return force ? MCS_REMOVE_FORCE : 0;
}

static void names_answer_size(struct mcn_up_run *r, int64_t n)
{
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_size(r->answer, n);
}

/* ---- existence and sizes ---- */

void mcn_up_run_exist(struct mcn_up_run *r)
{
	uint8_t present = 0;
	int n = mcs_exist(r->store, &r->arg[0].text, 1, &present, mcn_up_left_ms(r));

	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, n);
	if (n >= 0)
		mcn_up_put8(r->answer, present);
}

void mcn_up_run_batch_exist(struct mcn_up_run *r)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings;
	auto_free uint8_t *present = calloc(keys->n + 1, 1);
	int n = -ENOMEM;

	if (present)
		n = keys->n ? mcs_exist(r->store, keys->v, (unsigned)keys->n, present, mcn_up_left_ms(r)) : 0;
	mcn_up_answer_begin(r->answer, r->call->answers, keys->n);
	mcn_up_put_count(r->answer, keys->n);
	for (uint64_t i = 0; i < keys->n; i++) {
		mcn_up_put_result(r->answer, n);
		if (n >= 0)
			mcn_up_put8(r->answer, present[i]);
	}
}

void mcn_up_run_size(struct mcn_up_run *r)
{
	struct mcs_info info;
	int err = mcs_stat(r->store, r->arg[0].text, &info, mcn_up_left_ms(r));

	names_answer_size(r, err < 0 ? err : (int64_t)info.size);
}

/* ---- removal ---- */

void mcn_up_run_remove(struct mcn_up_run *r)
{
	int err = mcs_remove(r->store, r->arg[0].text, names_flags(r->arg[1].number), mcn_up_left_ms(r));

	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, err);
}

void mcn_up_run_batch_remove(struct mcn_up_run *r)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings;
	auto_free int *result = calloc(keys->n + 1, sizeof(*result));
	int err = 0;

	if (result && keys->n)
		err = mcs_remove_batch(r->store, keys->v, (unsigned)keys->n, names_flags(r->arg[1].number), result,
				       mcn_up_left_ms(r));
	for (uint64_t i = 0; i < keys->n && err < 0; i++)
		result[i] = err;
	mcn_up_answer_results(r, result, keys->n);
}

void mcn_up_run_remove_regex(struct mcn_up_run *r)
{
	struct mcs_key all = { "", 0 };
	auto_free char *pattern = names_text(r->arg[0].text);

	names_answer_size(r, pattern ? mcs_remove_match(r->store, all, pattern, names_flags(r->arg[1].number),
							mcn_up_left_ms(r)) :
			  mc_fail(-MCS_EPARAM, "a pattern that contains a NUL"));
}

void mcn_up_run_remove_all(struct mcn_up_run *r)
{
	struct mcs_key all = { "", 0 };

	names_answer_size(r, mcs_remove_match(r->store, all, NULL, names_flags(r->arg[0].number), mcn_up_left_ms(r)));
}

/* ---- tasks ---- */

/* The id of a task is the text of upstream's UUID. */
static void task_start(struct mcn_up_run *r, const struct mcs_task_opts *opts, bool fits)
{
	char id[MCS_TASK_ID];
	struct mcn_up_uuid uuid = { 0 };
	int err = fits ? mcs_task_create(r->store, opts, id, mcn_up_left_ms(r)) :
		mc_fail(-MCS_EPARAM, "a task without two segments");

	if (err >= 0 && sscanf(id, "%lu-%lu", &uuid.first, &uuid.second) != 2)
		err = -MC_EINTERNAL;
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	if (err < 0) {
		mcn_up_put_error(r->answer, err);
		return;
	}
	mcn_up_put_ok(r->answer);
	mcn_up_put64(r->answer, uuid.first);
	mcn_up_put64(r->answer, uuid.second);
}

void mcn_up_run_copy_task(struct mcn_up_run *r)
{
	const struct mcn_up_strings *to = &r->arg[1].strings;
	struct mcs_task_opts opts = { .kind = MCS_TASK_COPY, .key = r->arg[0].text };
	auto_free char **targets = calloc(to->n + 1, sizeof(*targets));
	bool fits = targets && to->n;

	for (uint64_t i = 0; i < to->n && fits; i++) {
		targets[i] = names_text(to->v[i]);
		fits = targets[i] != NULL;
	}
	opts.targets = (const char *const *)targets;
	task_start(r, &opts, fits);
	for (uint64_t i = 0; targets && i < to->n; i++)
		free(targets[i]);
}

void mcn_up_run_move_task(struct mcn_up_run *r)
{
	auto_free char *source = names_text(r->arg[1].text), *target = names_text(r->arg[2].text);
	const char *sources[] = { source, NULL }, *targets[] = { target, NULL };
	struct mcs_task_opts opts = { .kind = MCS_TASK_MOVE, .key = r->arg[0].text, .sources = sources,
				      .targets = targets };

	task_start(r, &opts, source && target && strcmp(source, target) != 0);
}

static unsigned task_status(const char *status)
{
	static const char *const names[] = { "pending", "running", "failed", "succeeded" };

	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(status, names[i]))
			return i;
	/* canceled */
	return 2;
}

/* May an identity of @tenant know of the task?  Tasks about segments have no key. */
static bool task_is_of(const struct mcs_task *task, const char *tenant)
{
	return !*tenant || (task->key_len && !strcmp(*task->tenant ? task->tenant : "default", tenant));
}

void mcn_up_run_query_task(struct mcn_up_run *r)
{
	struct mcs_task *task = NULL;
	char id[MCS_TASK_ID];
	int n;

	(void)snprintf(id, sizeof(id), "%lu-%lu", r->arg[0].id.first, r->arg[0].id.second);
	n = mcs_tasks(r->store, id, &task, mcn_up_left_ms(r));
	if (n > 0 && !task_is_of(task, r->identity->tenant))
		n = 0;
	mcn_up_answer_begin(r->answer, r->call->answers, n > 0 ? strlen(task->message) : 0);
	if (n <= 0) {
		mcn_up_put_error(r->answer, n < 0 ? n : NO_TASK);
	} else {
		mcn_up_put_ok(r->answer);
		mcn_up_put64(r->answer, r->arg[0].id.first);
		mcn_up_put64(r->answer, r->arg[0].id.second);
		mcn_up_put32(r->answer, strcmp(task->kind, "move") ? TASK_COPY : TASK_MOVE);
		mcn_up_put32(r->answer, task_status(task->status));
		mcn_up_put64(r->answer, task->created_ms);
		mcn_up_put64(r->answer, task->updated_ms);
		/* Which client carries it out is not known here. */
		mcn_up_put64(r->answer, 0);
		mcn_up_put64(r->answer, 0);
		mcn_up_put_string(r->answer, task->message, strlen(task->message));
	}
	free(task);
}
