/* SPDX-License-Identifier: Apache-2.0
 * quarantine.h - ranges of aborted puts, unused while their writers may still write there. */
#ifndef MCM_QUARANTINE_H
#define MCM_QUARANTINE_H

#include <stddef.h>
#include <stdint.h>

#include "master/index/object.h"

struct mcm;
struct mcm_put;

/* A range of an aborted put. */
struct mcm_quarantined {
	uint64_t due_ms;
	uint64_t generation;
	struct mcm_extent extent;
	uint32_t tenant;
	uint64_t charged;		/* bytes charged to the tenant for this copy */
	uint64_t size;			/* of the object */
};

/* In the order of due_ms. */
struct mcm_quarantine {
	struct mcm_quarantined *ring;
	size_t head, count, cap;
};

/* Quarantine the ranges of a put that is in no table.  They are freed, and its tenant is refunded,
 * after put_quarantine. */
void mcm_quarantine_put(struct mcm *m, const struct mcm_put *put);
void mcm_quarantine_tick(struct mcm *m, uint64_t now_ms);

/* Quarantine a range to which a writer of an earlier master may still write.  -ENOMEM. */
int mcm_quarantine_restore(struct mcm *m, uint64_t generation, struct mcm_extent extent);

#endif
