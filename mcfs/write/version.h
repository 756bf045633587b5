/* SPDX-License-Identifier: Apache-2.0
 * version.h - writers: the states of one descriptor that writes.
 *
 * A commit publishes all bytes at once under the writer's name at that moment; readers see the old
 * or the new version, complete. The flags of struct mcfs_writer form these states:
 *
 *	open without O_TRUNC            create, O_TRUNC
 *	        |                              |
 *	        v       write, truncate        v
 *	      clean --------> dirty <------- fresh
 *	        ^               |              |
 *	        +--- commit ----+--- commit ---+
 *
 *	dirty, fresh  a write or commit fails                  -> failed
 *	failed        truncate to 0                            -> dirty
 *	dirty         its last process, not the opener, is killed -> abandoned
 *	abandoned     write, truncate                          -> dirty
 *	abandoned     close by the opener (-EIO)               -> revoked
 *	any           the opener is killed; last close         -> revoked
 *	any           the name is removed or replaced          -> unlinked
 *
 * A close by the opener, fsync, rename and the last close commit; an ordinary close of a fresh
 * writer does not. In state failed, flushes repeat the error. A failed, abandoned, unlinked or
 * revoked writer publishes nothing; a revoked one has also freed its bytes.
 *
 * Attributes of a file that has a version are changed at the master at once. Those of a file without one, and those
 * that the next version would not keep (times, set-user-ID), are sent with the commit.
 *
 * All functions may be called from any thread; they wait for each other. */
#ifndef MCFS_VERSION_H
#define MCFS_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "mcfs/caller.h"
#include "mcfs/write/writeback.h"
#include "mcfs/read/object.h"
#include "mcfs/write/stage.h"
#include "mcfs/write/xattrs.h"

struct mcfs_hold;
struct mcfs_inode;
struct mcfs_op;

#define MCFS_COMMITS 256u

struct mcfs_version_env {	/* shared by all writers of a mount */
	mcs_t *store;
	struct mcfs_pool *pool;
	struct mcfs_writeback_pool *writeback_pool;	/* NULL: no writeback */
	uint64_t max_size;	/* atomic: size of the largest object that can be stored */
	struct mc_mutex names;	/* innermost lock; guards the writers' names and the list */
	struct mc_list writers;	/* linked by mcfs_writer.link, newest first; guarded by names */
	uint64_t serial;	/* serial number of the last writer; guarded by names */
	uid_t uid;		/* owner of files that have none in the pool; constant */
	/* atomic: number of published versions, by the hash of their keys */
	uint32_t commits[MCFS_COMMITS];
	/* Reports that a version could not be published. @key is borrowed. */
	void (*failed)(struct mcfs_version_env *env, const void *key, size_t len, int err,
		       const char *when, pid_t pid);
};

#define MCFS_WRITER_FRESH	0x1u	/* created or truncated: publish even if nothing is written */
#define MCFS_WRITER_EXCL	0x2u	/* the first commit fails if the key exists: O_EXCL, immutable */

#define MCFS_OTHERS_ANY		0x1u	/* another writer committed since open or last commit */
/* a writer that opened the name later has committed since the last change */
#define MCFS_OTHERS_LATER	0x2u
#define MCFS_PENDING_BYTES	0x1u
#define MCFS_PENDING_NAME	0x2u	/* the name must exist, even if empty */

struct mcfs_writer {
	struct mcfs_version_env *env;	/* constant, as are the next five */
	pid_t tid, pid;			/* thread and process of the opener */
	uid_t uid;			/* user of the opener */
	unsigned flags;
	uint64_t serial;		/* unique in the mount, not 0 */

	struct mc_mutex lock;
	/* guarded by lock */
	struct mcfs_stage stage;
	struct mcfs_writeback writeback;
	uint64_t base_generation;	/* the name's version at open or rename, 0: none */
	bool dirty;			/* bytes changed since the last commit */
	bool fresh;			/* not yet committed, and must exist */
	bool excl;
	bool mapped;			/* the last bytes came from a shared mapping */
	pid_t last_tid, last_pid;	/* thread and process that wrote last */
	bool flushed;			/* a descriptor was closed since the last change */
	bool closed;			/* the opener has closed a descriptor */
	bool abandoned;			/* the last process to write, not the opener, was killed */
	bool exited;			/* the opener ended with exit(0) */
	bool revoked, unlinked;
	int failed;			/* 0, or the error because of which nothing is published */
	unsigned put_flags;		/* MCS_PUT_*_PIN of the next commits */
	unsigned replicas;		/* number of replicas, 0: the default */
	unsigned created;		/* MCS_ATTR_*: those in @unsent that come from the creation */
	struct mcs_attrs put;		/* attributes and conditions of the put that is being made */
	struct mcfs_xattrs xattrs;	/* they wait for the first commit */
	struct mc_cond hold_ended;		/* no hold owns the writer any more; monotonic clock */

