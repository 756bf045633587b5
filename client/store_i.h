/* SPDX-License-Identifier: Apache-2.0
 * store_i.h - the handle, and what the client's files share. */
#ifndef MCS_STORE_I_H
#define MCS_STORE_I_H

#include <pthread.h>

#include "client/session/background.h"
#include "client/session/lease.h"
#include "client/session/mover.h"
#include "client/daemon/daemon.h"
#include "client/session/owner.h"
#include "client/scratch.h"
#include "client/session/segmap.h"
#include "client/session/session.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fork.h"
#include "common/net/net.h"
#include "engine/mce.h"
#include <mooncake/mcs.h>

/* Items of one request; longer batches go in several. */
#define MCS_GROUP_ITEMS 4096
#define MCS_GROUP_BYTES (8u << 20)	/* of keys */

struct mcs_buffer {		/* memory registered by the program */
	struct mc_list link;
	void *base;
	size_t len;
	struct mce_mr *mr;	/* NULL: memory that the daemon does not see, noted only */
	bool pool;		/* of mcs_pool_alloc(), mapped for it */
};

struct mcs {
	/* constant after open */
	struct mcs_conf conf;	/* its strings are copies */
	unsigned fork_depth;
	/* NULL: none.  With a daemon there is no engine, no owner and no thread; the session is for what the
	 * daemon does not do, and connects when that is asked for. */
	struct mcs_daemon *node;
	struct mcs *alone;		/* guarded by alone_lock; set once (node_alone.c) */
	uint64_t alone_until_ns;	/* atomic; until when it is used without looking for the daemon */
	pthread_mutex_t alone_lock;	/* one opening of it at a time */
	struct mcp_id client;
	struct mcp_bytes tenant; /* in each message that names keys; "": the default one */
	struct mce_engine *engine;
	struct mcs_session *session;
	struct mcs_segmap *segmap;
	struct mcs_owner *owner;	/* NULL: contributes nothing; set before the first mount */
	struct mcs_background *keeper;
	struct mcs_mover *mover;	/* NULL: contributes nothing */
	struct mcs_async *async;
	struct mcs_heartbeat *heartbeat;

	/* with their own locks */
	struct mcs_scratch_pool scratch;
	struct mcs_leases leases;

	pthread_mutex_t grow_lock;	/* one enlarging of the segment at a time */
	pthread_mutex_t lock;
	/* with the lock held */
	struct mc_list buffers;		/* struct mcs_buffer */
	struct mc_list objects;		/* struct mcs_object: open ones */
	/* atomic */
	bool attaching;			/* new connections offer the segment */
	uint64_t answered_ms;		/* when the last heartbeat that was answered was sent */
	uint64_t silence_ms;		/* so long after it the connection itself is asked (mcs_connected()) */
};

/* 0, or -MC_EUNAVAILABLE in a forked child.  Calls that reach the master, the engine or the daemon are refused
 * there; this is for those that do with memory alone. */
static inline int mcs_check_fork(const struct mcs *s)
{
	return mc_fork_check(s->fork_depth);
}

/* Absolute deadline of a call. */
static inline uint64_t mcs_deadline(const struct mcs *s, int64_t timeout_ms)
{
	return mc_deadline_ms(timeout_ms < 0 ? s->conf.timeout_ms : timeout_ms);
}

/* 0, or -MC_EKEY. */
int mcs_key_check(struct mcs_key key);
/* The same, without the reason. */
static inline bool mcs_key_good(struct mcs_key key)
{
	return key.data && key.len && key.len <= MCP_KEY_MAX;
}

/* How many of @n keys, the k-th by @key_of(@arg, k), make one request. */
unsigned mcs_batch_split(unsigned n, struct mcs_key (*key_of)(const void *arg, unsigned i),
		   const void *arg);

/* The error of a call for a transfer that ended with @err. */
int mcs_transfer_error(int err);

/* A number that counts connections right now; see session.h. */
static inline uint64_t mcs_epoch(const struct mcs *s)
{
	return mcs_session_epoch(s->session);
}

/* Is the connection of that number still there, at the master too?  For what it holds: pins, room of puts.  As a rule
 * without a request; a second when the master has not answered for long, and then perhaps cannot. */
bool mcs_connected(const struct mcs *s);

/* Remove what @msg says, part by part; the number removed. */
int64_t mcs_remove_parts(struct mcs *s, struct mcp_remove_match *msg, uint64_t deadline);

/* Of enum mcp_segment_state; static text. */
const char *mcs_segment_state_name(uint8_t state);

/* buffer.c: what is still registered or allocated. */
void mcs_buffers_done(struct mcs *s);

/* Keeper thread, after a new connection: pin the open objects again.  True: some were not found and may yet be,
 * when their owners have come back to a master that restarted; to be called again in a while. */
bool mcs_objects_repin(struct mcs *s);

#endif
