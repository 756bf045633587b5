/* SPDX-License-Identifier: Apache-2.0
 * direct.h - the direct back end: an engine and a session to the master of this process. */
#ifndef MCS_DIRECT_H
#define MCS_DIRECT_H

#include "client/backend.h"
#include "client/buffer.h"
#include "client/direct/background.h"
#include "client/session/lease.h"
#include "client/session/segmap.h"
#include "client/session/session.h"
#include "client/session/shared.h"
#include "client/store_i.h"
#include "common/sys/lock.h"
#include "engine/mce.h"

struct mcs_direct;

/* The segments that this process contributes, for the back end (client/owner/).  Any thread. */
struct mcs_direct_segments {
	/* Offer them to the master, over @c, a connection that is being made, or (NULL) over the session.  0 if there
	 * are none; else they are offered again after an error. */
	int (*offer)(struct mcs_direct *s, struct mcp_client *c, const struct mcs_terms *terms, uint64_t deadline);
	/* Is this the segment whose file mcs_segment_fd() gives, and has it these bytes? */
	bool (*in_fd)(struct mcs_direct *s, struct mcp_id segment, uint64_t offset, uint64_t len);
};

struct mcs_direct {
	struct mcs_backend base;

	/* constant after open */
	struct mcp_id client;
	struct mce_engine *engine;
	struct mcs_segmap *segmap;
	struct mcs_shared *shared;
	const struct mcs_direct_segments *segments;
	bool has_memory;		/* this process contributes an addressable segment */
	struct mcs_background *background;
	struct mcs_async *async;
	struct mcs_cache *cache;	/* NULL: the environment asks for none */

	/* with their own locks */
	struct mcs_leases leases;
	struct mcs_buffers buffers;

	struct mc_mutex lock;
	struct mc_list objects;		/* with the lock held: open struct mcs_direct_object */

	/* atomic */
	uint64_t answered_ms;		/* when the last answered heartbeat was sent */
	uint64_t silence_ms;		/* after this time without an answer, probe the connection (mcs_connected()) */
};

static inline struct mcs_direct *mcs_direct_of(struct mcs_backend *b)
{
	return mc_container_of(b, struct mcs_direct, base);
}

/* In this order; after an error of the second or third mcs_direct_done() frees the rest.
 * init: the fields, with the table of the caller, which owns the struct.
 * start: the engine, the session (with its first connection, unless the configuration is lazy), and the parts that need
 * no segments.
 * run: the threads, once the segments are open. */
void mcs_direct_init(struct mcs_direct *s, struct mcs *store, const struct mcs_backend_ops *ops,
		     const struct mcs_direct_segments *segments);
int mcs_direct_start(struct mcs_direct *s);
int mcs_direct_run(struct mcs_direct *s);
/* The session is closed, background and asynchronous reads have ended. */
void mcs_direct_done(struct mcs_direct *s);

/* Number of the present connection to the master; see session.h. */
static inline uint64_t mcs_direct_epoch(const struct mcs_direct *s)
{
	return mcs_session_epoch(s->base.session);
}

/* Does the current connection still exist, also at the master?  Pins and reserved ranges depend
 * on it.  Normally sends no request.  When the master has not answered for long, this takes up
 * to a second and may fail to find out. */
bool mcs_connected(const struct mcs_direct *s);

/* read.c: the error of a call for a transfer that ended with @err. */
int mcs_transfer_error(int err);

/* ---- slots of the table (client/backend.h), by file ---- */

/* direct.c */
bool mcs_direct_replaceable(struct mcs_backend *b);
int mcs_direct_register_buffer(struct mcs_backend *b, void *buf, size_t len);
int mcs_direct_register_memfd(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset);
int mcs_direct_unregister_buffer(struct mcs_backend *b, void *buf);
void *mcs_direct_pool_alloc(struct mcs_backend *b, size_t len);
void mcs_direct_pool_free(struct mcs_backend *b, void *p);
int mcs_direct_prefetch(struct mcs_backend *b, struct mcs_key key, uint64_t deadline);

/* put.c, put_stream.c */
int mcs_direct_put_batch(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline);
int mcs_direct_put_stream_open(struct mcs_backend *b, struct mcs_key key, uint64_t room,
			       const struct mcs_put_opts *opts, struct mcs_put_stream **ret, uint64_t deadline);

/* get.c */
int mcs_direct_get_batch(struct mcs_backend *b, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			 void *arg, uint64_t deadline);
struct mcs_version;
/* The same for items whose version may be known: known[i] NULL: it is not, ask the master. */
int mcs_direct_get_known(struct mcs_backend *b, struct mcs_get_item *items, const struct mcs_version *const *known,
			 unsigned n, uint64_t deadline);

/* found.c */
int mcs_direct_find(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_found **ret,
		    uint64_t deadline);
int mcs_direct_get_found(struct mcs_found *found, const unsigned *which, struct mcs_get_item *items, unsigned n,
			 uint64_t deadline);

/* names.c; stat_once does not wait for owners that may return to a restarted master (-MC_ENOTREADY) */
int mcs_direct_stat_once(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline);
int mcs_direct_stat(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline);
int mcs_direct_stat_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			  int *results, uint64_t deadline);
int mcs_direct_exist(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t *present,
		     uint64_t deadline);
int mcs_direct_remove_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			    int *results, uint64_t deadline);

#endif
