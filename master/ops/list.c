/* SPDX-License-Identifier: Apache-2.0
 * list.c - pages of keys: of a directory, or of all keys with a prefix.
 *
 * A cursor is a position in the order of hashes (names.h, index.h) and needs no memory in the
 * master: it stays valid across changes, reconnects and any length of time. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/ops/ops.h"
#include "proto/codec.h"

#define LIMIT_DEFAULT 1000u
#define LIMIT_MAX 8192u		/* an entry with attributes has 92 bytes and its name */
#define TEXT_MAX (4u << 20)	/* bytes of names per page, about */
#define SLICE 256u		/* entries copied under one lock */
#define SCAN_SLICE 1024u
#define SCAN_MAX 8192u		/* keys examined for one page, for which other requests wait */

/* Keys of the default tenant that begin with NUL are in a directory of their own; the listing of
 * the root continues with it. */
enum { CURSOR_DIR = 'd', CURSOR_NUL = 'n', CURSOR_KEYS = 'k' };

static void list_page_free(void *object)
{
	struct mcm_list_page *pg = object;

	mcm_names_page_done(&pg->names);
	free(pg);
}

struct mcm_list_page *mcm_list_page(void)
{
	return mcm_scratch_object(sizeof(struct mcm_list_page), list_page_free);
}

static void list_cursor_write(struct mcm_list_page *pg, uint8_t kind, bool objects, uint64_t pos)
{
	unsigned i;

	pg->cursor[0] = kind;
	pg->cursor[1] = objects;
	for (i = 0; i < 8; i++)
		pg->cursor[2 + i] = (uint8_t)(pos >> 8 * i);
	pg->cursor_len = 10;
}

static int list_cursor_read(struct mcp_bytes c, uint8_t kind, bool *objects, uint64_t *pos)
{
	const uint8_t *p = c.data;
	unsigned i;

	*objects = false;
	*pos = 0;
	if (!c.len)
		return 0;
	if (c.len != 10 || p[0] != kind || p[1] > 1)
		return mc_fail(-MC_EPARAM, "cursor does not belong to this kind of listing");
	*objects = p[1];
	for (i = 0; i < 8; i++)
		*pos |= (uint64_t)p[2 + i] << 8 * i;
	if (*pos > MCM_TABLE_END)
		return mc_fail(-MC_EPARAM, "invalid cursor");
	return 0;
}

/* Remove entries that cannot be read now; the order stays.  -MC_ENOTREADY: one of them may be readable soon. */
static int list_drop_unreadable(struct mcm *m, struct mcm_names_page *pg)
{
	unsigned i, n = 0;
	int r = 0;

	if (!__atomic_load_n(&m->segments.n_hidden, __ATOMIC_RELAXED))
		return 0;
	for (i = 0; i < pg->count; i++) {
		struct mcm_names_item *it = &pg->item[i];
		struct mcm_object *o = mcm_object(&m->index, it->slot);
		struct mcm_shard *sh;
		bool keep = true;

		if (it->slot) {
			sh = mcm_index_lock_slot(&m->index, it->slot);
			keep = o->generation != it->generation || mcm_object_readable(m, o);
			if (!keep && mcm_object_missing(m, o) == -MC_ENOTREADY)
				r = -MC_ENOTREADY;
			mc_mutex_unlock(&sh->lock);
		}
		if (keep)
			pg->item[n++] = *it;
	}
	pg->count = n;
	return r;
}

/* One directory; @path has the tenant's prefix. */
static int list_path(struct mcm *m, struct mcp_bytes path, struct mcp_bytes cursor, uint8_t kind,
		     unsigned limit, struct mcm_list_page *pg)
{
	struct mcm_names_cursor cur;
	int r;

	r = list_cursor_read(cursor, kind, &cur.objects, &cur.pos);
	while (r == 0 && pg->names.count < limit && pg->names.text_len < TEXT_MAX &&
	       !(cur.objects && cur.pos == MCM_TABLE_END)) {
		unsigned room = limit - pg->names.count;

		r = mcm_names_list(&m->names, path.len ? path.data : "", path.len,
				   room < SLICE ? room : SLICE, &cur, &pg->names);
	}
	if (r < 0)
		return r;
	if (!(cur.objects && cur.pos == MCM_TABLE_END))
		list_cursor_write(pg, kind, cur.objects, cur.pos);
	return 0;
}

/* Directories of tenants are not listed in the root. */
static void list_drop_tenants(struct mcm_names_page *pg)
{
	unsigned i, n = 0;

	for (i = 0; i < pg->count; i++)
		if (!pg->item[i].name_len || pg->text[pg->item[i].name])
			pg->item[n++] = pg->item[i];
	pg->count = n;
}

