/* SPDX-License-Identifier: Apache-2.0
 * user_xattr.c - user.* attributes that programs set. The pool keeps them without "user.". */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/err.h"
#include "mcfs/handle.h"
#include "mcfs/ops/ops.h"

#define USER "user."
#define OWN "user.mooncake."

bool mcfs_is_user_xattr(const char *name)
{
	return strncmp(name, USER, strlen(USER)) == 0 && strncmp(name, OWN, strlen(OWN)) != 0;
}

static struct mcs_key pool_name(const char *name)
{
	return (struct mcs_key){ name + strlen(USER), strlen(name) - strlen(USER) };
}

/* Those of a version or directory. */
static int version_xattrs(struct mcfs_op *op, struct mcfs_inode *in, struct mcs_xattr **ret, unsigned *ret_n)
{
	struct mcs_info info;
	struct mcfs_key key;
	uint64_t version = mcfs_inode_version(&op->fs->inodes, in, &key);
	int r;

	if (in == &op->fs->inodes.root || mcfs_inode_is_view(in))
		return 0;
	r = mcs_get_xattrs(op->fs->store, mcfs_key_of(&key), ret, ret_n, &info, mcfs_op_left_ms(op));
	if (mcs_errno(r) == ENOENT && in->kind == MCS_DIR)
		return 0;
	if (r < 0 || !version || info.generation == version)
		return r;
	free(*ret);
	*ret = NULL;
	*ret_n = 0;
	return mc_fail(-ESTALE, "the file was replaced");
}

int mcfs_user_xattrs(struct mcfs_op *op, struct mcfs_inode *in, struct mcs_xattr **ret, unsigned *ret_n)
{
	struct mcfs_writer *w = mcfs_handle_writer_seen(op->fs, in);
	int r;

	*ret = NULL;
	*ret_n = 0;
	r = w ? mcfs_writer_get_xattrs(w, ret, ret_n, op->deadline) : version_xattrs(op, in, ret, ret_n);
	mcfs_writer_unref(w);
	return r;
}

size_t mcfs_user_xattr_names(const struct mcs_xattr *list, unsigned n, char *ret)
{
	size_t len = 0;

	for (unsigned i = 0; i < n; i++) {
		if (ret) {
			memcpy(ret + len, USER, strlen(USER));
			memcpy(ret + len + strlen(USER), list[i].name.data, list[i].name.len);
			ret[len + strlen(USER) + list[i].name.len] = '\0';
		}
		len += strlen(USER) + list[i].name.len + 1;
	}
	return len;
}

void mcfs_user_xattr_get(struct mcfs_op *op, const char *name, size_t size)
{
	struct mcs_key wanted = pool_name(name);
	struct mcs_xattr *list = NULL, *x = NULL;
	unsigned n = 0;
	int r = op->in ? mcfs_user_xattrs(op, op->in, &list, &n) : 0;

	for (unsigned i = 0; i < n && r == 0 && !x; i++)
		if (list[i].name.len == wanted.len && memcmp(list[i].name.data, wanted.data, wanted.len) == 0)
			x = &list[i];
	if (r == 0 && !x)
		r = -ENODATA;
	if (r < 0)
		(void)mcfs_reply_err(op, r);
	else
		(void)mcfs_reply_xattr(op, x->value.data, x->value.len, size);
	free(list);
}

int mcfs_user_xattr_set(struct mcfs_op *op, const char *name, const void *value, size_t size, unsigned flags)
{
	struct mcs_xattr x = { pool_name(name), { value, size } };
	struct mcfs_writer *w;
	int r = op->in ? mcfs_attrs_allowed(op, op->in) : -EPERM;

	if (r < 0)
		return r;
	if (!x.name.len || x.name.len > MCS_XATTR_NAME_MAX)
		return x.name.len ? -ERANGE : -EINVAL;
	if (size > MCS_XATTRS_MAX)
		return mc_fail(-ENOSPC, "the extended attributes of a file have at most %u bytes", MCS_XATTRS_MAX);
	w = mcfs_handle_writer_seen(op->fs, op->in);
	if (!w && !op->in->info.generation && op->in->kind != MCS_DIR)
		return -ESTALE;
	r = w ? mcfs_writer_set_xattr(w, &x, flags, op) : mcfs_attrs_change(op, op->in, NULL, &x, flags);
	mcfs_writer_unref(w);
	return r;
}
