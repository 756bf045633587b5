/* SPDX-License-Identifier: Apache-2.0
 * tree.h - lock of the tree of directories: no directory gets another name while an operation uses the key of a name.
 *
 * An operation copies a key from an inode, asks the master to change something under that key, and adds an inode or
 * a writer that has it. If the directory were renamed in between, the change would be below the old name. Such an
 * operation shares the tree from the copy until all of that has happened; the rename of a directory has it alone.
 * Operations that only look repeat their request instead (mcfs_inode_moved_since()), and commits of writers are held
 * (write/hold.h), since both may take long.
 *
 * A thread that waits to have the tree alone precedes those that come later to share it, so no thread may share it
 * twice. Its end admits those that came meanwhile. */
#ifndef MCFS_TREE_H
#define MCFS_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

struct mcfs_tree {
	struct mc_mutex lock;
	struct mc_cond changed;
	unsigned sharers;
	unsigned waiting, queued;	/* waiting to have it alone, and to share it */
	unsigned admitted;		/* number of the queued that precede the waiting */
	bool alone;
};

enum mcfs_tree_use { MCFS_TREE_FREE, MCFS_TREE_SHARED, MCFS_TREE_ALONE };

void mcfs_tree_init(struct mcfs_tree *t);
void mcfs_tree_done(struct mcfs_tree *t);
/* 0 or -ETIMEDOUT. */
int mcfs_tree_share(struct mcfs_tree *t, uint64_t deadline);
int mcfs_tree_take(struct mcfs_tree *t, uint64_t deadline);
void mcfs_tree_leave(struct mcfs_tree *t, enum mcfs_tree_use use);

#endif
