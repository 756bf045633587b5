/* SPDX-License-Identifier: Apache-2.0
 * backlog.h - objects of a segment that wait to be copied to another medium: a bounded queue, oldest first.
 *
 * An entry is a hint: the object may have changed since.  The caller holds the segment's lock. */
#ifndef MCM_BACKLOG_H
#define MCM_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

struct mcm_backlog_entry {
	uint32_t slot, range;
	uint64_t generation;
	unsigned failures;	/* to find space for its copy */
};

struct mcm_backlog {
	struct mcm_backlog_entry *ring;
	unsigned cap, head, n;
	unsigned urgent;	/* entries at the front that were asked for */
	bool missed;		/* objects may have to be copied that are not in the queue */
	bool walks;		/* a walk that looks for them has not come to its end */
	bool unlisted;		/* memory: of these, some may be on no list of the eviction policy either */
	bool wanted;		/* memory: a put needs the space of objects that wait; relaxed atomic */
};

/* At most @max entries; false: it is full, or there is no memory. */
bool mcm_backlog_push(struct mcm_backlog *b, unsigned max, const struct mcm_backlog_entry *e);
/* The same, at the front. */
bool mcm_backlog_push_front(struct mcm_backlog *b, unsigned max, const struct mcm_backlog_entry *e);
/* False: it is empty. */
bool mcm_backlog_pop(struct mcm_backlog *b, struct mcm_backlog_entry *ret);
/* Drop all entries; returns their number. */
unsigned mcm_backlog_clear(struct mcm_backlog *b);

#endif
