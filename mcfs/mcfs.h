/* SPDX-License-Identifier: Apache-2.0
 * mcfs.h - the mount as its own files see it. */
#ifndef MCFS_MCFS_H
#define MCFS_MCFS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/options/options.h"
#include "mcfs/life/compat.h"
#include "mcfs/control/errors.h"
#include "mcfs/inode.h"
#include "mcfs/read/expect.h"
#include "mcfs/lock.h"
#include "mcfs/read/reopen.h"
#include "mcfs/write/slot.h"
#include "mcfs/write/version.h"
#include <mooncake/mcs.h>

#define OPT MC_OPT_FIELD
struct mcfs_conf {
#include "mcfs/options.def"
};
#undef OPT

/* An option that a reload (SIGHUP) may change while others look at it. */
#define mcfs_live(field) __atomic_load_n(field, __ATOMIC_RELAXED)

/* No file is larger, whatever the pool says or cannot say: its table of slots takes 32 MiB then. */
#define MCFS_SIZE_MAX ((uint64_t)4 << 40)

struct mcfs {
	/* constant while mounted */
	struct mcfs_conf conf;		/* what mcfs_live() reads may change at any time */
	struct mc_options *options;
	char *mountpoint;		/* absolute */
	char *master;			/* where the store is: as of struct mcs_conf */
	mode_t file_mode, dir_mode;
	uid_t uid;
	gid_t gid;
	bool flat;			/* keymap=flat: the root is the only directory */
	bool df_local;
	enum { MCFS_LIST_ALL, MCFS_LIST_LOCAL, MCFS_LIST_OFF } listed;
	enum { MCFS_RM_FORCE, MCFS_RM_UNREAD, MCFS_RM_DENY } rm;
	unsigned name_max;		/* bytes of a name that this kernel takes */
	unsigned fuse_minor;		/* of the protocol that it speaks */
	uint64_t start_wall_ms;
	bool taken_over;			/* the mount was made by a daemon that has died (takeover.c) */
	int fuse_fd, segment_fd;	/* what it left; segment_fd negative: nothing */
	int handoff_fd;			/* until somebody keeps it */
	mcs_t *store;
	struct mcfs_pool *pool;
	struct fuse_session *session;
	int connection;			/* of our mount: what mcfs_mountpoint_connection() said; 0: none */
	struct mcfs_service *service;	/* the service for local programs; lane.h */

	/* each with its own lock */
	struct mcfs_version_env versions;
	struct mcfs_inodes inodes;
	struct mcfs_reopen reopen;
	struct mcfs_expect expect;
	struct mcfs_locks locks;
	struct mcfs_errors errors;
	pthread_mutex_t handles_lock;
	struct mc_list handles;		/* guarded by handles_lock, as is the number */
	unsigned nhandles;
	/* atomic */
	uint64_t limit_read_ms;		/* when versions.max_size was asked for last */
};

static inline struct mcfs *mcfs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- mount.c: the session ---------------------------------------------------------------------- */

/* Mount, and serve in threads of its own until the session ends; @ended is told then. */
int mcfs_session_start(struct mcfs *fs, void (*ended)(void *arg), void *arg);
/* The mount serves, or @ms have passed: 0, -ETIMEDOUT. */
int mcfs_session_wait_ready(struct mcfs *fs, uint64_t ms);
/* Is our mount, and not another one, still where it was made? */
bool mcfs_session_is_mounted(const struct mcfs *fs);
/* Detach the mount, let operations under way end, stop the threads.  -ETIMEDOUT: some did not end within @ms, and
 * they, or their threads, are still there. */
int mcfs_session_stop(struct mcfs *fs, uint64_t ms);
void mcfs_session_free(struct mcfs *fs);

/* ---- mountpoint.c ------------------------------------------------------------------------------ */

/* Make @dir ready to be mounted on: detaches what a daemon that died has left there.  0 and the absolute
 * path (free() it), or negative with a detail that says what is wrong with it. */
int mcfs_mountpoint_prepare(const char *dir, char **ret_path);
/* Take the mount away, although files are open. */
void mcfs_mountpoint_detach(const char *path);
bool mcfs_mountpoint_is_mounted(const char *path);
/* What it is called below /sys/fs/fuse/connections, or -ENOENT.  The number is given to another mount when this one
 * has gone. */
