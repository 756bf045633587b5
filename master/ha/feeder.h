/* SPDX-License-Identifier: Apache-2.0
 * feeder.h - the leader's side of replication: its journal goes to standbys, and answers wait for those in sync.
 *
 * A standby that joins gets a whole copy, is then in sync, and becomes a member in the store: it may lead after this
 * master.  From before that moment every answer waits until it has the records.  A standby that does not confirm in
 * time is removed from the members in the store; only then do answers stop waiting for it.
 *
 * A standby that confirms also promises not to serve for MCM_PROMISE_MS: it may replace this master during the lease,
 * if this process seems to have ended.  Answers leave only while the promises of all members last, so they
 * are still true when they leave.  A standby whose confirmations come after their promise for the same time is removed
 * too, and one that needs more than half of a promise is not added.  For the time of a change of the members it
 * promises longer.
 *
 * Nothing is sent to a standby, and none becomes a member, before the receiver at its address has repeated the nonce of
 * its JOIN; a JOIN with another name than that of the receiver changes nothing.  gate.h has the limits that keep a
 * standby from delaying answers for long.
 *
 * The protocol is the one of docs/models/ha.pml. */
#ifndef MCM_FEEDER_H
#define MCM_FEEDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/codec.h"

struct mcm_security;

struct mcm;
struct mcm_feeders;

/* A master that replaces an ended one waits at most for this time; a standby that does not confirm for longer delays
 * all answers. */
#define MCM_PROMISE_MS 150u

struct mcm_feeders_conf {
	uint64_t term;
	const char *self;	/* name of this master */
	unsigned timeout_ms;	/* a standby that has confirmed no part for this time is removed */
	unsigned slow_ms;	/* a standby that often needs longer than this or a promise is removed (gate.h) */
	const char *members;	/* addresses that may join (gate.h); must stay */
	const uint64_t *until;	/* atomic, mc_now_ns() scale: this master leads until then */
	struct mcm_security *security;	/* NULL: off */
	unsigned set_ms;	/* time limit of set_members() */
	/* Set the members in the store.  Any thread, one at a time; waits for the store.  Negative: the members may
	 * have changed or not. */
	int (*set_members)(void *arg, const char *const *member, unsigned n);
	void *arg;
};

/* Begin without standbys.  The store lists this master alone. */
int mcm_feeders_new(const struct mcm_feeders_conf *conf, struct mcm_feeders **ret);
/* @m has a journal, and serves no client yet. */
void mcm_feeders_attach(struct mcm_feeders *f, struct mcm *m);
/* End the threads.  Answers that wait never leave.  The members in the store stay. */
void mcm_feeders_stop(struct mcm_feeders *f);
/* Call it after the end of the server.  NULL is fine. */
void mcm_feeders_free(struct mcm_feeders *f);

/* MCP_JOIN by a process at @peer, a numeric address: begin to feed the standby, or nothing if it is being fed. */
int mcm_feeders_join(struct mcm_feeders *f, const struct mcp_join *rq, struct mcp_bytes peer, uint64_t *ret_term);
/* In the field records of a JOIN: a standby of an earlier version skips the records of names of files (MOUNT.md), and
 * would lose the files. */
#define MCM_RECORDS_LINKS 1u
/* Around a change that writes such records.  begin: -MC_ENOTSUP with a detail if a standby cannot restore them, then
 * without end.  Until the end, and while there are names, no such standby is fed.  NULL is fine.  No locks held. */
int mcm_feeders_link_begin(struct mcm_feeders *f);
void mcm_feeders_link_end(struct mcm_feeders *f);
/* Print the times of the confirmations of records by each standby, as text for Prometheus. */
void mcm_feeders_print(struct mcm_feeders *f, FILE *to);
/* The records up to @lsn are written: wake the threads.  True: every standby in sync has the records. */
bool mcm_feeders_have(struct mcm_feeders *f, uint64_t lsn);
/* The same, and wait until every standby in sync has the records, or mcm_feeders_stop() is called. */
void mcm_feeders_wait(struct mcm_feeders *f, uint64_t lsn);
/* Does this master lead, by its own clock and the promises of the standbys?  Answers leave only while it does. */
bool mcm_feeders_lead(const struct mcm_feeders *f);
/* The lease was prolonged: let the answers leave that waited for it. */
void mcm_feeders_prolonged(struct mcm_feeders *f);
/* Number of standbys in sync: the members in the store without this master. */
unsigned mcm_feeders_in_sync(struct mcm_feeders *f);

#endif
