/* SPDX-License-Identifier: Apache-2.0
 * part.h - the parts of the state that the journal keeps, in the order in which a checkpoint has them.
 *
 * The journal asks every part at each of the points below, in the order of mcm_parts (master/parts.c), and knows no
 * part by name: new state is one more row.  A part without work at a point has a function that does nothing. */
#ifndef MCM_PART_H
#define MCM_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "master/index/object.h"

struct mcm;
struct mcm_checkpoint;
struct mcm_put_record;
struct mcm_segment_record;

struct mcm_part {
	const char *name;
	/* ---- a start, one thread ---- */
	/* The directory @dirfd is locked and not read: put a state there, or leave it.  -errno with a detail. */
	int (*prepare)(struct mcm *m, int dirfd);
	/* A record of a segment that was mounted at the end.  @unproven: its objects may have changed.  -MC_EPARAM: the
	 * record is skipped; -ENOMEM. */
	int (*segment)(struct mcm *m, const struct mcm_segment_record *r, bool unproven);
	/* The unfinished put @generation has this range, which is allocated.  -ENOMEM. */
	int (*put)(struct mcm *m, uint64_t generation, struct mcm_extent extent);
	/* The records were not usable: forget the values that stand for the objects. */
	void (*discarded)(struct mcm *m);
	/* Everything is restored, and no other thread runs. */
	void (*restored)(struct mcm *m);
	/* ---- a checkpoint; other threads change the state meanwhile ---- */
	/* No lock held, before the journal's new file begins: update the durable values of this part. */
	void (*update)(struct mcm *m);
	/* Append a record of each thing to @to, under the lock that guards its changes. */
	void (*save)(struct mcm *m, struct mcm_checkpoint *to);
};

extern const struct mcm_part mcm_parts[];
extern const unsigned mcm_parts_n;

/* ---- for save (checkpoint.c) ---- */

void mcm_checkpoint_segments(struct mcm *m, struct mcm_checkpoint *to);
void mcm_checkpoint_values(struct mcm *m, struct mcm_checkpoint *to);
void mcm_checkpoint_objects(struct mcm *m, struct mcm_checkpoint *to);
/* One record; @to: struct mcm_checkpoint. */
void mcm_checkpoint_put(void *to, const struct mcm_put_record *r);

#endif
