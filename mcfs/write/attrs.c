/* SPDX-License-Identifier: Apache-2.0
 * attrs.c - attributes of the file that a writer writes. Its version at the master gets changes at once. Until there is
 * one, and if the name has another file's version, they wait for the next commit. */
#include <config.h>
#include "mcfs/write/attrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "mcfs/keymap.h"
#include "mcfs/reply.h"

#define TIMES (MCS_ATTR_MTIME | MCS_ATTR_CTIME)
#define PRIVILEGES (S_ISUID | S_ISGID)

static void attrs_add(struct mcs_attrs *to, const struct mcs_attrs *a, unsigned set)
{
	to->set |= set;
	if (set & MCS_ATTR_MODE)
		to->mode = a->mode;
	if (set & MCS_ATTR_UID)
		to->uid = a->uid;
	if (set & MCS_ATTR_GID)
		to->gid = a->gid;
	if (set & MCS_ATTR_MTIME)
		to->mtime_ns = a->mtime_ns;
	if (set & MCS_ATTR_CTIME)
		to->ctime_ns = a->ctime_ns;
	if (set & MCS_ATTR_INO)
		to->ino = a->ino;
}

int mcfs_attrs_check_owner(uid_t caller, uid_t owner, const struct mcs_attrs *seen, const struct mcs_attrs *a,
			   unsigned flags)
{
	const unsigned set = flags & MCS_SET_NOW ? a->set & ~MCS_ATTR_MTIME : a->set;

	if (!caller || caller == (seen->set & MCS_ATTR_UID ? seen->uid : owner) || !set)
		return 0;
	/* The kernel ends set-user-ID and set-group-ID for a user that may write. */
	if (set == MCS_ATTR_MODE && seen->set & MCS_ATTR_MODE && seen->mode & PRIVILEGES && !(a->mode & S_ISUID) &&
	    (a->mode | PRIVILEGES) == ((seen->mode & 07777) | PRIVILEGES))
		return 0;
	return mc_fail(-EPERM, "the file belongs to another user");
}

/* The names' lock is held in these. */
static void attrs_note_ending(struct mcfs_writer *w)
{
	bool times = w->attrs.set & TIMES || w->unsent.set & MCS_ATTR_MTIME;

	__atomic_store_n(&w->ending, times || (w->attrs.mode | w->unsent.mode) & PRIVILEGES, __ATOMIC_RELAXED);
}

static void attrs_end(struct mcfs_writer *w)
{
	w->attrs.set &= ~TIMES;
	w->attrs.mode &= ~(uint32_t)PRIVILEGES;
}

static void attrs_describe(struct mcfs_writer *w, const struct mcs_info *info)
{
	const unsigned pending = mcfs_writer_pending(w) ? __atomic_load_n(&w->pending, __ATOMIC_RELAXED) : 0;

	w->attrs = info->attrs;
	if (pending & MCFS_PENDING_BYTES)
		attrs_end(w);
	attrs_add(&w->attrs, &w->unsent, w->unsent.set);
	attrs_note_ending(w);
	w->gone = false;
	if (!pending)
		__atomic_store_n(&w->mtime_ms, info->mtime_ms, __ATOMIC_RELAXED);
}

void mcfs_writer_attrs_init(struct mcfs_writer *w, const struct mcfs_writer_args *args)
{
	if (!args->attrs)
		return;
	w->attrs = *args->attrs;
	if (!args->generation) {
		w->unsent = *args->attrs;
		w->unsent.set &= MCS_ATTR_MODE | MCS_ATTR_UID | MCS_ATTR_GID | MCS_ATTR_MTIME | MCS_ATTR_INO;
		w->created = w->unsent.set;
	}
	attrs_note_ending(w);
}

void mcfs_writer_attrs(struct mcfs_writer *w, struct mcs_attrs *ret, bool *ret_gone)
{
	MC_LOCKED(&w->env->names);
	*ret = w->attrs;
	*ret_gone = w->gone;
}

uint64_t mcfs_writer_version(struct mcfs_writer *w, void *ret_key, size_t *ret_len)
{
	MC_LOCKED(&w->env->names);
	memcpy(ret_key, w->key, w->key_len);
	*ret_len = w->key_len;
	return w->gone ? 0 : w->version;
}

void mcfs_writer_describe(struct mcfs_writer *w, uint64_t version, const struct mcs_info *info)
{
	MC_LOCKED(&w->env->names);
	if (w->version != version)
		return;
	if (info)
		attrs_describe(w, info);
	else
		w->gone = true;
}

/* ---- commits ---- */

