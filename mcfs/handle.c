/* SPDX-License-Identifier: Apache-2.0
 * handle.c - open files, and the writer whose bytes a reader of attributes sees. */
#include <config.h>
#include "mcfs/handle.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "mcfs/ops/ops.h"
#include "mcfs/read/ahead.h"
#include "mcfs/life/handoff.h"
#include "mcfs/control/feed.h"
#include "node/node.h"

struct mcfs_handle *mcfs_handle_new(struct mcfs *fs, enum mcfs_handle_type type)
{
	struct mcfs_handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->type = type;
	h->refs = 1;
	MC_LOCKED(&fs->handles_lock);
	mc_list_push_back(&fs->handles, &h->link);
	fs->nhandles++;
	return h;
}

struct mcfs_handle *mcfs_handle_of(const struct fuse_file_info *fi)
{
	return mcfs_handoff() ? mcfs_handoff_at(fi->fh) : (struct mcfs_handle *)(uintptr_t)fi->fh;
}

/* A handle that the previous daemon recorded before it died, while the kernel never received the answer. */
static struct mcfs_handle *find_unanswered(struct mcfs *fs, uint64_t unique)
{
	struct mc_list *pos;

	MC_LOCKED(&fs->handles_lock);
	mc_list_for_each(pos, &fs->handles) {
		struct mcfs_handle *h = mc_container_of(pos, struct mcfs_handle, link);

		/* At most one handle per request, because the kernel resends a request only once. */
		if (h->restored && h->unique == unique) {
			h->unique = 0;
			return h;
		}
	}
	return NULL;
}

void mcfs_handle_drop_unanswered(struct mcfs *fs)
{
	bool again;
	uint64_t unique = mcfs_compat_unique(&again);

	if (again && mcfs_handoff())
		mcfs_handle_unref(fs, find_unanswered(fs, unique));
}

uint64_t mcfs_handle_number(struct mcfs *fs, struct mcfs_handle *h)
{
	bool again;
	uint64_t unique = mcfs_compat_unique(&again);
	struct mcfs_handoff_entry e = {
		.unique = unique,
		.type = MCFS_HANDOFF_HANDLE, .handle_type = (int)h->type, .unsaved = h->unsaved,
		.inode = h->inode ? h->inode->number : 0,
	};

	if (!mcfs_handoff())
		return (uintptr_t)h;
	h->unique = unique;
	h->number = mcfs_handoff_add(&e, h);
	return h->number;
}

static void set_unsaved(struct mcfs_handle *h, bool unsaved)
{
	if (__atomic_exchange_n(&h->unsaved, unsaved, __ATOMIC_RELAXED) != unsaved)
		mcfs_handoff_note_unsaved(__atomic_load_n(&h->number, __ATOMIC_RELAXED), &h->unsaved);
}

void mcfs_handle_changed(struct mcfs_handle *h)
{
	set_unsaved(h, true);
}

void mcfs_handle_saved(struct mcfs_handle *h)
{
	bool pending;

	MC_LOCKED(&h->writer->lock);
	pending = mcfs_writer_pending(h->writer);
	MC_FAULT_POINT("mcfs.handle.saved");
	set_unsaved(h, pending);
}

void mcfs_handle_closed(struct mcfs_handle *h)
{
	mcfs_handoff_remove(__atomic_exchange_n(&h->number, 0, __ATOMIC_RELAXED));
}

struct mcfs_handle *mcfs_handle_ref(struct mcfs_handle *h)
{
	__atomic_fetch_add(&h->refs, 1, __ATOMIC_RELAXED);
	return h;
}

static void handle_close_inode(struct mcfs *fs, struct mcfs_handle *h)
{
	if (h->inode && h->type == MCFS_READ)
		mcfs_inode_close_reader(&fs->inodes, h->inode);
	else if (h->inode)
		mcfs_inode_close_writer(&fs->inodes, h->inode);
	h->inode = NULL;
}

