/* SPDX-License-Identifier: Apache-2.0
 * rename.c - renaming files and directories.
 *
 * The master renames a committed file in one step. If the renaming process itself has the file open
 * with uncommitted bytes, the rename commits it first: programs write a temporary file, rename it
 * and close it afterwards, and the new name must exist, complete, when rename returns. Exception: a
 * writer that opened the name later has published another version; then that version is renamed.
 * Other processes' uncommitted files move to the new name without being published.
 *
 * A directory is renamed with everything below it, also in one step. */
#include <config.h>

#include <errno.h>
#include <stdio.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "mcfs/handle.h"
#include "mcfs/write/hold.h"
#include "mcfs/ops/ops.h"

struct renaming {
	struct mcfs_op *op;
	const char *name, *to_name;
	bool noreplace;
	struct mcfs_key from_key, to_key;
	struct mcs_key from, to;	/* the same */
	struct mcfs_key from_shared, to_shared;	/* keys of files with several names; empty: the name is the only one */
};

/* The keys stay valid while the operation shares the tree of directories, or has it alone. */
static int copy_keys(struct renaming *rn)
{
	const struct mcfs_op *op = rn->op;
	int r = mcfs_child_key(op->fs, op->in, rn->name, &rn->from_key);

	if (r == 0)
		r = mcfs_child_key(op->fs, op->other, rn->to_name, &rn->to_key);
	if (r == 0 && !mcfs_key_is_object(&rn->to_key))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	rn->from = mcfs_key_of(&rn->from_key);
	rn->to = mcfs_key_of(&rn->to_key);
	return r;
}

/* The caller's pending writer of the old name: its thread's, otherwise its process's. With a reference. */
static struct mcfs_writer *find_own(const struct mcfs_op *op, struct mcs_key key)
{
	struct mcfs_writer *found = NULL, *w = NULL;
	const pid_t tid = op->ctx.pid;

	while ((w = mcfs_writer_next(&op->fs->versions, w, key))) {
		if (!mcfs_writer_pending(w) || mcfs_writer_overtaken(w) || !mcfs_caller_is(w->pid, tid))
			continue;
		if (w->tid == tid) {
			mcfs_writer_unref(found);
			return w;
		}
		if (!found) {
			found = w;
			mcfs_writer_ref(found);
		}
	}
	return found;
}

int mcfs_publish_own(struct mcfs_op *op, struct mcs_key key)
{
	struct mcfs_writer *own = find_own(op, key);
	int r;

	if (!own)
		return 0;
	/* A commit may take longer than the operation's deadline, in proportion to the size: let renames of directories
	 * pass, and restart the deadline for the remaining steps. */
	mcfs_op_leave_tree(op);
	r = mcfs_writer_publish(own, op->deadline);
	op->deadline = mc_deadline_ms((int64_t)mcfs_timeout_ms(op->fs));
	mcfs_writer_unref(own);
	if (r == 0)
		r = mcfs_op_share_tree(op);
	return r < 0 ? r : 1;
}

static int publish_own(struct renaming *rn)
{
	int r = mcfs_publish_own(rn->op, rn->from_shared.len ? mcfs_key_of(&rn->from_shared) : rn->from);

	return r == 1 ? copy_keys(rn) : r;
}

/* A file without a version only changes its name; its close publishes it there. */
static int replace_when_published(const struct renaming *rn, const struct mcfs_hold *hold)
{
	struct mcs_info info = { 0 };
	int r = mcs_stat(rn->op->fs->store, rn->to, &info, mcfs_op_left_ms(rn->op));

	if (r < 0 && mcs_errno(r) != ENOENT)
		return r;
	if (r == 0 && rn->noreplace)
		return -EEXIST;
	mcfs_hold_rebase(hold, rn->from, info.generation, rn->noreplace);
	return 0;
}

