/* SPDX-License-Identifier: Apache-2.0
 * segments_keys.c - the keys of encrypted media that do not fit, or have to be renewed. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "client/owner/disk_keys.h"
#include "client/owner/segments_i.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "proto/medium.h"

bool mcs_segments_leave_file(struct mcs_segments *s, struct mcs_own_segment *at, struct mcp_id pool, int why)
{
	struct mcs_own_segment_conf conf = at->conf;
	const char *detail = strdupa(mc_err_detail(why));
	bool own;
	int r;

	mc_mutex_lock(&s->lock);
	own = mcp_id_eq(pool, at->now.pool);
	mc_mutex_unlock(&s->lock);
	if (mcp_id_zero(pool) || at->medium->ops->leave(at->medium, own) < 0) {
		mc_fail(why, "%s", detail);
		return false;
	}
	if (__atomic_exchange_n(&at->lost, true, __ATOMIC_RELAXED))
		return true;
	mc_err("client", "%s; this process leaves it alone, and takes another file", detail);
	/* directory.c looks for another file in a shared directory. */
	if (mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED))
		return true;
	conf.open.path = at->path;
	conf.open.kind = at->kind;
	r = mcs_segments_add(s, &conf, NULL);
	if (r < 0)
		mc_err("client", "this process works without the disk %s: %s", at->path, mc_err_detail(r));
	return true;
}

struct renewal {
	struct mcs_disk_keys keys;
	struct mcp_id pool;
};

/* The answer may be of the master of another pool, whose secret must not replace this pool's. */
static int renewal_ask(void *arg, uint32_t secret, struct mct_keys *ret)
{
	struct renewal *n = arg;
	int r = mcs_disk_keys_ask(&n->keys, secret, ret);

	return r == 0 && !mcp_id_eq(mcs_session_pool(n->keys.session), n->pool) ? -EAGAIN : r;
}

static bool renewal_due(struct mcs_segments *s, const struct mcs_own_segment *at, struct mcp_id pool)
{
	if (!at->conf.open.seal || __atomic_load_n(&at->lost, __ATOMIC_RELAXED))
		return false;
	MC_LOCKED(&s->lock);
	return at->mounted && at->settled == at->mounts && !at->keeping && !mcp_id_zero(pool) &&
	       mcp_id_eq(at->now.pool, pool);
}

void mcs_segments_renew(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline)
{
	struct mcp_id pool = mcs_session_pool(session);

	for (unsigned i = 0; i < mcs_segments_count(s) && mcs_session_up(session); i++) {
		struct mcs_own_segment *at = s->segment[i];
		struct renewal n = { { .session = session, .segment = at->id, .deadline = deadline }, pool };
		int r = renewal_due(s, at, pool) ? at->medium->ops->unlock(at->medium, renewal_ask, &n) : 0;

		if (r < 0)
			mc_debug("client", "the key of a segment is not renewed, will retry: %s", mc_err_detail(r));
	}
}
