/* SPDX-License-Identifier: Apache-2.0
 * names_tree.c - the directories and objects below a directory, for its rename.
 *
 * The objects move one by one to new directories, and the old ones end with their last object.  Renaming the records
 * of directories instead would be wrong: a thread that opened one for a put has its number. */
#include <config.h>

#include "master/index/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/sys/clock.h"

#define FIRST_CAP 64u
#define SPARE_SLOTS 256u	/* for objects that come between counting and finding */

static unsigned path_depth(const char *path, uint32_t len)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < len; i++)
		n += path[i] == '/';
	return n;
}

static int branch_add(struct mcm_names_tree *t, const struct mcm_names_branch *b)
{
	if (t->branches == t->branch_cap) {
		uint32_t cap = t->branch_cap ? 2 * t->branch_cap : FIRST_CAP;
		struct mcm_names_branch *more = realloc(t->branch, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->branch = more;
		t->branch_cap = cap;
	}
	t->branch[t->branches++] = *b;
	return 0;
}

static int slots_reserve(struct mcm_names_tree *t, uint32_t n)
{
	uint32_t *more;

	if (n <= t->slot_cap)
		return 0;
	more = realloc(t->slot, n * sizeof(*more));
	if (!more)
		return -ENOMEM;
	t->slot = more;
	t->slot_cap = n;
	return 0;
}

/* stripe locked */
static int branch_add_dirs(struct mcm_names *nm, struct mcm_names_tree *t, uint32_t above)
{
	struct mcm_table *dirs = &mcm_dir(nm, t->branch[above].dir)->dirs;
	uint64_t pos = 0;
	int r = 0;

	while (pos < MCM_TABLE_END && r == 0) {
		for (uint32_t id = *mcm_table_head(dirs, (uint32_t)pos); id && r == 0; id = mcm_dir(nm, id)->sibling)
			r = branch_add(t, &(struct mcm_names_branch){
				.dir = id, .above = above, .depth = t->branch[above].depth + 1,
				.path_len = t->branch[above].path_len + mcm_dir(nm, id)->name_len,
			});
		pos = mcm_table_chain_end(dirs, (uint32_t)pos);
	}
	return r;
}

/* stripe locked, and all shards */
static int branch_add_slots(struct mcm_names *nm, struct mcm_names_tree *t, struct mcm_names_branch *b)
{
	struct mcm_dir *d = mcm_dir(nm, b->dir);
	uint64_t pos = 0;
	int r = slots_reserve(t, t->slots + d->objects.count + 1);

	if (r < 0)
		return r;
	b->first = t->slots;
	b->marker = d->marker;
	b->changed_ms = mcm_load_relaxed(&d->changed_ms);
	if (d->marker)
		t->slot[t->slots++] = d->marker;
	while (pos < MCM_TABLE_END) {
		for (uint32_t id = *mcm_table_head(&d->objects, (uint32_t)pos); id;
		     id = mcm_object(nm->ix, id)->dir_next)
			t->slot[t->slots++] = id;
		pos = mcm_table_chain_end(&d->objects, (uint32_t)pos);
	}
	b->count = t->slots - b->first;
	return 0;
}

/* The tree, one level after the other.  @find: also the objects. */
static int tree_walk(struct mcm_names *nm, const char *path, uint32_t len, uint32_t max, bool find,
		     struct mcm_names_tree *t, uint32_t *ret_slots)
{
	struct mc_mutex *lock;
	uint32_t id, n = 0;
	int r = 0;

	t->branches = t->slots = 0;
	mc_mutex_lock(&nm->tree_lock);
	id = mcm_names_lock_dir(nm, path, len, &lock);
	mc_mutex_unlock(lock);
	if (id)
		r = branch_add(t, &(struct mcm_names_branch){
			.dir = id, .path_len = len, .depth = path_depth(path, len) });
	for (uint32_t i = 0; i < t->branches && r == 0; i++) {
		struct mcm_dir *d = mcm_dir(nm, t->branch[i].dir);

		lock = mcm_names_lock_of(nm, d);
		mc_mutex_lock(lock);
		n += d->objects.count + !!d->marker;
		if (n + t->branches + d->dirs.count > max || t->branch[i].depth >= MCM_NAMES_DEPTH)
			r = mc_fail(-MC_ELIMIT, "the directory has more than %u names or %u levels", max,
				    MCM_NAMES_DEPTH - 1);
		if (r == 0 && find)
			r = branch_add_slots(nm, t, &t->branch[i]);
		if (r == 0)
			r = branch_add_dirs(nm, t, i);
		mc_mutex_unlock(lock);
	}
	mc_mutex_unlock(&nm->tree_lock);
	*ret_slots = n;
	return r;
}

int mcm_names_tree_count(struct mcm_names *nm, const char *path, uint32_t len, uint32_t max, struct mcm_names_tree *t,
			 uint32_t *ret_slots)
{
	int r = tree_walk(nm, path, len, max, false, t, ret_slots);

	return r < 0 ? r : slots_reserve(t, *ret_slots + SPARE_SLOTS);
}

int mcm_names_tree_find(struct mcm_names *nm, const char *path, uint32_t len, uint32_t max, struct mcm_names_tree *t)
{
	uint32_t n;

	return tree_walk(nm, path, len, max, true, t, &n);
}

/* The path of directory @i of the tree, if the tree's own is @to, of @len bytes. */
static uint32_t branch_path(const struct mcm_names *nm, const struct mcm_names_tree *t, uint32_t i, const char *to,
			    uint32_t len, char *buf)
{
	uint32_t whole = t->branch[i].path_len - t->branch[0].path_len + len, at = whole;

	for (; i; i = t->branch[i].above) {
		const struct mcm_dir *d = mcm_dir(nm, t->branch[i].dir);

		at -= d->name_len;
		memcpy(buf + at, mcm_keys_at(&nm->arena, d->name), d->name_len);
	}
	memcpy(buf, to, len);
	return whole;
}

int mcm_names_tree_make(struct mcm_names *nm, struct mcm_names_tree *t, const char *path, uint32_t len)
{
	unsigned depth = path_depth(path, len);
	char buf[MCM_KEY_MAX];

	mcm_names_count_later(nm, true);
	for (uint32_t i = 0; i < t->branches; i++) {
		struct mcm_names_branch *b = &t->branch[i];
		uint32_t n;
		int r;

		if (b->path_len - t->branch[0].path_len + len > MCM_KEY_MAX)
			return mc_fail(-ENAMETOOLONG, "a name in the directory would be too long");
		if (b->depth - t->branch[0].depth + depth >= MCM_NAMES_DEPTH)
			return mc_fail(-MC_ELIMIT, "the directory would have more than %u levels", MCM_NAMES_DEPTH - 1);
		n = branch_path(nm, t, i, path, len, buf);
		r = mcm_names_dir_ref(nm, buf, n, &b->to);
		if (r < 0) {
			b->to = 0;
			return r;
		}
	}
	return 0;
}

void mcm_names_tree_settle(struct mcm_names *nm, struct mcm_names_tree *t, bool moved)
{
	struct mcm_names_branch *b;

	if (moved) {
		for (b = t->branch; b < t->branch + t->branches; b++)
			mcm_store_relaxed(&mcm_dir(nm, b->to)->changed_ms, b->changed_ms);
		/* a new name in the directory above */
		mcm_names_dir_changed(nm, mcm_dir(nm, t->branch[0].to)->parent, mc_wall_ms());
	}
	for (b = t->branch; b < t->branch + t->branches; b++) {
		if (b->to)
			mcm_names_dir_unref(nm, b->to);
		b->to = 0;
	}
	mcm_names_count_later(nm, false);
}

void mcm_names_tree_free(struct mcm_names_tree *t)
{
	free(t->branch);
	free(t->slot);
	*t = (struct mcm_names_tree){ 0 };
}

uint32_t mcm_names_marker(struct mcm_names *nm, const char *path, uint32_t len, bool *ret_busy)
{
	struct mc_mutex *lock;
	uint32_t id = mcm_names_lock_dir(nm, path, len, &lock), marker = 0;

	*ret_busy = false;
	if (id) {
		marker = mcm_dir(nm, id)->marker;
		*ret_busy = mcm_dir(nm, id)->objects.count || mcm_dir(nm, id)->dirs.count;
	}
	mc_mutex_unlock(lock);
	return marker;
}
