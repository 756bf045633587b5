/* SPDX-License-Identifier: Apache-2.0
 * version.h - the life of one descriptor that writes: what it stages, and when that becomes the
 * next version of its name.
 *
 *	open -> (write, truncate)* -> flush by the opener: commit -> write* -> flush: commit -> release
 *
 * A commit publishes all bytes at once under the name that the writer has at that moment; readers see
 * the old version or the new one, whole.  A writer whose process was killed is revoked: what it had
 * staged since its last commit never appears; the same holds when it was a child or a wrapped command
 * that wrote, and was killed, before the opener closes the file.  After a write or a commit that failed nothing is
 * published any more, and every flush repeats the error, until the file is truncated to nothing.
 *
 * All functions may be called from any thread; they wait for each other. */
#ifndef MCFS_VERSION_H
#define MCFS_VERSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"
#include "mcfs/caller.h"
#include "mcfs/write/writeback.h"
#include "mcfs/read/object.h"
#include "mcfs/write/stage.h"

struct mcfs_hold;
struct mcfs_inode;
struct mcfs_op;

#define MCFS_COMMITS 256u

struct mcfs_version_env {	/* what all writers of a mount share */
	mcs_t *store;
	struct mcfs_pool *pool;
	struct mcfs_writeback_pool *writeback_pool;	/* NULL: none */
	uint64_t max_size;	/* atomic: the largest object that can be stored */
	pthread_mutex_t names;	/* innermost lock; guards names and the list of writers */
	struct mc_list writers;	/* by their link; guarded by names */
	uint32_t commits[MCFS_COMMITS];	/* atomic: versions published so far, by the hash of their keys */
	/* Tell that a version could not be published.  @key is borrowed. */
	void (*failed)(struct mcfs_version_env *env, const void *key, size_t len, int err,
		       const char *when, pid_t pid);
};

#define MCFS_WRITER_FRESH	0x1u	/* created or truncated: exists even when nothing is written */
#define MCFS_WRITER_EXCL	0x2u	/* the first commit must not find the key: O_EXCL, immutable */

#define MCFS_OTHERS_ANY		0x1u	/* somebody else since it was opened or committed last */
#define MCFS_OTHERS_LATER	0x2u	/* somebody who opened it later, since its bytes changed last */
#define MCFS_PENDING_BYTES	0x1u
#define MCFS_PENDING_NAME	0x2u	/* it has to be there, if only empty */

struct mcfs_writer {
	struct mcfs_version_env *env;	/* constant, as are the next two lines */
	pid_t tid, pid;			/* of the opener: thread and process */
	unsigned flags;

	pthread_mutex_t lock;
	/* guarded by lock */
	struct mcfs_stage stage;
	struct mcfs_writeback writeback;
	uint64_t base_generation;	/* of the version that the name had at open or rename, 0: none */
	bool dirty;			/* bytes changed since the last commit */
	bool fresh;			/* never committed, and must exist */
	bool excl;
	bool mapped;			/* the last bytes came through a shared mapping */
	pid_t last_tid, last_pid;	/* who wrote last: thread and process */
	bool flushed;			/* somebody has closed a descriptor since the last change */
	bool closed;			/* the opener has, at any time */
	bool abandoned;			/* who wrote last was killed, and was not the opener */
	bool exited;			/* the opener ended by exit(0) */
	bool revoked, unlinked;
	int failed;			/* 0, or why nothing is published any more */
	unsigned put_flags;		/* MCS_PUT_*_PIN of the next commits */
	unsigned replicas;		/* copies, 0: the default */
	pthread_cond_t hold_ended;		/* nobody holds the name any more; monotonic clock */

	/* changed under lock and env->names: either is enough to read */
	char *key;
	size_t key_len;
	uint64_t key_hash;

	/* changed under lock, atomic for a holder that asks whether it is itself */
	struct mcfs_hold *holder;	/* whoever would publish waits for it (hold.h); NULL: none */
	struct mc_list held;		/* the holder's */

	/* atomic, for those who only look */
	unsigned pending;		/* MCFS_PENDING_*: what its name does not show yet */
	uint64_t shown_size, mtime_ms;
	unsigned others;		/* MCFS_OTHERS_*: who else has committed under its name, in this mount */

	/* guarded by env->names */
	unsigned refs;
	struct mc_list link;

	struct mcfs_inode *inode;	/* the file that it was opened as; constant */
};

int mcfs_version_env_init(struct mcfs_version_env *env, mcs_t *store, struct mcfs_pool *pool);
void mcfs_version_env_done(struct mcfs_version_env *env);

struct mcfs_writer_args {
	const void *key;
	size_t len;
	unsigned flags;			/* MCFS_WRITER_* */
	struct mcfs_object *base;	/* what the file begins with; NULL: nothing */
	uint64_t generation;		/* of the version that the name has now, 0 without one */
	struct mcfs_inode *inode;	/* kept; NULL: none, and nobody finds it by name */
	pid_t tid;
};
/* The new writer is on env->writers and has one reference. */
int mcfs_writer_new(struct mcfs_version_env *env, const struct mcfs_writer_args *args,
		    struct mcfs_writer **ret);
