/* SPDX-License-Identifier: Apache-2.0
 * fuzz_node_upstream.c - requests of upstream's dummy clients: the first byte selects a function of the table, the rest
 * is the message with its arguments.  Calls of a client run too; it is unknown here, so none of them reaches the
 * store, and each has to have an answer. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "node/upstream/calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mcn_up_dummies *dummies;

static void check_text(const uint8_t *data, size_t size, struct mcs_key k)
{
	const uint8_t *p = k.data;

	if (k.len && (p < data || k.len > size || p + k.len > data + size))
		abort();
}

static void check_strings(const uint8_t *data, size_t size, const struct mcn_up_strings *s)
{
	for (uint64_t i = 0; i < s->n; i++)
		check_text(data, size, s->v[i]);
}

/* All that the options point to is in the message. */
static void check_config(const uint8_t *data, size_t size, const struct mcn_up_config *c)
{
	const char **lists = NULL;
	struct mcs_put_opts opts;

	check_strings(data, size, &c->preferred);
	check_strings(data, size, &c->preferred_nof);
	check_strings(data, size, &c->groups);
	check_text(data, size, c->preferred_one);
	check_text(data, size, c->host_id);
	if (mcn_up_opts(c, c->groups.n, true, &opts, &lists) == 0 && opts.preferred && !*opts.preferred)
		abort();
	free(lists);
}

static void check_args(const uint8_t *data, size_t size, const char *types, const struct mcn_up_arg *a)
{
	for (; *types; a++, types += strspn(types, "[") + 1) {
		if (*types == 's')
			check_text(data, size, a->text);
		else if (*types == 'C')
			check_config(data, size, a->config);
		else if (types[0] == '[' && types[1] == 's')
			check_strings(data, size, &a->strings);
	}
}

static bool asks_store(const struct mcn_up_call *c)
{
	return !strchr(c->types, 'I') ? !c->quick : !strcmp(c->name, "query_task");
}

static void run(const struct mcn_up_call *c, const uint8_t *data, size_t size)
{
	const struct mc_principal all = mc_principal_of_peer(1);
	struct mcn_up_answer a = { 0 };
	struct mcn_up_run r = { .dummies = dummies, .uid = 1, .identity = &all, .deadline = MC_NEVER, .call = c,
				.answer = &a };

	mcn_up_call_run(&r, data, size);
	if (mcn_up_answer_end(&a, 7) == 0 && (a.len < MCN_UP_ANSWER_HEAD + 5 || a.data[0] != 21 || a.data[4] != 7))
		abort();
	mcn_up_answer_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mcn_up_arg arg[MCN_UP_ARGS];
	struct mcn_up_memory m = { 0 };
	const struct mcn_up_call *c = mcn_up_calls;
	struct mcn_up_head head;
	unsigned n = 0;

	if (!dummies && mcn_up_dummies_new(&dummies) < 0)
		abort();
	if (!size)
		return 0;
	while (c[n].name)
		n++;
	c = &c[data[0] % n];
	data++;
	size--;
	if (size >= MCN_UP_REQUEST_HEAD)
		(void)mcn_up_head_unpack(data, &head);
	if (mcn_up_decode(data, size, c->asks, c->types, &m, arg) >= 0)
		check_args(data, size, c->types, arg);
	mcn_up_memory_done(&m);
	if (!asks_store(c))
		run(c, data, size);
	return 0;
}
