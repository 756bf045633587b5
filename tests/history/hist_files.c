/* SPDX-License-Identifier: Apache-2.0
 * hist_files.c - the system calls on the files of a mount that an actor makes. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "tests/history/hist_actor.h"

static const struct hist_actor *actor;
static dev_t outside;			/* the filesystem of the mount point itself */

static int files_open(const struct hist_actor *a)
{
	char path[512];
	struct stat st;

	actor = a;
	/* not "DIR/..", which fails while the daemon of the mount is dead */
	snprintf(path, sizeof(path), "%s", a->dir);
	if (stat(dirname(path), &st) < 0) {
		perror(a->dir);
		return -errno;
	}
	outside = st.st_dev;
	return 0;
}

static void files_close(void)
{
}

/* The root of the mount.  -ENOTCONN: nothing is mounted now, and the call must not reach the directory below. */
static int root_open(void)
{
	int fd = open(actor->dir, O_PATH | O_DIRECTORY | O_CLOEXEC), r = -ENOTCONN;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && st.st_dev != outside)
		return fd;
	close(fd);
	return r;
}

static int result_of(int r)
{
	return r < 0 ? (errno == ENOENT ? HIST_ABSENT : errno == EEXIST ? HIST_EXISTS : -errno) : 0;
}

/* An error of close() means that the file may or may not have been published. */
static int file_write(struct hist_thread *t, int root, const char *name, size_t size, int flags)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644), r = 0;
	ssize_t n;

	if (fd < 0)
		return result_of(-1);
	n = write(fd, t->buf, size);
	/* mcfs(5): after a failure nothing of this descriptor is published */
	if (n != (ssize_t)size)
		r = n < 0 ? -errno : -EIO;
	return close(fd) < 0 && !r ? result_of(-1) : r;
}

static int files_stage(struct hist_thread *t, const struct hist_rec *rec)
{
	int root = root_open(), r;
	char name[16];

	if (root < 0)
		return root;
	hist_private_key(t->writer, name);
	r = file_write(t, root, name, rec->size, O_TRUNC);
	close(root);
	return r;
}

static int files_write(struct hist_thread *t, struct hist_rec *rec)
{
	char name[16], from[16];
	int root = root_open(), r;

	if (root < 0)
		return root;
	hist_key(rec->key, name);
	hist_private_key(t->writer, from);
	if (rec->op == HIST_PUT)	/* a file has no such write */
		rec->op = HIST_UPSERT;
	if (rec->op == HIST_RENAME)
		r = result_of(renameat(root, from, root, name));
	else
		r = file_write(t, root, name, rec->size, rec->op == HIST_UPSERT ? O_TRUNC : O_EXCL);
	close(root);
	return r;
}

static int files_remove(const struct hist_rec *rec)
{
	int root = root_open(), r;
	char name[16];

	if (root < 0)
		return root;
	hist_key(rec->key, name);
	r = result_of(unlinkat(root, name, 0));
	close(root);
	return r;
}

static int file_read(struct hist_thread *t, struct hist_rec *rec, int fd)
{
	uint64_t offset = rec->op == HIST_RANGE ? hist_rnd(t) % 4096 * sizeof(struct hist_row) : 0;
	size_t max = rec->op == HIST_RANGE ? 65536 : HIST_SIZE_MAX, n = 0;
	ssize_t r;

	do {
		r = pread(fd, t->buf + n, max - n, (off_t)(offset + n));
		n += r > 0 ? (size_t)r : 0;
	} while (r > 0 && n < max);
	if (r < 0)
		return -errno;
	if (hist_look(rec, t->buf, n, offset) < 0)
		rec->flags |= HIST_WRONG;
	if (rec->op != HIST_RANGE)
		rec->size = n;
	return 0;
}

static int files_read(struct hist_thread *t, struct hist_rec *rec)
{
	int root = root_open(), fd, r;
	struct stat st;
	char name[16];

	if (root < 0)
		return root;
	hist_key(rec->key, name);
	if (rec->op == HIST_STAT || rec->op == HIST_EXIST) {
		r = result_of(fstatat(root, name, &st, 0));
		close(root);
		return r;
	}
	fd = openat(root, name, O_RDONLY | O_CLOEXEC);
	rec->ret_ns = mc_now_ns();
	r = fd < 0 ? result_of(-1) : file_read(t, rec, fd);
	if (fd >= 0)
		close(fd);
	close(root);
	return r;
}

/* readdir(3) promises nothing about names that change meanwhile. */
static int files_list(struct hist_rec *rec, unsigned keys)
{
	(void)rec;
	(void)keys;
	return -ENOTSUP;
}

const struct hist_calls hist_file_calls = {
	.open = files_open, .close = files_close, .write = files_write, .stage = files_stage,
	.remove = files_remove, .read = files_read, .list = files_list,
};
