/* SPDX-License-Identifier: Apache-2.0
 * quarantine.h - ranges of aborted puts, kept unused while their writers may still write there. */
#ifndef MCM_QUARANTINE_H
#define MCM_QUARANTINE_H

#include <stddef.h>
#include <stdint.h>

#include "master/index/object.h"

struct mcm;
struct mcm_put;

/* Ranges of broken-off puts: bytes for them may still be on their way. */
struct mcm_quarantined {
	uint64_t due_ms;
	uint64_t generation;
	struct mcm_extent extent;
	uint32_t tenant;
	uint64_t charged;		/* to the tenant, for this copy */
	uint64_t size;			/* of the put's object */
};

/* In the order of due_ms. */
struct mcm_quarantine {
	struct mcm_quarantined *ring;
	size_t head, count, cap;
};

/* A put that is in no table any more: its ranges are free, and its tenant pays for them, until put_quarantine has
 * passed. */
void mcm_quarantine_put(struct mcm *m, const struct mcm_put *put);
void mcm_quarantine_tick(struct mcm *m, uint64_t now_ms);

/* A range that a writer of an earlier master may still write to.  -ENOMEM. */
int mcm_quarantine_restore(struct mcm *m, uint64_t generation, struct mcm_extent extent);

#endif
