/* SPDX-License-Identifier: Apache-2.0
 * io.h - reads and writes of files that bypass the page cache, many at a time.
 *
 * One const table per way: USRBIO for a file on 3FS (usrbio.c), io_uring (uring.c), and threads that call pread(2) and
 * pwrite(2) where the kernel refuses it (threads.c).  Offsets, lengths and addresses are multiples of MCT_IO_BLOCK. */
#ifndef MCT_IO_H
#define MCT_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"

#define MCT_IO_BLOCK 4096u

struct mct_io;

/* One transfer.  It belongs to the caller before mct_io_submit() and from @done on, which runs on a thread of the I/O
 * and must not block; it may submit other transfers, this one included. */
struct mct_io_op {
	int fd;
	bool write;
	uint32_t len;
	uint64_t off;
	void *buf;
	void (*done)(struct mct_io_op *op);
	/* filled in */
	int status;		/* 0: all @len bytes; -EIO also for a transfer that ended early */
	uint32_t moved;		/* used by the I/O */
	struct mc_list node;
};

struct mct_io_conf {
	unsigned depth;		/* transfers at one time, 1 to 1024 */
	bool threads;		/* use threads, whatever the file and the kernel offer */
	int fd;			/* the file of all transfers, open until mct_io_close() */
	const char *path;	/* its path */
	size_t pool_len;	/* bytes of mct_io_pool(), a multiple of MCT_IO_BLOCK */
};

/* Falls back to io_uring and then to threads, with a line in the log. */
int mct_io_open(const struct mct_io_conf *conf, struct mct_io **ret);
/* Waits for the transfers that were submitted.  NULL is fine; not from done. */
void mct_io_close(struct mct_io *io);
/* "usrbio", "uring" or "threads" */
const char *mct_io_kind(const struct mct_io *io);
/* Memory for the buffers of transfers, zeros at first, until mct_io_close().  Transfers from and to other memory work
 * too, but USRBIO copies their bytes. */
void *mct_io_pool(const struct mct_io *io);
/* Any thread.  Does not block. */
void mct_io_submit(struct mct_io *io, struct mct_io_op *op);

/* Open @name in directory @dirfd, with O_DIRECT where the filesystem has it: *ret_direct.  @flags: O_RDWR or O_RDONLY,
 * and others. */
int mct_io_file(int dirfd, const char *name, int flags, bool *ret_direct);
/* Are these bytes inside the file?  Then they are zeros if a read ends before them: 3FS does not fill a hole at the end
 * of a read.  False for a device. */
bool mct_io_is_hole(int fd, uint64_t off, uint64_t len);

/* ---- the ways ---------------------------------------------------------------------------------- */

struct mct_io_ops {
	const char *name;
	/* Also allocates io->pool.  1: this way is not for this file. */
	int (*start)(struct mct_io *io, const struct mct_io_conf *conf);
	/* With the lock: an op is on the queue. */
	void (*kick_locked)(struct mct_io *io);
	/* io->stopping is set: return when the queue is empty and no transfer runs; free the part of this way and the
	 * pool. */
	void (*stop)(struct mct_io *io);
};
extern const struct mct_io_ops mct_io_usrbio, mct_io_uring, mct_io_threads;

#endif
