/* SPDX-License-Identifier: Apache-2.0
 * local_objects.c - objects with a copy on this node: reads the listing page by page and asks the
 * master for the replicas. */
#include <config.h>
#include "mcfs/read/local_objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mcfs/keymap.h"

int mcfs_local_objects(mcs_t *store, const struct mcs_key *keys, unsigned n, bool *ret, int64_t timeout_ms)
{
	struct mcs_replicas *where = calloc(n ? n : 1, sizeof(*where));
	const char *host = mcs_hostname(store);
	int r = where ? mcs_replicas(store, keys, n, 0, where, timeout_ms) : -ENOMEM;

	for (unsigned i = 0; i < n && r >= 0; i++) {
		ret[i] = false;
		for (unsigned c = 0; c < where[i].n; c++)
			ret[i] = ret[i] || strcmp(where[i].replica[c].segment, host) == 0;
	}
	if (r >= 0)
		mcs_replicas_free(where, n);
	free(where);
	return r < 0 ? r : 0;
}

struct mcfs_local_list {
	mcs_t *store;
	mcs_list_t *list;
	struct mcs_entry entry[MCFS_LOCAL_PAGE];	/* entries of the page; their names point into `text` */
	bool here[MCFS_LOCAL_PAGE];
	unsigned n, at;
	bool asked;			/* `here` is valid */
	bool last;			/* no page follows */
	char *text;			/* whole keys, back to back */
	size_t len, cap;
	size_t prefix_len;		/* part of each key that its name omits */
	char prefix[];
};

int mcfs_local_list_open(mcs_t *store, struct mcs_key prefix, int dir, struct mcfs_local_list **ret)
{
	struct mcfs_local_list *l = calloc(1, sizeof(*l) + prefix.len);
	int r;

	if (!l)
		return -ENOMEM;
	r = mcs_list_open(store, prefix, dir, &l->list);
	if (r < 0) {
		free(l);
		return r;
	}
	l->store = store;
	if (dir && prefix.len) {
		l->prefix_len = prefix.len;
		memcpy(l->prefix, prefix.data, prefix.len);
	}
	*ret = l;
	return 0;
}

void mcfs_local_list_close(struct mcfs_local_list *l)
{
	if (!l)
		return;
	mcs_list_close(l->list);
	free(l->text);
	free(l);
}

/* Reserve space for one more key, before an entry is read that could be lost. */
static int local_list_reserve(struct mcfs_local_list *l)
{
	size_t need = l->len + l->prefix_len + MCFS_KEY_MAX;
	char *text;

	if (l->cap >= need)
		return 0;
	text = realloc(l->text, 2 * need);
	if (!text)
		return -ENOMEM;
	l->text = text;
	l->cap = 2 * need;
	return 0;
}

static void local_list_keep(struct mcfs_local_list *l, const struct mcs_entry *e)
{
	memcpy(l->text + l->len, l->prefix, l->prefix_len);
	memcpy(l->text + l->len + l->prefix_len, e->name.data, e->name.len);
	l->len += l->prefix_len + e->name.len;
	l->entry[l->n++] = *e;
}

/* Directories exist on every node. */
static int local_list_ask(struct mcfs_local_list *l, int64_t timeout_ms)
{
	struct mcs_key keys[MCFS_LOCAL_PAGE];
	unsigned of[MCFS_LOCAL_PAGE], n = 0;
	bool here[MCFS_LOCAL_PAGE];
	const char *at = l->text;
	int r;

	for (unsigned i = 0; i < l->n; i++) {
		struct mcs_key *name = &l->entry[i].name;

		l->here[i] = l->entry[i].kind == MCS_DIR;
		if (!l->here[i]) {
			keys[n] = (struct mcs_key){ at, l->prefix_len + name->len };
			of[n++] = i;
		}
		name->data = at + l->prefix_len;
		at += l->prefix_len + name->len;
	}
	r = n ? mcfs_local_objects(l->store, keys, n, here, timeout_ms) : 0;
	for (unsigned i = 0; i < n && r == 0; i++)
		l->here[of[i]] = here[i];
	return r;
}

/* After an error the entries read so far stay: the next call continues. */
static int local_list_fill(struct mcfs_local_list *l, int64_t timeout_ms)
{
	struct mcs_entry e;
	int r;

	while (l->n < MCFS_LOCAL_PAGE && !l->last) {
		r = local_list_reserve(l);
		if (r == 0)
			r = mcs_list_next(l->list, &e, timeout_ms);
		if (r < 0)
			return r;
		l->last = r == 0;
		if (r == 1)
			local_list_keep(l, &e);
	}
	return 0;
}

int mcfs_local_list_next(struct mcfs_local_list *l, struct mcs_entry *ret, int64_t timeout_ms)
{
	int r;

	for (;;) {
		while (l->asked && l->at < l->n && !l->here[l->at])
			l->at++;
		if (l->asked && l->at < l->n) {
			*ret = l->entry[l->at++];
			return 1;
		}
		if (l->asked && l->last)
			return 0;
		if (l->asked) {
			l->n = l->at = 0;
			l->len = 0;
			l->asked = false;
		}
		r = local_list_fill(l, timeout_ms);
		if (r == 0)
			r = local_list_ask(l, timeout_ms);
		if (r < 0)
			return r;
		l->asked = true;
	}
}
