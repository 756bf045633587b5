/* SPDX-License-Identifier: Apache-2.0
 * fork.c - holding locks over fork(), and the generation of a process. */
#include <config.h>

#include "common/process/fork.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "common/err.h"

#define LOCKS_MAX 16
#define PATIENCE_S 1

unsigned mc_fork_depth;

/* In the order in which they are locked; filled by constructors, constant afterwards. */
static struct kept {
	pthread_mutex_t *lock;
	enum mc_fork_order order;
	bool taken;		/* by fork_prepare() of the thread that forks */
} kept[LOCKS_MAX];
static unsigned n_kept;

/* Serialises threads that fork at the same time. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void fork_prepare(void)
{
	struct timespec until;

	pthread_mutex_lock(&turn);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	for (unsigned i = 0; i < n_kept; i++)
		kept[i].taken = pthread_mutex_timedlock(kept[i].lock, &until) == 0;
}

static void fork_in_parent(void)
{
	for (unsigned i = n_kept; i-- > 0;)
		if (kept[i].taken)
			pthread_mutex_unlock(kept[i].lock);
	pthread_mutex_unlock(&turn);
}

static void fork_in_child(void)
{
	mc_fork_depth++;
	for (unsigned i = 0; i < n_kept; i++)
		if (!kept[i].taken)
			pthread_mutex_init(kept[i].lock, NULL);
	fork_in_parent();
}

void mc_fork_keep(pthread_mutex_t *lock, enum mc_fork_order order)
{
	unsigned at = n_kept++;

	if (n_kept > LOCKS_MAX)
		abort();
	for (; at > 0 && kept[at - 1].order > order; at--)
		kept[at] = kept[at - 1];
	kept[at] = (struct kept){ .lock = lock, .order = order };
}

int mc_fork_refuse(void)
{
	return mc_fail(-MC_EUNAVAILABLE, "the handle belongs to the parent process, a forked child opens its own");
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(fork_prepare, fork_in_parent, fork_in_child);
}
