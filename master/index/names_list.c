/* SPDX-License-Identifier: Apache-2.0
 * names_list.c - pages of a directory.
 *
 * Children are met in the order of their hashes (table.h), so a page ends at a hash and the next one
 * begins after it: no state is kept between pages, and a child that stays is met exactly once. */
#include <config.h>

#include "master/index/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/lock_hold.h"

#define STEPS_MAX 1024	/* chains and children examined under one lock, for which puts wait */

struct list_call {
	struct mcm_names *nm;
	uint32_t dir_len;		/* length of the directory's path */
	unsigned room, steps;
	struct mcm_names_page *pg;
};

void mcm_names_page_done(struct mcm_names_page *pg)
{
	free(pg->item);
	free(pg->text);
	*pg = (struct mcm_names_page){ 0 };
}

int mcm_names_page_add(struct mcm_names_page *pg, const char *name, uint32_t len,
		       struct mcm_names_item **ret)
{
	struct mcm_names_item *it;

	if (pg->count == pg->cap) {
		unsigned cap = pg->cap ? 2 * pg->cap : 64;

		it = realloc(pg->item, cap * sizeof(*it));
		if (!it)
			return -ENOMEM;
		pg->item = it;
		pg->cap = cap;
	}
	if (pg->text_cap - pg->text_len <= len) {
		size_t cap = 2 * pg->text_cap + len + 4096;
		char *text = realloc(pg->text, cap);

		if (!text)
			return -ENOMEM;
		pg->text = text;
		pg->text_cap = cap;
	}
	it = &pg->item[pg->count++];
	*it = (struct mcm_names_item){ .name = pg->text_len, .name_len = len };
	if (len)
		memcpy(pg->text + pg->text_len, name, len);
	pg->text_len += len;
	*ret = it;
	return 0;
}

void mcm_names_item_describe(const struct mcm_index *ix, uint32_t slot, struct mcm_names_item *ret)
{
	const struct mcm_object *o = mcm_object(ix, slot);

	ret->slot = slot;
	ret->size = mcm_object_size(o);
	ret->generation = mcm_load_relaxed(&o->generation);
	ret->mtime_ms = mcm_object_mtime(o);
	ret->kind = mcm_load_relaxed(&o->flags) & MCM_OBJ_KIND;
	ret->attrs = !!(mcm_load_relaxed(&o->marks) & MCM_MARK_ATTRS);
	ret->media = (uint8_t)(mcm_object_in_memory(o) << MCP_MEDIUM_MEMORY |
			       mcm_object_is_below(o) << MCP_MEDIUM_DISK);
}

static int list_emit(struct list_call *c, bool objects, uint32_t id)
{
	struct mcm_names_item *it;
	int r;

	if (objects) {
		const struct mcm_object *o = mcm_object(c->nm->ix, id);

		r = mcm_names_page_add(c->pg, mcm_shard_key(c->nm->ix, id) + c->dir_len,
				       o->key_len - c->dir_len, &it);
		if (r < 0)
			return r;
		mcm_names_item_describe(c->nm->ix, id, it);
	} else {
		const struct mcm_dir *d = mcm_dir(c->nm, id);

		r = mcm_names_page_add(c->pg, mcm_keys_at(&c->nm->arena, d->name), d->name_len - 1u, &it);
		if (r < 0)
			return r;
		it->kind = MCP_KIND_DIR;
	}
	if (c->room)
		c->room--;
	return 0;
}

struct walk {
	struct mcm_table *table;
	const struct mcm_table_type *type;
	const struct mcm_slab *slab;
	bool objects;
};

static uint32_t pos_of(const struct walk *w, uint32_t id)
{
	char *e = mcm_slab_at(w->slab, id);

	return mcm_table_pos(w->type, *(uint32_t *)(e + w->type->hash));
}

/* Count the elements of chain @head from position @from on, and find the lowest position. */
static unsigned chain_count(struct list_call *c, const struct walk *w, uint32_t head, uint64_t from,
			    uint32_t *ret_low)
{
	uint32_t id, low = UINT32_MAX;
	unsigned n = 0;

	for (id = head; id; id = *mcm_table_link(w->type, w->slab, id)) {
		uint32_t pos = pos_of(w, id);

		c->steps++;
		if (pos < from)
			continue;
		n++;
		if (pos < low)
			low = pos;
	}
	c->steps++;
	*ret_low = low;
	return n;
}

/* Emit the elements of a chain in [from, to). */
static int chain_emit(struct list_call *c, const struct walk *w, uint32_t head, uint64_t from, uint64_t to)
{
	uint32_t id;
	int r;

	for (id = head; id; id = *mcm_table_link(w->type, w->slab, id)) {
		uint32_t pos = pos_of(w, id);

		if (pos < from || pos >= to)
			continue;
		r = list_emit(c, w->objects, id);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Continue at *@pos until the table ends, the page is full or the limit of steps is reached. */
static int walk_table(struct list_call *c, const struct walk *w, uint64_t *pos)
{
	uint32_t head, low;
	unsigned n;
	int r;

	while (*pos < MCM_TABLE_END && c->room && c->steps < STEPS_MAX) {
		uint64_t end = mcm_table_chain_end(w->table, (uint32_t)*pos);

		head = *mcm_table_head(w->table, (uint32_t)*pos);
		n = chain_count(c, w, head, *pos, &low);
		if (n > c->room)
			end = (uint64_t)low + 1;	/* one whole group of equal hashes */
		if (n) {
			r = chain_emit(c, w, head, *pos, end);
			if (r < 0)
				return r;
		}
		*pos = end;
	}
	return 0;
}

int mcm_names_list(struct mcm_names *nm, const char *path, uint32_t len, unsigned max,
		   struct mcm_names_cursor *cur, struct mcm_names_page *pg)
{
	struct list_call c = { nm, len, max, 0, pg };
	struct mc_mutex *lock;
	uint32_t id;
	int r = 0;

	mc_rwlock_rdlock(&nm->move_lock);
	id = mcm_names_lock_dir(nm, path, len, &lock);
	if (!id) {
		*cur = (struct mcm_names_cursor){ true, MCM_TABLE_END };
	} else {
		struct mcm_dir *d = mcm_dir(nm, id);
		struct walk dirs = { &d->dirs, &mcm_names_by_sibling, &nm->dirs, false };
		struct walk objects = { &d->objects, &mcm_names_by_child, &nm->ix->objects, true };

		if (!cur->objects) {
			r = walk_table(&c, &dirs, &cur->pos);
			if (r == 0 && cur->pos == MCM_TABLE_END)
				*cur = (struct mcm_names_cursor){ true, 0 };
		}
		if (r == 0 && cur->objects)
			r = walk_table(&c, &objects, &cur->pos);
	}
	mc_mutex_unlock(lock);
	mc_rwlock_unlock(&nm->move_lock);
	mcm_lock_held(MCM_HOLD_NAMES, c.steps);
	return r;
}