void mcfs_writer_attrs_touched(struct mcfs_writer *w)
{
	if (!__atomic_load_n(&w->ending, __ATOMIC_RELAXED))
		return;
	MC_LOCKED(&w->env->names);
	attrs_end(w);
	w->unsent.set &= ~MCS_ATTR_MTIME;
	w->unsent.mode &= ~(uint32_t)PRIVILEGES;
	attrs_note_ending(w);
}

const struct mcs_attrs *mcfs_writer_attrs_put(struct mcfs_writer *w)
{
	MC_LOCKED(&w->env->names);
	/* Attributes of the creation do not replace those of a file that another writer has published meanwhile. */
	if (mcfs_writer_is_apart(w)) {
		w->unsent.set &= ~w->created;
		w->created = 0;
	}
	w->put = w->unsent;
	if (w->gone)
		w->put.set = 0;
	if (w->uid) {
		w->put.set |= w->attrs.set & MCS_ATTR_UID ? MCS_ATTR_IF_OWNER : MCS_ATTR_IF_NO_OWNER;
		w->put.owner = w->attrs.uid;
	}
	/* The file with several names may have lost the last one, or its bytes. */
	if (mcfs_key_is_shared(w->key, w->key_len))
		w->put.set |= MCS_ATTR_LINKED;
	return w->put.set ? &w->put : NULL;
}

bool mcfs_writer_attrs_owner_changed(struct mcfs_writer *w, uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	struct mcs_info info;

	if (!w->version || mcs_stat(w->env->store, key, &info, mc_deadline_left_ms(deadline)) < 0 ||
	    info.generation != w->version)
		return false;
	mcfs_writer_describe(w, w->version, &info);
	return true;
}

int mcfs_writer_attrs_lost(struct mcfs_writer *w)
{
	bool lost;

	MC_LOCKED(&w->env->names);
	lost = w->unsent.set & ~w->created || w->xattrs.n;
	w->unsent.set = w->created = 0;
	mcfs_xattrs_clear(&w->xattrs);
	w->gone = true;
	return lost ? mc_fail(-ESTALE, "the name has another file, whose attributes are not changed") : 0;
}

void mcfs_writer_attrs_sent(struct mcfs_writer *w, uint64_t generation)
{
	MC_LOCKED(&w->env->names);
	w->version = generation;
	w->attrs.set &= ~(w->unsent.set & MCS_ATTR_MTIME ? MCS_ATTR_CTIME : TIMES);
	if (!(w->unsent.set & MCS_ATTR_MODE))
		w->attrs.mode &= ~(uint32_t)PRIVILEGES;
	w->unsent.set = w->created = 0;
	w->gone = false;
	attrs_note_ending(w);
}

int mcfs_writer_send_xattrs(struct mcfs_writer *w, uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	int r = 0;

	for (unsigned i = 0; i < w->xattrs.n && r == 0 && w->version; i++)
		r = mcs_set_attrs(w->env->store, key, w->version, 0, NULL, NULL, &w->xattrs.item[i], NULL,
				  mc_deadline_left_ms(deadline));
	mcfs_xattrs_clear(&w->xattrs);
	return r;
}

/* ---- changes; the writer's lock is held ---- */

static int attrs_begin(struct mcfs_writer *w, struct mcfs_op *op)
{
	int r = mcfs_writer_lock(w, op->deadline);

	if (r < 0)
		return r;
	while (w->holder)
		mc_cond_wait(&w->hold_ended, &w->lock);
	if (mcfs_op_claim(op, MCFS_UNLESS_KILLED))
		return 0;
	mc_mutex_unlock(&w->lock);
	return -EINTR;
}

/* Send a change to the master: 1; 0: it must wait for a commit, because there is no version of this file. */
static int attrs_send(struct mcfs_writer *w, const struct mcs_attrs *a, const struct mcs_xattr *x, unsigned flags,
		      uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	struct mcs_attrs seen;
	struct mcs_info info;
	bool gone;
	int r;

	mcfs_writer_attrs(w, &seen, &gone);
	if (!w->version || gone)
		return 0;
	r = mcs_set_attrs(w->env->store, key, w->version, flags, &seen, a, x, &info, mc_deadline_left_ms(deadline));
	if (r == 0) {
		mcfs_writer_describe(w, w->version, &info);
		return 1;
	}
	if (mcs_errno(r) != ESTALE && mcs_errno(r) != ENOENT)
		return r;
	r = mcs_stat(w->env->store, key, &info, mc_deadline_left_ms(deadline));
	if (r < 0 && mcs_errno(r) != ENOENT)
		return r;
	if (r == 0 && info.generation == w->version) {
		mcfs_writer_describe(w, w->version, &info);
		return mc_fail(-EPERM, "the owner of the file has changed");
	}
	mcfs_writer_describe(w, w->version, NULL);
	return 0;
}

