/* SPDX-License-Identifier: Apache-2.0
 * lease.h - pins that the master granted: kept alive during a read, released after it.
 *
 * A release needs no message of its own: the ids are sent ahead of the next request, and the
 * background thread sends those that have waited for MCS_RELEASE_MS.  A pin belongs to the
 * connection (epoch) on which it was granted; the pins of a lost connection need no release. */
#ifndef MCS_LEASE_H
#define MCS_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/session.h"
#include "common/list.h"
#include "common/sys/lock.h"

#define MCS_RELEASE_MS 20

struct mcs_pin {
	uint64_t id;		/* 0: none */
	uint64_t epoch;
};

/* A running read, on its caller's stack; the background thread renews its pins. */
struct mcs_reading {
	struct mc_list link;
	const struct mcs_pin *pins;
	unsigned n;
	uint64_t renewed_ns;
};

struct mcs_leases {
	struct mc_mutex lock;	/* leaf */
	/* with the lock held */
	uint64_t epoch;		/* epoch of the pins in the queue */
	uint64_t *queue;	/* pins to release */
	unsigned n_queue, cap_queue;
	uint64_t flushed_ns;	/* when the queue was last empty or taken */
	struct mc_list readings;
	/* used by the background thread only: the pins that it sends */
	uint64_t *message;
	/* constant */
	void (*wake)(void *arg);	/* called when the queue became non-empty */
	void *arg;
};

int mcs_leases_init(struct mcs_leases *l, void (*wake)(void *arg), void *arg);
void mcs_leases_done(struct mcs_leases *l);

/* There is a new connection: pins of earlier ones are void. */
void mcs_leases_epoch(struct mcs_leases *l, uint64_t epoch);

/* Count in the metrics that @n pins were granted (negative: became void). */
void mcs_leases_granted(int n);

/* @pins must stay valid until mcs_leases_end(), which releases the pins. */
void mcs_leases_begin(struct mcs_leases *l, struct mcs_reading *rd, const struct mcs_pin *pins,
		      unsigned n, uint64_t granted_ns);
void mcs_leases_end(struct mcs_leases *l, struct mcs_reading *rd);

void mcs_leases_release(struct mcs_leases *l, struct mcs_pin pin);

/* For the piggyback of the RPC client: append a message with queued pins. */
void mcs_leases_piggyback(struct mcs_leases *l, struct mcp_buf *b);

/* Background thread: send pins that have waited long enough.  True: work is left. */
bool mcs_leases_flush(struct mcs_leases *l, struct mcs_session *s);
/* Background thread: renew the leases of reads that have used up half of @lease_ms. */
void mcs_leases_renew(struct mcs_leases *l, struct mcs_session *s, uint32_t lease_ms);

#endif