void mcfs_handle_unref(struct mcfs *fs, struct mcfs_handle *h)
{
	if (!h || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL))
		return;
	mc_mutex_lock(&fs->handles_lock);
	mc_list_remove(&h->link);
	fs->nhandles--;
	mc_mutex_unlock(&fs->handles_lock);
	mcfs_handle_closed(h);
	mcfs_ahead_free(h->ahead);
	mcn_pins_free(h->pins);
	mcfs_object_unref(h->object);
	mcfs_writer_unref(h->writer);
	handle_close_inode(fs, h);
	mcfs_feed_close(h->feed);
	mcfs_dir_free(fs, h->dir);
	free(h->text);
	free(h);
}

struct mcfs_writer *mcfs_handle_writer_on(struct mcfs *fs, const struct mcfs_inode *in)
{
	struct mcfs_version_env *env = &fs->versions;
	struct mc_list *pos;

	MC_LOCKED(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);

		if (w->inode != in)
			continue;
		w->refs++;
		return w;
	}
	return NULL;
}

struct mcfs_writer *mcfs_handle_pending(struct mcfs *fs, struct mcs_key key)
{
	struct mcfs_writer *w = NULL;

	while ((w = mcfs_writer_next(&fs->versions, w, key)))
		if (w->inode && mcfs_writer_pending(w))
			break;
	return w;
}

struct mcfs_writer *mcfs_handle_writer_seen(struct mcfs *fs, const struct mcfs_inode *in)
{
	struct mcfs_writer *w = mcfs_handle_writer_on(fs, in);

	if (w || !in->writer_serial)
		return w;
	w = mcfs_writer_at(&fs->versions, in->writer_serial);
	if (!w || mcfs_writer_pending(w))
		return w;
	mcfs_writer_unref(w);
	return NULL;
}

void mcfs_handle_hide(struct mcfs *fs, struct mcfs_handle *h)
{
	if (!__atomic_exchange_n(&h->hidden, true, __ATOMIC_RELAXED))
		mcfs_inode_hide(&fs->inodes, h->inode);
}

/* A handle whose last reference was dropped stays in the list for a moment. */
static bool ref_unless_ending(struct mcfs_handle *h)
{
	unsigned n = __atomic_load_n(&h->refs, __ATOMIC_RELAXED);

	while (n && !__atomic_compare_exchange_n(&h->refs, &n, n + 1, true, __ATOMIC_RELAXED,
						 __ATOMIC_RELAXED))
		;
	return n;
}

/* The handle of @w, with a reference; NULL: it is being closed. */
static struct mcfs_handle *handle_with(struct mcfs *fs, const struct mcfs_writer *w)
{
	struct mc_list *pos;

	MC_LOCKED(&fs->handles_lock);
	mc_list_for_each(pos, &fs->handles) {
		struct mcfs_handle *h = mc_container_of(pos, struct mcfs_handle, link);

		/* A handle that is being opened may receive its writer at any moment. */
		if (__atomic_load_n(&h->writer, __ATOMIC_ACQUIRE) == w)
			return ref_unless_ending(h) ? h : NULL;
	}
	return NULL;
}

void mcfs_handle_changes(struct mcfs *fs, const struct mcfs_writer *w)
{
	struct mcfs_handle *h = handle_with(fs, w);

	if (!h)
		return;
	mcfs_handle_hide(fs, h);
	mcfs_handle_changed(h);
	mcfs_inode_set_kernel_size_stale(&fs->inodes, h->inode);
	mcfs_handle_unref(fs, h);
}

void mcfs_handles_unlinked(struct mcfs *fs, struct mcs_key key)
{
	struct mcfs_writer *w = NULL;

	while ((w = mcfs_writer_next(&fs->versions, w, key))) {
		struct mcfs_handle *h = handle_with(fs, w);

		if (h && h->inode)
			(void)fuse_lowlevel_notify_inval_inode(fs->session, mcfs_inode_nodeid(&fs->inodes, h->inode),
							       -1, 0);
		mcfs_handle_unref(fs, h);
	}
}

