/* SPDX-License-Identifier: Apache-2.0
 * journal.h - the state that survives the master: a journal of changes and checkpoints of the whole
 * state, in a directory of its own (--journal_dir).
 *
 *	lock			locked by the master that uses the directory
 *	checkpoint-N		the state at some time after journal-N began; with the journals from N
 *				on, applied in order, it gives the state at the end of the last one
 *	journal-N		records of changes; each start and each checkpoint begin a new file
 *
 * Code that changes durable state calls one of the functions below, under the lock that guards the changed
 * state and before memory that the change frees can be allocated again.  They append to a buffer: no system
 * call, no failure.  mcm_journal_wait(), called before the thread's answers leave, writes all records that
 * these answers depend on: those of the thread's own changes, and those of other threads after
 * mcm_journal_depend().  Without a journal all of these functions do nothing.
 *
 * When records cannot be written, the files in the directory are removed: an old state whose memory
 * has been reused is worse than no state.  The master continues, and begins again with a checkpoint
 * as soon as one can be written. */
#ifndef MCM_JOURNAL_H
#define MCM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "master/journal/record.h"

struct mcm;
struct mcm_conf;
struct mcm_put;
struct mcm_segment;

/* ---- begin and end (journal_run.c) ---- */

/* Do the options, upstream's names included, ask for a journal?  0: no; 1: yes, *ret_dir gets the
 * directory (borrowed from the options); -EINVAL with a detail. */
int mcm_journal_wanted(const struct mcm_conf *conf, const char **ret_dir);

/* ---- journal_dir=auto (journal_auto.c) ---- */

#define MCM_JOURNAL_PATH_MAX 4096u

/* For the program: replace journal_dir=auto in @conf, after mcm_conf_check(), with the directory of the RPC port,
 * which this creates, with @path as memory for its name.  If it cannot be used, log one warning and set
 * journal_dir=none. */
void mcm_journal_auto(struct mcm_conf *conf, char path[MCM_JOURNAL_PATH_MAX]);

/* Lock the directory, restore its state into the empty master @m, and begin a new file.  The
 * directory is created if only its last component is missing.  Without --journal_dir do nothing.
 * -EBUSY: another master uses the directory; -MC_EVERSION; -EINVAL: it belongs to another cluster;
 * -ENOMEM, -errno.  All have a detail. */
int mcm_journal_open(struct mcm *m);
/* @clean: write a last checkpoint; everything else must have stopped.  Otherwise unwritten records
 * are lost, as when the process is killed. */
void mcm_journal_close(struct mcm *m, bool clean);
/* The thread that writes checkpoints, and records that no answer waits for. */
int mcm_journal_start(struct mcm *m);
void mcm_journal_stop(struct mcm *m);
/* Start the thread that syncs; it calls @fn with the LSN up to which records are synced.  Before
 * the start and after the stop mcm_journal_pending_lsn() waits like mcm_journal_wait().  Without
 * --journal_sync=fdatasync do nothing. */
int mcm_journal_sync_start(struct mcm *m, void (*fn)(struct mcm *m, uint64_t lsn));
void mcm_journal_sync_stop(struct mcm *m);

/* ---- changes (journal.c) ---- */

/* A put has these ranges: its writer may write to them.  Put shard's lock or quarantine_lock. */
void mcm_journal_put(struct mcm *m, uint64_t generation, const struct mcm_extent *extent, unsigned copies);
/* Shorten the put's ranges to @granules.  Call it before the freed ends can be allocated again. */
void mcm_journal_put_trimmed(struct mcm *m, uint64_t generation, const struct mcm_extent *extent,
			     unsigned copies, uint64_t granules);
