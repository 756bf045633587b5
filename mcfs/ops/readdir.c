/* SPDX-License-Identifier: Apache-2.0
 * readdir.c - directory listings, streamed from the master page by page.
 *
 * Offsets count entries. The kernel may request entries again that did not fit into the program's buffer: the
 * entries of the last answer are kept for that. A seek further back starts a new listing and skips entries. */
#include <config.h>

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/control/local_service.h"
#include "mcfs/read/local_objects.h"
#include "mcfs/ops/ops.h"

struct entry {
	uint64_t index;		/* position in the listing; the offset behind it is one more */
	enum mcs_kind kind;
	uint64_t size, generation, mtime_ms;
	uint64_t asked_ns;	/* when the master was asked for it; 0: it was not */
	struct mcs_attrs attrs;
	char *name;		/* as displayed */
	size_t comp_len;
	char *comp;		/* as in the key; stored behind the name */
};

/* Hashes of the subdirectories' names: a directory hides an object of the same name. */
struct seen {
	uint64_t *hash;		/* 0: free */
	size_t cap, n;
};

struct mcfs_dir {
	struct mc_mutex lock;
	/* guarded by lock */
	struct mcfs_key key;
	struct mcfs_key child;	/* scratch: key, followed by the current entry's name */
	bool top;
	bool flat;		/* names are whole keys */
	bool pending_too;	/* also list files without a version */
	bool local;		/* list only objects with a copy on this node */
	bool nothing;
	/* both NULL: not started, or at the end */
	mcs_list_t *list;
	struct mcfs_local_list *local_list;
	bool begun;
	/* time left for the current request when it began; avoids reading the clock per entry */
	int64_t left_ms;
	uint64_t next;		/* index of the next entry of the listing */
	uint64_t max;		/* limit of next, 0: none */
	struct mcfs_inode *in;		/* one reference; NULL: a directory below .mcfs without an inode */
	uint64_t moves;			/* mcfs_inode_moves() when it had the key */
	bool cached;			/* the kernel caches the listing */
	uint64_t opened_ms;
	struct entry *window;	/* entries of the last answer, in order */
	size_t nwindow, cap_window;
	struct seen dirs;
	struct entry *pending;	/* files being written on this node, not listed yet */
	size_t npending, pending_at;
};

/* "." and ".." come first. */
#define FIRST_INDEX 2u

static void free_entries(struct entry *e, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(e[i].name);
}

static void close_lists(struct mcfs_dir *d)
{
	mcs_list_close(d->list);
	mcfs_local_list_close(d->local_list);
	d->list = NULL;
	d->local_list = NULL;
}

static void dir_rewind(struct mcfs_dir *d)
{
	close_lists(d);
	d->begun = false;
	free_entries(d->window, d->nwindow);
	d->nwindow = 0;
	free_entries(d->pending, d->npending);
	free(d->pending);
	d->pending = NULL;
	d->npending = d->pending_at = 0;
	free(d->dirs.hash);
	memset(&d->dirs, 0, sizeof(d->dirs));
	d->next = FIRST_INDEX;
}

void mcfs_dir_free(struct mcfs *fs, struct mcfs_dir *d)
{
	if (!d)
		return;
	dir_rewind(d);
	if (d->in)
		mcfs_inode_unref(&fs->inodes, d->in);
	free(d->window);
	mc_mutex_destroy(&d->lock);
	free(d);
}

/* ---- the names of subdirectories ---- */

static size_t seen_index(const struct seen *s, uint64_t hash)
{
	size_t at = hash & (s->cap - 1);

	while (s->hash[at] && s->hash[at] != hash)
		at = (at + 1) & (s->cap - 1);
	return at;
}

static uint64_t seen_hash(const char *comp, size_t len)
{
	uint64_t h = mc_hash(comp, len, 0);

	return h ? h : 1;
}

static bool seen_has(const struct seen *s, const char *comp, size_t len)
{
	return s->n && s->hash[seen_index(s, seen_hash(comp, len))];
}

static int seen_add(struct seen *s, const char *comp, size_t len)
{
	uint64_t h = seen_hash(comp, len);

	if (2 * (s->n + 1) > s->cap) {
		struct seen more = { .cap = s->cap ? 2 * s->cap : 64, .n = s->n };

		more.hash = calloc(more.cap, sizeof(*more.hash));
		if (!more.hash)
			return -ENOMEM;
		for (size_t i = 0; i < s->cap; i++)
			if (s->hash[i])
				more.hash[seen_index(&more, s->hash[i])] = s->hash[i];
		free(s->hash);
		*s = more;
	}
	s->hash[seen_index(s, h)] = h;
	s->n++;
	return 0;
}

