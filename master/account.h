/* SPDX-License-Identifier: Apache-2.0
 * account.h - pins and unfinished puts of all sessions of one identity together.
 *
 * With --security=on or --rpc_socket_uids the limits of a connection (--max_session_pins, --max_session_pinned_ratio,
 * --max_session_puts, --max_client_quarantine_ratio) are limits of an identity: a credential, a certificate, or the
 * user of a unix socket.  Otherwise its holder could exceed them with many connections.  A session looks its account
 * up once, when it begins; without identities it has none.
 *
 * Requests that several threads carry out at the same moment check the limits before they count, so an account may
 * exceed them by the objects of one batch (MCM_PREFETCH_MAX) per thread. */
#ifndef MCM_ACCOUNT_H
#define MCM_ACCOUNT_H

#include <stdint.h>

struct mc_principal;
struct mcm;
struct mcm_session;

#define MCM_ACCOUNT_BUCKETS 1024u

struct mcm_account {
	uint64_t key;			/* constant; never 0 */
	/* guarded by the master's sessions_lock */
	struct mcm_account *next;
	unsigned sessions;
	/* atomic; sums of the sessions' counts */
	uint64_t pins, pinned_bytes;
	uint64_t puts, put_keys;
};

/* The part of an account that a session has added. */
struct mcm_account_share {
	struct mcm_account *account;	/* constant */
	uint64_t pins, pinned_bytes;	/* guarded by the session's lock */
	uint64_t puts, put_keys;	/* guarded by its put shard's lock */
};

/* Give the session the account of the identity @p; none without security, for code of this process, and for a peer
 * without an identity.  Once, before its first request.  -ENOMEM with a detail. */
int mcm_account_open(struct mcm *m, struct mcm_session *s, const struct mc_principal *p);
/* The session holds nothing any more. */
void mcm_account_close(struct mcm *m, struct mcm_session *s);

/* The pins of a session with an account have changed: add the difference.  The session's lock is held. */
void mcm_account_pins(const struct mcm_session *s);
/* The same for its puts; nothing if it has no account.  Its put shard's lock is held; not held. */
void mcm_account_puts_locked(const struct mcm_session *s);
void mcm_account_puts(struct mcm *m, const struct mcm_session *s);
/* The key of its account; 0: it has none. */
uint64_t mcm_account_key(const struct mcm_session *s);

#endif
