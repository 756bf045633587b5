/* SPDX-License-Identifier: Apache-2.0
 * directory.h - this process's files in a shared directory: its own one, and those of owners that have ended.
 *
 * A thread opens them, so that a filesystem that does not answer delays nothing else.  The directory is the one of the
 * configuration, or else the one that the master's options name. */
#ifndef MCS_DIRECTORY_H
#define MCS_DIRECTORY_H

struct mcs_owner;
struct mcs_directory;

/* The set of segments exists, with those of memory; the engine and the session are open. */
int mcs_directory_start(struct mcs_owner *o, struct mcs_directory **ret);
/* Wait until the file in the configured directory is a segment of the set.  Negative, with a detail: it cannot be
 * opened.  0 also if the filesystem does not answer for a few seconds (with a line in the log; the file is added when
 * it does), and without a configured directory. */
int mcs_directory_await(struct mcs_directory *d);
/* The owner runs: the thread may use the owner's other threads, and offer segments to the master. */
void mcs_directory_run(struct mcs_directory *d);
/* Let the thread mount its segments soon.  Any thread. */
void mcs_directory_mount(struct mcs_directory *d);
/* NULL is fine.  stop: end the thread; waits for a few seconds if the filesystem does not answer.  close: free it; no
 * other thread calls a function any more. */
void mcs_directory_stop(struct mcs_directory *d);
void mcs_directory_close(struct mcs_directory *d);

#endif
