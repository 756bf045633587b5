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
#include "common/clock.h"
#include "common/err.h"
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
}

/* The names' lock is held. */
static void attrs_describe(struct mcfs_writer *w, const struct mcs_info *info)
{
	w->attrs = info->attrs;
	attrs_add(&w->attrs, &w->unsent, w->unsent.set);
	w->gone = false;
	if (!mcfs_writer_pending(w))
		__atomic_store_n(&w->mtime_ms, info->mtime_ms, __ATOMIC_RELAXED);
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
	if (!(w->attrs.set & TIMES) && !(w->unsent.set & MCS_ATTR_MTIME) && !(w->attrs.mode & PRIVILEGES))
		return;
	MC_LOCKED(&w->env->names);
	w->attrs.set &= ~TIMES;
	w->unsent.set &= ~MCS_ATTR_MTIME;
	w->attrs.mode &= ~(uint32_t)PRIVILEGES;
	w->unsent.mode &= ~(uint32_t)PRIVILEGES;
}

/* Attributes of the creation do not replace those of a file that another writer has published meanwhile. */
const struct mcs_attrs *mcfs_writer_attrs_unsent(struct mcfs_writer *w)
{
	if (w->created && mcfs_writer_is_apart(w)) {
		MC_LOCKED(&w->env->names);
		w->unsent.set &= ~w->created;
		w->created = 0;
	}
	return w->unsent.set ? &w->unsent : NULL;
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
		pthread_cond_wait(&w->hold_ended, &w->lock);
	if (mcfs_op_claim(op, MCFS_UNLESS_KILLED))
		return 0;
	pthread_mutex_unlock(&w->lock);
	return -EINTR;
}

/* A descriptor that neither created the file nor wrote to it: its file is the one that the name has by now. */
static int attrs_learn_version(struct mcfs_writer *w, uint64_t deadline)
{
	struct mcs_info info;
	int r = 0;

	if (w->version || w->fresh || w->dirty || w->gone)
		return 0;
	r = mcs_stat(w->env->store, (struct mcs_key){ w->key, w->key_len }, &info, mc_deadline_left_ms(deadline));
	if (mcs_errno(r) == ENOENT)
		return mc_fail(-EBUSY, "another descriptor is creating the file");
	if (r < 0)
		return r;
	MC_LOCKED(&w->env->names);
	w->version = info.generation;
	attrs_describe(w, &info);
	return 0;
}

/* Send a change to the master: 1; 0: it must wait for a commit, because there is no version of this file. */
static int attrs_send(struct mcfs_writer *w, const struct mcs_attrs *a, const struct mcs_xattr *x, unsigned flags,
		      uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	struct mcs_info info;
	int r;

	if (!w->version || w->gone)
		return 0;
	r = mcs_set_attrs(w->env->store, key, w->version, flags, &w->attrs, a, x, &info,
			  mc_deadline_left_ms(deadline));
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

/* Keep a change for the next commit. */
static void attrs_keep(struct mcfs_writer *w, const struct mcs_attrs *a, unsigned set, bool sent)
{
	struct mcs_attrs now = { .ctime_ns = mc_wall_ns() };

	MC_LOCKED(&w->env->names);
	attrs_add(&w->unsent, a, set);
	w->created &= ~set;
	attrs_add(&w->attrs, a, set);
	if (!sent)
		attrs_add(&w->attrs, &now, MCS_ATTR_CTIME);
}

int mcfs_writer_set_attrs(struct mcfs_writer *w, const struct mcs_attrs *a, unsigned flags, struct mcfs_op *op)
{
	struct mcs_attrs later = *a;
	unsigned keep = MCS_ATTR_MTIME;
	int r = attrs_begin(w, op);

	if (r < 0)
		return r;
	if (flags & MCS_SET_NOW)
		later.mtime_ns = mc_wall_ns();
	r = attrs_learn_version(w, op->deadline);
	if (r == 0)
		r = attrs_send(w, a, NULL, flags, op->deadline);
	if (r == 0)
		attrs_keep(w, &later, later.set, false);
	/* A new version keeps neither times nor these bits. */
	if (later.mode & PRIVILEGES)
		keep |= MCS_ATTR_MODE;
	if (r > 0 && (w->dirty || w->fresh))
		attrs_keep(w, &later, later.set & keep, true);
	pthread_mutex_unlock(&w->lock);
	return r < 0 ? r : 0;
}

int mcfs_writer_set_xattr(struct mcfs_writer *w, const struct mcs_xattr *x, unsigned flags, struct mcfs_op *op)
{
	int r = attrs_begin(w, op);

	if (r < 0)
		return r;
	r = attrs_learn_version(w, op->deadline);
	if (r == 0)
		r = attrs_send(w, NULL, x, flags, op->deadline);
	if (r == 0 && w->gone)
		r = mc_fail(-ESTALE, "the file was removed or replaced");
	else if (r == 0)
		r = mcfs_xattrs_change(&w->xattrs, x, flags);
	pthread_mutex_unlock(&w->lock);
	return r < 0 ? r : 0;
}

int mcfs_writer_get_xattrs(struct mcfs_writer *w, struct mcs_xattr **ret, unsigned *ret_n, uint64_t deadline)
{
	struct mcs_info info;
	int r = mcfs_writer_lock(w, deadline);

	if (r < 0)
		return r;
	r = attrs_learn_version(w, deadline);
	if (r == 0 && w->version && !w->gone)
		r = mcs_get_xattrs(w->env->store, (struct mcs_key){ w->key, w->key_len }, ret, ret_n, &info,
				   mc_deadline_left_ms(deadline));
	else if (r == 0)
		r = mcfs_xattrs_copy(&w->xattrs, ret, ret_n);
	if (r == 0 && w->version && !w->gone && info.generation != w->version) {
		free(*ret);
		r = mc_fail(-ESTALE, "the file was replaced");
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}
