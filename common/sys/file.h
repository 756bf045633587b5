/* SPDX-License-Identifier: Apache-2.0
 * file.h - files that a program depends on: its journal, locks and state.
 *
 * Each function behaves as the system call of its name: -1 with errno, no detail, and it may end with EINTR or after a
 * part of the bytes.  Descriptors are the kernel's, or numbers of a simulated process (world.h), so they are for these
 * functions only.  Files for data of objects, devices, pipes and sockets do not pass here. */
#ifndef MC_SYS_FILE_H
#define MC_SYS_FILE_H

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mc_world;

struct mc_file_ops {
	/* @dir: descriptor of a directory, or AT_FDCWD. */
	int (*openat)(struct mc_world *w, int dir, const char *path, int flags, mode_t mode);
	int (*close)(struct mc_world *w, int fd);
	ssize_t (*read)(struct mc_world *w, int fd, void *buf, size_t len);
	ssize_t (*pread)(struct mc_world *w, int fd, void *buf, size_t len, off_t at);
	ssize_t (*write)(struct mc_world *w, int fd, const void *buf, size_t len);
	ssize_t (*pwrite)(struct mc_world *w, int fd, const void *buf, size_t len, off_t at);
	off_t (*lseek)(struct mc_world *w, int fd, off_t at, int whence);
	int (*ftruncate)(struct mc_world *w, int fd, off_t len);
	/* Durability of a file, and of the entries of a directory. */
	int (*fsync)(struct mc_world *w, int fd);
	int (*fdatasync)(struct mc_world *w, int fd);
	int (*fstat)(struct mc_world *w, int fd, struct stat *ret);
	int (*fstatat)(struct mc_world *w, int dir, const char *path, struct stat *ret, int flags);
	int (*renameat)(struct mc_world *w, int from_dir, const char *from, int to_dir, const char *to);
	int (*unlinkat)(struct mc_world *w, int dir, const char *path, int flags);
	int (*mkdirat)(struct mc_world *w, int dir, const char *path, mode_t mode);
	int (*flock)(struct mc_world *w, int fd, int operation);
	/* The first @len bytes, not 0, read at once; they stay when the file is removed.  For munmap(), NULL: errno. */
	void *(*map)(struct mc_world *w, int fd, size_t len);
	/* Call @fn for each entry of directory @dir but "." and "..", until it returns another value than 0, which is
	 * the result.  -1: the directory cannot be read. */
	int (*list)(struct mc_world *w, int dir, int (*fn)(void *arg, const char *name), void *arg);
};

/* The kernel's; @w is ignored. */
extern const struct mc_file_ops mc_file_kernel;

int mc_file_openat(int dir, const char *path, int flags, mode_t mode);
int mc_file_close(int fd);
ssize_t mc_file_read(int fd, void *buf, size_t len);
ssize_t mc_file_pread(int fd, void *buf, size_t len, off_t at);
ssize_t mc_file_write(int fd, const void *buf, size_t len);
ssize_t mc_file_pwrite(int fd, const void *buf, size_t len, off_t at);
off_t mc_file_lseek(int fd, off_t at, int whence);
int mc_file_ftruncate(int fd, off_t len);
int mc_file_fsync(int fd);
int mc_file_fdatasync(int fd);
int mc_file_fstat(int fd, struct stat *ret);
int mc_file_fstatat(int dir, const char *path, struct stat *ret, int flags);
int mc_file_renameat(int from_dir, const char *from, int to_dir, const char *to);
int mc_file_unlinkat(int dir, const char *path, int flags);
int mc_file_mkdirat(int dir, const char *path, mode_t mode);
int mc_file_flock(int fd, int operation);
void *mc_file_map(int fd, size_t len);
int mc_file_list(int dir, int (*fn)(void *arg, const char *name), void *arg);

static inline int mc_file_open(const char *path, int flags, mode_t mode)
{
	return mc_file_openat(AT_FDCWD, path, flags, mode);
}

static inline int mc_file_stat(const char *path, struct stat *ret)
{
	return mc_file_fstatat(AT_FDCWD, path, ret, 0);
}

static inline int mc_file_rename(const char *from, const char *to)
{
	return mc_file_renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static inline int mc_file_unlink(const char *path)
{
	return mc_file_unlinkat(AT_FDCWD, path, 0);
}

static inline int mc_file_mkdir(const char *path, mode_t mode)
{
	return mc_file_mkdirat(AT_FDCWD, path, mode);
}

/* Make the entry of @path in its directory durable: after a power failure the name still refers to the same file.
 * 0, also on file systems that cannot sync a directory, or -errno with a detail. */
int mc_file_sync_entry(const char *path);

static inline void mc_file_cleanup(int *fd)
{
	if (*fd >= 0)
		(void)mc_file_close(*fd);
}

/* A local descriptor that is closed at the end of the scope. */
#define auto_file __attribute__((cleanup(mc_file_cleanup)))

#endif
