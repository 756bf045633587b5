/* SPDX-License-Identifier: Apache-2.0
 * local_service.h - the mount's service for local programs: its socket (node/node.h), the file
 * .mcfs/ctl for ioctl(2), and .mcfs/segments/, the memory as files. */
#ifndef MCFS_LOCAL_SERVICE_H
#define MCFS_LOCAL_SERVICE_H

#include "mcfs/mcfs.h"
#include "mcfs/reply.h"
#include "node/node.h"

/* Inode numbers at the end of the control files' range. */
#define MCFS_CONTROL_SEGMENT 56ull	/* segment 0; the others follow */
#define MCFS_CONTROL_SEGMENTS 60ull	/* the directory */
#define MCFS_CONTROL_CTL 61ull
static inline bool mcfs_is_segment(fuse_ino_t ino)
{
	return ino >= MCFS_CONTROL_SEGMENT && ino < MCFS_CONTROL_SEGMENT + MCN_SEGMENTS;
}

struct mcfs_service;
/* @master: the address that local clients receive. A port that another daemon uses is an error only
 * if the user set the option. */
int mcfs_service_start(struct mcfs *fs, const char *master);
void mcfs_service_stop(struct mcfs *fs);
struct mcn *mcfs_service_node(const struct mcfs *fs);
/* The kernel's ids of the segments' files end with the mount; the next mount registers them again. */
void mcfs_service_forget_backing(struct mcfs *fs);

/* Attributes of ctl, segments/ and its files: 0 or -ENOENT. */
int mcfs_service_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret);
void mcfs_service_lookup_segment(struct mcfs_op *op, const char *name);
/* Name @i in segments/, NULL behind the last. */
const char *mcfs_service_segment_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino);
/* Open with passthrough to the memory; EOPNOTSUPP if the kernel has no passthrough, because any
 * copy would show outdated bytes. */
void mcfs_service_open_segment(struct mcfs_op *op, fuse_ino_t ino, struct fuse_file_info *fi);

#endif
