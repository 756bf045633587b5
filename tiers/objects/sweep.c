/* SPDX-License-Identifier: Apache-2.0
 * sweep.c - find the ranges in a store by their names, and delete those that are not in use.
 *
 * These may be deleted:
 *	- a range of the index that the master does not know, when it is asked after the range was written.  The
 *	  question is about the place, and the delete about this one name: if the master grants the place again
 *	  meanwhile, the new range has another name;
 *	- a range that a newer one overlaps: the master has freed it;
 *	- a range of which a part is missing, and that no thread writes: its write was given up;
 *	- a range in the folder of an earlier secret, if the identity object still is this process's after the list: all
 *	  names of the list were written before a later owner could begin.
 *
 * A process that the master does not take for the owner gets no answer, and deletes nothing. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "tiers/objects/objects_i.h"

#define ASK_MAX 32768u		/* offsets in one question */

struct found {
	uint64_t folder, part;
	struct mct_objects_range r;
};

struct sweep {
	struct mct_objects *o;
	struct found *found;
	size_t n, cap;
	size_t known;		/* ranges of the index among them */
};

/* ---- the list ----------------------------------------------------------------------------------- */

static int sweep_take(void *arg, const char *name)
{
	struct sweep *s = arg;
	struct found f;

	if (atomic_load(&s->o->sweep_stops))
		return -ECANCELED;
	if (!mct_objects_name_parse(s->o, name, &f.folder, &f.r, &f.part))
		return 0;
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 1024;
		struct found *more = realloc(s->found, cap * sizeof(*more));

		if (!more)
			return mc_fail(-ENOMEM, "no memory for the names in %s", s->o->path);
		s->found = more;
		s->cap = cap;
	}
	s->found[s->n++] = f;
	return 0;
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* In the order in which they were written. */
static int sweep_compare(const void *va, const void *vb)
{
	const struct found *a = va, *b = vb;
	int r = compare_u64(a->folder, b->folder);

	r = r ? r : compare_u64(a->r.order, b->r.order);
	r = r ? r : compare_u64(a->r.off, b->r.off);
	r = r ? r : compare_u64(a->r.len, b->r.len);
	r = r ? r : compare_u64(a->r.generation, b->r.generation);
	return r ? r : compare_u64(a->part, b->part);
}

static int sweep_list(struct sweep *s)
{
	int r = mct_keyed_walk(s->o->keyed, s->o->prefix, sweep_take, s);

	if (s->n)
		qsort(s->found, s->n, sizeof(*s->found), sweep_compare);
	return r;
}

static void sweep_count_known(struct sweep *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct found *f = &s->found[i];
		const struct mct_objects_range *have;

		if (i && f[-1].folder == f->folder && !memcmp(&f[-1].r, &f->r, sizeof(f->r)))
			continue;
		MC_LOCKED(&s->o->lock);
		have = mct_objects_index_have(&s->o->index, f->r.off, f->r.len);
		s->known += s->o->folder == f->folder && have && have->order == f->r.order;
	}
}

/* Number of the first name behind the range of @i; *ret_whole: all parts are there. */
static size_t sweep_range_end(const struct sweep *s, size_t i, bool *ret_whole)
{
	const struct found *f = &s->found[i];
	uint64_t parts = 0;
	size_t end = i;

	while (end < s->n && s->found[end].folder == f->folder && !memcmp(&s->found[end].r, &f->r, sizeof(f->r))) {
		parts += end == i || s->found[end].part != s->found[end - 1].part;
		end++;
	}
	*ret_whole = parts == mct_objects_parts(&f->r);
	return end;
}

static void sweep_replaced(void *arg, const struct mct_objects_range *r)
{
	struct mct_objects *o = arg;

	mct_objects_delete_locked(o, o->folder, r);
}

/* Lock held: does a thread write this range, or will it? */
static bool sweep_is_written_locked(const struct mct_objects *o, uint64_t order)
{
	const struct mc_list *const list[] = { &o->running, &o->writes };

	for (unsigned i = 0; i < 2; i++) {
		struct mc_list *pos;

		mc_list_for_each(pos, list[i])
			if (mc_container_of(pos, struct mct_objects_write, node)->order == order)
				return true;
	}
	return false;
}

/* Lock held.  True: the range of this folder can be deleted. */
static bool sweep_learn_locked(struct mct_objects *o, const struct mct_objects_range *r, bool whole)
{
	const struct mct_objects_range *have = mct_objects_index_have(&o->index, r->off, r->len);
	int e;

	if ((have && have->order == r->order) || sweep_is_written_locked(o, r->order) ||
	    mct_objects_is_deleted_locked(o, o->folder, r))
		return false;
	if (!whole)
		return true;
	e = mct_objects_index_add(&o->index, r, sweep_replaced, o);
	return e == -EEXIST;
}

/* Add the listed ranges to the index.  @drop: one flag per name; set for the first name of a range that can be
 * deleted. */
static void sweep_learn(struct sweep *s, uint64_t folder, bool *drop)
{
	size_t end;
	bool whole;

	for (size_t i = 0; i < s->n; i = end) {
		end = sweep_range_end(s, i, &whole);
		if (s->found[i].folder != folder)
			continue;
		MC_LOCKED(&s->o->lock);
		if (s->o->folder == folder)
			drop[i] = sweep_learn_locked(s->o, &s->found[i].r, whole);
	}
}

/* ---- deletes ------------------------------------------------------------------------------------ */

