/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the segment that this process contributes: allocated, registered with the engine,
 * offered to the master.  Its id and epoch do not change, so that a master that restarted or lost
 * the connection finds its objects again.  Only in another pool it has another epoch: the other master
 * may overwrite the objects of the first, which must not be found there again. */
#ifndef MCS_OWNER_H
#define MCS_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/session.h"
#include "engine/mce.h"

struct mcs_owner;

struct mcs_owner_conf {
	struct mce_engine *engine;
	struct mcp_id client;
	uint64_t size, max;		/* bytes now, and the maximum after growing */
	const char *kind;		/* as in mct_conf */
	const char *path;		/* the same */
	uint64_t path_offset;
	const char *protocol;
	int adopt_fd;			/* the same */
	/* NULL, or memory for MCS_SEGMENT_IDENTITY words that outlives the process: the identity of the segment,
	 * read if one is adopted, and written before the master learns it */
	uint64_t *identity;
};

/* Allocate the memory and register it. */
int mcs_owner_open(const struct mcs_owner_conf *conf, struct mcs_owner **ret);
/* Unregister and free it.  NULL is fine. */
void mcs_owner_close(struct mcs_owner *o);

/* Fence writers of masters before @terms.earlier, and offer the memory to the master of @pool (zero: not
 * known), or to that of the session; repeated offers are harmless.  Any thread.  NULL is fine: nothing to offer.
 * -MC_EUNAVAILABLE: such a writer has not ended, and the master does not know the segment; try again later. */
int mcs_owner_mount(struct mcs_owner *o, struct mcp_client *c, struct mcp_id pool, const struct mcs_terms *terms,
		    uint64_t deadline);
int mcs_owner_remount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline);
/* The @len bytes of the segment at @offset; NULL: not this owner's segment, or out of its bounds. */
const void *mcs_owner_at(const struct mcs_owner *o, struct mcp_id segment, uint64_t offset, uint64_t len);
/* Does the master wish to have the objects of this segment compared (confirm.h)?  Take the wish, if there is one; or
 * set it. */
bool mcs_owner_confirms(const struct mcs_owner *o);
bool mcs_owner_confirm_take(struct mcs_owner *o, struct mcp_id *ret);
void mcs_owner_confirm_set(struct mcs_owner *o, bool wish);
/* Keep the identity words there from now on; -EINVAL: @o is NULL. */
int mcs_owner_keep_at(struct mcs_owner *o, uint64_t *identity);
/* The segment's file, and how many of its bytes may be mapped; -EINVAL: @o is NULL. */
int mcs_owner_fd(const struct mcs_owner *o, uint64_t *ret_size);
/* Enlarge the memory to @size bytes and offer all of it.  -EINVAL, -ENOMEM, or the error of the
 * master. One thread at a time. */
int mcs_owner_grow(struct mcs_owner *o, struct mcs_session *s, uint64_t size, uint64_t deadline);
/* Unmount it; its objects are dropped. */
int mcs_owner_unmount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline);

#endif
