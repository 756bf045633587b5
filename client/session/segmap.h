/* SPDX-License-Identifier: Apache-2.0
 * segmap.h - cache of segments: id -> peer, base address, key.  Filled on demand from the
 * master.  An id always means the same memory, so an entry is never wrong; its owner may have
 * ended, and the segment may have grown (mcs_segmap_reach()). */
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
	char *place;		/* where readers find its file (shared.h), NULL: it has none */
	/* atomic */
	unsigned refs;
	unsigned path;		/* enum mce_path of the last transfer */
};

int mcs_segmap_open(struct mce_engine *e, struct mcs_session *s, struct mcp_id client,
		    struct mcs_segmap **ret);
void mcs_segmap_close(struct mcs_segmap *m);		/* NULL is fine */

/* Look up a segment; ask the master when the id is new.  -MC_ENOSEGMENT: the master does not know it. */
int mcs_segmap_get(struct mcs_segmap *m, struct mcp_id id, uint64_t deadline, struct mcs_seg **ret);
/* The same for a segment of at least @size bytes: ask the master again if the cached size is less.
 * -MC_EPROTO: the segment is smaller. */
int mcs_segmap_reach(struct mcs_segmap *m, struct mcp_id id, uint64_t size, uint64_t deadline,
		     struct mcs_seg **ret);
/* Look up a segment in the cache only; NULL: it is not there. */
struct mcs_seg *mcs_segmap_peek(struct mcs_segmap *m, struct mcp_id id);
void mcs_seg_put(struct mcs_seg *seg);			/* NULL is fine */

/* A transfer with the segment failed: ask the master again next time. */
void mcs_segmap_forget(struct mcs_segmap *m, struct mcp_id id);

#endif
