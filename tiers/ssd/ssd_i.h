/* SPDX-License-Identifier: Apache-2.0
 * ssd_i.h - shared by the files of the tier "ssd". */
#ifndef MCT_SSD_I_H
#define MCT_SSD_I_H

#include "common/sys/lock.h"
#include "common/sys/thread.h"
#include "tiers/ssd/io.h"
#include "tiers/ssd/ssd.h"

#define MCT_SSD_DATA_AT (1u << 20)
_Static_assert((1 + MCT_NOTE_BLOCKS) * MCT_BLOCK <= MCT_SSD_DATA_AT, "the notes are between header and data");
/* A read of any bytes needs whole blocks. */
#define MCT_SSD_BUF (MCT_PIECE_MAX + 2 * MCT_BLOCK)
#define MCT_SSD_BUCKETS 256u
#define MCT_SSD_BOUNCES 16u	/* writes of an encrypted medium at one time, of MCT_PIECE_MAX bytes */
#define MCT_SSD_SEALERS 2u	/* threads that encrypt and decrypt */

/* A buffer takes one piece of a request; of a read, also its blocks' other bytes. */
struct mct_ssd_buffer {
	struct mct_ssd *d;
	char *mem;
	struct mct_io_op op;
	/* guarded by the lock */
	struct mc_list node;		/* free, or a bucket of reads */
	struct mc_list readers;		/* struct mct_read that wait for the transfer */
	unsigned refs;			/* readers, those that have the bytes included; 0: free, or given up */
	bool loaded;
};

struct mct_ssd_header;
struct mct_ssd_key;
struct mct_ssd_master;

/* A write, in its priv[]. */
struct __attribute__((may_alias)) mct_ssd_write {
	struct mct_io_op op;
	struct mct_ssd *d;
	void *bounce;			/* its buffer, if the medium is encrypted */
};
_Static_assert(sizeof(struct mct_ssd_write) <= sizeof(((struct mct_write *)0)->priv), "priv[] is too small");

/* The form of the bytes behind header and notes (seal.c). */
struct mct_ssd_form {
	bool readable;			/* other processes can read the file */
	unsigned bounces, threads;	/* buffers of MCT_PIECE_MAX bytes, and threads, that it needs */
	/* The buffer was read: call mct_ssd_read_over(), maybe on another thread. */
	void (*loaded)(struct mct_ssd *d, struct mct_ssd_buffer *b);
	/* Submit o->op, which is filled in; or end it with an error. */
	void (*store)(struct mct_ssd *d, struct mct_ssd_write *o);
	/* It has ended. */
	void (*stored)(struct mct_ssd *d, struct mct_ssd_write *o);
	/* As mct_tier_ops.unlock. */
	int (*unlock)(struct mct_ssd *d, mct_keys_fn keys, void *arg);
	/* Write the header with these words.  header_lock held, except while the medium is opened. */
	int (*mark)(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY]);
};
extern const struct mct_ssd_form mct_ssd_plain, mct_ssd_sealed;

struct mct_ssd_seal {
	struct mct_ssd_master *master;	/* guarded by header_lock; NULL: plain */
	struct mct_wrap wrap;		/* the same; as in the header */
	uint64_t tenant, refused;	/* the same; as in the header */
	bool fresh;			/* the same; it has no bytes to lose */
	uint32_t said;			/* the same; the log has that the key is not wrapped with this secret */
	/* guarded by lock */
	struct mct_ssd_key *key;	/* NULL: it is locked */
	void *free[MCT_SSD_BOUNCES];
	unsigned n_free;
	struct mc_list waiting;		/* struct mct_ssd_write.op.node of those that a thread encrypts */
	struct mc_list loads;		/* mct_ssd_buffer.op.node of those that a thread decrypts */
	bool stopping;
	struct mc_cond work;
	/* constant after open */
	struct mc_thread thread[MCT_SSD_SEALERS];
	unsigned threads;
	uint64_t own;			/* mct_conf.tenant */
};

/* Does the device work?  Guarded by mct_ssd.lock, unless it says otherwise. */
struct mct_health {
	/* constant after start */
	struct mc_thread thread;
	bool runs;
	/* owned by the thread */
	char *buf;			/* a block for its reads */
	struct mct_io_op op;		/* its read */
	uint64_t seen;			/* @ended at its last look */
	uint64_t paused_ns;
	int said;			/* why a medium at the path was refused, as it is in the log */

	struct mc_cond wake;		/* the thread has work, or its read has ended */
	struct mc_list doubtful;	/* mct_ssd_buffer.op.node of reads that failed */
	bool paused;			/* reads and writes fail at once */
	bool stopping;
	bool watched;			/* the thread looks whether transfers end */
	bool op_ended;
	int write_error;		/* error of a write that failed, 0: none */
	unsigned running;		/* transfers */
	uint64_t ended;			/* transfers */
	uint64_t moved_ns;		/* none of them has ended since */
	uint64_t good_off;		/* blocks that were read, 0: none; as mct_io_op.off */
};