/* ---- the listing ---- */

static int make_entry(struct mcfs *fs, const struct mcfs_dir *d, const void *comp, size_t len,
		      struct entry *ret)
{
	char name[3 * MCFS_KEY_MAX + 1];
	int n = d->flat ? mcfs_flat_encode(comp, len, d->top, name, sizeof(name)) :
		mcfs_name_encode(comp, len, d->top, name, sizeof(name));

	/* Skip names that the kernel cannot accept, because it would fail the whole directory: names that are
	 * too long, and names with a slash, which are below the levels that the master separates. */
	if (n < 0 || (unsigned)n > fs->name_max || (!d->flat && memchr(comp, '/', len)))
		return 0;
	memset(ret, 0, sizeof(*ret));
	ret->name = malloc((size_t)n + 1 + len);
	if (!ret->name)
		return -ENOMEM;
	memcpy(ret->name, name, (size_t)n + 1);
	ret->comp = ret->name + n + 1;
	ret->comp_len = len;
	memcpy(ret->comp, comp, len);
	return 1;
}

/* Collect the files in this directory that have no version yet. The listing ends with those that
 * it did not contain before. */
static int collect_pending(struct mcfs *fs, struct mcfs_dir *d)
{
	struct mcfs_version_env *env = &fs->versions;
	struct mc_list *pos;
	int r = 0;

	MC_LOCKED(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);
		struct entry *more, e;

		if (!w->inode || !mcfs_writer_pending(w) || w->inode->info.generation ||
		    w->key_len <= d->key.len || memcmp(w->key, d->key.data, d->key.len) != 0 ||
		    (!d->flat && memchr(w->key + d->key.len, '/', w->key_len - d->key.len)))
			continue;
		r = make_entry(fs, d, w->key + d->key.len, w->key_len - d->key.len, &e);
		if (r <= 0)
			continue;
		e.kind = MCS_OBJECT;
		e.size = __atomic_load_n(&w->shown_size, __ATOMIC_RELAXED);
		e.mtime_ms = __atomic_load_n(&w->mtime_ms, __ATOMIC_RELAXED);
		more = realloc(d->pending, (d->npending + 1) * sizeof(*more));
		if (!more) {
			free(e.name);
			return -ENOMEM;
		}
		d->pending = more;
		more[d->npending++] = e;
	}
	return r < 0 ? r : 0;
}

/* The listing has this name: do not list it again at the end. */
static void dir_listed(struct mcfs_dir *d, const char *comp, size_t len)
{
	for (size_t i = 0; i < d->npending; i++) {
		struct entry *e = &d->pending[i];

		if (!e->name || e->comp_len != len || memcmp(e->comp, comp, len) != 0)
			continue;
		free(e->name);
		e->name = NULL;
	}
}

static void dir_copy_key(struct mcfs *fs, struct mcfs_dir *d)
{
	if (!d->in)
		return;
	d->moves = mcfs_inode_moves(&fs->inodes);
	mcfs_inode_key(&fs->inodes, d->in, &d->key);
	memcpy(d->child.data, d->key.data, d->key.len);
}

static int dir_begin(struct mcfs_op *op, struct mcfs_dir *d)
{
	int r;

	dir_copy_key(op->fs, d);
	r = d->pending_too ? collect_pending(op->fs, d) : 0;
	if (r == 0 && d->local)
		r = mcfs_local_list_open(op->fs->store, mcfs_key_of(&d->key), !d->flat, &d->local_list);
	else if (r == 0 && !d->nothing)
		r = mcs_list_open(op->fs->store, mcfs_key_of(&d->key), !d->flat, &d->list);
	if (r == 0)
		d->begun = true;
	return r;
}

