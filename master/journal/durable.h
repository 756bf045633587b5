/* SPDX-License-Identifier: Apache-2.0
 * durable.h - small named values that survive a restart: tenants with their quotas, tasks.
 *
 * Their owners have the working state; they store a value here when that state changes. */
#ifndef MCM_DURABLE_H
#define MCM_DURABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "proto/msg.h"

struct mcm;
struct mcm_durable;
struct mcm_durable_record;

enum mcm_durable_kind {		/* stored: numbers are never reused */
	MCM_DURABLE_TENANT = 1,
	MCM_DURABLE_TASK = 2,
	MCM_DURABLE_POOL = 3,		/* name "identity": 16 bytes (pool.h) */
	MCM_DURABLE_LEARNED = 4,	/* name: a class in decimal; counts of the model (ops/uses.c) */
	MCM_DURABLE_CREDENTIAL = 5,	/* name: a serial number (security/credentials.c) */
};
#define MCM_DURABLE_NAME_MAX 1024u
#define MCM_DURABLE_VALUE_MAX 30720u	/* with the longest name it fits into a record */
#define MCM_DURABLES_MAX 262144u

/* A hash table; kind and name are unique. */
struct mcm_durables {
	struct mc_mutex lock;
	struct mcm_durable **bucket;
	unsigned buckets, count;
};

int mcm_durables_init(struct mcm_durables *ds);
void mcm_durables_done(struct mcm_durables *ds);

/* Set or delete a value; without a journal it lasts as long as the process.  Thread-safe, under any
 * lock but the journal's.  -MC_EPARAM, -MC_ELIMIT, -ENOMEM. */
int mcm_durable_set(struct mcm *m, enum mcm_durable_kind kind, struct mcp_bytes name,
		    struct mcp_bytes value);
void mcm_durable_drop(struct mcm *m, enum mcm_durable_kind kind, struct mcp_bytes name);
/* Call @fn with each value of a kind, or (0) of all kinds, with the table's lock held. */
void mcm_durables_each(struct mcm *m, uint16_t kind,
		       void (*fn)(void *arg, const struct mcm_durable_record *r), void *arg);

#endif
