/* SPDX-License-Identifier: Apache-2.0
 * fork.h - state of this library in a child of fork().
 *
 * The child has the parent's memory and one thread.  Connections belong to the parent: a request
 * that the child sent over one could receive the reply to a request of the parent.  So every object
 * with connections or threads records the fork depth of the process that made it and refuses calls
 * of other processes.  Locks that exist once per process are used by the child too, and have to be
 * free in it regardless of the state of the parent's other threads. */
#ifndef MC_FORK_H
#define MC_FORK_H

#include "common/sys/lock.h"

/* Number of forks between the process that loaded this library and this one; changes only in a new child. */
extern unsigned mc_fork_depth;

/* 0, or -MC_EUNAVAILABLE in a descendant of the process that recorded @depth.  Costs a load. */
int mc_fork_refuse(void);
static inline int mc_fork_check(unsigned depth)
{
	return __builtin_expect(mc_fork_depth == depth, 1) ? 0 : mc_fork_refuse();
}

/* Hold @lock over every fork(), so that in the child it is free and the data that it guards is consistent.
 * Locks are taken in the order of @order (docs/LOCKING.md); those of the same order are never held together
 * otherwise.  A lock that cannot be taken within a second (its holder may be waiting) is initialised again in
 * the child.  @lock exists as long as the process.  From constructors only. */
enum mc_fork_order { MC_FORK_COLLECTORS, MC_FORK_LEAF, MC_FORK_LOG };
void mc_fork_keep(struct mc_mutex *lock, enum mc_fork_order order);
#define MC_FORK_KEEP(lock, order) \
	__attribute__((constructor)) static void keep_over_forks(void) \
	{ \
		mc_fork_keep(&(lock), order); \
	}

#endif
