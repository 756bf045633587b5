/* SPDX-License-Identifier: Apache-2.0
 * blob.c - a store of named pieces of data: the common part of both kinds. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "meta/blob_i.h"

static bool part_is_valid(const char *part, size_t len)
{
	return len && !(len == 1 && part[0] == '.') && !(len == 2 && !strncmp(part, "..", 2)) &&
		strspn(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") >= len;
}

static bool name_is_valid(const char *name)
{
	size_t len = strlen(name), part;

	for (size_t at = 0; at <= len; at += part + 1) {
		part = strcspn(name + at, "/");
		if (len >= MCD_BLOB_NAME_MAX || !part_is_valid(name + at, part))
			return false;
	}
	return true;
}

static int name_check(const char *name)
{
	return name_is_valid(name) ? 0 : mc_fail(-EINVAL, "invalid name in a snapshot store: %.100s", name);
}

/* A prefix is valid if a name can begin with it. */
static int prefix_check(const char *prefix)
{
	size_t len = strlen(prefix);
	char name[MCD_BLOB_NAME_MAX];

	if (len + 1 >= sizeof(name))
		return mc_fail(-EINVAL, "a prefix of names in a snapshot store is too long: %.100s", prefix);
	memcpy(name, prefix, len);
	memcpy(name + len, "x", 2);
	return name_check(name);
}

int mcd_blobs_open(const char *type, const char *dir, struct mcd_blobs **ret)
{
	if (!strcmp(type, "local"))
		return mcd_blob_dir_open(dir, ret);
	if (!strcmp(type, "s3"))
		return mcd_blob_s3_open(ret);
	return mc_fail(-EINVAL, "snapshot_object_store_type=%s: unknown, use local or s3", type);
}

void mcd_blobs_close(struct mcd_blobs *b)
{
	if (b)
		b->ops->close(b);
}

const char *mcd_blobs_where(const struct mcd_blobs *b)
{
	return b->where;
}

int mcd_blob_put(struct mcd_blobs *b, const char *name, const void *data, size_t len)
{
	int r = name_check(name);

	if (r == 0 && len > MCD_BLOB_MAX)
		r = mc_fail(-EINVAL, "%zu bytes are too many for %s", len, name);
	return r < 0 ? r : b->ops->put(b, name, data, len);
}

int mcd_blob_get(struct mcd_blobs *b, const char *name, void **ret, size_t *ret_len)
{
	int r = name_check(name);

	return r < 0 ? r : b->ops->get(b, name, ret, ret_len);
}

int mcd_blob_delete(struct mcd_blobs *b, const char *name)
{
	int r = name_check(name);

	return r < 0 ? r : b->ops->del(b, name);
}

/* ---- lists --------------------------------------------------------------------------------------- */

struct names {
	const char *prefix;
	char **name;
	size_t n, max;
};

static int names_add(void *arg, const char *name)
{
	struct names *l = arg;

	if (strncmp(name, l->prefix, strlen(l->prefix)) != 0 || !name_is_valid(name))
		return 0;
	if (l->n == MCD_BLOB_LIST_MAX)
		return mc_fail(-EMSGSIZE, "a snapshot store has more than %u names that begin with %.100s",
			       MCD_BLOB_LIST_MAX, l->prefix);
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

int mcd_blob_list(struct mcd_blobs *b, const char *prefix, int (*fn)(void *arg, const char *name), void *arg)
{
	struct names l = { .prefix = prefix };
	int r = prefix_check(prefix);

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
