/* SPDX-License-Identifier: Apache-2.0
 * xattrs.c - extended attributes that wait for the first commit of a file. */
#include <config.h>
#include "mcfs/write/xattrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* Bytes that the master counts for each, besides name and value. */
#define OVERHEAD 3u

static unsigned xattrs_find(const struct mcfs_xattrs *all, struct mcs_key name)
{
	unsigned i = 0;

	while (i < all->n && (all->item[i].name.len != name.len ||
			      memcmp(all->item[i].name.data, name.data, name.len) != 0))
		i++;
	return i;
}

static size_t xattrs_bytes(const struct mcfs_xattrs *all)
{
	size_t sum = 0;

	for (unsigned i = 0; i < all->n; i++)
		sum += all->item[i].name.len + all->item[i].value.len + OVERHEAD;
	return sum;
}

static int xattr_dup(const struct mcs_xattr *x, struct mcs_xattr *ret)
{
	char *text = malloc(x->name.len + x->value.len + 1);

	if (!text)
		return -ENOMEM;
	memcpy(text, x->name.data, x->name.len);
	if (x->value.len)
		memcpy(text + x->name.len, x->value.data, x->value.len);
	*ret = (struct mcs_xattr){ { text, x->name.len }, { text + x->name.len, x->value.len } };
	return 0;
}

static void xattr_free(struct mcs_xattr *x)
{
	free((void *)(uintptr_t)x->name.data);
}

static int xattrs_remove(struct mcfs_xattrs *all, unsigned at)
{
	if (at == all->n)
		return -ENODATA;
	xattr_free(&all->item[at]);
	all->item[at] = all->item[--all->n];
	return 0;
}

int mcfs_xattrs_change(struct mcfs_xattrs *all, const struct mcs_xattr *x, unsigned flags)
{
	unsigned at = xattrs_find(all, x->name);
	size_t old = at < all->n ? x->name.len + all->item[at].value.len + OVERHEAD : 0;
	struct mcs_xattr copy, *more;
	int r;

	if (flags & MCS_XATTR_REMOVE)
		return xattrs_remove(all, at);
	if (at < all->n ? flags & MCS_XATTR_CREATE : flags & MCS_XATTR_REPLACE)
		return at < all->n ? -EEXIST : -ENODATA;
	if (xattrs_bytes(all) - old + x->name.len + x->value.len + OVERHEAD > MCS_XATTRS_MAX)
		return mc_fail(-ENOSPC, "the extended attributes of a file have at most %u bytes", MCS_XATTRS_MAX);
	r = xattr_dup(x, &copy);
	if (r < 0)
		return r;
	if (at < all->n) {
		xattr_free(&all->item[at]);
		all->item[at] = copy;
		return 0;
	}
	more = realloc(all->item, (all->n + 1) * sizeof(*more));
	if (!more) {
		xattr_free(&copy);
		return -ENOMEM;
	}
	all->item = more;
	all->item[all->n++] = copy;
	return 0;
}

int mcfs_xattrs_copy(const struct mcfs_xattrs *all, struct mcs_xattr **ret, unsigned *ret_n)
{
	struct mcs_xattr *list = malloc(all->n * sizeof(*list) + xattrs_bytes(all) + 1);
	char *text;

	if (!list)
		return -ENOMEM;
	text = (char *)(list + all->n);
	for (unsigned i = 0; i < all->n; i++) {
		const struct mcs_xattr *x = &all->item[i];

		list[i] = (struct mcs_xattr){ { text, x->name.len }, { text + x->name.len, x->value.len } };
		memcpy(text, x->name.data, x->name.len + x->value.len);
		text += x->name.len + x->value.len;
	}
	*ret = list;
	*ret_n = all->n;
	return 0;
}

void mcfs_xattrs_clear(struct mcfs_xattrs *all)
{
	for (unsigned i = 0; i < all->n; i++)
		xattr_free(&all->item[i]);
	free(all->item);
	*all = (struct mcfs_xattrs){ 0 };
}
