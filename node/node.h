/* SPDX-License-Identifier: Apache-2.0
 * node.h - the node daemon's service for local programs: the socket and rings of mooncake/mcfs_ring.h, the
 * objects that they map, and the same by function call for the mount's ioctls.
 *
 * What a program holds (pins, buffers, rings) belongs to its connection, or to the mcn_pins that a caller
 * made for it, and ends with that.  Functions may be called from any thread. */
#ifndef MCN_NODE_H
#define MCN_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <mooncake/mcfs_ring.h>
#include <mooncake/mcs.h>

struct mcn;

struct mcn_conf {
	mcs_t *store;		/* has to stay until mcn_stop() */
	const char *master;	/* what clients are told: where the store is */
	const char *tenant;	/* and whose keys it is about, as in struct mcs_conf */
	int port;		/* names the socket in the abstract name space; 0: none there */
	const char *path;	/* a socket file as well; NULL or "": none */
	const char *uids;	/* users that may connect besides the own one and root: "1000,1001" */
	uint64_t hot_size;	/* memory for objects of other nodes that are mapped here */
	unsigned hot_ms;	/* how old what is known of a key may be for MCS_MAP_HOT */
	unsigned spin_us;	/* how long a ring's thread polls before it sleeps, at the most */
};

/* -EADDRINUSE when another daemon has the port's name or the path. */
int mcn_start(const struct mcn_conf *conf, struct mcn **ret);
/* Ends all connections and waits until no operation of theirs is under way.  NULL is fine. */
void mcn_stop(struct mcn *n);

const char *mcn_address(const struct mcn *n);	/* "unix:..." of the first socket, "": none */

struct mcn_counts {
	uint64_t connections, rings, buffers, pins;
};
void mcn_count(struct mcn *n, struct mcn_counts *ret);

/* ---- segments: memory that can be mapped ---------------------------------------------------------- */

#define MCN_SEGMENTS 2		/* 0: the node's own; 1: copies of other nodes' objects */
/* A descriptor for reading (stays the node's) and the bytes to map; -ENOENT: there is none. */
int mcn_segment(struct mcn *n, unsigned id, uint64_t *ret_size);

/* ---- pins ----------------------------------------------------------------------------------------- */

struct mcn_pins;		/* what one owner has pinned */
struct mcn_extent {
	uint64_t pin;
	uint64_t offset, size, generation, mtime_ms;
	uint32_t crc32c;
	uint8_t segment, kind, flags, replicas;	/* as of struct mcfs_cqe */
};

int mcn_pins_new(struct mcn *n, struct mcn_pins **ret);
void mcn_pins_free(struct mcn_pins *p);		/* and everything in it; NULL is fine */
/* Its owner has gone: everything in it is let go of, and nothing is pinned any more (-MCS_ERPC). */
void mcn_pins_end(struct mcn_pins *p);
/* Pin the current version; @hot: or the one that was current conf.hot_ms ago.  An object of another node
 * is fetched first: -ENOBUFS when there is no room for it. */
int mcn_pin(struct mcn_pins *p, struct mcs_key key, bool hot, int64_t timeout_ms,
	    struct mcn_extent *ret);
int mcn_unpin(struct mcn_pins *p, uint64_t pin);	/* -EINVAL: not one of these */
/* As of mcs_object_held(). */
int mcn_held(struct mcn_pins *p, uint64_t pin);
/* Bring the object to this node without holding it. */
int mcn_prefetch(struct mcn *n, struct mcs_key key, int64_t timeout_ms);

/* ---- buffers that clients handed over ------------------------------------------------------------- */

struct mcn_io {
	uint64_t token;		/* of the connection */
	uid_t uid;		/* who asks: the connection's user, or root */
	uint32_t buffer;
	uint64_t at, len;
};
/* Memory of a buffer, kept until mcn_io_end().  -ENOENT, -EACCES, -ERANGE. */
int mcn_io_begin(struct mcn *n, const struct mcn_io *io, void **ret_hold, struct iovec *ret);
void mcn_io_end(struct mcn *n, void *hold);

struct mcn_buffer_info {
	uint64_t token, size;
	uint32_t id;
	uid_t uid;
	pid_t pid;
};
/* Those of @uid, or all for root: how many of them, @max at the most. */
unsigned mcn_buffers(struct mcn *n, uid_t uid, struct mcn_buffer_info *ret, unsigned max);

#endif
