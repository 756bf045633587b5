/* SPDX-License-Identifier: Apache-2.0
 * tree.c - lock of the tree of directories. */
#include <config.h>
#include "mcfs/tree.h"

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/thread.h"

void mcfs_tree_init(struct mcfs_tree *t)
{
	*t = (struct mcfs_tree){ .lock = MC_MUTEX_INIT };
	(void)mc_cond_init(&t->changed);
}

void mcfs_tree_done(struct mcfs_tree *t)
{
	mc_cond_destroy(&t->changed);
	mc_mutex_destroy(&t->lock);
}

int mcfs_tree_share(struct mcfs_tree *t, uint64_t deadline)
{
	int r = 0;

	MC_LOCKED(&t->lock);
	t->queued++;
	while ((t->alone || (t->waiting && !t->admitted)) && r == 0)
		r = mc_cond_wait_until(&t->changed, &t->lock, deadline);
	t->queued--;
	if (r < 0) {
		t->admitted = t->admitted < t->queued ? t->admitted : t->queued;
		mc_cond_broadcast(&t->changed);
		return mc_fail(r, "timed out waiting for the rename of a directory");
	}
	t->admitted -= t->admitted > 0;
	t->sharers++;
	return 0;
}

int mcfs_tree_take(struct mcfs_tree *t, uint64_t deadline)
{
	int r = 0;

	MC_LOCKED(&t->lock);
	t->waiting++;
	while ((t->alone || t->sharers || t->admitted) && r == 0)
		r = mc_cond_wait_until(&t->changed, &t->lock, deadline);
	t->waiting--;
	if (r < 0) {
		/* Others may have waited for this thread. */
		mc_cond_broadcast(&t->changed);
		return mc_fail(r, "timed out waiting for changes of names");
	}
	t->alone = true;
	return 0;
}

void mcfs_tree_leave(struct mcfs_tree *t, enum mcfs_tree_use use)
{
	MC_LOCKED(&t->lock);
	if (use == MCFS_TREE_ALONE) {
		t->alone = false;
		t->admitted = t->queued;
	} else {
		t->sharers--;
	}
	if (!t->sharers)
		mc_cond_broadcast(&t->changed);
}
