/* SPDX-License-Identifier: Apache-2.0
 * copy.h - a standby's copy of its leader's journal, made part by part (feed.h) in its own directory.
 *
 * A copy that is not complete is no state: it has no checkpoint under its final name.  Once complete it stays
 * complete, and mcm_journal_open() finds in it the state that the leader had written. */
#ifndef MCM_COPY_H
#define MCM_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "master/journal/feed.h"

struct mcm_copy;
struct mcm_security;

struct mcm_copy_conf {
	const char *dir, *cluster;	/* copied */
	struct mcm_security *security;	/* NULL: off; the form of the files (vault.h) */
	uint64_t max_bytes;		/* limit of all files of a copy; 0: none */
};

/* Lock the directory (journal.h has the errors; also those of a checkpoint of another cluster, of another form or of
 * a newer format). */
int mcm_copy_open(const struct mcm_copy_conf *conf, struct mcm_copy **ret);
/* Unlock it. */
void mcm_copy_close(struct mcm_copy *c);
/* A new copy begins: remove all files. */
int mcm_copy_begin(struct mcm_copy *c);
/* -EINVAL: the part does not continue its file, or ends a checkpoint of another cluster; -MC_EVERSION, -MC_EPROTO: the
 * checkpoint has another format; -ENOSPC: also when the copy would exceed its limit, or leave less than a twentieth of
 * the file system (at most 1 GiB) free; -errno.  After an error the copy must begin again. */
int mcm_copy_add(struct mcm_copy *c, const struct mcm_feed_part *part, const void *bytes);
/* Is there a checkpoint, of this copy or of the files that were found? */
bool mcm_copy_complete(const struct mcm_copy *c);
/* Sync all parts to disk. */
int mcm_copy_sync(struct mcm_copy *c);

#endif
