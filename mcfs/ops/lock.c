/* SPDX-License-Identifier: Apache-2.0
 * ops/lock.c - flock(2) and fcntl(2) locks. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include "mcfs/handle.h"
#include "mcfs/lock.h"
#include "mcfs/ops/ops.h"

static void range_of(const struct flock *fl, struct mcfs_lock_args *ret)
{
	ret->start = (uint64_t)fl->l_start;
	ret->end = fl->l_len ? ret->start + (uint64_t)fl->l_len - 1 : UINT64_MAX;
}

static void lock_request(fuse_req_t req, fuse_ino_t ino, enum mcfs_opcode code, struct fuse_file_info *fi,
		const struct mcfs_lock_args *args, bool waits)
{
	struct mcfs_lock_wait *w = calloc(1, sizeof(*w));
	struct mcfs_key key;

	if (!w) {
		fuse_reply_err(req, ENOLCK);
		return;
	}
	if (!mcfs_op_begin(&w->op, req, code, ino, fi)) {
		free(w);
		return;
	}
	if (!w->op.in) {
		(void)mcfs_reply_err(&w->op, -EOPNOTSUPP);
		free(w);
		return;
	}
	w->args = *args;
	mcfs_inode_key(&w->op.fs->inodes, w->op.in, &key);
	mcfs_lock_set(&w->op.fs->locks, mcfs_key_of(&key), w, waits);
}

void mcfs_do_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int how)
{
	struct mcfs_lock_args args = {
		.flock = true, .end = UINT64_MAX, .owner = fi->lock_owner, .pid = fuse_req_ctx(req)->pid,
		.type = how & LOCK_UN ? F_UNLCK : how & LOCK_EX ? F_WRLCK : F_RDLCK,
	};

	lock_request(req, ino, MCFS_OP_flock, fi, &args, !(how & LOCK_NB));
}

void mcfs_do_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *fl, int sleep)
{
	struct mcfs_lock_args args = { .owner = fi->lock_owner, .pid = fl->l_pid, .type = fl->l_type };

	range_of(fl, &args);
	lock_request(req, ino, MCFS_OP_setlk, fi, &args, sleep);
}

void mcfs_do_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *fl)
{
	struct mcfs_lock_args args = { .owner = fi->lock_owner, .type = fl->l_type };
	struct flock ret = *fl;
	struct mcfs_key key;
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_getlk, ino, fi))
		return;
	range_of(fl, &args);
	ret.l_type = F_UNLCK;
	if (op.in) {
		mcfs_inode_key(&op.fs->inodes, op.in, &key);
		if (mcfs_lock_test(&op.fs->locks, mcfs_key_of(&key), &args)) {
			ret.l_type = (short)args.type;
			ret.l_start = (off_t)args.start;
			ret.l_len = args.end == UINT64_MAX ? 0 : (off_t)(args.end - args.start + 1);
			ret.l_pid = args.pid;
		}
	}
	(void)mcfs_reply_lock(&op, &ret);
}
