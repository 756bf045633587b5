/* SPDX-License-Identifier: Apache-2.0
 * tier.h - the table of functions of a tier: a kind of storage that holds the bytes of a segment.
 *
 * One const table per tier, complete.  The owner of a segment opens one medium of a tier, registers the
 * medium's memory with the engine and offers its size to the master.  Sizes and offsets are in bytes.  Errors
 * are negative, with a detail, and leave outputs untouched.
 *
 * A tier whose bytes are not addressable (a file on an SSD) returns -MC_ENOTSUP from memory, and reads and writes
 * them through buffers of the medium: read_start and write_start queue one transfer and do not block.  The other
 * tiers return -MC_ENOTSUP from these slots.
 *
 * A tier is "named" if it keeps the bytes of each range under a name of their own, which is never used again: a range
 * is written as a whole, a write cannot change the bytes of another one, and the owner says which ranges are in use, so
 * that the tier can delete the others (sweep). */
#ifndef MCT_TIER_H
#define MCT_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "tiers/wrap.h"

/* Which processes use the file of a medium. */
enum mct_share {
	MCT_SHARE_NONE,		/* those of this machine, one at a time */
	MCT_SHARE_OWN,		/* @path is a directory of several machines: this process owns one of its files */
	MCT_SHARE_READ,		/* @path is a file there that another process may own: only reads */
};

#define MCT_IDENTITY 9			/* words that a medium keeps for its owner: */
#define MCT_EXPECT 5			/* id of the segment (2), epoch, pool (2), and others */

struct mct_conf {
	uint64_t size;		/* the tier rounds it to its own unit */
	uint64_t reserve;	/* limit of grow; less than size: the medium does not grow */
	const char *kind;	/* variant of the tier, as in the tier's header; NULL: its default */
	const char *path;	/* file or device that holds the bytes, NULL: the tier allocates storage */
	uint64_t path_offset;	/* offset of the medium in that file, a multiple of the page size */
	bool lock;		/* no other medium may be in that file: lock all of it (a device always is) */
	int adopt_fd;		/* file of a dead process's medium, to continue with its content; 0: none.  It has
				 * @size bytes or more and stays the caller's */
	int numa_node;		/* bind memory to this node, -1: none */
	int prefault;		/* allocate pages in a background thread, lowest address first */
	uint64_t buffers;	/* bytes of the medium's buffers, 0: the tier's default */
	bool format;		/* a blank device may be initialised */
	bool seal;		/* the bytes are encrypted; a tier of memory ignores it */
	uint64_t tenant;	/* a number of the tenant that has their keys, 0: not known.  In a directory, files with
				 * bytes of another tenant are left alone */
	enum mct_share share;
	/* MCT_SHARE_READ: the first words of the identity that the file must have.  MCT_SHARE_OWN: the same, or id and
	 * epoch 0: any file that no process has, or a new one.  Files of another pool than words 3 and 4 are left
	 * alone; 0: it is not known */
	uint64_t expect[MCT_EXPECT];
};

#define MCT_PIECE_MAX (1u << 20)	/* bytes of one piece: of a read, or of a buffer for writing */
#define MCT_BLOCK 4096u			/* unit of writes */
#define MCT_NOTE_BLOCKS 255u		/* blocks that it keeps for its owner */

/* One read.  It belongs to the caller before read_start and from @done on, which runs on any thread, maybe before
 * read_start returns, and must not block. */
struct mct_read {
	uint64_t off;
	uint32_t len;		/* 1 to MCT_PIECE_MAX */
	void (*done)(struct mct_read *r);
	/* filled in */
	/* 0, or negative: then there are no bytes, and read_end is not called.  -EIO: the medium has lost these bytes;
	 * -MC_EUNAVAILABLE: it does not work as a whole, or not now */
	int status;
	const void *at;		/* the bytes, until read_end */
	struct mc_list node;	/* the tier's */
	void *buffer;
};

/* One write of whole blocks, in the same way.  Of a named tier: of a whole range, as @buf and then @tail, of any
 * alignment. */