static struct mcfs_handle *first_handle(struct mcfs *fs)
{
	MC_LOCKED(&fs->handles_lock);
	return mc_list_empty(&fs->handles) ? NULL :
		mc_list_first(&fs->handles, struct mcfs_handle, link);
}

static bool handle_may_be_mapped(const struct mcfs_handle *h)
{
	return __atomic_load_n(&h->pins, __ATOMIC_ACQUIRE) || __atomic_load_n(&h->located, __ATOMIC_ACQUIRE);
}

static void handle_keep(struct mcfs *fs, struct mcfs_handle *h)
{
	handle_close_inode(fs, h);
	mcfs_handle_closed(h);
	MC_LOCKED(&fs->handles_lock);
	mc_list_remove(&h->link);
	mc_list_push_back(&fs->kept, &h->link);
}

void mcfs_handles_drop(struct mcfs *fs)
{
	struct mcfs_handle *h;
	unsigned lost = 0, kept = 0;

	while ((h = first_handle(fs))) {
		if (h->type == MCFS_WRITE && h->writer) {
			lost += mcfs_writer_pending(h->writer);
			mcfs_writer_revoke(h->writer);
		}
		if (handle_may_be_mapped(h)) {
			handle_keep(fs, h);
			kept++;
		} else {
			mcfs_handle_unref(fs, h);
		}
	}
	if (lost)
		mc_warn("mcfs", "the mount was aborted, dropping unfinished files files=%u", lost);
	if (kept)
		mc_warn("mcfs", "programs may have mapped objects, keeping them pinned until this daemon ends "
			"descriptors=%u", kept);
}

static void handles_end_kept(struct mcfs *fs)
{
	while (!mc_list_empty(&fs->kept))
		mcfs_handle_unref(fs, mc_list_first(&fs->kept, struct mcfs_handle, link));
}

void mcfs_handles_end(struct mcfs *fs, bool open)
{
	uint64_t deadline = mc_deadline_ms((int64_t)mcfs_timeout_ms(fs));
	struct mcfs_handle *h;
	unsigned lost = 0;

	handles_end_kept(fs);

	while ((h = first_handle(fs))) {
		struct mcfs_writer *w = h->type == MCFS_WRITE ? h->writer : NULL;

		if (w && open) {
			lost += mcfs_writer_pending(w);
			mcfs_writer_revoke(w);
		} else if (w) {
			lost += mcfs_writer_end(w, mcfs_caller_fate(w->pid), deadline);
		}
		mcfs_handle_unref(fs, h);
	}
	if (lost)
		mc_warn("mcfs", "unmounted with unfinished files, dropping them files=%u", lost);
}

/* ---- after a takeover ---- */

static int restore_locks(struct mcfs *fs)
{
	struct mcfs_handoff_entry e;
	uint64_t number = 0;
	struct mcfs_key key;
	int r = 0;

	while (r == 0 && (number = mcfs_handoff_next(number, &e))) {
		struct mcfs_handle *h = e.type == MCFS_HANDOFF_LOCK ? mcfs_handoff_at(e.handle) : NULL;

		if (e.type != MCFS_HANDOFF_LOCK)
			continue;
		if (!h || !h->inode) {
			mcfs_handoff_remove(number);
			continue;
		}
		mcfs_inode_key(&fs->inodes, h->inode, &key);
		r = mcfs_lock_restore(&fs->locks, mcfs_key_of(&key), h, number, &e.lock);
	}
	return r;
}

