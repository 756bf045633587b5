/* SPDX-License-Identifier: Apache-2.0
 * origin.h - does the state in a journal's directory come from a snapshot?
 *
 * A file says so.  It is there before the state is, and until the state is an ordinary one, so that no crash in between
 * makes a later start take it for one. */
#ifndef MCM_ORIGIN_H
#define MCM_ORIGIN_H

#include <stdint.h>

enum mcm_origin {
	MCM_ORIGIN_JOURNAL,	/* all of it is true, or the records of segments say what is unproven */
	MCM_ORIGIN_SNAPSHOT,	/* all segments are unproven */
	MCM_ORIGIN_UNPROVEN,	/* as JOURNAL, and there may be unproven segments */
};

/* Which kind of state does the directory have?  *ret_server: the master that wrote the snapshot when it ended, 0: it
 * went on.  -errno with a detail. */
int mcm_origin_read(int dirfd, enum mcm_origin *ret, uint64_t *ret_server);
/* Record the kind that the state in the directory has from now on: MCM_ORIGIN_UNPROVEN or MCM_ORIGIN_JOURNAL. */
int mcm_origin_write(int dirfd, enum mcm_origin origin);
/* A snapshot follows; @text: "last ", and the master that wrote it at its end in hexadecimal; or another text. */
int mcm_origin_mark(int dirfd, const char *text);

#endif