struct mct_write {
	uint64_t off;		/* a multiple of MCT_BLOCK, like @len (named: like @len + @tail_len) */
	uint64_t len;
	const void *buf;	/* on a multiple of MCT_BLOCK, maybe from buffer_get; stays the caller's */
	void (*done)(struct mct_write *w);
	int status;
	uint64_t priv[12];	/* the tier's */
	/* only of a named tier: */
	const void *tail;
	uint64_t tail_len;
	uint64_t generation;	/* the object's */
	uint64_t order;		/* two writes overlap: the one with the larger order is later */
	uint64_t deadline;	/* -MC_ETIMEDOUT if it is not begun until then */
};

/* Does a range that is in use begin at these offsets (ascending)?  @ret: an answer for each.  No offsets: may the
 * caller sweep at all?  Negative: there is no answer. */
typedef int (*mct_used_fn)(void *arg, const uint64_t *off, size_t n, bool *ret);

/* Constant while the medium is open. */
struct mct_memory {
	void *base;
	uint64_t len;		/* length of the mapping: the limit of grow, not the size */
	int fd;			/* file that @base is a shared mapping of; stays the medium's */
	uint64_t fd_offset;	/* offset of @base in that file */
};

struct mct_status {
	uint64_t size;		/* usable bytes */
	uint64_t limit;		/* size that grow cannot exceed */
	uint64_t ready;		/* bytes, from offset 0 on, for which pages are allocated */
	const char *kind;	/* variant in use (static) */
	bool paused;		/* the device does not work now: all transfers fail at once */
	const char *path;	/* absolute, of a file that other machines may have too, NULL: none; the medium's */
};

struct mct_tier_ops;

/* The first member of each tier's own structure. */
struct mct_medium {
	const struct mct_tier_ops *ops;
};

