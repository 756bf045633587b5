/* SPDX-License-Identifier: Apache-2.0
 * node_i.h - structures and functions shared by the files of node/. */
#ifndef MCN_NODE_I_H
#define MCN_NODE_I_H

#include "common/list.h"
#include "common/net/evloop.h"
#include "common/principal.h"
#include "common/sys/lock.h"
#include "node/mapped.h"
#include "node/node.h"

#define MCN_CONNS_MAX 1024u
#define MCN_RINGS_MAX 1024u		/* rings of all connections: each has a thread */
#define MCN_CONN_RINGS 64u
#define MCN_CONN_BUFFERS 256u
/* Limits per user, so that other users always get a share. */
#define MCN_UID_CONNS (MCN_CONNS_MAX - 64)
#define MCN_UID_RINGS (MCN_RINGS_MAX - 64)
#define MCN_UID_BUFFERS 16384u		/* each is a mapping; the kernel allows 65530 per process */
#define MCN_UID_BYTES ((uint64_t)16 << 40)	/* bytes of buffers: address space, not memory */
#define MCN_PINS_MAX 65536u		/* per client */
#define MCN_USERS_MAX 34u		/* users with upstream's clients, or with descriptors that are being closed */
#define MCN_DEFERRED_MAX 8u		/* per user */
/* Upper limit for deadlines that clients ask for: UNBUFFER and mcn_stop() wait for running operations. */
#define MCN_DEADLINE_MAX_MS 600000u
#define MCN_LISTENERS 2u

struct mc_uids;

struct mcn_listener {
	struct mc_evfd evfd;
	struct mcn *n;
	char addr[160];
};

struct mcn {
	/* constant after start */
	struct mcn_conf conf;
	char *master, *tenant;		/* tenant: "" for the default one */
	struct mc_uids *uids;
	struct mc_evloop *loop;
	bool started;			/* the loop runs */
	struct mcn_listener listener[MCN_LISTENERS];
	unsigned nlisteners;
	struct mcn_mapped *mapped;
	struct mcn_deferred *deferred;
	int segment_fd;			/* own segment, read-only; -1: none */
	uint64_t segment_size;

	/* owned by the loop */
	struct mc_evtimer sweep;
	struct mc_evtimer retry;	/* resumes accepting after the process ran out of descriptors */

	struct mc_mutex lock;
	struct mc_cond changed;
	/* with the lock held */
	struct mc_list conns;
	unsigned nconns, nrings;
	/* atomic */
	uint64_t nbuffers, npins;
};

struct mcn_buffer {
	/* constant */
	uint32_t id;
	unsigned char *base;
	uint64_t size;
	/* guarded by the connection's lock */
	unsigned refs;			/* one of the connection's table, one per running operation */
	bool unbuffer;			/* the client waits for the answer to UNBUFFER */
};

struct mcn_conn {
	/* constant */
	struct mcn *n;
	uint64_t token;
	uid_t uid;
	pid_t pid;
	struct mc_principal identity;
	struct mcn_pins *pins;
	/* owned by the loop; the descriptors are constant */
	struct mc_evfd evfd;
	struct mc_evfd process;		/* pidfd of the client; -1: not available */
	bool greeted;
	/* guarded by the node's lock */
	struct mc_list link;
	unsigned refs;			/* the loop's, one per ring, one per running ioctl */

	struct mc_mutex lock;
	/* with the lock held */
	struct mcn_buffer *buffer[MCN_CONN_BUFFERS];
	struct mcn_ring *ring[MCN_CONN_RINGS];
	unsigned nrings, nbuffers;
	uint64_t buffer_bytes;		/* including buffers that only running operations still use */
	bool over;			/* closed when the last reference is released */
};

/* ---- conn.c: requests of one client at the socket ------------------------------------------------- */

/* Answer one packet.  Negative: close the connection. */
int mcn_conn_serve(struct mcn_conn *c, const struct mcfs_msg *in, int fd);
/* Begin to close: release the pins now, stop the rings after their running operations. */
void mcn_conn_over(struct mcn_conn *c);
bool mcn_conn_is_over(struct mcn_conn *c);
/* Has the client's process ended, or has the client closed or shut down the socket?  Called by ring threads. */
bool mcn_conn_left(const struct mcn_conn *c);
/* Last reference released: close the socket, which notifies the client. */
void mcn_conn_free(struct mcn_conn *c);
void mcn_conn_ref(struct mcn_conn *c);
void mcn_conn_unref(struct mcn_conn *c);	/* server.c */

