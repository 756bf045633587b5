/* SPDX-License-Identifier: Apache-2.0
 * dir.c - named pieces of data as files below a directory.  A file gets its name when it is complete. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/random.h"
#include "tiers/blob/blob_i.h"

/* First byte of the name of an unfinished file; no valid name has it.  The rest is random: a suffix to the blob's name
 * could exceed the limit of the file system, and two puts of one name need two files. */
#define UNFINISHED '~'
#define RETRIES 16
#define LOCK_MS 10000

struct blob_dir {
	struct mct_keyed base;
	char *root;
};

static void dir_close(struct mct_keyed *b)
{
	struct blob_dir *d = (struct blob_dir *)b;

	free(d->root);
	free(d);
}

/* The path of a file; the caller frees it. */
static char *dir_path(const struct mct_keyed *b, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", ((const struct blob_dir *)b)->root, name) < 0 ? NULL : path;
}

/* ---- put ----------------------------------------------------------------------------------------- */

/* Make the directories that lead to @path durable, also those of a put that was killed before it could. */
static int dir_make_parents(const struct mct_keyed *b, char *path)
{
	char *at = path + strlen(((const struct blob_dir *)b)->root);
	int r = 0;

	while (r == 0 && (at = strchr(at + 1, '/'))) {
		*at = '\0';
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			r = mc_fail(-errno, "cannot create %s: %s", path, mc_strerror(errno));
		else
			r = mc_file_sync_entry(path);
		*at = '/';
	}
	return r;
}

/* Create a file beside @path.  Its lock tells a sweep that the writer lives. */
static int dir_unfinished_open(const char *path, char **ret, int *ret_fd)
{
	const char *last = strrchr(path, '/');
	auto_free char *tmp = NULL;
	auto_close int fd = -1;
	struct stat st;

	if (asprintf(&tmp, "%.*s/%c%016" PRIx64, (int)(last - path), path, UNFINISHED, mc_random_u64()) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* File systems without locks: a sweep cannot lock the file either, and leaves it. */
	(void)flock(fd, LOCK_EX);
	if (fstat(fd, &st) < 0 || !st.st_nlink)
		return -ENOENT;		/* a sweep had the lock first, and removed the file */
	*ret = TAKE_PTR(tmp);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int dir_write_all(int fd, const char *data, size_t len)
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

static int dir_put_once(const char *path, const void *data, size_t len)
{
	auto_free char *tmp = NULL;
	auto_close int fd = -1;
	int r = mc_fault("blob.write");

	if (r == 0)
		r = dir_unfinished_open(path, &tmp, &fd);
	if (r == 0)
		r = dir_write_all(fd, data, len);
	if (r == 0)
		r = mc_fault("blob.rename");
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0 && tmp)
		(void)unlink(tmp);
	return r;
}

static int dir_put(struct mct_keyed *b, const char *name, const void *data, size_t len)
{
	auto_free char *path = dir_path(b, name);
	int r = -ENOENT;

	if (!path)
		return mc_fail(-ENOMEM, "no memory for a file");
	/* -ENOENT: a delete or a sweep has removed the directory, which was empty. */
	for (unsigned i = 0; i < RETRIES && r == -ENOENT; i++) {
		r = dir_make_parents(b, path);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		r = dir_put_once(path, data, len);
	}
	return r < 0 ? mc_fail(r, "cannot write %s: %s", path, mc_strerror(r)) : mc_file_sync_entry(path);
}

/* ---- get and delete ------------------------------------------------------------------------------ */

static int dir_get_open(const char *path, struct stat *ret)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 || fstat(fd, ret) < 0 ? -errno : 0;

	/* "a/b" and "a" when only the other one exists. */
	if (r == -ENOTDIR || (r == 0 && !S_ISREG(ret->st_mode)))
		r = -ENOENT;
	if (r < 0)
		return mc_fail(r, "cannot read %s: %s", path, mc_strerror(r));
	if (ret->st_size > MCT_KEYED_MAX)
		return mc_fail(-EMSGSIZE, "%s has more than %u bytes", path, MCT_KEYED_MAX);
	return TAKE_FD(fd);
}

