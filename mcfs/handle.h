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
	bool hidden;			/* atomic; WRITE: its inode was taken out of lookups */

	struct mc_list link;		/* guarded by fs->handles_lock */
};

static inline struct mcfs_handle *mcfs_handle_of(const struct fuse_file_info *fi)
{
	return (struct mcfs_handle *)(uintptr_t)fi->fh;
}

/* A handle owns the references that it is given; @fs knows all that are open.  It begins with one
 * reference, the kernel's. */
struct mcfs_handle *mcfs_handle_new(struct mcfs *fs, enum mcfs_handle_type type);
struct mcfs_handle *mcfs_handle_ref(struct mcfs_handle *h);
void mcfs_handle_unref(struct mcfs *fs, struct mcfs_handle *h);	/* NULL is fine */

/* Bytes of a WRITE handle change: from now on other openers get an inode of their own, which shows what
 * this writer began from, not what it makes of it. */
void mcfs_handle_hide(struct mcfs *fs, struct mcfs_handle *h);

/* The newest writer that has @in open, with a reference; NULL: none. */
struct mcfs_writer *mcfs_handle_writer_on(struct mcfs *fs, const struct mcfs_inode *in);
/* The newest writer under a name that holds uncommitted bytes; the same. */
struct mcfs_writer *mcfs_handle_pending(struct mcfs *fs, struct mcs_key key);
/* What is staged of the file that @in shows, as somebody who has looked it up sees it: by the inode, or,
 * when it stands for a name that has no version yet, by that. */
struct mcfs_writer *mcfs_handle_writer_seen(struct mcfs *fs, const struct mcfs_inode *in);

/* The session is over: publish or drop what handles are left with.  @open: their descriptors may still
 * be open, so what was not committed is not whole. */
void mcfs_handles_end(struct mcfs *fs, bool open);

/* Of ops/readdir.c. */
void mcfs_dir_free(struct mcfs_dir *d);

#endif
