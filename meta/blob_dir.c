/* SPDX-License-Identifier: Apache-2.0
 * blob_dir.c - named pieces of data as files below a directory.  A file gets its name when it is complete. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sync.h"
#include "meta/blob_i.h"

#define UNFINISHED ".tmp~"	/* no valid name has a '~' */

struct dir {
	struct mcd_blobs base;
	char *root;
};

static void dir_close(struct mcd_blobs *b)
{
	struct dir *d = (struct dir *)b;

	free(d->root);
	free(d);
}

/* The path of a file; the caller frees it. */
static char *path_of(const struct mcd_blobs *b, const char *name, const char *suffix)
{
	char *path;

	return asprintf(&path, "%s/%s%s", ((const struct dir *)b)->root, name, suffix) < 0 ? NULL : path;
}

/* Make the directories that lead to @path; each entry is durable. */
static int make_dirs(const struct mcd_blobs *b, char *path)
{
	char *at = path + strlen(((const struct dir *)b)->root);
	int r = 0;

	while (r == 0 && (at = strchr(at + 1, '/'))) {
		*at = '\0';
		if (mkdir(path, 0700) == 0)
			r = mc_sync_entry(path);
		else if (errno != EEXIST)
			r = mc_fail(-errno, "cannot create %s", path);
		*at = '/';
	}
	return r;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		len -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int dir_put(struct mcd_blobs *b, const char *name, const void *data, size_t len)
{
	auto_free char *path = path_of(b, name, ""), *tmp = path_of(b, name, UNFINISHED);
	auto_close int fd = -1;
	int r;

	if (!path || !tmp)
		return mc_fail(-ENOMEM, "no memory for a file");
	r = make_dirs(b, path);
	if (r < 0)
		return r;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : mc_fault("blob.write");
	if (r == 0)
		r = write_all(fd, data, len);
	MC_FAULT_POINT("blob.rename");
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r == 0)
		return mc_sync_entry(path);
	(void)unlink(tmp);
	return mc_fail(r, "cannot write %s", path);
}

static int dir_get(struct mcd_blobs *b, const char *name, void **ret, size_t *ret_len)
{
	auto_free char *path = path_of(b, name, ""), *data = NULL;
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	size_t at = 0;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return mc_fail(path ? -errno : -ENOMEM, "cannot read %s", path ? path : name);
	if (st.st_size > MCD_BLOB_MAX)
		return mc_fail(-EMSGSIZE, "%s is too large", path);
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return mc_fail(-ENOMEM, "no memory for %s", path);
	while (at < (size_t)st.st_size && n > 0) {
		n = read(fd, data + at, (size_t)st.st_size - at);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			at += (size_t)n;
	}
	if (n < 0)
		return mc_fail(-errno, "cannot read %s", path);
	data[at] = '\0';
	*ret_len = at;
	*ret = TAKE_PTR(data);
	return 0;
}

static int dir_del(struct mcd_blobs *b, const char *name)
{
	auto_free char *path = path_of(b, name, "");
	size_t root = strlen(((struct dir *)b)->root);
	char *end;

	if (!path)
		return mc_fail(-ENOMEM, "no memory for a file");
	if (unlink(path) < 0 && errno != ENOENT)
		return mc_fail(-errno, "cannot delete %s", path);
	/* Directories that are empty now. */
	while ((end = strrchr(path + root + 1, '/'))) {
		*end = '\0';
		if (rmdir(path) < 0)
			break;
	}
	return 0;
}

static int list_below(struct mcd_blobs *b, const char *prefix, mcd_blob_fn fn, void *arg)
{
	auto_free char *path = path_of(b, prefix, "");
	DIR *dir = path ? opendir(path) : NULL;
	struct dirent *e;
	int r = 0;

	if (!dir)
		return path && errno == ENOENT ? 0 : mc_fail(path ? -errno : -ENOMEM, "cannot list %s", prefix);
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		char name[MCD_BLOB_NAME_MAX + 2];
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || strstr(e->d_name, UNFINISHED))
			continue;
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (snprintf(name, sizeof(name), "%s%s%s", prefix, e->d_name, S_ISDIR(st.st_mode) ? "/" : "") >=
		    (int)sizeof(name))
			continue;
		r = S_ISDIR(st.st_mode) ? list_below(b, name, fn, arg) : S_ISREG(st.st_mode) ? fn(arg, name) : 0;
	}
	if (r == 0 && errno)
		r = mc_fail(-errno, "cannot list %s", path);
	closedir(dir);
	return r;
}

int mcd_blob_dir_open(const char *dir, struct mcd_blobs **ret)
{
	static const struct mcd_blob_ops ops = { dir_close, dir_put, dir_get, dir_del, list_below };
	struct dir *d;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return mc_fail(-errno, "cannot create the directory of snapshots, %s", dir);
	d = calloc(1, sizeof(*d));
	if (!d)
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	d->base.ops = &ops;
	d->root = strdup(dir);
	if (!d->root) {
		free(d);
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	}
	snprintf(d->base.where, sizeof(d->base.where), "%s", dir);
	*ret = &d->base;
	return 0;
}
