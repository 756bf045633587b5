/* SPDX-License-Identifier: Apache-2.0
 * mcfs.h - one mount: its options and state. */
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

/* An option that a reload (SIGHUP) may change while other threads read it. */
#define mcfs_live(field) __atomic_load_n(field, __ATOMIC_RELAXED)

/* Upper limit of file sizes, independent of the pool's: such a file's table of slots takes 32
 * MiB. */
#define MCFS_SIZE_MAX ((uint64_t)4 << 40)

struct mcfs {
	/* constant while mounted */
	struct mcfs_conf conf;		/* options read with mcfs_live() may change at any time */
	struct mc_options *options;
	char *mountpoint;		/* absolute */
	char *master;			/* address of the master, as in struct mcs_conf */
	mode_t file_mode, dir_mode;
	uid_t uid;
	gid_t gid;
	bool flat;			/* keymap=flat: the root is the only directory */
	bool df_local;
	enum { MCFS_LIST_ALL, MCFS_LIST_LOCAL, MCFS_LIST_OFF } listed;
	enum { MCFS_RM_FORCE, MCFS_RM_UNREAD, MCFS_RM_DENY } rm;
	unsigned name_max;		/* longest name in bytes that this kernel accepts */
	unsigned fuse_minor;		/* minor version of the kernel's FUSE protocol */
	uint64_t start_wall_ms;
	/* the mount was made by a daemon that has died (life/takeover.c) */
	bool taken_over;
	int fuse_fd, segment_fd;	/* descriptors of that daemon; segment_fd negative: none */
	int handoff_fd;			/* negative once the supervisor holds it */
	mcs_t *store;
	struct mcfs_pool *pool;
	struct fuse_session *session;
	int connection;			/* number of our mount from mcfs_mountpoint_connection(), 0: unknown */
	struct mcfs_service *service;	/* service for local programs (control/local_service.h) */

	/* each with its own lock */
	struct mcfs_version_env versions;
	struct mcfs_inodes inodes;
	struct mcfs_reopen reopen;
	struct mcfs_expect expect;
	struct mcfs_locks locks;
	struct mcfs_errors errors;
	pthread_mutex_t handles_lock;
	struct mc_list handles;		/* both guarded by handles_lock */
	unsigned nhandles;
	/* atomic */
	uint64_t limit_read_ms;		/* when versions.max_size was last refreshed */
};

static inline struct mcfs *mcfs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- mount.c: the session ---------------------------------------------------------------------- */

/* Mount, and serve in own threads until the session ends; @ended is called then. */
int mcfs_session_start(struct mcfs *fs, void (*ended)(void *arg), void *arg);
/* Wait at most @ms until the mount serves: 0 or -ETIMEDOUT. */
int mcfs_session_wait_ready(struct mcfs *fs, uint64_t ms);
/* Is our own mount still at the mount point? */
bool mcfs_session_is_mounted(const struct mcfs *fs);
/* Detach the mount, wait for running operations, stop the threads. -ETIMEDOUT: some operations or
 * threads did not end within @ms and still run. */
int mcfs_session_stop(struct mcfs *fs, uint64_t ms);
void mcfs_session_free(struct mcfs *fs);

/* ---- mountpoint.c ------------------------------------------------------------------------------ */

/* Prepare @dir as a mount point: detach a dead daemon's mount from it. 0 and the absolute path
 * (free() it), or negative with a detail that names the problem. */
int mcfs_mountpoint_prepare(const char *dir, char **ret_path);
/* Unmount lazily, also with open files. */
void mcfs_mountpoint_detach(const char *path);
bool mcfs_mountpoint_is_mounted(const char *path);
/* The mount's number below /sys/fs/fuse/connections, or -ENOENT. The kernel reuses the number after
 * the mount has ended. */
int mcfs_mountpoint_connection(const char *path);
/* State of a mount of mcfs: 0, it answers; ENOTCONN or ECONNABORTED, its daemon is dead; ETIMEDOUT,
 * no answer for some seconds; or another errno. */