int mcfs_mountpoint_connection(const char *path);
/* What a mount of mcfs says: 0, it answers; ENOTCONN or ECONNABORTED, its daemon is dead; ETIMEDOUT, nothing for some
 * seconds; another errno. */
int mcfs_mountpoint_probe(const char *path);
/* Has a daemon that stands still lost the number of its mount to another one? */
bool mcfs_mountpoint_is_reused(int connection);

/* ---- takeover.c -------------------------------------------------------------------------------- */

/* Is there a mount to go on with?  Sets @fs->taken and what belongs to it.  0 or negative. */
int mcfs_takeover_begin(struct mcfs *fs);
/* The book of a new mount, when it is to be gone on with one day. */
int mcfs_takeover_handoff(struct mcfs *fs);
/* It is mounted: have all kept that the next daemon needs. */
int mcfs_takeover_keep(struct mcfs *fs);
/* What the kernel knows from the daemon before; nothing is served yet. */
int mcfs_takeover_restore(struct mcfs *fs);

/* ---- privileges.c ------------------------------------------------------------------------------ */

/* As root, before any thread is started: keep what a mount needs, for good.  0 or -errno. */
int mcfs_privileges_drop(void);

/* ---- standalone.c ------------------------------------------------------------------------------ */

struct mcfs_standalone;
/* Start a master in this process; *ret_addr is how to reach it ("local:..."), *ret_public how other
 * programs of our user do; valid until stop. */
int mcfs_standalone_start(struct mcfs_standalone **ret, const char **ret_addr,
			  const char **ret_public);
void mcfs_standalone_stop(struct mcfs_standalone *s);	/* NULL is fine */

/* ---- http.c ------------------------------------------------------------------------------------ */

struct mc_httpd;
int mcfs_http_start(struct mcfs *fs, struct mc_httpd **ret);
/* "healthy", "not_initialized" or "master_unreachable", with upstream's code. */
const char *mcfs_health(struct mcfs *fs, int *ret_code);

/* ---- stat.c ------------------------------------------------------------------------------------ */

/* Attributes of a file or directory; @in is locked against change or constant. */
void mcfs_stat_inode(const struct mcfs *fs, const struct mcfs_inode *in, struct stat *ret);
/* The same, with what is staged by @w instead of the version. */
void mcfs_stat_writer(const struct mcfs *fs, const struct mcfs_inode *in,
		      const struct mcfs_writer *w, struct stat *ret);
/* What a directory listing knows of an entry. */
void mcfs_stat_entry(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		     uint64_t mtime_ms, struct stat *ret);

/* ---- control.c: the .mcfs tree ----------------------------------------------------------------- */

#define MCFS_CONTROL_DIR 2ull		/* inode numbers; files follow */
#define MCFS_CONTROL_END 64ull
static inline bool mcfs_is_control(fuse_ino_t ino)
{
	return ino >= MCFS_CONTROL_DIR && ino < MCFS_CONTROL_END;
}
#define MCFS_CONTROL_BY_KEY 63ull	/* the directory with each key as one name */
#define MCFS_CONTROL_SOCK 62ull		/* a link to the socket file, where there is one */
#define MCFS_CONTROL_LOCAL 59ull	/* as by-key, of objects that have a copy on this node */
#define MCFS_CONTROL_PREFIX 58ull	/* any name in it is a directory: as by-key, of keys that begin so */
/* Its path, or NULL. */
const char *mcfs_control_socket(const struct mcfs *fs);
/* 0 or -ENOENT. */
int mcfs_control_lookup(const struct mcfs *fs, const char *name, struct stat *ret);
int mcfs_control_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret);
/* The @i-th file, NULL behind the last. */
const char *mcfs_control_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino);
/* Which stream it is (enum mcfs_stream_kind), -1: none. */
int mcfs_control_stream(fuse_ino_t ino);
/* What a control file says now; free() it. */
int mcfs_control_read(struct mcfs *fs, fuse_ino_t ino, char **ret, size_t *ret_len);

#endif
