/* SPDX-License-Identifier: Apache-2.0
 * local_objects.h - objects that have a copy on this node. */
#ifndef MCFS_LOCAL_OBJECTS_H
#define MCFS_LOCAL_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

#define MCFS_LOCAL_PAGE 256u

/* Tell which of the @n objects have one, in one request to the master: 0 or negative. A missing
 * object has none. */
int mcfs_local_objects(mcs_t *store, const struct mcs_key *keys, unsigned n, bool *ret, int64_t timeout_ms);

/* List only those objects, and directories; as mcs_list_open() etc. One thread at a time. */
struct mcfs_local_list;
int mcfs_local_list_open(mcs_t *store, struct mcs_key prefix, int dir, struct mcfs_local_list **ret);
int mcfs_local_list_next(struct mcfs_local_list *l, struct mcs_entry *ret, int64_t timeout_ms);
void mcfs_local_list_close(struct mcfs_local_list *l);		/* NULL is fine */

#endif
