/* SPDX-License-Identifier: Apache-2.0
 * ops.h - handlers of the kernel's requests, one file per group. */
#ifndef MCFS_OPS_OPS_H
#define MCFS_OPS_OPS_H

#include "mcfs/mcfs.h"
#include "mcfs/reply.h"

/* lookup.c */
struct mcfs_found {
	struct mcs_info info;	/* info.kind tells the type */
	bool implied;		/* a directory that exists only because of its contents */
	bool listed;		/* found by a listing, whose answer may be older than a change that followed it */
};
/* Look up a name: 0, or -MCS_ENOOBJECT. @key does not end in '/'. */
int mcfs_find(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret);
/* The same for a directory, whose key ends in '/'. */
int mcfs_find_dir(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_found *ret);
/* Fill a reply that counts as a lookup, and return its inode. @own: as in mcfs_inode_lookup(). The
 * @key of a directory ends in '/'. -ENOMEM. */
int mcfs_fill_entry(struct mcfs_op *op, const struct mcfs_key *key, const struct mcfs_found *found,
		    bool own, struct fuse_entry_param *ret, struct mcfs_inode **ret_inode);
/* The same for an open file: @w is its writer, NULL: a reader. */
void mcfs_fill_open_entry(struct mcfs *fs, struct mcfs_inode *in, struct mcfs_writer *w,
			  struct fuse_entry_param *ret);
/* Answer a request that has created file @key (@r 0, or the error): the entry that the name has now. */
void mcfs_reply_created(struct mcfs_op *op, const struct mcfs_key *key, int r);
/* Key of @name in directory @parent, NULL: .mcfs. -ENAMETOOLONG, or -EPERM for reserved names. */
int mcfs_child_key(struct mcfs *fs, const struct mcfs_inode *parent, const char *name,
		   struct mcfs_key *ret);
/* Can an object have this key? A directory's key ends in '/', and the name %_ at the top level is
 * the empty key. */
static inline bool mcfs_key_is_object(const struct mcfs_key *key)
{
	return key->len && key->data[key->len - 1] != '/';
}
void mcfs_do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void mcfs_do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void mcfs_do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);

/* view.c */
/* Is it a directory below .mcfs whose names are whole keys? */
bool mcfs_is_view(const struct mcfs_op *op, fuse_ino_t ino);
void mcfs_view_lookup(struct mcfs_op *op, fuse_ino_t parent, const char *name);

/* attr.c */
/* The attributes of a file of @kind that @op's caller creates in @parent: those that differ from the mount's defaults.
 * @mode: without the bits of the umask. */
void mcfs_attrs_new(struct mcfs_op *op, struct mcfs_inode *parent, enum mcs_kind kind, mode_t mode,
		    struct mcs_attrs *ret);
/* Ask the master for the attributes of @in. If it does not answer, the known ones stay: the error. */
int mcfs_attrs_refresh(struct mcfs_op *op, struct mcfs_inode *in);
/* May @op change attributes of @in? -EPERM. */
int mcfs_attrs_allowed(const struct mcfs_op *op, const struct mcfs_inode *in);
/* As mcs_set_attrs(), for a version or a directory, which may have no marker yet. */
int mcfs_attrs_change(struct mcfs_op *op, struct mcfs_inode *in, const struct mcs_attrs *a,
		      const struct mcs_xattr *x, unsigned flags);
void mcfs_do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mcfs_do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		     struct fuse_file_info *fi);

/* open.c */
void mcfs_do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mcfs_do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		    struct fuse_file_info *fi);
/* Refresh the size limit of objects from the pool, at most once per second. */
void mcfs_refresh_limit(struct mcfs_op *op);

/* data.c */
void mcfs_do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void mcfs_do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
		   struct fuse_file_info *fi);
void mcfs_do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		       struct fuse_file_info *fi);

/* ops/lock.c */
void mcfs_do_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int how);
void mcfs_do_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *fl, int sleep);
void mcfs_do_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *fl);

/* flush.c */
void mcfs_do_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mcfs_do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void mcfs_do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* readdir.c */
struct mcfs_dir;
void mcfs_dir_free(struct mcfs *fs, struct mcfs_dir *d);	/* NULL is fine */
void mcfs_do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mcfs_do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void mcfs_do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			 struct fuse_file_info *fi);
void mcfs_do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mcfs_do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* names.c */
void mcfs_do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void mcfs_do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void mcfs_do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void mcfs_do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);

/* link.c */
struct mcfs_hold;
/* The key that all names of the file with inode number @ino share. */
void mcfs_shared_key(struct mcfs *fs, uint64_t ino, struct mcfs_key *ret);
/* Is @key one of several names? *ret: the shared key. Asks the master only if this mount has seen such a file. */
bool mcfs_link_find(struct mcfs_op *op, const struct mcfs_key *key, struct mcfs_key *ret);
/* A name of the file was renamed; was removed or replaced: its writers, which are held, lose it with the last one. */
void mcfs_link_renamed(struct mcfs_op *op, const struct mcfs_key *shared);
void mcfs_link_lost(struct mcfs_op *op, const struct mcfs_hold *hold, const struct mcfs_key *shared);
void mcfs_do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);

/* symlink.c */
void mcfs_do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void mcfs_do_readlink(fuse_req_t req, fuse_ino_t ino);

/* rename.c */
/* If the caller itself has @key open with bytes that are not published, publish them: 1; then keys may have changed.
 * 0: it has not. */
int mcfs_publish_own(struct mcfs_op *op, struct mcs_key key);
void mcfs_do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		    const char *to_name, unsigned flags);

/* statfs.c */
void mcfs_do_statfs(fuse_req_t req, fuse_ino_t ino);

/* xattr.c */
void mcfs_do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void mcfs_do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void mcfs_do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size, int flags);
void mcfs_do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* user_xattr.c */
bool mcfs_is_user_xattr(const char *name);
/* All of a file, whose names lack "user."; free(*ret), also after an error. */
int mcfs_user_xattrs(struct mcfs_op *op, struct mcfs_inode *in, struct mcs_xattr **ret, unsigned *ret_n);
/* Their names as listxattr(2) returns them; @ret NULL: only the number of bytes. */
size_t mcfs_user_xattr_names(const struct mcs_xattr *list, unsigned n, char *ret);
/* Answer @op. */
void mcfs_user_xattr_get(struct mcfs_op *op, const char *name, size_t size);
/* @flags: MCS_XATTR_* */
int mcfs_user_xattr_set(struct mcfs_op *op, const char *name, const void *value, size_t size, unsigned flags);

/* ioctl.c */
void mcfs_do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in_buf, size_t in_size,
		   size_t out_size);

#endif