void mcfs_writer_ref(struct mcfs_writer *w);
void mcfs_writer_unref(struct mcfs_writer *w);
/* The newest writer under a name, or, in exchange for the reference on @prev, the next older one.  With a reference;
 * NULL: there is no more. */
struct mcfs_writer *mcfs_writer_next(struct mcfs_version_env *env, struct mcfs_writer *prev, struct mcs_key key);
/* Its lock, for who must not wait for a commit as long as that takes: 0, or -ETIMEDOUT. */
int mcfs_writer_lock(struct mcfs_writer *w, uint64_t deadline);

/* These wait for each other and for commits, all but a write until @op's deadline: -ETIMEDOUT, and nothing is changed.
 * @op (NULL: none) is claimed before anything is.  -EINTR: it was answered before that, and nothing is. */
#define MCFS_AT_THE_END UINT64_MAX
/* All @len bytes or an error.  *slot is NULL or a whole slot that holds @data; it may be exchanged.
 * @offset: MCFS_AT_THE_END is behind the last byte that there is by now.
 * @tid: the thread that writes; 0: the bytes come from the page cache, nobody knows from whom. */
int mcfs_writer_write(struct mcfs_writer *w, uint64_t offset, const void *data, size_t len,
		      void **slot, pid_t tid, uint64_t deadline, struct mcfs_op *op);
int64_t mcfs_writer_read(struct mcfs_writer *w, uint64_t offset, void *buf, size_t len,
			 uint64_t deadline);
/* By thread @tid, who has written last then. */
int mcfs_writer_truncate(struct mcfs_writer *w, uint64_t size, pid_t tid, struct mcfs_op *op);
/* fallocate(2), the same: the file reaches to @end at least, unless @keep_size. */
int mcfs_writer_allocate(struct mcfs_writer *w, uint64_t end, bool keep_size, pid_t tid, struct mcfs_op *op);
/* How the next versions are stored: @put_flags of MCS_PUT_*_PIN; @replicas, 0: the default. */
int mcfs_writer_set_pin(struct mcfs_writer *w, unsigned put_flags, struct mcfs_op *op);
int mcfs_writer_set_replicas(struct mcfs_writer *w, unsigned replicas, struct mcfs_op *op);

/* Thread @tid, whose process is doing as @fate says, has closed a descriptor. */
int mcfs_writer_flush(struct mcfs_writer *w, pid_t tid, enum mcfs_fate fate, uint64_t deadline);
int mcfs_writer_sync(struct mcfs_writer *w, uint64_t deadline);
/* The same for a rename, whose failure leaves it as it was: the close tries again. */
int mcfs_writer_publish(struct mcfs_writer *w, uint64_t deadline);
/* The last descriptor is closed; @fate is the opener's.  Commits what is left, or drops it. */
int mcfs_writer_release(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline);
/* The session has ended before the last descriptor was closed, or before anybody told: what may still be open,
 * half written, is dropped.  @fate is the opener's.  True: something was. */
bool mcfs_writer_end(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline);
void mcfs_writer_revoke(struct mcfs_writer *w);
/* Is there a writer with uncommitted bytes under a name that begins with @prefix? */
bool mcfs_writers_below(struct mcfs_version_env *env, const void *prefix, size_t len);
/* The name has a version of somebody else. */
static inline bool mcfs_writer_is_apart(const struct mcfs_writer *w)
{
	return __atomic_load_n(&w->others, __ATOMIC_ACQUIRE);
}
/* And that was made of what is newer than this. */
static inline bool mcfs_writer_overtaken(const struct mcfs_writer *w)
{
	return __atomic_load_n(&w->others, __ATOMIC_ACQUIRE) & MCFS_OTHERS_LATER;
}
static inline bool mcfs_writer_pending(const struct mcfs_writer *w)
{
	unsigned pending = __atomic_load_n(&w->pending, __ATOMIC_ACQUIRE);

	return pending & MCFS_PENDING_BYTES || (pending && !mcfs_writer_overtaken(w));
}

/* A number that is another one when a version was published under @key since; also when one was under another key,
 * rarely.  Who finds neither a version nor then a pending writer looks again when it has changed: the commit came
 * between the two. */
uint32_t mcfs_commits(const struct mcfs_version_env *env, const void *key, size_t len);

/* The name was removed or taken by another file: nothing is published any more.  For this and the next a hold keeps
 * commits away (hold.h). */
void mcfs_writer_unlink(struct mcfs_writer *w);
/* Its name changes to @to: 0 or -ENOMEM.  Nothing is published. */
int mcfs_writer_rename(struct mcfs_writer *w, const void *to, size_t len);
/* What its first commit replaces: version @generation, 0: none.  @excl: and no other one. */
void mcfs_writer_rebase(struct mcfs_writer *w, uint64_t generation, bool excl);

#endif
