/* SPDX-License-Identifier: Apache-2.0
 * mcfs.h - one mount: its options and state; functions of stat.c, privileges.c and standalone.c. */
#ifndef MCFS_MCFS_H
#define MCFS_MCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/options/options.h"
#include "common/sys/lock.h"
#include "mcfs/life/compat.h"
#include "mcfs/control/errors.h"
#include "mcfs/inode.h"
#include "mcfs/lock.h"
#include "mcfs/read/open_pins.h"
#include "mcfs/tree.h"
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

/* With one master, a deadline of operations that a user sees. */
#define MCFS_TIMEOUT_MS 5000

/* Upper limit of file sizes, independent of the pool's: such a file's table of slots takes 32 MiB. */
#define MCFS_SIZE_MAX ((uint64_t)4 << 40)

struct mcfs {
	/* constant while mounted */
	struct mcfs_conf conf;		/* options read with mcfs_live() may change at any time */
	struct mc_options *options;
	char *mountpoint;		/* absolute */
	char *master;			/* address of the master, as in struct mcs_conf */
	const char *socket_addr;	/* standalone: address of the master for other programs; NULL: none */
	mode_t file_mode, dir_mode;
	uid_t uid;
	gid_t gid;
	bool flat;			/* keymap=flat: the root is the only directory */
	bool df_local;
	enum { MCFS_LIST_ALL, MCFS_LIST_LOCAL, MCFS_LIST_OFF } listed;
	enum { MCFS_RM_FORCE, MCFS_RM_UNREAD, MCFS_RM_DENY } rm;
	unsigned name_max;		/* longest name in bytes that this kernel accepts */
	/* longest name that can be created: such a name fits into a path below a directory */
	unsigned new_name_max;
	unsigned fuse_minor;		/* minor version of the kernel's FUSE protocol */
	uint64_t start_wall_ms;
	/* the mount was made by a daemon that has died (life/takeover.c) */
	bool taken_over;
	int fuse_fd;			/* descriptor of that daemon */
	/* memory of a daemon that has died, with its objects; segment_fd negative: none */
	int segment_fd;
	uint64_t segment_identity[MCS_SEGMENT_IDENTITY];
	int handoff_fd;			/* negative once stored (life/fdstore.h) */
	mcs_t *store;
	struct mcfs_pool *pool;
	struct fuse_session *session;
	int connection;			/* number of our mount from mcfs_mountpoint_connection(), 0: unknown */
	struct mcfs_service *service;	/* service for local programs (control/local_service.h) */

	/* each with its own lock */
	struct mcfs_version_env versions;
	struct mcfs_inodes inodes;
	struct mcfs_tree tree;
	struct mcfs_open_pins open_pins;
	struct mcfs_locks locks;
	struct mcfs_errors errors;
	struct mc_mutex handles_lock;
	/* guarded by handles_lock; kept: handles of a mount that was aborted (handle.h) */
	struct mc_list handles, kept;
	unsigned nhandles;
	/* atomic */
	uint64_t limit_read_ms;		/* when versions.max_size was last refreshed */
	bool links_seen;		/* some file had several names: names are looked up before they change */
};

/* The option "timeout"; by default the time of a change of the master, where there are several. */
static inline uint64_t mcfs_timeout_ms(const struct mcfs *fs)
{
	uint64_t ms = mcfs_live(&fs->conf.timeout), takeover = ms ? 0 : mcs_takeover_ms(fs->store);

	return ms ? ms : takeover > MCFS_TIMEOUT_MS ? takeover : MCFS_TIMEOUT_MS;
}

static inline struct mcfs *mcfs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- privileges.c ------------------------------------------------------------------------------ */

/* As root, before any thread is started: drop all capabilities that a mount does not need. 0 or
 * -errno. */
int mcfs_privileges_drop(void);

/* ---- standalone.c ------------------------------------------------------------------------------ */

struct mcfs_standalone;
/* Start a master in this process. *ret_addr is its address for this process ("local:..."),
 * *ret_public the address for other programs of our user; both are valid until stop. */
int mcfs_standalone_start(struct mcfs_standalone **ret, const char **ret_addr, const char **ret_public);
void mcfs_standalone_stop(struct mcfs_standalone *s);	/* NULL is fine */

/* ---- stat.c ------------------------------------------------------------------------------------ */

/* Fill *@ret from @info's kind, size, time of the put and attributes. */
void mcfs_stat_fill(const struct mcfs *fs, uint64_t ino, const struct mcs_info *info, struct stat *ret);
/* Permission bits of a file with these attributes. */
mode_t mcfs_stat_perm(const struct mcfs *fs, enum mcs_kind kind, const struct mcs_attrs *a);
/* The file or directory, as the master last described it; st_nlink 0: its name was removed. */
void mcfs_stat_inode(struct mcfs *fs, const struct mcfs_inode *in, struct stat *ret);
/* The same, with the attributes of the file that @w writes, and the size and time of its staged bytes. */
void mcfs_stat_writer(const struct mcfs *fs, const struct mcfs_inode *in,
		      struct mcfs_writer *w, struct stat *ret);
/* Without attributes. */
void mcfs_stat_entry(const struct mcfs *fs, uint64_t ino, enum mcs_kind kind, uint64_t size,
		     uint64_t mtime_ms, struct stat *ret);

#endif