static void attrs_keep(struct mcfs_writer *w, const struct mcs_attrs *a, unsigned set)
{
	attrs_add(&w->unsent, a, set);
	w->created &= ~set;
	attrs_add(&w->attrs, a, set);
	attrs_note_ending(w);
}

/* Keep a change for the first commit of the file, whichever of its writers makes it. -ESTALE: none will. */
static int attrs_keep_all(struct mcfs_writer *w, struct mcs_attrs *a)
{
	bool will = w->fresh || w->dirty || w->gone || w->version;
	const struct mcs_attrs now = { .ctime_ns = mc_wall_ns() };
	struct mc_list *pos;

	MC_LOCKED(&w->env->names);
	/* chown(2) ends them. */
	if (a->set & (MCS_ATTR_UID | MCS_ATTR_GID) && !(a->set & MCS_ATTR_MODE) && w->attrs.mode & PRIVILEGES) {
		a->set |= w->attrs.set & MCS_ATTR_MODE;
		a->mode = w->attrs.mode & ~(uint32_t)PRIVILEGES;
	}
	mc_list_for_each(pos, &w->env->writers) {
		struct mcfs_writer *x = mc_container_of(pos, struct mcfs_writer, link);

		if (x == w || x->version || w->version || x->gone || w->gone || x->key_hash != w->key_hash ||
		    x->key_len != w->key_len || memcmp(x->key, w->key, w->key_len) != 0 || x->attrs.uid != w->attrs.uid)
			continue;
		will |= mcfs_writer_pending(x);
		attrs_keep(x, a, a->set);
	}
	if (!will)
		return mc_fail(-ESTALE, "another descriptor has published the file");
	attrs_keep(w, a, a->set);
	attrs_add(&w->attrs, &now, MCS_ATTR_CTIME);
	return 0;
}

int mcfs_writer_set_attrs(struct mcfs_writer *w, const struct mcs_attrs *a, unsigned flags, struct mcfs_op *op)
{
	struct mcs_attrs later = *a, seen;
	int r = attrs_begin(w, op);
	bool gone;

	if (r < 0)
		return r;
	mcfs_writer_attrs(w, &seen, &gone);
	r = mcfs_attrs_check_owner(op->ctx.uid, w->env->uid, &seen, a, flags);
	if (flags & MCS_SET_NOW)
		later.mtime_ns = mc_wall_ns();
	if (r == 0)
		r = attrs_send(w, a, NULL, flags, op->deadline);
	if (r == 0) {
		r = attrs_keep_all(w, &later);
	} else if (r > 0 && (w->dirty || w->fresh)) {
		/* A new version does not keep the time. */
		mc_mutex_lock(&w->env->names);
		attrs_keep(w, &later, later.set & MCS_ATTR_MTIME);
		mc_mutex_unlock(&w->env->names);
	}
	mc_mutex_unlock(&w->lock);
	return r < 0 ? r : 0;
}

int mcfs_writer_set_xattr(struct mcfs_writer *w, const struct mcs_xattr *x, unsigned flags, struct mcfs_op *op)
{
	int r = attrs_begin(w, op);

	if (r < 0)
		return r;
	r = attrs_send(w, NULL, x, flags, op->deadline);
	if (r == 0 && (w->gone || !(w->fresh || w->dirty)))
		r = mc_fail(-ESTALE, "the file was removed, replaced or published by another descriptor");
	else if (r == 0)
		r = mcfs_xattrs_change(&w->xattrs, x, flags);
	mc_mutex_unlock(&w->lock);
	return r < 0 ? r : 0;
}

int mcfs_writer_get_xattrs(struct mcfs_writer *w, struct mcs_xattr **ret, unsigned *ret_n, uint64_t deadline)
{
	struct mcs_info info;
	int r = mcfs_writer_lock(w, deadline);

	if (r < 0)
		return r;
	if (!w->version || w->gone) {
		r = mcfs_xattrs_copy(&w->xattrs, ret, ret_n);
		mc_mutex_unlock(&w->lock);
		return r;
	}
	r = mcs_get_xattrs(w->env->store, (struct mcs_key){ w->key, w->key_len }, ret, ret_n, &info,
			   mc_deadline_left_ms(deadline));
	if (r == 0 && info.generation != w->version) {
		free(*ret);
		*ret = NULL;
		*ret_n = 0;
		r = mc_fail(-ESTALE, "the file was replaced");
	}
	mc_mutex_unlock(&w->lock);
	return r;
}
