/* SPDX-License-Identifier: Apache-2.0
 * identity.h - which master this is, and its last known standing in the cluster, kept in its journal's directory.
 *
 * The name of a master is "HOST:PORT#ID", with a random ID for each directory: a second master that was started with
 * the same address, or the same one with another directory, is another master, which does not have the state.
 *
 * The standing decides only when the store has lost its state (Redis without persistence): then the last leader leads
 * at once, a standby that was in sync later, and one that was not never. */
#ifndef MCM_IDENTITY_H
#define MCM_IDENTITY_H

#include <stdint.h>

#include "meta/seat.h"

enum mcm_standing {
	MCM_NEW,	/* it has never seen the cluster's state */
	MCM_OUT,	/* it was not in sync */
	MCM_MEMBER,	/* it was in sync */
	MCM_LEADER,	/* it led */
};

struct mcm_identity {
	const char *dir;		/* the journal's directory; must stay */
	char id[17];
	uint64_t term;			/* the last term that this master has seen */
	enum mcm_standing standing;
};

/* Read the identity's file in @dir, or create it.  The directory exists, and this process has locked it.  -EINVAL: the
 * file is damaged; -errno. */
int mcm_identity_open(const char *dir, struct mcm_identity *ret);
/* Write term and standing to the file, if they have changed.  -errno. */
int mcm_identity_note(struct mcm_identity *me, uint64_t term, enum mcm_standing standing);

#endif
