/* SPDX-License-Identifier: Apache-2.0
 * lookup.c - lookup of names. Names are not cached: another node may have created, replaced or removed a name
 * since the last request, and a stale "not found" would be a lost cache hit. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/control/local_service.h"
#include "mcfs/ops/ops.h"

static bool is_missing(int err)
{
	return mcs_errno(err) == ENOENT;
}

/* A directory shows only the attributes of its marker, not size and generation. @info may be &ret->info. */
static void found_dir(const struct mcs_info *info, struct mcfs_found *ret)
{
	const struct mcs_attrs attrs = info->attrs;

	ret->implied = !info->generation;
	ret->info = (struct mcs_info){ .kind = MCS_DIR, .attrs = attrs };
}

int mcfs_find_dir(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret)
{
	struct mcs_key k = mcfs_key_of(key);
	int r, result;

	memset(ret, 0, sizeof(*ret));
	ret->info.kind = MCS_DIR;
	/* The root always exists. A path too long for a key has no marker and no contents. */
	if (key->len == 0)
		return 0;
	if (key->len > MCFS_KEY_MAX)
		return -MCS_ENOOBJECT;
	r = mcs_stat_batch(op->fs->store, &k, 1, &ret->info, &result, mcfs_op_left_ms(op));
	if (r < 0 || result < 0)
		return r < 0 ? r : result;
	found_dir(&ret->info, ret);
	return 0;
}

/* As mcfs_find(). With @ret_open it also tries to open the version that it finds; NULL if that fails. */
static int lookup_find(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret,
		struct mcfs_object **ret_open)
{
	struct mcfs_key dir;
	struct mcs_key keys[2];
	struct mcs_info infos[2];
	unsigned n = 0, file = 2, directory = 2;
	int results[3], r;

	ret->listed = false;
	results[2] = -MCS_ENOOBJECT;
	/* Not the whole struct, most of which is unused. */
	memcpy(dir.data, key->data, key->len);
	dir.len = key->len;
	dir.data[dir.len++] = '/';
	if (mcfs_key_is_object(key)) {
		file = n;
		keys[n++] = mcfs_key_of(key);
	}
	if (dir.len <= MCFS_KEY_MAX && !op->fs->flat) {
		directory = n;
		keys[n++] = mcfs_key_of(&dir);
	}
	if (ret_open && file < n)
		r = mcfs_object_stat(op->fs->store, keys, n, infos, results, op->deadline, ret_open);
	else
		r = n ? mcs_stat_batch(op->fs->store, keys, n, infos, results, mcfs_op_left_ms(op)) : 0;
	if (r < 0)
		return r;
	/* A directory hides an object of the same name. */
	if (results[directory] == 0) {
		found_dir(&infos[directory], ret);
		return 0;
	}
	if (!is_missing(results[directory]))
		return results[directory];
	if (results[file] == 0) {
		ret->implied = false;
		ret->info = infos[file];
	}
	return results[file];
}

int mcfs_find(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret)
{
	return lookup_find(op, key, ret, NULL);
}

/* Look up and open, for a thread that is likely to open the file: 0, and the open version or NULL. */
static int find_to_open(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret,
			struct mcfs_object **ret_open)
{
	int r = lookup_find(op, key, ret, ret_open);

	if (r == 0 && ret->info.kind == MCS_OBJECT)
		return 0;
	mcfs_object_unref(*ret_open);
	*ret_open = NULL;
	/* Failing to open does not mean that the name is missing. */
	return r < 0 ? mcfs_find(op, key, ret) : 0;
}

int mcfs_child_key(struct mcfs *fs, const struct mcfs_inode *parent, const char *name, struct mcfs_key *ret)
{
	int n;

	if (!parent || mcfs_inode_is_view(parent) ||
	    (parent == &fs->inodes.root && (mcfs_name_is_control(name) ||
					    (!fs->flat && mcfs_name_is_shared(name, strlen(name))))))
		return -EPERM;
	if (strlen(name) > fs->name_max)
		return -ENAMETOOLONG;
	if (!fs->flat)
		return mcfs_inode_child_key(&fs->inodes, parent, name, ret);
	n = mcfs_flat_decode(name, true, ret->data, MCFS_KEY_MAX);
	if (n < 0)
		return n == -ENOENT ? mc_fail(-EINVAL, "%s is not the escaped name of any key", name) : n;
	ret->len = (size_t)n;
	return 0;
}

