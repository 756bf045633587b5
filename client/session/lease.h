/* SPDX-License-Identifier: Apache-2.0
 * lease.h - pins that the master gave us: kept alive while a read goes on, given back after it.
 *
 * Giving back costs no message of its own: the ids ride ahead of the next request, and the keeper
 * thread sends what has waited for MCS_RELEASE_MS.  A pin belongs to the connection (epoch) it was
 * granted on; of a lost connection nothing has to be given back. */
#ifndef MCS_LEASE_H
#define MCS_LEASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/session.h"
#include "common/list.h"

#define MCS_RELEASE_MS 20

struct mcs_pin {
	uint64_t id;		/* 0: none */
	uint64_t epoch;
};

/* A read under way, on its caller's stack: its pins are renewed in time. */
struct mcs_reading {
	struct mc_list link;
	const struct mcs_pin *pins;
	unsigned n;
	uint64_t renewed_ns;
};

struct mcs_leases {
	pthread_mutex_t lock;	/* innermost: nothing is called with it held */
	/* with the lock held */
	uint64_t epoch;		/* of the pins in the queue */
	uint64_t *queue;	/* pins to give back */
	unsigned n_queue, cap_queue;
	uint64_t flushed_ns;	/* when the queue was last empty or taken */
	struct mc_list readings;
	/* the keeper's: what it sends */
	uint64_t *message;
	/* constant */
	void (*wake)(void *arg);	/* the queue became non-empty */
	void *arg;
};

int mcs_leases_init(struct mcs_leases *l, void (*wake)(void *arg), void *arg);
void mcs_leases_done(struct mcs_leases *l);

/* A new connection: earlier pins are void. */
void mcs_leases_epoch(struct mcs_leases *l, uint64_t epoch);

/* @n pins were granted (negative: became void); counted for the metrics. */
void mcs_leases_granted(int n);

/* @pins is borrowed until mcs_leases_end(), which also gives them back. */
void mcs_leases_begin(struct mcs_leases *l, struct mcs_reading *rd, const struct mcs_pin *pins,
		      unsigned n, uint64_t granted_ns);
void mcs_leases_end(struct mcs_leases *l, struct mcs_reading *rd);

void mcs_leases_release(struct mcs_leases *l, struct mcs_pin pin);

/* For the rpc client's piggyback: append what waits. */
void mcs_leases_piggyback(struct mcs_leases *l, struct mcp_buf *b);

/* Keeper thread: send pins that have waited long enough.  True while there is work left. */
bool mcs_leases_flush(struct mcs_leases *l, struct mcs_session *s);
/* Keeper thread: renew the leases of reads that have used up half of @lease_ms. */
void mcs_leases_renew(struct mcs_leases *l, struct mcs_session *s, uint32_t lease_ms);

#endif
