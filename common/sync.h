/* SPDX-License-Identifier: Apache-2.0
 * sync.h - durability of directory entries. */
#ifndef MC_SYNC_H
#define MC_SYNC_H

/* Make the entry of @path in its directory durable: after a power failure the name still refers to the same file.
 * 0, also on file systems that cannot sync a directory, or -errno with a detail. */
int mc_sync_entry(const char *path);

#endif
