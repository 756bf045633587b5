/* SPDX-License-Identifier: Apache-2.0
 * list.c - list keys, page by page.  The master may return the same subdirectory on several
 * pages; a set of hashes drops the repetitions. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/attrs.h"
#include "client/store_i.h"
#include "common/hash.h"

#define PAGE_ENTRIES 1024

struct seen {			/* 128-bit hash of a name */
	uint64_t a, b;
};

struct mcs_list {
	/* constant after open */
	struct mcs *s;
	int dir;

	struct mcp_reply page;		/* the reply that @it iterates over */
	struct mcp_iter it;
	bool begun, last;
	uint64_t asked_ns;		/* when the page was requested */
	unsigned char *cursor;
	uint32_t cursor_len;

	struct seen *set;		/* open addressing; cap is a power of two */
	size_t cap, n;

	size_t prefix_len;
	unsigned char prefix[];
};

int mcs_list_open(struct mcs *s, struct mcs_key prefix, int dir, struct mcs_list **ret)
{
	struct mcs_list *l;

	if (prefix.len > MCP_KEY_MAX || (prefix.len && !prefix.data))
		return mc_fail(-MC_EKEY, "the prefix has %zu bytes", prefix.len);
	if (dir && prefix.len && ((const char *)prefix.data)[prefix.len - 1] != '/')
		return mc_fail(-MC_EPARAM, "a directory's prefix ends in '/'");
	l = calloc(1, sizeof(*l) + prefix.len);
	if (!l)
		return -ENOMEM;
	l->s = s;
	l->dir = dir;
	l->prefix_len = prefix.len;
	if (prefix.len)
		memcpy(l->prefix, prefix.data, prefix.len);
	*ret = l;
	return 0;
}

void mcs_list_close(struct mcs_list *l)
{
	if (!l)
		return;
	mcp_reply_done(&l->page);
	free(l->cursor);
	free(l->set);
	free(l);
}

static int list_set_grow(struct mcs_list *l)
{
	size_t cap = l->cap ? l->cap * 2 : 256;
	struct seen *set = calloc(cap, sizeof(*set));

	if (!set)
		return -ENOMEM;
	for (size_t i = 0; i < l->cap; i++) {
		size_t at = l->set[i].a & (cap - 1);

		if (!l->set[i].a)
			continue;
		while (set[at].a)
			at = (at + 1) & (cap - 1);
		set[at] = l->set[i];
	}
	free(l->set);
	l->set = set;
	l->cap = cap;
	return 0;
}

/* 1: @name is new; 0: it was in the set. */
static int list_set_add(struct mcs_list *l, struct mcp_bytes name)
{
	struct seen h = { mc_hash(name.data, name.len, 1), mc_hash(name.data, name.len, 2) };
	size_t at;
	int r;

	if (!h.a)
		h.a = 1;	/* 0 marks a free slot */
	if (l->n * 2 >= l->cap) {
		r = list_set_grow(l);
		if (r < 0)
			return r;
	}
	for (at = h.a & (l->cap - 1); l->set[at].a; at = (at + 1) & (l->cap - 1))
		if (l->set[at].a == h.a && l->set[at].b == h.b)
			return 0;
	l->set[at] = h;
	l->n++;
	return 1;
}

static int list_keep_cursor(struct mcs_list *l, struct mcp_bytes cursor)
{
	unsigned char *copy;

	l->last = !cursor.len;
	if (l->last)
		return 0;
	if (cursor.len == l->cursor_len && !memcmp(cursor.data, l->cursor, cursor.len))
		return mc_fail(-MC_EPROTO, "protocol error: two pages of a listing end with the same cursor");
	copy = malloc(cursor.len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, cursor.data, cursor.len);
	free(l->cursor);
	l->cursor = copy;
	l->cursor_len = cursor.len;
	return 0;
}

static unsigned list_media(uint8_t set)
{
	unsigned media = 0;

	for (; set; set &= (uint8_t)(set - 1))
		media |= mcs_medium_flag((uint8_t)__builtin_ctz(set));
	return media;
}

static int list_next_page(struct mcs_list *l, uint64_t deadline)
{
	struct mcp_list msg = {
		.flags = l->dir ? MCP_LIST_DIR : 0,
		.limit = PAGE_ENTRIES,
		.prefix = mcp_bytes(l->prefix, l->prefix_len),
		.cursor = mcp_bytes(l->cursor, l->cursor_len),
		.tenant = l->s->tenant,
	};
	struct mcp_list_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	l->asked_ns = mc_now_ns();
	r = mcs_call(l->s->session, MCP_LIST, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	r = list_keep_cursor(l, reply.cursor);
	if (r < 0) {
		mcp_reply_done(&mem);
		return r;
	}
	mcp_reply_done(&l->page);
	l->page = mem;
	mcp_iter_init(&l->it, &reply.entries, &mcp_desc_entry);
	l->begun = true;
	return 0;
}

int mcs_list_next(struct mcs_list *l, struct mcs_entry *ret, int64_t timeout_ms)
{
	struct mcp_entry e;
	int r;

	for (;;) {
		if (!l->begun || !mcp_iter_next(&l->it, &e)) {
			if (l->begun && l->last)
				return 0;
			/* Read the clock once per page. */
			r = list_next_page(l, mcs_deadline(l->s, timeout_ms));
			if (r < 0)
				return r;
			continue;
		}
		if (!l->dir || e.kind != MCP_KIND_DIR)
			break;
		r = list_set_add(l, e.name);
		if (r < 0)
			return r;
		if (r)
			break;
	}
	*ret = (struct mcs_entry){
		.name = { e.name.data, e.name.len },
		.size = e.size,
		.generation = e.generation,
		.mtime_ms = e.mtime_ms,
		.asked_ns = l->asked_ns,
		.kind = (enum mcs_kind)e.kind,
		.attrs = l->s->backend->ops->has_attrs ? mcs_attrs_decode(&e.attrs) : (struct mcs_attrs){ 0 },
		.media = list_media(e.media),
	};
	return 1;
}
