/* SPDX-License-Identifier: Apache-2.0
 * offloader.h - the owner's thread that copies objects between its memory and its disks, as the master decides. */
#ifndef MCS_OFFLOADER_H
#define MCS_OFFLOADER_H

#include <stdint.h>

#include "proto/msg.h"

struct mcs_direct;
struct mcs_offloader;
struct mcs_seg;

int mcs_offloader_start(struct mcs_direct *s, struct mcs_offloader **ret);
void mcs_offloader_stop(struct mcs_offloader *o);	/* NULL is fine; waits for running copies */

/* Copy an object of @size bytes from a replica on one of this process's disks to a range in memory, granted to the copy
 * @put on connection @epoch with fence number @fence.  *ret_crc: of the bytes.  *ret_doubt: after a failure, WRITEs may
 * still be carried out there.  Not for several threads with one object. */
int mcs_disk_to_memory(struct mcs_direct *s, const struct mcp_replica *from, const struct mcp_replica *to,
		       uint64_t size, uint64_t put, uint64_t epoch, uint64_t fence, uint64_t deadline,
		       uint32_t *ret_crc, struct mcs_seg **ret_doubt);

#endif
