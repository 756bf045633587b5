/* SPDX-License-Identifier: Apache-2.0
 * store_names.c - the public calls about keys that move no bytes: stat, exist, remove, rename, prefetch. */
#include <config.h>

#include <string.h>

#include "client/store_i.h"

int mcs_stat(struct mcs *s, struct mcs_key key, struct mcs_info *ret, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_key_check(key);

	if (r < 0)
		return r;
	do
		r = b->ops->stat(b, key, ret, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_stat_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		   int *results, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	do
		r = b->ops->stat_batch(b, keys, n, infos, results, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_exist(struct mcs *s, const struct mcs_key *keys, unsigned n, uint8_t *present, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	do
		r = b->ops->exist(b, keys, n, present, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_prefetch(struct mcs *s, struct mcs_key key, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (!r)
		r = mcs_key_check(key);
	if (r < 0)
		return r;
	do
		r = b->ops->prefetch(b, key, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

/* ---- remove ---- */

static int remove_check_flags(unsigned flags)
{
	_Static_assert(MCS_REMOVE_FORCE == MCP_REMOVE_FORCE, "flags are sent unchanged");
	return flags & ~MCS_REMOVE_FORCE ? mc_fail(-MC_EPARAM, "unknown remove flags 0x%x", flags) : 0;
}

int mcs_remove_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		     int *results, int64_t timeout_ms)
{
	struct mcs_backend *b = mcs_backend_get(s);
	int r = mcs_check_fork(s);

	if (!r)
		r = remove_check_flags(flags);
	if (r < 0)
		return r;
	do
		r = b->ops->remove_batch(b, keys, n, flags, results, mcs_deadline(s, timeout_ms));
	while (mcs_backend_replace(s, &b, r));
	return r;
}

int mcs_remove(struct mcs *s, struct mcs_key key, unsigned flags, int64_t timeout_ms)
{
	int result, r;

	r = mcs_key_check(key);
	if (r < 0)
		return r;
	r = mcs_remove_batch(s, &key, 1, flags, &result, timeout_ms);
	return r < 0 ? r : result;
}

int64_t mcs_remove_parts(struct mcs *s, struct mcp_remove_match *msg, uint64_t deadline)
{
	struct mcp_remove_match_reply reply;
	int64_t sum = 0;

	msg->sliced = 1;
	do {
		struct mcp_reply mem = { 0 };
		/* A repeated request removes the rest; only the number may be too small. */
		int r = mcs_call(s->session, MCP_REMOVE_MATCH, msg, &reply, &mem, deadline);

		if (r < 0)
			return r;
		sum += (int64_t)reply.removed;
		mcp_reply_done(&mem);
		/* Each part continues after the previous one. */
		if (reply.at && reply.at <= msg->at)
			return mc_fail(-MC_EPROTO, "protocol error: a removal does not advance");
		msg->at = reply.at;
	} while (msg->at);
	return sum;
}

int64_t mcs_remove_match(struct mcs *s, struct mcs_key prefix, const char *pattern, unsigned flags,
			 int64_t timeout_ms)
{
	struct mcp_remove_match msg = {
		.flags = flags,
		.prefix = mcp_bytes(prefix.data, (uint32_t)prefix.len),
		.tenant = s->tenant,
	};
	if (flags & ~MCS_REMOVE_FORCE)
		return mc_fail(-MC_EPARAM, "unknown remove flags 0x%x", flags);
	if (prefix.len > MCP_KEY_MAX)
		return 0;
	if (pattern)
		msg.pattern = mcp_bytes(pattern, strlen(pattern));
	return mcs_remove_parts(s, &msg, mcs_deadline(s, timeout_ms));
}

/* ---- rename ---- */

int mcs_rename(struct mcs *s, struct mcs_key from, struct mcs_key to, unsigned flags, int64_t timeout_ms)
{
	return mcs_rename_version(s, from, to, flags, NULL, NULL, timeout_ms);
}

int mcs_rename_version(struct mcs *s, struct mcs_key from, struct mcs_key to, unsigned flags, uint64_t *ret_was,
		       uint64_t *ret_now, int64_t timeout_ms)
{
	struct mcp_rename msg = { .flags = flags, .tenant = s->tenant };
	struct mcp_rename_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	_Static_assert(MCS_RENAME_NOREPLACE == MCP_RENAME_NOREPLACE, "flags are sent unchanged");
	if (flags & ~MCS_RENAME_NOREPLACE)
		return mc_fail(-MC_EPARAM, "unknown rename flags 0x%x", flags);
	r = mcs_key_check(from);
	if (!r)
		r = mcs_key_check(to);
	if (r < 0)
		return r;
	msg.from = mcp_bytes(from.data, (uint32_t)from.len);
	msg.to = mcp_bytes(to.data, (uint32_t)to.len);
	r = mcs_call_once(s->session, MCP_RENAME, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	if (ret_was)
		*ret_was = reply.was;
	if (ret_now)
		*ret_now = reply.generation;
	mcp_reply_done(&mem);
	return 0;
}

int mcs_link(struct mcs *s, struct mcs_key from, struct mcs_key to, uint64_t ino, uint64_t *ret_ino,
	     uint64_t *ret_generation, int64_t timeout_ms)
{
	struct mcp_link_name msg = { .tenant = s->tenant, .ino = ino };
	struct mcp_link_name_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mcs_key_check(from);

	if (!r)
		r = mcs_key_check(to);
	if (r < 0)
		return r;
	msg.from = mcp_bytes(from.data, (uint32_t)from.len);
	msg.to = mcp_bytes(to.data, (uint32_t)to.len);
	r = mcs_call_once(s->session, MCP_LINK, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	if (ret_ino)
		*ret_ino = reply.ino;
	if (ret_generation)
		*ret_generation = reply.generation;
	mcp_reply_done(&mem);
	return 0;
}

int mcs_rename_dir(struct mcs *s, struct mcs_key from, struct mcs_key to, unsigned flags, uint64_t *ret_moved,
		   int64_t timeout_ms)
{
	struct mcp_rename_dir msg = { .flags = flags, .tenant = s->tenant };
	struct mcp_rename_dir_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	if (flags & ~MCS_RENAME_NOREPLACE)
		return mc_fail(-MC_EPARAM, "unknown rename flags 0x%x", flags);
	r = mcs_key_check(from);
	if (!r)
		r = mcs_key_check(to);
	if (r < 0)
		return r;
	msg.from = mcp_bytes(from.data, (uint32_t)from.len);
	msg.to = mcp_bytes(to.data, (uint32_t)to.len);
	r = mcs_call_once(s->session, MCP_RENAME_DIR, &msg, &reply, &mem, mcs_deadline(s, timeout_ms));
	if (r < 0)
		return r;
	if (ret_moved)
		*ret_moved = reply.moved;
	mcp_reply_done(&mem);
	return 0;
}
