/* SPDX-License-Identifier: Apache-2.0
 * control.h - files and directories below .mcfs, and health and metrics over HTTP. */
#ifndef MCFS_CONTROL_H
#define MCFS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mcfs/life/compat.h"

struct mcfs;
struct stat;

#define MCFS_CONTROL_DIR 2ull		/* inode number of .mcfs; those of its files follow */
#define MCFS_CONTROL_END 64ull
static inline bool mcfs_is_control(fuse_ino_t ino)
{
	return ino >= MCFS_CONTROL_DIR && ino < MCFS_CONTROL_END;
}
#define MCFS_CONTROL_BY_KEY 63ull	/* directory in which each key is one name */
#define MCFS_CONTROL_SOCK 62ull		/* symbolic link to the socket file, if there is one */
#define MCFS_CONTROL_LOCAL 59ull	/* like by-key, for objects with a copy on this node */
/* each name in it is a directory like by-key, with the keys that begin with the name */
#define MCFS_CONTROL_PREFIX 58ull
/* Path of the service's socket file, or NULL. */
const char *mcfs_control_socket(const struct mcfs *fs);
/* 0 or -ENOENT. */
int mcfs_control_lookup(const struct mcfs *fs, const char *name, struct stat *ret);
int mcfs_control_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret);
/* Name of file @i; NULL behind the last. */
const char *mcfs_control_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino);
/* The file's feed (enum mcfs_feed_kind), -1: the file is no feed. */
int mcfs_control_feed(fuse_ino_t ino);
/* Current text of a control file; free() it. */
int mcfs_control_read(struct mcfs *fs, fuse_ino_t ino, char **ret, size_t *ret_len);

/* ---- http.c ------------------------------------------------------------------------------------ */

struct mc_httpd;
int mcfs_http_start(struct mcfs *fs, struct mc_httpd **ret);
/* "healthy", "not_initialized" or "master_unreachable", with upstream's code. */
const char *mcfs_health(struct mcfs *fs, int *ret_code);

#endif
