/* SPDX-License-Identifier: Apache-2.0
 * fork.c - holding locks over fork(), and the generation of a process. */
#include <config.h>

#include "common/process/fork.h"

#include <stdbool.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/sys/clock.h"

#define LOCKS_MAX 16
#define PATIENCE_MS 1000

unsigned mc_fork_depth;

/* In the order in which they are locked; filled by constructors, constant afterwards. */
static struct kept {
	struct mc_mutex *lock;
	enum mc_fork_order order;
	bool taken;		/* locked by fork_prepare() of the thread that forks */
} kept[LOCKS_MAX];
static unsigned n_kept;

/* Serialises threads that fork at the same time. */
static struct mc_mutex turn = MC_MUTEX_INIT;

static void fork_prepare(void)
{
	uint64_t until;

	mc_mutex_lock(&turn);
	until = mc_deadline_ms(PATIENCE_MS);
	for (unsigned i = 0; i < n_kept; i++)
		kept[i].taken = mc_mutex_lock_until(kept[i].lock, until) == 0;
}

static void fork_in_parent(void)
{
	for (unsigned i = n_kept; i-- > 0;)
		if (kept[i].taken)
			mc_mutex_unlock(kept[i].lock);
	mc_mutex_unlock(&turn);
}

static void fork_in_child(void)
{
	mc_fork_depth++;
	for (unsigned i = 0; i < n_kept; i++)
		if (!kept[i].taken)
			mc_mutex_init(kept[i].lock);
	fork_in_parent();
}

void mc_fork_keep(struct mc_mutex *lock, enum mc_fork_order order)
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