struct mct_tier_ops {
	const char *name;
	bool named;
	/* Allocate storage, or take the storage that @conf names.  -EINVAL: a setting that this tier does not
	 * accept.  -ENOMEM: @size is more than is available; the detail says how much is.  May block. */
	int (*open)(const struct mct_conf *conf, struct mct_medium **ret);
	/* The addressable bytes of the medium.  Any thread. */
	int (*memory)(const struct mct_medium *m, struct mct_memory *ret);
	/* Any thread, also while another one grows the medium.  Does not block. */
	void (*status)(const struct mct_medium *m, struct mct_status *ret);
	/* Enlarge to @size bytes, rounded up; base and content stay.  -EINVAL: smaller than now, or above the
	 * limit.  -ENOMEM.  One thread at a time. */
	int (*grow)(struct mct_medium *m, uint64_t size);
	/* Bytes that outlive the process: the owner's identity words, stored durably; all 0 in a new medium. */
	int (*identity)(struct mct_medium *m, uint64_t ret[MCT_IDENTITY]);
	int (*set_identity)(struct mct_medium *m, const uint64_t words[MCT_IDENTITY]);
	/* Get the keys of an encrypted medium.  Until then, reads and writes of it fail with -MC_EUNAVAILABLE.  Later:
	 * wrap its key again after a rotation of the secret.  Blocks.  0 also if it is not encrypted.  @keys NULL:
	 * -EAGAIN if a call with @keys is needed.  -EBADMSG, -EKEYREJECTED, -ENOKEY (tiers/wrap.h) with a detail: the
	 * bytes cannot be read; a change of the secret among the identity words makes it an empty medium.  Or the error
	 * of @keys, or of a write. */
	int (*unlock)(struct mct_medium *m, mct_keys_fn keys, void *arg);
	/* Is this process still the only writer?  -ESTALE: another one has taken the medium over; do not write any
	 * more.  -EIO, ...: not known.  Blocks. */
	int (*hold)(struct mct_medium *m);
	/* Another process may take the medium: end its lock, and write there no more, as after a hold that failed.
	 * @foreign: the keys of conf's tenant do not fit, so no process of that tenant opens the file again.  Blocks.
	 * -MC_ENOTSUP: it is not one of several files of a directory. */
	int (*leave)(struct mct_medium *m, bool foreign);
	/* Equal reads that run at the same time are one read of the device.  Any thread. */
	void (*read_start)(struct mct_medium *m, struct mct_read *r);
	/* The caller needs r->at no more.  Any thread; does not block. */
	void (*read_end)(struct mct_medium *m, struct mct_read *r);
	/* A buffer of MCT_PIECE_MAX bytes for writing; waits for one until @deadline.  -MC_ETIMEDOUT. */
	int (*buffer_get)(struct mct_medium *m, uint64_t deadline, void **ret);
	void (*buffer_put)(struct mct_medium *m, void *buf);
	void (*write_start)(struct mct_medium *m, struct mct_write *w);
	/* No record of an object (tiers/ssd/record.h) is between @off and the returned offset; the size: there is none
	 * up to the end.  *ret_end: as far as the blocks are to be read; behind it, ask again.  Any thread. */
	uint64_t (*data_next)(const struct mct_medium *m, uint64_t off, uint64_t *ret_end);
	/* Read or write block @nth of the owner's notes, of MCT_BLOCK bytes at a multiple of that; all 0 in a new
	 * medium.  Blocks; two threads need not see one block whole.  -MC_ENOTSUP: it keeps none, because sweep deletes
	 * the ranges of removed objects. */
	int (*note)(struct mct_medium *m, unsigned nth, void *buf, bool write);
	/* Delete ranges that are not in use: those at these @n offsets (any order), or (@off NULL) all of the medium,
	 * and the parts of writes that were given up.  Calls @used, maybe several times, and deletes nothing without
	 * its answer.  Blocks; one thread at a time.  A negative result: some ranges may be left.  -MC_ENOTSUP: the
	 * tier is not named. */
	int (*sweep)(struct mct_medium *m, const uint64_t *off, size_t n, mct_used_fn used, void *arg);
	/* A sweep that runs, and each later one, ends soon with -ECANCELED.  Does not block; any thread. */
	void (*sweep_stop)(struct mct_medium *m);
	/* Free the medium.  No other thread may still use it or its memory.  Does not wait for pages that are
	 * still to be allocated. */
	void (*close)(struct mct_medium *m);
};

/* All tiers but that of objects/, which needs libmckeyed.la; ends with NULL. */
extern const struct mct_tier_ops *const mct_tiers[];

/* Open a medium of the tier called @tier.  -EINVAL: there is none of that name. */
int mct_medium_open(const char *tier, const struct mct_conf *conf, struct mct_medium **ret);
/* NULL is fine. */
void mct_medium_close(struct mct_medium *m);

/* Slots of a tier of memory. */
int mct_no_identity(struct mct_medium *m, uint64_t ret[MCT_IDENTITY]);
int mct_no_set_identity(struct mct_medium *m, const uint64_t words[MCT_IDENTITY]);
int mct_no_hold(struct mct_medium *m);
int mct_no_leave(struct mct_medium *m, bool foreign);
int mct_no_unlock(struct mct_medium *m, mct_keys_fn keys, void *arg);
void mct_no_read_start(struct mct_medium *m, struct mct_read *r);
void mct_no_read_end(struct mct_medium *m, struct mct_read *r);
int mct_no_buffer_get(struct mct_medium *m, uint64_t deadline, void **ret);
void mct_no_buffer_put(struct mct_medium *m, void *buf);
void mct_no_write_start(struct mct_medium *m, struct mct_write *w);
int mct_no_note(struct mct_medium *m, unsigned nth, void *buf, bool write);
uint64_t mct_no_data_next(const struct mct_medium *m, uint64_t off, uint64_t *ret_end);
int mct_no_sweep(struct mct_medium *m, const uint64_t *off, size_t n, mct_used_fn used, void *arg);
void mct_no_sweep_stop(struct mct_medium *m);

#endif
