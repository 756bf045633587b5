/* SPDX-License-Identifier: Apache-2.0
 * node_i.h - what the files of client/node share. */
#ifndef MCS_DAEMON_I_H
#define MCS_DAEMON_I_H

#include "client/daemon/daemon.h"
#include "client/store_i.h"

struct mcs_daemon_mem {
	unsigned char *base;		/* NULL: the place is free */
	size_t len;
	int fd;
	uint64_t fd_offset;
	bool own;			/* mapped by us */
	uint64_t serial;		/* of all that were ever here; never 0 */
};

/* Of the memory for values that lie elsewhere: what the daemon of a connection that is lost may still use. */
struct mcs_daemon_left {
	struct mcs_daemon_left *next;
	struct mcs_daemon_conn *conn;
	uint64_t at, len;
};

struct mcs_daemon {
	/* constant after open */
	char addr[160];
	char master[192], hostname[160], tenant[192];
	bool found;			/* nobody has named it: only root's or our own is trusted */
	unsigned spin_us;
	uint64_t bounce_size, pool_size;
	unsigned fork_depth;

	pthread_mutex_t lock;
	pthread_cond_t changed;		/* an attempt is over */
	/* with the lock held */
	struct mcs_daemon_conn *conn;	/* NULL: none now */
	bool connecting;		/* one thread is at it */
	bool attempt_late;		/* the last one had no more time */
	unsigned attempts;
	int attempt_err;
	char attempt_why[160];
	uint64_t serial;
	struct mcs_daemon_mem mem[MCS_DAEMON_MEMS]; /* 0: for values that lie elsewhere; 1: the pool */
	struct mc_space bounce, pool;
	struct mcs_daemon_left *left;	/* still taken in `bounce` */
	struct mc_extent *pieces;	/* of the pool, handed out */
	unsigned npieces, pieces_cap;
};

struct mcs_daemon_conn {
	/* constant after it is made */
	struct mcs_daemon *n;
	int sock;
	uint64_t token;
	bool one_clock;			/* the daemon's is ours: it takes deadlines */
	/* atomic */
	unsigned refs;
	bool lost;
	unsigned nrings;
	/* guarded by the node's lock; changed with `tell_lock` held too */
	uint32_t id[MCS_DAEMON_MEMS];	/* of the buffers there, */
	uint64_t told[MCS_DAEMON_MEMS];	/* which are these; 0: not handed over */

	pthread_mutex_t tell_lock;	/* one changes what is handed over at a time */

	pthread_mutex_t rings_lock;	/* one ring is made at a time */
	pthread_mutex_t ask_lock;	/* one request at the socket; makes rings and maps segments too */
	struct mcs_daemon_ring *ring[MCS_DAEMON_RINGS]; /* atomic pointers, set once */
	struct {
		const unsigned char *base; /* atomic, set once */
		uint64_t size;
	} segment[MCS_DAEMON_SEGMENTS];
};

/* Until when a call with @deadline waits for the daemon before it has asked it for anything: as long as for answers
 * beyond the deadline, and never longer than a daemon has that is asked without one. */
uint64_t mcs_daemon_until(uint64_t deadline);
/* Have a connection that nobody else knows yet told of all memory, and make it the node's: 0 or negative. */
int mcs_daemon_mem_publish(struct mcs_daemon_conn *c, uint64_t until);
/* The memory of the node itself. */
int mcs_daemon_mem_open(struct mcs_daemon *n);
void mcs_daemon_mem_close(struct mcs_daemon *n);

#endif