static int rename_held(const struct renaming *rn, const struct mcfs_hold *hold)
{
	unsigned flags = rn->noreplace ? MCS_RENAME_NOREPLACE : 0;
	uint64_t was = 0, now = 0;
	int r = mcs_rename_version(rn->op->fs->store, rn->from, rn->to, flags, &was, &now, mcfs_op_left_ms(rn->op));

	MC_FAULT_POINT("mcfs.rename.asked");
	if (mcs_errno(r) == ENOENT && mcfs_hold_pending(hold, rn->from, true))
		r = replace_when_published(rn, hold);
	if (r < 0)
		return r;
	/* The new name is replaced: files being written under it lose it. */
	mcfs_hold_unlink(hold, rn->to);
	if (rn->to_shared.len)
		mcfs_link_lost(rn->op, hold, &rn->to_shared);
	if (rn->from_shared.len)
		mcfs_link_renamed(rn->op, &rn->from_shared);
	if (was)
		mcfs_inode_move_file(&rn->op->fs->inodes, rn->from, was, rn->to, now);
	return mcfs_hold_rename(hold, rn->from, rn->to, now);
}

/* Find the keys of files with several names. True: both are names of one file, which rename(2) does not change. */
static bool find_linked(struct renaming *rn)
{
	bool from = mcfs_link_find(rn->op, &rn->from_key, &rn->from_shared);
	bool to = mcfs_link_find(rn->op, &rn->to_key, &rn->to_shared);

	return from && to && mcfs_key_equal(&rn->from_shared, &rn->to_shared);
}

static int rename_file(struct renaming *rn)
{
	struct mcfs_op *op = rn->op;
	const bool immutable = mcfs_live(&op->fs->conf.immutable);
	struct mcfs_found found;
	struct mcfs_hold hold;
	int r;

	if (immutable && !rn->noreplace) {
		r = mcfs_find(op, &rn->to_key, &found);
		if (r == 0)
			return -EPERM;
		if (mcs_errno(r) != ENOENT)
			return r;
	}
	rn->noreplace |= immutable;
	if (find_linked(rn))
		return rn->noreplace ? -EEXIST : 0;
	r = publish_own(rn);
	if (r == 0)
		r = mcfs_hold_begin(&hold, &op->fs->versions,
				    (struct mcs_key[]){ rn->from, rn->to, mcfs_key_of(&rn->to_shared) },
				    rn->to_shared.len ? 3 : 2, op->deadline);
	if (r < 0)
		return r;
	r = rename_held(rn, &hold);
	mcfs_hold_end(&hold);
	return r;
}

/* Has directory @key any contents? 1, 0 or negative. */
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

/* The master cannot rename the directory with its contents: they are too many or too deep, or the master is too old.
 * An empty directory is a single key. For others mv(1) copies after EXDEV. */
