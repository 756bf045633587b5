/* SPDX-License-Identifier: Apache-2.0
 * dax.h - devices of memory: /dev/daxX.Y, as a CXL region or persistent memory in mode devdax.
 *
 * The device is mapped like a file, in whole pages of its alignment, and cannot be truncated or extended.  Facts of the
 * interface: Linux, Documentation/ABI/testing/sysfs-bus-dax. */
#ifndef MC_DAX_H
#define MC_DAX_H

#include <stdint.h>

struct mc_dax {
	uint64_t size, align;	/* bytes */
};

/* Lock the open device or file of memory @fd.  @path: for messages.  A process that has ended keeps the lock while
 * another process has its mapping, because that one could still write there.  The lock is the inode's: containers need
 * the same device node to exclude each other.  Waits up to 5 seconds.  -EBUSY: locked. */
int mc_dax_lock(int fd, const char *path);
/* Lock the open device @fd, and read its properties.  -EINVAL: not such a device.  -EBUSY: locked. */
int mc_dax_claim(int fd, const char *path, struct mc_dax *ret);
/* Bytes of the open file or device @fd that can be mapped: of a DAX device too, whose st_size is 0.  -errno. */
int64_t mc_dax_mappable(int fd);

#endif
