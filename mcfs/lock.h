/* SPDX-License-Identifier: Apache-2.0
 * lock.h - flock(2) and fcntl(2) locks of this node's processes.
 *
 * The kernel's own locks belong to an inode, and a name has several (inode.h): here they belong to the key.
 * Nothing of them is known to other nodes.  With a book (book.h) they outlive the daemon. */
#ifndef MCFS_LOCK_H
#define MCFS_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "mcfs/life/handoff.h"
#include "mcfs/reply.h"
#include <mooncake/mcs.h>

#define MCFS_LOCK_BUCKETS 256u
#define MCFS_LOCKS_MAX 65536u

struct mcfs_locks {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct mc_list file[MCFS_LOCK_BUCKETS];
	unsigned nwaiting;		/* also read without it */
	unsigned max_waiting;
	bool hung_up;			/* nobody waits any more */
	/* atomic */
	unsigned n;			/* locks, and who waits for one */
};

/* A request, which may wait; malloc()ed. */
struct mcfs_lock_wait {
	struct mcfs_op op;
	struct mcfs_lock_args args;
	struct mc_list link;
};

void mcfs_locks_init(struct mcfs_locks *l, unsigned max_waiting);
void mcfs_locks_done(struct mcfs_locks *l);	/* the book keeps what it has */
/* One of the daemon before us, of a handle with this key. */
int mcfs_lock_restore(struct mcfs_locks *l, struct mcs_key key, struct mcfs_handle *h, uint64_t number,
		      const struct mcfs_lock_args *args);
/* Is there any?  Without one a close has nothing to do. */
static inline bool mcfs_locks_any(const struct mcfs_locks *l)
{
	return __atomic_load_n(&l->n, __ATOMIC_RELAXED);
}

/* Ends w->op, now or, with @waits, when the lock can be had, and takes @w.  Without: EAGAIN.  ENOLCK: no
 * memory, or too many locks or who wait for one; EDEADLK: who waits would wait for itself. */
void mcfs_lock_set(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_wait *w, bool waits);
/* What stands in the way of @args: true, and *args is that. */
bool mcfs_lock_test(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_args *args);
/* A descriptor of @owner's was closed: it has no locks of bytes any more. */
void mcfs_lock_flushed(struct mcfs_locks *l, struct mcs_key key, uint64_t owner);
/* The last descriptor of an open file was. */
void mcfs_lock_released(struct mcfs_locks *l, struct mcs_key key, const struct mcfs_handle *h);
static inline bool mcfs_locks_waited_for(const struct mcfs_locks *l)
{
	return __atomic_load_n(&l->nwaiting, __ATOMIC_RELAXED);
}
/* Who was interrupted waits no more, and the room is others'; nor does anybody for a process that has ended. */
void mcfs_locks_sweep(struct mcfs_locks *l);
/* Whoever waits is answered ENOLCK, and who comes. */
void mcfs_locks_hang_up(struct mcfs_locks *l);

#endif
