/* SPDX-License-Identifier: Apache-2.0
 * stat.c - struct stat of files: the attributes that the pool keeps, and the mount's defaults for the others. */
#include <config.h>

#include <string.h>
#include <sys/sysmacros.h>

#include "common/sys/clock.h"
#include "mcfs/mcfs.h"

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / MC_NS_PER_SEC), (long)(ns % MC_NS_PER_SEC) };
}

/* A special file has its type in its attributes; without them it is unknown (0). */
static mode_t stat_type(enum mcs_kind kind, const struct mcs_attrs *a)
{
	static const mode_t types[] = {
		[MCS_OBJECT] = S_IFREG, [MCS_DIR] = S_IFDIR, [MCS_SYMLINK] = S_IFLNK, [MCS_SPECIAL] = 0,
	};

	return kind == MCS_SPECIAL && a->set & MCS_ATTR_MODE ? a->mode & S_IFMT : types[kind];
}

mode_t mcfs_stat_perm(const struct mcfs *fs, enum mcs_kind kind, const struct mcs_attrs *a)
{
	if (kind == MCS_SYMLINK)
		return 0777;
	if (a->set & MCS_ATTR_MODE)
		return a->mode & 07777;
	return kind == MCS_DIR ? fs->dir_mode : fs->file_mode;
}

void mcfs_stat_fill(const struct mcfs *fs, uint64_t ino, const struct mcs_info *info, struct stat *ret)
{
	const struct mcs_attrs *a = &info->attrs;
	uint64_t size = info->kind == MCS_DIR ? 0 : info->size;
	uint64_t put_ns = (info->mtime_ms ? info->mtime_ms : fs->start_wall_ms) * MC_NS_PER_MS;
	uint64_t changed_ns = a->set & MCS_ATTR_CTIME ? a->ctime_ns : 0;

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = ino;
	ret->st_mode = stat_type(info->kind, a) | mcfs_stat_perm(fs, info->kind, a);
	/* For a directory, 1 means that the number of subdirectories is unknown. */
	ret->st_nlink = a->nlink || a->set & MCS_ATTR_LINKED ? a->nlink : 1;
	ret->st_uid = a->set & MCS_ATTR_UID ? a->uid : fs->uid;
	ret->st_gid = a->set & MCS_ATTR_GID ? a->gid : fs->gid;
	if (info->kind == MCS_SPECIAL)
		ret->st_rdev = a->rdev;
	ret->st_size = (off_t)size;
	ret->st_blksize = (blksize_t)MCFS_SLOT;
	ret->st_blocks = (blkcnt_t)((size + 511) / 512);
	ret->st_mtim = ret->st_atim = time_of(a->set & MCS_ATTR_MTIME ? a->mtime_ns : put_ns);
	/* A put is a change too. */
	if (info->kind == MCS_DIR && changed_ns)
		put_ns = changed_ns;
	ret->st_ctim = time_of(changed_ns > put_ns ? changed_ns : put_ns);
}

void mcfs_stat_entry(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		     uint64_t mtime_ms, struct stat *ret)
{
	const struct mcs_info info = { .kind = kind, .size = size, .mtime_ms = mtime_ms };

	mcfs_stat_fill(fs, ino, &info, ret);
}

void mcfs_stat_inode(struct mcfs *fs, const struct mcfs_inode *in, struct stat *ret)
{
	struct mcs_info info = {
		.kind = in->kind, .size = in->info.size, .mtime_ms = in->info.mtime_ms,
	};
	bool gone;

	(void)mcfs_inode_attrs(&fs->inodes, in, &info.attrs, &gone);
	mcfs_stat_fill(fs, mcfs_inode_ino(in), &info, ret);
	if (gone)
		ret->st_nlink = 0;
}

void mcfs_stat_writer(const struct mcfs *fs, const struct mcfs_inode *in,
		      struct mcfs_writer *w, struct stat *ret)
{
	struct mcs_info info = {
		.kind = MCS_OBJECT,
		.size = __atomic_load_n(&w->shown_size, __ATOMIC_RELAXED),
		.mtime_ms = __atomic_load_n(&w->mtime_ms, __ATOMIC_RELAXED),
	};
	bool gone;

	mcfs_writer_attrs(w, &info.attrs, &gone);
	mcfs_stat_fill(fs, mcfs_inode_ino(in), &info, ret);
	if (gone)
		ret->st_nlink = 0;
}
