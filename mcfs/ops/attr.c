/* SPDX-License-Identifier: Apache-2.0
 * attr.c - reading and changing attributes. The master keeps them with the file's version; the mount asks it whenever
 * the kernel's copy has expired. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"
#include "mcfs/write/attrs.h"

/* Access times are not kept. */
#define SET_ATTRS (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_MTIME)
#define SET_TIMES (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)
#define NS_MAX_SEC ((time_t)(UINT64_MAX / MC_NS_PER_SEC - 1))

/* ---- reading ---- */

static int refresh_dir(struct mcfs_op *op, struct mcfs_inode *in)
{
	struct mcfs_found found;
	struct mcfs_key key;
	int r;

	if (in == &op->fs->inodes.root || mcfs_inode_is_view(in))
		return 0;
	mcfs_inode_key(&op->fs->inodes, in, &key);
	r = mcfs_find_dir(op, &key, &found);
	if (r == 0)
		mcfs_inode_set_attrs(&op->fs->inodes, in, &found.info.attrs);
	return r;
}

int mcfs_attrs_refresh(struct mcfs_op *op, struct mcfs_inode *in)
{
	struct mcfs_inodes *t = &op->fs->inodes;
	struct mcfs_key key;
	struct mcs_info info;
	uint64_t version;
	int r;

	if (in->kind == MCS_DIR)
		return refresh_dir(op, in);
	version = mcfs_inode_version(t, in, &key);
	if (!version)
		return 0;
	r = mcs_stat(op->fs->store, mcfs_key_of(&key), &info, mcfs_op_left_ms(op));
	if (r < 0 && mcs_errno(r) != ENOENT)
		return r;
	if (r == 0 && info.generation == version)
		mcfs_inode_set_attrs(t, in, &info.attrs);
	/* Not if the version was renamed meanwhile. */
	else if (mcfs_inode_version(t, in, &key) == version)
		mcfs_inode_set_gone(t, in);
	return 0;
}

static void refresh_writer(struct mcfs_op *op, struct mcfs_writer *w)
{
	struct mcs_info info;
	struct mcfs_key key;
	uint64_t version = mcfs_writer_version(w, key.data, &key.len);
	int r;

	if (!version)
		return;
	r = mcs_stat(op->fs->store, mcfs_key_of(&key), &info, mcfs_op_left_ms(op));
	if (r == 0 && info.generation == version)
		mcfs_writer_describe(w, version, &info);
	else if (r == 0 || mcs_errno(r) == ENOENT)
		mcfs_writer_describe(w, version, NULL);
}

/* If the master does not answer, reply with the attributes of its last answer. An inode that a previous daemon created
 * may have no such answer: then reply with the error. */
static void reply_attr(struct mcfs_op *op, struct mcfs_inode *in, const struct mcfs_handle *h, bool refresh)
{
	struct mcfs *fs = op->fs;
	uint64_t timeout = mcfs_live(&fs->conf.attr_timeout);
	struct mcfs_writer *w = h && h->writer ? h->writer : mcfs_handle_writer_seen(fs, in);
	struct mcs_attrs attrs;
	struct stat st;
	bool gone;
	int r = 0;

	if (w) {
		if (refresh)
			refresh_writer(op, w);
		mcfs_stat_writer(fs, in, w, &st);
		timeout = 0;
	} else {
		r = refresh ? mcfs_attrs_refresh(op, in) : 0;
		if (r < 0 && mcfs_inode_attrs(&fs->inodes, in, &attrs, &gone))
			r = 0;
		mcfs_stat_inode(fs, in, &st);
	}
	if (!h || w != h->writer)
		mcfs_writer_unref(w);
	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_attr(op, &st, timeout);
}

static void control_attr(struct mcfs_op *op, fuse_ino_t ino)
{
	struct stat st;
	int r = mcfs_control_stat(op->fs, ino, &st);

	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_attr(op, &st, 0);
}

void mcfs_do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_getattr, ino, fi))
		return;
	if (!op.in)
		control_attr(&op, ino);
	else
		reply_attr(&op, op.in, op.handle, true);
}

/* ---- the size ---- */

static int check_generation(const struct mcfs_inode *in, const struct mcs_info *info)
{
	if (info->generation == in->info.generation)
		return 0;
	return mc_fail(-ESTALE, "the file was replaced, renamed or removed since it was opened");
}

/* Check that the inode is still the file of its name. A path lookup guarantees that; a descriptor's
 * path such as /proc/self/fd/3 may have been renamed, replaced or removed. */
