/* SPDX-License-Identifier: Apache-2.0
 * near.h - objects that have a copy on this node. */
#ifndef MCFS_NEAR_H
#define MCFS_NEAR_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

#define MCFS_NEAR_PAGE 256u

/* Which of the @n objects have one, asked of the master in one request: 0 or negative.  What does not exist has
 * none. */
int mcfs_near(mcs_t *store, const struct mcs_key *keys, unsigned n, bool *ret, int64_t timeout_ms);

/* A listing of those only, and of directories; as mcs_list_open() and its siblings.  One thread at a time. */
struct mcfs_near_list;
int mcfs_near_open(mcs_t *store, struct mcs_key prefix, int dir, struct mcfs_near_list **ret);
int mcfs_near_next(struct mcfs_near_list *l, struct mcs_entry *ret, int64_t timeout_ms);
void mcfs_near_close(struct mcfs_near_list *l);		/* NULL is fine */

#endif
