/* SPDX-License-Identifier: Apache-2.0
 * reply.h - one request of the kernel, from its arrival to its only answer.
 *
 * Each request is answered exactly once. If the caller is killed, or is interrupted during a long
 * operation, the caller receives EINTR at once. The operation continues in the background; its own
 * reply function then returns -ECANCELED, so that the operation can undo its result. An operation
 * that cannot be undone claims the answer first: a caller that received EINTR never sees a change.
 * Only this file converts error signs for libfuse. */
#ifndef MCFS_REPLY_H
#define MCFS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/list.h"
#include "mcfs/life/compat.h"
#include "mcfs/tree.h"

struct mcfs;
struct mcfs_handle;
struct mcfs_inode;
struct flock;
struct stat;
struct statvfs;

/* All operations: number and name in metrics. */
#define MCFS_OPS(OP) \
	OP(lookup) OP(getattr) OP(setattr) OP(readlink) OP(symlink) OP(mknod) OP(link) OP(mkdir) \
	OP(unlink) OP(rmdir) OP(rename) OP(open) OP(create) OP(read) OP(write) OP(flush) \
	OP(release) OP(fsync) OP(fallocate) OP(opendir) OP(readdir) OP(releasedir) OP(fsyncdir) \
	OP(statfs) OP(getxattr) OP(listxattr) OP(setxattr) OP(removexattr) OP(ioctl) \
	OP(getlk) OP(setlk) OP(flock)
#define MCFS_OP_NUMBER(name) MCFS_OP_##name,
enum mcfs_opcode { MCFS_OPS(MCFS_OP_NUMBER) MCFS_NOPS };
#undef MCFS_OP_NUMBER

/* The party that may answer, in increasing order; the value never decreases. */
enum mcfs_claim {
	MCFS_UNCLAIMED,		/* operation or interrupt, whichever is first */
	MCFS_UNLESS_KILLED,	/* the operation, unless the caller is killed */
	MCFS_FOR_GOOD,		/* only the operation */
	MCFS_ANSWERED		/* the answer was sent or is being sent */
};

struct mcfs_op {
	fuse_req_t req;		/* freed by the answer */
	struct fuse_ctx ctx;	/* the caller */
	struct mcfs *fs;
	enum mcfs_opcode code;
	/* The operation's file, referenced until the end: after EINTR the caller may close the file
	 * and forget the name while the operation continues. NULL for control files. */
	struct mcfs_inode *in, *other;
	struct mcfs_handle *handle;
	uint64_t start_ns;
	size_t bytes;		/* bytes read or written */
	uint64_t deadline;	/* on the mc_now_ns() scale */
	int claim;		/* atomic; enum mcfs_claim */
	enum mcfs_tree_use tree;
	bool beginning;		/* atomic; libfuse still uses the request */
	/* guarded by the interrupts' lock */
	bool watched, killed;
	uint64_t due_ns;
	struct mc_list link;
};

/* Register metrics, start the thread that watches interrupted callers. */
int mcfs_reply_init(struct mcfs *fs);
void mcfs_reply_done(struct mcfs *fs);
uint64_t mcfs_reply_inflight(void);
/* Wake that thread: mcfs_open_pins_sweep() or mcfs_locks_sweep() has work. */
void mcfs_reply_attend(void);

/* @ino: the operation's inode, 0: none; @fi: the open file, NULL: none. False: already answered,
 * because too many operations are running or the inode is unknown. */
bool mcfs_op_begin(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		   const struct fuse_file_info *fi);
/* The same with two inodes. */
bool mcfs_op_begin_two(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		       fuse_ino_t other);
/* Has the caller been answered, so that no thread waits for this operation? */
bool mcfs_op_given_up(const struct mcfs_op *op);
/* Claim the answer before @op makes a change that its caller must not miss. @claim:
 * MCFS_UNLESS_KILLED, or MCFS_FOR_GOOD if even a killed caller must wait for the end. False: the
 * caller has already been answered, so do not make the change. @op NULL: there is no caller.
 * Operations that change names or publish are claimed from their beginning. */
static inline bool mcfs_op_claim(struct mcfs_op *op, enum mcfs_claim claim)
{
	int now = op ? __atomic_load_n(&op->claim, __ATOMIC_ACQUIRE) : MCFS_FOR_GOOD;

	while (now < (int)claim && !__atomic_compare_exchange_n(&op->claim, &now, (int)claim, false,
								__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return now != MCFS_ANSWERED;
}
/* Milliseconds until the deadline, for calls of the store; never negative. */
int64_t mcfs_op_left_ms(const struct mcfs_op *op);

/* Share the tree of directories, or have it alone (tree.h), until the end of @op or mcfs_op_leave_tree(). @op does not
 * use it yet. 0 or -ETIMEDOUT. */
int mcfs_op_share_tree(struct mcfs_op *op);
int mcfs_op_take_tree(struct mcfs_op *op);
void mcfs_op_leave_tree(struct mcfs_op *op);

/* Each reply function ends @op and drops its references. @err is 0 or negative, also an error of
 * the store. Returns 0, or -ECANCELED if the kernel did not accept the answer. */
int mcfs_reply_err(struct mcfs_op *op, int err);
int mcfs_reply_entry(struct mcfs_op *op, const struct fuse_entry_param *e);
int mcfs_reply_create(struct mcfs_op *op, const struct fuse_entry_param *e,
		      struct fuse_file_info *fi, bool parallel);
int mcfs_reply_open(struct mcfs_op *op, struct fuse_file_info *fi, bool parallel);
/* Open the file with passthrough to backing file @id (mcfs_compat_backing()). */
int mcfs_reply_open_backing(struct mcfs_op *op, struct fuse_file_info *fi, int id);
int mcfs_reply_attr(struct mcfs_op *op, const struct stat *st, uint64_t timeout_ms);
int mcfs_reply_buf(struct mcfs_op *op, const void *buf, size_t len);
/* Answer a read with @len bytes in @n pieces; adds to the counters. */
int mcfs_reply_read(struct mcfs_op *op, const struct iovec *iov, int n, size_t len);
int mcfs_reply_write(struct mcfs_op *op, size_t len);
int mcfs_reply_lock(struct mcfs_op *op, const struct flock *fl);
int mcfs_reply_text(struct mcfs_op *op, const char *text);	/* readlink */
int mcfs_reply_statfs(struct mcfs_op *op, const struct statvfs *st);
/* Result of an ioctl, and the bytes to copy to the caller. */
int mcfs_reply_ioctl(struct mcfs_op *op, int result, const void *buf, size_t len);
/* Value of an attribute, or its length if the caller passed no buffer (@size 0). */
int mcfs_reply_xattr(struct mcfs_op *op, const void *value, size_t len, size_t size);

#endif
