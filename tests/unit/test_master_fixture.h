/* SPDX-License-Identifier: Apache-2.0
 * test_master_fixture.h - a master without threads and sockets, on a clock that only the test
 * moves, and helpers for the operations of clients. */
#ifndef TEST_MASTER_FIXTURE_H
#define TEST_MASTER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/hash.h"
#include "master/lock_hold.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"
#include "master/ops/pin.h"
#include "master/session.h"
#include "proto/codec.h"
#include "tests/unit/test_master_alloc_check.h"

/* Pseudo-random numbers, the same in every run; per thread. */
uint64_t rnd(void);
void rnd_seed(uint64_t seed);

struct fixture {
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm *m;
	struct mcm_session *s;		/* of client 1 */
};

/* A master with @n segments of @size bytes, mounted by client 1; the clock stands still.  @tune may
 * change options (NULL: none). */
void fx_up(struct fixture *fx, unsigned n, uint64_t size, void (*tune)(struct mcm_conf *conf));
void fx_down(struct fixture *fx);

struct mcm_session *fx_session(struct fixture *fx, uint64_t client);
void fx_session_end(struct fixture *fx, struct mcm_session *s);
/* The same as a thread's function. */
struct fx_ending {
	struct fixture *fx;
	struct mcm_session *s;
};
void *fx_session_ends(void *ending);
/* A heartbeat; the result of mcm_client_beat(). */
bool fx_beat(struct fixture *fx, struct mcp_id client);
/* Mount segment @id (named "seg-<id>") for @client.  The result of mcm_mount(). */
int fx_mount(struct fixture *fx, uint64_t client, uint64_t id, uint64_t epoch, uint64_t size,
	     struct mcp_mount_reply *ret);

struct mcp_bytes fx_bytes(const char *key);
/* Begin a put; *ret may be NULL. */
int fx_start(struct fixture *fx, struct mcm_session *s, const char *key, uint64_t size,
	     uint32_t flags, struct mcm_put_granted *ret);
int fx_end(struct fixture *fx, const char *key, uint64_t generation);
int fx_revoke(struct fixture *fx, const char *key, uint64_t generation);
/* The same by another session than fx->s. */
int fx_end_by(struct fixture *fx, const struct mcm_session *s, const char *key, uint64_t generation);
int fx_revoke_by(struct fixture *fx, const struct mcm_session *s, const char *key, uint64_t generation);
/* Begin and end. */
int fx_put(struct fixture *fx, const char *key, uint64_t size, uint32_t flags);
/* Stat: 0 or an error; *ret may be NULL. */
int fx_stat(struct fixture *fx, const char *key, struct mcp_object *ret);
/* Get with a pin. */
int fx_pin(struct fixture *fx, struct mcm_session *s, const char *key, uint32_t flags,
	   struct mcp_object *ret, struct mcp_replica *ret_replica);
void fx_release(struct fixture *fx, struct mcm_session *s, uint64_t pin);
/* 1, 0 or an error. */
int fx_exist(struct fixture *fx, const char *key, uint32_t flags);
int fx_remove(struct fixture *fx, const char *key, uint32_t flags);
int fx_rename(struct fixture *fx, const char *from, const char *to, uint32_t flags);
/* Move the clock, as if the master had run all the time, and let the monitor and the evictor
 * work. */
void fx_advance(struct fixture *fx, uint64_t ms);
/* Orders to fence, as the owner @client gets them when its heartbeat confirms the @n numbers in @done. */
unsigned fx_orders(struct fixture *fx, struct mcp_id client, const uint64_t *done, unsigned n,
		   struct mcp_fence ret[MCP_FENCES_MAX]);
/* The owner (all owners) confirms all orders, and the monitor frees the ranges. */
void fx_confirm_of(struct fixture *fx, struct mcp_id client);
void fx_confirm(struct fixture *fx);
/* Time passes, in which all owners send heartbeats and confirm nothing: not a byte is freed. */
void fx_stays_aside(struct fixture *fx, uint64_t ms);
uint64_t fx_used(struct fixture *fx);
int64_t fx_metric(const char *name);

/* Recount everything that can be recounted: allocators, index, names, counters. */
void fx_check(struct fixture *fx);

/* The maximum and the sum of the entries examined under one hold of a lock, since the last
 * reset. */
uint64_t fx_held_most(enum mcm_lock_hold which);
uint64_t fx_held_sum(enum mcm_lock_hold which);
void fx_held_reset(enum mcm_lock_hold which);

#endif