static int list_root(struct mcm *m, const struct mcp_list *rq, unsigned limit, struct mcm_list_page *pg)
{
	const uint8_t *cursor = rq->cursor.data;
	char nul[MCM_PREFIX_MAX];
	int r;

	mcm_tenant_prefix(MCM_TENANT_DEFAULT, nul);
	if (rq->cursor.len && cursor[0] == CURSOR_NUL)
		return list_path(m, mcp_bytes(nul, sizeof(nul)), rq->cursor, CURSOR_NUL, limit, pg);
	r = list_path(m, (struct mcp_bytes){ 0 }, rq->cursor, CURSOR_DIR, limit, pg);
	if (r < 0)
		return r;
	list_drop_tenants(&pg->names);
	if (!pg->cursor_len && mcm_names_busy(&m->names, nul, sizeof(nul)))
		list_cursor_write(pg, CURSOR_NUL, false, 0);
	return 0;
}

static int list_dir(struct mcm *m, struct mcm_scope sc, const struct mcp_list *rq, unsigned limit,
		    struct mcm_list_page *pg)
{
	char buf[MCM_KEY_MAX];
	struct mcp_bytes path = rq->prefix;

	if (path.len && ((const char *)path.data)[path.len - 1] != '/')
		return mc_fail(-MC_EPARAM, "directory path must end in '/'");
	if (!path.len && sc.tenant == MCM_TENANT_DEFAULT)
		return list_root(m, rq, limit, pg);
	if (path.len) {
		path = mcm_scope_key(sc, path, buf);
	} else {
		mcm_tenant_prefix(sc.tenant, buf);
		path = mcp_bytes(buf, MCM_PREFIX_MAX);
	}
	return list_path(m, path, rq->cursor, CURSOR_DIR, limit, pg);
}

struct keys_call {
	struct mcm *m;
	struct mcp_bytes prefix;
	uint32_t tenant;
	struct mcm_names_page *pg;
	int error;
};

static void list_key(void *arg, uint32_t slot)
{
	struct keys_call *c = arg;
	const struct mcm_object *o = mcm_object(&c->m->index, slot);
	struct mcp_bytes key = mcp_bytes(mcm_shard_key(&c->m->index, slot), o->key_len);
	struct mcm_names_item *it;
	uint32_t tenant;

	key = mcm_key_bare(key, &tenant);
	if (c->error || tenant != c->tenant || key.len < c->prefix.len ||
	    (c->prefix.len && memcmp(key.data, c->prefix.data, c->prefix.len) != 0))
		return;
	c->error = mcm_names_page_add(c->pg, key.data, key.len, &it);
	if (c->error == 0)
		mcm_names_item_describe(&c->m->index, slot, it);
}

static int list_keys(struct mcm *m, struct mcm_scope sc, const struct mcp_list *rq, unsigned limit,
		     struct mcm_list_page *pg)
{
	struct keys_call c = {
		.m = m, .prefix = rq->prefix, .tenant = sc.tenant, .pg = &pg->names,
	};
	unsigned seen = 0;
	uint64_t pos;
	bool objects;
	int r;

	r = list_cursor_read(rq->cursor, CURSOR_KEYS, &objects, &pos);
	while (r == 0 && pos < MCM_TABLE_END && c.pg->count < limit && seen < SCAN_MAX &&
	       c.pg->text_len < TEXT_MAX) {
		unsigned room = limit - c.pg->count;

		seen += mcm_index_scan(&m->index, &pos, room < SCAN_SLICE ? room : SCAN_SLICE,
				       list_key, &c);
		r = c.error;
	}
	if (r < 0)
		return r;
	if (pos < MCM_TABLE_END)
		list_cursor_write(pg, CURSOR_KEYS, false, pos);
	return 0;
}

int mcm_list(struct mcm *m, const struct mcp_list *rq, struct mcm_list_page *pg)
{
	unsigned limit = rq->limit ? rq->limit : LIMIT_DEFAULT;
	struct mcm_scope sc;
	int r;

	if (limit > LIMIT_MAX)
		limit = LIMIT_MAX;
	pg->names.count = 0;
	pg->names.text_len = 0;
	pg->cursor_len = 0;
	if (rq->prefix.len > MCP_KEY_MAX)
		return mc_fail(-MC_EPARAM, "prefix has %u bytes", rq->prefix.len);
	r = mcm_scope_begin(m, NULL, rq->tenant, false, &sc);
	if (r < 0)
		return r;
	r = rq->flags & MCP_LIST_DIR ? list_dir(m, sc, rq, limit, pg) :
		list_keys(m, sc, rq, limit, pg);
	return r < 0 ? r : list_drop_unreadable(m, &pg->names);
}

/* ---- attributes ---- */

