/* SPDX-License-Identifier: Apache-2.0
 * attrs.h - attributes of a writer's file, for its commits; with the writer's lock held. */
#ifndef MCFS_WRITE_ATTRS_H
#define MCFS_WRITE_ATTRS_H

#include "mcfs/write/version.h"

/* The file's bytes change: explicit times, set-user-ID and set-group-ID end. */
void mcfs_writer_attrs_touched(struct mcfs_writer *w);
/* The attributes that a commit sets; NULL: none. */
const struct mcs_attrs *mcfs_writer_attrs_unsent(struct mcfs_writer *w);
/* They were set, with version @generation. */
void mcfs_writer_attrs_sent(struct mcfs_writer *w, uint64_t generation);
/* After a commit: store the extended attributes that waited for it. They are given up on failure. */
int mcfs_writer_send_xattrs(struct mcfs_writer *w, uint64_t deadline);

#endif
