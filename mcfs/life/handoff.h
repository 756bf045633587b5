/* SPDX-License-Identifier: Apache-2.0
 * handoff.h - the handoff table, with which a new daemon continues the mount of a dead one (option supervise).
 *
 * A memfd that the supervisor also holds (fdstore.h) records which inodes the kernel knows, which files are
 * open and locked, and how the mount was made. With a table, the kernel's numbers of inodes and open files are
 * indexes into it instead of addresses. A daemon may die between any two stores: an entry becomes valid when
 * its type is set, and is complete by then. There is one table per process, as there is one mount.
 *
 * Any thread, except for creating, loading and closing the table. */
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
	uint32_t high;			/* atomic: number of cells ever used */
	uint32_t init_len;		/* length of the kernel's INIT request, 0: not received yet */
	unsigned char init[MCFS_HANDOFF_INIT_MAX];
	uint64_t segment_size;		/* bytes of this node's segment, 0: none */
	uint64_t segment_identity[MCS_SEGMENT_IDENTITY];	/* kept by the store */
	int32_t backing;		/* the kernel's backing id of the segment, 0: none */
	uint32_t takeovers;		/* number of takeovers of this mount */
	uint32_t serial;		/* serial number of the last handle */
	char mountpoint[PATH_MAX];
	int32_t connection;		/* as in struct mcfs, 0: unknown */
};

enum mcfs_handoff_type {
	MCFS_HANDOFF_FREE, MCFS_HANDOFF_INODE, MCFS_HANDOFF_HANDLE, MCFS_HANDOFF_REST,
	MCFS_HANDOFF_MOVING,	/* an inode whose key is being written: its number stays reserved */
	MCFS_HANDOFF_LOCK,
};

/* A file lock; see lock.h. */
struct mcfs_lock_args {
	/* flock: of the whole file, owned by an open file; otherwise of bytes, owned by a process */
	bool flock;
	int type;			/* F_RDLCK, F_WRLCK, F_UNLCK */
	uint64_t start, end;		/* first and last byte, inclusive */
	uint64_t owner;			/* the kernel's id of the owner */
	pid_t pid;
};

struct mcfs_handoff_entry {
	enum mcfs_handoff_type type;
	/* members of an inode */
	struct mcs_info info;
	uint64_t nlookup;
	bool implied, hashed;
	const void *key;		/* valid until this thread's next call */
	size_t key_len;
	/* members of a handle */
	uint64_t inode;			/* number of its inode, 0: a control file */
	int handle_type;
	bool unsaved;			/* had uncommitted bytes */
	uint64_t unique;		/* id of the request that opened it */
	/* members of a lock */
	uint64_t handle;		/* number of the handle that acquired the lock */
	struct mcfs_lock_args lock;
};

/* Create a table, or load a dead daemon's: 0, or -EINVAL if it has another format. The caller keeps
 * @fd. */
int mcfs_handoff_new(int *ret_fd);
int mcfs_handoff_load(int fd);
void mcfs_handoff_close(void);
struct mcfs_handoff_head *mcfs_handoff(void);		/* NULL: there is no table */

/* Add an entry for @object. Returns its number, 0: no table or no space. Cells are reused, but numbers of
 * handles are not: the kernel may resend the close of a handle that the previous daemon had already closed. */
uint64_t mcfs_handoff_add(const struct mcfs_handoff_entry *e, void *object);
void mcfs_handoff_remove(uint64_t number);
void mcfs_handoff_set_nlookup(uint64_t number, uint64_t n);
void mcfs_handoff_set_hashed(uint64_t number, bool hashed);
/* Record the atomic *unsaved. Reads it under the lock, so that after concurrent changes the last
 * caller records the last value. Does nothing for a removed entry. */
void mcfs_handoff_note_unsaved(uint64_t number, const bool *unsaved);
/* 0 or -ENOMEM. After an error the entry has no key: a new daemon only knows that its number is in use. */
int mcfs_handoff_set_key(uint64_t number, const void *key, size_t len);

/* Is @number an inode's index in the table, not an address? */
bool mcfs_handoff_is_number(uint64_t number);
void *mcfs_handoff_at(uint64_t number);		/* NULL: nothing */
/* After loading: iterate over the entries, starting with number 0; returns 0 at the end. Bind each
 * entry to the object that represents it from now on. */
uint64_t mcfs_handoff_next(uint64_t number, struct mcfs_handoff_entry *ret);
void mcfs_handoff_bind(uint64_t number, void *object);

#endif