static size_t sweep_drop(struct sweep *s, uint64_t folder, const bool *drop, bool others)
{
	size_t end, n = 0;
	bool whole;

	for (size_t i = 0; i < s->n; i = end) {
		end = sweep_range_end(s, i, &whole);
		if (!(s->found[i].folder == folder ? drop[i] : others))
			continue;
		MC_LOCKED(&s->o->lock);
		n += mct_objects_delete_locked(s->o, s->found[i].folder, &s->found[i].r);
	}
	return n;
}

/* Ask about @n ranges of the index, and delete those that are not in use; their number. */
static ssize_t sweep_ask(struct mct_objects *o, const struct mct_objects_range *r, size_t n, mct_used_fn used,
			 void *arg)
{
	auto_free uint64_t *off = calloc(n, sizeof(*off));
	auto_free bool *is = calloc(n, sizeof(*is));
	ssize_t dropped = 0;
	int e;

	if (!off || !is)
		return mc_fail(-ENOMEM, "no memory for a question about %zu ranges", n);
	for (size_t i = 0; i < n; i++)
		off[i] = r[i].off;
	e = used(arg, off, n, is);
	if (e < 0)
		return e;
	for (size_t i = 0; i < n; i++) {
		if (is[i])
			continue;
		MC_LOCKED(&o->lock);
		if (!mct_objects_index_remove(&o->index, &r[i]))
			continue;
		dropped += mct_objects_delete_locked(o, o->folder, &r[i]);
	}
	return dropped;
}

/* The next ranges of the index from *@pos on. */
static size_t sweep_page(struct mct_objects *o, uint64_t *pos, struct mct_objects_range ret[ASK_MAX])
{
	size_t n = 0;

	MC_LOCKED(&o->lock);
	for (size_t i = mct_objects_index_find(&o->index, *pos); i < o->index.n && n < ASK_MAX; i++)
		ret[n++] = o->index.at[i];
	if (n)
		*pos = ret[n - 1].off + ret[n - 1].len;
	return n;
}

static int sweep_index(struct mct_objects *o, mct_used_fn used, void *arg, size_t *ret)
{
	auto_free struct mct_objects_range *page = malloc(ASK_MAX * sizeof(*page));
	uint64_t pos = 0;
	ssize_t r = page ? 0 : -ENOMEM;
	size_t n;

	while (r >= 0 && !atomic_load(&o->sweep_stops) && (n = sweep_page(o, &pos, page))) {
		r = sweep_ask(o, page, n, used, arg);
		*ret += r > 0 ? (size_t)r : 0;
	}
	return r < 0 ? (int)r : atomic_load(&o->sweep_stops) ? -ECANCELED : 0;
}

static int compare_offsets(const void *a, const void *b)
{
	return compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

/* The ranges that begin at these offsets. */
static int sweep_some(struct mct_objects *o, const uint64_t *asked, size_t n, mct_used_fn used, void *arg)
{
	auto_free struct mct_objects_range *some = malloc(n * sizeof(*some));
	auto_free uint64_t *off = malloc(n * sizeof(*off));
	size_t have = 0;
	ssize_t r = 0;

	if (!some || !off)
		return -ENOMEM;
	memcpy(off, asked, n * sizeof(*off));
	qsort(off, n, sizeof(*off), compare_offsets);
	mc_mutex_lock(&o->lock);
	for (size_t i = 0; i < n; i++) {
		const struct mct_objects_range *at = mct_objects_index_have(&o->index, off[i], 1);

		if (at && at->off == off[i] && (!i || off[i] != off[i - 1]))
			some[have++] = *at;
	}
	mc_mutex_unlock(&o->lock);
	for (size_t i = 0; i < have && r >= 0; i += ASK_MAX)
		r = sweep_ask(o, some + i, have - i < ASK_MAX ? have - i : ASK_MAX, used, arg);
	return r < 0 ? (int)r : 0;
}

int mct_objects_sweep(struct mct_medium *m, const uint64_t *off, size_t n, mct_used_fn used, void *arg)
{
	struct mct_objects *o = mct_objects_of(m);
	struct sweep s = { .o = o };
	auto_free bool *drop = NULL;
	uint64_t folder = 0;
	size_t dropped = 0;
	int r;

	if (atomic_load(&o->sweep_stops))
		return -ECANCELED;
	if (off) {
		r = m->ops->hold(m);
		return r < 0 || !n ? r : sweep_some(o, off, n, used, arg);
	}
	/* An empty index has no question for the master. */
	r = used(arg, NULL, 0, NULL);
	if (r == 0)
		r = sweep_list(&s);
	if (r == 0) {
		drop = calloc(s.n + 1, sizeof(*drop));
		sweep_count_known(&s);
		r = drop ? mct_objects_identity_check(o, s.known) : -ENOMEM;
	}
	if (r == 0) {
		mc_mutex_lock(&o->lock);
		folder = o->folder;
		mc_mutex_unlock(&o->lock);
		sweep_learn(&s, folder, drop);
		__atomic_store_n(&o->complete, true, __ATOMIC_RELAXED);
		r = sweep_index(o, used, arg, &dropped);
	}
	if (r == 0)
		dropped += sweep_drop(&s, folder, drop, true);
	free(s.found);
	if (dropped)
		mc_info("s3", "%s: deleting ranges that are not in use n=%zu", o->path, dropped);
	return r;
}

int mct_objects_load(struct mct_objects *o)
{
	struct sweep s = { .o = o };
	auto_free bool *drop = NULL;
	int r = sweep_list(&s);

	if (r == 0) {
		drop = calloc(s.n + 1, sizeof(*drop));
		r = drop ? 0 : -ENOMEM;
	}
	/* The first sweep deletes the rest. */
	if (r == 0)
		sweep_learn(&s, o->folder, drop);
	free(s.found);
	return r;
}
