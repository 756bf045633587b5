/* SPDX-License-Identifier: Apache-2.0
 * feed.h - control files without an end: .mcfs/trace has a line for each operation after the
 * open, .mcfs/events one for each change of a key in the pool by any client.
 *
 * A read returns the lines that have arrived. Otherwise it waits without a thread, or fails with
 * EAGAIN if the file is O_NONBLOCK. A slow reader loses lines, and a line reports how many. */
#ifndef MCFS_FEED_H
#define MCFS_FEED_H

#include "mcfs/read/ahead.h"

struct mcfs_feed;
enum mcfs_feed_kind { MCFS_TRACE, MCFS_EVENTS, MCFS_FEED_KINDS };

/* *ret is valid until mcfs_feed_close(). */
int mcfs_feed_open(struct mcfs *fs, enum mcfs_feed_kind kind, struct mcfs_feed **ret);
/* All reads have been answered. NULL is fine. */
void mcfs_feed_close(struct mcfs_feed *f);
/* Answer @rd, now or later. */
void mcfs_feed_read(struct mcfs_feed *f, struct mcfs_read *rd, bool nonblock);

/* Is a trace open? */
bool mcfs_trace_on(void);
void mcfs_trace_line(const char *text, size_t len);

/* The session is about to end: waiting reads get an end of file. */
void mcfs_feeds_hang_up(void);
/* The session has ended: stop the thread. All feeds are closed. */
void mcfs_feeds_end(void);

#endif
