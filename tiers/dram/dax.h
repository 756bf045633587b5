/* SPDX-License-Identifier: Apache-2.0
 * dax.h - devices of memory: /dev/daxX.Y, as a CXL region or persistent memory in mode devdax.
 *
 * The device is mapped like a file, in whole pages of its alignment, and cannot be truncated or extended.  Facts of the
 * interface: Linux, Documentation/ABI/testing/sysfs-bus-dax. */
#ifndef MCT_DAX_H
#define MCT_DAX_H

#include <stdint.h>

struct mct_dax {
	uint64_t size, align;	/* bytes */
};

/* Lock the open device @fd, and read its properties.  @path: for messages.  A process that has ended keeps the lock
 * while another process has its mapping, because that one could still write there.  Waits up to 5 seconds for the lock.
 * -EINVAL: not such a device.  -EBUSY: locked. */
int mct_dax_claim(int fd, const char *path, struct mct_dax *ret);

#endif