/* The next entry to show: 1, 0 at the end, or negative. */
static int next_entry(struct mcfs_op *op, struct mcfs_dir *d, struct entry *ret)
{
	struct mcs_entry e;
	int r = d->begun ? 0 : dir_begin(op, d);

	if (r < 0)
		return r;
	while (d->list || d->local_list) {
		r = d->local_list ? mcfs_local_list_next(d->local_list, &e, d->left_ms) :
			mcs_list_next(d->list, &e, d->left_ms);
		if (r < 0)
			return r;
		if (r == 0) {
			close_lists(d);
			break;
		}
		/* Directory markers are not objects. */
		if (d->flat && (e.kind == MCS_DIR || !e.name.len))
			continue;
		if (d->in == &op->fs->inodes.root && mcfs_name_is_shared(e.name.data, e.name.len))
			continue;
		if (e.kind != MCS_DIR && seen_has(&d->dirs, e.name.data, e.name.len))
			continue;
		if (e.kind == MCS_DIR && seen_add(&d->dirs, e.name.data, e.name.len) < 0)
			return -ENOMEM;
		dir_listed(d, e.name.data, e.name.len);
		r = make_entry(op->fs, d, e.name.data, e.name.len, ret);
		if (r == 0)
			continue;
		ret->kind = e.kind;
		ret->size = e.size;
		ret->generation = e.generation;
		ret->mtime_ms = e.mtime_ms;
		ret->attrs = e.attrs;
		ret->asked_ns = e.asked_ns;
		return r;
	}
	while (d->pending_at < d->npending) {
		*ret = d->pending[d->pending_at];
		d->pending[d->pending_at++].name = NULL;
		if (ret->name)
			return 1;
	}
	return 0;
}

/* Read entry @index into the window: *ret is valid until the next call. 1, 0 at the end, or negative. */
static int entry_at(struct mcfs_op *op, struct mcfs_dir *d, uint64_t index, struct entry **ret)
{
	struct entry e, *more;
	int r;

	if (d->nwindow && index >= d->window[0].index && index < d->next) {
		*ret = &d->window[index - d->window[0].index];
		return 1;
	}
	if (index < d->next)
		dir_rewind(d);
	for (;;) {
		r = next_entry(op, d, &e);
		if (r <= 0)
			return r;
		if (d->max && d->next >= d->max) {
			free(e.name);
			dir_rewind(d);
			(void)mc_fail(-EFBIG, "the directory has more names than list_max=%llu",
				      (unsigned long long)(d->max - FIRST_INDEX));
			return -EFBIG;
		}
		e.index = d->next++;
		if (e.index == index)
			break;
		free(e.name);
	}
	if (d->nwindow == d->cap_window) {
		size_t cap = d->cap_window ? 2 * d->cap_window : 64;

		more = realloc(d->window, cap * sizeof(*more));
		if (!more) {
			free(e.name);
			dir_rewind(d);
			return -ENOMEM;
		}
		d->window = more;
		d->cap_window = cap;
	}
	d->window[d->nwindow] = e;
	*ret = &d->window[d->nwindow++];
	return 1;
}

/* Free the entries before @index, which the kernel no longer requests. */
static void drop_before(struct mcfs_dir *d, uint64_t index)
{
	size_t n = 0;

	while (n < d->nwindow && d->window[n].index < index)
		n++;
	if (!n)
		return;
	free_entries(d->window, n);
	d->nwindow -= n;
	memmove(d->window, d->window + n, d->nwindow * sizeof(*d->window));
}

/* ---- answers ---- */

struct answer {
	struct mcfs_op *op;
	char *buf;
	size_t size, len;
	bool plus;
};

/* False: the buffer is full. */
static bool add_plain(struct answer *a, const char *name, const struct stat *st, uint64_t next)
{
	size_t n;

	/* Without a node id, which "." and ".." lack, the kernel does not count the entry as a lookup. */
	if (a->plus) {
		struct fuse_entry_param e = { .attr = *st };

		n = fuse_add_direntry_plus(a->op->req, a->buf + a->len, a->size - a->len, name, &e,
					   (off_t)next);
	} else {
		n = fuse_add_direntry(a->op->req, a->buf + a->len, a->size - a->len, name, st, (off_t)next);
	}
	if (n > a->size - a->len)
		return false;
	a->len += n;
	return true;
}

/* Whole key of an entry; NULL: too long for a key. */
static const struct mcfs_key *entry_key(struct mcfs_dir *d, const struct entry *e)
{
	const size_t dir = d->flat ? 0 : d->key.len;
	struct mcfs_key *k = &d->child;

	if (dir + e->comp_len + 1 > MCFS_KEY_MAX + 1)
		return NULL;
	k->len = dir + e->comp_len;
	memcpy(k->data + dir, e->comp, e->comp_len);
	if (e->kind == MCS_DIR)
		k->data[k->len++] = '/';
	return k;
}

/* The kernel may use an entry only as long as one that the master gave just now. */
static void entry_age(struct fuse_entry_param *e, uint64_t now_ns, uint64_t asked_ns)
{
	double age = asked_ns && now_ns > asked_ns ? (double)(now_ns - asked_ns) / MC_NS_PER_SEC : 0;

	e->attr_timeout = e->attr_timeout > age ? e->attr_timeout - age : 0;
	e->entry_timeout = e->entry_timeout > age ? e->entry_timeout - age : 0;
}