static void lookup_fill(const struct mcfs *fs, const struct mcfs_inode *in, struct fuse_entry_param *ret)
{
	ret->ino = mcfs_inode_nodeid(&fs->inodes, in);
	if (in->kind == MCS_DIR)
		ret->entry_timeout = (double)mcfs_live(&fs->conf.entry_timeout) / 1000;
	ret->attr_timeout = (double)mcfs_live(&fs->conf.attr_timeout) / 1000;
}

/* The inode of a file with several names. */
static __attribute__((noinline)) struct mcfs_inode *lookup_shared(struct mcfs *fs, const struct mcfs_found *found,
								   struct mcs_info *info, bool own)
{
	struct mcfs_key key;

	mcfs_shared_key(fs, info->attrs.ino, &key);
	return mcfs_inode_lookup(&fs->inodes, mcfs_key_of(&key), info, found->listed, false, own);
}

int mcfs_fill_entry(struct mcfs_op *op, const struct mcfs_key *key, const struct mcfs_found *found,
		    bool own, struct fuse_entry_param *ret, struct mcfs_inode **ret_inode)
{
	struct mcs_info info = found->info;
	struct mcfs *fs = op->fs;
	struct mcfs_inode *in;

	if (info.attrs.set & MCS_ATTR_LINKED)
		in = lookup_shared(fs, found, &info, own);
	else
		in = mcfs_inode_lookup(&fs->inodes, mcfs_key_of(key), &info, found->listed, found->implied, own);
	if (!in)
		return -ENOMEM;
	memset(ret, 0, sizeof(*ret));
	lookup_fill(fs, in, ret);
	mcfs_stat_fill(fs, mcfs_inode_ino(in), &info, &ret->attr);
	*ret_inode = in;
	return 0;
}

void mcfs_fill_open_entry(struct mcfs *fs, struct mcfs_inode *in, struct mcfs_writer *w,
			  struct fuse_entry_param *ret)
{
	memset(ret, 0, sizeof(*ret));
	lookup_fill(fs, in, ret);
	if (!w) {
		mcfs_stat_inode(fs, in, &ret->attr);
		return;
	}
	/* Its size changes, so the kernel must not cache it. */
	ret->attr_timeout = 0;
	mcfs_stat_writer(fs, in, w, &ret->attr);
}

void mcfs_reply_created(struct mcfs_op *op, const struct mcfs_key *key, int r)
{
	struct fuse_entry_param e;
	struct mcfs *fs = op->fs;
	struct mcfs_found found;
	struct mcfs_inode *in;

	if (r == 0)
		r = mcfs_find(op, key, &found);
	if (r == 0)
		r = mcfs_fill_entry(op, key, &found, false, &e, &in);
	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else if (mcfs_reply_entry(op, &e) < 0)
		mcfs_inode_forget(&fs->inodes, in, 1);
}

static void lookup_control(struct mcfs_op *op, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { 0 };
	int r;

	r = mcfs_control_lookup(op->fs, name, &e.attr);
	e.ino = e.attr.st_ino;
	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_entry(op, &e);
}

/* Look up a file without a version that is being written on this node: it exists, with its staged
 * size. 1: answered; -ESTALE: a directory was renamed since @moves was counted. */
static int lookup_pending(struct mcfs_op *op, const struct mcfs_key *key, uint64_t moves)
{
	struct mcfs *fs = op->fs;
	struct mcfs_writer *w = mcfs_handle_pending(fs, mcfs_key_of(key));
	struct fuse_entry_param e;
	struct mcfs_inode *in;
	struct mcs_attrs attrs;
	bool gone;
	int r = 1;

	if (!w)
		return 0;
	/* Use a new inode, not the writer's: another writer of this name is another file. */
	in = mcfs_inode_private(&fs->inodes, mcfs_key_of(key), NULL);
	if (in) {
		mcfs_writer_attrs(w, &attrs, &gone);
		mcfs_inode_set_attrs(&fs->inodes, in, &attrs);
	}
	if (!in) {
		(void)mcfs_reply_err(op, -ENOMEM);
	} else if (moves != mcfs_inode_moves(&fs->inodes)) {
		mcfs_inode_forget(&fs->inodes, in, 1);
		r = -ESTALE;
	} else {
		in->writer_serial = w->serial;
		mcfs_fill_open_entry(fs, in, w, &e);
		if (mcfs_reply_entry(op, &e) < 0)
			mcfs_inode_forget(&fs->inodes, in, 1);
	}
	mcfs_writer_unref(w);
	return r;
}

/* Was a directory renamed since @moves was counted?  Then @key becomes the name's present key, perhaps the same: there
 * and back. */
static bool lookup_moved(struct mcfs_op *op, const char *name, uint64_t *moves, struct mcfs_key *key)
{
	if (!mcfs_inode_moved_since(&op->fs->inodes, *moves, op->deadline))
		return false;
	*moves = mcfs_inode_moves(&op->fs->inodes);
	return mcfs_child_key(op->fs, op->in, name, key) == 0;
}

