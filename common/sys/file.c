/* SPDX-License-Identifier: Apache-2.0
 * file.c - files of the kernel, and the choice of the calling thread's table. */
#include <config.h>

#include "common/sys/file.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/world.h"

/* ---- the kernel's ---- */

static int kernel_openat(struct mc_world *w, int dir, const char *path, int flags, mode_t mode)
{
	(void)w;
	return openat(dir, path, flags, mode);
}

static int kernel_close(struct mc_world *w, int fd)
{
	(void)w;
	return close(fd);
}

static ssize_t kernel_read(struct mc_world *w, int fd, void *buf, size_t len)
{
	(void)w;
	return read(fd, buf, len);
}

static ssize_t kernel_pread(struct mc_world *w, int fd, void *buf, size_t len, off_t at)
{
	(void)w;
	return pread(fd, buf, len, at);
}

static ssize_t kernel_write(struct mc_world *w, int fd, const void *buf, size_t len)
{
	(void)w;
	return write(fd, buf, len);
}

static ssize_t kernel_pwrite(struct mc_world *w, int fd, const void *buf, size_t len, off_t at)
{
	(void)w;
	return pwrite(fd, buf, len, at);
}

static off_t kernel_lseek(struct mc_world *w, int fd, off_t at, int whence)
{
	(void)w;
	return lseek(fd, at, whence);
}

static int kernel_ftruncate(struct mc_world *w, int fd, off_t len)
{
	(void)w;
	return ftruncate(fd, len);
}

static int kernel_fsync(struct mc_world *w, int fd)
{
	(void)w;
	return fsync(fd);
}

static int kernel_fdatasync(struct mc_world *w, int fd)
{
	(void)w;
	return fdatasync(fd);
}

static int kernel_fstat(struct mc_world *w, int fd, struct stat *ret)
{
	(void)w;
	return fstat(fd, ret);
}

static int kernel_fstatat(struct mc_world *w, int dir, const char *path, struct stat *ret, int flags)
{
	(void)w;
	return fstatat(dir, path, ret, flags);
}

static int kernel_renameat(struct mc_world *w, int from_dir, const char *from, int to_dir, const char *to)
{
	(void)w;
	return renameat(from_dir, from, to_dir, to);
}

static int kernel_unlinkat(struct mc_world *w, int dir, const char *path, int flags)
{
	(void)w;
	return unlinkat(dir, path, flags);
}

static int kernel_mkdirat(struct mc_world *w, int dir, const char *path, mode_t mode)
{
	(void)w;
	return mkdirat(dir, path, mode);
}

static int kernel_flock(struct mc_world *w, int fd, int operation)
{
	(void)w;
	return flock(fd, operation);
}

static void *kernel_map(struct mc_world *w, int fd, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);

	(void)w;
	return p == MAP_FAILED ? NULL : p;
}

static int kernel_list(struct mc_world *w, int dir, int (*fn)(void *arg, const char *name), void *arg)
{
	/* Another description, because reading moves its position. */
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	(void)w;
	if (!d) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (r == 0 && (errno = 0, e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			r = fn(arg, e->d_name);
	/* Some of the names would be a different directory. */
	if (r == 0 && errno)
		r = -1;
	closedir(d);
	return r;
}

const struct mc_file_ops mc_file_kernel = {
	.openat = kernel_openat,
	.close = kernel_close,
	.read = kernel_read,
	.pread = kernel_pread,
	.write = kernel_write,
	.pwrite = kernel_pwrite,
	.lseek = kernel_lseek,
	.ftruncate = kernel_ftruncate,
	.fsync = kernel_fsync,
	.fdatasync = kernel_fdatasync,
	.fstat = kernel_fstat,
	.fstatat = kernel_fstatat,
	.renameat = kernel_renameat,
	.unlinkat = kernel_unlinkat,
	.mkdirat = kernel_mkdirat,
	.flock = kernel_flock,
	.map = kernel_map,
	.list = kernel_list,
};

/* ---- the calling thread's ---- */

static const struct mc_file_ops *file_ops(void)
{
	struct mc_world *w = mc_world();

	return w ? w->files : &mc_file_kernel;
}

int mc_file_openat(int dir, const char *path, int flags, mode_t mode)
{
	return file_ops()->openat(mc_world(), dir, path, flags, mode);
}

int mc_file_close(int fd)
{
	return file_ops()->close(mc_world(), fd);
}

ssize_t mc_file_read(int fd, void *buf, size_t len)
{
	return file_ops()->read(mc_world(), fd, buf, len);
}

ssize_t mc_file_pread(int fd, void *buf, size_t len, off_t at)
{
	return file_ops()->pread(mc_world(), fd, buf, len, at);
}

ssize_t mc_file_write(int fd, const void *buf, size_t len)
{
	return file_ops()->write(mc_world(), fd, buf, len);
}

ssize_t mc_file_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	return file_ops()->pwrite(mc_world(), fd, buf, len, at);
}

off_t mc_file_lseek(int fd, off_t at, int whence)
{
	return file_ops()->lseek(mc_world(), fd, at, whence);
}

int mc_file_ftruncate(int fd, off_t len)
{
	return file_ops()->ftruncate(mc_world(), fd, len);
}

int mc_file_fsync(int fd)
{
	return file_ops()->fsync(mc_world(), fd);
}

int mc_file_fdatasync(int fd)
{
	return file_ops()->fdatasync(mc_world(), fd);
}

int mc_file_fstat(int fd, struct stat *ret)
{
	return file_ops()->fstat(mc_world(), fd, ret);
}

int mc_file_fstatat(int dir, const char *path, struct stat *ret, int flags)
{
	return file_ops()->fstatat(mc_world(), dir, path, ret, flags);
}

int mc_file_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return file_ops()->renameat(mc_world(), from_dir, from, to_dir, to);
}

int mc_file_unlinkat(int dir, const char *path, int flags)
{
	return file_ops()->unlinkat(mc_world(), dir, path, flags);
}

int mc_file_mkdirat(int dir, const char *path, mode_t mode)
{
	return file_ops()->mkdirat(mc_world(), dir, path, mode);
}

int mc_file_flock(int fd, int operation)
{
	return file_ops()->flock(mc_world(), fd, operation);
}

void *mc_file_map(int fd, size_t len)
{
	return file_ops()->map(mc_world(), fd, len);
}

int mc_file_list(int dir, int (*fn)(void *arg, const char *name), void *arg)
{
	return file_ops()->list(mc_world(), dir, fn, arg);
}

int mc_file_sync_entry(const char *path)
{
	auto_free char *copy = strdup(path);
	const char *dir = copy ? dirname(copy) : NULL;
	auto_file int fd = -1;

	if (!dir)
		return mc_fail(-ENOMEM, "no memory to sync the directory of %s", path);
	fd = mc_file_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return mc_fail(-errno, "cannot open the directory %s to sync it: %s", dir, mc_strerror(errno));
	if (mc_file_fsync(fd) < 0 && errno != EINVAL)
		return mc_fail(-errno, "cannot sync the directory %s: %s", dir, mc_strerror(errno));
	return 0;
}
