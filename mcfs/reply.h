/* SPDX-License-Identifier: Apache-2.0
 * reply.h - one request of the kernel, from its arrival to its one answer.
 *
 * Answers are given exactly once.  When the caller is killed, or keeps being interrupted while the
 * operation takes its time, the answer is EINTR and comes at once; the operation goes on by itself and
 * its own reply function then says that nobody took it (-ECANCELED), so that what it made can be
 * undone.  What cannot be undone claims the answer first: who was told EINTR finds nothing changed, now or
 * later.  Here, and nowhere else, errors change their sign for libfuse. */
#ifndef MCFS_REPLY_H
#define MCFS_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/list.h"
#include "mcfs/life/compat.h"

struct mcfs;
struct mcfs_handle;
struct mcfs_inode;
struct flock;
struct stat;
struct statvfs;

/* Every operation once: number, name in metrics, counted twice over. */
#define MCFS_OPS(OP) \
	OP(lookup) OP(getattr) OP(setattr) OP(readlink) OP(symlink) OP(mknod) OP(link) OP(mkdir) \
	OP(unlink) OP(rmdir) OP(rename) OP(open) OP(create) OP(read) OP(write) OP(flush) \
	OP(release) OP(fsync) OP(fallocate) OP(opendir) OP(readdir) OP(releasedir) OP(fsyncdir) \
	OP(statfs) OP(getxattr) OP(listxattr) OP(setxattr) OP(removexattr) OP(ioctl) \
	OP(getlk) OP(setlk) OP(flock)
#define MCFS_OP_NUMBER(name) MCFS_OP_##name,
enum mcfs_opcode { MCFS_OPS(MCFS_OP_NUMBER) MCFS_NOPS };
#undef MCFS_OP_NUMBER

/* Who gives the answer.  It only grows. */
enum mcfs_claim {
	MCFS_UNCLAIMED,		/* whoever is first */
	MCFS_UNLESS_KILLED,	/* the operation, as long as the caller lives */
	MCFS_FOR_GOOD,		/* the operation */
	MCFS_ANSWERED		/* it was given, or is about to be */
};

struct mcfs_op {
	fuse_req_t req;		/* gone once somebody has answered */
	struct fuse_ctx ctx;	/* the caller */
	struct mcfs *fs;
	enum mcfs_opcode code;
	/* What the operation is about, kept until its end: a caller that was told EINTR may close the
	 * file and forget the name while the operation still goes on.  NULL for control files. */
	struct mcfs_inode *in, *other;
	struct mcfs_handle *handle;
	uint64_t start_ns;
	size_t bytes;		/* read or written */
	uint64_t deadline;	/* on the mc_now_ns() scale */
	int claim;		/* atomic; enum mcfs_claim */
	bool beginning;		/* atomic; libfuse still has the request in its hands */
	/* guarded by the patience lock */
	bool watched, killed;
	uint64_t due_ns;
	struct mc_list link;
};

/* Threads, metrics and the watcher of interrupted callers. */
int mcfs_reply_init(struct mcfs *fs);
void mcfs_reply_done(struct mcfs *fs);
uint64_t mcfs_reply_inflight(void);
/* mcfs_expect_sweep() has something to do, or somebody waits for a lock. */
void mcfs_reply_attend(void);

/* @ino: the inode that the operation is about, 0: none; @fi: the open file, NULL: none.  False: answered already,
 * because too many operations are under way or nothing is known of the inode. */
bool mcfs_op_begin(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		   const struct fuse_file_info *fi);
/* The same with two inodes. */
bool mcfs_op_begin_two(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		       fuse_ino_t other);
/* Does nobody wait for the answer any more? */
bool mcfs_op_given_up(const struct mcfs_op *op);
/* Before @op changes what its caller, told EINTR, would not expect to change: @claim is MCFS_UNLESS_KILLED, or
 * MCFS_FOR_GOOD where also the death of the caller must wait for the end.  False: it was answered already, and nothing
 * may be changed.  @op NULL: nobody waits for it.  Of what changes names or publishes everything is claimed from the
 * beginning. */
static inline bool mcfs_op_claim(struct mcfs_op *op, enum mcfs_claim claim)
{
	int now = op ? __atomic_load_n(&op->claim, __ATOMIC_ACQUIRE) : MCFS_FOR_GOOD;

	while (now < (int)claim && !__atomic_compare_exchange_n(&op->claim, &now, (int)claim, false,
								__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return now != MCFS_ANSWERED;
}
/* Milliseconds left, for calls of the store; never negative. */
int64_t mcfs_op_left_ms(const struct mcfs_op *op);

/* Each of these is the end of @op and of what it keeps.  @err is 0 or negative, also of the store.  0, or
 * -ECANCELED when the kernel did not take the answer. */
int mcfs_reply_err(struct mcfs_op *op, int err);
int mcfs_reply_entry(struct mcfs_op *op, const struct fuse_entry_param *e);
int mcfs_reply_create(struct mcfs_op *op, const struct fuse_entry_param *e,
		      struct fuse_file_info *fi, bool parallel);
int mcfs_reply_open(struct mcfs_op *op, struct fuse_file_info *fi, bool parallel);
/* The file is passed through to the one with this number (mcfs_compat_backing()). */
int mcfs_reply_open_backing(struct mcfs_op *op, struct fuse_file_info *fi, int id);
int mcfs_reply_attr(struct mcfs_op *op, const struct stat *st, uint64_t timeout_ms);
int mcfs_reply_buf(struct mcfs_op *op, const void *buf, size_t len);
/* @len bytes in @n pieces, for a read; counts them. */
int mcfs_reply_read(struct mcfs_op *op, const struct iovec *iov, int n, size_t len);
int mcfs_reply_write(struct mcfs_op *op, size_t len);
int mcfs_reply_lock(struct mcfs_op *op, const struct flock *fl);
int mcfs_reply_text(struct mcfs_op *op, const char *text);	/* readlink */
int mcfs_reply_statfs(struct mcfs_op *op, const struct statvfs *st);
/* The result of an ioctl, and what is copied to the caller. */
int mcfs_reply_ioctl(struct mcfs_op *op, int result, const void *buf, size_t len);
/* The value of an attribute, or its length when the caller offered no room (@size 0). */
int mcfs_reply_xattr(struct mcfs_op *op, const void *value, size_t len, size_t size);

#endif