static int check_shown(struct mcfs_op *op, const struct mcfs_inode *in)
{
	struct mcfs_key key;
	struct mcs_info info;
	int r;

	mcfs_inode_key(&op->fs->inodes, in, &key);
	r = mcs_stat(op->fs->store, mcfs_key_of(&key), &info, mcfs_op_left_ms(op));
	if (mcs_errno(r) == ENOENT)
		info.generation = 0;
	return r < 0 && mcs_errno(r) != ENOENT ? r : check_generation(in, &info);
}

/* truncate(2) of a path: publish a truncated version before the call returns. */
static int truncate_version(struct mcfs_op *op, struct mcfs_inode *in, uint64_t size)
{
	struct mcs_attrs attrs;
	struct mcfs_writer_args args = { .tid = op->ctx.pid, .uid = op->ctx.uid, .attrs = &attrs };
	struct mcfs *fs = op->fs;
	struct mcfs_writer *w = NULL;
	struct mcfs_key key;
	bool gone;
	int r = 0;

	if (mcfs_live(&fs->conf.immutable))
		return -EPERM;
	if (in->info.generation && size == in->info.size)
		return 0;
	mcfs_refresh_limit(op);
	r = mcfs_op_share_tree(op);
	if (r < 0)
		return r;
	mcfs_inode_key(&fs->inodes, in, &key);
	(void)mcfs_inode_attrs(&fs->inodes, in, &attrs, &gone);
	args.key = key.data;
	args.len = key.len;
	args.generation = in->info.generation;
	if (size)
		r = mcfs_object_open(fs->store, mcfs_key_of(&key), op->deadline, &args.base);
	else
		args.flags = MCFS_WRITER_FRESH;
	if (r == 0 && in->info.generation)
		r = size ? check_generation(in, mcfs_object_info(args.base)) : check_shown(op, in);
	if (r == 0)
		r = mcfs_writer_new(&fs->versions, &args, &w);
	/* A later rename waits for the commit, or moves the writer too. */
	mcfs_op_leave_tree(op);
	if (r == 0)
		r = mcfs_writer_truncate(w, size, op->ctx.pid, NULL);
	if (r == 0 && mcfs_op_claim(op, MCFS_UNLESS_KILLED))
		r = mcfs_writer_sync(w, op->deadline);
	mcfs_writer_unref(w);
	mcfs_object_unref(args.base);
	return r;
}

static int set_size(struct mcfs_op *op, struct mcfs_inode *in, struct mcfs_handle *h, uint64_t size)
{
	struct mcfs_writer *w;
	int r;

	if (in->kind != MCS_OBJECT)
		return in->kind == MCS_DIR ? -EISDIR : -EINVAL;
	if (h && h->type == MCFS_WRITE) {
		r = mcfs_handle_continue(op->fs, h, op->deadline);
		if (r < 0)
			return r;
		mcfs_handle_hide(op->fs, h);
		mcfs_handle_changed(h);
		r = mcfs_writer_truncate(h->writer, size, op->ctx.pid, op);
		mcfs_handle_changed(h);
		return r;
	}
	w = mcfs_handle_writer_seen(op->fs, in);
	if (w && in->info.generation) {
		/* Another descriptor is writing the file: its staged bytes belong to another version. */
		mcfs_writer_unref(w);
		w = NULL;
	}
	if (!w)
		return truncate_version(op, in, size);
	mcfs_handle_changes(op->fs, w);
	r = mcfs_writer_truncate(w, size, op->ctx.pid, op);
	mcfs_handle_changes(op->fs, w);
	mcfs_writer_unref(w);
	return r;
}

/* ---- other attributes ---- */

void mcfs_attrs_new(struct mcfs_op *op, struct mcfs_inode *parent, enum mcs_kind kind, mode_t mode,
		    struct mcs_attrs *ret)
{
	const struct mcfs *fs = op->fs;
	const struct mcs_attrs none = { 0 };
	gid_t gid = op->ctx.gid;
	struct mcs_attrs dir;
	bool gone;

