/* SPDX-License-Identifier: Apache-2.0
 * node.h - going through the node's daemon (mooncake/mcfs_ring.h) instead of the own engine.
 *
 * A connection is made when it is needed and made anew when the daemon was restarted; buffers are handed
 * over again then.  A call that finds the connection gone is repeated once over a new one, when that can
 * do no harm; without a daemon it fails with -MC_ERPC or, when the daemon was only found ("auto"), goes on
 * without one (node_alone.c). */
#ifndef MCS_DAEMON_H
#define MCS_DAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/space.h"
#include <mooncake/mcfs_ring.h>
#include <mooncake/mcs.h>

struct mcs_daemon;
struct mcs_daemon_conn;

#define MCS_DAEMON_MEMS 200		/* pieces of memory shared with the daemon */
#define MCS_DAEMON_RINGS 32
#define MCS_DAEMON_SEGMENTS 8

/* Find out what conf->daemon means.  1 and the connection: through the daemon; 0: without; negative: one is
 * asked for and cannot be had. */
int mcs_daemon_open(const struct mcs_conf *conf, struct mcs_daemon **ret);
void mcs_daemon_close(struct mcs_daemon *n);	/* NULL is fine */
/* What the daemon said; constant while it is open. */
const char *mcs_daemon_master(const struct mcs_daemon *n);
const char *mcs_daemon_hostname(const struct mcs_daemon *n);
const char *mcs_daemon_tenant(const struct mcs_daemon *n);	/* "": the default one */
const char *mcs_daemon_address(const struct mcs_daemon *n);
bool mcs_daemon_up(struct mcs_daemon *n);
bool mcs_daemon_found(const struct mcs_daemon *n);	/* nobody has named it ("auto") */

/* ---- node_alone.c: when a daemon that was found dies ----------------------------------------------- */

struct mcs;
/* The handle to go on with, of an engine and a connection of its own, which lives as long as @s; NULL: it is
 * the daemon's work.  The first is asked before a call, the second after one through the daemon has ended
 * with @err; a call without its result is repeated then. */
struct mcs *mcs_daemon_bypass(struct mcs *s);
struct mcs *mcs_daemon_alone(struct mcs *s, int err);
/* The result of such a call: @by_daemon, or @again, the same call with the handle `alone`. */
#define MCS_BY_NODE(s, by_daemon, again) __extension__ ({ \
	struct mcs *alone = mcs_daemon_bypass(s); \
	int result_ = alone ? 0 : (by_daemon); \
	\
	if (!alone) \
		alone = mcs_daemon_alone(s, result_); \
	alone ? (again) : result_; \
})

/* ---- node_conn.c: the connection ------------------------------------------------------------------ */

/* The present one with a reference, a new one when there is none: 0, -MC_ERPC: none can be had, -MC_ETIMEDOUT: not
 * within a few seconds after @deadline.  One thread makes it, and its failure is that of all who wait for it. */
int mcs_daemon_conn_get(struct mcs_daemon *n, uint64_t deadline, struct mcs_daemon_conn **ret);
void mcs_daemon_conn_put(struct mcs_daemon_conn *c);	/* NULL is fine */
struct mcs_daemon_conn *mcs_daemon_conn_ref(struct mcs_daemon_conn *c);
/* It does not answer any more: nothing more is asked over it. */
void mcs_daemon_conn_lost(struct mcs_daemon_conn *c);
bool mcs_daemon_conn_is_lost(const struct mcs_daemon_conn *c);
/* Has the daemon closed it, or died?  It uses no memory of ours any more then. */
bool mcs_daemon_conn_over(const struct mcs_daemon_conn *c);
bool mcs_daemon_conn_gone(struct mcs_daemon_conn *c);	/* lost, or over */
/* One request at the socket and its answer; *ret_fd (NULL: none is wanted) becomes the caller's.  -MC_ETIMEDOUT: it
 * was not its turn by @until.  The answer is waited for a moment in any case: without it the connection is lost, for
 * all. */
int mcs_daemon_conn_ask(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd);
/* @size bytes from @offset of a segment; maps it when it is the first time.  NULL with *ret_err. */
const void *mcs_daemon_conn_at(struct mcs_daemon_conn *c, unsigned segment, uint64_t offset,
			     uint64_t size, uint64_t deadline, int *ret_err);

/* ---- node_ring.c: requests ------------------------------------------------------------------------ */