int mcfs_handles_restore(struct mcfs *fs)
{
	struct mcfs_handoff_entry e;
	uint64_t number = 0;

	while ((number = mcfs_handoff_next(number, &e))) {
		enum mcfs_handle_type type = (enum mcfs_handle_type)e.handle_type;
		struct mcfs_handle *h;

		if (e.type != MCFS_HANDOFF_HANDLE)
			continue;
		h = mcfs_handle_new(fs, type);
		if (!h)
			return -ENOMEM;
		h->number = number;
		h->lost = h->restored = true;
		h->unique = e.unique;
		h->unsaved = e.unsaved;
		h->inode = e.inode ? mcfs_handoff_at(e.inode) : NULL;
		if (h->inode)
			mcfs_inode_reopen(&fs->inodes, h->inode, type == MCFS_READ);
		mcfs_handoff_bind(number, h);
	}
	return restore_locks(fs);
}

/* Open the version that the previous daemon had open, if the key still has that version. */
static int handle_reopen(struct mcfs *fs, struct mcfs_handle *h, uint64_t deadline)
{
	struct mcfs_inode *in = h->inode;
	struct mcfs_object *o;
	struct mcfs_key key;
	int r;

	mcfs_inode_key(&fs->inodes, in, &key);
	r = mcfs_object_open(fs->store, mcfs_key_of(&key), deadline, &o);
	if (mcs_errno(r) == ENOENT || mcs_errno(r) == EINVAL)
		return mc_fail(-ESTALE, "the file was removed while no daemon was running");
	if (r < 0)
		return r;
	if (mcfs_object_info(o)->generation != in->info.generation) {
		mcfs_object_unref(o);
		return mc_fail(-ESTALE, "the file was replaced while no daemon was running");
	}
	mcfs_inode_share(&fs->inodes, in, o);
	h->ahead = mcfs_ahead_new(fs->pool, o, mcfs_timeout_ms(fs));
	h->object = o;
	__atomic_store_n(&h->lost, false, __ATOMIC_RELEASE);
	return 0;
}

int mcfs_handle_continue(struct mcfs *fs, struct mcfs_handle *h, uint64_t deadline)
{
	static struct mc_mutex one = MC_MUTEX_INIT;

	if (!__atomic_load_n(&h->lost, __ATOMIC_ACQUIRE))
		return 0;
	if (h->type == MCFS_WRITE)
		return mc_fail(-EIO, "written bytes are lost: the daemon that held them has died");
	if (h->type != MCFS_READ || !h->inode)
		return mc_fail(-ESTALE, "the open control file belongs to a daemon that has died");
	MC_LOCKED(&one);
	return __atomic_load_n(&h->lost, __ATOMIC_RELAXED) ? handle_reopen(fs, h, deadline) : 0;
}

/* Allocate a list of all readers that are not yet reopened, with one reference each. Returns their number. */
static unsigned lost_readers(struct mcfs *fs, struct mcfs_handle ***ret)
{
	struct mc_list *pos;
	unsigned n = 0;

	MC_LOCKED(&fs->handles_lock);
	*ret = malloc((fs->nhandles + 1) * sizeof(**ret));
	mc_list_for_each(pos, &fs->handles) {
		struct mcfs_handle *h = mc_container_of(pos, struct mcfs_handle, link);

		if (*ret && h->type == MCFS_READ && __atomic_load_n(&h->lost, __ATOMIC_RELAXED) &&
		    ref_unless_ending(h))
			(*ret)[n++] = h;
	}
	return n;
}

void mcfs_handles_continue(struct mcfs *fs)
{
	uint64_t deadline = mc_deadline_ms((int64_t)mcfs_timeout_ms(fs));
	struct mcfs_handle **all;
	unsigned n = lost_readers(fs, &all), gone = 0, later = 0;

	for (unsigned i = 0; i < n; i++) {
		int r = mc_now_ns() < deadline ?
			mcfs_handle_continue(fs, all[i], deadline) : -ETIMEDOUT;

		gone += mcs_errno(r) == ESTALE;
		later += r < 0 && mcs_errno(r) != ESTALE;
		mcfs_handle_unref(fs, all[i]);
	}
	free(all);
	if (n)
		mc_info("mcfs", "open files are continued files=%u gone=%u later=%u", n, gone, later);
}
