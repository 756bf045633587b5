/* SPDX-License-Identifier: Apache-2.0
 * stream.h - control files without an end: .mcfs/trace has a line for each operation after the
 * open, .mcfs/events one for each change of a key in the pool by any client.
 *
 * A read returns the lines that have arrived. Otherwise it waits without a thread, or fails with
 * EAGAIN if the file is O_NONBLOCK. A slow reader loses lines, and a line reports how many. */
#ifndef MCFS_STREAM_H
#define MCFS_STREAM_H

#include "mcfs/read/ahead.h"

struct mcfs_stream;
enum mcfs_stream_kind { MCFS_TRACE, MCFS_EVENTS, MCFS_STREAM_KINDS };

/* *ret is valid until mcfs_stream_close(). */
int mcfs_stream_open(struct mcfs *fs, enum mcfs_stream_kind kind, struct mcfs_stream **ret);
/* All reads have been answered. NULL is fine. */
void mcfs_stream_close(struct mcfs_stream *s);
/* Answer @rd, now or later. */
void mcfs_stream_read(struct mcfs_stream *s, struct mcfs_read *rd, bool nonblock);

/* Is a trace open? */
bool mcfs_trace_on(void);
void mcfs_trace_line(const char *text, size_t len);

/* The session is about to end: waiting reads get an end of file. */
void mcfs_streams_hang_up(void);
/* The session has ended: stop the thread. All streams are closed. */
void mcfs_streams_end(void);

#endif
