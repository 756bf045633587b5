/* SPDX-License-Identifier: Apache-2.0
 * ssd_i.h - shared by the files of the tier "ssd". */
#ifndef MCT_SSD_I_H
#define MCT_SSD_I_H

#include "common/sys/lock.h"
#include "tiers/ssd/io.h"
#include "tiers/ssd/ssd.h"

#define MCT_SSD_DATA_AT (1u << 20)
_Static_assert((1 + MCT_NOTE_BLOCKS) * MCT_BLOCK <= MCT_SSD_DATA_AT, "the notes are between header and data");
/* A read of any bytes needs whole blocks. */
#define MCT_SSD_BUF (MCT_PIECE_MAX + 2 * MCT_BLOCK)
#define MCT_SSD_BUCKETS 256u

/* A buffer takes one piece of a request; of a read, also its blocks' other bytes. */
struct mct_ssd_buffer {
	struct mct_ssd *d;
	char *mem;
	struct mct_io_op op;
	/* guarded by the lock */
	struct mc_list node;		/* free, or a bucket of reads */
	struct mc_list readers;		/* struct mct_read that wait for the transfer */
	unsigned refs;			/* readers, those that have the bytes included */
	bool loaded;
};

struct mct_ssd {
	struct mct_medium medium;
	/* constant after open */
	char *path;		/* path of the file or device */
	int fd;
	bool direct;		/* the page cache is not used */
	struct mct_io *io;
	char *mem;		/* memory of all buffers: mct_io_pool() */
	struct mct_ssd_buffer *buffer;
	unsigned nbuffers;
	/* atomic */
	uint64_t size;
	uint64_t words[MCT_IDENTITY];	/* set by one thread at a time */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond freed;
	struct mc_list free;
	struct mc_list bucket[MCT_SSD_BUCKETS];	/* buffers with a read, by offset */
	struct mc_list waiting;			/* struct mct_read without a buffer, oldest first */
	unsigned writing;			/* buffers that were given to writers */
};

/* file.c: open, lock and size the file; sets path, fd, direct, size and words. */
int mct_ssd_file_open(struct mct_ssd *d, const struct mct_conf *conf);
/* Enlarge to @size bytes. */
int mct_ssd_file_grow(struct mct_ssd *d, uint64_t size);
/* Write the header. */
int mct_ssd_file_mark(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY]);

/* blank.c: do the first and the last MiB of @fd, which has @size bytes, have other bytes than 0?  0: no.  1: yes, and
 * @ret says what was found.  Changes nothing.  -EIO, ... */
int mct_ssd_content(int fd, uint64_t size, char *ret, size_t ret_len);

/* buffer.c */
/* Number of buffers for @bytes of them, 0: the default. */
unsigned mct_ssd_buffers_for(uint64_t bytes);
/* @mem: of @n * MCT_SSD_BUF bytes, used until the end of the I/O. */
int mct_ssd_buffers_open(struct mct_ssd *d, unsigned n, void *mem);
/* The I/O is closed. */
void mct_ssd_buffers_close(struct mct_ssd *d);
void mct_ssd_read_start(struct mct_medium *m, struct mct_read *r);
void mct_ssd_read_end(struct mct_medium *m, struct mct_read *r);
int mct_ssd_buffer_get(struct mct_medium *m, uint64_t deadline, void **ret);
void mct_ssd_buffer_put(struct mct_medium *m, void *buf);
void mct_ssd_write_start(struct mct_medium *m, struct mct_write *w);

#endif
