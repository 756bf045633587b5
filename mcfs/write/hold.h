/* SPDX-License-Identifier: Apache-2.0
 * hold.h - names that are about to change: as long as they are held, nothing is published under them.
 *
 * A commit reads its name when it begins and takes effect when it ends.  Whoever gives a file another name, or takes
 * one away, waits for commits that have begun, and keeps others from beginning until both the master and the writers
 * know of the change: so each of them is either before the change or after it.
 *
 * A hold belongs to one thread.  It lasts as long as one question to the master: who waits for it has no deadline. */
#ifndef MCFS_HOLD_H
#define MCFS_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/write/version.h"

struct mcfs_hold {
	struct mcfs_version_env *env;
	struct mc_list writers;		/* by their held link; one reference each */
};

/* All that is being written under the @n @names now.  Nothing is held while a commit, or another hold, is waited for:
 * 0, or -ETIMEDOUT and nothing is held. */
int mcfs_hold_begin(struct mcfs_hold *h, struct mcfs_version_env *env, const struct mcs_key *names, unsigned n,
		    uint64_t deadline);
void mcfs_hold_end(struct mcfs_hold *h);

/* ---- what is held under one of the names ---- */

/* Is something not published yet?  @to_rename: that goes along with a rename. */
bool mcfs_hold_pending(const struct mcfs_hold *h, struct mcs_key key, bool to_rename);
/* The name was removed, or taken by another file. */
void mcfs_hold_unlink(const struct mcfs_hold *h, struct mcs_key key);
/* Who has the file open that was renamed has it under the new name: 0 or -ENOMEM.  Two writers of one name are two
 * files: of those the other one keeps the old name. */
int mcfs_hold_rename(const struct mcfs_hold *h, struct mcs_key from, struct mcs_key to);
/* Before that, when @from has no version that goes along: what has none yet replaces version @generation of the new
 * name, 0: none, when it is published.  @noreplace: and nothing else. */
void mcfs_hold_rebase(const struct mcfs_hold *h, struct mcs_key from, uint64_t generation, bool noreplace);

#endif
