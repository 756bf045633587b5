/* SPDX-License-Identifier: Apache-2.0
 * opts.c - upstream's ReplicateConfig as options of a put. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/err.h"
#include "node/upstream/calls.h"

#define GROUP_MAX 1024u

/* Upstream's switch of its DFS, of which all processes of a pool have the same value. */
static bool dfs_is_on(void)
{
	static const char *const off[] = { "", "0", "false", "no", "off" };
	const char *v = getenv("MOONCAKE_ENABLE_DFS");

	for (size_t i = 0; v && i < sizeof(off) / sizeof(off[0]); i++)
		if (!strcasecmp(v, off[i]))
			return false;
	return v != NULL;
}

/* A copy that ends in NUL, behind the pointers; none for an empty name and for one that no segment can have. */
static void names_add(const char **list, unsigned *n, char **text, struct mcs_key name)
{
	if (!name.len || memchr(name.data, '\0', name.len))
		return;
	memcpy(*text, name.data, name.len);
	list[(*n)++] = *text;
	*text += name.len + 1;
}

static uint64_t names_size(const struct mcn_up_strings *s)
{
	uint64_t size = 0;

	for (uint64_t i = 0; i < s->n; i++)
		size += s->v[i].len + 1;
	return size;
}

/* Both lists are in one block of memory. */
static int opts_names(const struct mcn_up_config *c, struct mcs_put_opts *ret, const char ***ret_lists)
{
	uint64_t pointers = c->preferred.n + c->preferred_nof.n + 3, bytes;
	unsigned n = 0, first;
	const char **list;
	char *text;

	bytes = names_size(&c->preferred) + names_size(&c->preferred_nof) + c->preferred_one.len + 1;
	list = calloc(1, pointers * sizeof(*list) + bytes);
	if (!list)
		return -ENOMEM;
	*ret_lists = list;
	text = (char *)(list + pointers);
	names_add(list, &n, &text, c->preferred_one);
	for (uint64_t i = 0; i < c->preferred.n; i++)
		names_add(list, &n, &text, c->preferred.v[i]);
	ret->preferred = n ? list : NULL;
	first = ++n;
	for (uint64_t i = 0; i < c->preferred_nof.n; i++)
		names_add(list, &n, &text, c->preferred_nof.v[i]);
	if (!c->nof_replicas)
		return 0;
	ret->flags |= MCS_PUT_NOF;
	ret->nof_replicas = (unsigned)c->nof_replicas;
	ret->preferred_nof = n > first ? list + first : NULL;
	return 0;
}

static bool opts_fit(const struct mcn_up_config *c, uint64_t n, bool same_node)
{
	if (!c->replicas || c->replicas > UINT16_MAX || c->nof_replicas > MCS_NOF_REPLICAS_MAX || c->dfs_replicas > 1 ||
	    c->soft_pin > MCS_SOFT_PIN_DISABLE || c->data_type > MCS_TYPE_GENERAL || (c->same_node && !same_node) ||
	    (c->has_groups && c->groups.n != n))
		return false;
	/* soft_pin_ttl_ms is valid with ENABLE only. */
	if (c->has_soft_pin_ms && (c->soft_pin != MCS_SOFT_PIN_ENABLE || c->soft_pin_ms > UINT32_MAX))
		return false;
	for (uint64_t i = 0; i < c->groups.n; i++)
		if (c->groups.v[i].len > GROUP_MAX)
			return false;
	return true;
}

int mcn_up_opts(const struct mcn_up_config *c, uint64_t n, bool same_node, struct mcs_put_opts *ret,
		const char ***ret_lists)
{
	*ret = (struct mcs_put_opts){ 0 };
	if (!opts_fit(c, n, same_node))
		return mc_fail(-MCS_EPARAM, "a ReplicateConfig with values that do not fit");
	if (c->dfs_replicas && !dfs_is_on())
		return -MCS_ENODFS;
	ret->replicas = (unsigned)c->replicas;
	ret->soft_pin = (enum mcs_soft_pin)c->soft_pin;
	ret->soft_pin_ms = (uint32_t)c->soft_pin_ms;
	ret->data_type = (enum mcs_data_type)c->data_type;
	ret->flags = (c->hard_pin ? MCS_PUT_HARD_PIN : 0) | (c->same_node ? MCS_PUT_SAME_NODE : 0);
	return opts_names(c, ret, ret_lists);
}
