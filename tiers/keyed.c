/* SPDX-License-Identifier: Apache-2.0
 * keyed.c - the list of keyed tiers, and the checks that they have in common. */
#include <config.h>

#include "tiers/keyed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "tiers/blob/blob_i.h"

static bool keyed_part_valid(const char *part, size_t len)
{
	return len && !(len == 1 && part[0] == '.') && !(len == 2 && !strncmp(part, "..", 2)) &&
		strspn(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") >= len;
}

static bool keyed_name_valid(const char *name)
{
	size_t len = strlen(name), part;

	for (size_t at = 0; at <= len; at += part + 1) {
		part = strcspn(name + at, "/");
		if (len >= MCT_KEYED_NAME_MAX || !keyed_part_valid(name + at, part))
			return false;
	}
	return true;
}

static int keyed_name_check(const char *name)
{
	return keyed_name_valid(name) ? 0 : mc_fail(-EINVAL, "invalid name in a store: %.100s", name);
}

/* A prefix is valid if a name can begin with it. */
static int keyed_prefix_check(const char *prefix)
{
	size_t len = strlen(prefix);
	char name[MCT_KEYED_NAME_MAX];

	if (len + 1 >= sizeof(name))
		return mc_fail(-EINVAL, "a prefix of names in a store is too long: %.100s", prefix);
	memcpy(name, prefix, len);
	memcpy(name + len, "x", 2);
	return keyed_name_check(name);
}

const struct mct_keyed_ops *const mct_keyed_tiers[] = { &mct_blob_dir, &mct_blob_s3, NULL };

int mct_keyed_open(const char *tier, const char *place, struct mct_keyed **ret)
{
	for (unsigned i = 0; mct_keyed_tiers[i]; i++)
		if (!strcmp(mct_keyed_tiers[i]->name, tier))
			return mct_keyed_tiers[i]->open(place, ret);
	return mc_fail(-EINVAL, "snapshot_object_store_type=%s: unknown, use local or s3", tier);
}

void mct_keyed_close(struct mct_keyed *b)
{
	if (b)
		b->ops->close(b);
}

const char *mct_keyed_where(const struct mct_keyed *b)
{
	return b->where;
}

int mct_keyed_put(struct mct_keyed *b, const char *name, const void *data, size_t len)
{
	int r = keyed_name_check(name);

	if (r == 0 && len > MCT_KEYED_MAX)
		r = mc_fail(-EINVAL, "%zu bytes are too many for %s", len, name);
	return r < 0 ? r : b->ops->put(b, name, data, len);
}

int mct_keyed_get(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len)
{
	int r = keyed_name_check(name);

	return r < 0 ? r : b->ops->get(b, name, ret, ret_len);
}

int mct_keyed_get_part(struct mct_keyed *b, const char *name, uint64_t off, void *buf, size_t len)
{
	int r = keyed_name_check(name);

	return r < 0 ? r : b->ops->get_part(b, name, off, buf, len);
}

int mct_keyed_swap(struct mct_keyed *b, const char *name, const void *was, size_t was_len, const void *data, size_t len)
{
	int r = keyed_name_check(name);

	return r < 0 ? r : b->ops->swap(b, name, was, was_len, data, len);
}

int mct_keyed_delete(struct mct_keyed *b, const char *name)
{
	int r = keyed_name_check(name);

	return r < 0 ? r : b->ops->del(b, name);
}

int mct_blob_swap_check(const char *where, const char *name, const void *now, size_t now_len, const void *was,
			size_t was_len, const void *data, size_t len)
{
	if (now && now_len == len && !memcmp(now, data, len))
		return 0;
	if (now ? was && now_len == was_len && !memcmp(now, was, was_len) : !was)
		return 1;
	return mc_fail(-EEXIST, "%s: another process has %s %s", where, now ? "written" : "deleted", name);
}

/* ---- lists --------------------------------------------------------------------------------------- */

struct keyed_names {
	const char *prefix;
	char **name;
	size_t n, max;
};

static int names_add(void *arg, const char *name)
{
	struct keyed_names *l = arg;

	if (strncmp(name, l->prefix, strlen(l->prefix)) != 0 || !keyed_name_valid(name))
		return 0;
	if (l->n == MCT_KEYED_LIST_MAX)
		return mc_fail(-EMSGSIZE, "a snapshot store has more than %u names that begin with %.100s",
			       MCT_KEYED_LIST_MAX, l->prefix);
	if (l->n == l->max) {
		size_t max = l->max ? 2 * l->max : 64;
		char **more = realloc(l->name, max * sizeof(*more));

		if (!more)
			return mc_fail(-ENOMEM, "no memory for a list of names");
		l->name = more;
		l->max = max;
	}
	l->name[l->n] = strdup(name);
	return l->name[l->n] ? (l->n++, 0) : mc_fail(-ENOMEM, "no memory for a list of names");
}

static int names_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int mct_keyed_list(struct mct_keyed *b, const char *prefix, mct_keyed_fn fn, void *arg)
{
	struct keyed_names l = { .prefix = prefix };
	int r = keyed_prefix_check(prefix);

	if (r == 0)
		r = b->ops->list(b, prefix, names_add, &l);
	if (l.n)
		qsort(l.name, l.n, sizeof(*l.name), names_compare);
	for (size_t i = 0; i < l.n; i++) {
		/* A name twice: it was replaced between two pages of the list. */
		if (r == 0 && (!i || strcmp(l.name[i], l.name[i - 1]) != 0))
			r = fn(arg, l.name[i]);
	}
	for (size_t i = 0; i < l.n; i++)
		free(l.name[i]);
	free(l.name);
	return r;
}

struct keyed_walk {
	const char *prefix;
	mct_keyed_fn fn;
	void *arg;
};

static int walk_one(void *arg, const char *name)
{
	const struct keyed_walk *w = arg;

	return strncmp(name, w->prefix, strlen(w->prefix)) != 0 || !keyed_name_valid(name) ? 0 : w->fn(w->arg, name);
}

int mct_keyed_walk(struct mct_keyed *b, const char *prefix, mct_keyed_fn fn, void *arg)
{
	struct keyed_walk w = { prefix, fn, arg };
	int r = keyed_prefix_check(prefix);

	return r < 0 ? r : b->ops->list(b, prefix, walk_one, &w);
}
