/* SPDX-License-Identifier: Apache-2.0
 * local_service.h - the service for local programs beside the mount: its socket (node/node.h), and below .mcfs `ctl`,
 * a file for ioctls that is always there, and `segments/`, the memory itself as files. */
#ifndef MCFS_LOCAL_SERVICE_H
#define MCFS_LOCAL_SERVICE_H

#include "mcfs/mcfs.h"
#include "mcfs/reply.h"
#include "node/node.h"

/* Inode numbers at the end of those of control files. */
#define MCFS_CONTROL_SEGMENT 56ull	/* of segment 0; the others follow */
#define MCFS_CONTROL_SEGMENTS 60ull	/* the directory */
#define MCFS_CONTROL_CTL 61ull
static inline bool mcfs_is_segment(fuse_ino_t ino)
{
	return ino >= MCFS_CONTROL_SEGMENT && ino < MCFS_CONTROL_SEGMENT + MCN_SEGMENTS;
}

struct mcfs_service;
/* @master: what clients are told.  A port that another daemon has is an error only when it was asked for. */
int mcfs_service_start(struct mcfs *fs, const char *master);
void mcfs_service_stop(struct mcfs *fs);
struct mcn *mcfs_service_node(const struct mcfs *fs);

/* Of ctl, segments and those in it: 0 or -ENOENT. */
int mcfs_service_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret);
void mcfs_service_lookup_segment(struct mcfs_op *op, const char *name);
/* The @i-th name in segments/, NULL behind the last. */
const char *mcfs_service_segment_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino);
/* Passed through to the memory; EOPNOTSUPP where the kernel cannot do that, as anything else would show
 * bytes of another time. */
void mcfs_service_open_segment(struct mcfs_op *op, fuse_ino_t ino, struct fuse_file_info *fi);

#endif
