/* SPDX-License-Identifier: Apache-2.0
 * pool.c - statistics of the pool and its segments from the master; metrics of this process. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/store_i.h"
#include "common/metrics.h"

int mcs_pool_stat(struct mcs *s, struct mcs_pool *ret, int64_t timeout_ms)
{
	struct mcp_stats msg = { 0 };
	struct mcp_stats_reply r;
	struct mcp_reply mem = { 0 };
	int err;

	err = mcs_call(s->session, MCP_STATS, &msg, &r, &mem, mcs_deadline(s, timeout_ms));
	if (err < 0)
		return err;
	*ret = (struct mcs_pool){
		.capacity = r.capacity, .used = r.used, .evictable = r.evictable,
		.objects = r.objects, .evictions = r.evictions,
		.evicted_bytes = r.evicted_bytes, .puts_refused = r.puts_refused,
		.largest_put = r.largest_put, .segments = r.segments, .clients = r.clients,
		.disk_capacity = r.disk_capacity, .disk_used = r.disk_used,
	};
	mcp_reply_done(&mem);
	return 0;
}

const char *mcs_segment_state_name(uint8_t state)
{
	switch (state) {
	case MCP_SEG_OK:
		return "ok";
	case MCP_SEG_SILENT:
		return "silent";
	case MCP_SEG_DRAINING:
		return "draining";
	case MCP_SEG_DRAINED:
		return "drained";
	case MCP_SEG_UNMOUNTING:
		return "unmounting";
	case MCP_SEG_CONFIRMING:
		return "confirming";
	case MCP_SEG_PAUSED:
		return "paused";
	default:
		return "unknown";
	}
}

static void pool_fill_segment(struct mcs_segment *out, const struct mcp_segment *in)
{
	int len = in->name.len < sizeof(out->name) ? (int)in->name.len :
		(int)sizeof(out->name) - 1;

	snprintf(out->id, sizeof(out->id), "%" PRIu64 "-%" PRIu64, in->segment.hi, in->segment.lo);
	snprintf(out->name, sizeof(out->name), "%.*s", len, (const char *)in->name.data);
	out->size = in->size;
	out->used = in->used;
	out->largest_free = in->largest_free;
	out->objects = in->objects;
	out->state = mcs_segment_state_name(in->state);
	out->rank = mcp_medium(in->medium)->rank;
	out->on_disk = out->rank >= MCP_RANK_DISK;
	out->nof = mcp_medium_is(in->medium, MCP_TRAIT_NOF);
}

int mcs_segments(struct mcs *s, struct mcs_segment **ret, int64_t timeout_ms)
{
	struct mcp_segments msg = { { 0, 0 } };
	struct mcp_segments_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcs_segment *list;
	struct mcp_segment seg;
	struct mcp_iter it;
	int r, n = 0;

	r = mcs_call(s->session, MCP_SEGMENTS, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	list = calloc(reply.segments.count + 1, sizeof(*list));
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	while (list && n < (int)reply.segments.count && mcp_iter_next(&it, &seg))
		pool_fill_segment(&list[n++], &seg);
	mcp_reply_done(&mem);
	if (!list)
		return -ENOMEM;
	*ret = list;
	return n;
}

char *mcs_metrics_text(void)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int r;

	if (!f)
		return NULL;
	r = mc_metrics_print(f);
	if (fclose(f) || r < 0) {
		free(text);
		return NULL;
	}
	return text;
}
