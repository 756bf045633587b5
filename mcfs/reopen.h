/* SPDX-License-Identifier: Apache-2.0
 * reopen.h - versions that wait for the thread that is about to open them.
 *
 * An open(2) is a lookup and then an open; when the file was replaced between the two the open is answered
 * ESTALE, which makes the kernel do both once more, and only once.  So that a file which is replaced all
 * the time can be opened all the same, the version that the first open found is kept pinned here:
 * the thread's second lookup shows it, and its second open takes it.  That lookup may be several requests: the
 * kernel asks whether the name is still the same file, then which one it is, and both again when the name is
 * replaced here.
 *
 * What is opened through /proc/self/fd is not looked up, neither the first time nor the second: nothing is kept for
 * such an open once that is seen. */
#ifndef MCFS_REOPEN_H
#define MCFS_REOPEN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mcfs/object.h"

#define MCFS_REOPEN_MAX 64u
#define MCFS_REOPEN_LOOKS 8u
#define MCFS_REOPEN_MS 1000u	/* a thread that has not come by then was killed */

struct mcfs_reopen {
	pthread_mutex_t lock;
	unsigned n;		/* atomic; written under lock */
	unsigned next;
	struct mcfs_kept {
		pid_t tid;
		uint64_t since_ms;
		unsigned shown;
		size_t key_len;
		char *key;
		struct mcfs_object *object;	/* NULL: free */
	} kept[MCFS_REOPEN_MAX];
};

void mcfs_reopen_init(struct mcfs_reopen *r);
void mcfs_reopen_done(struct mcfs_reopen *r);

/* Thread @tid will look @key up again.  Takes the reference; without memory it is dropped, and when @tid is 0, a
 * thread of a process namespace that we do not see: others of it would be shown the version, too. */
void mcfs_reopen_keep(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcfs_object *o);
/* What is kept for this thread, which is told MCFS_REOPEN_LOOKS times: false, or its attributes. */
bool mcfs_reopen_peek(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcs_info *ret);
/* That version, with its reference, or NULL.  Called at every open of the key, also when it needs none. */
struct mcfs_object *mcfs_reopen_take(struct mcfs_reopen *r, struct mcs_key key, pid_t tid,
				     uint64_t generation);

#endif