int mcfs_mountpoint_probe(const char *path);
/* Does the connection number of a stalled daemon's mount belong to another mount by now? */
bool mcfs_mountpoint_is_reused(int connection);

/* ---- takeover.c -------------------------------------------------------------------------------- */

/* Find a dead daemon's mount to take over. Sets @fs->taken_over and the fields that belong to it. 0
 * or negative. */
int mcfs_takeover_begin(struct mcfs *fs);
/* Create the handoff table of a new mount, if the options ask for one. */
int mcfs_takeover_handoff(struct mcfs *fs);
/* Hand the descriptors that a next daemon needs to the supervisor; the mount is there. */
int mcfs_takeover_keep(struct mcfs *fs);
/* Recreate the inodes, handles and locks of the previous daemon, before the mount serves. */
int mcfs_takeover_restore(struct mcfs *fs);

/* ---- privileges.c ------------------------------------------------------------------------------ */

/* As root, before any thread is started: drop all capabilities that a mount does not need. 0 or
 * -errno. */
int mcfs_privileges_drop(void);

/* ---- standalone.c ------------------------------------------------------------------------------ */

struct mcfs_standalone;
/* Start a master in this process. *ret_addr is its address for this process ("local:..."),
 * *ret_public the address for other programs of our user; both are valid until stop. */
int mcfs_standalone_start(struct mcfs_standalone **ret, const char **ret_addr,
			  const char **ret_public);
void mcfs_standalone_stop(struct mcfs_standalone *s);	/* NULL is fine */

/* ---- http.c ------------------------------------------------------------------------------------ */

struct mc_httpd;
int mcfs_http_start(struct mcfs *fs, struct mc_httpd **ret);
/* "healthy", "not_initialized" or "master_unreachable", with upstream's code. */
const char *mcfs_health(struct mcfs *fs, int *ret_code);

/* ---- stat.c ------------------------------------------------------------------------------------ */

/* Attributes of a file or directory. @in is constant or protected by the caller. */
void mcfs_stat_inode(const struct mcfs *fs, const struct mcfs_inode *in, struct stat *ret);
/* The same, with the size and time of @w's staged bytes. */
void mcfs_stat_writer(const struct mcfs *fs, const struct mcfs_inode *in,
		      const struct mcfs_writer *w, struct stat *ret);
/* Attributes from a directory listing's entry. */
void mcfs_stat_entry(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		     uint64_t mtime_ms, struct stat *ret);

/* ---- control.c: the .mcfs tree ----------------------------------------------------------------- */

#define MCFS_CONTROL_DIR 2ull		/* inode number of .mcfs; those of its files follow */
#define MCFS_CONTROL_END 64ull
static inline bool mcfs_is_control(fuse_ino_t ino)
{
	return ino >= MCFS_CONTROL_DIR && ino < MCFS_CONTROL_END;
}
#define MCFS_CONTROL_BY_KEY 63ull	/* directory in which each key is one name */
#define MCFS_CONTROL_SOCK 62ull		/* symbolic link to the socket file, if there is one */
#define MCFS_CONTROL_LOCAL 59ull	/* like by-key, for objects with a copy on this node */
/* each name in it is a directory like by-key, with the keys that begin with the name */
#define MCFS_CONTROL_PREFIX 58ull
/* Path of the service's socket file, or NULL. */
const char *mcfs_control_socket(const struct mcfs *fs);
/* 0 or -ENOENT. */
int mcfs_control_lookup(const struct mcfs *fs, const char *name, struct stat *ret);
int mcfs_control_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret);
/* Name of file @i; NULL behind the last. */
const char *mcfs_control_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino);
/* The file's stream (enum mcfs_stream_kind), -1: the file is no stream. */
int mcfs_control_stream(fuse_ino_t ino);
/* Current text of a control file; free() it. */
int mcfs_control_read(struct mcfs *fs, fuse_ino_t ino, char **ret, size_t *ret_len);

#endif
