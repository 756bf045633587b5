/* SPDX-License-Identifier: Apache-2.0
 * stat.c - file attributes.
 * The pool stores only a size and a time per version; owner and modes are mount options. */
#include <config.h>

#include <string.h>

#include "mcfs/mcfs.h"

static void stat_fill(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		 uint64_t mtime_ms, struct stat *ret)
{
	static const mode_t types[] = {
		[MCS_OBJECT] = S_IFREG, [MCS_DIR] = S_IFDIR, [MCS_SYMLINK] = S_IFLNK, [MCS_SPECIAL] = S_IFREG,
	};

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = ino;
	ret->st_mode = types[kind];
	if (kind == MCS_SYMLINK)
		ret->st_mode |= 0777;
	else
		ret->st_mode |= kind == MCS_DIR ? fs->dir_mode : fs->file_mode;
	/* For a directory, 1 means that the number of subdirectories is unknown. */
	ret->st_nlink = 1;
	ret->st_uid = fs->uid;
	ret->st_gid = fs->gid;
	ret->st_size = kind == MCS_DIR ? 0 : (off_t)size;
	ret->st_blksize = (blksize_t)MCFS_SLOT;
	ret->st_blocks = kind == MCS_DIR ? 0 : (blkcnt_t)((size + 511) / 512);
	ret->st_mtim.tv_sec = (time_t)(mtime_ms / 1000);
	ret->st_mtim.tv_nsec = (long)(mtime_ms % 1000) * 1000000;
	ret->st_atim = ret->st_ctim = ret->st_mtim;
}

void mcfs_stat_entry(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		     uint64_t mtime_ms, struct stat *ret)
{
	stat_fill(fs, ino, kind, size, mtime_ms ? mtime_ms : fs->start_wall_ms, ret);
}

void mcfs_stat_inode(const struct mcfs *fs, const struct mcfs_inode *in, struct stat *ret)
{
	mcfs_stat_entry(fs, in->ino, in->kind, in->info.size, in->info.mtime_ms, ret);
}

void mcfs_stat_writer(const struct mcfs *fs, const struct mcfs_inode *in,
		      const struct mcfs_writer *w, struct stat *ret)
{
	stat_fill(fs, in->ino, MCS_OBJECT, __atomic_load_n(&w->shown_size, __ATOMIC_RELAXED),
	     __atomic_load_n(&w->mtime_ms, __ATOMIC_RELAXED), ret);
}