/* Does the directory have another key than its listing? */
static bool dir_moved(struct mcfs *fs, struct mcfs_dir *d)
{
	uint64_t moves = mcfs_inode_moves(&fs->inodes);
	struct mcfs_key now;

	if (!d->in || moves == d->moves)
		return false;
	mcfs_inode_key(&fs->inodes, d->in, &now);
	if (!mcfs_key_equal(&now, &d->key))
		return true;
	d->moves = moves;
	return false;
}

static bool add_entry(struct answer *a, struct mcfs_dir *d, const struct entry *e)
{
	struct mcfs_found found = { .info = {
		.size = e->size, .generation = e->generation, .mtime_ms = e->mtime_ms,
		.kind = e->kind, .attrs = e->attrs,
	}, .listed = true };
	struct fuse_entry_param param;
	const struct mcfs_key *key = entry_key(d, e);
	struct mcfs_inode *in = NULL;
	struct stat st;
	size_t n;

	if (!key)
		return true;
	/* Lookup of a file being written would return a new inode, so leave that to the program. */
	if (a->plus && (e->kind == MCS_DIR || e->generation) &&
	    mcfs_fill_entry(a->op, key, &found, false, &param, &in) < 0)
		in = NULL;
	/* The kernel would make changes through an inode with an outdated key. */
	if (in && dir_moved(a->op->fs, d)) {
		mcfs_inode_forget(&a->op->fs->inodes, in, 1);
		in = NULL;
	}
	if (!in) {
		mcfs_stat_fill(a->op->fs, mcfs_inode_number(mcfs_key_of(key), &found.info.attrs), &found.info, &st);
		return add_plain(a, e->name, &st, e->index + 1);
	}
	entry_age(&param, a->op->start_ns, e->asked_ns);
	n = fuse_add_direntry_plus(a->op->req, a->buf + a->len, a->size - a->len, e->name, &param,
				   (off_t)(e->index + 1));
	if (n > a->size - a->len) {
		mcfs_inode_forget(&a->op->fs->inodes, in, 1);
		return false;
	}
	a->len += n;
	return true;
}

static int dir_fill(struct answer *a, struct mcfs_dir *d, uint64_t offset)
{
	static const char *const dots[] = { ".", ".." };
	struct entry *e;
	struct stat st;
	int r;

	mcfs_stat_entry(a->op->fs, FUSE_ROOT_ID, MCS_DIR, 0, 0, &st);
	for (; offset < FIRST_INDEX; offset++)
		if (!add_plain(a, dots[offset], &st, offset + 1))
			return 0;
	drop_before(d, offset);
	for (;; offset++) {
		r = entry_at(a->op, d, offset, &e);
		if (r == 0 && d->cached)
			mcfs_inode_set_listed(&a->op->fs->inodes, d->in, d->opened_ms);
		/* Return the entries so far; the next call reports the error. */
		if (r <= 0)
			return a->len ? 0 : r;
		if (!add_entry(a, d, e))
			return 0;
	}
}

/* Name @i of a directory below .mcfs. */
static const char *control_name(const struct mcfs *fs, fuse_ino_t dir, unsigned i, uint64_t *ret_ino)
{
	if (dir == MCFS_CONTROL_SEGMENTS)
		return mcfs_service_segment_name(fs, i, ret_ino);
	/* The prefixes cannot be listed: any string is one. */
	return dir == MCFS_CONTROL_PREFIX ? NULL : mcfs_control_name(fs, i, ret_ino);
}

static int fill_control(struct answer *a, fuse_ino_t dir, uint64_t offset)
{
	static const char *const dots[] = { ".", ".." };
	const char *name;
	uint64_t ino;
	struct stat st;

	(void)mcfs_control_stat(a->op->fs, MCFS_CONTROL_DIR, &st);
	for (; offset < FIRST_INDEX; offset++)
		if (!add_plain(a, dots[offset], &st, offset + 1))
			return 0;
	while ((name = control_name(a->op->fs, dir, (unsigned)(offset - FIRST_INDEX), &ino))) {
		(void)mcfs_control_stat(a->op->fs, ino, &st);
		if (!add_plain(a, name, &st, ++offset))
			break;
	}
	return 0;
}

/* The kernel did not accept the answer: undo its lookups. */
static void forget_answer(struct mcfs *fs, const struct answer *a)
{
	for (size_t at = 0; a->plus && at < a->len;) {
		const struct fuse_direntplus *e = (const void *)(a->buf + at);

		if (e->entry_out.nodeid)
			mcfs_inode_forget(&fs->inodes, mcfs_inode_at(&fs->inodes, e->entry_out.nodeid), 1);
		at += FUSE_DIRENTPLUS_SIZE(e);
	}
}

