/* SPDX-License-Identifier: Apache-2.0
 * pool.h - the identity of the pool: 128 random bits, created once.
 *
 * The journal keeps the identity, so a restarted master with its journal serves the same pool.  A master
 * without a journal, or one that lost it, has another identity, because its index is another one.  Clients
 * and owners get it in the reply to HELLO and do not mix two pools (client/session/same_pool.h). */
#ifndef MCM_POOL_H
#define MCM_POOL_H

struct mcm;

/* Set m->pool from the restored state, or create an identity and record it; it is written to the journal
 * before this returns.  Call it after mcm_journal_open().  -ENOMEM, -MC_ELIMIT. */
int mcm_pool_load(struct mcm *m);
/* The restored index was discarded: mcm_pool_load() creates a new identity, as for a journal that was removed. */
void mcm_pool_forget(struct mcm *m);

#endif
