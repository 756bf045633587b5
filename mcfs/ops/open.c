/* SPDX-License-Identifier: Apache-2.0
 * open.c - open and create. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "mcfs/control/control.h"
#include "mcfs/read/ahead.h"
#include "mcfs/life/handoff.h"
#include "mcfs/handle.h"
#include "mcfs/control/local_service.h"
#include "mcfs/ops/ops.h"
#include "mcfs/control/feed.h"

/* maximum age of the pool's limit */
#define LIMIT_AGE_MS 1000

void mcfs_refresh_limit(struct mcfs_op *op)
{
	struct mcfs *fs = op->fs;
	uint64_t now = mc_now_ms(), was = __atomic_load_n(&fs->limit_read_ms, __ATOMIC_RELAXED);
	int64_t ms = mcfs_op_left_ms(op);
	struct mcs_pool pool;
	uint64_t max;

	if (was && now - was < LIMIT_AGE_MS)
		return;
	/* One thread asks, the others use the known limit. */
	if (!__atomic_compare_exchange_n(&fs->limit_read_ms, &was, now, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	if (mcs_pool_stat(fs->store, &pool, ms < LIMIT_AGE_MS ? ms : LIMIT_AGE_MS) < 0)
		return;
	mcfs_writeback_pool_set_capacity(fs->versions.writeback_pool, pool.capacity);
	/* If the pool has no memory, the put reports that. */
	max = pool.largest_put && pool.largest_put < MCFS_SIZE_MAX ? pool.largest_put :
		MCFS_SIZE_MAX;
	__atomic_store_n(&fs->versions.max_size, max, __ATOMIC_RELAXED);
}

static void set_io_flags(const struct mcfs *fs, struct fuse_file_info *fi, bool reader)
{
	fi->direct_io = fs->conf.direct_io;
	/* This saves a request per file read. Consequence: record locks of such a descriptor stay
	 * until its last close or the end of its process (lock.c), regardless of which other
	 * descriptors the process closes. */
	fi->noflush = reader;
}

/* Kills of writers in other pid namespaces cannot be detected. */
static void warn_of_foreign_namespace(const struct mcfs_op *op)
{
	static bool warned;

	if (op->ctx.pid || __atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))
		return;
	mc_warn("mcfs", "a process of another pid namespace writes: if it is killed, its incomplete file is "
		"published nevertheless, see mcfs(5); run the daemon in the host's pid namespace");
}

static bool is_text(const struct mcfs_handle *h)
{
	return h->type == MCFS_TEXT || h->type == MCFS_LINES;
}

static void reply_handle(struct mcfs_op *op, struct fuse_file_info *fi, struct mcfs_handle *h)
{
	fi->fh = mcfs_handle_number(op->fs, h);
	if (!fi->fh) {
		mcfs_handle_unref(op->fs, h);
		(void)mcfs_reply_err(op, -ENOMEM);
		return;
	}
	set_io_flags(op->fs, fi, h->type != MCFS_WRITE);
	/* The size of a generated text is unknown before it is read. */
	if (is_text(h) || h->shared_inode)
		fi->direct_io = 1;
	fi->nonseekable = h->type == MCFS_LINES;
	if (mcfs_reply_open(op, fi, true) < 0)
		mcfs_handle_unref(op->fs, h);
}

static int open_control(struct mcfs_op *op, fuse_ino_t ino, int flags, struct mcfs_handle **ret)
{
	struct mcfs_handle *h;
	int r, feed;

	if ((flags & O_ACCMODE) != O_RDONLY && ino != MCFS_CONTROL_CTL)
		return -EACCES;
	feed = mcfs_control_feed(ino);
	h = mcfs_handle_new(op->fs, feed < 0 ? MCFS_TEXT : MCFS_LINES);
	if (!h)
		return -ENOMEM;
	h->nonblock = flags & O_NONBLOCK;
	if (feed < 0)
		r = mcfs_control_read(op->fs, ino, &h->text, &h->text_len);
	else
		r = mcfs_feed_open(op->fs, (enum mcfs_feed_kind)feed, &h->feed);
	if (r < 0) {
		mcfs_handle_unref(op->fs, h);
		return r;
	}
	*ret = h;
	return 0;
}

/* ---- opening an existing file ---- */

struct opening {
	struct mcfs_op *op;
	struct mcfs_inode *inode;
	const struct mcfs_key *key;
	int flags;
	bool retry;			/* the kernel's retry, which it does only once (open_pins.h) */
	struct mcfs_object *pinned;	/* the version, if the lookup pinned it, or NULL */
};

/* Pin the version that the kernel looked up. */
static int open_version(struct opening *p, struct mcfs_object **ret)
{
	struct mcfs_object *o = TAKE_PTR(p->pinned);
	int r = o ? 0 : mcfs_object_open(p->op->fs->store, mcfs_key_of(p->key), p->op->deadline, &o);

	if (r < 0)
		return r;
	/* Replaced since the lookup: the kernel retries. */
	if (mcfs_object_info(o)->generation != p->inode->info.generation) {
		mcfs_object_unref(o);
		return -ESTALE;
	}
	*ret = o;
	return 0;
}

static int open_reader(struct opening *p, struct mcfs_handle **ret)
{
	struct mcfs *fs = p->op->fs;
	struct mcfs_inode *in = p->inode;
	struct mcfs_handle *h;
	int r;

	/* A file is readable only after its first commit. If that happened since the lookup, the
	 * kernel retries once. */
	if (!in->info.generation) {
		struct mcfs_writer *w = mcfs_handle_writer_seen(fs, in);

		r = p->retry || (w && mcfs_writer_pending(w)) ? -EBUSY : -ESTALE;
		mcfs_writer_unref(w);
		return r;
	}
	h = mcfs_handle_new(fs, MCFS_READ);
	if (!h)
		return -ENOMEM;
	r = mcfs_inode_open_reader(&fs->inodes, in, &h->object);
	if (r < 0)
		goto fail;
	h->inode = in;
	/* Otherwise other readers have the version open: share theirs. */
	if (!h->object) {
		r = open_version(p, &h->object);
		if (r < 0)
			goto fail;
		mcfs_inode_share(&fs->inodes, in, h->object);
	}
	h->ahead = mcfs_ahead_new(fs->pool, h->object, mcfs_timeout_ms(fs));
	*ret = h;
	return 0;
fail:
	mcfs_handle_unref(fs, h);
	return r;
}

/* The writer is registered, so a later link of this mount gives it the shared key.  Did the file get that before, here
 * or on another node, after it was looked up?  The kernel looks it up again after ESTALE. */
static int check_unlinked(struct opening *p, const struct mcfs_object *base)
{
	struct mcfs_key shared;

	if (!p->inode->info.generation || mcfs_key_is_shared(p->key->data, p->key->len))
		return 0;
	if ((base && mcfs_object_info(base)->attrs.set & MCS_ATTR_LINKED) || mcfs_link_find(p->op, p->key, &shared))
		return mc_fail(-ESTALE, "the file got a second name");
	return 0;
}

static int open_writer(struct opening *p, struct mcfs_handle **ret)
{
	struct mcfs_op *op = p->op;
	struct mcfs *fs = op->fs;
	struct mcfs_inode *in = p->inode;
	struct mcs_attrs attrs;
	struct mcfs_writer_args args = {
		.inode = in, .generation = in->info.generation,
		.tid = op->ctx.pid, .uid = op->ctx.uid, .attrs = &attrs,
	};
	/* A retried open that finds a writer again did no lookup: it opens a path in /proc/self/fd.
	 * The kernel does not retry twice, so let both writers share the inode. A write-only
	 * descriptor cannot be mapped, so it adds no pages to the other's page cache. */
	bool share = p->retry && (p->flags & O_ACCMODE) == O_WRONLY, gone;
	struct mcfs_writer *w = NULL;
	struct mcfs_handle *h;
	int r;

	if (mcfs_live(&fs->conf.immutable) && in->info.generation)
		return -EPERM;
	mcfs_refresh_limit(op);
	warn_of_foreign_namespace(op);
	h = mcfs_handle_new(fs, MCFS_WRITE);
	if (!h)
		return -ENOMEM;
	r = mcfs_inode_open_writer(&fs->inodes, in, share);
	if (r < 0)
		goto out;
	h->inode = in;
	h->shared_inode = r;
	r = 0;
	/* Immutable: the commit must not replace any file, including one that appears before the close. */
	if (mcfs_live(&fs->conf.immutable))
		args.flags |= MCFS_WRITER_EXCL;
	if (p->flags & O_TRUNC)
		args.flags |= MCFS_WRITER_FRESH;
	else if (in->info.generation && in->info.size)
		r = open_version(p, &args.base);
	/* The file was removed since the lookup: a new lookup decides what the open means. */
	if (mcs_errno(r) == ENOENT)
		r = -ESTALE;
	if (r < 0)
		goto out;
	/* The inode was looked up by name only, so the kernel may have the size of another writer. */
	if (!in->info.generation)
		mcfs_inode_set_kernel_size_stale(&fs->inodes, in);
	(void)mcfs_inode_attrs(&fs->inodes, in, &attrs, &gone);
	/* Two writers of a new file give it the same attributes. */
	if (!in->info.generation && (w = mcfs_handle_writer_seen(fs, in)))
		mcfs_writer_attrs(w, &attrs, &gone);
	mcfs_writer_unref(w);
	args.key = p->key->data;
	args.len = p->key->len;
	r = mcfs_writer_new(&fs->versions, &args, &h->writer);
	if (r == 0)
		r = check_unlinked(p, args.base);
	if (r == 0 && (p->flags & O_TRUNC)) {
		mcfs_inode_hide(&fs->inodes, in);
		h->unsaved = true;
	}
out:
	mcfs_object_unref(args.base);
	if (r < 0)
		mcfs_handle_unref(fs, h);
	else
		*ret = h;
	return r;
}

/* The inode's file under its present name; for a reader a directory may get another name meanwhile. */
static int open_named(struct opening *p, bool reads, struct mcfs_key *key, struct mcfs_handle **ret)
{
	struct mcfs_inodes *t = &p->op->fs->inodes;
	uint64_t moves;
	int r;

	do {
		moves = mcfs_inode_moves(t);
		mcfs_inode_open_key(t, p->inode, key);
		r = reads ? open_reader(p, ret) : open_writer(p, ret);
	} while (mcs_errno(r) == ENOENT && mcfs_inode_moved_since(t, moves, p->op->deadline) &&
		 mc_now_ns() < p->op->deadline);
	return r;
}

static int open_object(struct mcfs_op *op, struct mcfs_inode *in, int flags, struct mcfs_handle **ret)
{
	struct mcfs_key key;
	struct opening p = { .op = op, .inode = in, .key = &key, .flags = flags };
	struct mcfs *fs = op->fs;
	bool reads, wanted;
	int r;

	if (in->kind != MCS_OBJECT)
		return in->kind == MCS_DIR ? -EISDIR : -ELOOP;
	reads = (flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC);
	r = reads ? 0 : mcfs_op_share_tree(op);
	if (r < 0)
		return r;
	mcfs_inode_open_key(&fs->inodes, in, &key);
	wanted = in->info.generation && (reads || (!(flags & O_TRUNC) && in->info.size));
	p.retry = mcfs_open_pins_open(&fs->open_pins, mcfs_key_of(&key), op->ctx.pid, in->info.generation, wanted,
				      &p.pinned);
	r = open_named(&p, reads, &key, ret);
	mcfs_object_unref(p.pinned);
	if (mcs_errno(r) == ESTALE && mcfs_open_pins_retry(&fs->open_pins, mcfs_key_of(&key), op->ctx.pid))
		mcfs_reply_attend();
	return r;
}

void mcfs_do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = NULL;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_open, ino, NULL))
		return;
	if (!op.in && mcfs_is_segment(ino)) {
		mcfs_service_open_segment(&op, ino, fi);
		return;
	}
	r = op.in ? open_object(&op, op.in, fi->flags, &h) : open_control(&op, ino, fi->flags, &h);
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else
		reply_handle(&op, fi, h);
}

