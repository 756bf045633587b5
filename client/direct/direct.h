/* SPDX-License-Identifier: Apache-2.0
 * direct.h - the direct back end: an engine and a session to the master of this process. */
#ifndef MCS_DIRECT_H
#define MCS_DIRECT_H

#include "client/backend.h"
#include "client/buffer.h"
#include "client/session/background.h"
#include "client/session/disks.h"
#include "client/session/lease.h"
#include "client/session/mover.h"
#include "client/session/offloader.h"
#include "client/session/owner.h"
#include "client/session/segmap.h"
#include "client/session/session.h"
#include "client/store_i.h"
#include "common/sys/lock.h"
#include "engine/mce.h"

struct mcs_direct {
	struct mcs_backend base;

	/* constant after open */
	struct mcp_id client;
	struct mce_engine *engine;
	struct mcs_segmap *segmap;
	struct mcs_owner *owner;	/* NULL: contributes nothing; set before the first mount */
	struct mcs_disks *disks;	/* the same for disks */
	struct mcs_background *background;
	struct mcs_mover *mover;	/* NULL: contributes nothing */
	struct mcs_offloader *offloader;	/* NULL: it has no disks */
	struct mcs_async *async;
	struct mcs_cache *cache;	/* NULL: the environment asks for none */
	struct mcs_heartbeat *heartbeat;

	/* with their own locks */
	struct mcs_leases leases;
	struct mcs_buffers buffers;

	struct mc_mutex grow_lock;	/* one enlarging of the segment at a time */
	struct mc_mutex lock;
	struct mc_list objects;		/* with the lock held: open struct mcs_direct_object */

	/* atomic */
	bool attaching;			/* new connections offer the segment to the master */
	uint64_t answered_ms;		/* when the last answered heartbeat was sent */
	uint64_t silence_ms;		/* after this time without an answer, probe the connection (mcs_connected()) */
};

static inline struct mcs_direct *mcs_direct_of(struct mcs_backend *b)
{
	return mc_container_of(b, struct mcs_direct, base);
}

/* Offer memory and disks to the master of the session, or (@c) of a connection that is being made. */
int mcs_direct_mount(struct mcs_direct *s, uint64_t deadline);

/* Open one for @store, by its configuration. */
int mcs_direct_open(struct mcs *store, struct mcs_backend **ret);

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

/* put.c, put_stream.c */
int mcs_direct_put_batch(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline);
int mcs_direct_stream_open(struct mcs_backend *b, struct mcs_key key, uint64_t room,
			   const struct mcs_put_opts *opts, struct mcs_stream **ret, uint64_t deadline);

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
