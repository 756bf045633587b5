/* SPDX-License-Identifier: Apache-2.0
 * strategy_local.c - local_first: segments of the writer's host, then those of the following hosts in
 * the order of their names, around to the beginning.  Any segment of a host may be its first.
 *
 * Mounting and unmounting maintain the order of the hosts, so that a put only looks up its position. */
#include <config.h>

#include "master/space/strategy.h"

#include <string.h>

#include "proto/codec.h"

/* "host:port" or "[v6]:port" without the port; empty for the names of the local host. */
static struct mcp_bytes host_of(struct mcp_bytes name)
{
	static const char *const nowhere[] = { "localhost", "127.0.0.1", "0.0.0.0", "[::]", "[::1]" };
	const char *p = name.data, *colon = name.len ? memrchr(p, ':', name.len) : NULL;
	size_t i;

	if (colon && !memchr(colon, ']', (size_t)(p + name.len - colon)))
		name.len = (uint32_t)(colon - p);
	for (i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++)
		if (strlen(nowhere[i]) == name.len && !memcmp(nowhere[i], p, name.len))
			name.len = 0;
	return name;
}

static struct mcp_bytes name_of(const struct mcm_segment *s)
{
	return mcp_bytes(s->name, strlen(s->name));
}

static int host_compare(struct mcp_bytes a, struct mcp_bytes b)
{
	uint32_t len = a.len < b.len ? a.len : b.len;
	int r = len ? memcmp(a.data, b.data, len) : 0;

	return r ? r : a.len < b.len ? -1 : a.len > b.len;
}

/* First index in by_host whose segment is not below (@host, number @index). */
static unsigned by_host_find(const struct mcm_segments *ss, struct mcp_bytes host, unsigned index)
{
	unsigned lo = 0, hi = ss->n_by_host;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		int c = host_compare(host_of(name_of(ss->at[ss->by_host[mid]])), host);

		if (c < 0 || (!c && ss->by_host[mid] < index))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void mcm_local_insert(struct mcm_segments *ss, const struct mcm_segment *s)
{
	unsigned i = by_host_find(ss, host_of(name_of(s)), s->index);

	memmove(&ss->by_host[i + 1], &ss->by_host[i], (ss->n_by_host - i) * sizeof(*ss->by_host));
	ss->by_host[i] = s->index;
	ss->n_by_host++;
}

void mcm_local_remove(struct mcm_segments *ss, const struct mcm_segment *s)
{
	unsigned i = by_host_find(ss, host_of(name_of(s)), s->index);

	ss->n_by_host--;
	memmove(&ss->by_host[i], &ss->by_host[i + 1], (ss->n_by_host - i) * sizeof(*ss->by_host));
}

/* sample[0] and [1]: first index and number of the first host's segments; [2]: the one to begin with. */
static void local_begin(struct mcm_pick *p)
{
	const struct mcm_segments *ss = p->ss;
	struct mcp_bytes host = host_of(p->host);
	unsigned first, end;

	if (!ss->n_by_host)
		return;
	first = host.len ? by_host_find(ss, host, 0) % ss->n_by_host :
		(unsigned)(p->random % ss->n_by_host);
	/* The first host, which may be the next one in the order. */
	host = host_of(name_of(ss->at[ss->by_host[first]]));
	first = by_host_find(ss, host, 0);
	end = by_host_find(ss, host, MCM_SEGMENTS_MAX);
	p->sample[0] = (uint16_t)first;
	p->sample[1] = (uint16_t)(end - first);
	p->sample[2] = (uint16_t)(p->random / 7 % (end - first));
}

static uint32_t local_next(struct mcm_pick *p)
{
	const struct mcm_segments *ss = p->ss;
	unsigned i = p->at++, at;

	if (i >= ss->n_by_host)
		return MCM_NO_SEGMENT;
	at = i < p->sample[1] ? p->sample[0] + (i + p->sample[2]) % p->sample[1] :
		(p->sample[0] + i) % ss->n_by_host;
	return ss->by_host[at];
}

const struct mcm_strategy mcm_strategy_local = { "local_first", local_begin, local_next };
