/* SPDX-License-Identifier: Apache-2.0
 * fake_store.h - a store of leases in memory, as etcd and Redis are for the masters (meta/seat.h), with faults that a
 * test sets.
 *
 * Its connection string is "fake://STORE/CLIENT": all clients of one STORE see the same keys, and a fault is one
 * CLIENT's.  Keys expire by mc_now_ns(), so with a fake clock the test decides when.  It has no thread and never
 * waits: a call that "takes time" moves the clock.
 *
 * Threads: any for the calls of clients; one for the functions below, of which each has its effect at once. */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include <stdbool.h>
#include <stdint.h>

struct fake_store;

/* A store without keys and faults.  @name: unique; copied. */
struct fake_store *fake_store_new(const char *name);
/* All clients have closed their connections. */
void fake_store_free(struct fake_store *s);

/* ---- faults of one client; a later call replaces an earlier one of the same kind ---- */

/* No call of the client reaches the store until this is called with false: -ECONNREFUSED, and nothing changes. */
void fake_store_cut(struct fake_store *s, const char *client, bool cut);
/* The next @n calls of the client that change a key do so, but their answer is lost: -ETIMEDOUT. */
void fake_store_lose_answers(struct fake_store *s, const char *client, unsigned n);
/* The next call of the client reaches the store @there later, and its answer the client @back later: the clock moves
 * by as much (nanoseconds). */
void fake_store_delay(struct fake_store *s, const char *client, uint64_t there, uint64_t back);

/* ---- the keys ---- */

/* The store has lost all keys, as Redis after a restart without persistence. */
void fake_store_erase(struct fake_store *s);
/* Remove one key, as an operator does. */
void fake_store_remove(struct fake_store *s, const char *key);
/* Set a key without an end. */
void fake_store_put(struct fake_store *s, const char *key, const char *text);
/* Is there a key that has not expired? */
bool fake_store_has(struct fake_store *s, const char *key);
/* Calls of all clients that reached the store. */
uint64_t fake_store_calls(struct fake_store *s);

#endif
