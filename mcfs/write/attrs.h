/* SPDX-License-Identifier: Apache-2.0
 * attrs.h - attributes of a writer's file, for its commits; with the writer's lock held. */
#ifndef MCFS_WRITE_ATTRS_H
#define MCFS_WRITE_ATTRS_H

#include "mcfs/write/version.h"

/* May user @caller set @a (MCS_SET_* @flags) of a file with attributes @seen? @owner: of a file that has no owner in
 * the pool. 0 or -EPERM. The kernel has checked it too, perhaps with attributes that have changed since. */
int mcfs_attrs_check_owner(uid_t caller, uid_t owner, const struct mcs_attrs *seen, const struct mcs_attrs *a,
			   unsigned flags);

/* Initialize the attributes of a new writer that no other thread knows. */
void mcfs_writer_attrs_init(struct mcfs_writer *w, const struct mcfs_writer_args *args);
/* The file's bytes change: explicit times, set-user-ID and set-group-ID end. */
void mcfs_writer_attrs_touched(struct mcfs_writer *w);
/* The attributes that a put sets, and the condition that it does not replace a file of another owner than the one whose
 * file a user opened; NULL: none. Valid until the next call. */
const struct mcs_attrs *mcfs_writer_attrs_put(struct mcfs_writer *w);
/* That condition failed: did the owner of the same file change? */
bool mcfs_writer_attrs_owner_changed(struct mcfs_writer *w, uint64_t deadline);
/* The name has the file of another node or descriptor: 0, or -ESTALE if changes of attributes that waited for the
 * commit are lost. */
int mcfs_writer_attrs_lost(struct mcfs_writer *w);
/* They were set, with version @generation. */
void mcfs_writer_attrs_sent(struct mcfs_writer *w, uint64_t generation);
/* After a commit: store the extended attributes that waited for it. They are given up on failure. */
int mcfs_writer_send_xattrs(struct mcfs_writer *w, uint64_t deadline);

#endif
