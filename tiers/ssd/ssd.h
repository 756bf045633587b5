/* SPDX-License-Identifier: Apache-2.0
 * ssd.h - the tier "ssd": a file in a directory, or a block device, read and written past the page cache.
 *
 * mct_conf.path names an existing directory or a block device.  A directory holds a file "mooncake-N.ssd" for each
 * process that uses it at the same time; a process takes the first one that no other process has locked, with its
 * content, or makes a new one.  A file that has other content is refused, as is a block device whose first or last MiB
 * is not zero.  A zero one is initialised only with mct_conf.format; a device that this tier has used before needs no
 * such permission.
 *
 * With MCT_SHARE_OWN and MCT_SHARE_READ the files of a directory that several machines use are called <id>.data;
 * shared.c has their rules.
 *
 * Kinds: "auto" (default): USRBIO for a file on 3FS if its library is there (usrbio.c), else io_uring, or threads where
 * the kernel refuses it; "threads".
 *
 * mct_conf.size is the limit of the bytes on the disk; 0: the size of the file found, for a new one 90 % of the
 * free space, less the space that other owners of the directory may still use.  A medium with content never shrinks.
 * The file is sparse: space is used as it is written.
 *
 * Layout: a header of one block at offset 0, the owner's notes in the next 255 blocks, the bytes of the medium from
 * 1 MiB on. */
#ifndef MCT_SSD_H
#define MCT_SSD_H

#include "tiers/tier.h"

extern const struct mct_tier_ops mct_ssd_tier;

/* Is the block device at @path, or the one with the filesystem of another @path, an NVMe disk that is reached over a
 * network?  @sys: "/sys".  False also for volumes on such a disk, as of LVM.  Any thread. */
bool mct_ssd_is_nof(const char *path, const char *sys);

#endif
