/* SPDX-License-Identifier: Apache-2.0
 * stream.h - control files that go on: .mcfs/trace has a line for each operation from the moment on at which
 * it was opened, .mcfs/events one for each change of a key in the pool, by whomever.
 *
 * A read gives what has come, or waits for it without a thread, and with O_NONBLOCK is EAGAIN.  Who
 * reads too slowly misses lines, and a line says how many. */
#ifndef MCFS_STREAM_H
#define MCFS_STREAM_H

#include "mcfs/read/ahead.h"

struct mcfs_stream;
enum mcfs_stream_kind { MCFS_TRACE, MCFS_EVENTS, MCFS_STREAM_KINDS };

/* *ret stays until mcfs_stream_close(). */
int mcfs_stream_open(struct mcfs *fs, enum mcfs_stream_kind kind, struct mcfs_stream **ret);
/* Answers who still waits.  NULL is fine. */
void mcfs_stream_close(struct mcfs_stream *s);
/* Answer @rd, now or later. */
void mcfs_stream_read(struct mcfs_stream *s, struct mcfs_read *rd, bool nonblock);

/* Does anybody read the trace? */
bool mcfs_trace_on(void);
void mcfs_trace_line(const char *text, size_t len);

/* The session is about to end: whoever waits for lines is told that there are no more. */
void mcfs_streams_hang_up(void);
/* The session is over: stop the threads.  All streams have been closed. */
void mcfs_streams_end(void);

#endif