/* Look the key up in the pool and among the writers; 1: answered; -ESTALE: as lookup_pending(). */
static int lookup_in_pool(struct mcfs_op *op, const char *name, bool pin, uint64_t *moves, struct mcfs_key *key,
			  struct mcfs_found *found, struct mcfs_object **ret_open)
{
	uint32_t commits;
	int r, answered;

	do {
		commits = mcfs_commits(&op->fs->versions, key->data, key->len);
		r = pin ? find_to_open(op, key, found, ret_open) : mcfs_find(op, key, found);
		MC_FAULT_POINT("mcfs.lookup.looked");
		if (r < 0 || found->info.kind != MCS_OBJECT)
			mcfs_open_pins_no_file(&op->fs->open_pins, op->ctx.pid, r < 0);
		answered = is_missing(r) ? lookup_pending(op, key, *moves) : 0;
		if (answered)
			return answered;
	} while (is_missing(r) && (commits != mcfs_commits(&op->fs->versions, key->data, key->len) ||
				   lookup_moved(op, name, moves, key)));
	return r;
}

/* A name in a directory; -ESTALE: a directory was renamed meanwhile, try again. */
static int lookup_name(struct mcfs_op *op, const char *name)
{
	uint64_t moves = mcfs_inode_moves(&op->fs->inodes);
	struct mcfs_object *o = NULL;
	struct fuse_entry_param e;
	struct mcfs_found found;
	struct mcfs_inode *in;
	struct mcfs_key key;
	bool retry, pin;
	int r;

	r = mcfs_child_key(op->fs, op->in, name, &key);
	/* A name that is not valid does not exist, and the directory of shared keys is not shown. */
	if (r < 0)
		return r == -EINVAL || r == -EPERM ? -ENOENT : r;
	pin = mcfs_open_pins_lookup(&op->fs->open_pins, mcfs_key_of(&key), op->ctx.pid, &retry);
	r = lookup_in_pool(op, name, pin, &moves, &key, &found, &o);
	if (r > 0)
		return 0;
	if (r == 0 && found.info.kind == MCS_DIR) {
		key.data[key.len++] = '/';
	} else if (r == 0 && found.info.attrs.set & MCS_ATTR_LINKED) {
		/* The open will have this key. */
		mcfs_shared_key(op->fs, found.info.attrs.ino, &key);
		retry = mcfs_open_pins_is_retry(&op->fs->open_pins, mcfs_key_of(&key), op->ctx.pid);
	}
	/* The kernel looks a name up before it creates it. */
	if (is_missing(r) && strlen(name) > op->fs->new_name_max)
		r = -ENAMETOOLONG;
	if (r == 0)
		r = mcfs_fill_entry(op, &key, &found, retry, &e, &in);
	if (r == 0 && moves != mcfs_inode_moves(&op->fs->inodes)) {
		mcfs_inode_forget(&op->fs->inodes, in, 1);
		r = -ESTALE;
	}
	if (r < 0) {
		mcfs_object_unref(o);
		return r;
	}
	if (pin && mcfs_open_pins_keep(&op->fs->open_pins, mcfs_key_of(&key), op->ctx.pid, o))
		mcfs_reply_attend();
	if (mcfs_reply_entry(op, &e) < 0)
		mcfs_inode_forget(&op->fs->inodes, in, 1);
	return 0;
}

void mcfs_do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_lookup, parent, NULL))
		return;
	if (!op.in && parent == MCFS_CONTROL_SEGMENTS) {
		mcfs_service_lookup_segment(&op, name);
		return;
	}
	if (mcfs_is_view(&op, parent)) {
		mcfs_view_lookup(&op, parent, name);
		return;
	}
	if (!op.in || (op.in == &op.fs->inodes.root && mcfs_name_is_control(name))) {
		lookup_control(&op, parent, name);
		return;
	}
	do
		r = lookup_name(&op, name);
	while (r == -ESTALE && mc_now_ns() < op.deadline);
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
}

static void lookup_forget(struct mcfs *fs, fuse_ino_t ino, uint64_t n)
{
	if (!mcfs_is_control(ino))
		mcfs_inode_forget(&fs->inodes, mcfs_inode_at(&fs->inodes, ino), n);
}

void mcfs_do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	lookup_forget(mcfs_of(req), ino, n);
	fuse_reply_none(req);
}

void mcfs_do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct mcfs *fs = mcfs_of(req);

	for (size_t i = 0; i < count; i++)
		lookup_forget(fs, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}
