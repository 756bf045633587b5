/* SPDX-License-Identifier: Apache-2.0
 * blob.c - a store of named pieces of data: the common part of both kinds. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "meta/blob_i.h"

static bool part_is_valid(const char *part, size_t len)
{
	return len && !(len == 1 && part[0] == '.') && !(len == 2 && !strncmp(part, "..", 2)) &&
		strspn(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") >= len;
}

static int name_check(const char *name)
{
	size_t len = strlen(name), part;

	for (size_t at = 0; at <= len; at += part + 1) {
		part = strcspn(name + at, "/");
		if (len >= MCD_BLOB_NAME_MAX || !part_is_valid(name + at, part))
			return mc_fail(-EINVAL, "invalid name in a snapshot store: %.100s", name);
	}
	return 0;
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

int mcd_blob_list(struct mcd_blobs *b, const char *prefix, int (*fn)(void *arg, const char *name), void *arg)
{
	return b->ops->list(b, prefix, fn, arg);
}
