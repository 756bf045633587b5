/* SPDX-License-Identifier: Apache-2.0
 * fork.h - what a child of fork() finds of us.
 *
 * It has its parent's memory and one thread.  Connections are the parent's: a request that the child sent
 * among the parent's would get somebody else's answer.  So what has connections or threads remembers who
 * made it and refuses everybody else.  Locks that are there once per process, on the other hand, are the
 * child's too, and have to be free whatever the parent's other threads were doing. */
#ifndef MC_FORK_H
#define MC_FORK_H

#include <pthread.h>

/* Forks between the process that loaded us and this one; changes only in a new child. */
extern unsigned mc_fork_depth;

/* 0, or -MC_EUNAVAILABLE in a process that descends from the one that noted @depth.  Costs a load. */
int mc_fork_refuse(void);
static inline int mc_fork_check(unsigned depth)
{
	return __builtin_expect(mc_fork_depth == depth, 1) ? 0 : mc_fork_refuse();
}

/* Hold @lock over every fork(), so that the child finds it free and what it guards whole.  Locks of the
 * same @order are never held together; the others are taken in this order, as docs/LOCKING.md has them.
 * One that is not to be had within a second (who has it may be waiting for something) is made anew in the
 * child.  @lock lives as long as the process; from constructors only. */
enum mc_fork_order { MC_FORK_COLLECTORS, MC_FORK_LEAF, MC_FORK_LOG };
void mc_fork_keep(pthread_mutex_t *lock, enum mc_fork_order order);
#define MC_FORK_KEEP(lock, order) \
	__attribute__((constructor)) static void keep_over_forks(void) \
	{ \
		mc_fork_keep(&(lock), order); \
	}

#endif
