/* SPDX-License-Identifier: Apache-2.0
 * seat.h - which one of several processes leads a cluster: a lease on etcd or Redis.
 *
 * Two keys: "mooncake-store/CLUSTER/master_view" has the name of the leader, and expires with its lease;
 * "mooncake-store/CLUSTER/master_state" stays, and has the term and the members that may lead.  Each change is one
 * transaction of the server: it happens only if the state is the one that the caller has seen, and the lease is free,
 * the caller's, or that of the leader that it replaces.  docs/models/ha.pml has the protocol that is built on it.
 *
 * The lease of a leader is valid until a time on the leader's own clock, which runs from before the request was sent:
 * so it ends before the server gives the lease to another process.
 *
 * Errors: -EAGAIN another process leads, or the state has changed: look again; -MC_EOWNER the lease is lost; those of
 * meta.h.  Threads: one at a time for each seat; mcd_seat_until() any. */
#ifndef MCD_SEAT_H
#define MCD_SEAT_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a name, with its NUL: letters, digits and punctuation except '"', ',' and '\'.  A '#' ends the address. */
#define MCD_SEAT_NAME_MAX 256u
#define MCD_SEAT_MEMBERS_MAX 16u
#define MCD_SEAT_CLUSTER_MAX 128u	/* bytes of a cluster's name */

struct mcd_seat;

struct mcd_seat_conf {
	const char *conn;	/* etcd://..., redis://... (meta.h) */
	const char *credentials;	/* file, ""; NULL: that of the environment (credentials.h) */
	const char *cluster;	/* part of the keys */
	const char *name;	/* name of this process: the address by which clients reach it, and "#ID" */
	unsigned ttl_ms;	/* duration of the lease; etcd rounds up to seconds */
	int http_port;		/* HTTP port of this process, for operators' tools; 0: none */
};

struct mcd_seat_view {
	bool exists;		/* there is a state: the cluster had a leader before */
	uint64_t term;		/* term of the last leader; 0: there was none */
	char leader[MCD_SEAT_NAME_MAX];	/* "": none */
	unsigned n;
	char member[MCD_SEAT_MEMBERS_MAX][MCD_SEAT_NAME_MAX];
};

bool mcd_seat_name_valid(const char *name);
/* The address in a name. */
void mcd_seat_address(const char *name, char ret[MCD_SEAT_NAME_MAX]);

/* The connection string of the store of kind @type ("etcd", "redis") at @where, which may be a connection string
 * already.  The caller frees *ret.  -EINVAL with a detail: no such kind. */
int mcd_seat_conn(const char *type, const char *where, char **ret);
/* No network traffic.  The strings are copied.  -EINVAL with a detail. */
int mcd_seat_open(const struct mcd_seat_conf *conf, struct mcd_seat **ret);
/* The lease stays until it expires: mcd_seat_leave() before, for an orderly end.  NULL is fine. */
void mcd_seat_close(struct mcd_seat *s);

/* Read the keys.  Later changes depend on this view. */
int mcd_seat_look(struct mcd_seat *s, struct mcd_seat_view *ret, uint64_t deadline);
/* Become the leader, with a new term of at least @term; the members stay, and this process is added in a cluster
 * without a state.  -EAGAIN */
int mcd_seat_take(struct mcd_seat *s, uint64_t term, uint64_t deadline, uint64_t *ret_term);
/* The same, instead of the leader that the last look has seen, although its lease lasts.  The caller knows that this
 * leader answers nothing any more (docs/models/ha.pml, "notice").  Its lease is lost from this moment on: it cannot
 * prolong it, nor set the members.  -EAGAIN: also when that leader, the term or the members have changed since. */
int mcd_seat_replace(struct mcd_seat *s, uint64_t deadline, uint64_t *ret_term);
/* Leader: prolong the lease. */
int mcd_seat_renew(struct mcd_seat *s, uint64_t deadline);
/* Leader: set the members.  -MC_EOWNER: not done, and the lease is lost. */
int mcd_seat_set_members(struct mcd_seat *s, const char *const *member, unsigned n, uint64_t deadline);
/* Leader: give the lease back. */
int mcd_seat_leave(struct mcd_seat *s, uint64_t deadline);

/* Until when (mc_now_ns() scale) this process certainly leads; 0: it does not. */
uint64_t mcd_seat_until(const struct mcd_seat *s);

#endif
