/* SPDX-License-Identifier: Apache-2.0
 * link.c - files with several names. The object has a key that its names share, and the inode has that key: writers,
 * locks and changes of attributes of all names meet. The master finds the object of a name, and removes it with its
 * last name (docs/MOUNT.md). */
#include <config.h>

#include <errno.h>
#include <stdio.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "mcfs/handle.h"
#include "mcfs/write/hold.h"
#include "mcfs/ops/ops.h"

_Static_assert(sizeof(MCS_LINKS_DIR) == sizeof(MCFS_SHARED_NAME "/"), "the directory of shared keys");

void mcfs_shared_key(struct mcfs *fs, uint64_t ino, struct mcfs_key *ret)
{
	int n = snprintf(ret->data, sizeof(ret->data), MCS_LINKS_DIR "%016llx", (unsigned long long)ino);

	ret->len = (size_t)n;
	__atomic_store_n(&fs->links_seen, true, __ATOMIC_RELAXED);
}

bool mcfs_link_find(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_key *ret)
{
	struct mcfs_found found;

	ret->len = 0;
	if (!__atomic_load_n(&op->fs->links_seen, __ATOMIC_RELAXED) || mcfs_find(op, key, &found) < 0 ||
	    !(found.info.attrs.set & MCS_ATTR_LINKED))
		return false;
	mcfs_shared_key(op->fs, found.info.attrs.ino, ret);
	return true;
}

/* The file's time of change becomes the present; *ret_names: the number of names, 0 also if it is gone. */
static int link_touch(struct mcfs_op *op, const struct mcfs_key *shared, unsigned *ret_names)
{
	struct mcs_info info = { 0 };
	int r = mcs_set_attrs(op->fs->store, mcfs_key_of(shared), 0, 0, NULL, NULL, NULL, &info,
			      mcfs_op_left_ms(op));

	*ret_names = info.attrs.nlink;
	return mcs_errno(r) == ENOENT ? 0 : r;
}

void mcfs_link_renamed(struct mcfs_op *op, const struct mcfs_key *shared)
{
	unsigned names;

	(void)link_touch(op, shared, &names);
}

void mcfs_link_lost(struct mcfs_op *op, const struct mcfs_hold *hold, const struct mcfs_key *shared)
{
	const struct mcs_key key = mcfs_key_of(shared);
	unsigned names;

	/* If that is not known, writers go on: the master refuses their commits if the last name is gone. */
	if (link_touch(op, shared, &names) < 0 || names)
		return;
	mcfs_hold_unlink(hold, key);
	mcfs_handles_unlinked(op->fs, key);
}

static int link_allowed(struct mcfs_op *op)
{
	if (!op->other || op->other->kind == MCS_DIR)
		return mc_fail(-EPERM, "only files have several names");
	if (op->fs->flat)
		return mc_fail(-EPERM, "keymap=flat has no hard links");
	if (!op->fs->conf.attrs)
		return mc_fail(-EPERM, "hard links are attributes, and the mount has the option noattrs");
	return 0;
}

static int link_keys(struct mcfs_op *op, const char *name, struct mcfs_key *from, struct mcfs_key *to)
{
	int r = mcfs_child_key(op->fs, op->in, name, to);

	if (r == 0 && !mcfs_key_is_object(to))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	(void)mcfs_inode_version(&op->fs->inodes, op->other, from);
	return r;
}

/* The answer @r of the master is lost, and it may have made the link: then writers need the shared key. */
static bool find_linked(struct mcfs_op *op, const struct mcfs_key *from, int r, uint64_t *ret_ino,
			uint64_t *ret_generation)
{
	struct mcfs_found found;

	if (r == 0)
		return true;
	if (r != -MCS_ERPC && r != -MCS_ETIMEDOUT)
		return false;
	op->deadline = mc_deadline_ms((int64_t)mcfs_timeout_ms(op->fs));
	if (mcfs_find(op, from, &found) < 0 || !(found.info.attrs.set & MCS_ATTR_LINKED))
		return false;
	*ret_ino = found.info.attrs.ino;
	*ret_generation = found.info.generation;
	return true;
}

/* Writers of both names are held. */
static int link_held(struct mcfs_op *op, const struct mcfs_key *from_key, const struct mcfs_key *to_key,
		     const struct mcfs_hold *hold)
{
	const struct mcs_key from = mcfs_key_of(from_key), to = mcfs_key_of(to_key);
	struct mcs_attrs attrs;
	uint64_t ino, generation;
	bool gone;
	struct mcfs_key shared;
	int r, moved;

	if (mcfs_hold_pending(hold, to, false))
		return -EEXIST;
	/* Another file may have got the name since the look-up: the kernel looks it up again after ESTALE. */
	(void)mcfs_inode_attrs(&op->fs->inodes, op->other, &attrs, &gone);
	ino = attrs.set & MCS_ATTR_INO ? attrs.ino : 0;
	r = mcs_link(op->fs->store, from, to, ino, &ino, &generation, mcfs_op_left_ms(op));
	if (r == 0)
		r = mc_fault("mcfs.link.linked");
	if (r == -MCS_ENOTSUP)
		return mc_fail(-EPERM, "the master, or a standby of it, is too old for hard links");
	if (mcs_errno(r) == ENOENT && mcfs_hold_pending(hold, from, false))
		return mc_fail(-EBUSY, "another process writes the file, which has no version yet");
	if (mcfs_key_is_shared(from.data, from.len) || !find_linked(op, from_key, r, &ino, &generation))
		return r;
	mcfs_shared_key(op->fs, ino, &shared);
	mcfs_inode_move_file(&op->fs->inodes, from, generation, mcfs_key_of(&shared), generation);
	moved = mcfs_hold_rename(hold, from, mcfs_key_of(&shared), generation);
	return r < 0 ? r : moved;
}

static int link_file(struct mcfs_op *op, const char *name, struct mcfs_key *to)
{
	struct mcfs_hold hold;
	struct mcfs_key from;
	int r = link_allowed(op);

	if (r == 0)
		r = mcfs_op_share_tree(op);
	if (r == 0)
		r = link_keys(op, name, &from, to);
	if (r < 0)
		return r;
	/* The caller's own bytes are part of the file that gets the name. */
	r = mcfs_publish_own(op, mcfs_key_of(&from));
	if (r == 1)
		r = link_keys(op, name, &from, to);
	if (r == 0)
		r = mcfs_hold_begin(&hold, &op->fs->versions,
				    (struct mcs_key[]){ mcfs_key_of(&from), mcfs_key_of(to) }, 2, op->deadline);
	if (r < 0)
		return r;
	r = mcfs_op_claim(op, MCFS_UNLESS_KILLED) ? link_held(op, &from, to, &hold) : -EINTR;
	mcfs_hold_end(&hold);
	return r;
}

void mcfs_do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct mcfs_key to;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin_two(&op, req, MCFS_OP_link, parent, ino))
		return;
	r = link_file(&op, name, &to);
	mcfs_reply_created(&op, &to, r);
}
