/* SPDX-License-Identifier: Apache-2.0
 * daemon_i.h - the structures and functions that the files of client/daemon share. */
#ifndef MCS_DAEMON_I_H
#define MCS_DAEMON_I_H

#include "client/buffer.h"
#include "client/daemon/daemon.h"
#include "client/store_i.h"
#include "common/space.h"
#include "common/sys/lock.h"

#define MCS_DAEMON_MEMS 200		/* buffers shared with the daemon */
#define MCS_DAEMON_RINGS 32
#define MCS_DAEMON_SEGMENTS 8

struct mcs_daemon_mem {
	unsigned char *base;		/* NULL: the slot is free */
	size_t len;
	int fd;
	uint64_t fd_offset;
	bool own;			/* mapped by this file, not by the program */
	uint64_t serial;		/* unique id of this buffer; slots are reused, serials are not; never 0 */
};

/* A range of the bounce buffer that the daemon of a lost connection may still use. */
struct mcs_daemon_left {
	struct mcs_daemon_left *next;
	struct mcs_daemon_conn *conn;
	uint64_t at, len;
};

struct mcs_daemon {
	struct mcs_backend base;
	struct mcs_buffers buffers;	/* registered memory that the daemon does not see; its bytes are copied */

	/* constant after open */
	char addr[160];
	char master[192], hostname[160], tenant[192]; /* values in the daemon's greeting */
	bool found;			/* found by the client: trusted only as root or this user */
	unsigned spin_us;
	uint64_t bounce_size, pool_size;
	unsigned fork_depth;

	struct mc_mutex lock;
	struct mc_cond changed;		/* an attempt to connect has ended */
	/* with the lock held */
	struct mcs_daemon_conn *conn;	/* NULL: not connected */
	bool connecting;		/* one thread connects */
	bool attempt_late;		/* the last attempt ran out of time */
	unsigned attempts;
	int attempt_err;
	char attempt_why[160];
	uint64_t serial;
	struct mcs_daemon_mem mem[MCS_DAEMON_MEMS]; /* 0: bounce buffer; 1: pool; others: the program's */
	struct mc_space bounce, pool;
	struct mcs_daemon_left *left;	/* still allocated in `bounce` */
	struct mc_extent *pieces;	/* allocated in `pool` */
	unsigned npieces, pieces_cap;
};

struct mcs_daemon_conn {
	/* constant after it is made */
	struct mcs_daemon *d;
	int sock;
	uint64_t token;
	bool one_clock;			/* the daemon uses the same clock, so it understands absolute deadlines */
	/* atomic */
	unsigned refs;
	bool lost;
	unsigned nrings;
	/* guarded by the daemon's lock; changed with `tell_lock` held too */
	uint32_t id[MCS_DAEMON_MEMS];	/* the daemon's id of each buffer, */
	uint64_t told[MCS_DAEMON_MEMS];	/* and the serial that it belongs to; 0: not handed over */

	struct mc_mutex tell_lock;	/* one thread hands over or takes back a buffer */
	struct mc_mutex rings_lock;	/* one thread makes a ring */
	struct mc_mutex ask_lock;	/* one request at the socket; also when rings are made and segments mapped */
	struct mcs_daemon_ring *ring[MCS_DAEMON_RINGS]; /* atomic pointers, set once */
	struct {
		const unsigned char *base; /* atomic, set once */
		uint64_t size;
	} segment[MCS_DAEMON_SEGMENTS];
};

static inline struct mcs_daemon *mcs_daemon_of(struct mcs_backend *b)
{
	return mc_container_of(b, struct mcs_daemon, base);
}

/* ---- daemon_conn.c ---- */

/* Until when a call with @deadline waits for its turn to ask the daemon: as long as it would
 * wait for answers after the deadline, and never longer than for a request without a deadline. */
uint64_t mcs_daemon_until(uint64_t deadline);
struct mcs_daemon_conn *mcs_daemon_conn_ref(struct mcs_daemon_conn *c);
/* Mark the connection lost: no more requests are sent over it. */
void mcs_daemon_conn_lost(struct mcs_daemon_conn *c);
bool mcs_daemon_conn_is_lost(const struct mcs_daemon_conn *c);
/* Has the daemon closed the connection, or died?  Then it uses none of our memory any more. */
bool mcs_daemon_conn_over(const struct mcs_daemon_conn *c);
bool mcs_daemon_conn_gone(struct mcs_daemon_conn *c);	/* lost, or over */
/* Send one request over the socket and receive its answer; *ret_fd (NULL: not wanted) becomes
 * the caller's. -MC_ETIMEDOUT: other requests kept the socket busy until @until.  The answer is
 * awaited for a minimum time in any case; without it the connection is lost for all threads. */