struct mct_ssd {
	struct mct_medium medium;
	/* constant after open */
	char *path;		/* path of the file or device */
	int fd;
	bool direct;		/* the page cache is not used */
	bool device;		/* a block device */
	struct mct_io *io;
	char *mem;		/* memory of all buffers: mct_io_pool() */
	struct mct_ssd_buffer *buffer;
	unsigned nbuffers;
	bool reads_only;		/* another process owns the file */
	uint64_t holder;		/* shared: this process's number in the header; 0: not shared */
	/* atomic */
	uint64_t size;
	bool left;			/* mct_tier_ops.leave; set with header_lock held */
	struct mc_mutex header_lock;	/* held around each write of the header */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond freed;
	struct mc_cond held;	/* a read of shared.c has ended */
	struct mc_list free;
	struct mc_list bucket[MCT_SSD_BUCKETS];	/* buffers with a read, by offset */
	struct mc_list waiting;			/* struct mct_read without a buffer, oldest first */
	unsigned writing;			/* buffers that were given to writers */
	/* changed with header_lock too: identity in the header, or, while a write of it runs or if one has failed,
	 * maybe @tried */
	uint64_t words[MCT_IDENTITY], tried[MCT_IDENTITY];
	bool torn;
	const struct mct_ssd_form *form;	/* constant */
	struct mct_ssd_seal seal;
	struct mct_health health;
};

struct mct_ssd_header {
	uint64_t size;		/* 0: there is none, or it is damaged */
	uint64_t words[MCT_IDENTITY];
	uint64_t holder;
	bool none;		/* the file has no header */
	bool sealed;		/* the bytes are encrypted, */
	struct mct_wrap wrap;	/* with this key; all 0: it is damaged, or there was none yet */
	uint64_t tenant;	/* mct_conf.tenant of the owner that has wrapped it, 0: not known */
	uint64_t refused;	/* mct_conf.tenant of an owner whose keys did not fit, 0: none */
};

/* file.c: open, lock and size the file; sets path, fd, direct, size and words. */
int mct_ssd_file_open(struct mct_ssd *d, const struct mct_conf *conf);
/* Enlarge to @size bytes. */
int mct_ssd_file_grow(struct mct_ssd *d, uint64_t size);
/* Write the header.  @wrap NULL: the bytes are plain. */
int mct_ssd_file_mark(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY],
		      const struct mct_wrap *wrap);
/* 0: the block is the header of this medium.  -ENOMEDIUM: of none; -ESTALE: of another one; with a detail. */
int mct_ssd_file_same(struct mct_ssd *d, const void *block);
/* Does the file have all bytes of the medium? */
bool mct_ssd_file_whole(const struct mct_ssd *d);
/* As mct_tier_ops.leave. */
int mct_ssd_file_leave(struct mct_ssd *d, bool foreign);
/* Open and lock the path once more: a descriptor, or negative with a detail. */
int mct_ssd_file_again(struct mct_ssd *d);

/* Parse the header of the open file, or read it too, however long that takes.  -MC_EVERSION, -EIO, ... */
int mct_ssd_file_parse(const struct mct_ssd *d, const void *block, struct mct_ssd_header *ret);
int mct_ssd_file_header(const struct mct_ssd *d, struct mct_ssd_header *ret);

/* shared.c: the parts of the above for files that several machines use.
 * open: lock the expected file of the directory, or any, or create one; sets path, fd, direct and holder.
 * read: open the file at conf->path for reading, if it has the expected identity; sets path, fd, direct, size, words.
 * hold: as mct_tier_ops.hold; waits for at most a few seconds.
 * name: is it the name of such a file? */
int mct_ssd_shared_open(struct mct_ssd *d, const struct mct_conf *conf);
int mct_ssd_shared_read(struct mct_ssd *d, const struct mct_conf *conf);
int mct_ssd_shared_hold(struct mct_ssd *d);
bool mct_ssd_shared_name(const char *name);

/* seal.c: choose the form, before the file is opened; begin with it, with the buffers that it needs at @mem. */
int mct_ssd_seal_open(struct mct_ssd *d, const struct mct_conf *conf);
int mct_ssd_seal_start(struct mct_ssd *d, char *mem);
/* End its threads, before the I/O is closed; free it. */
void mct_ssd_seal_stop(struct mct_ssd *d);
void mct_ssd_seal_close(struct mct_ssd *d);
/* The medium has this header.  With a detail: -EACCES: it has another form; -EPERM: it has bytes of another tenant. */
int mct_ssd_seal_found(struct mct_ssd *d, const struct mct_ssd_header *h);

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
/* The read into this buffer is over: answer its readers, and free it if it has none. */
void mct_ssd_read_over(struct mct_ssd *d, struct mct_ssd_buffer *b, int status);
/* End all reads that wait with -MC_EUNAVAILABLE; health.paused is set.  Reads that run have no reader afterwards. */
void mct_ssd_reads_give_up(struct mct_ssd *d);

/* health.c */
int mct_ssd_health_start(struct mct_ssd *d);
/* Answers reads in doubt; afterwards none may come. */
void mct_ssd_health_stop(struct mct_ssd *d);
/* Around each transfer; the lock is held. */
void mct_ssd_health_begin_locked(struct mct_ssd *d);
void mct_ssd_health_end_locked(struct mct_ssd *d);
/* The read into the buffer has failed: the thread answers it. */
void mct_ssd_health_doubt(struct mct_ssd *d, struct mct_ssd_buffer *b);
/* A write has failed. */
void mct_ssd_health_write_failed(struct mct_ssd *d, int status);
/* -MC_EUNAVAILABLE, with a detail. */
int mct_ssd_health_paused(const struct mct_ssd *d);
/* The same if the disk is paused, else 0. */
int mct_ssd_health_check(struct mct_ssd *d);
bool mct_ssd_health_is_paused(struct mct_ssd *d);

#endif
