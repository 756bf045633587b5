/* SPDX-License-Identifier: Apache-2.0
 * segment.c - one segment that this process contributes. */
#include <config.h>

#include "client/owner/segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/random.h"
#include "proto/medium.h"

static uint64_t segment_random(void)
{
	uint64_t v;

	do
		v = mc_random_u64();
	while (!v);
	return v;
}

/* The epoch before the pool: if the process dies between the two, its successor changes the epoch once more. */
int mcs_own_segment_write(const struct mcs_own_segment *s, const struct mcs_own_segment_state *at)
{
	const uint64_t words[MCT_IDENTITY] = {
		s->id.hi, s->id.lo, at->epoch, at->pool.hi, at->pool.lo,
		at->secret[0], at->secret[1], at->cluster, at->pending,
	};

	if (s->durable)
		return s->medium->ops->set_identity(s->medium, words);
	for (unsigned i = 0; i < MCS_SEGMENT_IDENTITY && s->identity; i++)
		__atomic_store_n(&s->identity[i], words[i], __ATOMIC_RELEASE);
	return 0;
}

void mcs_own_segment_keep(struct mcs_own_segment *s, const struct mcs_own_segment_state *state)
{
	/* Another thread may have taken the wish meanwhile. */
	const bool confirms = s->now.confirms;

	s->now = *state;
	s->now.confirms = confirms;
}

void mcs_own_segment_void_records(struct mcs_own_segment_state *state)
{
	state->secret[0] = segment_random();
	state->secret[1] = segment_random();
	state->pending = false;
}

/* Continue with the identity that the medium or the caller has kept, or create one. */
static int segment_identify(struct mcs_own_segment *s)
{
	uint64_t words[MCT_IDENTITY] = { 0 };
	int r = s->medium->ops->identity(s->medium, words);
	struct mcs_own_segment_state state;

	s->durable = r != -MC_ENOTSUP;
	if (s->durable && r < 0)
		return r;
	if (!s->durable && s->conf.open.adopt_fd > 0)
		memcpy(words, s->identity, MCS_SEGMENT_IDENTITY * sizeof(*words));
	s->id = (struct mcp_id){ words[0], words[1] };
	state = (struct mcs_own_segment_state){
		.epoch = words[2], .pool = { words[3], words[4] }, .secret = { words[5], words[6] },
		.cluster = words[7], .pending = words[8],
	};
	s->now = state;
	if (!mcp_id_zero(s->id) && (state.secret[0] || !s->durable))
		return 0;
	if (s->durable)
		mcs_own_segment_void_records(&state);
	if (mcp_id_zero(s->id))
		s->id = (struct mcp_id){ segment_random(), segment_random() };
	if (!state.epoch)
		state.epoch = segment_random();
	r = mcs_own_segment_write(s, &state);
	if (r == 0)
		mcs_own_segment_keep(s, &state);
	return r;
}

/* All reserved memory at once: the master only uses as much as is mounted. */
static int segment_register(struct mcs_own_segment *s)
{
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ, .guarded = true, .fd = -1 };

	if (s->mem.base) {
		attr.access |= MCE_ACCESS_WRITE;
		attr.base = s->mem.base;
		attr.len = s->mem.len;
		attr.fd = s->mem.fd;
		attr.fd_offset = s->mem.fd_offset;
	} else {
		attr.medium = s->medium;
		attr.len = mcs_own_segment_size(s);
	}
	return mce_mr_register(s->engine, &attr, &s->mr);
}

int mcs_own_segment_open(struct mcs_own_segment *s, struct mce_engine *engine, const struct mcs_own_segment_conf *conf,
			 struct mct_medium *medium)
{
	int r = 0;

	*s = (struct mcs_own_segment){ .conf = *conf, .engine = engine, .medium = medium, .identity = conf->identity };
	if (!medium)
		r = conf->tier->open(&conf->open, &s->medium);
	s->conf.open.kind = s->conf.open.path = NULL;
	/* To open another file of the same directory. */
	if (r == 0 && conf->open.seal && conf->open.path) {
		s->path = strdup(conf->open.path);
		s->kind = conf->open.kind ? strdup(conf->open.kind) : NULL;
		r = s->path && !s->kind == !conf->open.kind ? 0 : -ENOMEM;
	}
	if (r < 0)
		return r;
	r = s->medium->ops->memory(s->medium, &s->mem);
	if (r == 0 || r == -MC_ENOTSUP)
		r = segment_identify(s);
	if (r == 0 && s->durable && !s->medium->ops->named)
		r = mcs_disk_notes_open(s->medium, s->now.secret, &s->notes);
	return r < 0 ? r : segment_register(s);
}

void mcs_own_segment_close(struct mcs_own_segment *s)
{
	if (s->mr)
		mce_mr_unregister(s->mr);
	mcs_disk_notes_close(s->notes);
	free(s->gone);
	free(s->path);
	free(s->kind);
	mct_medium_close(s->medium);
}

uint64_t mcs_own_segment_size(const struct mcs_own_segment *s)
{
	struct mct_status status;

	s->medium->ops->status(s->medium, &status);
	return status.size;
}

/* May the segment leave its pool for this one? */
static int segment_may_leave(const struct mcs_own_segment *s)
{
	/* When it was opened the master was not known yet. */
	if (mcp_medium_is(s->conf.medium, MCP_TRAIT_SHARED) && !s->entered)
		return mc_fail(-MC_EOWNER, "the file in the shared directory is of another pool; restart this process, "
			       "so that it takes another one");
	if (s->medium->ops->named && !s->conf.import)
		return mc_fail(-EINVAL, "the S3 segment belongs to another pool: give this node another prefix, or "
			       "bring the objects into this pool with --s3_segment_import when no process of the other "
			       "pool uses them");
	return 0;
}

