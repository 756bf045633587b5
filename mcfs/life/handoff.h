/* SPDX-License-Identifier: Apache-2.0
 * handoff.h - what has to outlive the daemon, so that a new one goes on with the mount (option supervise).
 *
 * A memfd that somebody else keeps too (fdstore.h): which inodes the kernel knows, which files are
 * open and locked, and how the mount was made.  The kernel's numbers of inodes and open files are places in it then
 * instead of addresses.  A daemon may die between any two stores: an entry counts from the moment on that
 * its type is set, and is complete by then.  One per process, as there is one mount.
 *
 * Any thread, but for making, loading and closing it. */
#ifndef MCFS_HANDOFF_H
#define MCFS_HANDOFF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <mooncake/mcs.h>

#define MCFS_HANDOFF_INIT_MAX 128

struct mcfs_handoff_head {
	char magic[8];
	uint32_t version, cell_size;
	uint32_t high;			/* atomic: places that were ever used */
	uint32_t init_len;		/* of the kernel's INIT request, 0: not seen yet */
	unsigned char init[MCFS_HANDOFF_INIT_MAX];
	uint64_t segment_size;		/* of the own segment, 0: none */
	uint64_t segment_identity[3];
	int32_t backing;		/* the kernel's number of it, 0: none */
	uint32_t takeovers;		/* how often a daemon went on with another one's mount */
	uint32_t serial;		/* of the last handle */
	char mountpoint[PATH_MAX];
	int32_t connection;		/* as of struct mcfs, 0: not noted */
};

enum mcfs_handoff_type {
	MCFS_HANDOFF_FREE, MCFS_HANDOFF_INODE, MCFS_HANDOFF_HANDLE, MCFS_HANDOFF_REST,
	MCFS_HANDOFF_MOVING,	/* an inode whose key is half written: nobody else gets its number */
	MCFS_HANDOFF_LOCK,
};

/* A lock of a file; lock.h. */
struct mcfs_lock_args {
	bool flock;			/* of the whole file, and of an open file; else of bytes, and of a process */
	int type;			/* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t start, end;		/* first and last byte */
	uint64_t owner;			/* as the kernel tells it */
	pid_t pid;
};

struct mcfs_handoff_entry {
	enum mcfs_handoff_type type;
	/* of an inode */
	struct mcs_info info;
	uint64_t nlookup;
	bool implied, hashed;
	const void *key;		/* valid until the next call of this thread */
	size_t key_len;
	/* of a handle */
	uint64_t inode;			/* its inode's number, 0: a control file */
	int handle_type;
	bool unsaved;			/* held bytes that were not committed */
	uint64_t unique;		/* of the request that opened it */
	/* of a lock */
	uint64_t handle;		/* number of that by which it was taken */
	struct mcfs_lock_args lock;
};

/* A new one, or one that a daemon has left: 0, -EINVAL when it is of another kind.  @fd stays the
 * caller's. */
int mcfs_handoff_new(int *ret_fd);
int mcfs_handoff_load(int fd);
void mcfs_handoff_close(void);
struct mcfs_handoff_head *mcfs_handoff(void);		/* NULL: there is none */

/* An entry for @object; its number, 0: there is no book, or no room in it.  A place is used again, a handle's
 * number is not: the kernel may ask once more for the close of one that the daemon before us had closed. */
uint64_t mcfs_handoff_add(const struct mcfs_handoff_entry *e, void *object);
void mcfs_handoff_remove(uint64_t number);
void mcfs_handoff_set_nlookup(uint64_t number, uint64_t n);
void mcfs_handoff_set_hashed(uint64_t number, bool hashed);
/* Looks at the atomic *unsaved itself: of several threads that change it and then come here, the last one to come
 * notes what the last one to change it meant.  Of one that is removed: nothing. */
void mcfs_handoff_note_unsaved(uint64_t number, const bool *unsaved);
/* 0 or -ENOMEM, and the entry has no key then: a new daemon knows of it only that its number is taken. */
int mcfs_handoff_set_key(uint64_t number, const void *key, size_t len);

/* Is it an inode's place in the book, rather than an address? */
bool mcfs_handoff_is_number(uint64_t number);
void *mcfs_handoff_at(uint64_t number);		/* NULL: nothing */
/* After loading: the entries one after the other, from number 0 on.  0: there are no more.  Each gets the
 * object that stands for it from now on. */
uint64_t mcfs_handoff_next(uint64_t number, struct mcfs_handoff_entry *ret);
void mcfs_handoff_bind(uint64_t number, void *object);

#endif
