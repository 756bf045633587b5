/* SPDX-License-Identifier: Apache-2.0
 * links.c - files with several names.  A shared object and its names have one entry, which exists while there is a
 * record of any of them. */
#include <config.h>

#include "master/index/links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "proto/codec.h"

#define FIRST_BUCKETS 64u

struct mcm_link {
	struct mcm_link *next, *next_due;
	struct mcm_link_id id;
	uint32_t objects;		/* records that make one shared */
	bool owned;			/* the latest one has an owner */
	uint32_t uid;
	uint32_t *name;			/* slots of the names */
	uint32_t names, cap;
	bool due;
};

void mcm_links_init(struct mcm_links *l)
{
	memset(l, 0, sizeof(*l));
	mc_mutex_init(&l->lock);
}

static void link_free(struct mcm_link *e)
{
	free(e->name);
	free(e);
}

void mcm_links_done(struct mcm_links *l)
{
	struct mcm_link *e, *next;

	for (uint32_t i = 0; i < l->buckets; i++) {
		for (e = l->bucket[i]; e; e = next) {
			next = e->next;
			link_free(e);
		}
	}
	free(l->bucket);
	mc_mutex_destroy(&l->lock);
}

struct mcp_bytes mcm_link_key(struct mcm_link_id id, char buf[MCM_LINK_KEY_MAX])
{
	uint32_t prefix = id.tenant == MCM_TENANT_DEFAULT ? 0 : MCM_PREFIX_MAX;
	char text[sizeof(MCM_LINKS_DIR) + 16];
	int n = snprintf(text, sizeof(text), MCM_LINKS_DIR "%016llx", (unsigned long long)id.ino);

	if (prefix)
		mcm_tenant_prefix(id.tenant, buf);
	memcpy(buf + prefix, text, (size_t)n);
	return mcp_bytes(buf, prefix + (uint32_t)n);
}

bool mcm_link_is_key(struct mcm_link_id id, struct mcp_bytes key)
{
	char buf[MCM_LINK_KEY_MAX];
	struct mcp_bytes is = mcm_link_key(id, buf);

	return is.len == key.len && !memcmp(is.data, key.data, key.len);
}

bool mcm_link_reserved(struct mcp_bytes key)
{
	const uint32_t len = sizeof(MCM_LINKS_DIR) - 1;
	struct mcp_bytes bare = mcm_key_bare(key, NULL);

	return bare.len >= len && !memcmp(bare.data, MCM_LINKS_DIR, len);
}

/* ---- the table; its lock held ---- */

static struct mcm_link **link_head(struct mcm_links *l, struct mcm_link_id id)
{
	uint64_t hash = (id.ino ^ id.tenant) * 0x9e3779b97f4a7c15ull;

	return &l->bucket[hash >> 32 & (l->buckets - 1)];
}

static struct mcm_link *link_find(struct mcm_links *l, struct mcm_link_id id)
{
	struct mcm_link *e = l->buckets ? *link_head(l, id) : NULL;

	while (e && (e->id.ino != id.ino || e->id.tenant != id.tenant))
		e = e->next;
	return e;
}

/* A table that cannot grow becomes slower. */
static int links_grow(struct mcm_links *l)
{
	uint32_t old = l->buckets, n = old ? 2 * old : FIRST_BUCKETS;
	struct mcm_link **was = l->bucket, **more, *e, *next;

	if (l->count < old)
		return 0;
	more = calloc(n, sizeof(struct mcm_link *));
	if (!more)
		return old ? 0 : -ENOMEM;
	l->bucket = more;
	l->buckets = n;
	for (uint32_t i = 0; i < old; i++) {
		for (e = was[i]; e; e = next) {
			next = e->next;
			e->next = *link_head(l, e->id);
			*link_head(l, e->id) = e;
		}
	}
	free(was);
	return 0;
}

static struct mcm_link *link_new(struct mcm_links *l, struct mcm_link_id id)
{
	struct mcm_link *e = links_grow(l) < 0 ? NULL : calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->id = id;
	e->next = *link_head(l, id);
	*link_head(l, id) = e;
	__atomic_fetch_add(&l->count, 1, __ATOMIC_RELAXED);
	return e;
}

