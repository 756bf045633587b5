/* SPDX-License-Identifier: Apache-2.0
 * task.c - create, list and cancel the tasks of the master. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/store_i.h"
#include "common/cleanup.h"

#define NAMES_MAX 1024

_Static_assert((int)MCS_TASK_DRAIN == (int)MCP_TASK_DRAIN &&
	       (int)MCS_TASK_REBALANCE == (int)MCP_TASK_REBALANCE, "kinds are sent unchanged");

/* ---- ids, in upstream's form ---- */

static int task_id_parse(const char *text, struct mcp_id *ret)
{
	struct mcp_id id;
	int end = 0;

	if (sscanf(text, "%" SCNu64 "-%" SCNu64 "%n", &id.hi, &id.lo, &end) != 2 || text[end])
		return mc_fail(-MC_EPARAM, "\"%s\" is not the id of a task", text);
	*ret = id;
	return 0;
}

static void task_id_print(struct mcp_id id, char ret[MCS_TASK_ID])
{
	snprintf(ret, MCS_TASK_ID, "%" PRIu64 "-%" PRIu64, id.hi, id.lo);
}

/* ---- create ---- */

static int task_names(const char *const *names, struct mcp_name **ret, struct mcp_seq *ret_list)
{
	unsigned n = 0;

	*ret = NULL;
	*ret_list = mcp_seq(NULL, 0);
	while (names && names[n] && n <= NAMES_MAX)
		n++;
	if (n > NAMES_MAX)
		return mc_fail(-MC_EPARAM, "more than %u segments", NAMES_MAX);
	if (!n)
		return 0;
	*ret = calloc(n, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		(*ret)[i].name = mcp_bytes(names[i], strlen(names[i]));
	*ret_list = mcp_seq(*ret, n);
	return 0;
}

int mcs_task_create(struct mcs *s, const struct mcs_task_opts *opts, char ret_id[MCS_TASK_ID],
		    int64_t timeout_ms)
{
	auto_free struct mcp_name *source = NULL, *target = NULL;
	struct mcp_task_create msg = { .type = (uint8_t)opts->kind, .max_active = opts->max_active };
	struct mcp_task_create_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	if (opts->key.len > MCP_KEY_MAX)
		return mc_fail(-MC_EKEY, "a key of %zu bytes", opts->key.len);
	msg.key = mcp_bytes(opts->key.data, opts->key.len);
	msg.tenant = s->tenant;
	r = task_names(opts->sources, &source, &msg.sources);
	if (r == 0)
		r = task_names(opts->targets, &target, &msg.targets);
	if (r == 0)
		r = mcs_call_once(s->session, MCP_TASK_CREATE, &msg, &reply, &mem,
				  mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	task_id_print(reply.id, ret_id);
	mcp_reply_done(&mem);
	return 0;
}

/* ---- list and cancel ---- */

static const char *task_kind_name(uint8_t type)
{
	static const char *const names[MCP_TASK_TYPES] = {
		[MCP_TASK_COPY] = "copy", [MCP_TASK_MOVE] = "move", [MCP_TASK_DRAIN] = "drain",
		[MCP_TASK_EVICT] = "evict", [MCP_TASK_REBALANCE] = "rebalance",
		[MCP_TASK_REPLICATE] = "replicate",
	};

	return type < MCP_TASK_TYPES ? names[type] : "unknown";
}

static const char *task_status_name(uint8_t status)
{
	static const char *const names[] = {
		[MCP_TASK_PENDING] = "pending", [MCP_TASK_RUNNING] = "running",
		[MCP_TASK_SUCCEEDED] = "succeeded", [MCP_TASK_FAILED] = "failed",
		[MCP_TASK_CANCELED] = "canceled",
	};

	return status <= MCP_TASK_CANCELED ? names[status] : "unknown";
}

/* The names of a list as one string, separated by commas; truncated to @len. */
static void task_join_names(const struct mcp_seq *list, char *ret, size_t len)
{
	struct mcp_name name;
	struct mcp_iter it;
	size_t at = 0;

	*ret = '\0';
	mcp_iter_init(&it, list, &mcp_desc_name);
	while (mcp_iter_next(&it, &name) && at < len - 1) {
		int n = snprintf(ret + at, len - at, "%s%.*s", at ? "," : "", (int)name.name.len,
				 (const char *)name.name.data);

		at += (size_t)n < len - at ? (size_t)n : len - 1 - at;
	}
}

static void task_fill(const struct mcp_task *t, struct mcs_task *ret)
{
	memset(ret, 0, sizeof(*ret));
	task_id_print(t->id, ret->id);
	ret->kind = task_kind_name(t->type);
	ret->status = task_status_name(t->status);
	ret->key_len = t->key.len < sizeof(ret->key) ? t->key.len : sizeof(ret->key);
	memcpy(ret->key, t->key.data, ret->key_len);
	task_join_names(&t->sources, ret->sources, sizeof(ret->sources));
	task_join_names(&t->targets, ret->targets, sizeof(ret->targets));
	ret->created_ms = t->created_ms;
	ret->updated_ms = t->updated_ms;
	ret->succeeded = t->succeeded;
	ret->failed = t->failed;
	ret->blocked = t->blocked;
	ret->active = t->active;
	ret->bytes = t->bytes;
	ret->total = t->total;
	ret->left = t->left;
	ret->given_up = t->given_up;
	ret->total_objects = t->total_objects;
	ret->left_objects = t->left_objects;
	ret->rate = t->rate;
	ret->error = t->error ? mc_err_from_wire(t->error) : 0;
	snprintf(ret->message, sizeof(ret->message), "%.*s", (int)t->message.len,
		 (const char *)t->message.data);
	snprintf(ret->tenant, sizeof(ret->tenant), "%.*s", (int)t->tenant.len,
		 (const char *)t->tenant.data);
}

int mcs_tasks(struct mcs *s, const char *id, struct mcs_task **ret, int64_t timeout_ms)
{
	struct mcp_tasks_reply reply;
	struct mcp_tasks msg = { .id = { 0, 0 } };
	struct mcp_reply mem = { 0 };
	struct mcs_task *tasks;
	struct mcp_task t;
	struct mcp_iter it;
	int r, n = 0;

	r = id ? task_id_parse(id, &msg.id) : 0;
	if (r == 0)
		r = mcs_call(s->session, MCP_TASKS, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	tasks = calloc((size_t)reply.tasks.count + 1, sizeof(*tasks));
	mcp_iter_init(&it, &reply.tasks, &mcp_desc_task);
	while (tasks && mcp_iter_next(&it, &t))
		task_fill(&t, &tasks[n++]);
	mcp_reply_done(&mem);
	if (!tasks)
		return -ENOMEM;
	*ret = tasks;
	return n;
}

int mcs_task_cancel(struct mcs *s, const char *id, int64_t timeout_ms)
{
	struct mcp_task_cancel_reply reply;
	struct mcp_task_cancel msg;
	struct mcp_reply mem = { 0 };
	int r;

	r = task_id_parse(id, &msg.id);
	if (r == 0)
		r = mcs_call(s->session, MCP_TASK_CANCEL, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	mcp_reply_done(&mem);
	return 0;
}
