/* SPDX-License-Identifier: Apache-2.0
 * object.h - one committed version, open for reading, shared by all descriptors of it on this node. */
#ifndef MCFS_OBJECT_H
#define MCFS_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/mcs.h>

struct mcfs_object;

/* Pin the current version of @key. *ret has one reference. */
int mcfs_object_open(mcs_t *store, struct mcs_key key, uint64_t deadline, struct mcfs_object **ret);
/* As mcs_stat_open(). */
int mcfs_object_stat(mcs_t *store, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		     int *results, uint64_t deadline, struct mcfs_object **ret);
struct mcfs_object *mcfs_object_ref(struct mcfs_object *o);
void mcfs_object_unref(struct mcfs_object *o);	/* NULL is fine */

const struct mcs_info *mcfs_object_info(const struct mcfs_object *o);

/* As mcs_object_offset(). */
int mcfs_object_offset(struct mcfs_object *o, uint64_t *ret);

/* Read up to @len bytes from @offset and verify their CRCs. *ret points to them, in @buf or in the object's
 * memory, and is valid while both exist. Returns their number, short only at the end, or negative. Any thread. */
int64_t mcfs_object_get(struct mcfs_object *o, uint64_t offset, size_t len, void *buf,
			uint64_t deadline, const void **ret);
/* The same into @buf, asynchronously: as mcs_object_read_start(). */
int mcfs_object_start(struct mcfs_object *o, uint64_t offset, void *buf, size_t len,
		      uint64_t deadline, mcs_read_done_fn done, void *arg);
/* The same into @buf, exactly @len bytes: 0 or negative. */
int mcfs_object_copy(struct mcfs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline);

#endif
