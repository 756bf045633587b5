/* SPDX-License-Identifier: Apache-2.0
 * meta_i.h - table of functions for a kind of metadata server, the list of kinds, and helpers of the kinds.  All
 * functions of a table may run on several threads at once. */
#ifndef MCD_META_I_H
#define MCD_META_I_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/net/web.h"
#include "meta/meta.h"

/* Time limit of a call. */
struct mcd_wait {
	uint64_t deadline;
	const atomic_bool *cancel;	/* true ends the call within about a second; NULL: not used */
};

struct mcd_backend {
	const struct mcd_ops *ops;	/* first member of every implementation */
};

/* A transaction about a lease (seat.h). */
struct mcd_turn {
	const char *leader_key, *state_key;
	const char *mine;	/* text of the leader's key for this lease, unique */
	bool take;		/* the leader's key is written, for ttl_ms; else it must be @mine */
	const char *instead;	/* take: the text that the leader's key must have; NULL: it must not exist */
	const char *seen;	/* the state must have this text; NULL: it must not exist */
	const char *state;	/* its new text */
	unsigned ttl_ms;
};

struct mcd_open {
	unsigned ttl_s;			/* the server keeps texts for this time */
	const char *credentials;	/* file (credentials.h), ""; NULL: that of the environment */
};

struct mcd_ops {
	const char *scheme;	/* "redis" of "redis://..." */
	bool wants_url;		/* open() gets the whole connection string, not only the part after "://" */
	bool has_leases;	/* leases of leaders; without them turn(), prolong() and leave() return -EINVAL */
	/* @where: the part of the connection string after "://", or all of it (wants_url).  No network traffic. */
	int (*open)(const char *where, const struct mcd_open *o, struct mcd_backend **ret);
	void (*close)(struct mcd_backend *b);
	int (*get)(struct mcd_backend *b, const char *key, const struct mcd_wait *w, char **ret_text);
	int (*put)(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w);
	/* 0 also if the key does not exist. */
	int (*del)(struct mcd_backend *b, const char *key, const struct mcd_wait *w);
	/* Delete the key only if this object has put its text: @text, or the previous one, @previous (NULL:
	 * none).  0 also if another node's text is there. */
	int (*del_own)(struct mcd_backend *b, const char *key, const char *text, const char *previous,
		       const struct mcd_wait *w);
	/* Called three times per TTL, before the keys are refreshed.  1: put all texts again; 0; negative. */
	int (*beat)(struct mcd_backend *b, const struct mcd_wait *w);
	/* Prolong a text by another TTL. */
	int (*refresh)(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w);
	/* Check the conditions of @t and change the keys, in one step.  -EAGAIN: the conditions do not hold, and
	 * nothing was changed.  A caller may repeat a request whose answer was lost. */
	int (*turn)(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w);
	/* Let the lease end @ttl_ms from now on the server's clock.  -MC_EOWNER: the lease is lost. */
	int (*prolong)(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
		       const struct mcd_wait *w);
	/* End the lease.  0 also if it has ended, or if another leader has replaced this one. */
	int (*leave)(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w);
};

struct mcd_seat;
struct mcd_seat_view;
/* seat.c; for the fuzzer too.  @s: for the messages. */
int mcd_seat_state_decode(const struct mcd_seat *s, const char *text, struct mcd_seat_view *ret);

/* The key of the leader's name, and the name in its text: -EINVAL. */
void mcd_seat_leader_key(const char *cluster, char ret[MCD_KEY_MAX]);
/* MCD_SEAT_NAME_MAX bytes; *ret_http_port (NULL is fine): 0 in a text of an older version. */
int mcd_seat_leader_decode(const char *text, char *ret, int *ret_http_port);

/* kinds.c: the list of kinds. */
extern const struct mcd_ops mcd_http, mcd_https, mcd_etcd, mcd_redis, mcd_rediss;
/* Add a kind, for a test or a simulated world: before the first connection string is read, on one thread.  The kind
 * stays in the list. */
void mcd_kind_add(const struct mcd_ops *ops);
/* The kind of the server that @conn names (meta.h), and the argument for its open(); NULL: there is none. */
const struct mcd_ops *mcd_kind_of(const char *conn, const char **ret_where);
/* The kind with leases of the name @scheme; NULL: there is none. */
const struct mcd_ops *mcd_kind_leases(const char *scheme);
/* The names of the kinds with leases, as "etcd or redis", cut to @len. */
const char *mcd_kind_leases_names(char *buf, size_t len);
/* Open the backend that @conn names.  -EINVAL with a detail that has the known forms; errors of open(). */
int mcd_backend_open(const char *conn, const struct mcd_open *o, struct mcd_backend **ret);

/* .del_own for servers that do not know the owner of a text.  A text put by another node between the
 * two requests of this function is lost until that node's next refresh. */
int mcd_del_own_text(struct mcd_backend *b, const char *key, const char *text, const char *previous,
		     const struct mcd_wait *w);

/* 0, -ECANCELED if the call is cancelled, -ETIMEDOUT after the deadline. */
int mcd_wait_check(const struct mcd_wait *w, const char *server);

/* ---- base64, for etcd's gateway ---------------------------------------------------------------- */

char *mcd_base64_encode(const void *p, size_t len);	/* malloc'ed; NULL: no memory */
/* *ret is malloc'ed, with a NUL after its *ret_len bytes.  -EINVAL. */
int mcd_base64_decode(const char *text, char **ret, size_t *ret_len);

/* ---- decoders, public for fuzzers--------------------------------------------------------------- */

int mcd_etcd_range_decode(const char *text, size_t len, char **ret_text, int64_t *ret_lease);
int mcd_etcd_grant_decode(const char *text, size_t len, int64_t *ret_id);
int mcd_etcd_token_decode(const char *text, size_t len, char **ret_token);
int mcd_etcd_keepalive_decode(const char *text, size_t len, int64_t *ret_ttl);

#endif
