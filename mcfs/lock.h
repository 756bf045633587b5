/* SPDX-License-Identifier: Apache-2.0
 * lock.h - flock(2) and fcntl(2) locks of this node's processes.
 *
 * The kernel attaches its locks to an inode, but one name may have several inodes (inode.h). These locks belong
 * to the key. Other nodes do not see them. With a handoff table (handoff.h) they outlive the daemon. */
#ifndef MCFS_LOCK_H
#define MCFS_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "mcfs/life/handoff.h"
#include "mcfs/reply.h"
#include <mooncake/mcs.h>

#define MCFS_LOCK_BUCKETS 256u
#define MCFS_LOCKS_MAX 65536u

struct mcfs_locks {
	struct mc_mutex lock;
	/* guarded by lock */
	struct mc_list file[MCFS_LOCK_BUCKETS];
	unsigned nwaiting;		/* also read without the lock */
	unsigned max_waiting;
	bool hung_up;			/* requests are no longer queued */
	/* atomic */
	unsigned n;			/* number of held locks and queued requests */
};

/* A lock request, which may be queued; allocated with malloc(). */
struct mcfs_lock_wait {
	struct mcfs_op op;
	struct mcfs_lock_args args;
	struct mc_list link;
};

void mcfs_locks_init(struct mcfs_locks *l, unsigned max_waiting);
void mcfs_locks_done(struct mcfs_locks *l);	/* entries in the handoff table are kept */
/* Recreate a lock of the previous daemon, acquired by handle @h of this key. */
int mcfs_lock_restore(struct mcfs_locks *l, struct mcs_key key, struct mcfs_handle *h, uint64_t number,
		      const struct mcfs_lock_args *args);
/* Are there any locks or requests? If not, a close has no lock to release. */
static inline bool mcfs_locks_any(const struct mcfs_locks *l)
{
	return __atomic_load_n(&l->n, __ATOMIC_RELAXED);
}

/* Answer w->op and free @w: at once, or with @waits when the lock is granted. Without @waits: EAGAIN. ENOLCK:
 * no memory, or too many locks or requests; EDEADLK: the request would wait for itself. */
void mcfs_lock_set(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_wait *w, bool waits);
/* Find a lock that conflicts with @args: true, and *args describes it. */
bool mcfs_lock_test(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_args *args);
/* A descriptor of @owner was closed: release its byte-range locks. */
void mcfs_lock_flushed(struct mcfs_locks *l, struct mcs_key key, uint64_t owner);
/* The last descriptor of an open file was closed: release the locks it acquired. */
void mcfs_lock_released(struct mcfs_locks *l, struct mcs_key key, const struct mcfs_handle *h);
static inline bool mcfs_locks_waited_for(const struct mcfs_locks *l)
{
	return __atomic_load_n(&l->nwaiting, __ATOMIC_RELAXED);
}
/* Remove queued requests whose caller was interrupted, and locks of ended processes. */
void mcfs_locks_sweep(struct mcfs_locks *l);
/* Answer ENOLCK to all queued and future requests. */
void mcfs_locks_hang_up(struct mcfs_locks *l);

#endif
