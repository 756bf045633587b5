/* SPDX-License-Identifier: Apache-2.0
 * local_objects.h - objects that have a copy on this node. */
#ifndef MCFS_LOCAL_OBJECTS_H
#define MCFS_LOCAL_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

#define MCFS_LOCAL_PAGE 256u

/* Which of the @n objects have one, asked of the master in one request: 0 or negative.  What does not exist has
 * none. */
int mcfs_local_objects(mcs_t *store, const struct mcs_key *keys, unsigned n, bool *ret, int64_t timeout_ms);

/* A listing of those only, and of directories; as mcs_list_open() and its siblings.  One thread at a time. */
struct mcfs_local_list;
int mcfs_local_list_open(mcs_t *store, struct mcs_key prefix, int dir, struct mcfs_local_list **ret);
int mcfs_local_list_next(struct mcfs_local_list *l, struct mcs_entry *ret, int64_t timeout_ms);
void mcfs_local_list_close(struct mcfs_local_list *l);		/* NULL is fine */

#endif