static void link_remove(struct mcm_links *l, struct mcm_link *e)
{
	struct mcm_link **at = link_head(l, e->id);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	__atomic_fetch_sub(&l->count, 1, __ATOMIC_RELAXED);
	link_free(e);
}

/* The entry is incomplete: an object without a name, or names without an object. */
static void link_due(struct mcm_links *l, struct mcm_link *e)
{
	if (e->due || (e->objects && e->names))
		return;
	e->due = true;
	e->next_due = NULL;
	*(l->due ? &l->last_due->next_due : &l->due) = e;
	l->last_due = e;
	l->dues++;
	__atomic_store_n(&l->any_due, true, __ATOMIC_RELAXED);
}

static int name_add(struct mcm_link *e, uint32_t slot)
{
	uint32_t cap = e->cap ? 2 * e->cap : 2, *more;

	if (e->names == e->cap) {
		more = realloc(e->name, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		e->name = more;
		e->cap = cap;
	}
	e->name[e->names++] = slot;
	return 0;
}

static void name_del(struct mcm_link *e, uint32_t slot)
{
	for (uint32_t i = 0; i < e->names; i++) {
		if (e->name[i] != slot)
			continue;
		e->name[i] = e->name[--e->names];
		return;
	}
}

/* ---- */

int mcm_links_add(struct mcm_links *l, struct mcm_link_id id, uint32_t slot, bool name, const uint32_t *uid)
{
	struct mcm_link *e;
	int r = 0;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	if (!e)
		e = link_new(l, id);
	if (!e)
		return -ENOMEM;
	if (name) {
		r = name_add(e, slot);
	} else {
		e->owned = uid;
		e->uid = uid ? *uid : 0;
		e->objects++;
	}
	/* At a restart the others may follow, or not. */
	link_due(l, e);
	return r;
}

void mcm_links_del(struct mcm_links *l, struct mcm_link_id id, uint32_t slot, bool name)
{
	struct mcm_link *e;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	if (!e)
		return;
	if (name)
		name_del(e, slot);
	else if (e->objects)
		e->objects--;
	link_due(l, e);
}

bool mcm_links_any(struct mcm_links *l)
{
	return __atomic_load_n(&l->count, __ATOMIC_RELAXED);
}

bool mcm_links_owner(struct mcm_links *l, struct mcm_link_id id, uint32_t *ret_uid)
{
	const struct mcm_link *e;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	*ret_uid = e ? e->uid : 0;
	return e && e->objects && e->owned;
}

void mcm_links_later(struct mcm_links *l, struct mcm_link_id id)
{
	struct mcm_link *e;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	if (e)
		link_due(l, e);
}

unsigned mcm_links_dues(struct mcm_links *l)
{
	MC_LOCKED(&l->lock);
	return l->dues;
}

bool mcm_links_shared(struct mcm_links *l, struct mcm_link_id id)
{
	const struct mcm_link *e;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	return e && e->objects;
}

uint32_t mcm_links_names(struct mcm_links *l, struct mcm_link_id id)
{
	const struct mcm_link *e;

	MC_LOCKED(&l->lock);
	e = link_find(l, id);
	return e ? e->names : 0;
}

bool mcm_links_take_due(struct mcm_links *l, struct mcm_link_id *ret_id, uint32_t *ret_slot, bool *ret_name)
{
	struct mcm_link *e;

	MC_LOCKED(&l->lock);
	while ((e = l->due)) {
		l->due = e->next_due;
		l->dues--;
		e->due = false;
		if (!e->objects && !e->names) {
			link_remove(l, e);
		} else if (!e->objects || !e->names) {
			*ret_id = e->id;
			*ret_name = !e->objects;
			*ret_slot = e->objects ? 0 : e->name[e->names - 1];
			return true;
		}
	}
	__atomic_store_n(&l->any_due, false, __ATOMIC_RELAXED);
	return false;
}