static void answer_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, uint64_t offset,
		    struct fuse_file_info *fi, bool plus)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;
	struct answer a = { .op = &op, .size = size < MCFS_SLOT ? size : MCFS_SLOT, .plus = plus };
	int r;

	if (!mcfs_op_begin(&op, req, MCFS_OP_readdir, ino, fi))
		return;
	a.buf = mcfs_compat_buffer();
	r = a.buf ? mcfs_handle_continue(op.fs, h, op.deadline) : -ENOMEM;
	if (r < 0) {
		(void)mcfs_reply_err(&op, r);
		return;
	}
	if (!h->dir) {
		r = fill_control(&a, ino, offset);
	} else {
		mc_mutex_lock(&h->dir->lock);
		h->dir->left_ms = mcfs_op_left_ms(&op);
		r = dir_fill(&a, h->dir, offset);
		mc_mutex_unlock(&h->dir->lock);
	}
	if (r < 0)
		(void)mcfs_reply_err(&op, r);
	else if (mcfs_reply_buf(&op, a.buf, a.len) < 0)
		forget_answer(op.fs, &a);
}

void mcfs_do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	answer_readdir(req, ino, size, (uint64_t)offset, fi, false);
}

void mcfs_do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			 struct fuse_file_info *fi)
{
	answer_readdir(req, ino, size, (uint64_t)offset, fi, true);
}

static struct mcfs_dir *dir_new(struct mcfs *fs, struct mcfs_inode *in, fuse_ino_t ino)
{
	const bool view = !in || mcfs_inode_is_view(in);

	struct mcfs_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	if (mc_mutex_init(&d->lock)) {
		free(d);
		return NULL;
	}
	d->in = in;
	/* An operation answered early may end after the close. */
	if (in)
		mcfs_inode_ref(&fs->inodes, in);
	d->flat = view || fs->flat;
	d->top = in == &fs->inodes.root;
	d->nothing = fs->listed == MCFS_LIST_OFF;
	d->local = (!in && ino == MCFS_CONTROL_LOCAL) || fs->listed == MCFS_LIST_LOCAL;
	d->pending_too = !view && !d->nothing;
	d->next = FIRST_INDEX;
	d->max = fs->conf.list_max ? (uint64_t)fs->conf.list_max + FIRST_INDEX : 0;
	return d;
}

/* Let the kernel cache the listing for a time. A partly cached listing is not continued with a new one. */
static void keep_listing(struct mcfs *fs, struct mcfs_inode *in, struct mcfs_dir *d, struct fuse_file_info *fi)
{
	const uint64_t ms = mcfs_live(&fs->conf.list_cache);
	uint64_t listed_ms;

	if (!ms || !in || mcfs_inode_is_view(in))
		return;
	d->cached = true;
	d->opened_ms = mc_now_ms();
	listed_ms = mcfs_inode_listed(&fs->inodes, in);
	fi->cache_readdir = 1;
	fi->keep_cache = listed_ms && d->opened_ms - listed_ms < ms;
}

void mcfs_do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_handle *h;
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_opendir, ino, NULL))
		return;
	h = mcfs_handle_new(op.fs, MCFS_LIST);
	if (h && (op.in || ino == MCFS_CONTROL_BY_KEY || ino == MCFS_CONTROL_LOCAL)) {
		h->dir = dir_new(op.fs, op.in, ino);
		if (!h->dir) {
			mcfs_handle_unref(op.fs, h);
			h = NULL;
		}
	}
	if (h && h->dir)
		keep_listing(op.fs, op.in, h->dir, fi);
	fi->fh = h ? mcfs_handle_number(op.fs, h) : 0;
	if (!fi->fh) {
		mcfs_handle_unref(op.fs, h);
		(void)mcfs_reply_err(&op, -ENOMEM);
		return;
	}
	if (mcfs_reply_open(&op, fi, false) < 0)
		mcfs_handle_unref(op.fs, h);
}

void mcfs_do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mcfs_handle *h = mcfs_handle_of(fi);
	struct mcfs_op op;

	if (!mcfs_op_begin(&op, req, MCFS_OP_releasedir, ino, fi))
		return;
	mcfs_handle_closed(h);
	mcfs_handle_unref(op.fs, h);
	(void)mcfs_reply_err(&op, 0);
}

void mcfs_do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mcfs_op op;

	if (mcfs_op_begin(&op, req, MCFS_OP_fsyncdir, 0, NULL))
		(void)mcfs_reply_err(&op, 0);
}
