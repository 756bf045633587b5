/* SPDX-License-Identifier: Apache-2.0
 * copies.h - copies that the master wants of an owner: fetch them, and report their end. */
#ifndef MCS_COPIES_H
#define MCS_COPIES_H

#include <stdbool.h>

#include "client/direct/direct.h"
#include "proto/rpc_client.h"

struct mcs_seg;

struct mcs_copies {
	uint64_t epoch, fence;	/* the connection's; the ranges belong to it until the report */
	struct mcp_task_fetch_reply reply;
	struct mcp_reply mem;	/* memory of @reply, and of all that points into it */
	struct mcp_iter it;
};

/* Connect if necessary, and fetch.  0: call mcp_reply_done(&ret->mem) afterwards. */
int mcs_copies_fetch(struct mcs_direct *s, const struct mcp_task_fetch *msg, struct mcs_copies *ret);
/* The next copy that is well-formed.  False: there is none. */
bool mcs_copies_next(struct mcs_copies *f, struct mcp_copy *ret, struct mcp_replica *ret_from,
		     struct mcp_replica *ret_to);
/* The master frees the range of a reported copy.  False: a failed WRITE to @dst (NULL: there was none) may still be
 * carried out; then the copy ends with the connection, which is reset, and must not be reported. */
bool mcs_copies_settled(struct mcs_direct *s, const struct mcs_seg *dst);
/* Report the end of @n copies; there may be none. */
int mcs_copies_report(struct mcs_direct *s, const struct mcp_copied *done, unsigned n);

#endif
