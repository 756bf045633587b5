/* SPDX-License-Identifier: Apache-2.0
 * standby.h - a master while another one leads: it serves no client, and copies the leader's journal.
 *
 * The standby asks the leader that the store names (MCP_JOIN), with a nonce; the leader connects to it (MCP_FEED) and
 * repeats the nonce.  Any other feed is refused and changes nothing: one without the nonce, for another standby, of
 * another term than the store's, or a second copy for the same JOIN.  Each confirmation promises for a short time that
 * this master does not replace the leader during its lease (docs/MASTERS.md). */
#ifndef MCM_STANDBY_H
#define MCM_STANDBY_H

#include <stdbool.h>
#include <stdint.h>

#include "master/journal/copy.h"
#include "proto/codec.h"

struct mcm_audit;
struct mcm_security;

/* Clients are refused, as if nothing listened; the leader has a client id that begins with this number. */
#define MCM_STANDBY_LEADER_ID 0x6d6f6f6e63616b65ull

struct mcm_standby;

struct mcm_standby_conf {
	const char *const *addrs;	/* NULL-ended; may be empty */
	struct mcm_audit *audit;	/* NULL: none */
	struct mcm_security *security;	/* NULL: off */
	const char *local_name;		/* address "local:NAME" for a leader in this process; NULL: none */
	struct mcm_copy_conf copy;
	bool sync;			/* confirm a part only when it is on the disk */
};

/* Locks the directory; its files stay until a leader begins to feed. */
int mcm_standby_start(const struct mcm_standby_conf *conf, struct mcm_standby **ret);
/* Stop serving the leader, and unlock the directory.  NULL is fine. */
void mcm_standby_stop(struct mcm_standby *s);
/* Read the secret of the pool again if its file has changed, and then close the connections of credentials that are not
 * valid any more.  To be called again and again, by one thread. */
void mcm_standby_tick(struct mcm_standby *s);
/* Has the directory a whole state: that of an earlier life, or a complete copy? */
bool mcm_standby_whole(struct mcm_standby *s);
/* The term in the store: leaders of other terms are refused, JOINs to them are not open any more, and their feed has
 * ended. */
void mcm_standby_term(struct mcm_standby *s, uint64_t term);
/* Begin a JOIN of this standby, @name, to the leader of that term.  Returns its nonce, with which the standby takes one
 * feed within 10 s. */
struct mcp_id mcm_standby_join(struct mcm_standby *s, const char *name);
/* Has the connection of the leader that fed this standby ended, and has no leader fed it since?  True: with the
 * leader's term, and the time of the end (mc_now_ns() scale). */
bool mcm_standby_lost(struct mcm_standby *s, uint64_t *ret_term, uint64_t *ret_since);
/* Refuse all feeds until mcm_standby_accept().  Returns the end of the last promise to a leader (mc_now_ns() scale): a
 * leader that relies on it sends no answer after that. */
uint64_t mcm_standby_refuse(struct mcm_standby *s);
void mcm_standby_accept(struct mcm_standby *s);
/* Arrival of the last part (mc_now_ns() scale); 0: no part has come. */
uint64_t mcm_standby_fed(struct mcm_standby *s);

#endif
