/* SPDX-License-Identifier: Apache-2.0
 * segments_i.h - shared by segments.c and segments_keys.c. */
#ifndef MCS_SEGMENTS_I_H
#define MCS_SEGMENTS_I_H

#include "client/owner/segments.h"
#include "common/sys/thread.h"

#define MCS_SEGMENTS_MAX 256u

struct mcs_segments {
	/* constant */
	struct mce_engine *engine;
	struct mcp_id client;
	struct mcs_own_segment *segment[MCS_SEGMENTS_MAX];	/* the first @n; they do not move */
	struct mc_mutex lock;
	struct mc_cond kept;	/* a segment is not keeping any more */
	struct mc_mutex notes_lock;
	/* atomic */
	unsigned n;		/* grows only, with the lock held, after the segment is complete */
	uint64_t writing[MCS_SEGMENTS_WRITERS];	/* numbers with which writes run, 0: none */
	uint64_t fenced;	/* the largest number that was fenced */
	bool removed;		/* the durable ones are not offered any more */
	bool named_due;		/* one on a named medium is to be mounted, */
	bool shared_due;	/* or one in a shared directory */
};

/* segments_keys.c: the keys of @pool do not fit the file of the segment: another tenant's owner, or another pool's, may
 * need it.  Leave it, and open another one instead.  False: it stays, and @why is the error again. */
bool mcs_segments_leave_file(struct mcs_segments *s, struct mcs_own_segment *at, struct mcp_id pool, int why);

static inline unsigned mcs_segments_count(const struct mcs_segments *s)
{
	return s ? __atomic_load_n(&s->n, __ATOMIC_ACQUIRE) : 0;
}

#endif
