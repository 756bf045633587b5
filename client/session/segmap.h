/* SPDX-License-Identifier: Apache-2.0
 * segmap.h - where segments are: id -> peer, base address, key.  Filled on demand from the
 * master.  An id means the same memory as long as it exists, so that an entry is never wrong,
 * only dead; a segment may have grown since (mcs_segmap_reach()). */
#ifndef MCS_SEGMAP_H
#define MCS_SEGMAP_H

#include <stdint.h>

#include "client/session/session.h"
#include "engine/mce.h"

struct mcs_segmap;

struct mcs_seg {
	/* constant */
	struct mcp_id id;
	struct mce_peer *peer;
	uint64_t base, rkey, size;
	bool own;		/* this process's memory */
	/* atomic */
	unsigned refs;
	unsigned path;		/* enum mce_path that the last transfer took */
};

int mcs_segmap_open(struct mce_engine *e, struct mcs_session *s, struct mcp_id client,
		    struct mcs_segmap **ret);
void mcs_segmap_close(struct mcs_segmap *m);		/* NULL is fine */

/* Look up, asking the master when the id is new.  -MC_ENOSEGMENT when it knows none. */
int mcs_segmap_get(struct mcs_segmap *m, struct mcp_id id, uint64_t deadline,
		   struct mcs_seg **ret);
/* The same for a segment of at least @size bytes: the master is asked again when less was known.
 * -MC_EPROTO when it has fewer. */
int mcs_segmap_reach(struct mcs_segmap *m, struct mcp_id id, uint64_t size, uint64_t deadline,
		     struct mcs_seg **ret);
/* Only what is known already; NULL otherwise. */
struct mcs_seg *mcs_segmap_peek(struct mcs_segmap *m, struct mcp_id id);
void mcs_seg_put(struct mcs_seg *seg);			/* NULL is fine */

/* A transfer with it failed: ask the master again next time. */
void mcs_segmap_forget(struct mcs_segmap *m, struct mcp_id id);

#endif
