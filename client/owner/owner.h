/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the direct back end with the segments that this process contributes, and the threads that serve them. */
#ifndef MCS_OWNER_H
#define MCS_OWNER_H

#include "client/direct/direct.h"
#include "client/owner/segments.h"
#include "common/sys/lock.h"

struct mcs_directory;
struct mcs_heartbeat;
struct mcs_mover;
struct mcs_offloader;
struct mcs_sweeper;

struct mcs_owner {
	struct mcs_direct direct;
	/* constant after open */
	struct mcs_segments *segments;	/* NULL: contributes nothing; set before the first mount */
	struct mcs_mover *mover;	/* NULL: contributes nothing */
	/* NULL: all segments are addressable; set by the thread of @directory if it adds the first that is not */
	struct mcs_offloader *offloader;
	struct mcs_sweeper *sweeper;	/* NULL: no segment is on a named medium */
	struct mcs_directory *directory;	/* NULL: no shared directory, and the master is not asked for one */
	struct mcs_heartbeat *heartbeat;
	struct mc_mutex grow_lock;	/* one enlarging of the segment at a time */
	/* atomic */
	bool attaching;			/* new connections offer the segments to the master */
};

/* Every direct back end belongs to an owner. */
static inline struct mcs_owner *mcs_owner_of(struct mcs_direct *s)
{
	return mc_container_of(s, struct mcs_owner, direct);
}

/* Open a direct back end for @store, with the segments of its configuration; there may be none. */
int mcs_owner_open(struct mcs *store, struct mcs_backend **ret);

#endif
