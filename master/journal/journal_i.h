/* SPDX-License-Identifier: Apache-2.0
 * journal_i.h - the journal as its own files see it. */
#ifndef MCM_JOURNAL_I_H
#define MCM_JOURNAL_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/thread.h"
#include "master/journal/journal.h"

/* Records that wait to be written, at the most: more than a slow disk can owe for a while. */
#define MCM_JOURNAL_BUFFER (64u << 20)
#define MCM_JOURNAL_NAME 40u	/* bytes of a file's name in the directory */
#define MCM_JOURNAL_HEAD_MAX 512u	/* of its two headers */

/* A note, by kind and name. */
struct mcm_note {
	struct mcm_note *next;
	uint64_t hash;
	uint16_t kind;
	uint32_t name_len, value_len;
	uint8_t bytes[];		/* name, value */
};

struct mcm_notes {
	pthread_mutex_t lock;
	struct mcm_note **bucket;
	unsigned buckets, count;
};

struct mcm_journal {
	/* constant after open */
	char *path, *cluster;
	int dirfd, lockfd;
	bool sync;
	uint64_t checkpoint_bytes;	/* of journal, after which a checkpoint is due */
	uint64_t interval_ms;		/* and time, 0: none */
	uint8_t boot[MCM_BOOT_ID];
	uint64_t restored;
	/* guarded by lock, innermost */
	pthread_mutex_t lock;
	uint8_t *buf;			/* MCM_JOURNAL_BUFFER, mapped */
	size_t len;
	/* written with lock held, read without */
	uint64_t appended;		/* bytes ever */
	bool lost;			/* records are dropped: some could not be written */
	/* guarded by file_lock */
	pthread_mutex_t file_lock;
	uint8_t *spare;			/* the other buffer */
	int fd;
	bool discarded;			/* the files of a lost state are gone */
	uint64_t sequence;
	uint64_t losses;		/* times that records were lost */
	bool based;			/* there is a checkpoint that the journals belong to */
	/* written with file_lock held, read without */
	uint64_t written;		/* of appended */
	uint64_t synced;
	uint64_t file_bytes;		/* journals since the last checkpoint */
	uint64_t checkpoint_ms;
	/* guarded by sync_lock, taken before file_lock */
	pthread_mutex_t sync_lock;
	/* the thread that syncs for RPC threads; atomic: */
	bool syncs;			/* it does */
	uint64_t sync_wanted;		/* of appended, that somebody waits for */
	/* constant while it runs */
	void (*on_sync)(struct mcm *m, uint64_t mark);
	pthread_t sync_thread;
	struct mc_stop sync_stop;
	/* guarded by checkpoint_lock, the outermost */
	pthread_mutex_t checkpoint_lock;
	uint64_t last_bytes;		/* of the last checkpoint; also read without */
	uint64_t longest_ns;		/* that it held a lock of objects */
	uint64_t longest_cpu_ns;	/* the processor's time of it, at the most */
	/* the thread */
	pthread_t thread;
	bool runs;
	struct mc_stop stop;
	/* its own */
	bool wanted;			/* a checkpoint is due whatever the sizes */
	uint64_t retry_ns;		/* no checkpoint before */
	uint64_t checkpoint_ns;		/* the last one */
};

/* ---- journal_dir.c: the directory ---- */

/* Open, create, lock.  *ret are fds. */
int mcm_journal_dir_open(const char *path, int *ret_dir, int *ret_lock);
void mcm_journal_name(char ret[MCM_JOURNAL_NAME], bool checkpoint, uint64_t sequence);

struct mcm_journal_files {
	uint64_t *checkpoint, *journal;	/* sequences, ascending; owned */
	size_t checkpoints, journals;
};
/* What lies in the directory; files that a crash left half-written are removed. */
int mcm_journal_files(int dirfd, struct mcm_journal_files *ret);
void mcm_journal_files_done(struct mcm_journal_files *f);
/* Remove journals and checkpoints below @sequence; all with UINT64_MAX. */
int mcm_journal_remove_below(int dirfd, uint64_t sequence);
/* Whoever has written them, what is in the files is on the disk after this. */
int mcm_journal_sync_files(int dirfd);

/* ---- journal.c ---- */

/* A new file @sequence with its header in it, twice, so that one may get lost; a journal's is on the disk. */
int mcm_journal_begin_file(struct mcm *m, bool checkpoint, const char *name, uint64_t sequence,
			   int *ret_fd);
void mcm_segment_describe_record(const struct mcm_segment *s, struct mcm_segment_record *ret);
void mcm_journal_note(struct mcm *m, const struct mcm_note_record *r, bool gone);
/* Write all of it. */
int mcm_journal_write(int fd, const void *p, size_t len);
/* Nothing can be written: give the state on disk up. */
void mcm_journal_lose(struct mcm *m, int why);
/* Write what is in the buffer. */
void mcm_journal_flush(struct mcm *m);
/* Write, or sync with --journal_sync=fdatasync, all that has been appended. */
void mcm_journal_catch_up(struct mcm *m);
/* Sync up to @end of what was appended; one sync is for all who wait for one. */
void mcm_journal_sync_to(struct mcm *m, uint64_t end);
/* Later records go into journal @sequence, open as @fd, which is taken.  Those before are written, and
 * records that were lost are so no longer: what is appended from now on is kept.  @losses_then: how many
 * losses there were before the file was made; when there has been another one since, the file went with
 * the others: -EIO, @fd remains the caller's. */
int mcm_journal_switch(struct mcm *m, int fd, uint64_t sequence, uint64_t losses_then);

/* ---- notes.c ---- */
int mcm_notes_init(struct mcm_notes *ns);
void mcm_notes_done(struct mcm_notes *ns);
/* Call @fn with each note packed; the notes' lock is held. */
void mcm_notes_pack(struct mcm_notes *ns, void (*fn)(void *arg, const struct mcm_note *n), void *arg);

/* ---- restore_object.c ---- */

struct mcm_extent_record mcm_extent_record_of(const struct mcm *m, struct mcm_extent p);

/* ---- restore_held.c ---- */

/* Hold an object that was brought back; then say how many there are, which sets the time. */
void mcm_restored_hold(struct mcm *m, uint32_t slot);
void mcm_restored_held(struct mcm *m, uint64_t objects);

/* ---- restore.c ---- */

/* Load the newest state of the directory into @m and note in its journal what was found.  *ret_next: the
 * sequence for the next file; *ret_again: a checkpoint should be written soon. */
int mcm_restore(struct mcm *m, uint64_t *ret_next, bool *ret_again);

#endif