/* Objects of which the last pool's cluster is not known were written by an older version, without records. */
int mcs_own_segment_enter(struct mcs_own_segment *s, struct mcp_id pool, struct mcs_own_segment_state *ret_next)
{
	struct mcs_own_segment_state next = s->now;
	int r;

	if (mcp_id_zero(pool))
		return 0;
	if (mcp_id_eq(pool, next.pool)) {
		s->entered = true;
		return 0;
	}
	if (!mcp_id_zero(next.pool)) {
		r = segment_may_leave(s);
		if (r < 0)
			return r;
		next.epoch = segment_random();
		next.pending |= next.cluster != 0;
		if (s->durable && !next.pending) {
			mc_warn("client", "the disk has objects of another pool, which are dropped");
			mcs_own_segment_void_records(&next);
		}
	}
	next.pool = pool;
	*ret_next = next;
	return 1;
}

static void segment_text(const struct mcs_own_segment *s, const char *endpoint, struct mcs_own_segment_text *ret)
{
	const struct mcp_medium_class *class = mcp_medium(s->conf.medium);
	struct mct_status status;

	s->medium->ops->status(s->medium, &status);
	if (class->rank == MCP_RANK_NEAR)
		snprintf(ret->name, sizeof(ret->name), "%s", endpoint);
	else if (s->mem.base)
		snprintf(ret->name, sizeof(ret->name), "%s/%s", endpoint, class->name);
	else
		snprintf(ret->name, sizeof(ret->name), "%s/%s-%08x", endpoint,
			 class->traits & MCP_TRAIT_SHARED ? class->name : s->medium->ops->name,
			 (unsigned)(s->id.lo & UINT32_MAX));
	if (!status.path || !mcs_shared_place(status.path, s->now.epoch, ret->protocol))
		snprintf(ret->protocol, sizeof(ret->protocol), "%s", s->conf.protocol);
}

struct mcp_mount mcs_own_segment_describe(const struct mcs_own_segment *s, struct mcs_own_segment_text *text)
{
	const char *endpoint = mce_engine_endpoint(s->engine);
	bool guarded = mce_mr_capability_key(s->mr, text->key);
	bool nof = mcp_medium_is(s->conf.medium, MCP_TRAIT_NOF);

	segment_text(s, endpoint, text);
	return (struct mcp_mount){
		.segment = s->id, .epoch = s->now.epoch,
		.base = mce_mr_base(s->mr), .rkey = mce_mr_rkey(s->mr), .size = mcs_own_segment_size(s),
		.name = mcp_bytes(text->name, strlen(text->name)), .endpoint = mcp_bytes(endpoint, strlen(endpoint)),
		.protocol = mcp_bytes(text->protocol, strlen(text->protocol)),
		.medium = nof ? MCP_MEDIUM_DISK : s->conf.medium, .nof = nof,
		.high = s->conf.high, .low = s->conf.low, .policy = s->conf.policy,
		.seen = s->now.server, .offers = s->now.pending, .cluster = s->now.cluster,
		.confirms = MCP_MOUNT_CONFIRMS | (s->conf.open.seal ? MCP_MOUNT_SEALED : 0),
		.key = mcp_bytes(text->key, guarded ? sizeof(text->key) : 0),
	};
}

/* If the master does not know the segment, although it is of the segment's pool, or if it is of another cluster, then
 * the segment's objects are lost.  A master whose state is from a snapshot wants them offered instead.  It may also
 * wait for an offer whose end this process did not know of when it asked. */
static void segment_mounted_durable(const struct mcs_own_segment *s, const struct mcp_mount_reply *reply,
				    uint64_t answered, struct mcs_own_segment_state *next)
{
	const struct mcs_own_segment_state was = s->now;
	/* Copies that are being written to a named medium have the present secret in their names.  A sweep removes
	 * those that the master does not know. */
	bool again = reply->reattached && (s->medium->ops->named || (was.server && was.server == answered));

	next->cluster = reply->cluster;
	next->offers = reply->adopts;
	next->pending = was.pending || reply->adopts;
	if (!reply->adopts && was.pending)
		mc_warn("client", "the disk has objects of another pool, which are dropped: %s",
			reply->cluster ? "the master has another cluster_id" : "the master is of an older version");
	if (!reply->adopts && was.cluster && (was.pending || !(reply->objects || again)))
		mcs_own_segment_void_records(next);
}

void mcs_own_segment_forget(const struct mcs_own_segment *s, struct mcs_own_segment_state *ret_next)
{
	*ret_next = s->now;
	ret_next->epoch = segment_random();
	mcs_own_segment_void_records(ret_next);
}

bool mcs_own_segment_mounted(struct mcs_own_segment *s, const struct mcp_mount_reply *reply, uint64_t answered,
			     bool sure, struct mcs_own_segment_state *ret_next)
{
	struct mcs_own_segment_state next = s->now;

	if (s->durable)
		segment_mounted_durable(s, reply, answered, &next);
	next.server = sure ? answered : 0;
	s->now.confirms = reply->confirm;
	*ret_next = next;
	return next.cluster != s->now.cluster || next.pending != s->now.pending || next.secret[0] != s->now.secret[0];
}