/* The whole key of an entry, with the tenant's prefix; it is in one of the buffers. */
static struct mcp_bytes entry_key(struct mcm_scope sc, const struct mcp_list *rq, const struct mcm_names_page *pg,
				  const struct mcm_names_item *it, char key[2 * MCM_KEY_MAX + 1],
				  char scoped[MCM_KEY_MAX])
{
	uint32_t len = rq->flags & MCP_LIST_DIR ? rq->prefix.len : 0;

	if (len)
		memcpy(key, rq->prefix.data, len);
	memcpy(key + len, pg->text + it->name, it->name_len);
	len += it->name_len;
	if (!it->slot)
		key[len++] = '/';
	return mcm_scope_key(sc, mcp_bytes(key, len), scoped);
}

/* One key of entry_attrs(); @shared: it is that of the object of this name.  2: it is a name, of *ret_id. */
static int entry_find(struct mcm *m, struct mcp_bytes key, const struct mcm_link_id *shared,
		      struct mcm_names_item *it, struct mcm_attrs_memory *mem, struct mcp_seq *ret,
		      struct mcm_link_id *ret_id)
{
	uint32_t hash = mcm_index_hash(&m->index, key.data, key.len), slot;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	struct mcp_object obj = { 0 };
	bool dir = !it->slot, exists;
	struct mcm_names_stat st;

	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	exists = dir ? mcm_names_stat(&m->names, key.data, key.len, &st) : slot;
	if (!exists || (shared && !mcm_attrs_is_shared(&m->index, slot, *shared)))
		return 0;
	if (!dir && mcm_attrs_is_name(&m->index, slot, ret_id))
		return 2;
	if (!dir)
		mcm_names_item_describe(&m->index, slot, it);
	if (slot)
		obj.mtime_ms = mcm_object_mtime(mcm_object(&m->index, slot));
	mcm_attrs_describe(m, slot, dir ? &st : NULL, mem, &obj);
	*ret = obj.attrs;
	return 1;
}

/* The attributes of an entry that has some.  They are looked up after the walk over the directory, under whose lock no
 * shard can be locked.  So the entry becomes that of the object that has the key now.  False: the key was removed. */
static __attribute__((noinline)) bool entry_attrs(struct mcm *m, struct mcp_bytes key, struct mcm_names_item *it,
						  struct mcm_attrs_memory *mem, struct mcp_seq *ret)
{
	char buf[MCM_LINK_KEY_MAX];
	struct mcm_link_id id, none;
	int r = entry_find(m, key, NULL, it, mem, ret, &id);

	if (r == 2)
		r = entry_find(m, mcm_link_key(id, buf), &id, it, mem, ret, &none);
	return r == 1;
}

/* May the page name another medium than the one that has a copy? */
static bool media_unsure(const struct mcm *m, uint8_t media)
{
	return media & 1u << MCP_MEDIUM_DISK || (media && m->segments.puts_far);
}

/* The page only tells apart media on which objects are put, and others; for an object that was replaced since, that is
 * all there is. */
static void entries_media(struct mcm *m, const struct mcm_names_page *pg, struct mcp_entry *entry, int n)
{
	for (unsigned i = 0, k = 0; i < pg->count && k < (unsigned)n; i++) {
		const struct mcm_names_item *it = &pg->item[i];
		const struct mcm_object *o;
		struct mcm_shard *sh;

		/* Some items have no entry. */
		if (entry[k].name.data != pg->text + it->name)
			continue;
		if (media_unsure(m, it->media)) {
			sh = mcm_index_lock_slot(&m->index, it->slot);
			o = mcm_object(&m->index, it->slot);
			if (o->flags & MCM_OBJ_LIVE && o->generation == it->generation)
				entry[k].media = mcm_object_media(m, o);
			mc_mutex_unlock(&sh->lock);
		}
		k++;
	}
}

int mcm_list_entries(struct mcm *m, const struct mcp_list *rq, struct mcm_list_page *pg, struct mcp_attrs *attrs,
		     struct mcp_entry *ret)
{
	struct mcm_attrs_memory mem = { attrs, NULL };
	char key[2 * MCM_KEY_MAX + 1], scoped[MCM_KEY_MAX];
	struct mcm_scope sc;
	uint8_t media = 0;
	int r, n = 0;

	r = mcm_scope_begin(m, NULL, rq->tenant, false, &sc);
	for (unsigned i = 0; r == 0 && i < pg->names.count; i++) {
		struct mcm_names_item *it = &pg->names.item[i];
		struct mcp_seq list = { 0 };

		if ((it->attrs || !it->slot) &&
		    !entry_attrs(m, entry_key(sc, rq, &pg->names, it, key, scoped), it, &mem, &list))
			continue;
		mem.attrs += list.count;
		media |= it->media;
		ret[n++] = (struct mcp_entry){
			.name = mcp_bytes(pg->names.text + it->name, it->name_len),
			.size = it->size, .generation = it->generation, .mtime_ms = it->mtime_ms,
			.kind = it->kind, .media = it->media, .attrs = list,
		};
	}
	if (media_unsure(m, media))
		entries_media(m, &pg->names, ret, n);
	return r < 0 ? r : n;
}