/* ---- creating ---- */

/* Create an empty version. */
static int make_version(struct mcfs_op *op, const struct mcfs_key *key, const struct mcs_attrs *attrs, int flags,
			struct mcfs_object **ret)
{
	struct mcs_put_opts opts = { .flags = MCS_PUT_EXCL, .kind = MCS_OBJECT, .attrs = attrs };
	mcs_t *store = op->fs->store;
	int r = mc_fault("mcfs.open.make");

	if (r == 0)
		r = mcfs_op_claim(op, MCFS_UNLESS_KILLED) ?
			mcs_put(store, mcfs_key_of(key), NULL, 0, &opts, mcfs_op_left_ms(op)) : -EINTR;
	/* Another client created it first: the kernel retries once and opens that version. */
	if (mcs_errno(r) == EEXIST && !(flags & O_EXCL))
		return -ESTALE;
	if (r < 0)
		return r;
	r = mcfs_object_open(store, mcfs_key_of(key), op->deadline, ret);
	if (r < 0)
		return mcs_errno(r) == ENOENT ? -ESTALE : r;
	if (mcfs_object_info(*ret)->kind == MCS_OBJECT)
		return 0;
	mcfs_object_unref(*ret);
	return -ESTALE;
}

/* Create a file with a read-only descriptor, as lock files are. It can never be written, so publish
 * it empty and open it as a reader. */
