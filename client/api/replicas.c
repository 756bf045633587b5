/* SPDX-License-Identifier: Apache-2.0
 * replicas.c - locations of objects, for users and for programs that read the memory directly. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/read.h"

/* All segments that the master knows; points into @mem. */
struct segments {
	struct mcp_reply mem;
	struct mcp_segment *seg;
	unsigned n;
};

static int segments_load(struct mcs *s, struct mcs_scratch *sc, struct segments *map, uint64_t deadline)
{
	struct mcp_segments msg = { { 0, 0 } };
	struct mcp_segments_reply reply;
	struct mcp_iter it;
	int r;

	r = mcs_call(s->session, MCP_SEGMENTS, &msg, &reply, &map->mem, deadline);
	if (r < 0)
		return r;
	map->seg = mcs_scratch_raw(sc, reply.segments.count, sizeof(*map->seg));
	if (!map->seg)
		return -ENOMEM;
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	while (map->n < reply.segments.count && mcp_iter_next(&it, &map->seg[map->n]))
		map->n++;
	return 0;
}

static void replicas_text(char *out, size_t size, struct mcp_bytes in)
{
	snprintf(out, size, "%.*s", in.len < size ? (int)in.len : (int)size - 1,
		 in.len ? (const char *)in.data : "");
}

static void replicas_describe(const struct segments *map, const struct mcp_replica *in, uint64_t size,
			      struct mcs_replica *out)
{
	/* A segment that was unmounted between the two replies has no name any more. */
	uint8_t state = in->state ? in->state : MCP_SEG_UNMOUNTING;

	snprintf(out->segment_id, sizeof(out->segment_id), "%" PRIu64 "-%" PRIu64, in->segment.hi,
		 in->segment.lo);
	out->size = size;
	out->address = in->offset;
	out->rank = mcp_medium(in->medium)->rank;
	out->on_disk = out->rank >= MCP_RANK_DISK;
	out->nof = mcp_medium_is(in->medium, MCP_TRAIT_NOF);
	for (unsigned i = 0; i < map->n; i++) {
		const struct mcp_segment *seg = &map->seg[i];

		if (!mcp_id_eq(seg->segment, in->segment))
			continue;
		replicas_text(out->segment, sizeof(out->segment), seg->name);
		replicas_text(out->endpoint, sizeof(out->endpoint), seg->endpoint);
		mcs_shared_path(seg->protocol, out->path);
		replicas_text(out->protocol, sizeof(out->protocol), *out->path ? mcp_bytes("file", 4) : seg->protocol);
		out->address += seg->base;
		state = in->state && (in->state != MCP_SEG_OK || seg->state != MCP_SEG_PAUSED) ? in->state : seg->state;
		break;
	}
	out->state = mcs_segment_state_name(state);
	out->readable = state == MCP_SEG_OK;
}

static int replicas_fill(const struct segments *map, const struct mcp_object *obj, struct mcs_replicas *ret)
{
	struct mcp_replica rep;
	struct mcs_version v;
	struct mcp_iter it;
	char *group;
	int r;

	r = mcs_version_decode(obj, 0, 0, &v);
	if (r < 0)
		return r;
	ret->info = v.info;
	ret->info.replicas = 0;
	ret->replica = calloc(obj->replicas.count + 1, sizeof(*ret->replica));
	group = malloc(obj->group.len + 1);
	if (!ret->replica || !group) {
		free(ret->replica);
		free(group);
		ret->replica = NULL;
		return -ENOMEM;
	}
	if (obj->group.len)
		memcpy(group, obj->group.data, obj->group.len);
	group[obj->group.len] = '\0';
	ret->group = (struct mcs_key){ group, obj->group.len };
	mcp_iter_init(&it, &obj->replicas, &mcp_desc_replica);
	while (ret->n < obj->replicas.count && mcp_iter_next(&it, &rep)) {
		replicas_describe(map, &rep, obj->size, &ret->replica[ret->n]);
		ret->info.replicas += (unsigned)ret->replica[ret->n++].readable;
	}
	return 0;
}

static int replicas_request(struct mcs *s, struct mcs_scratch *sc, struct segments *map,
			    const struct mcs_key *keys, unsigned n, unsigned flags,
			    struct mcs_replicas *ret, uint64_t deadline)
{
	struct mcp_get msg = {
		.flags = MCP_GET_DESCRIBE | (flags & MCS_PROMISE ? MCP_GET_PROMISE : 0),
		.tenant = s->tenant,
	};
	struct mcp_reply mem = { 0 };
	struct mcp_get_reply reply;
	struct mcp_object obj;
	struct mcp_iter it;
	int r, found = 0;

	r = mcs_keys_list(sc, keys, n, &msg.keys);
	if (r < 0)
		return r;
	r = mcs_call(s->session, MCP_GET, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	if (!map->seg)
		r = segments_load(s, sc, map, deadline);
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n && !r; i++) {
		ret[i].result = mcs_key_check(keys[i]);
		if (!ret[i].result)
			ret[i].result = mcp_iter_next(&it, &obj) ? replicas_fill(map, &obj, &ret[i]) :
				mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys");
		found += !ret[i].result;
	}
	mcp_reply_done(&mem);
	return r < 0 ? r : found;
}

static bool replicas_not_ready(const struct mcs_replicas *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ret[i].result == -MC_ENOTREADY)
			return true;
	return false;
}

int mcs_replicas(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		 struct mcs_replicas *ret, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_patience owner = { 0 };
	struct mcs_scratch *sc;
	struct segments map = { 0 };
	int r = mcs_check_fork(s), found = 0;

	if (r < 0)
		return r;
	if (flags & ~MCS_PROMISE)
		return mc_fail(-MC_EPARAM, "unknown flags 0x%x", flags);
	sc = mcs_scratch_get(&s->scratch);
	if (!sc)
		return -ENOMEM;
	memset(ret, 0, n * sizeof(*ret));
	for (unsigned i = 0, k; i < n && r >= 0; i += k) {
		k = mcs_batch_split(n - i, keys + i, sizeof(*keys));
		r = replicas_request(s, sc, &map, keys + i, k, flags, ret + i, deadline);
		if (replicas_not_ready(ret + i, k) && mcs_session_await_owner(s->session, &owner, deadline)) {
			mcs_replicas_free(ret + i, k);
			k = 0;
			continue;
		}
		found += r > 0 ? r : 0;
	}
	mcp_reply_done(&map.mem);
	mcs_scratch_put(&s->scratch, sc);
	if (r < 0)
		mcs_replicas_free(ret, n);
	return r < 0 ? r : found;
}

void mcs_replicas_free(struct mcs_replicas *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		free(ret[i].replica);
		free((void *)ret[i].group.data);
		ret[i] = (struct mcs_replicas){ 0 };
	}
}