struct mcs_daemon_req {
	uint8_t op, flags;
	struct mcs_key key;
	const struct mcfs_ring_range *range;
	unsigned nranges;
	uint64_t len, offset, pin;
	struct mcs_key group;		/* of a put; empty: the options' */
	uint32_t put;			/* node_ring.c's own */
	struct mcfs_cqe c;		/* the answer; c.result is -MC_ERPC until there is one */
};
/* Have @n requests carried out; @put: the options of all that are puts, NULL: defaults.  0, or -MC_ERPC when
 * the connection was lost before all had answers, -MC_ETIMEDOUT: then, and only then, the daemon may still use
 * the memory that they name (it does not if the connection is not lost: they were never given to it). */
int mcs_daemon_run(struct mcs_daemon_conn *c, struct mcs_daemon_req *reqs, unsigned n,
		 const struct mcs_put_opts *put, uint64_t deadline);
struct mcs_daemon_ring;
int mcs_daemon_ring_new(struct mcs_daemon_conn *c, uint64_t until, struct mcs_daemon_ring **ret);
void mcs_daemon_ring_free(struct mcs_daemon_ring *r);

/* ---- node_mem.c: memory that the daemon sees ------------------------------------------------------- */

/* Which buffer @len bytes at @p lie in, as the connection knows it; false: in none. */
bool mcs_daemon_mem_find(struct mcs_daemon_conn *c, const void *p, size_t len,
		       struct mcfs_ring_range *ret);
int mcs_daemon_register(struct mcs_daemon *n, void *buf, size_t len, int fd, uint64_t fd_offset);
/* 1: it was such a buffer and is none any more; 0: it was none. */
int mcs_daemon_unregister(struct mcs_daemon *n, void *buf);
/* Of conf.daemon_buffer: memory for @len bytes for a moment; a new piece when it is larger than all that.
 * @last: the caller has none that it could give back.  Else -ENOBUFS: it is used up; try again with less. */
struct mcs_daemon_bounce {
	unsigned char *p;
	struct mcfs_ring_range range;
	uint64_t at, len;
	void *own;			/* its own piece */
};
int mcs_daemon_bounce_take(struct mcs_daemon_conn *c, uint64_t len, bool last,
			 struct mcs_daemon_bounce *ret);
/* After mcs_daemon_run() with the result @err: with -MC_ETIMEDOUT it is not used again before the daemon has ended
 * the connection. */
void mcs_daemon_bounce_give(struct mcs_daemon_conn *c, struct mcs_daemon_bounce *b, int err);
void *mcs_daemon_pool_alloc(struct mcs_daemon *n, size_t len);
void mcs_daemon_pool_free(struct mcs_daemon *n, void *p);

/* ---- node_data.c, node_names.c, node_map.c: the calls of mcs.h ------------------------------------- */

struct mcs;
int mcs_daemon_put_batch(struct mcs *s, struct mcs_put_item *items, unsigned n,
		       const struct mcs_put_opts *opts, uint64_t deadline);
int mcs_daemon_get_batch(struct mcs *s, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
		       void *arg, uint64_t deadline);
int mcs_daemon_stat_batch(struct mcs *s, const struct mcs_key *keys, unsigned n,
			struct mcs_info *infos, int *results, uint64_t deadline);
int mcs_daemon_exist(struct mcs *s, const struct mcs_key *keys, unsigned n, uint8_t *present,
		   uint64_t deadline);
int mcs_daemon_remove_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
			  int *results, uint64_t deadline);
int mcs_daemon_map_batch(struct mcs *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		       struct mcs_map *ret, int *results, uint64_t deadline);
void mcs_daemon_unmap(struct mcs_map *map);
int mcs_daemon_map_held(const struct mcs_map *map);
struct mcs_info mcs_daemon_map_info(const struct mcs_map *map);
int mcs_daemon_prefetch(struct mcs *s, struct mcs_key key, uint64_t deadline);

/* ---- node_object.c: open objects, which are maps -------------------------------------------------- */

struct mcs_object;
int mcs_daemon_object_open(struct mcs *s, struct mcs_key key, struct mcs_object **ret,
			 uint64_t deadline);
const struct mcs_info *mcs_daemon_object_info(const struct mcs_object *o);
int64_t mcs_daemon_object_read(struct mcs_object *o, uint64_t offset, const struct iovec *iov,
			     int iovcnt);
const void *mcs_daemon_object_data(const struct mcs_object *o);
int mcs_daemon_object_held(const struct mcs_object *o);
int mcs_daemon_object_verify(struct mcs_object *o);
void mcs_daemon_object_close(struct mcs_object *o);

#endif
