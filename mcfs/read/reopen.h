/* SPDX-License-Identifier: Apache-2.0
 * reopen.h - threads whose open(2) was too late once.
 *
 * An open(2) is a lookup and then an open.  When the file was replaced between the two, or a writer and another
 * one would meet in the inode that was found (inode.h), the open is answered ESTALE, which makes the kernel do
 * both once more, and only once.  So that a file which is replaced and written all the time can be opened all the
 * same, nothing may come between the second two: that lookup gets an inode of its own and pins the version it
 * shows, and the open takes both.  That lookup may be several requests: the kernel asks whether the name is still the
 * same file, then which one it is, and both again when the name is replaced here; the last one counts.
 *
 * What is opened through /proc/self/fd is not looked up, neither the first time nor the second. */
#ifndef MCFS_REOPEN_H
#define MCFS_REOPEN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/read/object.h"

#define MCFS_REOPEN_MAX 256u
#define MCFS_REOPEN_LOOKS 100u	/* in a crowd an open may look often */
#define MCFS_REOPEN_MS 5000u	/* a thread that has not come by then was killed */

struct mcfs_reopen {
	pthread_mutex_t lock;
	unsigned n;		/* atomic; written under lock */
	struct mcfs_again {
		pid_t tid;	/* 0: free */
		uint64_t since_ms;
		unsigned looks;
		size_t key_len;
		char *key;
		struct mcfs_object *object;	/* what its last lookup has shown, or NULL */
	} again[MCFS_REOPEN_MAX];
};

/* Any thread; all but init and done. */

void mcfs_reopen_init(struct mcfs_reopen *r);
void mcfs_reopen_done(struct mcfs_reopen *r);

/* Thread @tid is told ESTALE for its open of @key and will look it up again.  Forgotten without memory, and when
 * @tid is 0, a thread of a process namespace that we do not see: others of it would be taken for it. */
void mcfs_reopen_expect(struct mcfs_reopen *r, struct mcs_key key, pid_t tid);
/* It looks @key up: is that for the second time?  True MCFS_REOPEN_LOOKS times at most. */
bool mcfs_reopen_look(struct mcfs_reopen *r, struct mcs_key key, pid_t tid);
/* This is what that lookup has found.  Takes the reference. */
void mcfs_reopen_keep(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcfs_object *o);
/* It opens @key: is that for the second time?  *ret gets what is kept, with its reference, when that is the version
 * @generation, else NULL.  Called at every open of the key, also when it needs none. */
bool mcfs_reopen_take(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, uint64_t generation,
		      struct mcfs_object **ret);

#endif
