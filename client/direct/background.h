/* SPDX-License-Identifier: Apache-2.0
 * background.h - the background thread: releases pins that no request carried, renews leases of
 * long reads, revokes puts, and reconnects to the master. */
#ifndef MCS_BACKGROUND_H
#define MCS_BACKGROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcs_direct;
struct mcs_seg;
struct mcs_background;

int mcs_background_start(struct mcs_direct *s, struct mcs_background **ret);
void mcs_background_stop(struct mcs_background *b);	/* NULL is fine */

/* All of these do nothing with NULL, so they may be called before the start and after the stop. */

/* Pins are queued for release.  Cheap. */
void mcs_background_wake(struct mcs_background *b);
/* A new connection: pin open objects again, also those whose owners may still come back. */
void mcs_background_connected(struct mcs_background *b);
/* Offer the segment to the master again. */
void mcs_background_remount(struct mcs_background *b);
/* Revoke a put of connection @epoch when none of its writes can be carried out any more, and the master can be reached;
 * the put ends with its connection.  @seg: the @n segments to which it has written; their references, and the array
 * itself (malloc'ed), are taken over.  NULL: none. */
void mcs_background_revoke(struct mcs_background *b, const void *key, size_t key_len, uint64_t generation,
			   uint64_t epoch, struct mcs_seg **seg, unsigned n);
/* Can no ended write to these segments be carried out any more? */
bool mcs_segs_settled(struct mcs_seg *const *seg, unsigned n);

#endif