int mcs_daemon_conn_ask(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd);
/* The address of @size bytes at @offset of a segment, which is mapped the first time.  NULL with
 * *ret_err. */
const void *mcs_daemon_conn_at(struct mcs_daemon_conn *c, unsigned segment, uint64_t offset,
			       uint64_t size, uint64_t deadline, int *ret_err);

/* ---- daemon_ring.c ---- */

struct mcs_daemon_ring;
void mcs_daemon_ring_free(struct mcs_daemon_ring *r);

/* ---- daemon_mem.c: memory that the daemon sees ---- */

/* Make the bounce buffer and the pool. */
int mcs_daemon_mem_open(struct mcs_daemon *d);
void mcs_daemon_mem_close(struct mcs_daemon *d);
/* Hand over all memory to the daemon on a new connection, then make it the current connection: 0 or negative. */
int mcs_daemon_mem_publish(struct mcs_daemon_conn *c, uint64_t until);
/* The range of a buffer, by the connection's ids, that has the @len bytes at @p; false: none has them all. */
bool mcs_daemon_mem_find(struct mcs_daemon_conn *c, const void *p, size_t len, struct mcfs_ring_range *ret);

/* Allocate the pages of the ranges, which the daemon does not do: the kernel charges them to this process. */
void mcs_daemon_mem_touch(struct mcs_daemon_conn *c, const struct mcfs_ring_range *range, unsigned n);

/* Memory for the value of one operation: from the bounce buffer or, if it does not fit there, mapped for it. */
struct mcs_daemon_bounce {
	unsigned char *p;
	struct mcfs_ring_range range;
	uint64_t at, len;
	void *own;			/* mapped for this operation; NULL: of the bounce buffer */
};
/* @last: the caller holds no other range that it could release.  Else -ENOBUFS: the buffer is
 * used up; release some and try again. */
int mcs_daemon_bounce_take(struct mcs_daemon_conn *c, uint64_t len, bool last, struct mcs_daemon_bounce *ret);
/* After mcs_daemon_run() returned @err.  After -MC_ETIMEDOUT the range is not reused until the
 * daemon has closed the connection. */
void mcs_daemon_bounce_give(struct mcs_daemon_conn *c, struct mcs_daemon_bounce *b, int err);

/* ---- slots of the table (client/backend.h), by file ---- */

/* daemon_mem.c */
int mcs_daemon_register_memfd(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset);
int mcs_daemon_unregister_buffer(struct mcs_backend *b, void *buf);
void *mcs_daemon_pool_alloc(struct mcs_backend *b, size_t len);
void mcs_daemon_pool_free(struct mcs_backend *b, void *p);

/* daemon_data.c */
int mcs_daemon_put_batch(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline);
int mcs_daemon_get_batch(struct mcs_backend *b, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			 void *arg, uint64_t deadline);

/* daemon_names.c */
int mcs_daemon_find(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_found **ret,
		    uint64_t deadline);
int mcs_daemon_get_found(struct mcs_found *found, const unsigned *which, struct mcs_get_item *items, unsigned n,
			 uint64_t deadline);
int mcs_daemon_stat(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline);
int mcs_daemon_stat_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			  int *results, uint64_t deadline);
int mcs_daemon_exist(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t *present,
		     uint64_t deadline);
int mcs_daemon_remove_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			    int *results, uint64_t deadline);
int mcs_daemon_prefetch(struct mcs_backend *b, struct mcs_key key, uint64_t deadline);

/* daemon_object.c */
int mcs_daemon_object_open(struct mcs_backend *b, struct mcs_key key, struct mcs_object **ret, uint64_t deadline);
int mcs_daemon_stat_open(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			 int *results, struct mcs_object **ret, uint64_t deadline);
int64_t mcs_daemon_object_read(struct mcs_object *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			       uint64_t deadline);
int mcs_daemon_object_read_start(struct mcs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline,
				 mcs_read_done_fn done, void *arg);
int mcs_daemon_object_map(struct mcs_object *o, const void **ret_data, uint64_t deadline);
int mcs_daemon_object_held(struct mcs_object *o);
int mcs_daemon_object_offset(struct mcs_object *o, uint64_t *ret_offset);
int mcs_daemon_object_verify(struct mcs_object *o);
void mcs_daemon_object_close(struct mcs_object *o);
int mcs_daemon_map_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			 struct mcs_map *ret, int *results, uint64_t deadline);

#endif
