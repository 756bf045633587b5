/* SPDX-License-Identifier: Apache-2.0
 * session.h - the connection to the master, and the rules for requests while it is down.
 *
 * A call that cannot reach the master retries until its deadline, but not longer than the grace
 * period after the master was last up: calls wait for a master that restarts; when it stays down
 * they fail at once with -MC_ERPC.  The same time limits repetitions of requests that a restarted
 * master cannot answer before an owner has returned.  Where another master takes over, the grace period is longer than
 * the slowest takeover.
 *
 * Each new connection has a number, the epoch.  The master frees everything that belongs to a
 * connection (pins, open puts) when it ends, so it is gone when the epoch has changed. */
#ifndef MCS_SESSION_H
#define MCS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/rpc_client.h"

#define MCS_SETUP_TIMEOUT_MS 5000	/* default of mcs_conf.setup_timeout_ms */

struct mcs_security;
struct mcs_session;

/* Values from the master's reply to the registration. */
struct mcs_terms {
	uint32_t client_ttl_ms, heartbeat_ms, lease_ttl_ms;
	/* As in mcp_register_reply.  If the epoch is the same before fence is read and after, fence is that epoch's or
	 * of an earlier one. */
	uint64_t fence, earlier;
	uint64_t server;	/* lower half of the id of the master's process; 0: none so far */
	uint32_t takeover_ms;	/* if the master is lost, another one leads after this time; 0: none does */
};

struct mcs_session_conf {
	const char *addrs;		/* masters.h */
	const char *name;		/* name of this process, sent to the master */
	struct mcp_id client;
	struct mcp_id engine;		/* nonce of the transfer engine that writes for it; zero: it writes nothing */
	struct mcs_security *security;	/* NULL: no credential */
	uint64_t (*largest_fence)(void *arg);	/* mce_engine_largest_fence() of it; NULL with a zero engine */
	struct mcp_id pool;		/* pool of the process that this one replaces, zero: none (same_pool.h) */
	unsigned min_version;		/* lowest version of the protocol: an older master is refused */
	unsigned spin_us;
	/* How long calls wait for a master that is down; longer where another one may take over, unless it is less than
	 * the default of mcs_conf.setup_timeout_ms, because then the program wants errors early. */
	uint64_t grace_ms;
	/* NULL, or called on every new connection, after it is registered and before other calls use it: offers
	 * the segments again.  May call through @c.  Negative: the connection is closed. */
	int (*attach)(struct mcp_client *c, uint64_t epoch, const struct mcs_terms *terms, void *arg);
	/* NULL, or as in mcp_client_conf. */
	void (*piggyback)(struct mcp_buf *b, void *arg);
	void *arg;
};

/* Does not connect.  The addresses must stay valid until close. */
int mcs_session_open(const struct mcs_session_conf *conf, struct mcs_session **ret);
void mcs_session_close(struct mcs_session *s);		/* NULL is fine */

/* Connect unless there is a connection.  Retries until @deadline, regardless of the grace period. */
int mcs_session_connect(struct mcs_session *s, uint64_t deadline);
/* One attempt. */
int mcs_session_probe(struct mcs_session *s, uint64_t deadline);

/* A request of connection @epoch that acquires something at the master timed out without an answer.  The
 * background thread then resets the connection (mcs_session_cleanse()), so that the master releases it. */
void mcs_session_taint(struct mcs_session *s, uint64_t epoch);
void mcs_session_cleanse(struct mcs_session *s);

bool mcs_session_up(const struct mcs_session *s);
bool mcs_session_ever(const struct mcs_session *s);	/* has there ever been a connection? */
/* Another connection of this process has found @server as the master, at @addr.  A connection to another one is
 * of no use any more, although its machine may be silent: close it. */
void mcs_session_met(struct mcs_session *s, struct mcp_id server, const char *addr);
/* Has another master process replaced the previous one less than @ms ago?  Then owners may still come back. */
bool mcs_session_young(const struct mcs_session *s, uint64_t ms);
/* Identity of the pool that this process belongs to (same_pool.h), zero: not known. */
struct mcp_id mcs_session_pool(const struct mcs_session *s);
unsigned mcs_session_version(const struct mcs_session *s);	/* version of the protocol, 0: never connected */
uint64_t mcs_session_epoch(const struct mcs_session *s);
struct mcs_terms mcs_session_terms(const struct mcs_session *s);
/* As mcs_takeover_ms(). */
uint64_t mcs_session_takeover_ms(const struct mcs_session *s);
/* For how long calls wait for a master that is down: conf.grace_ms, or longer. */
uint64_t mcs_session_grace_ms(const struct mcs_session *s);
/* The master asked for another heartbeat_ms. */
void mcs_session_set_heartbeat(struct mcs_session *s, uint32_t ms);

/* An answer was -MC_ENOTREADY: the master restarted, and the owner of the object may still return to it.  @p is { 0 }
 * at the first call.  True: waited a little, ask again.  False: @deadline, or the grace period since the first such
 * answer, would pass. */
struct mcs_patience {
	unsigned n;
	uint64_t since_ns;
};
bool mcs_session_await_owner(const struct mcs_session *s, struct mcs_patience *p, uint64_t deadline);

/* Call and wait, as mcp_call(); repeated after a lost connection as described above, so only for
 * requests that may be repeated.  All functions that wait repeat a request that was answered with -MC_ENOTREADY. */
int mcs_call(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
	     struct mcp_reply *ret_reply, uint64_t deadline);
/* The same for requests whose replies grant pins.  *ret_epoch: of the connection that carried the reply (or the
 * request, when it timed out); 0: not known, because a new connection was made meanwhile. @ask: check the
 * connection before, for pins that do not expire; costs a system call. */
int mcs_call_pins(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline, bool ask, uint64_t *ret_epoch);
/* As mcs_call(), for requests that must not be repeated: one attempt once a connection is there.
 * -MC_ERPC: it is not known whether the master carried it out. */
int mcs_call_once(struct mcs_session *s, uint16_t type, const void *msg, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline);
/* One attempt in two steps, as mcp_call_start(), so that several requests can run at the same time. */
int mcs_call_start(struct mcs_session *s, uint16_t type, const void *msg, struct mcp_ticket *ret,
		   uint64_t deadline);
int mcs_call_wait(struct mcs_session *s, struct mcp_ticket t, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline);
/* One-way; -MC_ERPC without a connection. */
int mcs_send(struct mcs_session *s, uint16_t type, const void *msg);

#endif
