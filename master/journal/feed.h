/* SPDX-License-Identifier: Apache-2.0
 * feed.h - the files of a running master's journal as a stream, for a standby that copies them (copy.h).
 *
 * First comes the newest checkpoint, then the journals from its number on, each from its first byte to its last, then
 * the last one as it grows.  When the master writes a new checkpoint, it follows behind the journals that it needs,
 * so that the copy can drop the files before it.
 *
 * The descriptors are opened when the files exist, so files that the master removes are read to their end. */
#ifndef MCM_FEED_H
#define MCM_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcm;
struct mcm_feed;

struct mcm_feed_part {
	bool checkpoint;	/* the part belongs to file checkpoint-N, else to journal-N */
	bool last;		/* the file is complete with this part */
	uint64_t sequence;	/* N */
	uint64_t offset;	/* position of the part's first byte in the file */
	size_t len;
	uint64_t lsn;		/* a reader of all parts up to this one has the records up to this LSN (journal.h) */
};

/* -ENOENT: there is no checkpoint, because the state on disk was lost: later. */
int mcm_feed_open(struct mcm *m, struct mcm_feed **ret);
void mcm_feed_close(struct mcm_feed *f);
/* The next part, of at most @max bytes; 0: there is none at the moment.  -ESTALE: the state on disk was lost, or the
 * reader is too slow: begin again with another feed. */
int mcm_feed_read(struct mcm_feed *f, void *buf, size_t max, struct mcm_feed_part *ret);

#endif
