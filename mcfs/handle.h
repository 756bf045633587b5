/* SPDX-License-Identifier: Apache-2.0
 * handle.h - what the kernel's file handles point to. */
#ifndef MCFS_HANDLE_H
#define MCFS_HANDLE_H

#include "mcfs/mcfs.h"

struct mcfs_ahead;
struct mcfs_stream;
struct mcfs_dir;

enum mcfs_handle_type { MCFS_READ, MCFS_WRITE, MCFS_TEXT, MCFS_LIST, MCFS_LINES };

struct mcfs_handle {
	unsigned refs;			/* atomic: the kernel's, and operations under way */
	/* constant once it is open */
	enum mcfs_handle_type type;
	struct mcfs_inode *inode;	/* one reference; NULL: a control file */
	struct mcfs_object *object;	/* READ: one reference, or NULL */
	struct mcfs_ahead *ahead;	/* READ: set with the object; NULL: it reads without a window */
	struct mcfs_writer *writer;	/* WRITE: one reference */
	char *text;			/* TEXT */
	size_t text_len;
	struct mcfs_stream *stream;	/* LINES */
	bool nonblock;			/* LINES: constant */
	struct mcfs_dir *dir;		/* LIST; readdir.c's */
	struct mcn_pins *pins;		/* atomic; of ioctls, made when they are wanted */
	bool shared_inode;			/* constant; WRITE: others wrote to its inode when it was opened */
	bool hidden;			/* atomic; WRITE: its inode was taken out of lookups */
	uint64_t number;		/* atomic; in the book (book.h), 0: in none, or no more */
	uint64_t unique;		/* under fs->handles_lock; of the request that opened it; with a book */
	bool lost;			/* atomic; of a daemon that has died: only the book's entry is left */
	bool restored;			/* constant; it was lost once */
	bool unsaved;			/* atomic; WRITE: what the book says */

	struct mc_list link;		/* guarded by fs->handles_lock */
};

struct mcfs_handle *mcfs_handle_of(const struct fuse_file_info *fi);

/* A handle owns the references that it is given; @fs knows all that are open.  It begins with one
 * reference, the kernel's. */
struct mcfs_handle *mcfs_handle_new(struct mcfs *fs, enum mcfs_handle_type type);
/* A request to open that the kernel has sent again begins: what the daemon before us had opened for it is let go of,
 * whether it succeeds now or not. */
void mcfs_handle_drop_unanswered(struct mcfs *fs);
/* Its number for the kernel, before the answer that tells it; 0: no memory to go on with it. */
uint64_t mcfs_handle_number(struct mcfs *fs, struct mcfs_handle *h);
struct mcfs_handle *mcfs_handle_ref(struct mcfs_handle *h);
void mcfs_handle_unref(struct mcfs *fs, struct mcfs_handle *h);	/* NULL is fine */
/* Before the kernel is told that it is closed: a daemon that follows us does not know it any more, however
 * long operations that were given up hold on to it here. */
void mcfs_handle_closed(struct mcfs_handle *h);

/* Bytes of a WRITE handle change: from now on other openers get an inode of their own, which shows what
 * this writer began from, not what it makes of it. */
void mcfs_handle_hide(struct mcfs *fs, struct mcfs_handle *h);

/* The size of what @w writes is about to be set by somebody who has not got its handle, perhaps without the kernel's
 * knowledge, or has been: as above, and mcfs_handle_changed(). */
void mcfs_handle_changes(struct mcfs *fs, const struct mcfs_writer *w);

/* The newest writer that has @in open, with a reference; NULL: none. */
struct mcfs_writer *mcfs_handle_writer_on(struct mcfs *fs, const struct mcfs_inode *in);
/* The newest writer under a name that holds uncommitted bytes; the same. */
struct mcfs_writer *mcfs_handle_pending(struct mcfs *fs, struct mcs_key key);
/* What is staged of the file that @in shows, as somebody who has looked it up sees it: by the inode, or,
 * when it stands for a name that has no version yet, by that. */
struct mcfs_writer *mcfs_handle_writer_seen(struct mcfs *fs, const struct mcfs_inode *in);

/* The session is over: publish or drop what handles are left with.  @open: their descriptors are open, so what was
 * not committed is not whole; otherwise each of them is asked. */
void mcfs_handles_end(struct mcfs *fs, bool open);

/* A WRITE handle that has something to lose: before it changes, so that nobody who is told of an error thinks that it
 * was saved, and again before it is answered, should another thread have saved what there was in between. */
void mcfs_handle_changed(struct mcfs_handle *h);
/* It was committed: nothing is left to lose, unless more has been written by now. */
void mcfs_handle_saved(struct mcfs_handle *h);
/* Those of the daemon before us; nothing is served yet. */
int mcfs_handles_restore(struct mcfs *fs);
/* One of these is used: 0, it goes on; -ESTALE, what it was about is gone; -EIO, bytes are lost. */
int mcfs_handle_continue(struct mcfs *fs, struct mcfs_handle *h, uint64_t deadline);
/* Do so for all that read, as long as their versions are there, within one timeout: the others when they are used. */
void mcfs_handles_continue(struct mcfs *fs);

/* Of ops/readdir.c. */
void mcfs_dir_free(struct mcfs *fs, struct mcfs_dir *d);

#endif
