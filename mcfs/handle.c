/* SPDX-License-Identifier: Apache-2.0
 * handle.c - open files, and who sees what of those that are being written. */
#include <config.h>
#include "mcfs/handle.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "mcfs/ahead.h"
#include "mcfs/stream.h"
#include "node/node.h"

/* A name with more writers than this at a time shows some of them only. */
#define WRITERS_LOOKED_AT 32

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

struct mcfs_handle *mcfs_handle_ref(struct mcfs_handle *h)
{
	__atomic_fetch_add(&h->refs, 1, __ATOMIC_RELAXED);
	return h;
}

void mcfs_handle_unref(struct mcfs *fs, struct mcfs_handle *h)
{
	if (!h || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_lock(&fs->handles_lock);
	mc_list_remove(&h->link);
	fs->nhandles--;
	pthread_mutex_unlock(&fs->handles_lock);
	mcfs_ahead_free(h->ahead);
	mcn_pins_free(h->pins);
	mcfs_object_unref(h->object);
	mcfs_writer_unref(h->writer);
	if (h->inode && h->type == MCFS_READ)
		mcfs_inode_close_reader(&fs->inodes, h->inode);
	else if (h->inode)
		mcfs_inode_close_writer(&fs->inodes, h->inode);
	mcfs_stream_close(h->stream);
	mcfs_dir_free(h->dir);
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
	struct mcfs_writer *w[WRITERS_LOOKED_AT], *found = NULL;
	size_t n = mcfs_writers_of(&fs->versions, key.data, key.len, w, WRITERS_LOOKED_AT);

	for (size_t i = 0; i < n; i++) {
		if (!found && w[i]->inode && mcfs_writer_pending(w[i]))
			found = w[i];
		else
			mcfs_writer_unref(w[i]);
	}
	return found;
}

struct mcfs_writer *mcfs_handle_writer_seen(struct mcfs *fs, const struct mcfs_inode *in)
{
	struct mcfs_writer *w = mcfs_handle_writer_on(fs, in);
	struct mcfs_key key;

	if (w || in->info.generation || in->kind != MCS_OBJECT)
		return w;
	mcfs_inode_key(&fs->inodes, in, &key);
	return mcfs_handle_pending(fs, mcfs_key_of(&key));
}

void mcfs_handle_hide(struct mcfs *fs, struct mcfs_handle *h)
{
	if (!__atomic_exchange_n(&h->hidden, true, __ATOMIC_RELAXED))
		mcfs_inode_hide(&fs->inodes, h->inode);
}

static struct mcfs_handle *first_handle(struct mcfs *fs)
{
	MC_LOCKED(&fs->handles_lock);
	return mc_list_empty(&fs->handles) ? NULL :
		mc_list_first(&fs->handles, struct mcfs_handle, link);
}

void mcfs_handles_end(struct mcfs *fs, bool open)
{
	uint64_t deadline = mc_deadline_ms((int64_t)mcfs_live(&fs->conf.timeout));
	struct mcfs_handle *h;
	unsigned lost = 0;

	while ((h = first_handle(fs))) {
		struct mcfs_writer *w = h->type == MCFS_WRITE ? h->writer : NULL;

		if (w && open && mcfs_writer_pending(w)) {
			lost++;
			mcfs_writer_revoke(w);
		} else if (w) {
			(void)mcfs_writer_release(w, mcfs_caller_fate(w->pid, w->uid), deadline);
		}
		mcfs_handle_unref(fs, h);
	}
	if (lost)
		mc_warn("mcfs", "unmounted with unfinished files, which are dropped files=%u", lost);
}
