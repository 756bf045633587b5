/* SPDX-License-Identifier: Apache-2.0
 * rename.c - giving a file another name.
 *
 * A committed file is re-keyed by the master in one step.  A file that the renaming process itself has
 * open and not committed yet is committed by this call: programs write a temporary file, rename it and
 * close it afterwards, and the new name has to be there, whole, when rename returns.  Unless the name was
 * given another version meanwhile, by somebody who opened it later: then it is that one that is renamed.
 * What other processes are still writing under the old name goes along without being published. */
#include <config.h>

#include <errno.h>
#include <stdio.h>

#include "common/err.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

#define WRITERS_AT_ONCE 64

struct renaming {
	struct mcfs_op *op;
	const struct mcfs_key *from, *to;
	bool noreplace;
	struct mcfs_writer *w[WRITERS_AT_ONCE];	/* under the old name, newest first */
	size_t n;
	/* those under the new name */
	struct mcfs_writer *over[WRITERS_AT_ONCE];
	size_t nover;
};

/* The writer that a rename by @op's caller is about: its own thread's, else its process's. */
static struct mcfs_writer *find_own(const struct renaming *rn)
{
	struct mcfs_writer *found = NULL;

	for (size_t i = 0; i < rn->n; i++) {
		struct mcfs_writer *w = rn->w[i];

		if (!mcfs_writer_pending(w) || mcfs_writer_overtaken(w) || !mcfs_caller_is(w->pid, rn->op->ctx.pid))
			continue;
		if (w->tid == rn->op->ctx.pid)
			return w;
		if (!found)
			found = w;
	}
	return found;
}

/* The new name is taken: files that were being written under it when this began lose it. */
static void displace(const struct renaming *rn)
{
	for (size_t i = 0; i < rn->nover; i++)
		(void)mcfs_writer_unlink(rn->over[i]);
}

/* Who has the file open that was renamed has it under the new name.  Two writers of one name are two files: of those
 * the other one keeps the old name. */
static int carry_along(const struct renaming *rn)
{
	int r = 0;

	for (size_t i = 0; i < rn->n && r == 0; i++)
		if (!mcfs_writer_is_apart(rn->w[i]))
			r = mcfs_writer_rename(rn->w[i], rn->to->data, rn->to->len);
	return r;
}

static int rename_committed(const struct renaming *rn)
{
	const struct mcfs_version_env *env = &rn->op->fs->versions;
	unsigned flags = rn->noreplace ? MCS_RENAME_NOREPLACE : 0;
	uint32_t commits;
	bool pending;
	int r;

	do {
		commits = mcfs_commits(env, rn->from->data, rn->from->len);
		r = mcs_rename(rn->op->fs->store, mcfs_key_of(rn->from), mcfs_key_of(rn->to), flags,
			       mcfs_op_left_ms(rn->op));
		pending = false;
		for (size_t i = 0; i < rn->n; i++)
			pending |= mcfs_writer_pending(rn->w[i]);
	} while (mcs_errno(r) == ENOENT && !pending &&
		 commits != mcfs_commits(env, rn->from->data, rn->from->len));
	/* A file that exists by its writer only takes the name and shows it when it is closed. */
	if (r < 0 && !(pending && mcs_errno(r) == ENOENT))
		return r;
	displace(rn);
	return carry_along(rn);
}

static int rename_file(struct mcfs_op *op, const struct mcfs_key *from, const struct mcfs_key *to,
		       bool noreplace)
{
	const bool immutable = mcfs_live(&op->fs->conf.immutable);
	struct renaming rn = { .op = op, .from = from, .to = to, .noreplace = noreplace || immutable };
	struct mcfs_writer *own;
	struct mcfs_found found;
	int r;

	if (immutable && !noreplace) {
		r = mcfs_find(op, to, &found);
		if (r == 0)
			return -EPERM;
		if (mcs_errno(r) != ENOENT)
			return r;
	}
	rn.n = mcfs_writers_of(&op->fs->versions, from->data, from->len, rn.w, WRITERS_AT_ONCE);
	rn.nover = mcfs_writers_of(&op->fs->versions, to->data, to->len, rn.over, WRITERS_AT_ONCE);
	own = find_own(&rn);
	r = own ? mcfs_writer_publish(own, op->deadline) : 0;
	if (r == 0)
		r = rename_committed(&rn);
	for (size_t i = 0; i < rn.n; i++)
		mcfs_writer_unref(rn.w[i]);
	for (size_t i = 0; i < rn.nover; i++)
		mcfs_writer_unref(rn.over[i]);
	return r;
}