	/* changed under lock and env->names: either one suffices to read */
	char *key;
	size_t key_len;
	uint64_t key_hash;
	/* generation of the version that the writer opened or published last, 0: none; a rename changes it */
	uint64_t version;
	struct mcs_attrs attrs;		/* the file's, as its descriptors show them */
	struct mcs_attrs unsent;	/* those that the next commit sets */
	bool gone;			/* the file's name was removed or replaced */
	/* atomic; a change of bytes ends some of @attrs or @unsent */
	bool ending;

	/* changed under lock, atomic for a hold that checks whether it owns the writer */
	struct mcfs_hold *holder;	/* commits wait until it is NULL (hold.h) */
	struct mc_list held;		/* link in the hold's list */

	/* atomic, for readers without the lock */
	unsigned pending;		/* MCFS_PENDING_*: changes that the name does not show yet */
	uint64_t shown_size, mtime_ms;
	/* MCFS_OTHERS_*: commits of this mount's other writers under the name */
	unsigned others;

	/* guarded by env->names */
	unsigned refs;
	struct mc_list link;

	struct mcfs_inode *inode;	/* the file that was opened; constant */
};

int mcfs_version_env_init(struct mcfs_version_env *env, mcs_t *store, struct mcfs_pool *pool);
void mcfs_version_env_done(struct mcfs_version_env *env);

struct mcfs_writer_args {
	const void *key;
	size_t len;
	unsigned flags;			/* MCFS_WRITER_* */
	struct mcfs_object *base;	/* initial contents of the file; NULL: empty */
	uint64_t generation;		/* the name's current version, 0: none */
	const struct mcs_attrs *attrs;	/* attributes of that version, or of a new file; NULL: none */
	uid_t uid;			/* user of the opener */
	/* referenced by the caller; NULL: none, and lookups by name ignore the writer */
	struct mcfs_inode *inode;
	pid_t tid;
};
/* The new writer is listed in env->writers and has one reference. */
int mcfs_writer_new(struct mcfs_version_env *env, const struct mcfs_writer_args *args,
		    struct mcfs_writer **ret);
void mcfs_writer_ref(struct mcfs_writer *w);
void mcfs_writer_unref(struct mcfs_writer *w);
/* The newest writer under @key or, in exchange for the reference to @prev, the next older one. With
 * a reference; NULL: none. */
struct mcfs_writer *mcfs_writer_next(struct mcfs_version_env *env, struct mcfs_writer *prev, struct mcs_key key);
/* The same for the writers of all names that are longer than @prefix and begin with it. */
struct mcfs_writer *mcfs_writer_next_below(struct mcfs_version_env *env, struct mcfs_writer *prev,
					   struct mcs_key prefix);
/* The writer with this serial number, with a reference; NULL: none. */
struct mcfs_writer *mcfs_writer_at(struct mcfs_version_env *env, uint64_t serial);
/* Acquire the writer's lock without waiting for a commit beyond @deadline: 0 or -ETIMEDOUT. */
int mcfs_writer_lock(struct mcfs_writer *w, uint64_t deadline);

/* These wait for each other and for commits; all except a write until @op's deadline: -ETIMEDOUT, nothing
 * changed. They claim @op (NULL: none) before any change. -EINTR: it was already answered, nothing changed. */
#define MCFS_AT_THE_END UINT64_MAX
/* Write all @len bytes, or fail. *slot is NULL or a whole slot that contains @data, and may be
 * exchanged. @offset: MCFS_AT_THE_END appends at the staged size. @tid: the writing thread; 0:
 * unknown, because the bytes come from the page cache. */
int mcfs_writer_write(struct mcfs_writer *w, uint64_t offset, const void *data, size_t len,
		      void **slot, pid_t tid, uint64_t deadline, struct mcfs_op *op);
