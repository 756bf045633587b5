/* SPDX-License-Identifier: Apache-2.0
 * unproven.h - the objects of a restored segment that its owner has to compare with its memory (snapshot/confirm.h). */
#ifndef MCM_UNPROVEN_H
#define MCM_UNPROVEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "proto/msg.h"

struct mcm_object;
struct mcm_segment;

/* Result for a copy that a snapshot has. */
enum mcm_confirm_result {
	MCM_CONFIRM_PROVEN,		/* nothing can have changed */
	MCM_CONFIRM_EQUAL,		/* the owner found its bytes */
	MCM_CONFIRM_CHANGED,		/* the owner found other bytes */
	MCM_CONFIRM_UNREADABLE,		/* the owner could not read it */
	MCM_CONFIRM_LOST,		/* its owner has other memory, or did not return */
	MCM_CONFIRM_OLD,		/* its owner is of a version that cannot compare */
	MCM_CONFIRM_RESULTS
};

/* State of the comparison of an unproven segment. */
struct mcm_confirm {
	struct mc_mutex lock;		/* taken before those of shards */
	/* constant after the restore, until the segment is proven or dropped */
	struct mcm_confirm_entry {
		uint32_t slot, range;
	} *entry;			/* sorted by position; owned */
	size_t n, cap;
	bool doubted;			/* an earlier master has not proven it: its snapshots prove nothing */
	/* guarded by lock */
	size_t next, given;		/* entries before @next (atomic) are done, those before @given in the batch */
	uint64_t number;		/* number of the batch */
	struct mcm_confirm_sent {
		struct mcm_confirm_entry entry;
		struct mcp_confirm_item item;
	} *sent;			/* MCM_CONFIRM_ITEMS of them, owned; NULL: none was needed yet */
	unsigned n_sent;
	uint64_t count[MCM_CONFIRM_RESULTS];
	uint64_t began_ms;
	bool refused;			/* atomic: the owner was too slow, the rest is dropped */
	/* atomic */
	uint64_t upto;			/* ranges that begin before this granule are confirmed */
};

/* Before threads run: the object in @slot has this range; called in the order of positions.  -ENOMEM. */
int mcm_confirm_note(struct mcm_segment *s, uint32_t slot, uint32_t range);
/* Free the entries and the batch. */
void mcm_confirm_clear(struct mcm_confirm *c);
void mcm_confirm_done(struct mcm_confirm *c);

/* The object's shard locked: the segment's state for this copy: OK or SILENT of a segment that is CONFIRMING; OK of a
 * shared one whose owner is silent. */
uint8_t mcm_confirm_state(const struct mcm_segment *s, const struct mcm_object *o, uint32_t range);

#endif
