/* SPDX-License-Identifier: Apache-2.0
 * journal.h - what survives the master: a journal of changes and checkpoints of the whole, in a directory
 * of its own (--journal_dir).
 *
 *	lock			held by the master that uses the directory
 *	checkpoint-N		the state at or after the beginning of journal-N; with the journals from N
 *				on, in their order, it is the state at the end of the last one
 *	journal-N		records of changes; a start and a checkpoint begin a new file
 *
 * Who changes durable state says so by one of the functions below, under the lock that guards what it
 * changes, and before memory that the change frees can be given to others.  They append to a buffer: no
 * system call, no failure.  mcm_journal_wait() then writes what the thread's answers depend on, before
 * they leave: what it has changed, and what others have where mcm_journal_depend() says so.  Without a
 * journal all of them do nothing.
 *
 * When records cannot be written the files in the directory are removed: an old state whose memory has
 * been reused is worse than none.  The master goes on, and begins anew with a checkpoint as soon as one
 * can be written. */
#ifndef MCM_JOURNAL_H
#define MCM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "master/journal/record.h"

struct mcm;
struct mcm_put;
struct mcm_segment;

/* Whether the options ask for a journal, and which; upstream's names of them included.  0, 1 with the
 * directory in *ret_dir (the options' string), or -EINVAL with a detail. */
struct mcm_conf;
int mcm_journal_wanted(const struct mcm_conf *conf, const char **ret_dir);

/* Lock the directory, which is created when only its last part is missing, bring the state in it back
 * into @m, which is empty, and begin a new file.  Without --journal_dir nothing.  -EBUSY: another master
 * has it; -MC_EVERSION, -EINVAL (another cluster's), -ENOMEM, -errno; all have a detail. */
int mcm_journal_open(struct mcm *m);
/* @clean: with a last checkpoint; everything else must have ended.  Else what is not written is lost, as
 * when the process is killed. */
void mcm_journal_close(struct mcm *m, bool clean);
/* The thread that writes late records and checkpoints.  */
int mcm_journal_start(struct mcm *m);
void mcm_journal_stop(struct mcm *m);

/* ---- changes ---- */

/* Put shard's lock, or that of the quarantine: a writer may write to these ranges. */
void mcm_journal_put(struct mcm *m, uint64_t generation, const struct mcm_extent *extent,
		     unsigned copies);
/* The same of ranges that are about to become @granules long, before what is behind is given away. */
void mcm_journal_put_trimmed(struct mcm *m, uint64_t generation, const struct mcm_extent *extent,
			     unsigned copies, uint64_t granules);
/* And now nobody any more; not needed when an object of this generation was committed. */
void mcm_journal_put_gone(struct mcm *m, uint64_t generation);
/* Shard's lock for these three.  @slot is the key's version from now on, its places are complete. */
void mcm_journal_object(struct mcm *m, uint32_t slot);
void mcm_journal_object_gone(struct mcm *m, uint32_t slot);
/* @slot has its new key and generation already. */
void mcm_journal_renamed(struct mcm *m, struct mcp_bytes from, uint32_t slot);
/* Segments' lock for writing. */
void mcm_journal_segment(struct mcm *m, const struct mcm_segment *s);
/* The same of one that is about to have @size bytes, before a put can get any of what is new. */
void mcm_journal_segment_grows(struct mcm *m, const struct mcm_segment *s, uint64_t size);
void mcm_journal_segment_gone(struct mcm *m, const struct mcm_segment *s);

/* Before answers leave: what the calling thread has appended is written, or synced with
 * --journal_sync=fdatasync. */
void mcm_journal_wait(struct mcm *m);
/* The calling thread's answer tells of something that another thread has changed, and the client may rely
 * on it as on what it does itself: then it waits for that too.  After the lock under which it was seen, or
 * under it. */
void mcm_journal_depend(struct mcm *m);
/* The same without waiting for a sync: the number that mcm_journal_on_sync()'s function will be told, or a
 * higher one, when the answers may leave; 0: now. */
uint64_t mcm_journal_pending_lsn(struct mcm *m);
/* Begin to sync on a thread of its own and tell @fn how far it is; until then, and after the end,
 * mcm_journal_pending_lsn() waits as settle does.  Nothing without a journal that is synced. */
int mcm_journal_sync_start(struct mcm *m, void (*fn)(struct mcm *m, uint64_t mark));
void mcm_journal_sync_stop(struct mcm *m);

/* ---- notes: small named values that survive: tenants, quotas, tasks ---- */

enum mcm_note_kind {		/* stored: numbers are never reused */
	MCM_NOTE_TENANT = 1,
	MCM_NOTE_TASK = 2,
};
#define MCM_NOTE_NAME_MAX 1024u
#define MCM_NOTE_VALUE_MAX 30720u	/* with the longest name it fits into a record */
#define MCM_NOTES_MAX 262144u

/* Kept whether there is a journal or not; thread-safe, innermost lock.  -MC_EPARAM, -MC_ELIMIT,
 * -ENOMEM. */
int mcm_note_set(struct mcm *m, enum mcm_note_kind kind, struct mcp_bytes name,
		 struct mcp_bytes value);
void mcm_note_drop(struct mcm *m, enum mcm_note_kind kind, struct mcp_bytes name);
/* All of a kind, for their owner when it starts.  @fn must not change notes. */
void mcm_notes_each(struct mcm *m, enum mcm_note_kind kind,
		    void (*fn)(void *arg, struct mcp_bytes name, struct mcp_bytes value), void *arg);

/* ---- checkpoints ---- */

/* Write one now.  One at a time; no lock of objects is held for longer than a few of them take.
 * -errno; what was there before is still good then. */
int mcm_checkpoint(struct mcm *m);

/* ---- after a restart (restore_held.c) ---- */

/* Objects that were brought back keep their memory until clients have had time to find the new master
 * and pin what they had pinned.  The monitor says when that is. */
void mcm_restored_tick(struct mcm *m);
/* Until then: true. */
bool mcm_restored_holding(const struct mcm *m);
/* Then the evictor lets go of them; true: there is more to do. */
bool mcm_restored_release(struct mcm *m);
/* Are there still any?  Any thread. */
bool mcm_restored_holds(const struct mcm *m);

/* ---- objects and records (restore_object.c) ---- */

/* Shard's lock held.  The key is borrowed from the index. */
void mcm_object_describe(const struct mcm *m, uint32_t slot, struct mcm_object_record *ret);
/* A slot that has only its key gets everything else but its places.  -ENOMEM. */
int mcm_object_restore(struct mcm *m, uint32_t slot, const struct mcm_object_record *r);

/* For /metrics and people. */
struct mcm_journal_stats {
	bool on, lost;		/* lost: nothing is written at the moment */
	uint64_t sequence;	/* of the file under way */
	uint64_t bytes;		/* of journals since the last checkpoint */
	uint64_t checkpoint_ms;	/* wall clock of the last one, 0: none */
	uint64_t restored;	/* objects that the start brought back */
};
void mcm_journal_stats(struct mcm *m, struct mcm_journal_stats *ret);

#endif
