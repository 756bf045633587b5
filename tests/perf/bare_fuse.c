/* SPDX-License-Identifier: Apache-2.0
 * bare_fuse.c - a filesystem of one file that only answers: the minimum cost of a daemon on libfuse.
 *
 *	bare_fuse MOUNTPOINT	in the foreground, until it is unmounted */
#include <config.h>

#include <fuse_lowlevel.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_INO 2
#define FILE_SIZE 4096

static char bytes[FILE_SIZE];
static int there;		/* atomic */

static void attributes(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
	st->st_nlink = 1;
	st->st_size = ino == FUSE_ROOT_ID ? 0 : FILE_SIZE;
}

static void entry(struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = FILE_INO;
	e->attr_timeout = 1;
	attributes(FILE_INO, &e->attr);
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;

	entry(&e);
	if (strcmp(name, "file") != 0 || !__atomic_load_n(&there, __ATOMIC_RELAXED))
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &e);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	attributes(ino, &st);
	fuse_reply_attr(req, &st, 1);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct fuse_entry_param e;

	entry(&e);
	__atomic_store_n(&there, 1, __ATOMIC_RELAXED);
	fi->direct_io = 1;
	fuse_reply_create(req, &e, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	size_t left = off < FILE_SIZE ? FILE_SIZE - (size_t)off : 0;

	fuse_reply_buf(req, bytes, size < left ? size : left);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	if (off < FILE_SIZE)
		memcpy(bytes + off, buf, size < FILE_SIZE - (size_t)off ? size : FILE_SIZE - (size_t)off);
	fuse_reply_write(req, size);
}

static void do_ok(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

static void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	__atomic_store_n(&there, 0, __ATOMIC_RELAXED);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = do_lookup, .getattr = do_getattr, .open = do_open, .create = do_create,
	.read = do_read, .write = do_write, .flush = do_ok, .release = do_ok, .unlink = do_unlink,
};

int main(int argc, char **argv)
{
	char name[] = "bare_fuse", option[] = "-o", names[] = "subtype=bare,default_permissions";
	char *args_v[] = { name, option, names, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, args_v);
	struct fuse_loop_config *cfg;
	struct fuse_session *se;
	int r = 1;

	if (argc != 2)
		return 2;
	se = fuse_session_new(&args, &operations, sizeof(operations), NULL);
	if (!se)
		return 1;
	cfg = fuse_loop_cfg_create();
	fuse_loop_cfg_set_clone_fd(cfg, 1);
	if (fuse_set_signal_handlers(se) == 0 && fuse_session_mount(se, argv[1]) == 0) {
		r = fuse_session_loop_mt(se, cfg) < 0;
		fuse_session_unmount(se);
	}
	fuse_loop_cfg_destroy(cfg);
	fuse_session_destroy(se);
	return r;
}
