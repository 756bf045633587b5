/* SPDX-License-Identifier: Apache-2.0
 * hold.h - names that are about to change: while a name is held, no version is published under it.
 *
 * A commit reads its name when it begins and takes effect when it ends. A rename or removal
 * therefore waits for running commits and blocks new ones until both the master and the writers
 * know of the change: each commit then happens either before or after it.
 *
 * A hold belongs to one thread. It lasts for a single request to the master, because the commits
 * that it blocks have no deadline. */
#ifndef MCFS_HOLD_H
#define MCFS_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "mcfs/write/version.h"

struct mcfs_hold {
	struct mcfs_version_env *env;
	struct mc_list writers;		/* linked by writer.held; one reference each */
};

/* Hold all writers of the @n @names. Holds none while it waits for a commit or another hold. 0, or
 * -ETIMEDOUT with none held. */
int mcfs_hold_begin(struct mcfs_hold *h, struct mcfs_version_env *env, const struct mcs_key *names, unsigned n,
		    uint64_t deadline);
/* The same for the writers of all names that begin with @prefix. */
int mcfs_hold_begin_below(struct mcfs_hold *h, struct mcfs_version_env *env, struct mcs_key prefix, uint64_t deadline);
void mcfs_hold_end(struct mcfs_hold *h);

/* ---- the held writers of one of the names ---- */

/* Is a held writer of @key pending? @to_rename: only writers that a rename includes. */
bool mcfs_hold_pending(const struct mcfs_hold *h, struct mcs_key key, bool to_rename);
/* The name was removed, or replaced by another file. */
void mcfs_hold_unlink(const struct mcfs_hold *h, struct mcs_key key);
/* The file was renamed: writers that have it open continue under the new name. 0 or -ENOMEM. Two writers of one
 * name are two files: a writer whose name has another writer's version keeps the old name.  @generation: of the version
 * under the new name; 0: there is none. */
int mcfs_hold_rename(const struct mcfs_hold *h, struct mcs_key from, struct mcs_key to, uint64_t generation);
/* Directory @from became @to; both end in '/'. */
int mcfs_hold_rename_below(const struct mcfs_hold *h, struct mcs_key from, struct mcs_key to);
/* To be called before mcfs_hold_rename() if @from has no version: the first commit of its writers replaces
 * version @generation of the new name, 0: none. @noreplace: it fails if the name has any other version. */
void mcfs_hold_rebase(const struct mcfs_hold *h, struct mcs_key from, uint64_t generation, bool noreplace);

#endif