static int rename_dir_alone(struct mcfs_op *op, const struct mcfs_key *from, const struct mcfs_key *to, bool noreplace)
{
	int r = has_children(op, from);

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

/* The answer @r of the master is lost, and it may have renamed the directory: 0, if that has only its new name. */
static int find_renamed(struct mcfs_op *op, const struct mcfs_key *from, const struct mcfs_key *to, int r)
{
	struct mcfs_found found;

	if (r != -MCS_ERPC && r != -MCS_ETIMEDOUT)
		return r;
	op->deadline = mc_deadline_ms((int64_t)mcfs_timeout_ms(op->fs));
	if (mcs_errno(mcfs_find_dir(op, from, &found)) != ENOENT || mcfs_find_dir(op, to, &found) < 0)
		return r;
	mc_info("mcfs", "the answer to the rename of a directory is lost, and it has the new name");
	return 0;
}

/* Files being written below @from move along without being published, as those of rename_file() that are others'. */
static int rename_dir_held(struct mcfs_op *op, const struct mcfs_key *from, const struct mcfs_key *to, bool noreplace,
			   const struct mcfs_hold *hold)
{
	int r;

	mcfs_inode_move_begin(&op->fs->inodes);
	r = mcs_rename_dir(op->fs->store, mcfs_key_of(from), mcfs_key_of(to),
			   noreplace ? MCS_RENAME_NOREPLACE : 0, NULL, mcfs_op_left_ms(op));
	if (r == 0)
		r = mc_fault("mcfs.rename.moved");
	r = find_renamed(op, from, to, r);
	/* A look-up with a new key must find the writers. */
	if (r == 0) {
		r = mcfs_hold_rename_below(hold, mcfs_key_of(from), mcfs_key_of(to));
		mcfs_inode_move_dir(&op->fs->inodes, mcfs_key_of(from), mcfs_key_of(to));
	}
	mcfs_inode_move_end(&op->fs->inodes);
	return r;
}

/* Commits may take long: wait for those that run before others wait for the end of this rename. */
static int wait_for_commits(struct mcfs_op *op, struct mcfs_key *from)
{
	struct mcfs_hold hold;
	int r;

	if (from->len == MCFS_KEY_MAX)
		return -ENAMETOOLONG;
	from->data[from->len++] = '/';
	r = mcfs_hold_begin_below(&hold, &op->fs->versions, mcfs_key_of(from), op->deadline);
	mcfs_hold_end(&hold);
	return r;
}

static int rename_dir(struct renaming *rn)
{
	struct mcfs_key *from = &rn->from_key, *to = &rn->to_key;
	const bool noreplace = rn->noreplace;
	struct mcfs_op *op = rn->op;
	struct mcfs_hold hold;
	int r;

	mcfs_op_leave_tree(op);
	r = wait_for_commits(op, from);
	if (r == 0)
		r = mcfs_op_take_tree(op);
	if (r == 0)
		r = copy_keys(rn);
	if (r < 0)
		return r;
	if (from->len == MCFS_KEY_MAX || to->len == MCFS_KEY_MAX)
		return -ENAMETOOLONG;
	from->data[from->len++] = '/';
	to->data[to->len++] = '/';
	if (mcfs_writers_below(&op->fs->versions, to->data, to->len))
		return noreplace ? -EEXIST : -ENOTEMPTY;
	r = mcfs_hold_begin_below(&hold, &op->fs->versions, mcfs_key_of(from), op->deadline);
	if (r < 0)
		return r;
	r = rename_dir_held(op, from, to, noreplace, &hold);
	mcfs_hold_end(&hold);
	if (r == -MCS_ENOTSUP || r == -MCS_ELIMIT)
		r = rename_dir_alone(op, from, to, noreplace);
	return r;
}

/* Each lookup of a file being written returns a new inode, so the kernel cannot detect that both
 * names are the same. */
static int rename_to_itself(struct mcfs_op *op, const struct mcfs_key *key, bool noreplace)
{
	struct mcfs_writer *w = NULL;
	struct mcfs_found found;
	bool pending = false;
	int r;

	while ((w = mcfs_writer_next(&op->fs->versions, w, mcfs_key_of(key))))
		pending |= mcfs_writer_pending(w);
	r = pending ? 0 : mcfs_find(op, key, &found);
	return r == 0 && noreplace ? -EEXIST : r;
}

/* 1: a directory, 0: not, or negative. */
static int is_dir(struct mcfs_op *op, const struct mcfs_key *key)
{
	struct mcfs_found found;
	int r = mcfs_find(op, key, &found);

	if (mcs_errno(r) == ENOENT)
		return 0;	/* possibly a file that is being written */
	return r < 0 ? r : found.info.kind == MCS_DIR;
}

static int rename_named(struct renaming *rn)
{
	int r = mcfs_op_share_tree(rn->op);

	if (r == 0)
		r = copy_keys(rn);
	if (r < 0)
		return r;
	if (mcfs_key_equal(&rn->from_key, &rn->to_key))
		return rename_to_itself(rn->op, &rn->from_key, rn->noreplace);
	r = is_dir(rn->op, &rn->from_key);
	if (r < 0)
		return r;
	return r ? rename_dir(rn) : rename_file(rn);
}

void mcfs_do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		    const char *to_name, unsigned flags)
{
	struct mcfs_op op;
	struct renaming rn = {
		.op = &op, .name = name, .to_name = to_name, .noreplace = flags & RENAME_NOREPLACE,
	};

	if (!mcfs_op_begin_two(&op, req, MCFS_OP_rename, parent, to_parent))
		return;
	(void)mcfs_reply_err(&op, flags & ~(unsigned)RENAME_NOREPLACE ? -EINVAL : rename_named(&rn));
}
