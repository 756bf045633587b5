/* SPDX-License-Identifier: Apache-2.0
 * parts.c - the parts of the state that the journal keeps, in the order of a checkpoint's records.
 *
 * Segments come before the objects in them.  Unfinished puts come before objects: a put that ends between the two is in
 * the checkpoint twice, as put and as object, and the restore knows by the generation that it is over; in the other
 * order its ranges could be in no record. */
#include <config.h>

#include "master/journal/part.h"

#include "master/mcm_i.h"
#include "master/ops/uses.h"
#include "master/pool.h"
#include "master/snapshot/snapshot.h"

static int prepare_nothing(struct mcm *m, int dirfd)
{
	(void)m;
	(void)dirfd;
	return 0;
}

static int segment_nothing(struct mcm *m, const struct mcm_segment_record *r, bool unproven)
{
	(void)m;
	(void)r;
	(void)unproven;
	return 0;
}

static int put_nothing(struct mcm *m, uint64_t generation, struct mcm_extent extent)
{
	(void)m;
	(void)generation;
	(void)extent;
	return 0;
}

static void part_nothing(struct mcm *m)
{
	(void)m;
}

static void save_puts(struct mcm *m, struct mcm_checkpoint *to)
{
	mcm_puts_each(m, mcm_checkpoint_put, to);
}

const struct mcm_part mcm_parts[] = {
	{
		.name = "segments", .prepare = mcm_snapshot_fetch, .segment = mcm_segment_restore, .put = put_nothing,
		.discarded = part_nothing, .restored = mcm_confirm_begin, .update = part_nothing,
		.save = mcm_checkpoint_segments,
	},
	{
		.name = "values", .prepare = prepare_nothing, .segment = segment_nothing, .put = put_nothing,
		.discarded = mcm_pool_forget, .restored = part_nothing, .update = mcm_uses_save,
		.save = mcm_checkpoint_values,
	},
	{
		.name = "puts", .prepare = prepare_nothing, .segment = segment_nothing, .put = mcm_quarantine_restore,
		.discarded = part_nothing, .restored = part_nothing, .update = part_nothing,
		.save = save_puts,
	},
	{
		.name = "objects", .prepare = prepare_nothing, .segment = segment_nothing, .put = put_nothing,
		.discarded = part_nothing, .restored = part_nothing, .update = part_nothing,
		.save = mcm_checkpoint_objects,
	},
};
const unsigned mcm_parts_n = sizeof(mcm_parts) / sizeof(mcm_parts[0]);
