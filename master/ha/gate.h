/* SPDX-License-Identifier: Apache-2.0
 * gate.h - for the leader: which standbys may join, when, and which of them are too slow to stay.
 *
 * Answers wait for a standby in sync, so each limit here bounds the delay that one host of the network can cause.
 * Threads: the caller has a lock. */
#ifndef MCM_GATE_H
#define MCM_GATE_H

#include <stdbool.h>
#include <stdint.h>

#define MCM_GATE_PER_HOST 4u	/* limit of the standbys that processes of one host ask for */
#define MCM_GATE_HOSTS 64u
#define MCM_GATE_HOST_MAX 64u	/* bytes of a numeric address */

struct mcm_gate_host {
	char host[MCM_GATE_HOST_MAX];
	unsigned late;		/* number of its standbys that were removed because answers had to wait for them */
	uint64_t until;		/* no standby of the host joins before then (mc_now_ns() scale) */
};

/* All bytes zero: no host was late. */
struct mcm_gate {
	struct mcm_gate_host host[MCM_GATE_HOSTS];
};

/* May the process at the numeric address @peer ask for a standby at @addr (HOST:PORT)?  With @members, a list of
 * HOST:PORT with commas, @addr must be one of them; with "" an address of @addr's HOST must be @peer.  @deadline 0: no
 * name is looked up.  0; -MC_EJOIN; -EAGAIN: HOST has to be looked up; errors of the lookup.  All have a detail. */
int mcm_gate_address(const char *members, const char *addr, const char *peer, uint64_t deadline);
/* -MC_EUNAVAILABLE: a standby of this host was late, and has to wait. */
int mcm_gate_wait(struct mcm_gate *g, const char *peer, uint64_t now);
/* A standby of this host was removed because answers had to wait for it: the next one waits for 1 s, then 2 s, 4 s ...
 * at most 32 s.  After five minutes without that the host begins anew. */
void mcm_gate_late(struct mcm_gate *g, const char *peer, uint64_t now);

/* The speed of the confirmations of records by one standby.  It begins with all fields zero, except limit_ms. */
struct mcm_pace {
	unsigned limit_ms;	/* a confirmation that takes longer is slow */
	uint64_t from;		/* begin of the period; 0: no record was confirmed yet */
	unsigned parts, slow;	/* number of all, and of the slow confirmations in the period */
	uint64_t slow_ns;	/* sum of the times of the slow ones */
};

/* A part with records, sent at @sent, was confirmed at @now.  -ETIMEDOUT with a detail: in a period of 10 s and at
 * least 8 parts, at least 4 were slow, and these were more than a tenth of all, or took a quarter of the time.  One
 * slow moment of a standby is not enough. */
int mcm_pace_add(struct mcm_pace *p, uint64_t sent, uint64_t now);
/* For a standby that joins, before answers wait for it: were more than half of the confirmations so far slow? */
bool mcm_pace_slow(const struct mcm_pace *p);

#endif