	*ret = none;
	if (!fs->conf.attrs)
		return;
	if (!mcfs_inode_attrs(&op->fs->inodes, parent, &dir, &gone)) {
		(void)mcfs_attrs_refresh(op, parent);
		(void)mcfs_inode_attrs(&op->fs->inodes, parent, &dir, &gone);
	}
	if (mcfs_stat_perm(fs, MCS_DIR, &dir) & S_ISGID) {
		gid = dir.set & MCS_ATTR_GID ? dir.gid : fs->gid;
		mode |= kind == MCS_DIR ? S_ISGID : 0;
	}
	mode &= kind == MCS_SPECIAL ? S_IFMT | 07777 : 07777;
	ret->set = MCS_ATTR_INO;
	ret->ino = mcfs_inode_new_number();
	if (op->ctx.uid == fs->uid && gid == fs->gid &&
	    (kind == MCS_SYMLINK || mode == mcfs_stat_perm(fs, kind, &none)))
		return;
	/* Set all of them: mounts may have other defaults. */
	ret->set |= MCS_ATTR_UID | MCS_ATTR_GID | (kind == MCS_SYMLINK ? 0 : MCS_ATTR_MODE);
	ret->mode = mode;
	ret->uid = op->ctx.uid;
	ret->gid = gid;
}

int mcfs_attrs_allowed(const struct mcfs_op *op, const struct mcfs_inode *in)
{
	if (!op->fs->conf.attrs)
		return mc_fail(-EPERM, "the mount has the option noattrs");
	if (in == &op->fs->inodes.root || mcfs_inode_is_view(in))
		return mc_fail(-EPERM, "the attributes of this directory are options of the mount");
	return 0;
}

/* A directory that exists only because of its contents gets a marker with these attributes: 1; 0: it has one. */
static int make_marker(struct mcfs_op *op, const struct mcfs_key *key, const struct mcs_attrs *a, unsigned flags)
{
	struct mcs_attrs first = a ? *a : (struct mcs_attrs){ 0 };
	struct mcs_put_opts opts = { .flags = MCS_PUT_EXCL, .kind = MCS_DIR, .attrs = &first };
	struct mcfs_found found;
	int r = mcfs_find_dir(op, key, &found);

	if (r < 0)
		return r;
	if (flags & MCS_SET_NOW)
		first.mtime_ns = mc_wall_ns();
	r = mcs_put(op->fs->store, mcfs_key_of(key), NULL, 0, &opts, mcfs_op_left_ms(op));
	return mcs_errno(r) == EEXIST ? 0 : r < 0 ? r : 1;
}

static int change_once(struct mcfs_op *op, struct mcfs_inode *in, const struct mcs_attrs *a,
		       const struct mcs_xattr *x, unsigned flags)
{
	struct mcfs_inodes *t = &op->fs->inodes;
	struct mcs_attrs seen;
	struct mcs_info info;
	struct mcfs_key key;
	uint64_t version = mcfs_inode_version(t, in, &key);
	bool gone;
	int r = 0;

	if (!mcfs_inode_attrs(t, in, &seen, &gone))
		r = mcfs_attrs_refresh(op, in);
	if (r < 0)
		return r;
	(void)mcfs_inode_attrs(t, in, &seen, &gone);
	r = a ? mcfs_attrs_check_owner(op->ctx.uid, op->fs->uid, &seen, a, flags) : 0;
	if (r < 0)
		return r;
	r = mcs_set_attrs(op->fs->store, mcfs_key_of(&key), version, flags, &seen, a, x, &info, mcfs_op_left_ms(op));
	if (r == 0)
		mcfs_inode_set_attrs(t, in, &info.attrs);
	return r;
}

int mcfs_attrs_change(struct mcfs_op *op, struct mcfs_inode *in, const struct mcs_attrs *a,
		      const struct mcs_xattr *x, unsigned flags)
{
	struct mcfs_key key;
	int r = mcfs_op_share_tree(op);

	if (r == 0)
		r = mcfs_op_claim(op, MCFS_UNLESS_KILLED) ? change_once(op, in, a, x, flags) : -EINTR;
	if (mcs_errno(r) == ENOENT && in->kind == MCS_DIR) {
		mcfs_inode_key(&op->fs->inodes, in, &key);
		r = make_marker(op, &key, a, flags);
		if (r == 1) {
			r = mcfs_attrs_refresh(op, in);
			a = NULL;
		}
		if (r == 0 && (a || x))
			r = change_once(op, in, a, x, flags);
	}
	/* The kernel looks a path up again and checks the permissions of the file that it finds. */
	if (mcs_errno(r) == ESTALE || mcs_errno(r) == ENOENT)
		return mc_fail(-ESTALE, "the file was replaced or removed, or its owner has changed");
	return r;
}