/* Read @len bytes of the open file; the number of bytes, fewer at its end. */
static ssize_t dir_read(int fd, char *buf, size_t len)
{
	size_t at = 0;
	ssize_t n = 1;

	while (at < len && n) {
		n = read(fd, buf + at, len - at);
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)at;
}

static int dir_get(struct mct_keyed *b, const char *name, void **ret, size_t *ret_len)
{
	auto_free char *path = dir_path(b, name), *data = NULL;
	auto_close int fd = -1;
	struct stat st;
	size_t len;
	ssize_t n;

	if (!path)
		return mc_fail(-ENOMEM, "no memory for a file");
	fd = dir_get_open(path, &st);
	if (fd < 0)
		return fd;
	len = (size_t)st.st_size;
	data = malloc(len + 1);
	if (!data)
		return mc_fail(-ENOMEM, "no memory for %s", path);
	n = dir_read(fd, data, len);
	if (n < (ssize_t)len)
		return mc_fail(n < 0 ? (int)n : -EIO, "cannot read %s: %s", path,
			       n < 0 ? mc_strerror((int)n) : "the file was cut off meanwhile");
	data[len] = '\0';
	*ret_len = len;
	*ret = TAKE_PTR(data);
	return 0;
}

static int dir_get_part(struct mct_keyed *b, const char *name, uint64_t off, void *buf, size_t len)
{
	auto_free char *path = dir_path(b, name);
	auto_close int fd = -1;
	struct stat st;
	ssize_t n;

	if (!path)
		return mc_fail(-ENOMEM, "no memory for a file");
	fd = dir_get_open(path, &st);
	if (fd < 0)
		return fd;
	n = lseek(fd, (off_t)off, SEEK_SET) < 0 ? -errno : dir_read(fd, buf, len);
	if (n < 0)
		return mc_fail((int)n, "cannot read %s: %s", path, mc_strerror((int)n));
	return n == (ssize_t)len ? 0 :
		mc_fail(-ERANGE, "%s ends before byte %llu", path, (unsigned long long)(off + len));
}

/* The lock of the directory: the number of its descriptor. */
static int dir_lock(const struct blob_dir *d)
{
	auto_file int fd = mc_file_open(d->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	uint64_t deadline = mc_deadline_ms(LOCK_MS);

	if (fd < 0)
		return mc_fail(-errno, "cannot open %s: %s", d->root, mc_strerror(errno));
	while (mc_file_flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return mc_fail(-errno, "cannot lock %s: %s", d->root, mc_strerror(errno));
		if (mc_now_ns() >= deadline)
			return mc_fail(-ETIMEDOUT, "cannot lock %s: another process has locked it", d->root);
		mc_sleep_ms(10);
	}
	return TAKE_FD(fd);
}

static int dir_swap(struct mct_keyed *b, const char *name, const void *was, size_t was_len, const void *data,
		    size_t len)
{
	auto_file int lock = dir_lock((struct blob_dir *)b);
	auto_free void *now = NULL;
	size_t now_len = 0;
	int r = lock < 0 ? lock : dir_get(b, name, &now, &now_len);

	if (r == -ENOENT)
		r = 0;
	if (r == 0)
		r = mct_blob_swap_check(b->where, name, now, now_len, was, was_len, data, len);
	return r > 0 ? dir_put(b, name, data, len) : r;
}

static int dir_del(struct mct_keyed *b, const char *name)
{
	auto_free char *path = dir_path(b, name);
	size_t root = strlen(((struct blob_dir *)b)->root);
	char *end;
	int r;

	if (!path)
		return mc_fail(-ENOMEM, "no memory for a file");
	/* EISDIR: other names begin with "NAME/", and this one does not exist. */
	if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR && errno != EISDIR)
		return mc_fail(-errno, "cannot delete %s: %s", path, mc_strerror(errno));
	r = mc_file_sync_entry(path);
	/* Another process may have removed the directory, with the file. */
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return r;
	while ((end = strrchr(path + root + 1, '/'))) {
		*end = '\0';
		if (rmdir(path) < 0)
			break;
	}
	return 0;
}

