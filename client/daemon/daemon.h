/* SPDX-License-Identifier: Apache-2.0
 * daemon.h - the daemon back end: the node's daemon (mooncake/mcfs_ring.h) does the work.
 *
 * A connection is made when it is needed, and again when the daemon was restarted; then all
 * buffers are handed over again. A call that finds its connection lost is repeated once over a
 * new one, where a repetition is harmless.  Without a daemon it fails with -MC_ERPC.  If the
 * client found the daemon itself ("auto"), the direct back end then replaces this one
 * (client/backend.c). */
#ifndef MCS_DAEMON_H
#define MCS_DAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/backend.h"
#include <mooncake/mcfs_ring.h>
#include <mooncake/mcs.h>

struct mcs_daemon;
struct mcs_daemon_conn;
struct mcs_security;

/* Decide by the configuration of @store.  1 and the back end: through the daemon; 0: direct;
 * negative: a daemon is configured and cannot be used. */
int mcs_daemon_backend_open(struct mcs *store, struct mcs_backend **ret);

/* The same for the daemon alone: no handle, no session.  @security: the credential of the handle, NULL: none. */
int mcs_daemon_open(const struct mcs_conf *conf, const struct mcs_security *security, struct mcs_daemon **ret);
void mcs_daemon_close(struct mcs_daemon *d);	/* NULL is fine */

/* ---- daemon_conn.c: the connection ---- */

/* The current connection with a reference, or a new one: 0, -MC_ERPC: no connection can be made,
 * -MC_ETIMEDOUT: not within a few seconds after @deadline.  One thread connects; if that fails,
 * it fails for all threads that wait. */
int mcs_daemon_conn_get(struct mcs_daemon *d, uint64_t deadline, struct mcs_daemon_conn **ret);
void mcs_daemon_conn_put(struct mcs_daemon_conn *c);	/* NULL is fine */

/* ---- daemon_ring.c: requests ---- */

struct mcs_daemon_req {
	uint8_t op, flags;
	struct mcs_key key;
	const struct mcfs_ring_range *range;
	unsigned nranges;
	uint64_t len, offset, pin;
	struct mcs_key group;		/* eviction group of a put; empty: the options' */
	uint32_t put;			/* private to daemon_ring.c */
	struct mcfs_cqe c;		/* the answer; c.result is -MC_ERPC until it has arrived */
};
/* Have the daemon carry out @n requests; @put: the options of all puts among them, NULL:
 * defaults.  0, or -MC_ERPC: the connection was lost before all answers arrived.  -MC_ETIMEDOUT:
 * the daemon may still use the memory that the requests name, unless the connection is not lost
 * (then the daemon never received the requests).  It uses none after any other result. */
int mcs_daemon_run(struct mcs_daemon_conn *c, struct mcs_daemon_req *reqs, unsigned n,
		   const struct mcs_put_opts *put, uint64_t deadline);

#endif
