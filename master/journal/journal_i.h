/* SPDX-License-Identifier: Apache-2.0
 * journal_i.h - the journal's state and functions for the files of journal/. */
#ifndef MCM_JOURNAL_I_H
#define MCM_JOURNAL_I_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/thread.h"
#include "master/journal/check.h"
#include "master/journal/journal.h"
#include "master/journal/origin.h"
#include "master/journal/part.h"
#include "master/journal/restore_build.h"
#include "master/journal/vault.h"

/* Records that wait to be written: more than a slow disk leaves unwritten for a while. */
#define MCM_JOURNAL_BUFFER (64u << 20)
#define MCM_JOURNAL_BATCH_MAX (MCM_JOURNAL_BUFFER / 2)	/* bytes of one change of many objects */
#define MCM_JOURNAL_HEAD_MAX 512u	/* bytes of a file's two headers */

struct mcm_journal {
	/* constant after open */
	char *path, *cluster;
	int dirfd, lockfd;
	bool sync;
	uint64_t checkpoint_bytes;	/* journal bytes after which a checkpoint is due */
	uint64_t interval_ms;		/* time after which a checkpoint is due, 0: none */
	uint8_t boot[MCM_BOOT_ID];	/* boot of the machine; all zero: unknown */
	uint64_t restored;
	enum mcm_origin origin;		/* origin of the restored state; later owned by the monitor */
	const struct mcm_lead *lead;	/* master.h; NULL: this master is alone */
	struct mcm_vault vault;		/* form of the files */
	struct mcm_check *check;	/* not NULL: only read, and report faults here */
	/* guarded by lock, innermost */
	struct mc_mutex lock;
	uint8_t *buf;			/* MCM_JOURNAL_BUFFER, mapped */
	size_t len;
	/* written with lock held, read without */
	uint64_t appended;		/* bytes ever appended */
	bool lost;			/* records are dropped since some could not be written */
	/* guarded by file_lock */
	struct mc_mutex file_lock;
	uint8_t *spare;			/* the other buffer */
	struct mcm_vault_file file;
	bool discarded;			/* the files of a lost state were removed */
	uint64_t sequence;
	uint64_t losses;		/* number of times that records were lost */
	bool based;			/* there is a checkpoint that the journals belong to */
	/* written with file_lock held, read without */
	uint64_t written;		/* written bytes of @appended */
	uint64_t synced;
	uint64_t file_bytes;		/* journals since the last checkpoint */
	uint64_t checkpoint_ms;
	/* guarded by sync_lock, taken before file_lock */
	struct mc_mutex sync_lock;
	/* the thread that syncs for RPC threads; atomic: */
	bool syncs;			/* the thread runs */
	uint64_t sync_wanted;		/* up to which of appended answers wait for a sync */
	/* constant while it runs */
	void (*on_sync)(struct mcm *m, uint64_t lsn);
	struct mc_thread sync_thread;
	struct mc_stop sync_stop;
	/* guarded by checkpoint_lock, the outermost */
	struct mc_mutex checkpoint_lock;
	uint64_t last_bytes;		/* size of the last checkpoint; also read without the lock */
	uint64_t longest_ns;		/* longest time that the last checkpoint held a lock of objects */
	uint64_t longest_cpu_ns;	/* upper bound of the CPU time in longest_ns */
	/* the thread that writes records and checkpoints */
	struct mc_thread thread;
	bool runs;
	struct mc_stop stop;
	/* owned by that thread */
	bool wanted;			/* a checkpoint is due whatever the sizes */
	uint64_t retry_ns;		/* no checkpoint before */
	uint64_t checkpoint_ns;		/* time of the last one */
};

/* ---- journal_dir.c ---- */

/* Open or create the directory and lock it.  *ret_* are descriptors. */
int mcm_journal_dir_open(const char *path, int *ret_dir, int *ret_lock);
void mcm_journal_name(char ret[MCM_JOURNAL_NAME], bool checkpoint, uint64_t sequence);

struct mcm_journal_files {
	uint64_t *checkpoint, *journal;	/* sequences, ascending; owned */
	size_t checkpoints, journals;
};
/* List the directory, and remove files that a crash left incomplete. */
int mcm_journal_files(int dirfd, struct mcm_journal_files *ret);
/* Only list it: a running master may be writing a file that is incomplete now. */
int mcm_journal_list(int dirfd, struct mcm_journal_files *ret);
void mcm_journal_files_done(struct mcm_journal_files *f);
/* Remove journals and checkpoints below @sequence; all with UINT64_MAX. */
int mcm_journal_remove_below(int dirfd, uint64_t sequence);
/* Sync all files and the directory, whichever process wrote them. */
int mcm_journal_sync_files(int dirfd);

/* ---- journal_run.c ---- */

/* The journal at @path, which is not opened yet.  -ENOMEM. */
int mcm_journal_new(const struct mcm *m, const char *path, struct mcm_journal **ret);
void mcm_journal_free(struct mcm_journal *j);

/* ---- journal.c ---- */

/* As mcm_journal_renamed(), for a name of a file: a master that skips such a record learns that the object which it
 * replaces is gone.  A restart applies both records or none. */
void mcm_journal_renamed_name(struct mcm *m, struct mcp_bytes from, uint32_t slot);
/* Append the packed records.  If they do not fit or overflowed, the state on disk is discarded later. */
void mcm_journal_append(struct mcm_journal *j, const struct mcm_packer *p);

/* Create file @sequence with its header, written twice so that one may be damaged; a journal is synced. */
int mcm_journal_begin_file(struct mcm *m, bool checkpoint, const char *name, uint64_t sequence,
			   struct mcm_vault_file *ret);
void mcm_segment_describe_record(const struct mcm_segment *s, struct mcm_segment_record *ret);
void mcm_journal_durable(struct mcm *m, const struct mcm_durable_record *r, bool gone);
/* Write all @len bytes. */
int mcm_journal_write(int fd, const void *p, size_t len);
/* Nothing can be written: discard the state on disk.  @why: -errno. */
void mcm_journal_lose(struct mcm *m, int why);
/* Write the buffer to the file. */
void mcm_journal_flush(struct mcm *m);
/* Write everything that has been appended, with --journal_sync=fdatasync also sync it. */
void mcm_journal_catch_up(struct mcm *m);
/* Sync up to @end of the appended bytes; one sync serves all threads that wait for one. */
void mcm_journal_sync_to(struct mcm *m, uint64_t end);
/* Append later records to journal @sequence, @file, which this takes.  Earlier records are
 * written first.  If records were lost before, recording begins again.  @losses_then: number of
 * losses before the new file was created; if there was another loss since, the new file was removed
 * with the others: -EIO, @file remains the caller's. */
int mcm_journal_switch(struct mcm *m, const struct mcm_vault_file *file, uint64_t sequence, uint64_t losses_then);

/* ---- restore.c ---- */

/* Is @h the header of the file @name in @dir, of this cluster?  -EINVAL: of another cluster; -MC_EPROTO: of another
 * file.  Both have a detail. */
int mcm_journal_belongs(const struct mcm_header_record *h, const char *dir, const char *name, const char *cluster,
			uint64_t sequence, bool checkpoint);

/* Load the newest state of the directory into @m and set its journal's counts and sizes.
 * *ret_next: the sequence of the next file; *ret_again: a checkpoint should be written soon. */
int mcm_restore(struct mcm *m, uint64_t *ret_next, bool *ret_again);

#endif