/* ---- walks --------------------------------------------------------------------------------------- */

/* Call @fn for each regular file below @below, which is "" or ends in '/', with its name from the root. */
static int dir_walk(struct mct_keyed *b, const char *below, const char *prefix, mct_keyed_fn fn, void *arg)
{
	auto_free char *path = dir_path(b, below);
	DIR *dir = path ? opendir(path) : NULL;
	char name[MCT_KEYED_NAME_MAX + 1];
	struct dirent *e;
	struct stat st;
	size_t len, same;
	int r = 0;

	if (!dir && path && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (!dir)
		return mc_fail(path ? -errno : -ENOMEM, "cannot list %s: %s", path ? path : below, mc_strerror(errno));
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		len = (size_t)snprintf(name, sizeof(name), "%s%s%s", below, e->d_name, S_ISDIR(st.st_mode) ? "/" : "");
		same = len < strlen(prefix) ? len : strlen(prefix);
		if (len >= sizeof(name) || strncmp(name, prefix, same) != 0)
			continue;
		if (S_ISDIR(st.st_mode))
			r = dir_walk(b, name, prefix, fn, arg);
		else if (S_ISREG(st.st_mode))
			r = fn(arg, name);
	}
	if (r == 0 && errno)
		r = mc_fail(-errno, "cannot list %s: %s", path, mc_strerror(errno));
	closedir(dir);
	return r;
}

static int dir_list(struct mct_keyed *b, const char *prefix, mct_keyed_fn fn, void *arg)
{
	const char *last = strrchr(prefix, '/');
	char below[MCT_KEYED_NAME_MAX];

	snprintf(below, sizeof(below), "%.*s", last ? (int)(last + 1 - prefix) : 0, prefix);
	return dir_walk(b, below, prefix, fn, arg);
}

/* Remove an unfinished file whose writer is dead, and the directories that are empty then. */
static int dir_sweep_one(void *arg, const char *name)
{
	const char *last = strrchr(name, '/');
	auto_free char *path = NULL;
	auto_close int fd = -1;

	if ((last ? last[1] : *name) != UNFINISHED)
		return 0;
	path = dir_path(arg, name);
	fd = path ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)dir_del(arg, name);
	return 0;
}

static int dir_open(const char *dir, struct mct_keyed **ret)
{
	struct blob_dir *d;
	int r;

	if (mkdir(dir, 0700) == 0)
		r = mc_file_sync_entry(dir);
	else
		r = errno == EEXIST ? 0 :
			mc_fail(-errno, "cannot create the directory of snapshots, %s: %s", dir, mc_strerror(errno));
	if (r < 0)
		return r;
	d = calloc(1, sizeof(*d));
	if (!d)
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	d->base.ops = &mct_blob_dir;
	d->root = strdup(dir);
	if (!d->root) {
		free(d);
		return mc_fail(-ENOMEM, "no memory for a store of snapshots");
	}
	snprintf(d->base.where, sizeof(d->base.where), "%s", dir);
	/* An unfinished file that cannot be removed is harmless, because it is not listed. */
	(void)dir_walk(&d->base, "", "", dir_sweep_one, &d->base);
	*ret = &d->base;
	return 0;
}

const struct mct_keyed_ops mct_blob_dir = {
	.name = "local",
	.open = dir_open,
	.close = dir_close,
	.put = dir_put,
	.get = dir_get,
	.get_part = dir_get_part,
	.swap = dir_swap,
	.del = dir_del,
	.list = dir_list,
};
