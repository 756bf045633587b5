/* SPDX-License-Identifier: Apache-2.0
 * expect.h - versions that are pinned for an open(2) that is likely to come.
 *
 * An open(2) is a lookup and then an open, and each would ask the master.  Of a thread whose last lookups were
 * followed by opens the next lookup pins what it finds, and the open takes that: one question, and the
 * file is the one that the name showed while open(2) was under way.  A thread that only looks pins nothing.
 *
 * What a lookup has pinned is of use to the open that follows at once and to nothing else: the thread's next
 * lookup drops it, as does the sweep after MCFS_EXPECT_MS. */
#ifndef MCFS_EXPECT_H
#define MCFS_EXPECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/read/object.h"

#define MCFS_EXPECT_PLACES 64u	/* threads that are known; those that share a place forget each other */
#define MCFS_EXPECT_MS 50u

struct mcfs_expect {
	pthread_mutex_t lock;
	unsigned kept;		/* atomic; written under lock */
	bool idle;		/* atomic: nobody sweeps */
	/* guarded by lock */
	struct mcfs_expected {
		pid_t tid;
		bool looked;	/* and has not opened anything since */
		unsigned score;
		uint64_t since_ms;
		struct mcfs_object *object;	/* NULL: none is kept */
	} place[MCFS_EXPECT_PLACES];
};

void mcfs_expect_init(struct mcfs_expect *x);
void mcfs_expect_done(struct mcfs_expect *x);

/* Thread @tid looks up a file: is it likely to open what it finds? */
bool mcfs_expect_lookup(struct mcfs_expect *x, pid_t tid);
/* It was no file.  @missing: nothing at all, which is asked for twice when an open is expected, so that none
 * is for a while. */
void mcfs_expect_nothing(struct mcfs_expect *x, pid_t tid, bool missing);
/* This is what it has found.  Takes the reference.  True: somebody has to call mcfs_expect_sweep() in a
 * while, and does not yet. */
bool mcfs_expect_keep(struct mcfs_expect *x, pid_t tid, struct mcfs_object *o);
/* It opens a version: that one, with its reference, or NULL when it has to be asked for. */
struct mcfs_object *mcfs_expect_take(struct mcfs_expect *x, pid_t tid, uint64_t generation);
/* Drop what nobody has come for.  False: nothing is left, and keep() will say so when there is. */
bool mcfs_expect_sweep(struct mcfs_expect *x);

#endif
