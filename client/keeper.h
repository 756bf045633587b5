/* SPDX-License-Identifier: Apache-2.0
 * keeper.h - the thread that does what calls leave behind: gives back pins that no request took
 * along, renews leases of long reads, takes back puts, finds the master again and attaches to
 * it. */
#ifndef MCS_KEEPER_H
#define MCS_KEEPER_H

#include <stddef.h>
#include <stdint.h>

struct mcs;
struct mcs_keeper;

int mcs_keeper_start(struct mcs *s, struct mcs_keeper **ret);
void mcs_keeper_stop(struct mcs_keeper *k);	/* NULL is fine */

/* All of these may be called with NULL, before the start and after the stop: nothing happens
 * then. */

/* There is something to give back.  Cheap. */
void mcs_keeper_wake(struct mcs_keeper *k);
/* A new connection: pin open objects again, and look again for those whose owners may yet come. */
void mcs_keeper_connected(struct mcs_keeper *k);
/* The master wants to be offered the segment again. */
void mcs_keeper_remount(struct mcs_keeper *k);
/* Revoke a put when the master can be reached; of connection @epoch, with which it dies. */
void mcs_keeper_revoke(struct mcs_keeper *k, const void *key, size_t key_len, uint64_t generation,
		       uint64_t epoch);

#endif
