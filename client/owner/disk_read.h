/* SPDX-License-Identifier: Apache-2.0
 * disk_read.h - read bytes of a medium that is not addressable, and wait for them. */
#ifndef MCS_DISK_READ_H
#define MCS_DISK_READ_H

#include "tiers/tier.h"

/* Read @len bytes at @off into @buf.  The error of the first piece that failed; -ENOMEM. */
int mcs_disk_read(struct mct_medium *m, uint64_t off, void *buf, uint64_t len);

#endif
