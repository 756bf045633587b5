/* SPDX-License-Identifier: Apache-2.0
 * handle.h - open files: the objects behind the kernel's file handles. */
#ifndef MCFS_HANDLE_H
#define MCFS_HANDLE_H

#include "mcfs/mcfs.h"

struct mcfs_ahead;
struct mcfs_feed;
struct mcfs_dir;

enum mcfs_handle_type { MCFS_READ, MCFS_WRITE, MCFS_TEXT, MCFS_LIST, MCFS_LINES };

struct mcfs_handle {
	unsigned refs;			/* atomic: one for the kernel, one per running operation */
	/* constant after open */
	enum mcfs_handle_type type;
	struct mcfs_inode *inode;	/* one reference; NULL: a control file */
	struct mcfs_object *object;	/* READ: one reference, or NULL */
	/* READ: set together with the object; NULL: read without a read-ahead window */
	struct mcfs_ahead *ahead;
	struct mcfs_writer *writer;	/* WRITE: one reference */
	char *text;			/* TEXT */
	size_t text_len;
	struct mcfs_feed *feed;		/* LINES */
	bool nonblock;			/* LINES: constant */
	struct mcfs_dir *dir;		/* LIST; defined in readdir.c */
	struct mcn_pins *pins;		/* atomic; pins taken with ioctl(2), created on first use */
	bool located;			/* atomic; READ: a program knows where the object's memory is */
	/* constant; WRITE: other writers had the inode open when this one opened it */
	bool shared_inode;
	bool hidden;			/* atomic; WRITE: lookups no longer find the inode */
	/* atomic; number in the handoff table (handoff.h), 0: none or removed */
	uint64_t number;
	/* guarded by fs->handles_lock; id of the request that opened it; only with a handoff table */
	uint64_t unique;
	/* atomic; opened by a daemon that died: only its handoff entry is left */
	bool lost;
	bool restored;			/* constant; opened by a daemon that died */
	bool unsaved;			/* atomic; WRITE: the value in the handoff table */

	struct mc_list link;		/* guarded by fs->handles_lock */
};

struct mcfs_handle *mcfs_handle_of(const struct fuse_file_info *fi);

/* A handle owns the references that are stored in it and is listed in @fs. It starts with one
 * reference, held by the kernel. */
struct mcfs_handle *mcfs_handle_new(struct mcfs *fs, enum mcfs_handle_type type);
/* The kernel resends an open request: release the handle that the previous daemon created for it,
 * even if this open fails. */
void mcfs_handle_drop_unanswered(struct mcfs *fs);
/* The handle's number for the kernel, to be called before the reply that contains it; 0: no memory. */
uint64_t mcfs_handle_number(struct mcfs *fs, struct mcfs_handle *h);
struct mcfs_handle *mcfs_handle_ref(struct mcfs_handle *h);
void mcfs_handle_unref(struct mcfs *fs, struct mcfs_handle *h);	/* NULL is fine */
/* Remove the handle from the handoff table before the kernel learns of the close, so that a following daemon
 * does not restore it while operations that were answered early still hold references here. */
void mcfs_handle_closed(struct mcfs_handle *h);

/* Bytes of a WRITE handle change: from now on other openers get a new inode, which shows the
 * version that this writer started from, not its staged bytes. */
void mcfs_handle_hide(struct mcfs *fs, struct mcfs_handle *h);

/* The size of the file that @w writes is about to change, or has changed, on a path other than
 * @w's own handle. The kernel may not notice. Hides the inode as above and calls
 * mcfs_handle_changed(). */
void mcfs_handle_changes(struct mcfs *fs, const struct mcfs_writer *w);

/* Files being written under @key have lost their name: the kernel's copies of their attributes are out of date. */
void mcfs_handles_unlinked(struct mcfs *fs, struct mcs_key key);

/* The newest writer that has @in open, with a reference; NULL: none. */
struct mcfs_writer *mcfs_handle_writer_on(struct mcfs *fs, const struct mcfs_inode *in);
/* The newest writer under name @key that is pending (mcfs_writer_pending()); the same. */
struct mcfs_writer *mcfs_handle_pending(struct mcfs *fs, struct mcs_key key);
/* The writer whose staged bytes @in shows: the one that has it open, or the pending one that the lookup found if the
 * name had no version. With a reference; NULL: none. */
struct mcfs_writer *mcfs_handle_writer_seen(struct mcfs *fs, const struct mcfs_inode *in);

/* The session has ended: publish or drop the uncommitted bytes of all handles. @open: their
 * descriptors are still open, so the uncommitted bytes are incomplete and dropped; otherwise
 * mcfs_writer_end() decides for each handle. */
void mcfs_handles_end(struct mcfs *fs, bool open);
/* The guard aborted the mount, and the kernel will not report the closes of its files: drop all handles and
 * the uncommitted bytes. Objects that programs may have mapped stay pinned until mcfs_handles_end(). */
void mcfs_handles_drop(struct mcfs *fs);

/* Record that a WRITE handle has unsaved bytes: before the change, so that no caller that receives an error
 * relies on saved bytes, and again before the reply, because another thread may have saved in between. */
void mcfs_handle_changed(struct mcfs_handle *h);
/* The writer committed: nothing is unsaved, unless more bytes were written meanwhile. */
void mcfs_handle_saved(struct mcfs_handle *h);
/* Recreate the previous daemon's handles, before the mount serves. */
int mcfs_handles_restore(struct mcfs *fs);
/* A restored handle is used. 0: it is usable; -ESTALE: its version no longer exists; -EIO: written
 * bytes are lost. */
int mcfs_handle_continue(struct mcfs *fs, struct mcfs_handle *h, uint64_t deadline);
/* Reopen all restored readers whose versions still exist, within one timeout. The remaining ones
 * are reopened on first use. */
void mcfs_handles_continue(struct mcfs *fs);

#endif
