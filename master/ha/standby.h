/* SPDX-License-Identifier: Apache-2.0
 * standby.h - a master while another one leads: it serves no client, and copies the leader's journal.
 *
 * The standby asks the leader that the store names (MCP_JOIN), with a nonce; the leader connects to it (MCP_FEED) and
 * repeats the nonce.  Any other feed is refused and changes nothing: one without the nonce, for another standby, of
 * another term than the store's, or a second copy for the same JOIN.  Each confirmation promises for a short time that
 * this master does not replace the leader during its lease (docs/ARCHITECTURE.md, "Several masters"). */
#ifndef MCM_STANDBY_H
#define MCM_STANDBY_H

#include <stdbool.h>
#include <stdint.h>

#include "master/journal/copy.h"
#include "proto/codec.h"

/* Clients are refused, as if nothing listened; the leader has a client id that begins with this number. */
#define MCM_STANDBY_LEADER_ID 0x6d6f6f6e63616b65ull

struct mcm_standby;

struct mcm_standby_conf {
	const char *const *addrs;	/* NULL-ended */
	struct mcm_copy_conf copy;
	bool sync;			/* confirm parts when they are on the disk */
};

/* Locks the directory; its files stay until a leader begins to feed. */
int mcm_standby_start(const struct mcm_standby_conf *conf, struct mcm_standby **ret);
/* Confirm nothing more, and unlock the directory.  NULL is fine. */
void mcm_standby_stop(struct mcm_standby *s);
/* The directory has a whole state: that of an earlier life, or a complete copy. */
bool mcm_standby_whole(struct mcm_standby *s);
/* The term in the store: leaders of other terms are refused, and JOINs to them are not open any more. */
void mcm_standby_term(struct mcm_standby *s, uint64_t term);
/* The nonce for a JOIN to the leader of that term, from the standby @name: one feed with it is taken. */
struct mcp_id mcm_standby_join(struct mcm_standby *s, const char *name);
/* The connection of the leader that fed this standby has ended, and no leader has fed it since: true, with the leader's
 * term and when that was. */
bool mcm_standby_lost(struct mcm_standby *s, uint64_t *ret_term, uint64_t *ret_since);
/* Confirm nothing to any leader, until mcm_standby_accept().  Returns when the last promise to a leader ends: the
 * leaders that rely on it answer nothing after that (mc_now_ns() scale). */
uint64_t mcm_standby_refuse(struct mcm_standby *s);
void mcm_standby_accept(struct mcm_standby *s);
/* When the last part came (mc_now_ns() scale); 0: none has. */
uint64_t mcm_standby_fed(struct mcm_standby *s);

#endif