/* The identity of a user that may connect, by conf.uids (server.c).  -EACCES: it has none, or one of another tenant
 * than the daemon's. */
int mcn_identify(const struct mcn *n, uid_t uid, struct mc_principal *ret);
/* May the client map the daemon's own segment?  The segment holds objects of all tenants. */
bool mcn_may_map(const struct mc_principal *p);

/* Resources of all connections of a user, including connections that are still closing. */
struct mcn_use {
	unsigned conns, rings, buffers;
	uint64_t bytes;			/* bytes of the buffers */
};
void mcn_use_of(struct mcn *n, uid_t uid, struct mcn_use *ret);	/* server.c */

/* Bytes of a buffer, with a reference: 0, -ENOENT or -ERANGE. */
int mcn_buffer_get(struct mcn_conn *c, uint32_t id, uint64_t at, uint64_t len,
		   struct mcn_buffer **ret, void **ret_base);
void mcn_buffer_put(struct mcn_conn *c, struct mcn_buffer *b);

/* ---- memory.c -------------------------------------------------------------------------------------- */

/* Has the client's mapped memory [@p, @p + @len) all of its pages?  The kernel charges a missing page to the process
 * that touches it first, so the daemon does not touch it.  False also for pages that are swapped out. */
bool mcn_memory_is_present(const void *p, uint64_t len);
/* Can @size bytes of @fd, which a client sent, be mapped?  It has to be a memfd of ordinary pages, as long as that, and
 * gets the seal against shrinking, if it may: without it an access would raise SIGBUS after the client has truncated
 * the file.  @sealed: a file that cannot be sealed is -EINVAL. */
int mcn_memory_check(int fd, uint64_t size, bool sealed);

/* ---- deferred_close.c: descriptors that clients sent ----------------------------------------------- */

struct mcn_deferred;
int mcn_deferred_new(struct mcn_deferred **ret);
void mcn_deferred_free(struct mcn_deferred *s);	/* does not wait for close() calls that block; NULL is allowed */
/* The user has MCN_DEFERRED_MAX descriptors whose close() blocks: take no more from this user. */
bool mcn_deferred_full(struct mcn_deferred *s, uid_t uid);
void mcn_deferred_close(struct mcn_deferred *s, uid_t uid, int fd);	/* does not wait */
/* Is it a memory file, so that fstat() and close() cannot block?  It may still be unfit as a buffer. */
bool mcn_is_memory(int fd);

/* ---- ring.c --------------------------------------------------------------------------------------- */

struct mcn_ring;
/* Create a ring and start its thread, which holds a reference to @c.  *ret_fd is a duplicate of its memory's
 * descriptor, *ret_size the number of bytes to map. */
int mcn_ring_new(struct mcn_conn *c, uint32_t entries, uint64_t arena, struct mcn_ring **ret,
		 int *ret_fd, uint64_t *ret_size);
void mcn_ring_stop(struct mcn_ring *r);		/* does not wait */

/* ---- exec.c: operations --------------------------------------------------------------------------- */

/* One request, copied from shared memory and checked. */
struct mcn_job {
	struct mcfs_sqe e;
	uint64_t seen_ns;		/* when the ring's thread saw it */
	uint64_t deadline;		/* MC_NEVER: the store's default */
	struct mcs_key key;
	struct iovec *iov;
	int iovcnt;
	struct mcn_buffer **held;	/* one per element of iov */
	const struct mcs_put_opts *put;
	struct mcfs_cqe c;		/* the answer */
	bool done;			/* the answer is complete */
};
/* Carry out @n jobs; those whose deadline has passed fail.  Returns the number of jobs that have answers: all, or
 * those that began before the connection was closed. */
unsigned mcn_exec(struct mcn_conn *c, struct mcn_job *jobs, unsigned n);

/* ---- job.c ---------------------------------------------------------------------------------------- */

/* Memory for keys, iovecs and options of jobs; a bump allocator. */
struct mcn_scratch {
	unsigned char *base;
	size_t size, used;
};
#define MCN_SCRATCH_SIZE ((size_t)1 << 20)
#define MCN_JOB_MAX ((size_t)96 << 10)	/* maximum for one job */
/* Decode the request in job->e, seen at job->seen_ns: copy everything that it points to in the @arena to @sc,
 * which has MCN_JOB_MAX bytes left.  An invalid request gives a job that is done, with the error as its answer. */
void mcn_job_take(struct mcn_conn *c, const unsigned char *arena, uint64_t arena_size,
		  struct mcn_scratch *sc, struct mcn_job *job);
void mcn_job_release(struct mcn_conn *c, struct mcn_job *job);

#endif
