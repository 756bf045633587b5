/* SPDX-License-Identifier: Apache-2.0
 * store_i.h - the handle, and the helpers that all files of the client share. */
#ifndef MCS_STORE_I_H
#define MCS_STORE_I_H

#include <string.h>

#include "client/backend.h"
#include "client/scratch.h"
#include "client/session/session.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "proto/medium.h"
#include <mooncake/mcs.h>

/* Limits of one request; a longer batch is split. */
#define MCS_REQUEST_ITEMS 4096
#define MCS_REQUEST_BYTES (8u << 20)	/* bytes of keys */

struct mc_httpd;

struct mcs {
	/* constant after open */
	struct mcs_conf conf;	/* its strings are copies */
	unsigned fork_depth;
	struct mcs_security *security;	/* NULL: no credential (session/security.h) */
	struct mcs_backend *backend;	/* the one that the configuration asks for */
	struct mcs_session *session;	/* the back end's; for requests that need only the master */
	struct mcp_bytes tenant;	/* the back end's */

	struct mcs_scratch_pool scratch; /* has its own lock */

	/* The direct back end that calls use while the daemon is dead.  NULL until it is needed; set once, with
	 * fallback_lock held, and closed with the handle.  So calls that run keep their back end. */
	struct mcs_backend *fallback;
	uint64_t fallback_until_ns;	/* atomic; calls use it until then; 0: never used */
	struct mc_mutex fallback_lock;	/* held while it is opened */

	struct mc_httpd *httpd;		/* NULL: none; constant after open */
};

/* Does the configuration contribute a device of far memory; or any far memory? */
static inline bool mcs_conf_far_device(const struct mcs_conf *c)
{
	return c->far_path && *c->far_path;
}
static inline bool mcs_conf_far(const struct mcs_conf *c)
{
	return c->far_size || mcs_conf_far_device(c);
}

/* Does it contribute a file in a shared directory?  Or may the master name one?  "none": neither. */
static inline bool mcs_conf_shared(const struct mcs_conf *c)
{
	return c->root_fs_dir && *c->root_fs_dir && strcmp(c->root_fs_dir, "none");
}
static inline bool mcs_conf_asks_shared(const struct mcs_conf *c)
{
	return (c->segment_size || mcs_conf_far(c)) && !(c->root_fs_dir && *c->root_fs_dir);
}

/* Does it contribute anything? */
static inline bool mcs_conf_contributes(const struct mcs_conf *c)
{
	return c->segment_size || mcs_conf_far(c) || c->ssd_path || c->s3_path || mcs_conf_shared(c);
}

/* api/http.c: serve HTTP at the configured address, if there is one.  A failure is a warning in the log. */
void mcs_http_start(struct mcs *s);

/* 0, or -MC_EUNAVAILABLE in a forked child.  Requests to the master, the engine or the daemon
 * check this too; this check is for calls that only use memory. */
static inline int mcs_check_fork(const struct mcs *s)
{
	return mc_fork_check(s->fork_depth);
}

/* Absolute deadline of a call. */
static inline uint64_t mcs_deadline(const struct mcs *s, int64_t timeout_ms)
{
	return mc_deadline_ms(timeout_ms < 0 ? s->conf.timeout_ms : timeout_ms);
}

/* MCS_IN_MEMORY, ... for a medium of the master. */
static inline unsigned mcs_medium_flag(uint8_t medium)
{
	static const unsigned flag[MCP_RANKS] = {
		[MCP_RANK_NEAR] = MCS_IN_MEMORY, [MCP_RANK_FAR] = MCS_IN_FAR_MEMORY,
		[MCP_RANK_DISK] = MCS_ON_DISK, [MCP_RANK_SHARED] = MCS_ON_SHARED,
	};

	return flag[mcp_medium(medium)->rank];
}

/* keys.c: 0, or -MC_EKEY with the reason. */
int mcs_key_check(struct mcs_key key);
/* The same, without the reason. */
static inline bool mcs_key_good(struct mcs_key key)
{
	return key.data && key.len && key.len <= MCP_KEY_MAX;
}

/* keys.c: how many of @n keys, which are @stride bytes apart, fit into one request. */
unsigned mcs_batch_split(unsigned n, const struct mcs_key *first, size_t stride);
/* keys.c: the valid keys among @n as a list for a message; memory from @sc.  -ENOMEM. */
int mcs_keys_list(struct mcs_scratch *sc, const struct mcs_key *keys, unsigned n, struct mcp_seq *ret);

/* api/store_put.c: add a batch of puts that has ended to the metrics. */
void mcs_puts_count(const struct mcs_put_item *items, unsigned n, uint64_t began_ns);

/* api/store_names.c: send @msg until the master has removed all that match; the number removed. */
int64_t mcs_remove_parts(struct mcs *s, struct mcp_remove_match *msg, uint64_t deadline);

/* api/pool.c: text for an enum mcp_segment_state; static. */
const char *mcs_segment_state_name(uint8_t state);

#endif