/* 0; -EINVAL: a time that is not between 1970 and 2554. */
static int requested_attrs(const struct stat *attr, int to_set, struct mcs_attrs *ret, unsigned *ret_flags)
{
	*ret = (struct mcs_attrs){
		.set = (to_set & FUSE_SET_ATTR_MODE ? MCS_ATTR_MODE : 0) |
			(to_set & FUSE_SET_ATTR_UID ? MCS_ATTR_UID : 0) |
			(to_set & FUSE_SET_ATTR_GID ? MCS_ATTR_GID : 0) |
			(to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW) ? MCS_ATTR_MTIME : 0),
		.mode = attr->st_mode & 07777, .uid = attr->st_uid, .gid = attr->st_gid,
	};
	*ret_flags = to_set & FUSE_SET_ATTR_MTIME_NOW ? MCS_SET_NOW : 0;
	if (!(to_set & FUSE_SET_ATTR_MTIME) || *ret_flags)
		return 0;
	if (attr->st_mtim.tv_sec < 0 || attr->st_mtim.tv_sec > NS_MAX_SEC)
		return mc_fail(-EINVAL, "times before 1970 and after 2554 are not supported");
	ret->mtime_ns = (uint64_t)attr->st_mtim.tv_sec * MC_NS_PER_SEC + (uint64_t)attr->st_mtim.tv_nsec;
	return 0;
}

/* The mount point has no key. cp -a and rsync -a set its time last, which lasts as long as the mount. */
static int set_root(struct mcfs_op *op, struct mcs_attrs *a, unsigned flags)
{
	struct mcfs_inode *in = op->in;
	struct stat st;

	mcfs_stat_inode(op->fs, in, &st);
	if ((a->set & MCS_ATTR_MODE && a->mode != (st.st_mode & 07777)) ||
	    (a->set & MCS_ATTR_UID && a->uid != st.st_uid) || (a->set & MCS_ATTR_GID && a->gid != st.st_gid))
		return mc_fail(-EPERM, "mode and owner of the mount point are options of the mount");
	if (!(a->set & MCS_ATTR_MTIME))
		return 0;
	a->set = MCS_ATTR_MTIME | MCS_ATTR_CTIME;
	a->ctime_ns = mc_wall_ns();
	if (flags & MCS_SET_NOW)
		a->mtime_ns = a->ctime_ns;
	mcfs_inode_set_attrs(&op->fs->inodes, in, a);
	return 0;
}

static int set_attrs(struct mcfs_op *op, const struct stat *attr, int to_set)
{
	struct mcfs_handle *h = op->handle;
	struct mcfs_inode *in = op->in;
	struct mcfs_writer *w;
	struct mcs_attrs a;
	unsigned flags;
	int r = requested_attrs(attr, to_set, &a, &flags);

	if (r == 0 && op->fs->conf.attrs && in == &op->fs->inodes.root)
		return set_root(op, &a, flags);
	if (r == 0)
		r = mcfs_attrs_allowed(op, in);
	if (r < 0)
		return r;
	/* fchmod(2) does not tell the descriptor, but a path is looked up again and then has no writer of another
	 * version. A file without a version is known only by its writer. */
	w = h && h->type == MCFS_WRITE && h->writer ? h->writer : mcfs_handle_writer_seen(op->fs, in);
	if (!w && !in->info.generation && in->kind != MCS_DIR)
		r = -ESTALE;
	else
		r = w ? mcfs_writer_set_attrs(w, &a, flags, op) : mcfs_attrs_change(op, in, &a, NULL, flags);
	if (!h || w != h->writer)
		mcfs_writer_unref(w);
	return r;
}

void mcfs_do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		     struct fuse_file_info *fi)
{
	struct mcfs_op op;
	int r = 0;

	if (!mcfs_op_begin(&op, req, MCFS_OP_setattr, ino, fi))
		return;
	if (!op.in) {
		/* Shells truncate before an open that will fail with its own error. */
		if (to_set & FUSE_SET_ATTR_SIZE)
			control_attr(&op, ino);
		else
			(void)mcfs_reply_err(&op, -EPERM);
		return;
	}
	if (to_set & FUSE_SET_ATTR_SIZE)
		r = set_size(&op, op.in, op.handle, (uint64_t)attr->st_size);
	/* The kernel adds the present time to a new size, and ends set-user-ID: a new version does both. */
	else if (to_set & (SET_ATTRS | SET_TIMES))
		r = set_attrs(&op, attr, to_set);
	/* A version truncated by path is a new version with a new inode. Keep this inode's size:
	 * the file may be open and mapped, and the kernel would cut it off for its readers. */
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		reply_attr(&op, op.in, op.handle, false);
}
