/* SPDX-License-Identifier: Apache-2.0
 * background.h - the thread that does what calls leave behind: gives back pins that no request took
 * along, renews leases of long reads, takes back puts, finds the master again and attaches to
 * it. */
#ifndef MCS_BACKGROUND_H
#define MCS_BACKGROUND_H

#include <stddef.h>
#include <stdint.h>

struct mcs_direct;
struct mcs_background;

int mcs_background_start(struct mcs_direct *s, struct mcs_background **ret);
void mcs_background_stop(struct mcs_background *k);	/* NULL is fine */

/* All of these may be called with NULL, before the start and after the stop: nothing happens
 * then. */

/* There is something to give back.  Cheap. */
void mcs_background_wake(struct mcs_background *k);
/* A new connection: pin open objects again, and look again for those whose owners may yet come. */
void mcs_background_connected(struct mcs_background *k);
/* The master wants to be offered the segment again. */
void mcs_background_remount(struct mcs_background *k);
/* Revoke a put when the master can be reached; of connection @epoch, with which it dies. */
void mcs_background_revoke(struct mcs_background *k, const void *key, size_t key_len, uint64_t generation,
		       uint64_t epoch);

#endif
