/* SPDX-License-Identifier: Apache-2.0
 * node.h - the node daemon's service for local programs: the socket and rings of mooncake/mcfs_ring.h, mapped
 * objects, and the same operations as functions for the mount's ioctls.
 *
 * Pins, buffers and rings of a program belong to its connection, or to the mcn_pins that a caller made for it,
 * and end with it.  Functions may be called from any thread. */
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
	const char *master;	/* address of the master; sent to clients in the answer to HELLO */
	const char *tenant;	/* tenant of the keys, as in struct mcs_conf; sent to clients too */
	int port;		/* names the socket in the abstract name space; 0: none there */
	const char *path;	/* additional socket file; NULL or "": none */
	const char *uids;	/* users that may connect, and their rights, as "1000,1001:red:reader"
				 * (common/security/uids.h) */
	uint64_t hot_size;	/* bytes for copies of other nodes' objects that are mapped here */
	unsigned hot_ms;	/* maximum age of a cached version for MCS_MAP_HOT */
	unsigned spin_us;	/* maximum time that a ring's thread polls before it sleeps */
};

/* -EADDRINUSE when another daemon has the port's name or the path. */
int mcn_start(const struct mcn_conf *conf, struct mcn **ret);
/* Closes all connections and waits for their running operations.  NULL is allowed. */
void mcn_stop(struct mcn *n);

const char *mcn_address(const struct mcn *n);	/* "unix:..." of the first socket, "": none */

struct mcn_counts {
	uint64_t connections, rings, buffers, pins;
};
void mcn_count(struct mcn *n, struct mcn_counts *ret);

/* ---- segments: memory that can be mapped ---------------------------------------------------------- */

#define MCN_SEGMENTS 2		/* 0: the node's own; 1: copies of other nodes' objects */
/* A read-only descriptor, which the node keeps, and the number of bytes to map; -ENOENT: no such segment. */
int mcn_segment(struct mcn *n, unsigned id, uint64_t *ret_size);

/* ---- pins ----------------------------------------------------------------------------------------- */

struct mcn_pins;		/* the pins of one client or caller */
struct mcn_extent {
	uint64_t pin;
	uint64_t offset, size, generation, mtime_ms;
	uint32_t crc32c;
	uint8_t segment, kind, flags, replicas;	/* as of struct mcfs_cqe */
};

/* @copied: the client gets no object of the node's own segment, but a copy of it. */
int mcn_pins_new(struct mcn *n, bool copied, struct mcn_pins **ret);
void mcn_pins_free(struct mcn_pins *p);		/* releases its pins; NULL is allowed */
/* Release all pins; later mcn_pin() calls fail with -MCS_ERPC.  Called when the client has disconnected. */
void mcn_pins_end(struct mcn_pins *p);
/* Pin the current version; with @hot a version that was current at most conf.hot_ms ago is enough.  An object
 * of another node is copied here first: -ENOBUFS when the segment of copies has no room. */
int mcn_pin(struct mcn_pins *p, struct mcs_key key, bool hot, int64_t timeout_ms, struct mcn_extent *ret);
int mcn_unpin(struct mcn_pins *p, uint64_t pin);	/* -EINVAL: unknown pin */
/* As mcs_object_held(). */
int mcn_held(struct mcn_pins *p, uint64_t pin);
/* Copy the object to this node without pinning it; @copied: as for mcn_pins_new(). */
int mcn_prefetch(struct mcn *n, struct mcs_key key, bool copied, int64_t timeout_ms);

/* ---- buffers that clients registered -------------------------------------------------------------- */

struct mcn_io {
	uint64_t token;		/* token of the connection */
	uid_t uid;		/* the calling user: must be the connection's user or root */
	uint32_t buffer;
	uint64_t at, len;
};
/* Memory of a buffer, kept until mcn_io_end().  -ENOENT, -EACCES, -ERANGE; -EFAULT: the client has not touched all of
 * its pages. */
int mcn_io_begin(struct mcn *n, const struct mcn_io *io, void **ret_hold, struct iovec *ret);
void mcn_io_end(struct mcn *n, void *hold);

struct mcn_buffer_info {
	uint64_t token, size;
	uint32_t id;
	uid_t uid;
	pid_t pid;
};
/* List the buffers of @uid, or all for root.  Returns their number, at most @max. */
unsigned mcn_buffers(struct mcn *n, uid_t uid, struct mcn_buffer_info *ret, unsigned max);

#endif