int64_t mcfs_writer_read(struct mcfs_writer *w, uint64_t offset, void *buf, size_t len, uint64_t deadline);
/* @tid: the calling thread, which then counts as the last writer. */
int mcfs_writer_truncate(struct mcfs_writer *w, uint64_t size, pid_t tid, struct mcfs_op *op);
/* fallocate(2), as above: extend the file to @end, unless @keep_size. */
int mcfs_writer_allocate(struct mcfs_writer *w, uint64_t end, bool keep_size, pid_t tid, struct mcfs_op *op);
/* Options of the next versions: @put_flags, MCS_PUT_*_PIN; @replicas, 0: the default. */
int mcfs_writer_set_pin(struct mcfs_writer *w, unsigned put_flags, struct mcfs_op *op);
int mcfs_writer_set_replicas(struct mcfs_writer *w, unsigned replicas, struct mcfs_op *op);

/* Copy the attributes of the file; *ret_gone: the name was removed or replaced. */
void mcfs_writer_attrs(struct mcfs_writer *w, struct mcs_attrs *ret, bool *ret_gone);
/* Name and generation under which the master has the file's version; 0: there is none. @ret_key: room for a key. */
uint64_t mcfs_writer_version(struct mcfs_writer *w, void *ret_key, size_t *ret_len);
/* The master describes the file's version @version like this; NULL: its name was removed or replaced. */
void mcfs_writer_describe(struct mcfs_writer *w, uint64_t version, const struct mcs_info *info);
/* Change attributes of the file, as mcs_set_attrs() with @flags: of its version at once, otherwise with the commit. */
int mcfs_writer_set_attrs(struct mcfs_writer *w, const struct mcs_attrs *a, unsigned flags, struct mcfs_op *op);
/* The same for an extended attribute. */
int mcfs_writer_set_xattr(struct mcfs_writer *w, const struct mcs_xattr *x, unsigned flags, struct mcfs_op *op);
/* As mcs_get_xattrs(), of the version and of those that wait for the commit. */
int mcfs_writer_get_xattrs(struct mcfs_writer *w, struct mcs_xattr **ret, unsigned *ret_n, uint64_t deadline);

/* Thread @tid, whose process has @fate, closed a descriptor. */
int mcfs_writer_flush(struct mcfs_writer *w, pid_t tid, enum mcfs_fate fate, uint64_t deadline);
int mcfs_writer_sync(struct mcfs_writer *w, uint64_t deadline);
/* Like sync, for a rename: a failure does not change the state, so the close tries again. */
int mcfs_writer_publish(struct mcfs_writer *w, uint64_t deadline);
/* The last descriptor is closed; @fate is the opener's. Commits or drops the remaining bytes. */
int mcfs_writer_release(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline);
/* The session ended before the last close was reported: files that may still be open are dropped.
 * @fate is the opener's. True: bytes were dropped. */
bool mcfs_writer_end(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline);
void mcfs_writer_revoke(struct mcfs_writer *w);
/* Is there a writer with uncommitted bytes under a name that begins with @prefix? */
bool mcfs_writers_below(struct mcfs_version_env *env, const void *prefix, size_t len);
/* Has the name another writer's version? */
static inline bool mcfs_writer_is_apart(const struct mcfs_writer *w)
{
	return __atomic_load_n(&w->others, __ATOMIC_ACQUIRE);
}
/* Has a writer that opened the name later published it? */
static inline bool mcfs_writer_overtaken(const struct mcfs_writer *w)
{
	return __atomic_load_n(&w->others, __ATOMIC_ACQUIRE) & MCFS_OTHERS_LATER;
}
static inline bool mcfs_writer_pending(const struct mcfs_writer *w)
{
	unsigned pending = __atomic_load_n(&w->pending, __ATOMIC_ACQUIRE);

	return pending & MCFS_PENDING_BYTES || (pending && !mcfs_writer_overtaken(w));
}

/* A number that changes when a version is published under @key, and rarely with another key's. A
 * lookup that finds neither a version nor a pending writer repeats if the number has changed: a
 * commit happened between the two checks. */
uint32_t mcfs_commits(const struct mcfs_version_env *env, const void *key, size_t len);

/* The name was removed or replaced: nothing is published any more. This and the next two need a hold (hold.h). */
void mcfs_writer_unlink(struct mcfs_writer *w);
/* The name changes to @to, without publishing: 0 or -ENOMEM. @generation: of the version that was renamed, 0: none. */
int mcfs_writer_rename(struct mcfs_writer *w, const void *to, size_t len, uint64_t generation);
/* Set the version that the first commit replaces: @generation, 0: none. @excl: the commit fails if
 * there is another one. */
void mcfs_writer_rebase(struct mcfs_writer *w, uint64_t generation, bool excl);

#endif