static int create_to_read(struct mcfs_op *op, const struct mcfs_key *key, const struct mcs_attrs *attrs, int flags,
			  struct mcfs_inode **ret_inode, struct mcfs_handle **ret)
{
	struct mcfs *fs = op->fs;
	struct mcfs_object *o, *none;
	struct mcfs_handle *h;
	struct mcfs_inode *in;
	int r = make_version(op, key, attrs, flags, &o);

	if (r < 0)
		return r;
	h = mcfs_handle_new(fs, MCFS_READ);
	in = mcfs_inode_private(&fs->inodes, mcfs_key_of(key), mcfs_object_info(o));
	if (in)
		mcfs_inode_set_attrs(&fs->inodes, in, &mcfs_object_info(o)->attrs);
	if (!h || !in)
		goto fail;
	/* Cannot fail: a new inode has no writer. */
	(void)mcfs_inode_open_reader(&fs->inodes, in, &none);
	h->inode = in;
	h->object = o;
	o = NULL;
	mcfs_inode_share(&fs->inodes, in, h->object);
	h->ahead = mcfs_ahead_new(fs->pool, h->object, mcfs_timeout_ms(fs));
	if (!mcfs_handle_number(fs, h))
		goto fail;
	*ret_inode = in;
	*ret = h;
	return 0;
fail:
	mcfs_object_unref(o);
	mcfs_handle_unref(fs, h);
	if (in)
		mcfs_inode_forget(&fs->inodes, in, 1);
	return -ENOMEM;
}