/* The put is over.  Not needed when an object of this generation was committed. */
void mcm_journal_put_gone(struct mcm *m, uint64_t generation);
/* Shard's lock for these three.  @slot is now the version of its key, and its extents are complete. */
void mcm_journal_object(struct mcm *m, uint32_t slot);
void mcm_journal_object_gone(struct mcm *m, uint32_t slot);
/* @slot has its new key and generation already. */
void mcm_journal_renamed(struct mcm *m, struct mcp_bytes from, uint32_t slot);
/* A change of many objects, whose records a restart applies all or not at all.  begin: @bytes of memory, at least
 * MCM_JOURNAL_BATCH_EACH for each record, besides its key, old key, group and extended attributes; -ENOMEM,
 * -MC_ELIMIT when the journal's buffer is not made for that many; -MC_EUNAVAILABLE: it is too full now, call
 * mcm_journal_batch_room().  Locks of all shards for all but free. */
struct mcm_journal_batch {
	uint8_t *bytes;		/* NULL: there is no journal */
	size_t len, cap;
	bool overflow;
};
#define MCM_JOURNAL_BATCH_EACH 320u
int mcm_journal_batch_begin(struct mcm *m, size_t bytes, struct mcm_journal_batch *ret);
/* As mcm_journal_object(), mcm_journal_renamed() and mcm_journal_object_gone(). */
void mcm_journal_batch_object(struct mcm *m, struct mcm_journal_batch *b, uint32_t slot);
void mcm_journal_batch_renamed(struct mcm *m, struct mcm_journal_batch *b, struct mcp_bytes from, uint32_t slot);
void mcm_journal_batch_object_gone(struct mcm *m, struct mcm_journal_batch *b, uint32_t slot);
void mcm_journal_batch_end(struct mcm *m, struct mcm_journal_batch *b);
void mcm_journal_batch_free(struct mcm_journal_batch *b);
/* Without locks, before a batch: write the buffer if a batch might not fit. */
void mcm_journal_batch_room(struct mcm *m);
/* Segments' lock for writing. */
void mcm_journal_segment(struct mcm *m, const struct mcm_segment *s);
/* The segment will have @size bytes.  Call it before a put can allocate any of the new memory. */
void mcm_journal_segment_grows(struct mcm *m, const struct mcm_segment *s, uint64_t size);
void mcm_journal_segment_gone(struct mcm *m, const struct mcm_segment *s);

/* An LSN is a number of bytes appended since the start.  Record ends are LSNs, and "pending" LSNs
 * below are + 1, so that 0 means: none. */

/* Call before answers leave: wait until the records of this thread are written, with
 * --journal_sync=fdatasync also synced. */
void mcm_journal_wait(struct mcm *m);
/* The answer of this thread reveals a change by another thread, and the client may rely on it as on
 * its own changes: make the answer wait for that change too.  Call it under the lock under which
 * the change was seen, or after it. */
void mcm_journal_depend(struct mcm *m);
/* Like mcm_journal_wait(), but do not wait for a sync, nor for standbys (ha/feeder.h).  0: the answers may leave now.
 * Otherwise they may leave when the function of mcm_journal_sync_start(), or of the standbys, gets this number or a
 * higher one.  While this master's lease has ended, all answers wait. */
uint64_t mcm_journal_pending_lsn(struct mcm *m);

/* ---- checkpoints (checkpoint.c) ---- */

/* Write a checkpoint now.  One at a time; a lock of objects is held only for a few objects at a
 * time.  -errno: the state on disk before is still good. */
int mcm_checkpoint(struct mcm *m);

/* ---- figures (journal_run.c) ---- */

struct mcm_journal_stats {
	bool on, lost;		/* lost: nothing can be written at the moment */
	uint64_t sequence;	/* number of the current journal */
	uint64_t bytes;		/* bytes of the journals since the last checkpoint */
	uint64_t checkpoint_ms;	/* wall clock time of the last one, 0: none */
	uint64_t restored;	/* number of objects that the start restored */
};
void mcm_journal_stats(struct mcm *m, struct mcm_journal_stats *ret);

#endif
