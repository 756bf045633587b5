/* SPDX-License-Identifier: Apache-2.0
 * node_i.h - the daemon's service as its own files see it. */
#ifndef MCN_NODE_I_H
#define MCN_NODE_I_H

#include <pthread.h>

#include "common/net/evloop.h"
#include "common/list.h"
#include "node/hot.h"
#include "node/node.h"

#define MCN_CONNS_MAX 1024u
#define MCN_RINGS_MAX 1024u		/* of all connections: each has a thread */
#define MCN_CONN_RINGS 64u
#define MCN_CONN_BUFFERS 256u
/* Of one user: something is left for others. */
#define MCN_UID_CONNS (MCN_CONNS_MAX - 64)
#define MCN_UID_RINGS (MCN_RINGS_MAX - 64)
#define MCN_UID_BUFFERS 16384u		/* each is a mapping, of which the kernel allows a process 65530 */
#define MCN_UID_BYTES ((uint64_t)16 << 40)	/* of buffers: addresses, not memory */
#define MCN_PINS_MAX 65536u		/* of one owner */
#define MCN_UIDS_MAX 32u
#define MCN_STRAYS_MAX 8u		/* of one user */
/* Whatever a client asks for: the memory that it named, and our own end, wait for what is under way. */
#define MCN_DEADLINE_MAX_MS 600000u
#define MCN_LISTENERS 2u

struct mcn_listener {
	struct mc_evfd evfd;
	struct mcn *n;
	char addr[160];
};

struct mcn {
	/* constant after start */
	struct mcn_conf conf;
	char *master, *tenant;		/* tenant: "" for the default one */
	uid_t uids[MCN_UIDS_MAX];
	unsigned nuids;
	struct mc_evloop *loop;
	bool started;			/* the loop runs */
	struct mcn_listener listener[MCN_LISTENERS];
	unsigned nlisteners;
	struct mcn_hot *hot;
	struct mcn_deferred *strays;
	int segment_fd;			/* of the own segment, for reading; -1: none */
	uint64_t segment_size;

	/* owned by the loop */
	struct mc_evtimer sweep;
	struct mc_evtimer retry;	/* accept again: descriptors had run out */

	pthread_mutex_t lock;
	pthread_cond_t changed;
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
	unsigned refs;			/* the table's, and operations under way */
	bool waited_for;		/* the client is to be told when it has ended */
};

struct mcn_conn {
	/* constant */
	struct mcn *n;
	uint64_t token;
	uid_t uid;
	pid_t pid;
	struct mcn_pins *pins;
	/* owned by the loop; the descriptors are constant */
	struct mc_evfd evfd;
	struct mc_evfd process;		/* of the client, as pidfd_open() has it; -1: it cannot be seen */
	bool greeted;
	/* guarded by the node's lock */
	struct mc_list link;
	unsigned refs;			/* the loop's, each ring's, ioctls under way */

	pthread_mutex_t lock;
	/* with the lock held */
	struct mcn_buffer *buffer[MCN_CONN_BUFFERS];
	struct mcn_ring *ring[MCN_CONN_RINGS];
	unsigned nrings, nbuffers;
	uint64_t buffer_bytes;		/* also of buffers that only operations under way use */
	bool over;			/* it is closed when the last reference goes */
};

/* ---- conn.c: what a client asks for at the socket ------------------------------------------------- */

/* Answer one packet.  Negative: the connection has to end. */
int mcn_conn_serve(struct mcn_conn *c, const struct mcfs_msg *in, int fd);
/* It is to end: its pins do at once, its rings as soon as they can. */
void mcn_conn_over(struct mcn_conn *c);
bool mcn_conn_is_over(struct mcn_conn *c);
/* Has the client ended, closed it, or shut it down?  Asked by the rings' threads. */
bool mcn_conn_left(const struct mcn_conn *c);
/* Nobody uses it any more: the socket is closed, which tells the client so. */
void mcn_conn_free(struct mcn_conn *c);
void mcn_conn_ref(struct mcn_conn *c);
void mcn_conn_unref(struct mcn_conn *c);	/* server.c */

/* What all connections of a user have, also those that are over but not at an end. */
struct mcn_use {
	unsigned conns, rings, buffers;
	uint64_t bytes;			/* of the buffers */
};
void mcn_use_of(struct mcn *n, uid_t uid, struct mcn_use *ret);	/* server.c */

/* Bytes of a buffer, with a reference: 0, -ENOENT or -ERANGE. */
int mcn_buffer_get(struct mcn_conn *c, uint32_t id, uint64_t at, uint64_t len,
		   struct mcn_buffer **ret, void **ret_base);
void mcn_buffer_put(struct mcn_conn *c, struct mcn_buffer *b);

/* ---- strays.c: descriptors that clients sent ------------------------------------------------------- */

struct mcn_deferred;
int mcn_deferred_new(struct mcn_deferred **ret);
void mcn_deferred_free(struct mcn_deferred *s);	/* does not wait for those that cannot be closed; NULL is fine */
/* Nothing more is taken from this user before one of his can be closed. */
bool mcn_deferred_full(struct mcn_deferred *s, uid_t uid);
void mcn_deferred_close(struct mcn_deferred *s, uid_t uid, int fd);	/* does not wait */
/* Can it be asked and closed without waiting for anybody?  A file of memory, which may be no buffer nevertheless. */
bool mcn_is_memory(int fd);

/* ---- ring.c --------------------------------------------------------------------------------------- */

struct mcn_ring;
/* Make a ring and start its thread, which holds a reference to @c.  *ret_fd is its memory (stays the
 * ring's), *ret_size the bytes to map. */
int mcn_ring_new(struct mcn_conn *c, uint32_t entries, uint64_t arena, struct mcn_ring **ret,
		 int *ret_fd, uint64_t *ret_size);
void mcn_ring_stop(struct mcn_ring *r);		/* does not wait */

/* ---- exec.c: operations --------------------------------------------------------------------------- */

/* One request, taken out of the memory that is shared, and checked. */
struct mcn_job {
	struct mcfs_sqe e;
	uint64_t seen_ns;		/* when it was there */
	uint64_t deadline;		/* MC_NEVER: the store's default */
	struct mcs_key key;
	struct iovec *iov;
	int iovcnt;
	struct mcn_buffer **held;	/* one per element of iov */
	const struct mcs_put_opts *put;
	struct mcfs_cqe c;		/* the answer */
	bool done;			/* it is there already */
};
/* Carry out @n of them, those whose deadline is over excepted.  How many have answers afterwards: all, or those
 * that were begun before the connection was over. */
unsigned mcn_exec(struct mcn_conn *c, struct mcn_job *jobs, unsigned n);

/* ---- job.c ---------------------------------------------------------------------------------------- */

/* Memory for what jobs point to; used up from its front. */
struct mcn_scratch {
	unsigned char *base;
	size_t size, used;
};
#define MCN_SCRATCH_SIZE ((size_t)1 << 20)
#define MCN_JOB_MAX ((size_t)96 << 10)	/* what one job may take of it */
/* Take a request that was copied to job->e and was there at job->seen_ns: what it points to in the @arena is
 * copied to @sc, which has MCN_JOB_MAX bytes left.  Nonsense gives a job that is done, with the error as its answer. */
void mcn_job_take(struct mcn_conn *c, const unsigned char *arena, uint64_t arena_size,
		  struct mcn_scratch *sc, struct mcn_job *job);
void mcn_job_release(struct mcn_conn *c, struct mcn_job *job);

#endif