static int open_create(struct mcfs_op *op, const struct mcfs_key *key, const struct mcs_attrs *attrs, int flags,
		  struct mcfs_inode **ret_inode, struct mcfs_handle **ret)
{
	struct mcfs *fs = op->fs;
	struct mcfs_writer_args args = {
		.key = key->data, .len = key->len, .flags = MCFS_WRITER_FRESH,
		.tid = op->ctx.pid, .uid = op->ctx.uid, .attrs = attrs,
	};
	struct mcfs_handle *h = mcfs_handle_new(fs, MCFS_WRITE);
	struct mcfs_inode *in = mcfs_inode_private(&fs->inodes, mcfs_key_of(key), NULL);
	int r = h && in ? 0 : -ENOMEM;

	if ((flags & O_EXCL) || mcfs_live(&fs->conf.immutable))
		args.flags |= MCFS_WRITER_EXCL;
	if (in)
		mcfs_inode_set_attrs(&fs->inodes, in, attrs);
	args.inode = in;
	warn_of_foreign_namespace(op);
	if (r == 0)
		r = mcfs_inode_open_writer(&fs->inodes, in, false);
	if (r == 0) {
		h->inode = in;
		h->unsaved = true;
		r = mcfs_writer_new(&fs->versions, &args, &h->writer);
	}
	if (r == 0 && !mcfs_handle_number(fs, h))
		r = -ENOMEM;
	if (r < 0) {
		if (h && h->writer)
			mcfs_writer_revoke(h->writer);
		mcfs_handle_unref(fs, h);
		if (in)
			mcfs_inode_forget(&fs->inodes, in, 1);
		return r;
	}
	*ret_inode = in;
	*ret = h;
	return 0;
}

void mcfs_do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		    struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	struct mcs_attrs attrs;
	struct mcfs_handle *h = NULL;
	struct mcfs_inode *in = NULL;
	struct mcfs_key key;
	struct mcfs_op op;
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_create, parent, NULL))
		return;
	r = mcfs_op_share_tree(&op);
	if (r == 0)
		r = mcfs_child_key(op.fs, op.in, name, &key);
	if (r == 0 && !mcfs_key_is_object(&key))
		r = mc_fail(-EINVAL, "an object's key is not empty and does not end in '/'");
	if (r == 0) {
		mcfs_refresh_limit(&op);
		mcfs_attrs_new(&op, op.in, MCS_OBJECT, mode, &attrs);
		if ((fi->flags & O_ACCMODE) == O_RDONLY)
			r = create_to_read(&op, &key, &attrs, fi->flags, &in, &h);
		else
			r = open_create(&op, &key, &attrs, fi->flags, &in, &h);
	}
	if (mcs_errno(r) == ESTALE && mcfs_open_pins_retry(&op.fs->open_pins, mcfs_key_of(&key), op.ctx.pid))
		mcfs_reply_attend();
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	mcfs_fill_open_entry(op.fs, in, h->writer, &e);
	/* Only this descriptor uses the inode, so the kernel knows all its changes. */
	e.attr_timeout = (double)mcfs_live(&op.fs->conf.attr_timeout) / 1000;
	fi->fh = mcfs_handoff() ? h->number : (uintptr_t)h;
	set_io_flags(op.fs, fi, h->type != MCFS_WRITE);
	if (mcfs_reply_create(&op, &e, fi, true) < 0) {
		/* The caller received no descriptor: undo the creation. */
		if (h->writer)
			mcfs_writer_revoke(h->writer);
		mcfs_handle_unref(op.fs, h);
		mcfs_inode_forget(&op.fs->inodes, in, 1);
	}
}
