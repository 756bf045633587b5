/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the memory that this process contributes: got, registered with the engine, offered
 * to the master.  Its id and epoch stay the same for its whole life, so that the master that
 * comes back, or that lost sight of us, finds its objects again. */
#ifndef MCS_OWNER_H
#define MCS_OWNER_H

#include <stdint.h>

#include "client/session/session.h"
#include "engine/mce.h"

struct mcs_owner;

struct mcs_owner_conf {
	struct mce_engine *engine;
	struct mcp_id client;
	uint64_t size, max;		/* bytes now, and what it may grow to */
	const char *kind;		/* as of mct_conf */
	const char *path;		/* the same */
	uint64_t path_offset;
	const char *protocol;
	int adopt_fd;			/* the same */
	uint64_t identity[3];		/* of the segment that is adopted */
};

/* Get the memory and register it. */
int mcs_owner_open(const struct mcs_owner_conf *conf, struct mcs_owner **ret);
/* Unregister and free it.  NULL is fine. */
void mcs_owner_close(struct mcs_owner *o);

/* Offer the memory; repeated offers are harmless.  NULL is fine: nothing to offer. */
int mcs_owner_mount(struct mcs_owner *o, struct mcp_client *c, uint64_t deadline);
int mcs_owner_remount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline);
/* The segment's bytes from @offset on; NULL when it is not this owner's or has not @len of them. */
const void *mcs_owner_at(const struct mcs_owner *o, struct mcp_id segment, uint64_t offset,
			 uint64_t len);
/* The segment's file, and the bytes of it that may be mapped; -EINVAL: NULL has none. */
int mcs_owner_fd(const struct mcs_owner *o, uint64_t *ret_size);
/* What the master knows it by: its id and epoch. */
int mcs_owner_identity(const struct mcs_owner *o, uint64_t ret[3]);
/* Enlarge the memory to @size bytes and offer all of it.  -EINVAL, -ENOMEM, and what the master
 * says. Not from two threads at once. */
int mcs_owner_grow(struct mcs_owner *o, struct mcs_session *s, uint64_t size, uint64_t deadline);
/* Take it back: its objects go. */
int mcs_owner_unmount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline);

#endif
