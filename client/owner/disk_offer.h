/* SPDX-License-Identifier: Apache-2.0
 * disk_offer.h - the objects on a disk, offered to a master that has no journal of them.
 *
 * All blocks of the disk are read once, for the records in them (tiers/ssd/record.h), and the objects that these name
 * are offered in batches, in the order of their offsets.  The bytes are not compared here: every read does that. */
#ifndef MCS_DISK_OFFER_H
#define MCS_DISK_OFFER_H

#include "client/owner/segments.h"
#include "common/sys/thread.h"

/* Find the objects of a medium by their records: *ret is an array of *ret_n, ascending by offset, without older
 * versions and those that are void; the caller frees it.  Segment and epoch of @o are not used.  *ret_unread: bytes
 * that could not be read.  -MC_EUNAVAILABLE: the medium does not work now; -ECANCELED. */
struct mct_found;
int mcs_disk_scan(const struct mcs_own_segment_offered *o, struct mc_stop *stop, struct mct_found **ret, size_t *ret_n,
		  uint64_t *ret_unread);

/* Takes as long as reading the disk.  0: all were offered, and the master knows that; -ECANCELED: @stop is set; else
 * try again.  One thread at a time. */
int mcs_disk_offer(struct mcs_session *s, const struct mcs_own_segment_offered *o, struct mc_stop *stop);

#endif