/* Is there anything in directory @key?  1, 0 or negative. */
static int has_children(struct mcfs_op *op, const struct mcfs_key *key)
{
	struct mcs_entry entry;
	mcs_list_t *list;
	int r;

	if (mcfs_writers_below(&op->fs->versions, key->data, key->len))
		return 1;
	r = mcs_list_open(op->fs->store, mcfs_key_of(key), 1, &list);
	if (r < 0)
		return r;
	r = mcs_list_next(list, &entry, mcfs_op_left_ms(op));
	mcs_list_close(list);
	return r;
}

/* Only an empty directory is one key; mv copies a full one when it is told EXDEV. */
static int rename_dir(struct mcfs_op *op, struct mcfs_key *from, struct mcfs_key *to, bool noreplace)
{
	int r;

	if (from->len == MCFS_KEY_MAX || to->len == MCFS_KEY_MAX)
		return -ENAMETOOLONG;
	from->data[from->len++] = '/';
	to->data[to->len++] = '/';
	r = has_children(op, from);
	if (r)
		return r < 0 ? r : -EXDEV;
	r = has_children(op, to);
	if (r)
		return r < 0 ? r : noreplace ? -EEXIST : -ENOTEMPTY;
	r = mcs_rename(op->fs->store, mcfs_key_of(from), mcfs_key_of(to),
		       noreplace ? MCS_RENAME_NOREPLACE : 0, mcfs_op_left_ms(op));
	if (r == 0)
		mcfs_inode_move_dir(&op->fs->inodes, mcfs_key_of(from), mcfs_key_of(to));
	return r;
}

/* A writer's file has an inode for each who looks it up, so that the kernel cannot tell that both names are one. */
static int rename_to_itself(struct mcfs_op *op, const struct mcfs_key *key, bool noreplace)
{
	struct mcfs_writer *w[WRITERS_AT_ONCE];
	struct mcfs_found found;
	bool pending = false;
	size_t n;
	int r;

	n = mcfs_writers_of(&op->fs->versions, key->data, key->len, w, WRITERS_AT_ONCE);
	for (size_t i = 0; i < n; i++) {
		pending |= mcfs_writer_pending(w[i]);
		mcfs_writer_unref(w[i]);
	}
	r = pending ? 0 : mcfs_find(op, key, &found);
	return r == 0 && noreplace ? -EEXIST : r;
}

/* 1: a directory, 0: not, or negative. */
static int is_dir(struct mcfs_op *op, const struct mcfs_key *key)
{
	struct mcfs_found found;
	int r = mcfs_find(op, key, &found);

	if (mcs_errno(r) == ENOENT)
		return 0;	/* perhaps a file that is being written */
	return r < 0 ? r : found.info.kind == MCS_DIR;
}

void mcfs_do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		    const char *to_name, unsigned flags)
{
	struct mcfs_key from, to;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin_two(&op, req, MCFS_OP_rename, parent, to_parent))
		return;
	r = flags & ~(unsigned)RENAME_NOREPLACE ? -EINVAL : 0;
	if (r == 0)
		r = mcfs_child_key(op.fs, op.in, name, &from);
	if (r == 0)
		r = mcfs_child_key(op.fs, op.other, to_name, &to);
	if (r == 0 && !mcfs_key_is_object(&to))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	if (r == 0 && mcfs_key_equal(&from, &to)) {
		(void)mcfs_reply_err(&op, rename_to_itself(&op, &from, flags & RENAME_NOREPLACE));
		return;
	}
	if (r == 0)
		r = is_dir(&op, &from);
	if (r > 0)
		r = rename_dir(&op, &from, &to, flags & RENAME_NOREPLACE);
	else if (r == 0)
		r = rename_file(&op, &from, &to, flags & RENAME_NOREPLACE);
	(void)mcfs_reply_err(&op, r);
}
